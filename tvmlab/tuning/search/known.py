"""What is known of a task: its variants, and the candidates that were tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from tvm import s_tir
from tvm.ir import IRModule

from ..._telling import telling
from ...errors import RecordError
from ...schedule import finish
from ..measure import Measurer, Outcome
from ..records.result import Result
from ..records.traces import replay
from ..task import Variant

__all__ = ["Known", "Tried", "measured", "whole"]


@dataclass(frozen=True)
class Tried:
    """A candidate, and what became of it.

    Attributes
    ----------
    source : tvm.s_tir.Schedule or (tvm.ir.IRModule, Result)
        Its schedule; or, where it comes from the records, the function and the record.
    origin : str
        ``"rule"`` or ``"search"``.
    outcome : Outcome
        From the measurer, or from the records.
    """

    source: s_tir.Schedule | tuple[IRModule, Result]
    origin: str
    outcome: Outcome

    @cached_property
    def schedule(self) -> s_tir.Schedule | None:
        """Its schedule, replayed when it is first asked for; None where it no longer applies."""
        if not isinstance(self.source, tuple):
            return self.source
        module, result = self.source
        try:
            return replay(module, result.trace)
        except RecordError:
            return None

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
    types : list of str
        The dtypes of its outputs.
    measured_rule : Tried or None
        What became of `rule`.
    tried : list of Tried
        What the search tried.
    duels : list of Result
        The duels that were fought since the last was tried, the best candidate's last.
    """

    variant: Variant
    workload: str
    rule: s_tir.Schedule
    types: list[str]
    measured_rule: Tried | None = None
    tried: list[Tried] = field(default_factory=list)
    duels: list[Result] = field(default_factory=list)

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


def whole(outcome: Outcome) -> Outcome:
    """See that an outcome has times or an error, and not both."""
    if outcome.error:
        return Outcome(error=outcome.error)
    return outcome if outcome.times else Outcome(error="It was run and not timed.")
