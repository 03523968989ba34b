"""`tune`: a module, or some tasks, from the first measurement to the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import tvm
from tvm import tirx
from tvm.ir import IRModule

from ..errors import TuningError
from ..records.records import Records
from .extract import tasks as tasks_of
from .measure import Measure, Measurer
from .measurers import LocalMeasurer, RemoteMeasurer
from .progress import Progress
from .report import Report
from .search.context import check_seed
from .search.tuners import Tuner, find_tuner
from .session import Limits, Session
from .task import Task

__all__ = ["tune", "tune_tasks"]


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
