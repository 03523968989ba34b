"""The last word on tasks: what was found meets the rules, and each operator gets one layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from .measure import Measurer
from .records.traces import as_data
from .records.verdict import Verdict
from .search.known import Tried, met
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
    """How what was found for a task met the rule.

    Attributes
    ----------
    best : Tried or None
        The best of the heat; None where nothing met the rule.
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


def settle(group: Sequence[TaskSearch], measurer: Measurer) -> list[Verdict | None]:
    """Decide about the tasks of one operator, and record it.

    Parameters
    ----------
    group : sequence of TaskSearch
        Searches that are over, all of the same layout: those of one operator, whose weights the
        graph packs once.
    measurer : Measurer
        Who measures.

    Returns
    -------
    list of Verdict or None
        One a task; None where nothing was found that could meet the rule, or nobody was there to
        measure it. What was decided after the last candidate was measured is not decided again.

    Notes
    -----
    The layout is the one that was searched where no task gets slower by more than `HARM` and all
    together get faster by `WINS`. Else it is the rules' own, and a task whose own layout was
    searched takes what won there.
    """
    recorded = [search.verdict() for search in group]
    if all(recorded):
        return recorded
    found = [_meet(search, measurer) for search in group]
    layout = _layout(group, found)
    verdicts: list[Verdict | None] = []
    for search, how in zip(group, found, strict=True):
        own, best = search.known[0], how.best
        if best is None:
            verdicts.append(None)
            continue
        packed = bool(layout) and search.chosen != 0
        takes = packed or (search.chosen == 0 and how.wins)
        trace = None
        if takes and best.origin == "search" and best.schedule is not None:
            trace = as_data(best.schedule.trace)
        verdict = search.judge(
            workload=(search.current if packed else own).workload,
            layout=layout if packed else "",
            trace=trace,
            ratios=how.ratios,
            rule=how.rule,
        )
        verdicts.append(verdict)
    return verdicts


def _layout(group: Sequence[TaskSearch], found: Sequence[_Met]) -> str:
    """Choose the layout of an operator."""
    if all(search.chosen == 0 for search in group) or any(one.best is None for one in found):
        return ""
    pairs = list(zip(group, found, strict=True))
    before = sum(search.task.calls * one.rule for search, one in pairs)
    after = sum(search.task.calls * one.rule * one.ratio for search, one in pairs)
    harmless = all(one.ratio <= HARM for one in found)
    return group[0].current.variant.layout if harmless and after < WINS * before else ""


def _meet(search: TaskSearch, measurer: Measurer) -> _Met:
    """Let the best candidates of a task meet its rule."""
    own, known = search.known[0], search.current
    applies = (one for one in known.found() if one.schedule is not None)
    entrants = list(islice(applies, HEATS))
    rule = own.measured_rule
    if rule is None:
        return _Met(None, 0.0)
    if own.rule_time == float("inf"):
        # Nothing to meet: whatever ran is better than what does not.
        return _Met(entrants[0] if entrants and known is own else None, 0.0)
    other = known.measured_rule
    if known is not own and other is not None and known.rule_time < float("inf"):
        entrants.append(other)
    if not entrants:
        return _Met(None, own.rule_time)
    heat = met(measurer, rule, entrants, _rounds([rule, *entrants], HEAT_SECONDS), known.types)
    if not heat:
        return _Met(None, own.rule_time)
    best = min(heat, key=lambda one: one.ratio)
    if known is own and best.ratio >= WINS:
        return _Met(best.tried, best.rule, (best.ratio,))
    rounds = _rounds([rule, best.tried], FINAL_SECONDS)
    finals = [
        final
        for _ in range(FINALS)
        for final in met(measurer, rule, [best.tried], rounds, known.types)
    ]
    if len(finals) < FINALS:
        return _Met(None, own.rule_time)
    ratios = tuple(final.ratio for final in finals)
    return _Met(best.tried, median(final.rule for final in finals), ratios)


def _rounds(everyone: Sequence[Tried], seconds: float) -> int:
    """Say how often kernels are measured in turn so that it takes some seconds."""
    return min(MOST, max(FEWEST, int(seconds / sum(one.time for one in everyone))))
