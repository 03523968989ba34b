"""The servers of a tracker that can run what is compiled for the target."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

from tvm.rpc.base import RPC_MAGIC, recvall

from ...errors import RemoteError, TargetError, TuningError
from ...runtime.tracker import TALK_SECONDS, Tracker

__all__ = ["Servers"]

_PAUSE_SECONDS = 0.5


@contextlib.contextmanager
def _tuning_errors() -> Iterator[None]:
    """Raise what a tracker's client raises as an error of tuning, which keeps its report."""
    try:
        yield
    except RemoteError as error:
        raise TuningError(error.what, where=error.where, fix=error.fix) from error


class Servers(Tracker):
    """A client of a tracker that leaves out the servers that turned out to be of no use.

    Its methods raise `TuningError` where those of `Tracker` raise `RemoteError`.
    """

    @_tuning_errors()
    def __init__(self, address: str, key: str) -> None:
        super().__init__(address, key)
        self._left_out: dict[tuple[str, int], str] = {}

    def leave_out(self, server: tuple[str, int, str], why: str) -> bool:
        """Stop using a server that `request` returned; return whether it was in use until now."""
        news = server[:2] not in self._left_out
        self._left_out[server[:2]] = why
        return news

    @_tuning_errors()
    def addresses(self) -> list[tuple[str, int]]:
        """List the servers of the key without those left out."""
        return [server for server in super().addresses() if server not in self._left_out]

    @_tuning_errors()
    def expect(self) -> None:
        """Check that there is a server.

        Raises
        ------
        TargetError
            Every server of the key was left out.
        TuningError
            The tracker has no server of the key, or does not answer.
        """
        super().expect()
        if not self.servers():
            raise TargetError(
                f"No server of the key {self._key!r} can run what is compiled for the target.",
                where="; ".join(
                    f"{host}:{port}: {why}" for (host, port), why in self._left_out.items()
                ),
                fix="tune for the servers' processor and its threads, or start servers that have "
                "what the target asks for",
            )

    @_tuning_errors()
    def request(self, seconds: float) -> tuple[str, int, str] | None:
        """Reserve a server that is not left out; return None if none was free in time."""
        deadline, refused = time.monotonic() + seconds, set[tuple[str, int]]()
        while (left := deadline - time.monotonic()) > 0:
            server = super().request(left)
            if server is None or server[:2] not in self._left_out:
                return server
            _give_back(server)
            if server[:2] in refused:  # no other server is free
                time.sleep(_PAUSE_SECONDS)
            refused.add(server[:2])
        return None


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
