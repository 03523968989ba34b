"""A batch of kernels on its way: compiled by a pool, measured on whatever servers there are."""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import TuningError
from ..measure import Measure, Outcome
from .local import Pool, outcomes, plan
from .process import KernelError, Process, WorkerLost
from .servers import Servers
from .worker import SLACK_SECONDS

__all__ = ["Batch", "Seats", "Told", "exported", "left_out"]

# How long to wait for a server where all are taken, and where there is none any more.
PATIENCE_SECONDS, GRACE_SECONDS = 60.0, 5.0
# How often a kernel goes to another server: where one is lost, and where one does not answer.
_LOSSES, _LATE = 3, 2
_LOOK_SECONDS = 0.5


@dataclass
class Told:
    """What came of a session with a server: outcomes, or why there are none.

    Attributes
    ----------
    outcomes : list of Outcome
        One a kernel; empty where it failed.
    why : str
        Why it failed.
    lost, late, refused : bool
        Whether the server is at fault: it is gone, does not answer, or cannot run the target.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    why: str = ""
    lost: bool = False
    late: bool = False
    refused: bool = False


def left_out(server: tuple[str, int, str], why: str) -> RuntimeWarning:
    """Warn that a server is not used."""
    return RuntimeWarning(
        f"The RPC server {server[0]}:{server[1]} is left out: it cannot run what is compiled for "
        f"the target. {why}"
    )


class Seats:
    """Processes that talk with servers, as many as talk at once.

    Parameters
    ----------
    pool : Pool
        Whose processes they are like.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._free: list[Process] = []
        self._taken: set[Process] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _taken_one(self) -> Iterator[Process]:
        with self._lock:
            process = self._free.pop() if self._free else self._pool.start()
            self._taken.add(process)
        try:
            yield process
        finally:
            with self._lock:
                self._taken.discard(process)
                if process.alive:
                    self._free.append(process)

    def run(
        self,
        server: tuple[str, int, str],
        kernels: Sequence[dict[str, Any]],
        measure: Measure,
        rounds: int,
        seconds: float,
    ) -> Told:
        """Measure kernels on a server.

        Parameters
        ----------
        server : (str, int, str)
            From `Servers.request`.
        kernels : sequence of dict
            From `exported`.
        measure : Measure
            How.
        rounds : int
            0, or how often to measure them alternately.
        seconds : float
            What the kernels may take.

        Returns
        -------
        Told
        """
        limit = seconds + SLACK_SECONDS  # the server ends the kernel; we end a server that does not
        try:
            with self._taken_one() as process:
                told = process.ask(
                    "remote",
                    wait=limit + 2 * SLACK_SECONDS,
                    server=server,
                    target=self._pool.spelled,
                    kernels=list(kernels),
                    plan=plan(measure),
                    rounds=rounds,
                    session_seconds=seconds,
                    seconds=limit,
                )
        except KernelError as error:
            why = f"the server {server[0]}:{server[1]} does not answer" if error.late else error
            return Told(why=str(why), late=error.late)
        except WorkerLost as error:
            return Told(why=str(error), lost=True)
        if "lost" in told:
            return Told(why=f"{server[0]}:{server[1]}: {told['lost']}", lost=True)
        if "refused" in told:
            return Told(why=told["refused"], refused=True)
        return Told(outcomes(told))

    def kill(self) -> None:
        """End all."""
        with self._lock:
            for process in [*self._free, *self._taken]:
                process.kill()
            self._free.clear()


def exported(
    pool: Pool, process: Process, module: str, path: Path, linker: str, seconds: float
) -> dict[str, Any]:
    """Have a kernel compiled into a file; what a server is to be told about it."""
    told: dict[str, Any] = process.ask(
        "export",
        wait=seconds,
        module=module,
        target=pool.spelled,
        path=str(path),
        linker=linker,
        seconds=seconds,
    )
    return told


@dataclass
class _Job:
    place: int
    kernel: dict[str, Any]
    losses: int = 0
    late: int = 0


