"""Kernels built and measured on this machine: by a few processes, one measurement at a time."""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm.ir import IRModule

from ...errors import TargetError
from ...support.host import abilities, main_memory, physical_cores, processor_name
from ...support.target import expect_processor, spelled
from ..measure import Measure, Outcome
from .process import KernelError, Process, WorkerLost
from .worker import SLACK_SECONDS

__all__ = ["LocalMeasurer", "Pool"]

_LEAST_MEMORY = 2 << 30
_DROP_SECONDS = 30.0


class Pool:
    """Processes that compile kernels; each keeps its own until `drop`.

    Parameters
    ----------
    target : tvm.target.Target
        What to compile for.
    workers : int or None
        How many; as many as physical cores where it is None.

    Attributes
    ----------
    spelled : dict
        The target in JSON.
    """

    def __init__(self, target: tvm.target.Target, workers: int | None) -> None:
        self.spelled = json.loads(str(target))
        self._threads = int(target.attrs.get("num-cores", physical_cores()))
        count = physical_cores() if workers is None else max(1, workers)
        self._limit = _memory_each(count)
        self._processes = [self.start() for _ in range(count)]

    def start(self) -> Process:
        """Start a process like those of the pool."""
        return Process(self._threads, self._limit)

    def __len__(self) -> int:
        return len(self._processes)

    def one(self) -> Process:
        """Give one that lives."""
        return self.at(0)

    def at(self, slot: int) -> Process:
        """Give the one at a slot, or start another there where it is gone."""
        if not self._processes[slot].alive:
            self._processes[slot].kill()
            self._processes[slot] = self.start()
        return self._processes[slot]

    def ask_to_build(self, process: Process, module: str, seconds: float) -> int:
        """Have a kernel compiled by a process; its number there.

        Raises
        ------
        KernelError, WorkerLost, TuningError
            As `Process.ask` raises them.
        """
        number: int = process.ask(
            "build", wait=seconds, module=module, target=self.spelled, seconds=seconds
        )
        return number

    def revive(self) -> None:
        """Start a process for each that is gone."""
        for slot in range(len(self)):
            self.at(slot)

    def build(
        self, modules: dict[int, str], seconds: float
    ) -> tuple[dict[int, tuple[Process, int]], dict[int, str]]:
        """Compile some kernels, all processes at once.

        Parameters
        ----------
        modules : dict of int to str
            Modules by place, as ``tvm.ir.save_json`` writes them.
        seconds : float
            Time limit of each.

        Returns
        -------
        built : dict of int to (Process, int)
            By place, the process that has the kernel and its number there. Where a process died at
            a later kernel, what it had is not listed.
        failed : dict of int to str
            By place, why not.

        Raises
        ------
        TuningError
            A process cannot start.
        """
        self.revive()
        waiting = deque(sorted(modules))
        built: dict[int, tuple[Process, int]] = {}
        failed: dict[int, str] = {}
        broken: list[BaseException] = []

        def work(slot: int) -> None:
            mine: list[int] = []
            while not broken:
                process = self._processes[slot]
                try:
                    place = waiting.popleft()
                except IndexError:
                    return
                try:
                    built[place] = (process, self.ask_to_build(process, modules[place], seconds))
                    mine.append(place)
                except KernelError as error:
                    failed[place] = f"It cannot be compiled: {error}"
                except WorkerLost as error:
                    failed[place] = f"The compiler failed: {error}"
                    for lost in mine:
                        del built[lost]
                    return  # the others go on; the next call starts a new process
                except BaseException as error:
                    broken.append(error)

        threads = [threading.Thread(target=work, args=(slot,)) for slot in range(len(self))]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:  # interrupted by the user
            waiting.clear()
            self.kill()
            raise
        if broken:
            raise broken[0]
        return built, failed

    def drop(self) -> None:
        """Have all kernels forgotten."""
        for process in self._processes:
            if process.alive:
                with contextlib.suppress(WorkerLost):
                    process.ask("drop", wait=_DROP_SECONDS)

    def kill(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()


def _memory_each(count: int) -> int:
    """Share four fifths of the memory among processes, but give each what tvm and a layer take."""
    return max(_LEAST_MEMORY, main_memory() * 4 // 5 // count)


def plan(measure: Measure) -> dict[str, Any]:
    """Return how to time, as the message to a worker."""
    names = ("number", "repeat", "min_repeat_ms", "cache_flush")
    return {name: getattr(measure, name) for name in names}


def outcomes(told: dict[str, Any]) -> list[Outcome]:
    """Read what a worker tells of kernels that ran."""
    pairs = zip(told["times"], told["answers"], strict=True)
    cpu = str(told.get("cpu", ""))
    return [Outcome(times=tuple(times), answer=tuple(answer), cpu=cpu) for times, answer in pairs]


def duel_seconds(measure: Measure, kernels: int, rounds: int) -> float:
    """Give a duel as long as it may take to measure its kernels one after the other."""
    return measure.timeout * kernels * max(1.0, rounds / measure.repeat)


class LocalMeasurer:
    """Builds kernels and measures them on this machine.

    Parameters
    ----------
    target : tvm.target.Target
        What to compile for. Its ``num-cores`` is the number of threads that kernels run with.
    measure : Measure, optional
        How.
    workers : int, optional
        Processes that compile at once: as many as physical cores if not given.

    Raises
    ------
    TargetError
        This machine cannot run what is compiled for the target.

    Notes
    -----
    A batch is compiled by all processes at once; then its kernels run one after the other, each in
    a process forked for it, while nothing else of ours runs. A kernel that crashes or does not end
    is the only one lost.
    """

    def __init__(
        self,
        target: tvm.target.Target,
        measure: Measure | None = None,
        workers: int | None = None,
    ) -> None:
        expect_processor(target)
        if why := abilities().why_unsupported(target):
            raise TargetError(
                f"This machine cannot run what is compiled for the target: {why}.",
                where=spelled(target),
                fix="tune for tvmlab.host_target(), or on machines of that kind through an RPC "
                "tracker (tracker=, key=)",
            )
        self._measure = measure or Measure()
        self._pool: Pool | None = Pool(target, workers)
        self._target = target

    @property
    def processor(self) -> str:
        """The processor of this machine, by its maker's name."""
        return processor_name()

    @property
    def target(self) -> tvm.target.Target:
        """What is compiled for."""
        return self._target

    @property
    def options(self) -> Measure:
        """How it measures."""
        return self._measure

    def _opened(self) -> Pool:
        if self._pool is None:
            raise ValueError("this measurer is closed")
        return self._pool

    def measure(self, kernels: Sequence[IRModule]) -> Iterator[tuple[int, Outcome]]:
        """Build and measure some kernels.

        Parameters
        ----------
        kernels : sequence of tvm.ir.IRModule
            One scheduled TIR function ``main`` each.

        Yields
        ------
        (int, Outcome)
            A kernel's place and what became of it, as each is known.

        Raises
        ------
        TuningError
            A process to measure in cannot start.
        """
        pool = self._opened()
        waiting = {place: tvm.ir.save_json(kernel) for place, kernel in enumerate(kernels)}
        try:
            while waiting:  # more than once where a process was lost with kernels that it had
                built, failed = pool.build(waiting, self._measure.build_timeout)
                for place, why in failed.items():
                    del waiting[place]
                    yield place, Outcome(error=why)
                for place in sorted(built):
                    process, number = built[place]
                    if not process.alive:
                        continue
                    del waiting[place]
                    yield place, self._measured(process, number)
                pool.drop()
        finally:
            if waiting:  # given up by the caller, or interrupted
                pool.drop()

    def _measured(self, process: Process, number: int) -> Outcome:
        try:
            (outcome,) = self._run(process, [number], 0, self._measure.timeout)
        except (KernelError, WorkerLost) as error:
            return Outcome(error=f"It cannot be run: {error}")
        return outcome

    def _run(
        self, process: Process, which: Sequence[int], rounds: int, seconds: float
    ) -> list[Outcome]:
        told = process.ask(
            "measure",
            wait=seconds + 2 * SLACK_SECONDS,
            which=list(which),
            plan=plan(self._measure),
            rounds=rounds,
            seconds=seconds,
        )
        return outcomes(told)

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Measure some kernels alternately, a sample of each a round, in one process.

        Parameters
        ----------
        kernels : sequence of tvm.ir.IRModule
            One scheduled TIR function ``main`` each.
        rounds : int
            Samples of each; every other round goes from the last kernel to the first.

        Returns
        -------
        list of Outcome
            One a kernel. Those that cannot be compiled are left out of the rounds; where one fails
            to run, all that ran with it have its error.

        Raises
        ------
        TuningError
            A process to measure in cannot start.
        """
        pool = self._opened()
        found = [Outcome()] * len(kernels)
        process, numbers = pool.one(), {}
        try:
            for place, kernel in enumerate(kernels):
                text = tvm.ir.save_json(kernel)
                try:
                    numbers[place] = pool.ask_to_build(process, text, self._measure.build_timeout)
                except KernelError as error:
                    found[place] = Outcome(error=f"It cannot be compiled: {error}")
            seconds = duel_seconds(self._measure, len(numbers), rounds)
            told = self._run(process, list(numbers.values()), rounds, seconds)
        except (KernelError, WorkerLost) as error:
            return [o if o.error else Outcome(error=f"The duel failed: {error}") for o in found]
        finally:
            pool.drop()
        for place, outcome in zip(numbers, told, strict=True):
            found[place] = outcome
        return found

    def close(self) -> None:
        """End all workers; what is being measured is dropped."""
        if self._pool is not None:
            self._pool.kill()
        self._pool = None

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self.close()
