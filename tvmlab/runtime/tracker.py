"""RPC trackers: the command that runs one, and the parts of a client that never wait forever.

A tracker keeps the list of RPC servers and of those that are free. The tracker, its protocol and
its messages are TVM's (``tvm/rpc/tracker.py``). TVM's own client has no time limits, and connects
to the server that it gets, which a tuner leaves to another process.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import select
import signal
import socket
import struct
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from tvm.error import RPCError, RPCSessionTimeoutError
from tvm.rpc.base import RPC_TRACKER_MAGIC, TrackerCode, recvall, recvjson, sendjson

from ..errors import RemoteError
from ..support.extras import need
from ..support.host import ABILITIES, Abilities

__all__ = ["Tracker", "abilities_of", "parse_address", "serve", "server_message"]

#: How long the other end of a connection has for each step of a handshake.
TALK_SECONDS = 15.0


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port`` into the host and the port."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise RemoteError(
            "The address of an RPC tracker or server is its host and its port.",
            where=repr(text),
            fix='write it as in "127.0.0.1:9190"',
        )
    return host, int(port)


def listen(host: str, port: int) -> socket.socket:
    """Listen at one address of this machine, or at all of them for ``0.0.0.0``."""
    try:
        return socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        raise RemoteError(
            f"It cannot listen there: {getattr(error, 'strerror', None) or error}",
            where=f"{host}:{port}",
            fix="choose another --port (0 is any that is free), or a --host of this machine",
        ) from error


def serve(host: str, port: int) -> None:
    """Run TVM's tracker in this process until Ctrl-C or SIGTERM."""
    need("tornado", extra="tune")
    from tvm.rpc import tracker

    # A client that stops waiting breaks its connection, which TVM logs as a warning.
    tracker.logger.setLevel("ERROR")
    with listen(host, port) as listener, contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        found = listener.getsockname()
        print(f"tracking at {found[0]}:{found[1]}", flush=True)
        # TVM's class `Tracker` starts another process for this function.
        tracker._tracker_server(listener, secrets.token_hex(16))


@contextlib.contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Connect to a tracker for the length of a block."""
    host, port = address
    try:
        with socket.create_connection(address, timeout=TALK_SECONDS) as connection:
            connection.sendall(struct.pack("<i", RPC_TRACKER_MAGIC))
            if struct.unpack("<i", recvall(connection, 4))[0] != RPC_TRACKER_MAGIC:
                raise ValueError("the program at this address is not an RPC tracker")
            yield connection
    except (OSError, ValueError, TypeError, LookupError, struct.error) as error:
        raise RemoteError(
            f"The RPC tracker does not answer: {getattr(error, 'strerror', None) or error}",
            where=f"{host}:{port}",
            fix=f"start it: tvmlab rpc-tracker --host {host} --port {port}",
        ) from error


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
    RemoteError
        The address is malformed; or, by every method, the tracker does not answer.
    """

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = parse_address(address), key

    def servers(self) -> int:
        """Count the servers of the key, free and busy."""
        return len(self._known()[self._key])

    def expect(self) -> None:
        """Raise `RemoteError` unless the tracker has a server of the key."""
        known = self._known()
        if not known[self._key]:
            others = ", ".join(sorted(repr(kind) for kind in known if known[kind]))
            where = ":".join(map(str, self._address))
            raise RemoteError(
                f"The tracker knows no server of the key {self._key!r}, "
                + (f"only of {others}." if others else "and no other."),
                where=where,
                fix="start one on the machine that is to run the kernels: tvmlab rpc-server "
                f"--key {self._key} --tracker {where}",
            )

    def request(self, seconds: float) -> tuple[str, int, str] | None:
        """Reserve a server: host, port and the key to connect with; None if none was free."""
        with connected(self._address) as connection:
            sendjson(connection, [TrackerCode.REQUEST, self._key, "", 1])
            if not select.select([connection], [], [], seconds)[0]:
                return None
            _, (host, port, match) = recvjson(connection)
            return str(host), int(port), str(match)

    def _known(self) -> dict[str, list[tuple[str, int]]]:
        """List the addresses of all servers by key."""
        found = defaultdict[str, list[tuple[str, int]]](list)
        with connected(self._address) as connection:
            _, summary = ask(connection, TrackerCode.SUMMARY)
            for each in summary["server_info"]:
                host, port = each["addr"]
                found[each["key"].removeprefix("server:")].append((host, port))
        return found


def abilities_of(session: Any) -> Abilities | None:
    """Ask a server what it can run; return None if it is TVM's own, which does not tell."""
    try:
        return Abilities(*json.loads(str(session.get_function(ABILITIES)())))
    except AttributeError:
        return None


def server_message(error: BaseException) -> str:
    """Extract what a server says of a call that failed there; empty if the connection broke."""
    if isinstance(error, RPCSessionTimeoutError):
        return str(error).rpartition("RPCSessionTimeoutError: ")[2].strip()
    if isinstance(error, RPCError):  # TVM wraps the message more than once
        return str(error).partition("Error caught from RPC call:")[2].strip()
    return ""
