"""Measuring kernels on this machine, and on others through TVM's RPC tracker and servers."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

import tvm
from tvm.ir import IRModule
from tvm.rpc.base import RPC_MAGIC, recvall

from ..errors import RemoteError, TargetError, TuningError
from ..runtime.tracker import TALK_SECONDS, Tracker
from ..support.host import abilities, main_memory, physical_cores, processor_name, triple_of
from ..support.target import expect_processor, spelled
from ..support.toolchain import linker
from .forks import Forks, Job, Process
from .measure import Measure, Outcome

__all__ = ["LocalMeasurer", "RemoteMeasurer"]

_BATCH = 16  # kernels that are compiled before the first of them is measured
_LEAST_MEMORY = 2 << 30
# How long to wait for a server where all are taken, and where there is none any more.
PATIENCE_SECONDS, GRACE_SECONDS = 60.0, 5.0
# How long a server can take beyond the time limit that it has itself.
SLACK_SECONDS = 10.0
# How often kernels are measured anew: where a process or a server is lost, and where it hangs.
_LOSSES, _LATE = 3, 2
_LOOK_SECONDS = 0.5


@dataclass(eq=False)
class _Run:
    """A job on its way, from its texts to the outcomes of its kernels."""

    places: list[int]
    job: Job
    seconds: float
    errors: list[str] = field(default_factory=list)
    process: Process | None = None
    server: tuple[str, int, str] | None = None
    deadline: float = 0.0
    losses: int = 0
    late: int = 0

    def failed(self, why: str) -> list[tuple[int, Outcome]]:
        """Return the outcomes where nothing could be measured."""
        errors = self.errors or [""] * len(self.places)
        pairs = zip(self.places, errors, strict=True)
        return [(place, Outcome(error=error or why)) for place, error in pairs]

    def measured(self, told: dict[str, Any]) -> list[tuple[int, Outcome]]:
        """Return the outcomes of what ran."""
        cpu, pairs = told.get("cpu", ""), zip(told["times"], told["answers"], strict=True)
        ran = (Outcome(times=tuple(t), answer=tuple(a), cpu=cpu) for t, a in pairs)
        errors = zip(self.places, self.errors, strict=True)
        return [(place, Outcome(error=why) if why else next(ran)) for place, why in errors]

    def end(self) -> None:
        if self.process is not None:
            self.process.end()
        self.process = None


class _Batch:
    """Runs by what they wait for."""

    def __init__(self, runs: Sequence[_Run]) -> None:
        self.waiting = deque(runs)
        self.compiling: list[_Run] = []
        self.built = deque[_Run]()
        self.running: list[_Run] = []
        self.moved = time.monotonic()

    def left(self) -> list[_Run]:
        return [*self.waiting, *self.compiling, *self.built, *self.running]


class _Measurer(ABC):
    """Compiles kernels here, as many at once as there are cores, and has them measured."""

    def __init__(
        self, target: tvm.target.Target, measure: Measure | None, workers: int | None
    ) -> None:
        self._target, self._measure = target, measure or Measure()
        self._cores = physical_cores() if workers is None else max(1, workers)
        # Four fifths of the memory are shared, but each process gets what tvm and a layer take.
        memory = max(_LEAST_MEMORY, main_memory() * 4 // 5 // self._cores)
        self._forks: Forks | None = Forks(
            int(target.attrs.get("num-cores", physical_cores())), memory
        )
        self._linker = self._folder = ""
        self._slack = 0.0

    @property
    def target(self) -> tvm.target.Target:
        """What is compiled for."""
        return self._target

    @property
    def options(self) -> Measure:
        """How it measures."""
        return self._measure

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
            A process to measure in cannot start, or the tracker or all servers are gone.
        TargetError
            No server can run what is compiled for the target.
        """
        self._expect_open()
        for start in range(0, len(kernels), _BATCH):
            some = enumerate(kernels[start : start + _BATCH], start)
            yield from self._outcomes([self._run([place], [one], 0) for place, one in some])

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Measure some kernels alternately, a sample of each per round, in one process.

        Parameters
        ----------
        kernels : sequence of tvm.ir.IRModule
            One scheduled TIR function ``main`` each.
        rounds : int
            Samples of each; every other round goes from the last kernel to the first.

        Returns
        -------
        list of Outcome
            One per kernel. Those that cannot be compiled are left out of the rounds; where one
            fails to run, all that ran with it have its error; and where no server can run them,
            all have an error.

        Raises
        ------
        TuningError
            A process to measure in cannot start on this machine.
        """
        self._expect_open()
        places = list(range(len(kernels)))
        return [one for _, one in sorted(self._outcomes([self._run(places, kernels, rounds)]))]

    def _run(self, places: list[int], kernels: Sequence[IRModule], rounds: int) -> _Run:
        texts = [str(tvm.ir.save_json(kernel)) for kernel in kernels]
        about = json.loads(str(self._target))
        job = Job(texts, about, self._measure, rounds, self._linker, self._folder)
        # As long as it can take to measure the kernels one after the other.
        seconds = self._measure.timeout * len(kernels) * max(1.0, rounds / self._measure.repeat)
        return _Run(places, job, seconds)

    @abstractmethod
    def _begin(self, batch: _Batch) -> bool:
        """Start to measure the next compiled run, if its turn has come."""

    def _refused(self, run: _Run, why: str) -> None:
        """Stop using a server that cannot run the target."""
        raise NotImplementedError

    def _go(self, batch: _Batch, server: tuple[str, int, str] | None) -> None:
        run = batch.built.popleft()
        assert run.process is not None
        run.server = server
        run.deadline = time.monotonic() + run.seconds + self._slack
        batch.running.append(run)
        with contextlib.suppress(OSError):  # it is lost, which the next message shows
            run.process.connection.send((server, run.seconds))

    def _outcomes(self, runs: Sequence[_Run]) -> Iterator[tuple[int, Outcome]]:
        """Compile and measure; yield each outcome when it is known."""
        batch = _Batch(runs)
        try:
            while batch.left():
                while batch.waiting and len(batch.compiling) < self._cores:
                    run = batch.waiting[0]
                    assert self._forks is not None
                    run.process = self._forks.start(run.job)
                    limit = self._measure.build_timeout * len(run.places)
                    run.deadline = time.monotonic() + limit
                    batch.compiling.append(batch.waiting.popleft())
                while self._begin(batch):
                    pass
                busy = {
                    one.process.connection: one
                    for one in batch.compiling + batch.running
                    if one.process
                }
                ready = set(wait(list(busy), _LOOK_SECONDS) if busy else ())
                if not busy:
                    time.sleep(_LOOK_SECONDS / 5)
                for connection, run in busy.items():
                    if connection in ready or time.monotonic() > run.deadline:
                        batch.moved = time.monotonic()
                        yield from self._heard(batch, run, connection, connection in ready)
        finally:
            for run in batch.left():  # given up by the caller, or interrupted
                run.end()

    def _heard(
        self, batch: _Batch, run: _Run, connection: Connection, ready: bool
    ) -> list[tuple[int, Outcome]]:
        """Move a run on by its process's next message, or by its time limit."""
        assert run.process is not None
        compiling = run in batch.compiling
        (batch.compiling if compiling else batch.running).remove(run)
        told: Any = run.process.receive() if ready else {"late": True}
        what = "It cannot be compiled: " if compiling else "It cannot be run: "
        match told:
            case list(errors):
                run.errors = [error and what + error for error in errors]
                if not all(run.errors):
                    batch.built.append(run)
                    return []
                found = run.failed("")
            case {"times": _}:
                found = run.measured(told)
            case {"refused": why}:
                self._refused(run, why)
                batch.built.append(run)
                return []
            case {"failed": why}:
                found = run.failed(what + why)
            case {"lost": why} if run.losses + 1 < _LOSSES:
                run.losses += 1
                batch.built.append(run)
                return []
            case {"late": _} if compiling or run.server is None:
                limit = self._measure.build_timeout if compiling else run.seconds
                found = run.failed(f"{what}it took longer than {limit:g} s and was stopped")
            case {"late": _}:
                run.late += 1
                if run.late < _LATE:
                    run.end()
                    batch.waiting.append(run)
                    return []
                found = run.failed(f"{what}{_LATE} servers do not answer")
            case None if run.losses + 1 < _LOSSES:  # with the server of processes: compile again
                run.losses += 1
                run.end()
                batch.waiting.append(run)
                return []
            case _:
                why = told if isinstance(told, str) else "its process was lost"
                if isinstance(told, dict):
                    why = f"{_LOSSES} servers failed with it; the last: {told['lost']}"
                found = run.failed(what + why)
        run.end()
        return found

    def _expect_open(self) -> None:
        if self._forks is None:
            raise ValueError("this measurer is closed")

    def close(self) -> None:
        """End all processes; what is being measured is dropped."""
        if self._forks is not None:
            self._forks.close()
        self._forks = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_forks", None) is not None:
            self.close()


