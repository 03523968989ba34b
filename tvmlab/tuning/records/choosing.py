"""Which of the results for a function decides what becomes of it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from typing import TypeVar

import tvm

from .result import Decision, Result, fits

__all__ = ["Fitting", "decisive", "last_layouts"]

_Entry = TypeVar("_Entry", Result, Decision)

# Measured in turn, a candidate has to win by this much; measured apart, by more.
_DUEL, _APART = 0.98, 0.95


def decisive(results: Iterable[Result]) -> Result | None:
    """Choose among a function's results for one target.

    Parameters
    ----------
    results : iterable of Result
        In the order of the file.

    Returns
    -------
    Result or None
        What the function shall be scheduled with; None where the rule stays: see `Records.best`.
    """
    worked = [result for result in results if result.times]
    duels = [result for result in worked if result.against]
    if duels:
        last = max(reversed(duels), key=lambda result: result.date)
        return last if last.ratio < _DUEL else None
    found = [result for result in worked if result.origin == "search"]
    rules = [result.seconds for result in worked if result.origin == "rule"]
    fastest = min(found, key=lambda result: result.seconds, default=None)
    if fastest is not None and rules and fastest.seconds >= _APART * statistics.median(rules):
        return None
    return fastest


def last_layouts(decisions: Iterable[Decision]) -> list[Decision]:
    """Take the last word on every operator.

    Parameters
    ----------
    decisions : iterable of Decision
        For one target, in the order of the file.

    Returns
    -------
    list of Decision
        One for each operator: the newest, for files that were merged are not in order.
    """
    last: dict[str, Decision] = {}
    for decision in decisions:
        known = last.get(decision.operator)
        if known is None or decision.date >= known.date:
            last[decision.operator] = decision
    return list(last.values())


class Fitting:
    """Which results and layouts hold for a target, asked once for all that are alike."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, str, str], str] = {}

    def take(self, entries: Iterable[_Entry], target: tvm.target.Target) -> list[_Entry]:
        """Take those that hold."""
        return [entry for entry in entries if not self.reason(entry, target)]

    def reason(self, entry: Result | Decision, target: tvm.target.Target) -> str:
        """Say why one does not hold, in the words of `fits`."""
        key = (entry.tvm, json.dumps(entry.target, sort_keys=True), str(target))
        if key not in self._reasons:
            self._reasons[key] = fits(entry, target)
        return self._reasons[key]
