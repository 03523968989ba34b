"""One layout for all tasks of an operator: the graph packs its weights once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .duel import WINS, Verdict
from .search.search import TaskSearch

__all__ = ["decide_layout", "groups_of", "share_layout", "weight"]

HARM = 1.02
"""What no task may come to when a layout is chosen for the sake of others."""


def weight(search: TaskSearch) -> float:
    """Say how much of the network's time a task takes."""
    rule = search.rule_time
    return 0.0 if rule == float("inf") else search.task.calls * rule


def groups_of(searches: Sequence[TaskSearch]) -> list[list[TaskSearch]]:
    """Put the searches together whose weights are packed in one layout."""
    groups: dict[Any, list[TaskSearch]] = {}
    for index, search in enumerate(searches):
        groups.setdefault(search.task.operator or index, []).append(search)
    return list(groups.values())


def share_layout(group: Sequence[TaskSearch]) -> None:
    """Have all tasks of an operator search the layout that is best for the heaviest of them."""
    if len(group) < 2 or not all(search.batches for search in group):
        return
    leader = max(group, key=weight)
    common = set.intersection(
        *({known.variant.layout for known in search.known} for search in group)
    )
    fastest = min(
        (known for known in leader.known if known.variant.layout in common),
        key=lambda known: known.rule_time,
        default=None,
    )
    for search in group:
        if fastest is None:
            search.chosen = 0
        else:
            search.choose(fastest.variant.layout)


def decide_layout(searches: Sequence[TaskSearch], verdicts: Sequence[Verdict]) -> str:
    """Choose the layout of an operator from the duels of the tasks that have it.

    Parameters
    ----------
    searches : sequence of TaskSearch
        The tasks of one operator, all of which searched the same layout.
    verdicts : sequence of Verdict
        Their duels.

    Returns
    -------
    str
        That layout; empty, which is the rule's own, where a task would lose by it or all together
        would not gain.
    """
    if all(search.chosen == 0 for search in searches):
        return ""
    layout = searches[0].current.variant.layout
    before = sum(s.task.calls * v.rule for s, v in zip(searches, verdicts, strict=True))
    after = sum(s.task.calls * v.rule * v.ratio for s, v in zip(searches, verdicts, strict=True))
    met = all(verdict.best is not None for verdict in verdicts)
    harmless = all(verdict.ratio <= HARM for verdict in verdicts)
    return layout if met and harmless and after < WINS * before else ""
