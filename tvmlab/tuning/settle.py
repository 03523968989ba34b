"""The last word on tasks: what was found meets the rules, and each operator gets one layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from ..records.result import Verdict
from .measure import Measurer
from .search.known import Known, Met, Tried, met
from .search.search import TaskSearch

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
class _Met:
    """How what was found for a task in one layout met the rules' own schedule.

    Attributes
    ----------
    best : Tried or None
        The best of the heat, or the rule itself where nothing was found; None if unknown.
    rule : float
        The rule's median seconds a call; 0 where it does not run.
    ratios : tuple of float
        The best one's time over the rule's: one a final, or the heat's where there was no final.
    """

    best: Tried | None
    rule: float
    ratios: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        return median(self.ratios) if self.ratios else 1.0

    @property
    def wins(self) -> bool:
        """Whether it takes the rule's place for its own sake."""
        return self.best is not None and (self.rule == 0 or self.ratio < WINS)


def settle(
    group: Sequence[TaskSearch],
    measurer: Measurer,
    *,
    again: bool = False,
    watch: Callable[[TaskSearch], None] = lambda search: None,
) -> list[Verdict | None]:
    """Decide about the tasks of one operator, and record it.

    Parameters
    ----------
    group : sequence of TaskSearch
        Searches that are over, all of the same layout: those of one operator, whose weights the
        graph packs once.
    measurer : Measurer
        Who measures.
    again : bool
        Whether also where nothing was measured since the last verdicts; else those hold.
    watch : callable
        Called with a task's search when what was found for it is to meet the rule.

    Returns
    -------
    list of Verdict or None
        One a task; None if not even its rule was measured, or if no machine could measure the
        candidate against it.

    Notes
    -----
    The layout is the one that was searched where no task gets slower by more than `HARM` and all
    together get faster by `WINS`. Else it is the rules' own, and a task takes what wins there. What
    compilation took so far meets the rule again, so that no verdict takes back a better one.
    """
    recorded = [search.verdict() for search in group]
    one_layout = len({verdict.layout for verdict in recorded if verdict}) == 1
    if all(recorded) and one_layout and not again:
        return recorded
    found = [_meet(search, search.current, measurer, watch) for search in group]
    if any(search.chosen for search in group) and not _packs(group, found):
        for search in group:
            how = _meet(search, search.known[0], measurer, watch)
            _judge(search, search.known[0], how, takes=how.wins)
    else:
        for search, how in zip(group, found, strict=True):
            _judge(search, search.current, how, takes=bool(search.chosen) or how.wins)
    return [search.verdict() for search in group]


def _judge(search: TaskSearch, known: Known, how: _Met, *, takes: bool) -> None:
    """Record the verdict on a task."""
    if how.best is None:
        return
    search.judge(
        workload=known.workload,
        layout=known.variant.layout,
        trace=how.best.trace if takes and how.best.origin == "search" else None,
        ratios=how.ratios,
        rule=how.rule,
    )


def _packs(group: Sequence[TaskSearch], found: Sequence[_Met]) -> bool:
    """Tell whether an operator gets the layout that was searched, instead of the rules' own."""
    pairs = list(zip(group, found, strict=True))
    before = sum(search.task.calls * one.rule for search, one in pairs)
    after = sum(search.task.calls * one.rule * one.ratio for search, one in pairs)
    harmless = all(one.best is not None and one.ratio <= HARM for one in found)
    helps = any(one.rule == 0 for one in found)  # the rules' own layout does not even run
    return harmless and (helps or after < WINS * before)


def _meet(
    search: TaskSearch, known: Known, measurer: Measurer, watch: Callable[[TaskSearch], None]
) -> _Met:
    """Let the best candidates of a task in one layout meet its rule."""
    own, rule = search.known[0], search.known[0].measured_rule
    applies = (one for one in known.found() if one.schedule is not None)
    entrants = list(islice(applies, HEATS))
    if known is not own and known.measured_rule and known.rule_time < float("inf"):
        entrants.append(known.measured_rule)
    if rule is None:
        return _Met(None, 0.0)
    if rule.time == float("inf"):
        # Nothing to meet: whatever ran is better than what does not.
        return _Met(min(entrants, key=lambda one: one.time, default=None), 0.0)
    advised = search.advised(known, entrants)
    if known is own and not entrants and not advised:
        return _Met(rule, rule.time)
    watch(search)
    heat: list[Met] = []
    for everyone in ([*entrants, *advised], entrants):
        if everyone and not heat:  # the second time without those that were never measured here
            rounds = _rounds([rule, *everyone], HEAT_SECONDS)
            heat = met(measurer, rule, everyone, rounds, known.allowed)
    if not heat:
        return _Met(None, rule.time)
    best = min(heat, key=lambda one: one.ratio)
    if known is own and best.ratio >= WINS:
        return _Met(best.tried, best.rule, (best.ratio,))
    rounds = _rounds([rule, best.tried], FINAL_SECONDS)
    finals = [
        final
        for _ in range(FINALS)
        for final in met(measurer, rule, [best.tried], rounds, known.allowed)
    ]
    if len(finals) < FINALS:
        return _Met(None, rule.time)
    ratios = tuple(final.ratio for final in finals)
    return _Met(best.tried, median(final.rule for final in finals), ratios)


def _rounds(everyone: Sequence[Tried], seconds: float) -> int:
    """Say how often kernels are measured alternately so that it takes some seconds."""
    return min(MOST, max(FEWEST, int(seconds / sum(one.time for one in everyone))))
