"""What the RPC tracker, its servers and their clients share: the protocol, and addresses.

It imports nothing that a server does not need.
"""

from __future__ import annotations

import socket
import struct

from ..errors import TuningError

__all__ = [
    "LOAD_PACKAGE",
    "MAGIC",
    "MISMATCH",
    "SUCCESS",
    "TRACKER_MAGIC",
    "Junk",
    "exactly",
    "listening",
    "number",
    "packed",
    "parse_address",
    "text",
]

# TVM's python/tvm/rpc/base.py.
MAGIC, TRACKER_MAGIC = 0xFF271, 0x2F271
SUCCESS, MISMATCH = MAGIC, MAGIC + 2
# Our servers' function that checks and loads a package that was uploaded.
LOAD_PACKAGE = "tvmlab.load_package"
_LONGEST = 1 << 20


class Junk(Exception):
    """What came over a connection is not the protocol."""


def exactly(connection: socket.socket, length: int) -> bytes:
    """Receive so many bytes, or raise OSError."""
    pieces = b""
    while len(pieces) < length:
        piece = connection.recv(length - len(pieces))
        if not piece:
            raise ConnectionError("the other end closed the connection")
        pieces += piece
    return pieces


def number(connection: socket.socket) -> int:
    """Receive a number."""
    return int(struct.unpack("<i", exactly(connection, 4))[0])


def text(connection: socket.socket) -> str:
    """Receive a text: its length, then UTF-8."""
    length = number(connection)
    if not 0 <= length <= _LONGEST:
        raise Junk(f"a text of {length} bytes")
    return exactly(connection, length).decode(errors="replace")


def packed(text: str) -> bytes:
    """Give a text as it is sent."""
    return struct.pack("<i", len(text.encode())) + text.encode()


def parse_address(text: str) -> tuple[str, int]:
    """Read ``host:port``.

    Parameters
    ----------
    text : str
        Such as ``127.0.0.1:9190``.

    Returns
    -------
    (str, int)
        The host and the port.

    Raises
    ------
    TuningError
        It is something else.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise TuningError(
            "The address of an RPC tracker or server is its host and its port.",
            where=repr(text),
            fix='write it as in "127.0.0.1:9190"',
        )
    return host, int(port)


def listening(host: str, port: int) -> socket.socket:
    """Listen at an address, and at no other.

    Parameters
    ----------
    host : str
        An address of this machine, or ``0.0.0.0`` for all.
    port : int
        The port; 0 for any that is free.

    Returns
    -------
    socket.socket
        A socket that accepts connections.

    Raises
    ------
    TuningError
        The address is not this machine's, or is taken.
    """
    try:
        return socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise TuningError(
            f"It cannot listen there: {getattr(error, 'strerror', None) or error}",
            where=f"{host}:{port}",
            fix="choose another --port (0 is any that is free), or a --host of this machine",
        ) from error