class LocalMeasurer(_Measurer):
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
    A batch is compiled by several processes at once; then its kernels run one after the other,
    each in its process, while nothing else of this measurer runs. A kernel that crashes or does not
    end is the only one lost.
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
        super().__init__(target, measure, workers)

    @property
    def processor(self) -> str:
        """The processor of this machine, by its maker's name."""
        return processor_name()

    def _begin(self, batch: _Batch) -> bool:
        if not batch.built or batch.waiting or batch.compiling or batch.running:
            return False
        batch.built = deque(sorted(batch.built, key=lambda run: run.places))
        self._go(batch, None)
        return True


class RemoteMeasurer(_Measurer):
    """Builds kernels here and measures them on other machines.

    Parameters
    ----------
    target : tvm.target.Target
        What to compile for: the machines that measure.
    measure : Measure, optional
        How.
    tracker : str
        The ``host:port`` of an RPC tracker (``tvmlab rpc-tracker``).
    key : str
        The kind of servers to take (``tvmlab rpc-server --key``).
    workers : int, optional
        Processes that compile at once: as many as physical cores if not given.

    Raises
    ------
    TuningError
        There is no tracker, or it knows no such server.
    TargetError
        The target is no processor.
    ToolchainError
        There is no compiler that links for it.

    Notes
    -----
    As many kernels are measured at once as there are servers, also those that come later. Where a
    server is lost with a kernel, the kernel goes to another, up to three times; where one does not
    answer in time, once.
    """

    def __init__(
        self,
        target: tvm.target.Target,
        measure: Measure | None = None,
        *,
        tracker: str,
        key: str,
        workers: int | None = None,
    ) -> None:
        expect_processor(target)
        self._tracker = _Servers(tracker, key)
        self._tracker.expect()
        made = str(linker(triple_of(target)))
        super().__init__(target, measure, workers)
        self._libraries = tempfile.TemporaryDirectory(prefix="tvmlab-tuning-")
        self._linker, self._folder, self._slack = made, self._libraries.name, SLACK_SECONDS
        self._looked, self._servers = 0.0, 0

    @property
    def processor(self) -> str:
        """Empty: each server has its own, and outcomes tell which."""
        return ""

    def measure(self, kernels: Sequence[IRModule]) -> Iterator[tuple[int, Outcome]]:
        """Build and measure some kernels: see `LocalMeasurer.measure`."""
        self._expect_open()
        self._tracker.expect()
        return super().measure(kernels)

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Measure some kernels alternately on one server: see `LocalMeasurer.duel`."""
        self._expect_open()
        try:
            self._tracker.expect()
            return super().duel(kernels, rounds)
        except (TargetError, TuningError) as error:
            return [Outcome(error=f"The duel failed: {error}")] * len(kernels)

    def _outcomes(self, runs: Sequence[_Run]) -> Iterator[tuple[int, Outcome]]:
        try:
            yield from super()._outcomes(runs)
        finally:
            for path in Path(self._folder).iterdir():
                path.unlink()

    def _begin(self, batch: _Batch) -> bool:
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked, self._servers = now, self._tracker.servers()
        if not batch.built:
            return False
        if len(batch.running) < self._servers:
            server = self._tracker.request(_LOOK_SECONDS)
            if server is not None:
                self._go(batch, server)
                return True
        if batch.running:
            return False
        if not self._servers:
            with contextlib.suppress(TuningError):  # those that are gone can come again
                self._tracker.expect()
        still = now - batch.moved
        if still > (PATIENCE_SECONDS if self._servers else GRACE_SECONDS):
            what = f"taken, for {still:.0f} s" if self._servers else "gone"
            raise TuningError(
                f"All servers are {what}.",
                where=f"{len(batch.left())} kernels are not measured",
                fix="start more servers (tvmlab rpc-server), or those again that do not answer",
            )
        return False

    def _refused(self, run: _Run, why: str) -> None:
        assert run.server is not None
        self._looked = 0.0
        if self._tracker.leave_out(run.server, why):
            warnings.warn(
                f"The RPC server {run.server[0]}:{run.server[1]} is left out: it cannot run what "
                f"is compiled for the target. {why}",
                RuntimeWarning,
                stacklevel=2,
            )

    def close(self) -> None:
        """End all processes; what is being measured is dropped."""
        super().close()
        self._libraries.cleanup()


@contextlib.contextmanager
def _tuning_errors() -> Iterator[None]:
    """Raise an error of a tracker's client as an error of tuning, which keeps its report."""
    try:
        yield
    except RemoteError as error:
        raise TuningError(error.what, where=error.where, fix=error.fix) from error