class Batch:
    """Some kernels, from their text to their outcomes.

    Parameters
    ----------
    modules : sequence of str
        As ``tvm.ir.save_json`` writes them.
    pool : Pool
        What compiles.
    seats : Seats
        What talks with servers.
    tracker : Servers
        What knows the servers.
    measure : Measure
        How to measure.
    folder : Path
        Where libraries are kept until they are measured.
    linker : str
        The C++ compiler.
    """

    _numbers = itertools.count()

    def __init__(
        self,
        modules: Sequence[str],
        *,
        pool: Pool,
        seats: Seats,
        tracker: Servers,
        measure: Measure,
        folder: Path,
        linker: str,
    ) -> None:
        self._pool, self._seats, self._tracker = pool, seats, tracker
        self._measure, self._folder, self._linker = measure, folder, linker
        self._modules, self._left = modules, len(modules)
        self._uncompiled = queue.SimpleQueue[int]()
        for place in range(len(modules)):
            self._uncompiled.put(place)
        self._jobs = queue.SimpleQueue[_Job]()
        self._found = queue.SimpleQueue[tuple[int, Outcome] | BaseException]()
        self._stop = threading.Event()
        # Kernels that are compiled and not yet measured, and those of them that a server has.
        self._compiled, self._running, self._lock = 0, 0, threading.Lock()
        self._moved = time.monotonic()
        self._number = next(self._numbers)
        self._threads: list[threading.Thread] = []
        self._servers = 0

    def outcomes(self) -> Iterator[tuple[int, Outcome]]:
        """Compile and measure; give each place and outcome when it is known."""
        self._pool.revive()
        for slot in range(min(len(self._pool), self._left)):
            self._start(self._compile, slot)
        while self._left:
            try:
                found = self._found.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                self._look()
                continue
            if isinstance(found, Warning):
                warnings.warn(found, stacklevel=2)
                continue
            if isinstance(found, BaseException):
                raise found
            self._left -= 1
            self._moved = time.monotonic()
            yield found
            if self._servers < self._left:
                self._look()

    def _start(self, work: Any, *arguments: Any) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self._found.put(error)

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _look(self) -> None:
        """Use servers that have come, and see whether any are left."""
        there = self._tracker.servers()
        while self._servers < min(there, self._left):
            with self._lock:
                self._servers += 1
            self._start(self._serve)
        if not there and not self._running:
            with contextlib.suppress(TuningError):  # those that are gone may come again
                self._tracker.expect()
        still = time.monotonic() - self._moved
        if self._running or not self._compiled:
            return
        if still > (PATIENCE_SECONDS if there else GRACE_SECONDS):
            raise TuningError(
                f"All servers are taken, for {still:.0f} s." if there else "All servers are gone.",
                where=f"{self._left} kernels are not measured",
                fix="start more servers (tvmlab rpc-server), or those again that do not answer",
            )

    def _compile(self, slot: int) -> None:
        while not self._stop.is_set():
            try:
                place = self._uncompiled.get_nowait()
            except queue.Empty:
                return
            path = self._folder / f"{self._number}-{place}.so"
            process = self._pool.at(slot)
            limit = self._measure.build_timeout
            try:
                kernel = exported(
                    self._pool, process, self._modules[place], path, self._linker, limit
                )
            except KernelError as error:
                self._found.put((place, Outcome(error=f"It cannot be compiled: {error}")))
            except WorkerLost as error:
                self._found.put((place, Outcome(error=f"The compiler failed: {error}")))
            else:
                with self._lock:
                    self._compiled += 1
                self._moved = time.monotonic()
                self._jobs.put(_Job(place, kernel))

    def _serve(self) -> None:
        """Measure one kernel after the other, each on the server that is free first."""
        while not self._stop.is_set():
            try:
                job = self._jobs.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            server = self._tracker.request(2 * _LOOK_SECONDS)
            if server is None:
                self._jobs.put(job)
                continue
            with self._lock:
                self._running += 1
            try:
                told = self._seats.run(
                    server, [job.kernel], self._measure, 0, self._measure.timeout
                )
            finally:
                self._moved = time.monotonic()
                with self._lock:
                    self._running -= 1
            if told.refused:
                if self._tracker.leave_out(server, told.why):
                    self._found.put(left_out(server, told.why))
                self._jobs.put(job)
                with self._lock:
                    self._servers -= 1  # as many threads as servers that are not left out
                return
            if not self._stop.is_set():
                self._settle(job, told)

    def _settle(self, job: _Job, told: Told) -> None:
        """Hand out what was found, or have the kernel measured elsewhere."""
        job.losses += told.lost
        job.late += told.late
        if (told.lost and job.losses < _LOSSES) or (told.late and job.late < _LATE):
            self._jobs.put(job)
            return
        with self._lock:
            self._compiled -= 1
        Path(job.kernel["path"]).unlink(missing_ok=True)
        if told.outcomes:
            self._found.put((job.place, told.outcomes[0]))
            return
        times = job.losses if told.lost else job.late
        how = f"{times} servers failed with it; the last: " if times else "It cannot be run: "
        self._found.put((job.place, Outcome(error=how + told.why)))

    def close(self) -> None:
        """End what still runs: all of it where the batch was given up."""
        self._stop.set()
        for thread in self._threads:
            while thread.is_alive():
                if self._left:  # again each time: a thread may just have started a process
                    self._seats.kill()
                    self._pool.kill()
                thread.join(_LOOK_SECONDS)
