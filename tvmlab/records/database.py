"""Files of tuning records put together, thinned out, and exchanged with MetaSchedule."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
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
from .records import Records, existing

_FAILED = 1e6  # MetaSchedule writes 1e10 seconds where a candidate failed
_LONG_AGO = "1970-01-01T00:00:00+00:00"  # the same line if it is imported again
_SHOWN = 3


def merge(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]
) -> int:
    """Copy what several files of records hold into one.

    Parameters
    ----------
    paths : path, or iterable of path
        Files of records; what is damaged in them is left out, with a warning.
    into : path
        A file of records, which keeps what it has, or one to be made.

    Returns
    -------
    int
        Lines that were not in `into` before.

    Raises
    ------
    RecordError
        A file is missing or no file of records, or `into` cannot be written.
    """
    target = Records(into)
    sources = [paths] if isinstance(paths, str | os.PathLike) else paths
    return sum(target.append(*existing(path).entries) for path in sources)


def best_of(path: str | os.PathLike[str], into: str | os.PathLike[str]) -> int:
    """Keep what a compilation applies, and its functions.

    Parameters
    ----------
    path : path
        A file of records.
    into : path
        The file to make; a file of records that is there is replaced, and another process that
        writes to it loses lines.

    Returns
    -------
    int
        Lines that decide: for each target and function the last verdict, or the fastest that was
        imported where there is none.

    Raises
    ------
    RecordError
        A file is missing or no file of records, or `into` cannot be written.
    """
    source = existing(path)
    Records(into)  # another file, given by mistake, stays as it is
    # The newest verdict of each function is the last one here, and so is the fastest result.
    verdicts = {
        (_name(one), one.tvmlab): one for one in sorted(source.verdicts, key=lambda one: one.date)
    }
    imported = {
        _name(one): one
        for one in sorted(source.results(), key=lambda one: -one.seconds)
        if one.imported
    }
    judged = {name for name, _ in verdicts}
    kept: list[Result | Verdict] = [*verdicts.values()]
    kept += [one for name, one in imported.items() if name not in judged]
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


def _name(one: Result | Verdict) -> tuple[str, str, str]:
    """Name a function, a target and a version of TVM."""
    function = one.function if isinstance(one, Verdict) else one.workload
    return function, json.dumps(one.target, sort_keys=True), one.tvm


def export_database(
    records: Records | str | os.PathLike[str], folder: str | os.PathLike[str]
) -> int:
    """Write results as MetaSchedule's database of two files.

    Parameters
    ----------
    records : Records or path
        Where they are. What failed is left out, and so are, with a warning, results whose function
        or trace this TVM cannot read. Verdicts are left out: upstream takes the fastest.
    folder : path
        A folder without such a database; it is made where it is missing.
        ``meta_schedule.database.JSONDatabase(work_dir=folder)`` reads it.

    Returns
    -------
    int
        Results that were written.

    Raises
    ------
    RecordError
        The folder holds a database, or cannot be written.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        database = JSONDatabase(work_dir=str(folder))
        if len(database):
            raise ValueError("the folder holds one already")
    except (OSError, ValueError, RuntimeError) as error:
        raise RecordError(
            f"MetaSchedule's database cannot be written: {telling(error)}",
            where=str(folder),
            fix="give a new folder",
        ) from error
    records = records if isinstance(records, Records) else existing(records)
    results = [result for result in records.results() if result.times]
    left_out = []
    for result in results:
        try:
            module = records.module(result.workload)
            record = TuningRecord(
                replay(module, result.trace).trace,
                database.commit_workload(module),
                list(result.times),
                tvm.target.Target(result.target),
                ArgInfo.from_prim_func(module["main"]),
            )
            database.commit_tuning_record(record)
        except Exception as error:  # TVM raises several classes, by what is wrong
            left_out.append(telling(error))
    _warn(str(records.path), len(results), left_out)
    return len(results) - len(left_out)


def import_database(
    folder: str | os.PathLike[str],
    into: str | os.PathLike[str],
    target: tvm.target.Target | Mapping[str, Any] | str | None = None,
) -> int:
    """Copy what MetaSchedule has measured into a file of records.

    Parameters
    ----------
    folder : path
        Where a `JSONDatabase` of this version of TVM wrote its two files.
    into : path
        A file of records, which keeps what it has, or one to be made.
    target : tvm.target.Target, mapping, str or None
        What it was measured for; None is this machine. Results that say another target are left
        out, with a warning.

    Returns
    -------
    int
        Results that were copied: those that are not in `into` yet.

    Raises
    ------
    RecordError
        The folder holds no database, MetaSchedule cannot read it, nothing in it can be used, or
        `into` cannot be written.
    """
    made_for = as_target(target)
    try:
        database = JSONDatabase(work_dir=os.fspath(folder), allow_missing=False)
    except Exception as error:  # TVM raises several classes, by what is wrong
        raise RecordError(
            f"a database of MetaSchedule's cannot be read: {telling(error)}", where=str(folder)
        ) from error
    measured = list(database.get_all_tuning_records())
    made: list[Result] = []
    left_out: list[str] = []
    modules = {}
    for record in measured:
        seconds = tuple(map(float, record.run_secs or ()))
        result = Result(
            workload=workload_id(record.workload.mod),
            task="imported",
            origin="search",
            trace=as_data(record.trace),
            target=target_data(record.target or made_for),
            threads=int(made_for.attrs.get("num-cores", 0)),
            times=seconds,
            tuner="metaschedule",
            cpu="",
            date=_LONG_AGO,
        )
        failed = not seconds or max(seconds) >= _FAILED
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
    _warn(str(folder), len(measured), left_out)
    records = Records(into)
    for module in modules.values():
        records.workload(module)
    return records.append(*made)


def _warn(where: str, count: int, left_out: list[str]) -> None:
    if left_out:
        why = "; ".join(list(dict.fromkeys(left_out))[:_SHOWN])
        warnings.warn(
            f"{where}: {len(left_out)} of {count} results are left out: {why}",
            RuntimeWarning,
            stacklevel=3,
        )