class _Servers(Tracker):
    """A client of a tracker that leaves out servers which cannot run the target."""

    @_tuning_errors()
    def __init__(self, address: str, key: str) -> None:
        super().__init__(address, key)
        self._left_out: dict[tuple[str, int], str] = {}

    def leave_out(self, server: tuple[str, int, str], why: str) -> bool:
        """Stop using a server that `request` returned; return whether it was in use until now."""
        news = server[:2] not in self._left_out
        self._left_out[server[:2]] = why
        return news

    @_tuning_errors()
    def addresses(self) -> list[tuple[str, int]]:
        """List the servers of the key without those left out."""
        return [server for server in super().addresses() if server not in self._left_out]

    @_tuning_errors()
    def expect(self) -> None:
        """Check that there is a server."""
        super().expect()
        if not self.servers():
            raise TargetError(
                f"No server of the key {self._key!r} can run what is compiled for the target.",
                where="; ".join(
                    f"{host}:{port}: {why}" for (host, port), why in self._left_out.items()
                ),
                fix="tune for the servers' processor and its threads, or start servers that have "
                "what the target asks for",
            )

    @_tuning_errors()
    def request(self, seconds: float) -> tuple[str, int, str] | None:
        """Reserve a server that is not left out; return None if none was free in time."""
        deadline, refused = time.monotonic() + seconds, set[tuple[str, int]]()
        while (left := deadline - time.monotonic()) > 0:
            server = super().request(left)
            if server is None or server[:2] not in self._left_out:
                return server
            _give_back(server)
            if server[:2] in refused:  # no other server is free
                time.sleep(_LOOK_SECONDS)
            refused.add(server[:2])
        return None


def _give_back(server: tuple[str, int, str]) -> None:
    """Connect to a server and hang up, so that the server offers itself again at once."""
    host, port, match = server
    greeting = f"client:{match}".encode()
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), timeout=TALK_SECONDS) as connection,
    ):
        connection.sendall(struct.pack("<ii", RPC_MAGIC, len(greeting)) + greeting)
        recvall(connection, 4)
