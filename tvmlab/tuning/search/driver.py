"""MetaSchedule at work on one variant of a task: strategy, database and cost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import s_tir
from tvm.s_tir import meta_schedule as ms

from ...support.wording import telling
from .context import candidates, identity, make_context
from .grid import GridSearch, estimate
from .known import Known, Tried
from .tuners import Tuner

__all__ = ["Driver"]

BARREN = 10
"""Batches in a row without a new candidate after which a space counts as exhausted."""
FEW = 64
"""Points of a space that is gone through in order, whatever the tuner: drawing and evolving what
has but a few points, at seconds a draw where the function is large, finds the same ones again."""
ENDLESS = 2**30
"""Trials as the strategy counts them: the search has its own count."""


class Driver:
    """Proposes candidates of one variant, and learns from what became of them.

    Parameters
    ----------
    known : Known
        The variant, and what was tried of it; the tried are learnt from first.
    target : tvm.target.Target
        What is compiled for.
    tuner : Tuner
        Who proposes.
    seed : int
        Where random decisions start.
    batch : int
        Candidates that are proposed at once.

    Attributes
    ----------
    ended : bool
        Whether there are no more.
    trouble : str
        Why there were none from the start; empty where there were.
    """

    def __init__(
        self, known: Known, target: tvm.target.Target, tuner: Tuner, seed: int, batch: int
    ) -> None:
        self.known, self.tuner = known, tuner
        self.waiting: list[Any] = []
        self.model = tuner.model(seed) if tuner.model else None
        trouble, spaces = _spaces(known)
        small = 0 < sum(estimate(known.variant.module, space) for space in spaces) <= FEW
        self.strategy = GridSearch() if small else tuner.strategy()
        self.repeats = tuner.repeats and not small
        # A run that goes on from records must not draw the same candidates again.
        self.context = make_context(
            known.variant.module,
            target,
            strategy=self.strategy,
            seed=(seed + len(known.tried)) % (2**31 - 2),
        )
        self.database = ms.database.MemoryDatabase()
        self.workload = self.database.commit_workload(known.variant.module)
        self.ended, self.trouble = not spaces, trouble
        if spaces:
            self.context.pre_tuning(ENDLESS, batch, spaces, self.database, self.model)
        old = {id(one): one.schedule for one in known.tried if one.schedule is not None}
        self.seen = {identity(schedule.mod) for schedule in (known.rule, *old.values())}
        proposed = candidates(list(old.values()))
        tried = [one for one in known.tried if id(one) in old]
        self.learn(list(zip(proposed, tried, strict=True)))

    def propose(self, limit: int) -> list[Any]:
        """Find candidates that were not measured; none where the space seems to have no more."""
        barren = 0
        while not self.waiting and not self.ended and barren < BARREN:
            proposed = self.strategy.generate_measure_candidates()
            if proposed is None:
                self.ended = True
                break
            for candidate in proposed:
                name = identity(candidate.sch.mod)
                if name not in self.seen:
                    self.seen.add(name)
                    self.waiting.append(candidate)
            # A strategy that goes through a space in order may pass by much that is known.
            if not self.waiting and (self.repeats or not proposed):
                barren += 1
        batch, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return batch

    def learn(self, pairs: Sequence[tuple[Any, Tried]]) -> None:
        """Tell strategy, database and model what became of candidates."""
        if not pairs:
            return
        results = []
        for candidate, tried in pairs:
            good = tried.time < float("inf")
            times = [float(one) for one in tried.outcome.times] if good else None
            results.append(ms.runner.RunnerResult(times, tried.outcome.error or None))
            if times:
                self.database.commit_tuning_record(
                    ms.database.TuningRecord(
                        candidate.sch.trace,
                        self.workload,
                        times,
                        self.context.target,
                        candidate.args_info,
                    )
                )
        proposed = [candidate for candidate, _ in pairs]
        if self.model is not None:
            self.model.update(self.context, proposed, results)
        if not self.ended:
            self.strategy.notify_runner_results(proposed, results)

    def predict(self, batch: Sequence[Any]) -> list[float] | list[None]:
        """Ask the model what it thinks of candidates; None where it knows nothing."""
        if self.model is None or getattr(self.model, "booster", None) is None:
            return [None] * len(batch)
        return [float(one) for one in self.model.predict(self.context, batch)]


def _spaces(known: Known) -> tuple[str, list[s_tir.Schedule]]:
    """Make the spaces of a variant; or say why there are none."""
    try:
        return "", known.variant.spaces()
    except Exception as error:  # a primitive that refuses raises several classes
        return f"its space cannot be made: {telling(error)}", []
