"""Measure kernels on this machine, and on others through TVM's RPC tracker and servers.

`multiprocessing`'s fork server imports TVM once, without PyTorch, and forks a process for each job.
Therefore a kernel that crashes or never ends affects no other kernel, and the spinning threads of
TVM's pool end with their process.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any, Self

import tvm
from tvm import rpc
from tvm.ir import IRModule
from tvm.support import cc

from ..errors import TargetError, TuningError
from ..runtime.tracker import Tracker, abilities_of, doomed, how_it_died, server_message
from ..support.host import abilities, main_memory, physical_cores, processor_name, triple_of
from ..support.target import spelled
from ..support.toolchain import linker
from ..support.wording import telling
from .kernels import Kernel, Measure, Outcome, build, measure

Server = tuple[str, int, str]  # host, port and key

_BATCH = 16  # kernels that are compiled before the first of them is measured
_LEAST_MEMORY = 2 << 30
# How long to wait for a free server, and how much longer than its own time limit one can take.
PATIENCE_SECONDS, SLACK_SECONDS = 60.0, 10.0
_TRIES = 3  # how often a kernel is measured again if its server is lost

_RUN, _COMPILED = "It cannot be run: ", "It cannot be compiled: "
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
    memory: int
    linker: str
    folder: str


class KernelProcess:
    """A process that executes a job; `errors` lists for each kernel why it cannot be compiled."""

    def __init__(self, job: Job) -> None:
        self.job, self.errors = job, [""] * len(job.texts)
        self._connection, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_work, args=(theirs, job), daemon=True)
        # `multiprocessing` would import the main module in each process, which would rerun a script
        # without `if __name__ == "__main__"`.
        with _STARTING, theirs:
            main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
            try:
                self._process.start()
            finally:
                sys.modules["__main__"] = main

    def compiled(self) -> None:
        """Wait until the kernels are compiled."""
        try:
            self.errors = self._receive(self.job.how.build_timeout * len(self.errors))
        except OSError as error:
            self.errors = [f"{_COMPILED}{error}"] * len(self.errors)

    def measured(self, server: Server | None, slack: float = 0.0) -> list[Outcome]:
        """Measure the kernels; raise an OSError if the process, or the server, is lost or late."""
        how = self.job.how
        seconds = how.timeout * len(self.errors) * max(1.0, self.job.rounds / how.repeat)
        with contextlib.suppress(OSError):  # the process was lost, which `_receive` reports
            self._connection.send((server, seconds))
        found: list[Outcome] = self._receive(seconds + slack)
        return found

    def failed(self, why: object) -> list[Outcome]:
        """Return outcomes with an error for all kernels of the job."""
        return [Outcome(error=error or f"{_RUN}{why}") for error in self.errors]

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
        """End the process and its children immediately."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, signal.SIGKILL)
        self._process.kill()
        self._process.join()


# In the process.


def _work(connection: Connection, job: Job) -> None:
    """Compile the kernels of a job, then measure them for each server that the parent sends."""
    os.setpgid(0, 0)
    doomed(os.getppid())
    # The fork server ends when the other end of this pipe is closed, and this process ends with it.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    os.environ["TVM_NUM_THREADS"] = str(job.target.get("num-cores", physical_cores()))
    # Limit data, not addresses: libraries and thread stacks reserve many that they never use.
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
            errors.append(f"{_COMPILED}{type(error).__name__}: {telling(error)}")
    connection.send(errors)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_measured(job, built, errors, connection.recv()))


def _measured(job: Job, built: list[Kernel], errors: list[str], request: Any) -> Any:
    """Measure the compiled kernels here or on a server; return an error if the server is lost."""
    server, seconds = request
    try:
        session = None if server is None else rpc.connect(*server, session_timeout=seconds)
        able = None if session is None else abilities_of(session)
        if able and (why := able.why_unsupported(tvm.target.Target(job.target))):
            return TargetError(
                f"A server cannot run code for the target: {why}.",
                where=f"{able.cpu}, {server}",
                fix="tune for the servers' processor and its threads",
            )
        found = iter(measure(built, job.how, job.rounds, session))
    except Exception as error:  # TVM raises many classes for a broken connection
        why = f"{type(error).__name__}: {telling(error)}" if server is None else ""
        why = why or server_message(error)
        if not why:
            return ConnectionError(str(error).strip() or type(error).__name__)
        return [Outcome(error=known or f"{_RUN}{why}") for known in errors]
    cpu = able.cpu if able else ""
    return [Outcome(error=why) if why else replace(next(found), cpu=cpu) for why in errors]


# In the process that tunes.


