"""The last word on a task: the best candidates against the rule, measured in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from ..schedule import finish
from .measure import Measurer
from .search.answers import same_answer
from .search.known import Tried
from .search.search import TaskSearch

__all__ = ["WINS", "Verdict", "duel"]

WINS = 0.98
"""A candidate takes the rule's place below this ratio of times."""
CANDIDATES = 3
"""How many of the fastest meet the rule: times measured one after the other are not that exact."""
SECONDS = 2.0
FEWEST, MOST = 5, 100


@dataclass(frozen=True)
class Verdict:
    """How a task's duel went.

    Attributes
    ----------
    rule : float
        The median seconds a call of what is taken without tuning; infinity where it failed.
    best : float or None
        The fastest candidate's time over the rule's, the median over the rounds; None where no
        candidate met the rule.
    fallback : float
        The same of what is taken in the chosen layout where no candidate wins: 1 for the rule's
        own.
    """

    rule: float
    best: float | None
    fallback: float = 1.0

    @property
    def ratio(self) -> float:
        """What the task's time comes to in the chosen layout, over the rule's."""
        return self.best if self.best is not None and self.best < WINS else self.fallback


def _ratio(times: Sequence[float], against: Sequence[float]) -> float:
    return median(mine / other for mine, other in zip(times, against, strict=True))


def duel(search: TaskSearch, measurer: Measurer) -> Verdict:
    """Let a task's best candidates meet its rule, in rounds, in one process.

    Parameters
    ----------
    search : TaskSearch
        A search that is over.
    measurer : Measurer
        Who measures.

    Returns
    -------
    Verdict
        Recorded too, the best candidate last. A duel that was recorded after the last candidate is
        not fought again.
    """
    rule, known = search.known[0], search.current
    other = known is not rule
    if rule.rule_time == float("inf"):
        # Nothing to meet: whatever ran is better than what does not.
        return Verdict(rule.rule_time, None)
    if known.duels:
        ratios = {result.origin: _ratio(result.times, result.against) for result in known.duels}
        last = known.duels[-1]
        best = _ratio(last.times, last.against)
        return Verdict(median(last.against), best, ratios.get("rule", 1.0))
    applies = (one for one in known.found() if one.schedule is not None)
    entrants = list(islice(applies, CANDIDATES))
    if other and known.measured_rule is not None and known.rule_time < float("inf"):
        entrants.append(known.measured_rule)
    if not entrants:
        return Verdict(rule.rule_time, None)
    assert rule.measured_rule is not None
    everyone = [rule.measured_rule, *entrants]
    each_round = sum(one.time for one in everyone)
    rounds = min(MOST, max(FEWEST, int(SECONDS / each_round)))
    kernels = [finish(one.schedule) for one in everyone if one.schedule is not None]
    outcomes = measurer.duel(kernels, rounds)
    against = outcomes[0].times
    if outcomes[0].error or not against:
        return Verdict(rule.rule_time, None)
    fought: list[tuple[float, Tried]] = []
    for entrant, outcome in zip(entrants, outcomes[1:], strict=True):
        if outcome.error or len(outcome.times) != len(against):
            continue
        if same_answer(outcome.answer, entrant.outcome.answer, known.types):
            met = Tried(entrant.source, entrant.origin, outcome)
            fought.append((_ratio(outcome.times, against), met))
    fought.sort(key=lambda pair: -pair[0])
    for _, met in fought:
        known.duels.append(search.record(known, met, against))
    if not fought:
        return Verdict(median(against), None)
    fallback = next((ratio for ratio, met in fought if met.origin == "rule"), 1.0)
    return Verdict(median(against), fought[-1][0], fallback)
