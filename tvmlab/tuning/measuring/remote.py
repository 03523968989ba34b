"""Kernels measured on other machines, through TVM's RPC tracker and servers."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.ir import IRModule

from ...errors import TargetError, TuningError
from ...support.host import triple_of
from ...support.target import expect_processor
from ...support.toolchain import linker
from ..measure import Measure, Outcome
from .local import Pool, duel_seconds
from .process import KernelError, WorkerLost
from .remote_batch import PATIENCE_SECONDS, Batch, Seats, Told, exported, left_out
from .servers import Servers

__all__ = ["RemoteMeasurer"]

_DUELS = 3


class RemoteMeasurer:
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
        self._tracker = Servers(tracker, key)
        self._tracker.expect()
        self._linker = str(linker(triple_of(target)))
        self._measure, self._target = measure or Measure(), target
        self._folder = tempfile.TemporaryDirectory(prefix="tvmlab-tuning-")
        self._pool = Pool(target, workers)
        self._seats = Seats(self._pool)
        self._open = True

    @property
    def processor(self) -> str:
        """Empty: each server has its own, and outcomes tell which."""
        return ""

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
            The tracker or all servers are gone, or a process to compile in cannot start.
        TargetError
            No server can run what is compiled for the target.
        """
        self._expect_open()
        self._tracker.expect()
        modules = [tvm.ir.save_json(kernel) for kernel in kernels]
        batch = Batch(
            modules,
            pool=self._pool,
            seats=self._seats,
            tracker=self._tracker,
            measure=self._measure,
            folder=Path(self._folder.name),
            linker=self._linker,
        )
        with contextlib.closing(batch):
            yield from batch.outcomes()

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Measure some kernels alternately, a sample of each a round, on one server.

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
            to run, all that ran with it have its error; and where there is no server free that can
            run them, or no tracker, so do all.

        Raises
        ------
        TuningError
            A process to compile in cannot start.
        """
        self._expect_open()
        found = [Outcome()] * len(kernels)
        ready: dict[int, dict[str, object]] = {}
        for place, kernel in enumerate(kernels):
            path = Path(self._folder.name) / f"duel-{place}.so"
            try:
                ready[place] = exported(
                    self._pool,
                    self._pool.one(),
                    tvm.ir.save_json(kernel),
                    path,
                    self._linker,
                    self._measure.build_timeout,
                )
            except (KernelError, WorkerLost) as error:
                found[place] = Outcome(error=f"It cannot be compiled: {error}")
        seconds = duel_seconds(self._measure, len(ready), rounds)
        told = self._fought(list(ready.values()), rounds, seconds)
        for place, outcome in zip(ready, told.outcomes, strict=False):  # none where it failed
            found[place] = outcome
        if told.outcomes:
            return found
        why = told.why
        return [o if o.error else Outcome(error=f"The duel failed: {why}") for o in found]

    def _fought(self, kernels: Sequence[dict[str, Any]], rounds: int, seconds: float) -> Told:
        """Measure kernels alternately on a server, and where it fails, on another."""
        told, tries = Told(why="there is none to measure"), _DUELS if kernels else 0
        while tries:
            try:
                self._tracker.expect()
                server = self._tracker.request(PATIENCE_SECONDS)
            except (TargetError, TuningError) as error:
                return Told(why=str(error))
            if server is None:
                return Told(why="no server is free; start more, or wait for the others")
            told = self._seats.run(server, kernels, self._measure, rounds, seconds)
            if told.refused:  # no try: each is left out once
                if self._tracker.leave_out(server, told.why):
                    warnings.warn(left_out(server, told.why), stacklevel=3)
                continue
            if not (told.lost or told.late):
                break
            tries -= 1
        return told

    def _expect_open(self) -> None:
        if not self._open:
            raise ValueError("this measurer is closed")

    def close(self) -> None:
        """End all workers; what is being measured is dropped."""
        self._open = False
        self._seats.kill()
        self._pool.kill()
        self._folder.cleanup()

    def __enter__(self) -> RemoteMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()