class Measurer:
    """Compiles each kernel in its own process on this machine, and measures it there or elsewhere.

    `processor` is the name of the measuring processor; empty if the outcomes contain it.
    """

    processor = ""

    def __init__(self, target: tvm.target.Target, measure: Measure | None = None) -> None:
        self.target, self.options = target, measure or Measure()
        self._cores = physical_cores()
        self._linker = self._folder = ""
        self._alive: set[KernelProcess] = set()
        self._stopped = False  # whether a new process is to end immediately

    def measure(self, kernels: Sequence[IRModule]) -> Iterator[tuple[int, Outcome]]:
        """Build and measure kernels; yield each one's index and outcome as soon as it is known.

        Parameters
        ----------
        kernels : sequence of tvm.ir.IRModule
            Modules of one scheduled TIR function ``main``.

        Raises
        ------
        TuningError
            No server was free.
        TargetError
            A server cannot run code for the target.
        RemoteError
            The tracker does not answer, or has no server of the key.
        """
        for start in range(0, len(kernels), _BATCH):
            jobs = [self._job([kernel], 0) for kernel in kernels[start : start + _BATCH]]
            for place, (outcome,) in self._outcomes(jobs):
                yield start + place, outcome

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Measure kernels alternately in one process, with a sample of each per round.

        Every other round goes from the last kernel to the first. Kernels that cannot be compiled
        are left out of the rounds. If one fails to run, all kernels of the process get its error.
        Parameters and errors are otherwise those of `measure`.
        """
        ((_, outcomes),) = self._outcomes([self._job(kernels, rounds)])
        return outcomes

    def _job(self, kernels: Sequence[IRModule], rounds: int) -> Job:
        return Job(
            [str(tvm.ir.save_json(kernel)) for kernel in kernels],
            json.loads(str(self.target)),
            self.options,
            rounds,
            # Divide four fifths of the memory, but give each process enough for TVM and one layer.
            max(_LEAST_MEMORY, main_memory() * 4 // 5 // self._cores),
            self._linker,
            self._folder,
        )

    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Outcome]]]:
        """Compile and measure; yield each job's index and outcomes when they are known."""
        raise NotImplementedError

    @contextlib.contextmanager
    def _threads(self, count: int) -> Iterator[ThreadPoolExecutor]:
        """Make threads that wait for processes; at the end all processes are ended."""
        pool = ThreadPoolExecutor(count)
        self._stopped = False
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._stopped = True
            self.close()
            pool.shutdown()

    def _compiled(self, job: Job) -> KernelProcess:
        process = KernelProcess(job)
        self._alive.add(process)
        if self._stopped:  # while the process was started
            self._end(process)
        process.compiled()
        return process

    def _end(self, process: KernelProcess) -> None:
        process.end()
        self._alive.discard(process)

    def close(self) -> None:
        """End all processes; measurements in progress are dropped."""
        for process in list(self._alive):
            self._end(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalMeasurer(Measurer):
    """Builds kernels and measures them on this machine.

    As many processes as there are cores compile a batch. Then its kernels run sequentially, each in
    its own process, while this measurer runs nothing else.

    Parameters
    ----------
    target : tvm.target.Target
        The target to compile for. Its ``num-cores`` is the number of threads that kernels use.
    measure : Measure, optional
        The options.

    Raises
    ------
    TargetError
        This machine cannot run code for the target.
    """

    def __init__(self, target: tvm.target.Target, measure: Measure | None = None) -> None:
        super().__init__(target, measure)
        if why := abilities().why_unsupported(target):
            raise TargetError(
                f"This machine cannot run code for the target: {why}.",
                where=spelled(target),
                fix="tune for tvmlab.host_target(), or on machines of that kind through an RPC "
                "tracker (tracker=, key=)",
            )
        self.processor = processor_name()

    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Outcome]]]:
        with self._threads(self._cores) as pool:
            for place, process in enumerate(list(pool.map(self._compiled, jobs))):
                try:
                    # After a timeout, the next message is the late result of the compilation.
                    failed = all(process.errors)
                    found = process.failed("") if failed else process.measured(None)
                except OSError as error:
                    found = process.failed(error)
                self._end(process)
                yield place, found


class RemoteMeasurer(Measurer):
    """Builds kernels here and measures them on other machines.

    Each server measures one kernel at a time. If a server is lost or hangs, its kernel is compiled
    again and measured on another one.

    Parameters
    ----------
    target : tvm.target.Target
        The target to compile for: the machines that measure.
    measure : Measure, optional
        The options.
    tracker, key : str
        The ``host:port`` of an RPC tracker (``tvmlab rpc-tracker``), and the key of the servers
        (``tvmlab rpc-server --key``).

    Raises
    ------
    RemoteError
        The tracker does not answer, or has no server of the key.
    ToolchainError
        There is no linker for the target.
    """

    def __init__(
        self, target: tvm.target.Target, measure: Measure | None = None, *, tracker: str, key: str
    ) -> None:
        super().__init__(target, measure)
        self._tracker = Tracker(tracker, key)
        self._tracker.expect()
        self._libraries = tempfile.TemporaryDirectory(prefix="tvmlab-tuning-")
        self._linker, self._folder = str(linker(triple_of(target))), self._libraries.name

    def _server(self) -> Server:
        server = self._tracker.request(PATIENCE_SECONDS)
        if server is None:
            raise TuningError(
                f"No server was free for {PATIENCE_SECONDS:.0f} s.",
                fix="start more servers (tvmlab rpc-server), or restart those that do not answer",
            )
        return server

    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Outcome]]]:
        self._tracker.expect()
        servers = self._tracker.servers()
        compiling, serving = threading.Semaphore(self._cores), threading.Semaphore(servers)

        def measured(job: Job) -> list[Outcome]:
            """Measure the kernels of a job on the first free server that does not fail."""
            for _ in range(_TRIES):
                with compiling:
                    process = self._compiled(job)
                try:
                    if all(process.errors):
                        return process.failed("")
                    with serving:
                        return process.measured(self._server(), SLACK_SECONDS)
                except OSError as error:
                    found = process.failed(f"{_TRIES} servers failed with it; the last: {error}")
                finally:
                    self._end(process)
            return found

        with self._threads(self._cores + servers) as pool:
            places = {pool.submit(measured, job): place for place, job in enumerate(jobs)}
            for future in as_completed(places):
                yield places[future], future.result()
