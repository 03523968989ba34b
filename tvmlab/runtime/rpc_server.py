"""An RPC server that runs kernels for other machines: TVM's protocol, one client at a time.

TVM's own server (``python -m tvm.exec.rpc_server``) does not answer any more after a kernel has
crashed, and waits forever for a client that connects and stays silent. This server runs each
session in a forked process, so that a kernel that crashes or hangs ends only its own session, and
it tells the client how the kernel ended.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import select
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn

import tvm
import tvm_ffi
from tvm.rpc.base import (
    RPC_CODE_MISMATCH,
    RPC_CODE_SUCCESS,
    RPC_MAGIC,
    TrackerCode,
    random_key,
    recvall,
)

from ..support.host import ABILITIES, abilities, physical_cores
from .forked import doomed, how_it_died
from .tracker import TALK_SECONDS, ask, connect, listen

__all__ = ["LOAD_PACKAGE", "serve"]

#: The remote function that checks and loads an uploaded package.
LOAD_PACKAGE = "tvmlab.load_package"
# The server looks every two seconds at what the tracker lists. If a client has reserved the server
# and has not come after three looks, the server offers itself again.
_LOOK_SECONDS, _LOOKS = 2.0, 3
_END_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_FORK = multiprocessing.get_context("fork")


def serve(
    host: str, port: int, key: str, tracker: tuple[str, int] | None, device_seconds: float = 0.0
) -> None:
    """Run a server in this process until Ctrl-C or SIGTERM.

    Parameters
    ----------
    host : str
        The address of this machine to listen at, or ``0.0.0.0`` for all.
    port : int
        The port, or 0 for any free port.
    key : str
        The kind of this device: clients ask the tracker for a server of a key.
    tracker : (str, int) or None
        The tracker to register with, which can start later. Without one, clients connect to the
        server's address and send the key.
    device_seconds : float
        A simulated slow device: each module takes this many seconds longer to load.

    Raises
    ------
    TuningError
        The address cannot be listened at.
    """
    server = _Server(host, port, key, tracker, max(0.0, device_seconds))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    abilities()  # asked once, before the first fork
    if "OMP_NUM_THREADS" not in os.environ:
        # Not `host_target`, which starts TVM's threads: a forked session would not have them.
        os.environ.setdefault("TVM_NUM_THREADS", str(physical_cores()))
    _say(f"serving {key} at {server.address[0]}:{server.address[1]}")
    if device_seconds > 0:
        _say(f"SIMULATED: each measurement takes {device_seconds:g} s more than it does")
    gc.freeze()  # a fork then copies no page only because its collector marks the objects
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


def hidden(here: str, tracker: str) -> bool:
    """Return whether the tracker's other clients cannot reach the address ``here``."""
    return ip_address(here).is_loopback and not ip_address(tracker).is_loopback


class _Offer:
    """The server's entry at the tracker, which lasts as long as the connection."""

    def __init__(self, tracker: tuple[str, int], key: str, address: tuple[str, int]) -> None:
        self._key, self._port = key, address[1]
        # For a server that listens at all addresses, the tracker lists the one that it sees.
        self._host = None if address[0] == "0.0.0.0" else address[0]
        self.connection = connect(tracker)
        entry = {"key": f"server:{key}", "addr": [self._host, self._port]}
        ask(self.connection, TrackerCode.UPDATE_INFO, entry)
        self.renew()

    def renew(self) -> None:
        """Tell the tracker that the server is free, under a new key."""
        self.match = random_key(self._key)
        ask(self.connection, TrackerCode.PUT, self._key, [self._port, self.match], self._host)
        self._misses = 0

    def look(self) -> None:
        """Offer the server again if the client that reserved it does not connect."""
        free = self.match in ask(self.connection, TrackerCode.GET_PENDING_MATCHKEYS)
        self._misses = 0 if free else self._misses + 1
        if self._misses >= _LOOKS:
            self.renew()


