"""Processes that compile and run kernels, each forked for one job.

A server process imports TVM once, without PyTorch, and forks two processes for each job: one that
works, and one that waits for it and reports how it died. A kernel that crashes or never ends is the
only one lost. The threads that TVM's pool leaves spinning end with their process.

`multiprocessing` has such a server, too, but its processes import the caller's main module, so that
a script without ``if __name__ == "__main__"`` would run again for each kernel.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import tvm
from tvm import rpc, te
from tvm.support import cc

from ..errors import TuningError
from ..runtime.forked import doomed, how_it_died
from ..runtime.tracker import abilities_of, server_message
from ..support.wording import telling
from .kernels import Kernel, build, measure
from .measure import Measure

__all__ = ["Forks", "Job", "Process", "serve"]

# Importing tvm takes two seconds; more where a machine is busy or its disk is slow.
START_SECONDS = 120.0
_START = f"""
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from {__name__} import serve
serve()
"""


@dataclass(frozen=True)
class Job:
    """Kernels to compile and to measure together; for a server, with a linker and a folder."""

    texts: list[str]
    target: dict[str, Any]
    how: Measure
    rounds: int = 0
    linker: str = ""
    folder: str = ""


class Process:
    """A process at work on a job, seen from the one that asked for it."""

    def __init__(self, connection: Connection, group: int) -> None:
        self.connection, self._group = connection, group

    def receive(self) -> Any:
        """Return its next message; None if it was lost, and a text if a kernel ended it."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        """End it, whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)
        self.connection.close()


class Forks:
    """The server process, started again where it was lost; `memory` is the bytes per process."""

    def __init__(self, threads: int, memory: int) -> None:
        self._threads, self._memory = threads, memory
        self._launch()

    def _launch(self) -> None:
        self._control, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile("a+b")  # noqa: SIM115  (`close` closes it)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _START],
                stdin=theirs.fileno(),
                stdout=self._said,
                stderr=self._said,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path),
                    # A process that forks should have no threads, of which the fork has none.
                    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
                    "TVM_NUM_THREADS": str(self._threads),
                },
                start_new_session=True,  # Ctrl-C is for the process that asks
            )
        self._control.sendall(self._memory.to_bytes(8, "little"))

    def start(self, job: Job) -> Process:
        """Start a process for a job; raise TuningError if that is not possible."""
        if self._server.poll() is not None:
            self.close()
            self._launch()
        ours, theirs = socket.socketpair()
        connection = Connection(ours.detach())
        try:
            with theirs:
                socket.send_fds(self._control, [b"."], [theirs.fileno()])
            if not connection.poll(START_SECONDS):
                raise TimeoutError(f"it was not ready after {START_SECONDS:g} s")
            group = connection.recv()
            connection.send(job)
        except (EOFError, OSError) as error:
            connection.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(5)
            size = os.fstat(self._said.fileno()).st_size
            said = os.pread(self._said.fileno(), 4096, max(0, size - 4096)).decode(errors="replace")
            how = f"exit code {self._server.poll()}" if self._server.poll() else str(error)
            raise TuningError(
                f"A process to measure in cannot start: {how}.\n{said.strip()}".rstrip(),
                where=sys.executable,
                fix="read what it wrote, above; check the installation with "
                "`python -c 'import tvm'`",
            ) from error
        return Process(connection, group)

    def close(self) -> None:
        """End the server; its processes end with it."""
        with contextlib.suppress(ProcessLookupError):
            self._server.kill()
        self._server.wait()
        self._control.close()
        self._said.close()


# In the server process.


def serve() -> None:
    """Fork a process for each connection that comes through standard input."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    memory = int.from_bytes(control.recv(8, socket.MSG_WAITALL), "little")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Data, not addresses: libraries and the stacks of threads take many that they never use.
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system collects what ends
    _warm_up()
    server = os.getpid()
    while True:
        data, handles, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return  # the process that asks is gone
        if os.fork() == 0:
            control.close()
            _watch(server, Connection(handles[0]))
        os.close(handles[0])


def _warm_up() -> None:
    """Compile a kernel, so that LLVM starts once and not in each process."""
    x = te.placeholder((4,), name="x")
    function = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0)])
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    build(str(tvm.ir.save_json(module)), {"kind": "llvm"})


def _watch(server: int, connection: Connection) -> None:
    """Fork the process that works, and report how it died."""
    try:
        os.setpgid(0, 0)
        doomed(server, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.send(os.getpid())
        watcher = os.getpid()
        pid = os.fork()
        if pid == 0:
            doomed(watcher, 0)
            _work(connection)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.send(how_it_died(code))
    finally:
        os._exit(0)


def _work(connection: Connection) -> None:
    """Compile the kernels of a job, then measure them for each server that comes."""
    job: Job = connection.recv()
    built, errors = [], []
    for place, text in enumerate(job.texts):
        try:
            made = build(text, job.target)
            if job.linker:
                path = os.path.join(job.folder, f"{os.getpid()}-{place}.so")
                made.module.export_library(path, fcompile=cc.create_shared, cc=job.linker)
                made = Kernel(path, made.arguments, made.outputs)
            built.append(made)
            errors.append("")
        except Exception as error:
            errors.append(_words(error))
    connection.send(errors)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_measured(job, built, *connection.recv()))


def _measured(
    job: Job, built: list[Kernel], server: tuple[str, int, str] | None, seconds: float
) -> dict[str, Any]:
    if server is None:
        try:
            return measure(built, job.how, job.rounds)
        except Exception as error:
            return {"failed": _words(error)}
    try:
        session = rpc.connect(*server, session_timeout=seconds)
        known = abilities_of(session)
        if known and (why := known.why_unsupported(tvm.target.Target(job.target))):
            return {"refused": f"{known.cpu}: {why}"}
        found = measure(built, job.how, job.rounds, session)
        return {**found, "cpu": known.cpu if known else ""}
    except Exception as error:  # TVM has many for a connection that breaks
        if why := server_message(error):
            return {"failed": why}
        return {"lost": str(error).strip() or type(error).__name__}


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {telling(error)}"
