"""Verdicts on tasks: compare the best candidates with the rules, and choose layouts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from ..records.entries import Verdict
from .measurers import Measurer
from .tasksearch import Layout, TaskSearch, same_answer

WINS = 0.98  # A candidate replaces the rule's schedule below this ratio of times.
HARM = 1.02  # The limit of a task's slowdown if a layout is chosen for the sake of other tasks.
HEATS = 3  # candidates compared with the rule: times from separate runs are too inexact
# The winner of a short race may only be lucky, and a process can favour one kernel by its memory
# placement. Therefore the winner is compared again in this many processes, each compiled anew.
FINALS = 3
HEAT_SECONDS, FINAL_SECONDS = 2.0, 1.0
FEWEST, MOST = 5, 100  # rounds

# A candidate's trace, None for its layout's own rule, and its approximate seconds per call.
_Entrant = tuple[Any, float]


def settle(group: Sequence[TaskSearch], measurer: Measurer, *, again: bool = False) -> None:
    """Decide about the tasks of one operator, whose weights are packed once; record the verdicts.

    With `again`, also decide if nothing was measured since the last verdicts. The last verdict
    stays if not even the rule's schedule was measured, or if the candidates could not be compared.

    The searched layout is chosen if no task gets slower by more than `HARM` and all tasks together
    get faster by `WINS`. Otherwise the rules' layout stays, and each task uses its winner in it.
    The current schedule is compared again, so that no verdict replaces a better one.
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
    """Return whether an operator gets the searched layout instead of the rules' own."""
    before = after = 0.0
    for search, one in zip(group, found, strict=True):
        if one is None or one.ratio > HARM:
            return False
        before += search.task.calls * one.rule
        after += search.task.calls * one.rule * one.ratio
    # A rule time of 0 means that the rule's schedule failed.
    return after < WINS * before or any(one and one.rule == 0 for one in found)


def _compare(search: TaskSearch, layout: Layout, measurer: Measurer) -> Verdict | None:
    """Compare the best candidates in one layout with the rules' own schedule; None if impossible.

    The verdict has the ratio of the best time to the rule's, one per final, or the heat's ratio.
    """
    own = search.layouts[0]
    if own.by_rule is None:
        return None
    entrants: list[_Entrant] = [(one.trace, one.seconds) for one in layout.ran[:HEATS]]
    if layout.rule_time < float("inf"):
        if layout is not own:
            entrants.append((None, layout.rule_time))
        # The current schedule was measured in another run, or was imported.
        so_far = search.records.best(layout.workload, search.task.target)
        if so_far and so_far.trace and so_far.trace not in [trace for trace, _ in entrants]:
            entrants.append((so_far.trace, layout.rule_time))
    entrants = [one for one in entrants if layout.schedule(one[0]) is not None]
    if not entrants:
        fails = bool(own.by_rule.error)
        return None if fails or layout is not own else search.judge(own, own.rule_time)
    if own.by_rule.error:
        # The rule's schedule failed, so any candidate that runs is better.
        return search.judge(layout, 0.0, min(entrants, key=lambda one: one[1])[0])
    search.progress.show(f"{search.task.name}: comparing the best with the rule", last=True)
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
    """Measure candidates alternately with their rule; leave out failures and wrong results.

    Returns for each candidate the median ratio of times, the rule's median time, and the trace.
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
