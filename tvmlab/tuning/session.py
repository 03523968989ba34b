"""`tune`: the tasks of a module, from the first measurement to the report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tvm
from tvm import tirx
from tvm.ir import IRModule

from ..errors import TuningError
from ..records.records import Records
from ..records.result import Verdict
from ..support.wording import several
from .extract import Task
from .extract import tasks as tasks_of
from .measure import Measure, Measurer
from .measurers import LocalMeasurer, RemoteMeasurer
from .progress import Progress, make_progress
from .report import Report, TaskReport
from .search.context import check_seed
from .search.model import Tuner, find_tuner
from .settle import FINAL_SECONDS, FINALS, HEAT_SECONDS, settle
from .tasksearch import TaskSearch, measure_rules

__all__ = ["Limits", "Session", "tune", "tune_tasks"]

ALPHA = 0.2
"""How much of the forecast is the past; the rest is hope."""
BETA = 2.0
"""How much faster than the fastest similar task a task is hoped to become."""
WINDOW = 3
"""Batches of the past that count."""
SETTLE_SECONDS = HEAT_SECONDS + FINALS * FINAL_SECONDS
"""What it costs to decide about a task, about."""
CHUNK = 8
"""Tasks whose rules are measured together."""
FULL = 8
"""Candidates that have to fail before they count as all, where the rule's own ran."""
SETTLE_SHARE = 0.3
"""How much of the seconds goes into decisions at most, so that a short run still searches."""


@dataclass(frozen=True)
class Limits:
    """When to stop: see `tune`. The clock starts here."""

    trials: int
    total_trials: int | None
    early_stopping: int | None
    seconds: float | None
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        for name in ("trials", "total_trials", "early_stopping", "seconds"):
            value = getattr(self, name)
            if value is None and name != "trials":
                continue
            kinds = int | float if name == "seconds" else int
            # What is not a number is not above zero either.
            if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
                kind = "number" if name == "seconds" else "whole number"
                raise TuningError(
                    f"{name} is {value!r}, not a positive {kind}",
                    fix=f"give one, or leave {name} out",
                )

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began


