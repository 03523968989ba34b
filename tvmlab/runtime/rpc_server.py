"""A server that runs kernels for others: TVM's RPC protocol, one client at a time.

TVM's own server (``python -m tvm.exec.rpc_server``) stops answering for good when a kernel crashes,
and waits for ever for a client that connects and says nothing. This one does neither, and says to
the client how its kernel ended. It imports little of this package, so that nothing stands
between a kernel and the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
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

from ..errors import TuningError
from .forked import doomed, how_it_died
from .protocol import (
    LOAD_PACKAGE,
    MAGIC,
    MISMATCH,
    SUCCESS,
    TRACKER_MAGIC,
    Junk,
    listening,
    number,
    packed,
    parse_address,
    text,
)

TRACKER_SUCCESS, PUT, UPDATE_INFO, PENDING = 0, 3, 5, 7
# A client that has connected says who it is in this time, and a tracker answers in it.
_TALK_SECONDS = 5.0
# How often the tracker is asked whether the server is still on offer, and how often it may say
# that somebody took it who does not come.
_LOOK_SECONDS, _LOOKS = 2.0, 3
#: The signals that end the server.
_ENDS = {signal.SIGINT, signal.SIGTERM}


class Offer:
    """A server's connection to a tracker.

    Parameters
    ----------
    tracker : (str, int)
        The tracker's host and port.
    key : str
        What kind of device the server is.
    address : (str, int)
        Where the server listens.
    """

    def __init__(self, tracker: tuple[str, int], key: str, address: tuple[str, int]) -> None:
        self._key, self._port = key, address[1]
        # Where it listens at all addresses, the tracker sees the one that others reach it by.
        self._host = None if address[0] == "0.0.0.0" else address[0]
        self._misses = 0
        self.match = ""
        self.connection = socket.create_connection(tracker, timeout=_TALK_SECONDS)
        try:
            self.connection.sendall(struct.pack("<i", TRACKER_MAGIC))
            if number(self.connection) != TRACKER_MAGIC:
                raise Junk("it is no RPC tracker")
            self._ask([UPDATE_INFO, {"key": f"server:{key}", "addr": [self._host, self._port]}])
            self.renew()
        except BaseException:
            self.connection.close()
            raise

    def _ask(self, message: list[Any]) -> Any:
        self.connection.sendall(packed(json.dumps(message)))
        return json.loads(text(self.connection))

    def renew(self) -> None:
        """Say that the server is free."""
        self.match = f"{self._key}:{secrets.token_hex(8)}"
        self._ask([PUT, self._key, [self._port, self.match], self._host])
        self._misses = 0

    def look(self) -> None:
        """Offer the server again where somebody took it and does not come."""
        if self.match in self._ask([PENDING]):
            self._misses = 0
            return
        self._misses += 1
        if self._misses >= _LOOKS:
            self.renew()


def hidden(here: str, tracker: str) -> bool:
    """Whether a server listens for its own machine alone, and its tracker is on another."""
    return ip_address(here).is_loopback and not ip_address(tracker).is_loopback


class Server:
    """Listens, and serves one client after the other.

    Parameters
    ----------
    host : str
        The address to listen at.
    port : int
        The port; 0 for any that is free.
    key : str
        What kind of device this is.
    tracker : (str, int) or None
        Where to offer it; without one, clients name the key and come by themselves.
    device_seconds : float
        Seconds that each module takes longer to load: a slow device, simulated.
    """

    def __init__(
        self,
        host: str,
        port: int,
        key: str,
        tracker: tuple[str, int] | None,
        device_seconds: float,
    ) -> None:
        self._key, self._tracker, self._device_seconds = key, tracker, device_seconds
        self._listener = listening(host, port)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._offer: Offer | None = None

    def run(self) -> NoReturn:
        """Serve until the process is ended."""
        said = ""
        while True:
            try:
                if self._tracker and self._offer is None:
                    self._offer = Offer(self._tracker, self._key, self.address)
                    _say("the tracker knows this server")
                    if hidden(self.address[0], self._offer.connection.getpeername()[0]):
                        _say(
                            f"only this machine reaches {self.address[0]}, and the tracker is on "
                            "another: for clients there, start it with --host 0.0.0.0"
                        )
                    said = ""
                self._wait()
            except (OSError, ValueError, Junk) as error:  # the tracker's; a client's end in _wait
                if self._offer is not None:
                    self._offer.connection.close()
                    self._offer = None
                if str(error) != said:
                    said = str(error)
                    _say(f"no tracker, trying again: {error}")
                time.sleep(1.0)

    def _wait(self) -> None:
        """Wait for a client and serve it, or look what the tracker says."""
        ready, _, _ = select.select([self._listener], [], [], _LOOK_SECONDS)
        if not ready:
            if self._offer is not None:
                self._offer.look()
            return
        connection, address = self._listener.accept()
        with connection:
            try:
                seconds = self._greeted(connection)
            except (OSError, ValueError, Junk) as error:
                _say(f"{address[0]} was turned away: {error}")
                return
            self._serve(connection, seconds)
        if self._offer is not None:
            self._offer.renew()

    def _greeted(self, connection: socket.socket) -> float:
        """Shake hands with a client; the seconds that it wants to have, 0 for no limit."""
        connection.settimeout(_TALK_SECONDS)
        if number(connection) != MAGIC:
            raise Junk("it does not speak TVM's RPC")
        name, *options = text(connection).split(" ")
        if name != f"client:{self._offer.match if self._offer else self._key}":
            connection.sendall(struct.pack("<i", MISMATCH))
            late = name.startswith(f"client:{self._key}:")
            raise Junk("it came late, to what was offered anew" if late else "it has another key")
        connection.sendall(struct.pack("<i", SUCCESS) + packed(f"server:{self._key}"))
        connection.settimeout(None)
        # A kernel's inputs are many small messages, and an answer comes before the next.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limits = [float(text[9:]) for text in options if text.startswith("-timeout=")]
        return max(limits, default=0.0)

    def _serve(self, connection: socket.socket, seconds: float) -> None:
        """Let a process of its own talk with a client; end it where it takes too long."""
        from tvm import get_global_func

        closed, open_ = os.pipe()  # the end that only the child has closes when it ends
        server = os.getpid()
        with tempfile.TemporaryDirectory(prefix="tvmlab-rpc-") as folder:
            # An exception in what Python does after a fork, as SIGTERM raises it, would be lost.
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
            pid = os.fork()
            if pid == 0:
                try:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
                    os.setpgid(0, 0)
                    os.close(closed)
                    self._close()
                    doomed(server, seconds + 5 if seconds else 0)
                    _session(connection, Path(folder), self._device_seconds)
                finally:
                    os._exit(0)
            with contextlib.suppress(OSError):  # both set it: whoever comes first
                os.setpgid(pid, pid)
            os.close(open_)
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
                ended, _, _ = select.select([closed], [], [], seconds or None)
            finally:
                os.close(closed)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
            if not ended:
                why = f"RPCSessionTimeoutError: it ran for longer than {seconds:g} s"
            elif status:
                why = how_it_died(status)
            else:
                return
            _say(why)
            # Should the client be gone or not read, its end is its own.
            connection.settimeout(_TALK_SECONDS)
            with contextlib.suppress(Exception):
                get_global_func("rpc.ReturnException")(connection.fileno(), why)

    def _close(self) -> None:
        self._listener.close()
        if self._offer is not None:
            self._offer.connection.close()


def _session(connection: socket.socket, folder: Path, device_seconds: float) -> None:
    """Do what a client asks for until it hangs up."""
    import tvm
    import tvm_ffi

    from ..support.target import ABILITIES, abilities

    os.chdir(folder)

    def workpath(name: str) -> str:
        return str(folder / name)

    def load(name: str) -> Any:
        time.sleep(device_seconds)
        return tvm.runtime.load_module(workpath(name))

    def load_package(name: str) -> Any:
        from . import library, package

        found = package.describe(workpath(name))
        library.load_runtimes(Path(name), found.runtimes)
        time.sleep(device_seconds)
        return library.load(workpath(name))

    functions: dict[str, Callable[..., Any]] = {
        "tvm.rpc.server.workpath": workpath,
        "tvm.rpc.server.load_module": load,
        LOAD_PACKAGE: load_package,
        ABILITIES: lambda: abilities().text(),
    }
    for name, function in functions.items():
        tvm_ffi.register_global_func(name, function, override=True)
    tvm.get_global_func("rpc.ServerLoop")(connection.fileno())


def _say(text: str) -> None:
    print(text, flush=True)


def main(arguments: list[str]) -> int:
    """Serve, in a process of its own: `tvmlab.runtime.rpc` says what the arguments are.

    Parameters
    ----------
    arguments : list of str
        Host, port, key, tracker (``host:port``, or empty), seconds of a simulated device.

    Returns
    -------
    int
        The exit status: 0 where the process was told to end.
    """
    parser = argparse.ArgumentParser()
    for name in ("host", "port", "key", "tracker", "device_seconds"):
        parser.add_argument(name)
    told = parser.parse_args(["--", *arguments])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    from ..support.target import abilities  # imports tvm, once, before any process is forked off

    abilities()

    try:
        server = Server(
            told.host,
            int(told.port),
            told.key,
            parse_address(told.tracker) if told.tracker else None,
            float(told.device_seconds),
        )
    except TuningError as error:
        print(error, file=sys.stderr)
        return 1
    _say(f"serving {told.key} at {server.address[0]}:{server.address[1]}")
    if float(told.device_seconds):
        _say(f"SIMULATED: each measurement takes {told.device_seconds} s more than it does")
    try:
        server.run()
    except KeyboardInterrupt:
        return 0
