"""Measuring kernels on this machine, and on others through TVM's RPC tracker and servers."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Self

import tvm
from tvm.ir import IRModule

from ..errors import TargetError, TuningError
from ..runtime.tracker import Tracker
from ..support.host import abilities, main_memory, physical_cores, processor_name, triple_of
from ..support.target import expect_processor, spelled
from ..support.toolchain import linker
from .forks import Job, KernelProcess
from .measure import Measure, Outcome

__all__ = ["LocalMeasurer", "Measurer", "RemoteMeasurer"]

_BATCH = 16  # kernels that are compiled before the first of them is measured
_LEAST_MEMORY = 2 << 30
# How long to wait for a server that is free, and how long one can take beyond its own time limit.
PATIENCE_SECONDS, SLACK_SECONDS = 60.0, 10.0
_TRIES = 3  # how often a kernel is measured anew where its server is lost


class Measurer(ABC):
    """Compiles kernels on this machine, each in its process, and measures them somewhere.

    `processor` is the one it measures on, by its maker's name; empty where outcomes tell it.
    """

    processor = ""

    def __init__(self, target: tvm.target.Target, measure: Measure | None = None) -> None:
        expect_processor(target)
        self.target, self.options = target, measure or Measure()
        self._cores = physical_cores()
        self._linker = self._folder = ""
        self._alive: set[KernelProcess] = set()

    def measure(self, kernels: Sequence[IRModule]) -> Iterator[tuple[int, Outcome]]:
        """Build and measure some kernels; yield each one's place and outcome when it is known.

        Parameters
        ----------
        kernels : sequence of tvm.ir.IRModule
            One scheduled TIR function ``main`` each.

        Raises
        ------
        TuningError
            A process to measure in cannot start, or no server was free.
        TargetError
            A server cannot run what is compiled for the target.
        RemoteError
            The tracker does not answer, or has no server of the key.
        """
        for start in range(0, len(kernels), _BATCH):
            jobs = [self._job([kernel], 0) for kernel in kernels[start : start + _BATCH]]
            for place, (outcome,) in self._outcomes(jobs):
                yield start + place, outcome

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Measure some kernels alternately in one process, a sample of each per round.

        Every other round goes from the last kernel to the first. Kernels that cannot be compiled
        are left out of the rounds; where one fails to run, all that ran with it have its error. The
        parameters and errors are otherwise those of `measure`.
        """
        ((_, outcomes),) = self._outcomes([self._job(kernels, rounds)])
        return outcomes

    def _job(self, kernels: Sequence[IRModule], rounds: int) -> Job:
        return Job(
            [str(tvm.ir.save_json(kernel)) for kernel in kernels],
            json.loads(str(self.target)),
            self.options,
            rounds,
            int(self.target.attrs.get("num-cores", physical_cores())),
            # Four fifths of the memory are shared, but each process gets what tvm and a layer take.
            max(_LEAST_MEMORY, main_memory() * 4 // 5 // self._cores),
            self._linker,
            self._folder,
        )

    @abstractmethod
    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Outcome]]]:
        """Compile and measure; yield each job's place and outcomes when they are known."""

    @contextlib.contextmanager
    def _threads(self, count: int) -> Iterator[ThreadPoolExecutor]:
        """Make threads that wait for processes; at the end none of the processes is left."""
        pool = ThreadPoolExecutor(count)
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self.close()
            pool.shutdown()

    def _compiled(self, job: Job) -> KernelProcess:
        process = KernelProcess(job)
        self._alive.add(process)
        process.compiled()
        return process

    def _end(self, process: KernelProcess) -> None:
        process.end()
        self._alive.discard(process)

    def close(self) -> None:
        """End all processes; what is being measured is dropped."""
        for process in list(self._alive):
            self._end(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalMeasurer(Measurer):
    """Builds kernels and measures them on this machine.

    As many processes as there are cores compile a batch; then its kernels run one after the other,
    each in its process, while nothing else of this measurer runs. A kernel that crashes or does not
    end is the only one lost.

    Parameters
    ----------
    target : tvm.target.Target
        What to compile for. Its ``num-cores`` is the number of threads that kernels run with.
    measure : Measure, optional
        How.

    Raises
    ------
    TargetError
        This machine cannot run what is compiled for the target.
    """

    def __init__(self, target: tvm.target.Target, measure: Measure | None = None) -> None:
        super().__init__(target, measure)
        if why := abilities().why_unsupported(target):
            raise TargetError(
                f"This machine cannot run what is compiled for the target: {why}.",
                where=spelled(target),
                fix="tune for tvmlab.host_target(), or on machines of that kind through an RPC "
                "tracker (tracker=, key=)",
            )
        self.processor = processor_name()

    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Outcome]]]:
        with self._threads(self._cores) as pool:
            for place, process in enumerate(list(pool.map(self._compiled, jobs))):
                try:
                    found = process.measured(None)
                except (TimeoutError, ChildProcessError) as error:
                    found = process.failed(error)
                self._end(process)
                yield place, found


class RemoteMeasurer(Measurer):
    """Builds kernels here and measures them on other machines.

    Each server measures one kernel at a time. Where a server is lost or hangs, its kernel is
    compiled again and goes to another one.

    Parameters
    ----------
    target : tvm.target.Target
        What to compile for: the machines that measure.
    measure : Measure, optional
        How.
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

    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[int, list[Outcome]]]:
        self._tracker.expect()
        servers = self._tracker.servers()
        compiling, serving = threading.Semaphore(self._cores), threading.Semaphore(servers)

        def measured(job: Job) -> list[Outcome]:
            """Measure the kernels of a job on the first server that is free and does not fail."""
            for _ in range(_TRIES):
                with compiling:
                    process = self._compiled(job)
                try:
                    if all(process.errors):
                        return process.failed("")
                    with serving:
                        server = self._tracker.request(PATIENCE_SECONDS)
                        if server is None:
                            raise TuningError(
                                f"No server was free for {PATIENCE_SECONDS:.0f} s.",
                                fix="start more servers (tvmlab rpc-server), or those again that "
                                "do not answer",
                            )
                        return process.measured(server, SLACK_SECONDS)
                except OSError as error:
                    found = process.failed(f"{_TRIES} servers failed with it; the last: {error}")
                finally:
                    self._end(process)
            return found

        with self._threads(self._cores + servers) as pool:
            places = {pool.submit(measured, job): place for place, job in enumerate(jobs)}
            for future in as_completed(places):
                yield places[future], future.result()
