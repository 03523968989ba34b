"""RPC: the commands that run a tracker and a server, and a client with time limits.

The tracker, the sessions of a server and the protocol are TVM's (``tvm/rpc``). TVM's own client has
no time limits. TVM's loop around a server's sessions ends when a kernel crashes, and waits forever
for a silent client. The loop here continues, and reports to the client how the kernel ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import resource
import secrets
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm.error import RPCError, RPCSessionTimeoutError
from tvm.rpc import base, server
from tvm.rpc.base import TrackerCode
from tvm.support.utils import TempDirectory

from ..errors import RemoteError
from ..support.extras import need
from ..support.host import ABILITIES, Abilities, abilities, physical_cores
from .library import load_runtimes

__all__ = ["Tracker", "abilities_of", "doomed", "how_it_died", "parse_address", "serve"]
__all__ += ["server_message", "track"]

#: The name of the function with which an RPC server loads the runtimes of a package.
LOAD_RUNTIMES = "tvmlab.load_runtimes"
#: The time limit for each step of a handshake.
TALK_SECONDS = 15.0
# Every two seconds, the server reads the tracker's list. If a client has reserved the server but
# has not connected after three checks, the server registers again.
_LOOK_SECONDS, _LOOKS = 2.0, 3
#: The beginning of the message of `how_it_died`.
DIED = "the kernel ended its process"
_PR_SET_PDEATHSIG = 1
_REASONS = {
    "SIGSEGV": ": it accessed memory outside of its tensors",
    "SIGBUS": ": it accessed memory outside of its tensors",
    "SIGILL": ": this processor lacks an instruction that it uses",
    "SIGKILL": ": the system may have run out of memory",
}
_say = partial(print, flush=True)


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port`` into the host and the port."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        what = "The address of an RPC tracker or server is its host and its port."
        raise RemoteError(what, where=repr(text), fix='write it as in "127.0.0.1:9190"')
    return host, int(port)


def _listen(host: str, port: int, what: str) -> socket.socket:
    """Listen at one address, or at all of this machine for ``0.0.0.0``, until Ctrl-C or SIGTERM."""
    try:
        listener = socket.create_server((host, port))
    except (OSError, OverflowError) as error:
        what = f"It cannot listen there: {getattr(error, 'strerror', None) or error}"
        fix = "choose another --port (0 is any that is free), or a --host of this machine"
        raise RemoteError(what, where=f"{host}:{port}", fix=fix) from error
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    _say(f"{what} at {':'.join(map(str, listener.getsockname()))}")
    return listener


def _end(*_: object) -> None:
    """End this process and its session, and delete the folder with TVM's files of the session."""
    for session in multiprocessing.active_children():
        session.kill()
        session.join()
    TempDirectory.remove_tempdirs()
    os._exit(0)  # a forked process would ignore an exception, and not end its session


def track(host: str, port: int) -> None:
    """Run TVM's tracker in this process until Ctrl-C or SIGTERM."""
    need("tornado", extra="tune")
    from tvm.rpc import tracker

    # A client that stops waiting closes its connection, which TVM logs as a warning.
    tracker.logger.setLevel("ERROR")
    # TVM's class `Tracker` would start this function in another process.
    tracker._tracker_server(_listen(host, port, "tracking"), secrets.token_hex(16))


def serve(host: str, port: int, key: str, tracker: tuple[str, int] | None) -> None:
    """Run a server in this process until Ctrl-C or SIGTERM."""
    listener = _listen(host, port, f"serving {key}")
    server.logger.setLevel("ERROR")
    multiprocessing.set_start_method("fork", force=True)
    os.register_at_fork(after_in_child=partial(doomed, os.getpid()))
    signal.signal(signal.SIGALRM, _end_session)
    abilities()  # computed once, before the first fork
    tvm_ffi.register_global_func(ABILITIES, lambda: json.dumps(abilities()))
    tvm_ffi.register_global_func(LOAD_RUNTIMES, lambda text: load_runtimes(str(text).split()))
    if "OMP_NUM_THREADS" not in os.environ:
        # Not `host_target`, which starts TVM's threads: a forked session would not have them.
        os.environ.setdefault("TVM_NUM_THREADS", str(physical_cores()))
    gc.freeze()  # a fork then copies no page only because the garbage collector marks objects
    host, port = listener.getsockname()
    # If a server listens at all addresses, the tracker lists the address that it connects from.
    place = (None if host == "0.0.0.0" else host, port)
    while True:
        try:
            with connected(tracker) if tracker else contextlib.nullcontext() as connection:
                if connection:
                    entry = {"key": f"server:{key}", "addr": place}
                    ask(connection, TrackerCode.UPDATE_INFO, entry)
                    _say("the tracker knows this server")
                while True:
                    _serve_one(listener, connection, place, key)
        except (OSError, RemoteError) as error:
            _say(f"no tracker, trying again: {error}")
            time.sleep(_LOOK_SECONDS)


