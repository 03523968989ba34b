"""Verdicts on tasks: comparisons of the best candidates with the rules, and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ..records.entries import Verdict
from .measurers import Measurer
from .tasksearch import Layout, TaskSearch, same_answer

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

_Entrant = tuple[Any, float]
"""A candidate's trace, None for its layout's own rule, and its seconds per call, about."""


@dataclass(frozen=True)
class _Compared:
    """What is best for a task in one layout, compared with the rules' own schedule.

    `rule` is the rule's median seconds per call, 0 where it does not run. `ratios` has the time of
    the best over the rule's, one per final, or the heat's without a final. `known` is False where
    they could not be compared.
    """

    known: bool
    rule: float = 0.0
    trace: Any = None
    ratios: tuple[float, ...] = ()

    @property
    def ratio(self) -> float:
        return median(self.ratios) if self.ratios else 1.0

    @property
    def wins(self) -> bool:
        """Whether it takes the rule's place for its own sake."""
        return self.rule == 0 or self.ratio < WINS


def settle(
    group: Sequence[TaskSearch], measurer: Measurer, *, again: bool = False
) -> list[Verdict | None]:
    """Decide about the tasks of one operator, whose weights the graph packs once, and record it.

    With `again`, also where nothing was measured since the last verdicts; else those hold. The last
    verdict stays if not even the rule was measured, or if the candidates could not be compared.

    The layout is the one that was searched where no task gets slower by more than `HARM` and all
    together get faster by `WINS`. Else it is the rules' own, and a task takes what wins there. What
    compilation took so far is compared again, so that no verdict takes back a better one.
    """
    recorded = [search.verdict() for search in group]
    one_layout = len({verdict.layout for verdict in recorded if verdict}) == 1
    if one_layout and not again and all(search.decided() for search in group):
        return recorded
    layouts = [search.chosen for search in group]
    found = [_compare(search, search.chosen, measurer) for search in group]
    packed = any(search.chosen is not search.layouts[0] for search in group)
    if packed and not _packs(group, found):
        packed, layouts = False, [search.layouts[0] for search in group]
        found = [_compare(search, search.layouts[0], measurer) for search in group]
    for search, layout, one in zip(group, layouts, found, strict=True):
        if one.known:
            search.judge(
                workload=layout.workload,
                layout=layout.variant.layout,
                trace=one.trace if packed or one.wins else None,
                ratios=one.ratios,
                rule=one.rule,
            )
    return [search.verdict() for search in group]


def _packs(group: Sequence[TaskSearch], found: Sequence[_Compared]) -> bool:
    """Tell whether an operator gets the layout that was searched, instead of the rules' own."""
    pairs = list(zip(group, found, strict=True))
    before = sum(search.task.calls * one.rule for search, one in pairs)
    after = sum(search.task.calls * one.rule * one.ratio for search, one in pairs)
    harmless = all(one.known and one.ratio <= HARM for one in found)
    helps = any(one.rule == 0 for one in found)  # the rules' own layout does not even run
    return harmless and (helps or after < WINS * before)


def _compare(search: TaskSearch, layout: Layout, measurer: Measurer) -> _Compared:
    """Compare the best candidates of a task in one layout with the rules' own schedule."""
    own = search.layouts[0]
    if own.by_rule is None:
        return _Compared(known=False)
    entrants: list[_Entrant] = [(one.trace, one.seconds) for one in layout.ran[:HEATS]]
    if layout.rule_time < float("inf"):
        if layout is not own:
            entrants.append((None, layout.rule_time))
        # What compilation takes so far was measured in another run, or was imported.
        so_far = search.records.best(layout.workload, search.task.target)
        if so_far and so_far.trace and so_far.trace not in [trace for trace, _ in entrants]:
            entrants.append((so_far.trace, layout.rule_time))
    entrants = [one for one in entrants if layout.schedule(one[0]) is not None]
    if own.by_rule.error:
        # Nothing to compare with: whatever ran is better than what does not.
        trace, _ = min(entrants, key=lambda one: one[1], default=(None, 0))
        return _Compared(bool(entrants), 0.0, trace)
    if not entrants:
        return _Compared(layout is own, own.rule_time)
    search.progress.decision(search.task.name)
    heat = _alternately(measurer, own, layout, entrants, HEAT_SECONDS)
    if not heat:
        return _Compared(known=False)
    best_of_heat = min(heat, key=lambda one: one.ratio)
    if layout is own and best_of_heat.ratio >= WINS:
        return best_of_heat
    chosen = [one for one in entrants if one[0] == best_of_heat.trace]
    finals = [
        final
        for _ in range(FINALS)
        for final in _alternately(measurer, own, layout, chosen, FINAL_SECONDS)
    ]
    if len(finals) < FINALS:
        return _Compared(known=False)
    ratios = tuple(final.ratio for final in finals)
    return _Compared(True, median(final.rule for final in finals), best_of_heat.trace, ratios)


def _alternately(
    measurer: Measurer, own: Layout, layout: Layout, entrants: Sequence[_Entrant], seconds: float
) -> list[_Compared]:
    """Measure candidates alternately with their rule; leave out what failed or computed wrongly."""
    total = own.rule_time + sum(time for _, time in entrants)
    rounds = min(MOST, max(FEWEST, int(seconds / total)))
    schedules = [own.rule, *(layout.schedule(trace) for trace, _ in entrants)]
    rule, *others = measurer.duel([one.mod for one in schedules if one is not None], rounds)
    found = []
    for (trace, _), outcome in zip(entrants, others, strict=True):
        fair = rule.times and not outcome.error and len(outcome.times) == len(rule.times)
        if fair and same_answer(outcome.answer, layout.expected, layout.allowed):
            pairs = zip(outcome.times, rule.times, strict=True)
            ratio = float(median(mine / its for mine, its in pairs))
            found.append(_Compared(True, float(median(rule.times)), trace, (ratio,)))
    return found
