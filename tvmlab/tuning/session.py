"""`tune`: all tasks of a module, from the first measurement to the report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tvm
from tvm.ir import IRModule

from ..errors import TuningError
from .extract import tasks as tasks_of
from .gain import expected_gain, kind_of
from .measure import Measure, Measurer
from .measuring.local import LocalMeasurer
from .measuring.remote import RemoteMeasurer
from .progress import Progress, make_progress
from .records.records import Records
from .records.verdict import Verdict
from .report import Report, TaskReport
from .search.context import check_seed
from .search.search import TaskSearch, measure_rules
from .search.tuners import find_tuner
from .settle import FINAL_SECONDS, FINALS, HEAT_SECONDS, settle
from .task import Task

__all__ = ["tune", "tune_tasks"]

SETTLE_SECONDS = HEAT_SECONDS + FINALS * FINAL_SECONDS
"""What it costs to decide about a task, about."""
CHUNK = 8
"""Tasks whose rules are measured together."""
FULL = 8
"""Candidates that have to fail before they count as all, where the rule's own ran."""
SETTLE_SHARE = 0.3
"""How much of the seconds goes into decisions at most, so that a short run still searches."""


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
    trials, total_trials, tuner, early_stopping, seconds, seed
        As of `tune`.
    progress : bool, "auto" or Progress
        As of `tune`, or what shows it.

    Returns
    -------
    Report

    Raises
    ------
    TuningError
        Every candidate of a task failed, or a parameter is out of range. What other tasks found
        is in the records.
    ToolchainError
        The tuner needs a package that is not installed.
    """
    for name, value in (
        ("trials", trials),
        ("total_trials", total_trials),
        ("early_stopping", early_stopping),
        ("seconds", seconds),
    ):
        if value is not None and value <= 0:
            raise TuningError(f"{name} is {value}, not a positive number")
    check_seed(seed)
    session = _Session(tasks, measurer, records, trials, total_trials, seconds, progress)
    session.open(tuner, early_stopping, seed)
    try:
        session.run()
    finally:
        session.progress.close()
    return session.report()


class _Session:
    """The tasks of a module, and whose turn it is."""

    def __init__(
        self,
        tasks: Sequence[Task],
        measurer: Measurer,
        records: Records,
        trials: int,
        total_trials: int | None,
        seconds: float | None,
        progress: bool | Literal["auto"] | Progress,
    ) -> None:
        self.tasks, self.measurer, self.records = tasks, measurer, records
        self.trials, self.total, self.seconds = trials, total_trials, seconds
        self.progress = progress if isinstance(progress, Progress) else make_progress(progress)
        self.began = time.monotonic()
        self.measured = 0
        self.verdicts: dict[int, Verdict | None] = {}
        self.searches: list[TaskSearch] = []

    def open(self, tuner: str, early_stopping: int | None, seed: int) -> None:
        """Make the searches, what is in the records counted."""
        how = find_tuner(tuner)
        self.searches = [
            TaskSearch(
                task,
                self.measurer,
                self.records,
                tuner=how,
                trials=self.trials,
                early_stopping=early_stopping,
                seed=seed,
                watch=self._watch,
            )
            for task in self.tasks
        ]
        self.groups = _groups(self.searches)
        planned = sum(search.trials for search in self.searches)
        self.progress.begin(
            len(self.searches), planned if self.total is None else min(planned, self.total)
        )
        self.progress.advance(self._done())

    def _done(self) -> int:
        return sum(len(search.times) for search in self.searches)

    def _budget(self) -> int:
        """Trials that are left over all tasks."""
        if self.total is None:
            return sum(search.left for search in self.searches)
        return max(0, self.total - self._done())

    def _late(self) -> bool:
        if self.seconds is None:
            return False
        waiting = len(self.searches) - len(self.verdicts)
        reserve = min(SETTLE_SECONDS * waiting, SETTLE_SHARE * self.seconds)
        return time.monotonic() - self.began > self.seconds - reserve

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
        # The heaviest first: whoever interrupts has had the most of it.
        self.searches.sort(key=lambda search: -_weight(search))
        short = self.total is not None or self.seconds is not None
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
        if self.total is None and self.seconds is None:
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
        self.verdicts.update(
            (id(one), verdict)
            for one, verdict in zip(group, settle(group, self.measurer), strict=True)
        )

    def _complain(self) -> None:
        hopeless = [
            search
            for search in self.searches
            if search.hopeless(FULL) or (search.times and search.best_time == float("inf"))
        ]
        if not hopeless:
            return
        lines = []
        for search in hopeless[:3]:
            found = list(dict.fromkeys(search.errors))[:3]
            lines += [f"{search.task.name}: {error}" for error in found]
        raise TuningError(
            f"every candidate failed of {len(hopeless)} of {len(self.searches)} tasks",
            where="\n    ".join(lines),
            fix="if they timed out, give more time with Measure(timeout=..., build_timeout=...)",
        )

    def report(self) -> Report:
        """Say what came of it."""
        return Report(
            tuple(_report(search, self.verdicts[id(search)]) for search in self.searches),
            time.monotonic() - self.began,
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
        key=lambda known: known.rule_time,
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
    if rule == float("inf"):
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
    )


def tune(
    mod: IRModule,
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
    progress: bool | Literal["auto"] = "auto",
) -> Report:
    """Search better schedules for the functions of a network, and record what is found.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        A Relax module with static shapes, as `tvmlab.load` returns it.
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
        How long all of it may take, about.
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
    progress : bool or "auto"
        Whether to show bars (on a terminal and in a notebook) or lines (elsewhere).

    Returns
    -------
    Report
        Times before and after, task by task. `tvmlab.compile` with the same `records` takes what
        was found.

    Raises
    ------
    TuningError
        There is nothing to tune, no candidate of a task ran, no server answered, or a parameter is
        out of range.
    TargetError
        The target is unknown, or this machine cannot run its code.
    RecordError
        The file cannot be written, or is none of records.
    KeyboardInterrupt
        On Ctrl-C, after the workers have ended; what was measured is in the file.
    """
    find_tuner(tuner)
    check_seed(seed)
    found = tasks_of(mod, target, layouts=layouts)
    made = found[0].target
    kept = records if isinstance(records, Records) else Records(records)
    measurer: Measurer
    if tracker is None:
        measurer = LocalMeasurer(made, measure or Measure())
    else:
        measurer = RemoteMeasurer(made, measure or Measure(), tracker=tracker, key=key)
    try:
        return tune_tasks(
            found,
            measurer,
            kept,
            trials=trials,
            total_trials=total_trials,
            tuner=tuner,
            early_stopping=early_stopping,
            seconds=seconds,
            seed=seed,
            progress=progress,
        )
    finally:
        measurer.close()
