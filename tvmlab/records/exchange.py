"""Merge and reduce files of tuning records, and exchange them with MetaSchedule."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

from ..errors import RecordError
from ..support.files import whole
from ..support.target import as_target
from ..support.wording import telling
from .entries import (
    Result,
    Verdict,
    Workload,
    as_data,
    mismatch,
    replay,
    target_data,
    workload_id,
)
from .file import Records

_FAILED = 1e6  # MetaSchedule writes 1e10 seconds for a candidate that failed
_LONG_AGO = "1970-01-01T00:00:00+00:00"  # constant, so that repeated imports write equal lines
_SHOWN = 3


def merge(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]
) -> int:
    """Merge several files of records into one.

    Parameters
    ----------
    paths : path, or iterable of path
        Files of records; damaged lines are skipped, with a warning.
    into : path
        A file of records to append to, or the path of a new file.

    Returns
    -------
    int
        Lines that were not in `into` before.

    Raises
    ------
    RecordError
        A file is missing or not a file of records, or `into` cannot be written.
    """
    target = Records(into)
    sources = [paths] if isinstance(paths, str | os.PathLike) else paths
    return sum(target.append(*Records(path, existing=True).entries) for path in sources)


def best_of(path: str | os.PathLike[str], into: str | os.PathLike[str]) -> int:
    """Keep only the records that compilation uses, with their functions.

    Parameters
    ----------
    path, into : path
        A file of records, and the file to write, which can replace a file of records.

    Returns
    -------
    int
        The number of last verdicts, one per target and function.

    Raises
    ------
    RecordError
        A file is missing or not a file of records, or `into` cannot be written.
    """
    source = Records(path, existing=True)
    Records(into)  # raises for another kind of file, which must not be overwritten
    newest = {
        (one.function, json.dumps(one.target, sort_keys=True), one.tvm, one.tvmlab): one
        for one in sorted(source.verdicts, key=lambda one: one.date)
    }
    kept = list(newest.values())
    named = {one.workload for one in kept}
    functions = [one for one in source.entries if isinstance(one, Workload) and one.id in named]
    try:
        with whole(into) as part:
            Records(part).append(*kept, *functions)
    except OSError as error:
        raise RecordError(
            f"the file of tuning records cannot be written: {error.strerror}", where=str(into)
        ) from error
    return len(kept)


def export_database(
    records: Records | str | os.PathLike[str], folder: str | os.PathLike[str]
) -> int:
    """Write results as MetaSchedule's database of two files.

    Parameters
    ----------
    records : Records or path
        The results. Failures and verdicts are left out: MetaSchedule uses the fastest result.
    folder : path
        Created if it is missing; an existing database keeps its records. MetaSchedule reads it with
        ``JSONDatabase(work_dir=folder)``.

    Returns
    -------
    int
        The number of results written.

    Raises
    ------
    RecordError
        The folder cannot be written, or this TVM cannot read a function or a trace.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        database = JSONDatabase(work_dir=str(folder))
    except (OSError, ValueError, RuntimeError) as error:
        raise RecordError(
            f"MetaSchedule's database cannot be written: {telling(error)}", where=str(folder)
        ) from error
    records = records if isinstance(records, Records) else Records(records, existing=True)
    results = [result for result in records.results() if result.times]
    modules = {name: records.module(name) for name in {one.workload for one in results}}
    for result in results:
        module = modules[result.workload]
        record = TuningRecord(
            replay(module, result.trace).trace,
            database.commit_workload(module),
            list(result.times),
            tvm.target.Target(result.target),
            ArgInfo.from_prim_func(module["main"]),
        )
        database.commit_tuning_record(record)
    return len(results)


def import_database(
    folder: str | os.PathLike[str],
    into: str | os.PathLike[str],
    target: tvm.target.Target | Mapping[str, Any] | str | None = None,
) -> int:
    """Copy MetaSchedule's measurements into a file of records; the fastest becomes the verdict.

    Parameters
    ----------
    folder : path
        The folder of the two files of a `JSONDatabase` of this version of TVM.
    into : path
        A file of records to append to, or the path of a new file.
    target : tvm.target.Target, mapping, str or None
        The target of the measurements; None is this machine. Results for another target are
        skipped, with a warning.

    Returns
    -------
    int
        Results that were not in `into` before.

    Raises
    ------
    RecordError
        MetaSchedule cannot read the folder, no result is usable, or `into` cannot be written.
    """
    made_for = as_target(target)
    try:
        database = JSONDatabase(work_dir=os.fspath(folder), allow_missing=False)
    except Exception as error:  # TVM raises several classes
        raise RecordError(
            f"a database of MetaSchedule's cannot be read: {telling(error)}", where=str(folder)
        ) from error
    measured = list(database.get_all_tuning_records())
    made: list[Result] = []
    modules: dict[str, tvm.IRModule] = {}
    left_out: list[str] = []
    for record in measured:
        result = Result(
            workload=workload_id(record.workload.mod),
            task="imported",
            origin="search",
            trace=as_data(record.trace),
            target=target_data(record.target or made_for),
            times=tuple(map(float, record.run_secs or ())),
            tuner="metaschedule",
            threads=int(made_for.attrs.get("num-cores", 0)),
            cpu="",
            date=_LONG_AGO,
        )
        failed = not result.times or max(result.times) >= _FAILED
        if why := "the candidate failed" if failed else mismatch(result, made_for):
            left_out.append(why)
        else:
            made.append(result)
            modules[result.workload] = record.workload.mod
    if measured and not made:
        raise RecordError(
            f"none of {len(measured)} results of a database can be used: {left_out[0]}",
            where=str(folder),
        )
    if left_out:
        why = "; ".join(list(dict.fromkeys(left_out))[:_SHOWN])
        warnings.warn(
            f"{folder}: {len(left_out)} of {len(measured)} results are left out: {why}",
            RuntimeWarning,
            stacklevel=2,
        )
    records = Records(into)
    fastest = {one.workload: one for one in sorted(made, key=lambda one: -one.seconds)}
    for name, one in fastest.items():
        records.workload(modules[name])
        held = [each.name for each in fields(Verdict) if hasattr(one, each.name)]
        same: dict[str, Any] = {each: getattr(one, each) for each in held}
        records.append(Verdict(function=name, rule=0.0, **same))
    return records.append(*made)
