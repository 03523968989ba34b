"""Messages between this process and its workers: a length of four bytes, then JSON in UTF-8."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

__all__ = ["receive", "send"]

_LENGTH = struct.Struct("<I")
_PIECE = 1 << 20


def send(channel: socket.socket, message: dict[str, Any], deadline: float | None = None) -> None:
    """Send a message.

    Parameters
    ----------
    channel : socket.socket
        A connected stream.
    message : dict
        What JSON can say.
    deadline : float, optional
        When to give up, by ``time.monotonic``; without one, never.

    Raises
    ------
    OSError
        The other end is gone, or did not take the message in time (TimeoutError).
    """
    text = json.dumps(message).encode()
    channel.settimeout(_left(deadline))
    channel.sendall(_LENGTH.pack(len(text)) + text)


def receive(channel: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """Wait for a message.

    Parameters
    ----------
    channel : socket.socket
        A connected stream.
    deadline : float, optional
        When to give up, by ``time.monotonic``; without one, never.

    Returns
    -------
    dict
        The message.

    Raises
    ------
    EOFError
        The other end is gone.
    OSError
        Nothing came in time (TimeoutError), or the connection broke.
    """
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size, deadline))
    message: dict[str, Any] = json.loads(_exactly(channel, length, deadline))
    return message


def _exactly(channel: socket.socket, length: int, deadline: float | None) -> bytes:
    pieces = bytearray()
    while len(pieces) < length:
        channel.settimeout(_left(deadline))
        piece = channel.recv(min(_PIECE, length - len(pieces)))
        if not piece:
            raise EOFError("the other end closed the connection")
        pieces += piece
    return bytes(pieces)


def _left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:  # a timeout of 0 would make the socket one that never waits
        raise TimeoutError("the time is over")
    return left
