"""Verdicts on tasks: comparisons of the best candidates with the rules, and layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from ..records.result import Verdict
from ..schedule import finish
from .measure import Measurer
from .tasksearch import Known, TaskSearch, Tried, same_answer

__all__ = ["FINALS", "FINAL_SECONDS", "HARM", "HEAT_SECONDS", "WINS", "settle"]

WINS = 0.98
"""What was found takes the rule's place below this ratio of times."""
HARM = 1.02
"""What no task may come to when a layout is chosen for the sake of others."""
HEATS = 3
"""How many of the fastest meet the rule: times measured one after the other are not that exact."""
FINALS = 3
"""Processes in which the best of the heat meets the rule again, each compiled anew.

The best of several was lucky in that heat. And a process may favour one kernel by where its memory
lies, for as long as it lives.
"""
HEAT_SECONDS, FINAL_SECONDS = 2.0, 1.0
FEWEST, MOST = 5, 100


@dataclass(frozen=True)
class _Compared:
    """A candidate compared with the rules' own schedule.

    Attributes
    ----------
    tried : Tried or None
        The candidate, or the rule itself where nothing was found; None if unknown.
    rule : float
        The rule's median seconds per call; 0 where it does not run.
    ratios : tuple of float
        The candidate's time over the rule's: one per final, or the heat's without a final.
    """

    tried: Tried | None
    rule: float
    ratios: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        return median(self.ratios) if self.ratios else 1.0

    @property
    def wins(self) -> bool:
        """Whether it takes the rule's place for its own sake."""
        return self.tried is not None and (self.rule == 0 or self.ratio < WINS)


def settle(
    group: Sequence[TaskSearch],
    measurer: Measurer,
    *,
    again: bool = False,
    watch: Callable[[TaskSearch], None] = lambda search: None,
) -> list[Verdict | None]:
    """Decide about the tasks of one operator, whose weights the graph packs once, and record it.

    With `again`, also where nothing was measured since the last verdicts; else those hold. `watch`
    is called with a task's search before its best candidates are compared with the rule. A verdict
    is None if not even the rule was measured, or if no machine could compare the candidates.

    The layout is the one that was searched where no task gets slower by more than `HARM` and all
    together get faster by `WINS`. Else it is the rules' own, and a task takes what wins there. What
    compilation took so far is compared again, so that no verdict takes back a better one.
    """
    recorded = [search.verdict() for search in group]
    one_layout = len({verdict.layout for verdict in recorded if verdict}) == 1
    if all(recorded) and one_layout and not again:
        return recorded
    found = [_compare(search, search.current, measurer, watch) for search in group]
    if any(search.chosen for search in group) and not _packs(group, found):
        for search in group:
            how = _compare(search, search.known[0], measurer, watch)
            _judge(search, search.known[0], how, takes=how.wins)
    else:
        for search, how in zip(group, found, strict=True):
            _judge(search, search.current, how, takes=bool(search.chosen) or how.wins)
    return [search.verdict() for search in group]


def _judge(search: TaskSearch, known: Known, how: _Compared, *, takes: bool) -> None:
    """Record the verdict on a task."""
    if how.tried is None:
        return
    search.judge(
        workload=known.workload,
        layout=known.variant.layout,
        trace=how.tried.record.trace if takes and not how.tried.is_rule else None,
        ratios=how.ratios,
        rule=how.rule,
    )


def _packs(group: Sequence[TaskSearch], found: Sequence[_Compared]) -> bool:
    """Tell whether an operator gets the layout that was searched, instead of the rules' own."""
    pairs = list(zip(group, found, strict=True))
    before = sum(search.task.calls * one.rule for search, one in pairs)
    after = sum(search.task.calls * one.rule * one.ratio for search, one in pairs)
    harmless = all(one.tried is not None and one.ratio <= HARM for one in found)
    helps = any(one.rule == 0 for one in found)  # the rules' own layout does not even run
    return harmless and (helps or after < WINS * before)


def _compare(
    search: TaskSearch, known: Known, measurer: Measurer, watch: Callable[[TaskSearch], None]
) -> _Compared:
    """Let the best candidates of a task in one layout meet its rule."""
    own, rule = search.known[0], search.known[0].measured_rule
    applies = (one for one in known.found() if one.schedule is not None)
    entrants = list(islice(applies, HEATS))
    if known is not own and known.measured_rule and known.rule_time < float("inf"):
        entrants.append(known.measured_rule)
    if rule is None:
        return _Compared(None, 0.0)
    if rule.time == float("inf"):
        # Nothing to meet: whatever ran is better than what does not.
        return _Compared(min(entrants, key=lambda one: one.time, default=None), 0.0)
    advised = search.advised(known, entrants)
    if known is own and not entrants and not advised:
        return _Compared(rule, rule.time)
    watch(search)
    heat: list[_Compared] = []
    for everyone in ([*entrants, *advised], entrants):
        if everyone and not heat:  # the second time without those that were never measured here
            rounds = _rounds([rule, *everyone], HEAT_SECONDS)
            heat = _alternately(measurer, rule, everyone, rounds, known.allowed)
    if not heat:
        return _Compared(None, rule.time)
    best = min(heat, key=lambda one: one.ratio)
    if known is own and best.ratio >= WINS:
        return best
    assert best.tried is not None
    rounds = _rounds([rule, best.tried], FINAL_SECONDS)
    finals = [
        final
        for _ in range(FINALS)
        for final in _alternately(measurer, rule, [best.tried], rounds, known.allowed)
    ]
    if len(finals) < FINALS:
        return _Compared(None, rule.time)
    ratios = tuple(final.ratio for final in finals)
    return _Compared(best.tried, median(final.rule for final in finals), ratios)


def _alternately(
    measurer: Measurer,
    rule: Tried,
    entrants: Sequence[Tried],
    rounds: int,
    allowed: Sequence[float],
) -> list[_Compared]:
    """Measure candidates alternately with their rule; leave out what failed or computed wrongly."""
    kernels = [finish(one.schedule) for one in (rule, *entrants) if one.schedule is not None]
    own, *others = measurer.duel(kernels, rounds)
    if own.error or not own.times:
        return []
    found = []
    for entrant, outcome in zip(entrants, others, strict=True):
        sound = not outcome.error and len(outcome.times) == len(own.times)
        if sound and same_answer(outcome.answer, entrant.answer, allowed):
            ratio = median(mine / its for mine, its in zip(outcome.times, own.times, strict=True))
            found.append(_Compared(entrant, float(median(own.times)), (float(ratio),)))
    return found


def _rounds(everyone: Sequence[Tried], seconds: float) -> int:
    """Say how often kernels are measured alternately so that it takes some seconds."""
    return min(MOST, max(FEWEST, int(seconds / sum(one.time for one in everyone))))
