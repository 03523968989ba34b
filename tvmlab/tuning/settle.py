"""Verdicts on tasks: comparisons of the best candidates with the rules, and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from ..records.entries import Verdict
from .measurers import Measurer
from .tasksearch import Layout, TaskSearch, same_answer

WINS = 0.98  # What was found takes the rule's place below this ratio of times.
HARM = 1.02  # No task may come to more when a layout is chosen for the sake of others.
HEATS = 3  # the fastest that meet the rule: times measured one after the other are not that exact
# The best of several was lucky in that heat, and a process may favour one kernel by where its
# memory lies: it meets the rule again in this many processes, each compiled anew.
FINALS = 3
HEAT_SECONDS, FINAL_SECONDS = 2.0, 1.0
FEWEST, MOST = 5, 100  # rounds

# A candidate's trace, None for its layout's own rule, and its seconds per call, about.
_Entrant = tuple[Any, float]


def settle(group: Sequence[TaskSearch], measurer: Measurer, *, again: bool = False) -> None:
    """Decide about the tasks of one operator, whose weights the graph packs once, and record it.

    With `again`, also where nothing was measured since the last verdicts; else those hold. The last
    verdict stays if not even the rule was measured, or if the candidates could not be compared.

    The layout is the one that was searched where no task gets slower by more than `HARM` and all
    together get faster by `WINS`. Else it is the rules' own, and a task takes what wins there. What
    compilation took so far is compared again, so that no verdict takes back a better one.
    """
    layouts = {verdict.layout for search in group if (verdict := search.verdict())}
    if len(layouts) == 1 and not again and all(search.decided() for search in group):
        return
    found = [_compare(search, search.chosen, measurer) for search in group]
    packed = any(search.chosen is not search.layouts[0] for search in group)
    if packed and not _packs(group, found):
        found = [_compare(search, search.layouts[0], measurer) for search in group]
    for search, verdict in zip(group, found, strict=True):
        if verdict is not None:
            search.records.append(verdict)


def _packs(group: Sequence[TaskSearch], found: Sequence[Verdict | None]) -> bool:
    """Tell whether an operator gets the layout that was searched, instead of the rules' own."""
    before = after = 0.0
    for search, one in zip(group, found, strict=True):
        if one is None or one.ratio > HARM:
            return False
        before += search.task.calls * one.rule
        after += search.task.calls * one.rule * one.ratio
    # A rule of 0 seconds did not even run.
    return after < WINS * before or any(one and one.rule == 0 for one in found)


def _compare(search: TaskSearch, layout: Layout, measurer: Measurer) -> Verdict | None:
    """Compare the best candidates in one layout with the rules' own schedule; None if impossible.

    The verdict has the time of the best over the rule's, one ratio per final, or the heat's.
    """
    own = search.layouts[0]
    if own.by_rule is None:
        return None
    entrants: list[_Entrant] = [(one.trace, one.seconds) for one in layout.ran[:HEATS]]
    if layout.rule_time < float("inf"):
        if layout is not own:
            entrants.append((None, layout.rule_time))
        # What compilation takes so far was measured in another run, or was imported.
        so_far = search.records.best(layout.workload, search.task.target)
        if so_far and so_far.trace and so_far.trace not in [trace for trace, _ in entrants]:
            entrants.append((so_far.trace, layout.rule_time))
    entrants = [one for one in entrants if layout.schedule(one[0]) is not None]
    if not entrants:
        fails = bool(own.by_rule.error)
        return None if fails or layout is not own else search.judge(own, own.rule_time)
    if own.by_rule.error:
        # Nothing to compare with: whatever ran is better than what does not.
        return search.judge(layout, 0.0, min(entrants, key=lambda one: one[1])[0])
    search.progress.show(f"{search.task.name}: the best found meets the rule", last=True)
    heat = _alternately(measurer, own, layout, entrants, HEAT_SECONDS)
    if not heat:
        return None
    ratio, rule, best = min(heat, key=lambda one: one[0])
    if layout is own and ratio >= WINS:
        return search.judge(own, rule, None, (ratio,))
    chosen = [one for one in entrants if one[0] == best]
    finals = [
        final
        for _ in range(FINALS)
        for final in _alternately(measurer, own, layout, chosen, FINAL_SECONDS)
    ]
    if len(finals) < FINALS:
        return None
    ratios, rules, _ = zip(*finals, strict=True)
    if layout is own and median(ratios) >= WINS:
        best = None
    return search.judge(layout, median(rules), best, ratios)


def _alternately(
    measurer: Measurer, own: Layout, layout: Layout, entrants: Sequence[_Entrant], seconds: float
) -> list[tuple[float, float, Any]]:
    """Measure candidates alternately with their rule; leave out what failed or computed wrongly.

    Returns for each the median ratio of times, the rule's median time, and the candidate's trace.
    """
    total = own.rule_time + sum(time for _, time in entrants)
    rounds = min(MOST, max(FEWEST, int(seconds / total)))
    schedules = [own.rule, *(layout.schedule(trace) for trace, _ in entrants)]
    rule, *others = measurer.duel([one.mod for one in schedules if one is not None], rounds)
    found = []
    for (trace, _), outcome in zip(entrants, others, strict=True):
        fair = rule.times and not outcome.error and len(outcome.times) == len(rule.times)
        if fair and same_answer(outcome.answer, layout.expected, layout.allowed):
            pairs = zip(outcome.times, rule.times, strict=True)
            found.append((median(mine / its for mine, its in pairs), median(rule.times), trace))
    return found
