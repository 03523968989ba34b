"""RPC trackers: the command that runs one, and a client that never waits forever.

A tracker keeps the list of RPC servers and of those that are free. The tracker, its protocol and
its messages are TVM's (``tvm/rpc/tracker.py``).
"""

from __future__ import annotations

import contextlib
import secrets
import select
import signal
import socket
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tvm.rpc.base import RPC_MAGIC, RPC_TRACKER_MAGIC, TrackerCode, recvall, recvjson, sendjson

from ..errors import TargetError, TuningError

__all__ = ["TALK_SECONDS", "Tracker", "ask", "connect", "listen", "parse_address", "serve"]

TRUSTED = (
    "TVM's RPC runs whatever it is sent, for anybody who can reach the port: listen on trusted "
    "networks only."
)
#: How long the other end of a connection has for each step of a handshake.
TALK_SECONDS = 5.0
_PAUSE_SECONDS = 0.5


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port`` into the host and the port.

    Raises
    ------
    TuningError
        The text is not an address.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise TuningError(
            "The address of an RPC tracker or server is its host and its port.",
            where=repr(text),
            fix='write it as in "127.0.0.1:9190"',
        )
    return host, int(port)


def listen(host: str, port: int) -> socket.socket:
    """Listen at one address of this machine, or at all of them for ``0.0.0.0``.

    Port 0 is any free port.

    Raises
    ------
    TuningError
        The address belongs to another machine, or the port is in use.
    """
    try:
        return socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise TuningError(
            f"It cannot listen there: {getattr(error, 'strerror', None) or error}",
            where=f"{host}:{port}",
            fix="choose another --port (0 is any that is free), or a --host of this machine",
        ) from error


def serve(host: str, port: int) -> None:
    """Run TVM's tracker in this process until Ctrl-C or SIGTERM.

    Raises
    ------
    TuningError
        The address cannot be listened at, or tornado is not installed.
    """
    try:
        from tvm.rpc import tracker
    except ImportError as error:
        raise TuningError(
            "TVM's tracker needs tornado.", where=str(error), fix="pip install 'tornado>=6.6'"
        ) from error
    with listen(host, port) as listener, contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        found = listener.getsockname()
        print(f"tracking at {found[0]}:{found[1]}. {TRUSTED}", flush=True)
        # TVM's class `Tracker` starts another process for this function.
        tracker._tracker_server(listener, secrets.token_hex(16))


def connect(address: tuple[str, int]) -> socket.socket:
    """Connect to a tracker; raise OSError or ValueError if there is none."""
    connection = socket.create_connection(address, timeout=TALK_SECONDS)
    try:
        connection.sendall(struct.pack("<i", RPC_TRACKER_MAGIC))
        if struct.unpack("<i", recvall(connection, 4))[0] != RPC_TRACKER_MAGIC:
            raise ValueError("the program at this address is not an RPC tracker")
    except BaseException:
        connection.close()
        raise
    return connection


def ask(connection: socket.socket, *message: Any) -> Any:
    """Send a message to a tracker and return its answer."""
    sendjson(connection, message)
    return recvjson(connection)


class Tracker:
    """A client of a tracker, which asks for servers of one key.

    Parameters
    ----------
    address : str
        The tracker's ``host:port``.
    key : str
        The kind of servers.

    Raises
    ------
    TuningError
        The address is malformed.
    """

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = parse_address(address), key
        self._left_out: dict[tuple[str, int], str] = {}

    def leave_out(self, server: tuple[str, int, str], why: str) -> bool:
        """Stop using a server that `request` returned; return whether it was in use until now."""
        news = server[:2] not in self._left_out
        self._left_out[server[:2]] = why
        return news

    def servers(self) -> int:
        """Count the servers of the key, free and busy, without those left out.

        Raises
        ------
        TuningError
            The tracker does not answer.
        """
        return self._usable(self._known())

    def expect(self) -> None:
        """Check that there is a server.

        Raises
        ------
        TargetError
            Every server of the key was left out.
        TuningError
            The tracker has no server of the key, or does not answer.
        """
        known = self._known()
        if not known[self._key]:
            others = ", ".join(sorted(repr(kind) for kind in known if known[kind]))
            where = ":".join(map(str, self._address))
            raise TuningError(
                f"The tracker knows no server of the key {self._key!r}, "
                + (f"only of {others}." if others else "and no other."),
                where=where,
                fix="start one on the machine that is to run the kernels: tvmlab rpc-server "
                f"--key {self._key} --tracker {where}",
            )
        if not self._usable(known):
            raise TargetError(
                f"No server of the key {self._key!r} can run what is compiled for the target.",
                where="; ".join(
                    f"{host}:{port}: {why}" for (host, port), why in self._left_out.items()
                ),
                fix="tune for the servers' processor and its threads, or start servers that have "
                "what the target asks for",
            )

    def request(self, seconds: float) -> tuple[str, int, str] | None:
        """Reserve a server.

        Parameters
        ----------
        seconds : float
            How long to wait for a server that is free.

        Returns
        -------
        (str, int, str) or None
            The server's host and port and the key to connect with, or None if no server was free.

        Raises
        ------
        TuningError
            The tracker does not answer.
        """
        deadline, refused = time.monotonic() + seconds, set[tuple[str, int]]()
        while (server := self._next(deadline - time.monotonic())) is not None:
            if server[:2] not in self._left_out:
                return server
            _give_back(server)
            if server[:2] in refused:  # no other server is free
                time.sleep(_PAUSE_SECONDS)
            refused.add(server[:2])
        return None

    def _next(self, seconds: float) -> tuple[str, int, str] | None:
        if seconds <= 0:
            return None
        with self._connected() as connection:
            sendjson(connection, [TrackerCode.REQUEST, self._key, "", 1])
            if not select.select([connection], [], [], seconds)[0]:
                return None
            _, (host, port, match) = recvjson(connection)
            return str(host), int(port), str(match)

    def _known(self) -> dict[str, list[tuple[str, int]]]:
        """List the addresses of all servers by key."""
        found = defaultdict[str, list[tuple[str, int]]](list)
        with self._connected() as connection:
            _, summary = ask(connection, TrackerCode.SUMMARY)
            for each in summary["server_info"]:
                host, port = each["addr"]
                found[each["key"].removeprefix("server:")].append((host, port))
        return found

    def _usable(self, known: dict[str, list[tuple[str, int]]]) -> int:
        return sum(server not in self._left_out for server in known[self._key])

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        """Connect to the tracker, and raise our error for whatever goes wrong in the block."""
        try:
            with connect(self._address) as connection:
                yield connection
        except (OSError, ValueError, TypeError, LookupError, struct.error) as error:
            host, port = self._address
            raise TuningError(
                f"The RPC tracker does not answer: {getattr(error, 'strerror', None) or error}",
                where=f"{host}:{port}",
                fix=f"start it: tvmlab rpc-tracker --host {host} --port {port}",
            ) from error


def _give_back(server: tuple[str, int, str]) -> None:
    """Connect to a server and hang up, so that the server offers itself again at once."""
    host, port, match = server
    greeting = f"client:{match}".encode()
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), timeout=TALK_SECONDS) as connection,
    ):
        connection.sendall(struct.pack("<ii", RPC_MAGIC, len(greeting)) + greeting)
        recvall(connection, 4)