def _serve_one(
    listener: socket.socket,
    tracker: socket.socket | None,
    place: tuple[str | None, int],
    key: str,
) -> None:
    """Register the server under a new key, and serve the next client."""
    match, misses = key, 0
    if tracker:
        match = base.random_key(key)
        ask(tracker, TrackerCode.PUT, key, [place[1], match], place[0])
    while not select.select([listener], [], [], _LOOK_SECONDS)[0]:
        if tracker:
            free = match in ask(tracker, TrackerCode.GET_PENDING_MATCHKEYS)
            misses = 0 if free else misses + 1
            if misses >= _LOOKS:
                return
    connection, address = listener.accept()
    with connection:
        try:
            seconds = _shake_hands(connection, key, match)
        except (OSError, ValueError) as error:
            _say(f"{address[0]} was rejected: {error}")
            return
        home = os.getcwd()
        signal.setitimer(signal.ITIMER_REAL, seconds, _LOOK_SECONDS)
        try:
            # Without TVM's own time limit, whose message TVM sends before the session ends.
            server._serving(connection, address, {}, None)
        except RuntimeError as error:  # the process of the session has crashed
            code = int(str(error).rpartition(" ")[2])
            why = f"RPCSessionTimeoutError: it ran for longer than {seconds:g} s"
            if code != -signal.SIGALRM:
                why = how_it_died(code)
            _say(why)
            connection.settimeout(TALK_SECONDS)
            with contextlib.suppress(Exception):  # the client may have gone, or may not be reading
                tvm.get_global_func("rpc.ReturnException")(connection.fileno(), why)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.chdir(home)


def _end_session(*_: object) -> None:
    for session in multiprocessing.active_children():
        os.kill(session.pid or 0, signal.SIGALRM)


def _shake_hands(connection: socket.socket, key: str, match: str) -> float:
    """Check a client's key; return the time limit of its session in seconds, 0 for no limit."""
    connection.settimeout(TALK_SECONDS)
    magic, length = struct.unpack("<ii", base.recvall(connection, 8))
    if magic != base.RPC_MAGIC:
        raise ValueError("it does not speak TVM's RPC")
    name, *options = str(base.recvall(connection, length), "utf-8").split(" ")
    if name != f"client:{match}":
        connection.sendall(struct.pack("<i", base.RPC_CODE_MISMATCH))
        raise ValueError("it has another key, or its reservation has expired")
    answer = f"server:{key}".encode()
    connection.sendall(struct.pack("<ii", base.RPC_CODE_SUCCESS, len(answer)) + answer)
    connection.settimeout(None)
    # A kernel's inputs are many small messages, each of which waits for its reply.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return float(server._parse_server_opt(options).get("timeout", 0))


def doomed(parent: int) -> None:
    """Have Linux kill this process, which was just forked, when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(70)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # TVM's signal handlers would first look up the names of all functions on the stack.
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def how_it_died(code: int) -> str:
    """Describe the exit code of a process that ran a kernel, negative for a signal."""
    if code >= 0:
        return f"{DIED} with exit code {code}"
    name = signal.Signals(-code).name
    return f"{DIED} with {name}{_REASONS.get(name, '')}"


@contextlib.contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    """Connect to a tracker for the duration of a block."""
    host, port = address
    try:
        with socket.create_connection(address, timeout=TALK_SECONDS) as connection:
            connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            if struct.unpack("<i", base.recvall(connection, 4))[0] != base.RPC_TRACKER_MAGIC:
                raise ValueError("the program at this address is not an RPC tracker")
            yield connection
    except (OSError, ValueError, TypeError, LookupError, struct.error) as error:
        what = f"The RPC tracker does not answer: {getattr(error, 'strerror', None) or error}"
        fix = f"start it: tvmlab rpc-tracker --host {host} --port {port}"
        raise RemoteError(what, where=f"{host}:{port}", fix=fix) from error


def ask(connection: socket.socket, *message: Any) -> Any:
    """Send a message to a tracker and return its answer."""
    base.sendjson(connection, message)
    return base.recvjson(connection)


class Tracker:
    """A client of the tracker at an address ``host:port``, which asks for servers of one key.

    It and its methods raise `RemoteError` if the address is malformed or the tracker does not
    answer.
    """

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = parse_address(address), key

    def servers(self) -> int:
        """Count the servers of the key, free and busy ones."""
        return self._keys().count(self._key)

    def expect(self) -> None:
        """Raise `RemoteError` unless the tracker has a server of the key."""
        if self._key not in (known := self._keys()):
            others = ", ".join(sorted({repr(key) for key in known}))
            what = f"The tracker has no server of the key {self._key!r}, "
            what += f"only of {others}." if others else "and no other."
            where = ":".join(map(str, self._address))
            command = f"tvmlab rpc-server --key {self._key} --tracker {where}"
            fix = f"start one on the machine that is to run the kernels: {command}"
            raise RemoteError(what, where=where, fix=fix)

    def request(self, seconds: float) -> tuple[str, int, str] | None:
        """Reserve a server: host, port and the key to connect with; None if none was free."""
        with connected(self._address) as connection:
            base.sendjson(connection, [TrackerCode.REQUEST, self._key, "", 1])
            if not select.select([connection], [], [], seconds)[0]:
                return None
            _, (host, port, match) = base.recvjson(connection)
            return str(host), int(port), str(match)

    def _keys(self) -> list[str]:
        """List the key of each server that the tracker knows."""
        with connected(self._address) as connection:
            _, summary = ask(connection, TrackerCode.SUMMARY)
            return [str(each["key"]).removeprefix("server:") for each in summary["server_info"]]


def abilities_of(session: Any) -> Abilities | None:
    """Ask a server what it can run; return None for TVM's own server, which does not report it."""
    try:
        return Abilities(*json.loads(str(session.get_function(ABILITIES)())))
    except AttributeError:
        return None


def server_message(error: BaseException) -> str:
    """Extract a server's message about a failed call; empty if the connection broke."""
    if isinstance(error, RPCSessionTimeoutError):
        return str(error).rpartition("RPCSessionTimeoutError: ")[2].strip()
    if isinstance(error, RPCError):  # TVM wraps the message more than once
        return str(error).partition("Error caught from RPC call:")[2].strip()
    return ""