class _Server:
    """Accepts one client after the other."""

    def __init__(
        self,
        host: str,
        port: int,
        key: str,
        tracker: tuple[str, int] | None,
        device_seconds: float,
    ) -> None:
        self._key, self._tracker, self._device_seconds = key, tracker, device_seconds
        self._listener = listen(host, port)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._offer: _Offer | None = None

    def run(self) -> NoReturn:
        """Serve, and register again whenever the tracker comes back."""
        said = ""
        while True:
            try:
                if self._tracker and self._offer is None:
                    self._offer = _Offer(self._tracker, self._key, self.address)
                    _say("the tracker knows this server")
                    if hidden(self.address[0], self._offer.connection.getpeername()[0]):
                        _say(
                            f"only this machine reaches {self.address[0]}, and the tracker is on "
                            "another: for clients there, start it with --host 0.0.0.0"
                        )
                    said = ""
                self._wait()
            except (OSError, ValueError, TypeError, struct.error) as error:  # from the tracker
                if self._offer is not None:
                    self._offer.connection.close()
                    self._offer = None
                if str(error) != said:
                    said = str(error)
                    _say(f"no tracker, trying again: {error}")
                time.sleep(1.0)

    def _wait(self) -> None:
        """Wait for a client and serve it, or look at what the tracker lists."""
        if not select.select([self._listener], [], [], _LOOK_SECONDS)[0]:
            if self._offer is not None:
                self._offer.look()
            return
        connection, address = self._listener.accept()
        with connection:
            try:
                seconds = self._shake_hands(connection)
            except (OSError, ValueError) as error:
                _say(f"{address[0]} was turned away: {error}")
                return
            self._serve(connection, seconds)
        if self._offer is not None:
            self._offer.renew()

    def _shake_hands(self, connection: socket.socket) -> float:
        """Check a client's key; return the seconds that its session can last, 0 for no limit."""
        connection.settimeout(TALK_SECONDS)
        magic, length = struct.unpack("<ii", recvall(connection, 8))
        if magic != RPC_MAGIC:
            raise ValueError("it does not speak TVM's RPC")
        name, *options = recvall(connection, length).decode().split(" ")
        if name != f"client:{self._offer.match if self._offer else self._key}":
            connection.sendall(struct.pack("<i", RPC_CODE_MISMATCH))
            late = name.startswith(f"client:{self._key}:")
            raise ValueError("its reservation has expired" if late else "it has another key")
        answer = f"server:{self._key}".encode()
        connection.sendall(struct.pack("<ii", RPC_CODE_SUCCESS, len(answer)) + answer)
        connection.settimeout(None)
        # A kernel's inputs are many small messages, each of which waits for its answer.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limits = [float(text[9:]) for text in options if text.startswith("-timeout=")]
        return max(limits, default=0.0)

    def _serve(self, connection: socket.socket, seconds: float) -> None:
        """Fork a process that talks with the client, and kill it when its time is over."""
        with tempfile.TemporaryDirectory(prefix="tvmlab-rpc-") as folder:
            session = _FORK.Process(
                target=self._session, args=(connection, Path(folder), seconds, os.getpid())
            )
            # SIGTERM's exception would be lost in the Python code that runs after a fork.
            signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
            session.start()
            pid = session.pid
            assert pid is not None
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
                session.join(seconds or None)
                late = session.is_alive()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                session.kill()
                session.join()
        if late:
            why = f"RPCSessionTimeoutError: it ran for longer than {seconds:g} s"
        elif session.exitcode:
            why = how_it_died(session.exitcode)
        else:
            return
        _say(why)
        connection.settimeout(TALK_SECONDS)
        with contextlib.suppress(Exception):  # the client can be gone, or not read
            tvm.get_global_func("rpc.ReturnException")(connection.fileno(), why)

    def _session(
        self, connection: socket.socket, folder: Path, seconds: float, parent: int
    ) -> None:
        """Run whatever the client sends until it hangs up; this is the forked process."""
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
        doomed(parent, seconds + 5 if seconds else 0)
        self._listener.close()
        if self._offer is not None:
            self._offer.connection.close()
        os.chdir(folder)
        for name, function in _functions(folder, self._device_seconds).items():
            tvm_ffi.register_global_func(name, function, override=True)
        with contextlib.suppress(Exception):  # the connection is broken
            tvm.get_global_func("rpc.ServerLoop")(connection.fileno())


def _functions(folder: Path, device_seconds: float) -> dict[str, Callable[..., Any]]:
    """List the functions that a client can call besides TVM's own, by name."""

    def load_module(name: str) -> Any:
        time.sleep(device_seconds)
        return tvm.runtime.load_module(str(folder / name))

    def load_package(name: str) -> Any:
        from . import library, package

        path = folder / name
        library.load_runtimes(Path(name), package.describe(path).runtimes)
        time.sleep(device_seconds)
        return library.load(path)

    return {
        "tvm.rpc.server.workpath": lambda name: str(folder / name),
        "tvm.rpc.server.load_module": load_module,
        LOAD_PACKAGE: load_package,
        ABILITIES: lambda: abilities().text(),
    }


def _say(text: str) -> None:
    print(text, flush=True)
