"""Processes that compile and run kernels, each forked for one job by `multiprocessing`'s server.

The server imports TVM once, without PyTorch. A kernel that crashes or never ends is the only one
lost, and the threads that TVM's pool leaves spinning end with their process.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import tvm
from tvm import rpc
from tvm.support import cc

from ..errors import TargetError, TuningError
from ..runtime.forked import doomed, how_it_died
from ..runtime.tracker import abilities_of, server_message
from ..support.wording import telling
from .kernels import Kernel, build, measure
from .measure import Measure, Outcome

__all__ = ["Job", "KernelProcess", "Server"]

Server = tuple[str, int, str]
"""Host, port and key of an RPC server."""

RUN, COMPILED = "It cannot be run: ", "It cannot be compiled: "
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tvmlab.support.preload", __name__])
_STARTING = threading.Lock()


@dataclass(frozen=True)
class Job:
    """Kernels to compile and to measure together; for an RPC server, with a linker and a folder."""

    texts: list[str]
    target: dict[str, Any]
    how: Measure
    rounds: int
    threads: int
    memory: int
    linker: str
    folder: str


class KernelProcess:
    """A process at work on a job, seen from the one that started it.

    `errors` says for each kernel why it cannot be compiled; it is empty for those that can.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.errors = job, [""] * len(job.texts)
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(theirs, job), daemon=True)
        # `multiprocessing` would import the main module in each process, which would run a script
        # without `if __name__ == "__main__"` again.
        with _STARTING, theirs:
            main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
            try:
                self._process.start()
            except (EOFError, OSError) as error:
                raise TuningError(
                    f"A process to measure in cannot start: {error}",
                    where=sys.executable,
                    fix="check the installation with `python -c 'import tvm'`",
                ) from error
            finally:
                sys.modules["__main__"] = main

    def compiled(self) -> None:
        """Wait until the kernels are compiled."""
        try:
            self.errors = self._receive(self.job.how.build_timeout * len(self.errors))
        except (TimeoutError, ChildProcessError) as error:
            self.errors = [f"{COMPILED}{error}"] * len(self.errors)

    def measured(self, server: Server | None, slack: float = 0.0) -> list[Outcome]:
        """Measure the kernels; raise an OSError if the process, or the server, is lost or late."""
        how = self.job.how
        seconds = how.timeout * len(self.errors) * max(1.0, self.job.rounds / how.repeat)
        with contextlib.suppress(OSError):  # the process was lost, which its answer shows
            self._connection.send((server, seconds))
        found: list[Outcome] = self._receive(seconds + slack)
        return found

    def failed(self, why: object) -> list[Outcome]:
        """Return the outcomes where nothing could be measured."""
        return [Outcome(error=error or f"{RUN}{why}") for error in self.errors]

    def _receive(self, seconds: float) -> Any:
        if not self._connection.poll(seconds):
            raise TimeoutError(f"it took longer than {seconds:g} s and was stopped")
        try:
            answer = self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise ChildProcessError(how_it_died(self._process.exitcode or 0)) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def end(self) -> None:
        """End the process and those that it started, whatever they do."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.kill()
        self._process.join()


# In the process.


def _work(connection: Connection, job: Job) -> None:
    """Compile the kernels of a job, then measure them for each server that comes."""
    os.setpgid(0, 0)
    doomed(os.getppid(), 0)
    # The server ends when nobody holds the other end of this pipe, and this process ends with it.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    os.environ["TVM_NUM_THREADS"] = str(job.threads)
    # Data, not addresses: libraries and the stacks of threads take many that they never use.
    resource.setrlimit(resource.RLIMIT_DATA, (job.memory, job.memory))
    built, errors = [], []
    for place, text in enumerate(job.texts):
        try:
            made = build(text, job.target)
            if job.linker:
                path = os.path.join(job.folder, f"{os.getpid()}-{place}.so")
                made.module.export_library(path, fcompile=cc.create_shared, cc=job.linker)
                made = replace(made, module=path)
            built.append(made)
            errors.append("")
        except Exception as error:
            errors.append(f"{COMPILED}{type(error).__name__}: {telling(error)}")
    connection.send(errors)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_measured(job, built, errors, *connection.recv()))


def _measured(
    job: Job,
    built: Sequence[Kernel],
    errors: Sequence[str],
    server: Server | None,
    seconds: float,
) -> list[Outcome] | Exception:
    """Measure what was compiled, here or on a server; return an error if the server is no use."""
    try:
        session = None if server is None else rpc.connect(*server, session_timeout=seconds)
        able = None if session is None else abilities_of(session)
        if able and (why := able.why_unsupported(tvm.target.Target(job.target))):
            return TargetError(
                f"A server cannot run what is compiled for the target: {why}.",
                where=f"{able.cpu}, {server}",
                fix="tune for the servers' processor and its threads",
            )
        found = iter(measure(built, job.how, job.rounds, session))
    except Exception as error:  # TVM has many for a connection that breaks
        why = f"{type(error).__name__}: {telling(error)}" if server is None else ""
        why = why or server_message(error)
        if not why:
            return ConnectionError(str(error).strip() or type(error).__name__)
        return [Outcome(error=known or f"{RUN}{why}") for known in errors]
    cpu = able.cpu if able else ""
    return [Outcome(error=why) if why else replace(next(found), cpu=cpu) for why in errors]
