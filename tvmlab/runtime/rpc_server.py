"""An RPC server that runs kernels for other machines: TVM's protocol, one client at a time.

TVM's own server (``python -m tvm.exec.rpc_server``) does not answer any more after a kernel has
crashed, and waits forever for a client that connects and stays silent. This server runs each
session in a forked process, so that a kernel that crashes or hangs ends only its own session, and
it tells the client how the kernel ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
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
from functools import partial
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

from ..errors import PackageError, RemoteError
from ..support.host import ABILITIES, abilities, physical_cores
from . import library, package
from .forked import doomed, how_it_died
from .tracker import TALK_SECONDS, ask, connected, listen

__all__ = ["serve"]

# The server looks every two seconds at what the tracker lists. If a client has reserved the server
# and has not come after three looks, the server offers itself again.
_LOOK_SECONDS, _LOOKS = 2.0, 3
_END_SIGNALS = {signal.SIGINT, signal.SIGTERM}
_FORK = multiprocessing.get_context("fork")
_say = partial(print, flush=True)


def serve(
    host: str, port: int, key: str, tracker: tuple[str, int] | None, device_seconds: float = 0.0
) -> None:
    """Run a server in this process until Ctrl-C or SIGTERM."""
    listener = listen(host, port)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    abilities()  # asked once, before the first fork
    if "OMP_NUM_THREADS" not in os.environ:
        # Not `host_target`, which starts TVM's threads: a forked session would not have them.
        os.environ.setdefault("TVM_NUM_THREADS", str(physical_cores()))
    _say(f"serving {key} at {':'.join(map(str, listener.getsockname()))}")
    if device_seconds > 0:
        _say(f"SIMULATED: each measurement takes {device_seconds:g} s more than it does")
    gc.freeze()  # a fork then copies no page only because its collector marks the objects
    with contextlib.suppress(KeyboardInterrupt):
        _Server(listener, key, max(0.0, device_seconds)).run(tracker)


class _Server:
    """Accepts one client after the other, each with the key ``_match``."""

    def __init__(self, listener: socket.socket, key: str, device_seconds: float) -> None:
        self._listener, self._key, self._device_seconds = listener, key, device_seconds
        self._tracker: socket.socket | None = None
        self._match, self._misses = key, 0
        host, self._port = listener.getsockname()
        # For a server that listens at all addresses, the tracker lists the one that it sees.
        self._host = None if host == "0.0.0.0" else host

    def run(self, address: tuple[str, int] | None) -> NoReturn:
        """Serve, and register again whenever the tracker comes back."""
        said = ""
        while True:
            try:
                with contextlib.ExitStack() as stack:
                    if address:
                        self._tracker = stack.enter_context(connected(address))
                        entry = {"key": f"server:{self._key}", "addr": [self._host, self._port]}
                        ask(self._tracker, TrackerCode.UPDATE_INFO, entry)
                        self._offer()
                        _say("the tracker knows this server")
                    said = ""
                    while True:
                        self._wait()
            except (OSError, RemoteError) as error:
                if str(error) != said:
                    said = str(error)
                    _say(f"no tracker, trying again: {error}")
                time.sleep(1.0)

    def _offer(self) -> None:
        """Tell the tracker that the server is free, under a new key."""
        if self._tracker is not None:
            self._match, self._misses = random_key(self._key), 0
            entry = [self._port, self._match]
            ask(self._tracker, TrackerCode.PUT, self._key, entry, self._host)

    def _wait(self) -> None:
        """Wait for a client and serve it, or see whether the one that reserved does not come."""
        if not select.select([self._listener], [], [], _LOOK_SECONDS)[0]:
            if self._tracker is not None:
                free = self._match in ask(self._tracker, TrackerCode.GET_PENDING_MATCHKEYS)
                self._misses = 0 if free else self._misses + 1
                if self._misses >= _LOOKS:
                    self._offer()
            return
        connection, address = self._listener.accept()
        with connection:
            try:
                seconds = self._shake_hands(connection)
            except (OSError, ValueError) as error:
                _say(f"{address[0]} was turned away: {error}")
                return
            try:
                self._serve(connection, seconds)
            except OSError as error:  # it has no folder, or the system starts no process
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
                _say(f"the session could not start: {error}")
        self._offer()

    def _shake_hands(self, connection: socket.socket) -> float:
        """Check a client's key; return the seconds that its session can last, 0 for no limit."""
        connection.settimeout(TALK_SECONDS)
        magic, length = struct.unpack("<ii", recvall(connection, 8))
        if magic != RPC_MAGIC:
            raise ValueError("it does not speak TVM's RPC")
        name, *options = recvall(connection, length).decode().split(" ")
        if name != f"client:{self._match}":
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
        """Fork a process that talks with the client, and tell the client how it died."""
        with tempfile.TemporaryDirectory(prefix="tvmlab-rpc-") as folder:
            session = _FORK.Process(
                target=self._session, args=(connection, Path(folder), seconds, os.getpid())
            )
            # SIGTERM's exception would be lost in the Python code that runs after a fork.
            signal.pthread_sigmask(signal.SIG_BLOCK, _END_SIGNALS)
            session.start()
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
                session.join()
            finally:
                session.kill()
                session.join()
        if session.exitcode == -signal.SIGALRM:
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
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _END_SIGNALS)
        doomed(parent, seconds)
        self._listener.close()
        if self._tracker is not None:
            self._tracker.close()
        os.chdir(folder)
        functions: dict[str, Callable[..., Any]] = {
            "tvm.rpc.server.workpath": lambda name: str(folder / name),
            "tvm.rpc.server.load_module": lambda name: self._load(folder / name),
            ABILITIES: lambda: json.dumps(abilities()),
        }
        for name, function in functions.items():
            tvm_ffi.register_global_func(name, function, override=True)
        with contextlib.suppress(Exception):  # the connection is broken
            tvm.get_global_func("rpc.ServerLoop")(connection.fileno())

    def _load(self, path: Path) -> Any:
        """Load an uploaded kernel or package, which also needs the runtimes that it names."""
        time.sleep(self._device_seconds)
        try:
            kinds = package.describe(path).runtimes
        except PackageError:  # a kernel has no description
            return tvm.runtime.load_module(str(path))
        library.load_runtimes(path, kinds)
        return library.load(path)
