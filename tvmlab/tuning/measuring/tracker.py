"""Asking an RPC tracker for servers; unlike TVM's own client, never for ever."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections import Counter
from typing import Any

from ...errors import TuningError
from ...rpc import parse_address
from ...rpc_server import TRACKER_MAGIC, Junk, exactly, number, packed, text

__all__ = ["Tracker"]

_TALK_SECONDS = 5.0
_REQUEST, _SUMMARY = 4, 6


class Tracker:
    """A tracker, which knows what servers there are.

    Parameters
    ----------
    address : str
        Its ``host:port``.
    key : str
        What kind of servers are wanted.

    Raises
    ------
    TuningError
        The address is none.
    """

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = address, key
        self._where = parse_address(address)

    def servers(self) -> int:
        """Count the servers of the kind, free and busy ones.

        Returns
        -------
        int

        Raises
        ------
        TuningError
            The tracker does not answer.
        """
        return self._kinds()[self._key]

    def expect(self) -> None:
        """See to it that there is a server.

        Raises
        ------
        TuningError
            There is none, or no tracker.
        """
        kinds = self._kinds()
        if not kinds[self._key]:
            others = ", ".join(sorted(repr(kind) for kind in kinds))
            raise TuningError(
                f"The tracker knows no server of the key {self._key!r}, "
                + (f"only of {others}." if others else "and no other."),
                where=self._address,
                fix=f"start one where kernels shall run: tvmlab rpc-server --key {self._key} "
                f"--tracker {self._address}",
            )

    def _kinds(self) -> Counter[str]:
        try:
            with self._connected() as connection:
                connection.sendall(packed(json.dumps([_SUMMARY])))
                _, summary = json.loads(text(connection))
                keys = [str(found["key"]) for found in summary["server_info"]]
        except (OSError, ValueError, KeyError, TypeError, Junk) as error:
            raise self._absent(error) from error
        return Counter(key.removeprefix("server:") for key in keys)

    def request(self, seconds: float) -> tuple[str, int, str] | None:
        """Take a server.

        Parameters
        ----------
        seconds : float
            How long to wait until one is free.

        Returns
        -------
        (str, int, str) or None
            Its host, its port, and the key that it expects; None where none was free.

        Raises
        ------
        TuningError
            The tracker does not answer.
        """
        try:
            with self._connected() as connection:
                connection.sendall(packed(json.dumps([_REQUEST, self._key, "", 1])))
                connection.settimeout(seconds)
                try:
                    first = connection.recv(1)
                except TimeoutError:
                    return None
                connection.settimeout(_TALK_SECONDS)
                length = struct.unpack("<i", first + exactly(connection, 3))[0]
                _, (host, port, match) = json.loads(exactly(connection, length))
                return str(host), int(port), str(match)
        except (OSError, ValueError, TypeError, struct.error, Junk) as error:
            raise self._absent(error) from error

    def _connected(self) -> socket.socket:
        deadline = time.monotonic() + _TALK_SECONDS
        connection = socket.create_connection(self._where, timeout=_TALK_SECONDS)
        try:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            connection.sendall(struct.pack("<i", TRACKER_MAGIC))
            if number(connection) != TRACKER_MAGIC:
                raise Junk("what answers there is no RPC tracker")
        except BaseException:
            connection.close()
            raise
        connection.settimeout(_TALK_SECONDS)
        return connection

    def _absent(self, error: Exception) -> TuningError:
        why: Any = error.strerror if isinstance(error, OSError) and error.strerror else error
        return TuningError(
            f"The RPC tracker does not answer: {why}",
            where=self._address,
            fix=f"start it: tvmlab rpc-tracker --host {self._where[0]} --port {self._where[1]}",
        )
