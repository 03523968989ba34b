"""What is known of a task: its variants, and the candidates that were tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from tvm import s_tir
from tvm.ir import IRModule

from ...errors import RecordError
from ...records.result import MOST_SECONDS, Result, Verdict
from ...records.traces import as_data, replay
from ...schedule import finish
from ...support.wording import telling
from ..measure import Measurer, Outcome
from ..task import Variant
from .answers import same_answer

__all__ = ["Known", "Met", "Tried", "measured", "met", "whole"]


_LONGEST_ERROR = 2000  # characters of what a compiler says


@dataclass(frozen=True)
class Tried:
    """A candidate, and what became of it.

    Attributes
    ----------
    source : tvm.s_tir.Schedule or (tvm.ir.IRModule, Result or Verdict)
        Its schedule; or, where it comes from the records, the function and the record.
    origin : str
        ``"rule"`` or ``"search"``.
    outcome : Outcome
        From the measurer, or from the records.
    """

    source: s_tir.Schedule | tuple[IRModule, Result | Verdict]
    origin: str
    outcome: Outcome

    @cached_property
    def schedule(self) -> s_tir.Schedule | None:
        """Its schedule, replayed when it is first asked for; None where it no longer applies."""
        if not isinstance(self.source, tuple):
            return self.source
        module, result = self.source
        try:
            return None if result.trace is None else replay(module, result.trace)
        except RecordError:
            return None

    @property
    def trace(self) -> list[Any]:
        """Its schedule as a record has it, of one that applies."""
        assert self.schedule is not None
        return as_data(self.schedule.trace)

    @property
    def time(self) -> float:
        """The median time in seconds; infinity for one that failed."""
        good = self.outcome.times and not self.outcome.error
        return median(self.outcome.times) if good else float("inf")


@dataclass
class Known:
    """What is known of one variant of a task.

    Attributes
    ----------
    variant : Variant
        The variant.
    workload : str
        Its name in the records.
    rule : tvm.s_tir.Schedule
        What is compiled without tuning: the rule's schedule, or the function as it is.
    allowed : list of float
        How far each of its outputs may differ: see `tolerances`.
    measured_rule : Tried or None
        What became of `rule`.
    tried : list of Tried
        What the search tried.
    last : str
        When the last of them was measured, as a record's date; empty where none was.
    """

    variant: Variant
    workload: str
    rule: s_tir.Schedule
    allowed: list[float]
    measured_rule: Tried | None = None
    tried: list[Tried] = field(default_factory=list)
    last: str = ""

    @property
    def rule_time(self) -> float:
        """The rule's median time in seconds; infinity where it failed or is not known."""
        return float("inf") if self.measured_rule is None else self.measured_rule.time

    def found(self) -> list[Tried]:
        """List what the search tried and what ran, the fastest first."""
        good = [one for one in self.tried if one.time < float("inf")]
        return sorted(good, key=lambda one: one.time)


def measured(
    measurer: Measurer, schedules: Sequence[s_tir.Schedule]
) -> Iterator[tuple[int, Outcome]]:
    """Measure schedules; give each one's place and outcome as it is known."""
    kernels: dict[int, IRModule] = {}
    for place, schedule in enumerate(schedules):
        try:
            kernels[place] = finish(schedule)
        except Exception as error:  # TVM raises what the step that fails raises
            yield place, Outcome(error=f"It cannot be finished: {telling(error)}")
    places = list(kernels)
    for index, outcome in measurer.measure(list(kernels.values())) if kernels else ():
        yield places[index], outcome


@dataclass(frozen=True)
class Met:
    """A candidate against its rule, measured alternately.

    Attributes
    ----------
    tried : Tried
        The candidate.
    ratio : float
        Its time over the rule's: the median over the rounds.
    rule : float
        The rule's median seconds a call.
    """

    tried: Tried
    ratio: float
    rule: float


def met(
    measurer: Measurer,
    rule: Tried,
    entrants: Sequence[Tried],
    rounds: int,
    allowed: Sequence[float],
) -> list[Met]:
    """Measure candidates alternately with their rule, in one process.

    Parameters
    ----------
    measurer : Measurer
        Who measures.
    rule : Tried
        What they meet; it has run before.
    entrants : sequence of Tried
        Candidates, each of which has a schedule.
    rounds : int
        Samples of each.
    allowed : sequence of float
        How far their answers may differ: see `tolerances`.

    Returns
    -------
    list of Met
        Those that ran, and computed what they computed before; none where the rule did not run.
    """
    kernels = [finish(one.schedule) for one in (rule, *entrants) if one.schedule is not None]
    own, *others = measurer.duel(kernels, rounds)
    if own.error or not own.times:
        return []
    pairs = zip(entrants, others, strict=True)
    return [
        Met(
            entrant,
            float(median(mine / its for mine, its in zip(outcome.times, own.times, strict=True))),
            float(median(own.times)),
        )
        for entrant, outcome in pairs
        if not outcome.error
        and len(outcome.times) == len(own.times)
        and same_answer(outcome.answer, entrant.outcome.answer, allowed)
    ]


def whole(outcome: Outcome) -> Outcome:
    """See that an outcome has times or an error, and not both, and such as a record can hold."""
    error = outcome.error
    if not error and not outcome.times:
        error = "It was run and not timed."
    elif not error and not all(0 < time < MOST_SECONDS for time in outcome.times):
        error = f"Its times cannot be seconds: {outcome.times}"
    if error:
        said = error[:_LONGEST_ERROR].encode(errors="replace").decode()
        return Outcome(error=said, cpu=outcome.cpu)
    return outcome