class Session:
    """The tasks of a module, and whose turn it is."""

    def __init__(
        self,
        tasks: Sequence[Task],
        measurer: Measurer,
        records: Records,
        limits: Limits,
        progress: bool | Literal["auto"] | Progress,
        *,
        again: bool = False,
    ) -> None:
        self.tasks, self.measurer, self.records, self.limits = tasks, measurer, records, limits
        self.progress = progress if isinstance(progress, Progress) else make_progress(progress)
        self.again = again
        self.measured = 0
        self.verdicts: dict[int, Verdict | None] = {}
        self.settling = 0.0
        self.searches: list[TaskSearch] = []

    def open(self, tuner: Tuner, seed: int) -> None:
        """Make the searches, what is in the records counted."""
        for target in {str(task.target): task.target for task in self.tasks}.values():
            self.records.check(target)  # rather now than when everything is measured
        self.searches = [
            TaskSearch(
                task,
                self.measurer,
                self.records,
                tuner=tuner,
                trials=self.limits.trials,
                early_stopping=self.limits.early_stopping,
                seed=seed,
                watch=self._watch,
            )
            for task in self.tasks
        ]
        self.groups = _groups(self.searches)
        planned = sum(search.trials for search in self.searches)
        total = self.limits.total_trials
        most = self.limits.seconds
        self.progress.begin(
            len(self.searches),
            planned if total is None else min(planned, total),
            self._done(),
            None if most is None else most - self.limits.spent,
        )

    def _done(self) -> int:
        return sum(len(search.times) for search in self.searches)

    def _budget(self) -> int:
        """Trials that are left over all tasks."""
        if self.limits.total_trials is None:
            return sum(search.left for search in self.searches)
        return max(0, self.limits.total_trials - self._done())

    def _late(self) -> bool:
        """Tell whether what is left of the seconds is for decisions."""
        if self.limits.seconds is None:
            return False
        waiting = len(self.searches) - len(self.verdicts)
        reserve = min(SETTLE_SECONDS * waiting, SETTLE_SHARE * self.limits.seconds)
        return self.limits.spent > self.limits.seconds - reserve

    def _watch(self, search: TaskSearch) -> None:
        self.measured += 1
        self.progress.candidate(
            search.task.name,
            len(search.times),
            search.trials,
            search.gflops(search.best_time),
            search.gflops(search.rule_time),
        )

    def run(self) -> None:
        """Measure the rules, search, and let the best meet the rules."""
        self._rules(self._budget(), others=False)
        # The heaviest first, so that an interrupted session has the largest gains.
        self.searches.sort(key=lambda search: -_weight(search))
        short = self.limits.total_trials is not None or self.limits.seconds is not None
        # Layouts are not to use up what the search is to have.
        self._rules(self._budget() // 3 if short else self._budget(), others=True)
        for search in self.searches:
            if search.times:
                search.begin()
        for group in self.groups:
            _share_layout(group)
        while self._budget() > 0 and not self._late():
            turn = self._next()
            if turn is None:
                break
            turn.step(self._budget())
            if turn.ended:
                self._close(turn)
        for search in self.searches:
            search.ended = search.ended or "no trials or seconds were left"
            self._close(search)
        self._complain()

    def _rules(self, limit: int, *, others: bool) -> None:
        """Measure what the rules make of the tasks."""
        # A few tasks at a time: the seconds may be over before all of them are measured.
        for start in range(0, len(self.searches), CHUNK):
            if self._late() or limit <= 0:
                break
            before = self._done()
            some = self.searches[start : start + CHUNK]
            measure_rules(some, self.measurer, limit, others=others)
            limit -= self._done() - before

    def _next(self) -> TaskSearch | None:
        """Choose the task whose turn it is."""
        going = [s for s in self.searches if not s.ended and s.batches]
        if not going:
            return None
        if self.limits.total_trials is None and self.limits.seconds is None:
            return going[0]  # each gets all of its trials: one after the other
        for search in going:  # warm-up: each a batch
            if len(search.batches) < 2:
                return search
        speeds: dict[str, float] = {}
        for search in self.searches:
            kind, best = kind_of(search.task.name), search.best_time
            if best < float("inf"):
                speeds[kind] = max(speeds.get(kind, 0.0), search.task.flops / best)
        return max(
            going,
            key=lambda search: expected_gain(
                search.task.calls,
                search.batches,
                search.task.flops,
                speeds.get(kind_of(search.task.name), 0.0),
            ),
        )

    def _close(self, search: TaskSearch) -> None:
        """Decide about a group whose searches are all over."""
        group = next(group for group in self.groups if search in group)
        if any(not one.ended for one in group) or id(search) in self.verdicts:
            return
        most = self.limits.seconds
        # A batch may have taken too long; what is meant for decisions is there all the same.
        if most is not None and self.limits.spent > most and self.settling > SETTLE_SHARE * most:
            return  # what was measured is in the records: the next run decides
        began = self.limits.spent
        found = settle(
            group,
            self.measurer,
            again=self.again,
            watch=lambda one: self.progress.decision(one.task.name),
        )
        self.verdicts.update((id(one), word) for one, word in zip(group, found, strict=True))
        self.settling += self.limits.spent - began

    def _complain(self) -> None:
        hopeless = [
            search
            for search in self.searches
            if search.hopeless(FULL) or (search.times and search.best_time == float("inf"))
        ]
        if not hopeless:
            return
        lines = []
        late = any("and was stopped" in error for one in hopeless for error in one.errors)
        for search in hopeless[:3]:
            found = list(dict.fromkeys(search.errors))[:3]
            lines += [f"{search.task.name}: {error}" for error in found]
        raise TuningError(
            f"every candidate failed of {len(hopeless)} of {several(len(self.searches), 'task')}"
            + ("; the others are in the records" if len(hopeless) < len(self.searches) else ""),
            where="\n    ".join(lines),
            fix="give more time with Measure(timeout=..., build_timeout=...)" if late else None,
        )

    def report(self) -> Report:
        """Say what came of it."""
        return Report(
            tuple(
                _report(search, self.verdicts.get(id(search)) or search.older())
                for search in self.searches
            ),
            self.limits.spent,
            self.measured,
        )


def _weight(search: TaskSearch) -> float:
    """Say how much of the network's time a task takes."""
    rule = search.rule_time
    return 0.0 if rule == float("inf") else search.task.calls * rule


def _groups(searches: Sequence[TaskSearch]) -> list[list[TaskSearch]]:
    """Put the searches together whose weights are packed in one layout."""
    groups: dict[Any, list[TaskSearch]] = {}
    for index, search in enumerate(searches):
        groups.setdefault(search.task.operator or index, []).append(search)
    return list(groups.values())


def _share_layout(group: Sequence[TaskSearch]) -> None:
    """Have all tasks of an operator search the layout that is best for the heaviest of them."""
    if len(group) < 2 or not all(search.batches for search in group):
        return
    leader = max(group, key=_weight)
    common = set.intersection(
        *({known.variant.layout for known in search.known} for search in group)
    )
    fastest = min(
        (known for known in leader.known if known.variant.layout in common),
        key=leader.promise,
        default=None,
    )
    for search in group:
        if fastest is None:
            search.chosen = 0
        else:
            search.choose(fastest.variant.layout)


def _report(search: TaskSearch, verdict: Verdict | None) -> TaskReport:
    rule = verdict.rule if verdict and verdict.rule else search.rule_time
    tuned = rule * verdict.ratio if verdict else rule
    if rule == float("inf") and verdict:
        tuned = search.best_time
    return TaskReport(
        name=search.task.name,
        calls=search.task.calls,
        flops=search.task.flops,
        rule=rule,
        tuned=tuned,
        layout=verdict.layout if verdict else "",
        ended=search.ended,
        errors=tuple(search.errors),
        times=tuple(search.times),
        predicted=tuple(search.predicted),
        decided=verdict is not None,
    )


def expected_gain(weight: float, history: Sequence[float], flops: float, speed: float) -> float:
    """Estimate the seconds that the next batch takes off the network's time.

    This is the gradient of Ansor's task scheduler (Zheng et al. 2020, section 6): the mean of the
    gain of the last batches and of what the next one can gain. That is either the same share again
    (all gained so far in t batches is at most the time itself, so a t-th of it) or the distance to
    a throughput near that of similar tasks. `history` has the fastest time known after each batch,
    the rule's first, and `speed` is the highest throughput of similar tasks. The estimate is
    infinite where nothing ran yet.
    """
    now = history[-1]
    if now == float("inf"):
        return now
    past = [time for time in history[-1 - WINDOW :] if time < float("inf")]
    backward = (past[0] - now) / max(1, len(past) - 1)
    batches = max(1, len(history) - 1)
    forward = now / batches
    if speed > 0 and flops > 0:
        forward = max(forward, now - BETA * flops / speed)
    return weight * (ALPHA * backward + (1 - ALPHA) * forward)


def kind_of(name: str) -> str:
    """Return the operator that a task's name begins with, which similar tasks share."""
    return name.removeprefix("fused_").split("_", 1)[0].rstrip("0123456789")


def tune_tasks(
    tasks: Sequence[Task],
    measurer: Measurer,
    records: Records,
    *,
    trials: int = 64,
    total_trials: int | None = None,
    tuner: str = "xgb",
    early_stopping: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    again: bool = False,
    progress: bool | Literal["auto"] | Progress = "auto",
) -> Report:
    """Tune some tasks, with a measurer that is there and stays open.

    Parameters
    ----------
    tasks : sequence of Task
        From `tvmlab.tuning.tasks`, or made by hand.
    measurer : Measurer
        Who builds and measures.
    records : Records
        Where each outcome goes, and what earlier runs found.
    trials, total_trials, tuner, early_stopping, seconds, seed, again
        As of `tune`. To decide again about one task, give it alone.
    progress : bool, "auto" or Progress
        As of `tune`, or what shows it.

    Returns
    -------
    Report

    Raises
    ------
    TuningError
        Every candidate of a task failed, or a parameter is out of range. What other tasks found
        is in the records, and in the error's `report`.
    ToolchainError
        The tuner needs a package that is not installed.
    """
    how = find_tuner(tuner)
    check_seed(seed)
    limits = Limits(trials, total_trials, early_stopping, seconds)
    return _tune(tasks, measurer, records, limits, how, seed, progress, again)


def tune(
    mod: IRModule | tirx.PrimFunc,
    target: tvm.target.Target | Mapping[str, Any] | str | None = None,
    *,
    records: Records | str | Path,
    trials: int = 64,
    total_trials: int | None = None,
    tuner: str = "xgb",
    early_stopping: int | None = None,
    seconds: float | None = None,
    measure: Measure | None = None,
    seed: int = 0,
    tracker: str | None = None,
    key: str = "tvmlab",
    layouts: bool = True,
    again: bool = False,
    progress: bool | Literal["auto"] = "auto",
) -> Report:
    """Search better schedules for the functions of a network, and record what is found.

    Parameters
    ----------
    mod : tvm.ir.IRModule or tvm.tirx.PrimFunc
        A Relax module with static shapes, as `tvmlab.load` returns it, or a TIR function.
    target : tvm.target.Target, mapping, str or None
        What to compile for, of kind ``llvm``; None is this machine. Of a composite such as
        ``"npu, llvm"`` what is left for the CPU is tuned.
    records : Records, str or pathlib.Path
        The file that each measurement is appended to as it is made. What is in it counts: tuning
        that was interrupted goes on where it was.
    trials : int
        Candidates to measure for each task at most, the rules' own schedules among them.
    total_trials : int, optional
        Candidates to measure over all tasks at most. Each batch goes to the task that is expected
        to take the most off the network's time.
    tuner : str
        ``"xgb"``, ``"ga"``, ``"random"`` or ``"gridsearch"``.
    early_stopping : int, optional
        Trials of a task without a better one after which its search ends.
    seconds : float, optional
        How long all of it may take, about. The last third of it at most is for what was found to
        meet the rules; where it is over before all tasks had their turn, the next run goes on.
    measure : Measure, optional
        How candidates are measured.
    seed : int
        Where random decisions start.
    tracker : str, optional
        ``"host:port"`` of a TVM RPC tracker whose servers measure; this machine if not given.
    key : str
        The servers' key at the tracker.
    layouts : bool
        Whether weights may be packed in other ways than the rules'.
    again : bool
        Whether what was found meets the rules once more also where that was decided before, and
        nothing was measured since. With ``trials=1`` nothing else is done.
    progress : bool or "auto"
        Whether to show a bar (on a terminal) or lines (elsewhere).

    Returns
    -------
    Report
        Times before and after, task by task. `tvmlab.compile` with the same `records` takes what
        was found.

    Raises
    ------
    TuningError
        There is nothing to tune, no candidate of a task ran, no server answered, or a parameter is
        out of range. Where tuning had begun, the error's `report` says what came of it.
    CompileError
        It is no module with a Relax function ``main``.
    TargetError
        The target is unknown, or this machine cannot run its code.
    RecordError
        The file cannot be written, or is none of records.
    KeyboardInterrupt
        On Ctrl-C, after the workers have ended; what was measured is in the file. It is applied
        once it has met the rules: call again, with the same limits to go on, or with ``trials=1``
        to decide about what there is.
    """
    how = find_tuner(tuner)
    check_seed(seed)
    limits = Limits(trials, total_trials, early_stopping, seconds)
    if not isinstance(measure, Measure | None):
        raise TuningError(
            f"measure is {measure!r}, which is not a `Measure`",
            fix="give a tvmlab.tuning.Measure, as Measure(repeat=3)",
        )
    kept = records if isinstance(records, Records) else Records(records)
    found = tasks_of(mod, target, layouts=layouts)
    made = found[0].target
    measurer: Measurer
    if tracker is None:
        measurer = LocalMeasurer(made, measure or Measure())
    else:
        measurer = RemoteMeasurer(made, measure or Measure(), tracker=tracker, key=key)
    try:
        return _tune(found, measurer, kept, limits, how, seed, progress, again)
    finally:
        measurer.close()


def _tune(
    tasks: Sequence[Task],
    measurer: Measurer,
    records: Records,
    limits: Limits,
    tuner: Tuner,
    seed: int,
    progress: bool | Literal["auto"] | Progress,
    again: bool,
) -> Report:
    session = Session(tasks, measurer, records, limits, progress, again=again)
    session.open(tuner, seed)
    try:
        session.run()
    except TuningError as error:
        error.report = session.report()
        raise
    finally:
        session.progress.close()
    return session.report()
