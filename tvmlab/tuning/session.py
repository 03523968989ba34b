"""`tune`: the tasks of a module, from the first measurement to the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule

from ..errors import TuningError
from ..records.file import Records
from ..support.wording import several
from .extract import Task
from .extract import tasks as tasks_of
from .kernels import Measure
from .measurers import LocalMeasurer, Measurer, RemoteMeasurer
from .report import Progress, Report, TaskReport
from .settle import FINAL_SECONDS, FINALS, HEAT_SECONDS, settle
from .tasksearch import Layout, Options, TaskSearch

# The weight of the past in the forecast, and the number of past batches: MetaSchedule's values.
ALPHA, WINDOW = 0.2, 3
SETTLE_SECONDS = HEAT_SECONDS + FINALS * FINAL_SECONDS  # the cost of deciding about a task
SETTLE_SHARE = 0.3  # the largest share of the time for decisions, so that short runs still search
FULL = 8  # a task is hopeless after this many failures, if the rule's schedule ran


class _Session:
    """The tasks of a module, and the choice of the next one to search."""

    def __init__(
        self, tasks: Sequence[Task], measurer: Measurer, records: Records, options: Options
    ) -> None:
        self.measurer, self.options = measurer, options
        self.settled: set[TaskSearch] = set()
        planned = len(tasks) * options.trials
        total = min(planned, options.total_trials or planned)
        progress = Progress(total, silent=not options.progress)
        self.searches = [TaskSearch(task, measurer, records, options, progress) for task in tasks]
        self.known = progress.done = self._done()
        groups: dict[Any, list[TaskSearch]] = {}
        for search in self.searches:  # weights of one operator are packed in one layout
            groups.setdefault(search.task.operator or search, []).append(search)
        self.groups = list(groups.values())

    def _done(self) -> int:
        return sum(len(search.times) for search in self.searches)

    def _budget(self) -> int:
        """The remaining trials of all tasks."""
        if self.options.total_trials is None:
            return sum(search.left for search in self.searches)
        return max(0, self.options.total_trials - self._done())

    def _late(self) -> bool:
        """Return whether the remaining time is reserved for decisions."""
        if self.options.seconds is None:
            return False
        waiting = len(self.searches) - len(self.settled)
        reserve = min(SETTLE_SECONDS * waiting, SETTLE_SHARE * self.options.seconds)
        return self.options.spent > self.options.seconds - reserve

    def run(self) -> None:
        """Measure the rules' schedules, search, and compare the best candidates with the rules."""
        self._rules([(search, search.layouts[0]) for search in self.searches], self._budget())
        # The heaviest task first, so that an interrupted session has the largest gains.
        self.searches.sort(key=lambda search: -_weight(search))
        short = self.options.total_trials is not None or self.options.seconds is not None
        if not self._late():
            # Measuring layouts must not use up the trials of the search.
            others = [
                (search, layout)
                for search in self.searches
                for layout in search.layouts[1 : max(1, self.options.trials // 3)]
            ]
            self._rules(others, self._budget() // 3 if short else self._budget())
        for search in self.searches:
            if search.times:
                search.begin()
        for group in self.groups:
            _share_layout(group)
        while self._budget() > 0 and not self._late():
            going = [search for search in self.searches if not search.ended and search.batches]
            if not going:
                break
            # Without a total limit, each task uses its own trials, one task after the other.
            search = max(going, key=expected_gain) if short else going[0]
            search.step(self._budget())
            if search.ended:
                self._close(search)
        for search in self.searches:
            search.ended = search.ended or "no trials or seconds were left"
            self._close(search)
        self._complain()

    def _rules(self, pairs: Sequence[tuple[TaskSearch, Layout]], limit: int) -> None:
        """Measure the rules' schedules of tasks in some layouts, unless they are known."""
        missing = [one for one in pairs if one[1].by_rule is None and one[0].left][:limit]
        for place, outcome in self.measurer.measure([layout.rule.mod for _, layout in missing]):
            search, layout = missing[place]
            search.take(layout, layout.rule, "rule", outcome)

    def _close(self, search: TaskSearch) -> None:
        """Decide about a group whose searches have ended; if late, leave it to the next run."""
        group = next(group for group in self.groups if search in group)
        if search in self.settled or not all(one.ended for one in group):
            return
        most = self.options.seconds
        if most is None or self.options.spent <= most or not self.settled:
            settle(group, self.measurer, again=self.options.again)
            self.settled.update(group)

    def _complain(self) -> None:
        """Raise an error if no candidate of some task ran."""
        hopeless = [
            search
            for search in self.searches
            if search.failed(FULL) or (search.times and search.best_time == float("inf"))
        ]
        if not hopeless:
            return
        late = any("and was stopped" in error for search in hopeless for error in search.errors)
        raise TuningError(
            f"every candidate failed in {len(hopeless)} of {several(len(self.searches), 'task')}"
            + ("; the others are in the records" if len(hopeless) < len(self.searches) else ""),
            where="\n    ".join(
                f"{search.task.name}: {error}"
                for search in hopeless[:3]
                for error in list(dict.fromkeys(search.errors))[:3]
            ),
            fix="raise the limits: Measure(timeout=..., build_timeout=...)" if late else None,
        )

    def report(self) -> Report:
        """Return the report of the session."""
        tasks = tuple(map(_row, self.searches))
        return Report(tasks, self.options.spent, self._done() - self.known)


def _row(search: TaskSearch) -> TaskReport:
    task, verdict, rule = search.task, search.verdict(), search.rule_time
    if verdict and verdict.rule:
        rule = verdict.rule
    tuned = rule * verdict.ratio if verdict else rule
    if rule == float("inf") and verdict:
        tuned = search.best_time
    return TaskReport(
        name=task.name,
        calls=task.calls,
        flops=task.flops,
        rule=rule,
        tuned=tuned,
        layout=verdict.layout if verdict else "",
        ended=search.ended,
        errors=tuple(search.errors),
        times=tuple(search.times),
        decided=verdict is not None,
    )


def _weight(search: TaskSearch) -> float:
    """Return a task's share of the network's time."""
    rule = search.rule_time
    return 0.0 if rule == float("inf") else search.task.calls * rule


def _share_layout(group: Sequence[TaskSearch]) -> None:
    """Let all tasks of an operator search the layout that is best for the heaviest of them."""
    if len(group) < 2 or not all(search.batches for search in group):
        return
    leader = max(group, key=_weight)
    offered = [{one.variant.layout: one for one in search.layouts} for search in group]
    common = [one for one in leader.layouts if all(one.variant.layout in each for each in offered)]
    fastest = min(common, key=leader.promise, default=leader.layouts[0]).variant.layout
    for search, layouts in zip(group, offered, strict=True):
        search.chosen = layouts.get(fastest, search.layouts[0])


def expected_gain(search: TaskSearch) -> float:
    """Estimate how many seconds the next batch of a task saves per run of the network.

    This is the gradient of MetaSchedule's task scheduler: the mean of the last batches' gain and
    of the possible gain of the next one, a share of the time. It is infinite for the first batches.
    """
    now, batches = search.batches[-1], len(search.batches) - 1
    if now == float("inf") or not batches:
        return float("inf")
    past = [seconds for seconds in search.batches[-1 - WINDOW :] if seconds < float("inf")]
    backward = (past[0] - now) / max(1, len(past) - 1)
    return search.task.calls * (ALPHA * backward + (1 - ALPHA) * now / batches)


def tune_tasks(
    tasks: Sequence[Task], measurer: Measurer, records: Records, **options: Any
) -> Report:
    """Tune tasks with an open measurer, which stays open.

    Parameters
    ----------
    tasks : sequence of Task
        From `tvmlab.tuning.tasks`, or constructed directly.
    measurer : Measurer
        The measurer that builds and measures.
    records : Records
        The file to which outcomes are appended, with the results of earlier runs.
    **options
        ``trials``, ``total_trials``, ``tuner``, ``early_stopping``, ``seconds``, ``seed``,
        ``again`` and ``progress`` as in `tune`. To decide about a task again, pass only that task.

    Returns
    -------
    Report

    Raises
    ------
    TuningError, ToolchainError
        As in `tune`.
    """
    session = _Session(tasks, measurer, records, Options(**options))
    try:
        session.run()
    except TuningError as error:
        error.report = session.report()
        raise
    return session.report()


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
    progress: bool = True,
) -> Report:
    """Search better schedules for the functions of a network, and record the results.

    Parameters
    ----------
    mod : tvm.ir.IRModule or tvm.tirx.PrimFunc
        A Relax module with static shapes, as `tvmlab.load` returns it, or a TIR function.
    target : tvm.target.Target, mapping, str or None
        The target to compile for, of kind ``llvm``; None is this machine. For a composite such as
        ``"npu, llvm"``, the functions that stay on the CPU are tuned.
    records : Records, str or pathlib.Path
        The file to which each measurement is appended at once. Earlier measurements in the file
        count, so interrupted tuning continues.
    trials, total_trials : int
        Candidates to measure at most for each task, including the rules' own schedules, and for
        all tasks together: then each batch goes to the task with the largest expected gain.
    tuner : str
        ``"xgb"``, ``"ga"``, ``"random"`` or ``"gridsearch"``.
    early_stopping : int, optional
        End the search of a task after this many trials without an improvement.
    seconds : float, optional
        The approximate time limit. At most the last third is reserved for comparing the best
        candidates with the rules. If it ends before all tasks are searched, the next run goes on.
    measure : Measure, optional
        The options for measuring candidates.
    seed : int
        The seed of random decisions.
    tracker, key : str
        ``"host:port"`` of a TVM RPC tracker whose servers of that key measure; this machine if no
        tracker is given.
    layouts : bool
        Whether to try other weight packings than the rules'.
    again : bool
        Whether to compare the best candidates with the rules again for tasks that are decided and
        have no new measurements. With ``trials=1``, `tune` does nothing else.
    progress : bool
        Whether to print progress lines.

    Returns
    -------
    Report
        Times before and after, by task. `tvmlab.compile` with the same `records` uses
        the schedules that were found.

    Raises
    ------
    TuningError
        There is nothing to tune, all candidates of a task failed, no server was free, or a
        parameter is out of range. If tuning had begun, the error's `report` has the results.
    RemoteError
        The tracker does not answer, or has no server of the key.
    CompileError, TargetError, ToolchainError
        The module has no Relax function ``main``; the target is unknown, or this machine cannot run
        its code; the tuner or the target needs a package that is not installed.
    RecordError
        The file cannot be written, or is not one of records.
    KeyboardInterrupt
        On Ctrl-C, after the workers have ended; the measurements are in the file. Call `tune` again
        to continue, or with ``trials=1`` to decide with the existing measurements.
    """
    options = Options(trials, total_trials, tuner, early_stopping, seconds, seed, again, progress)
    if not isinstance(measure, Measure | None):
        raise TuningError(
            f"measure is {measure!r}, which is not a `Measure`",
            fix="pass a tvmlab.tuning.Measure, such as Measure(repeat=3)",
        )
    kept = records if isinstance(records, Records) else Records(records)
    found = tasks_of(mod, target, layouts=layouts)
    made = found[0].target
    with (
        LocalMeasurer(made, measure)
        if tracker is None
        else RemoteMeasurer(made, measure, tracker=tracker, key=key)
    ) as measurer:
        return tune_tasks(found, measurer, kept, **vars(options))
