"""Asking an RPC tracker for servers; unlike TVM's own client, never for ever."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections import defaultdict
from typing import Any

from ..errors import TargetError, TuningError
from .protocol import MAGIC, TRACKER_MAGIC, Junk, exactly, number, packed, parse_address, text

__all__ = ["Tracker"]

_TALK_SECONDS, _PAUSE_SECONDS = 5.0, 0.5
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
        self._left_out: dict[tuple[str, int], str] = {}

    def leave_out(self, server: tuple[str, int, str], why: str) -> bool:
        """Take a server no more.

        Parameters
        ----------
        server : (str, int, str)
            From `request`.
        why : str
            What is wrong with it.

        Returns
        -------
        bool
            Whether it is news.
        """
        news = server[:2] not in self._left_out
        self._left_out[server[:2]] = why
        return news

    def servers(self) -> int:
        """Count the servers of the kind, free and busy ones, less those left out.

        Returns
        -------
        int

        Raises
        ------
        TuningError
            The tracker does not answer.
        """
        return self._usable(self._known())

    def expect(self) -> None:
        """See to it that there is a server.

        Raises
        ------
        TargetError
            All that there are were left out.
        TuningError
            There is none, or no tracker.
        """
        known = self._known()
        if not known[self._key]:
            others = ", ".join(sorted(repr(kind) for kind in known if known[kind]))
            raise TuningError(
                f"The tracker knows no server of the key {self._key!r}, "
                + (f"only of {others}." if others else "and no other."),
                where=self._address,
                fix=f"start one where kernels shall run: tvmlab rpc-server --key {self._key} "
                f"--tracker {self._address}",
            )
        if not self._usable(known):
            reasons = "; ".join(
                f"{host}:{port}: {why}" for (host, port), why in self._left_out.items()
            )
            raise TargetError(
                f"No server of the key {self._key!r} can run what is compiled for the target.",
                where=reasons,
                fix="tune for the servers' processor and its threads, or start servers that have "
                "what the target asks for",
            )

    def _usable(self, known: dict[str, list[tuple[str, int]]]) -> int:
        return sum(server not in self._left_out for server in known[self._key])

    def _known(self) -> dict[str, list[tuple[str, int]]]:
        """List the servers' addresses by key."""
        found: dict[str, list[tuple[str, int]]] = defaultdict(list)
        try:
            with self._connected() as connection:
                connection.sendall(packed(json.dumps([_SUMMARY])))
                _, summary = json.loads(text(connection))
                for told in summary["server_info"]:
                    host, port = told["addr"]
                    found[str(told["key"]).removeprefix("server:")].append((str(host), int(port)))
        except (OSError, ValueError, KeyError, TypeError, Junk) as error:
            raise self._absent(error) from error
        return found

    def request(self, seconds: float) -> tuple[str, int, str] | None:
        """Take a server.

        Parameters
        ----------
        seconds : float
            How long to wait until one is free.

        Returns
        -------
        (str, int, str) or None
            Its host, its port, and the key that it expects; None where none was free. One that was
            left out is given back.

        Raises
        ------
        TuningError
            The tracker does not answer.
        """
        deadline, again = time.monotonic() + seconds, set[tuple[str, int]]()
        while (server := self._next(max(0.0, deadline - time.monotonic()))) is not None:
            if server[:2] not in self._left_out:
                return server
            self._give_back(server)
            if server[:2] in again:  # no other is free
                time.sleep(_PAUSE_SECONDS)
            again.add(server[:2])
        return None

    def _next(self, seconds: float) -> tuple[str, int, str] | None:
        if seconds <= 0:
            return None
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

    def _give_back(self, server: tuple[str, int, str]) -> None:
        """Come to a server and go, so that it offers itself to others at once."""
        host, port, match = server
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, port), timeout=_TALK_SECONDS) as connection,
        ):
            connection.settimeout(_TALK_SECONDS)
            connection.sendall(struct.pack("<i", MAGIC) + packed(f"client:{match}"))
            number(connection)

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
