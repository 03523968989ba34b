"""Files of tuning records put together, thinned out, and exchanged with MetaSchedule."""

from __future__ import annotations

import base64
import binascii
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm.ir import IRModule
from tvm.s_tir import meta_schedule

from ..errors import RecordError
from ..support.files import whole
from ..support.target import as_target
from ..support.wording import telling
from .records import Records, encode, existing, fastest, newest, read_module
from .result import Result, Verdict, Workload, mismatch, target_data
from .traces import as_data, replay, workload_id

__all__ = ["best_of", "export_database", "import_database", "merge"]

# The two files of a `JSONDatabase` in a folder.
_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"
_FAILED = 1e6  # MetaSchedule writes 1e10 seconds where a candidate failed
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
    target = Records(into, mixed=True)
    sources = [paths] if isinstance(paths, str | os.PathLike) else paths
    return sum(target.add(existing(path, mixed=True).entries) for path in sources)


def best_of(path: str | os.PathLike[str], into: str | os.PathLike[str]) -> int:
    """Keep what a compilation applies, its functions, and the measurements of what was chosen.

    Parameters
    ----------
    path : path
        A file of records.
    into : path
        The file to make; a file of records that is there is replaced.

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
    source = existing(path, mixed=True)
    if Path(into).exists() and Path(into).samefile(path):
        raise RecordError(
            "a file of records cannot be thinned out in place: who writes to it would lose lines",
            where=str(into),
            fix="give another file",
        )
    Records(into, mixed=True)  # another file, given by mistake, stays as it is
    verdicts: dict[tuple[str, ...], list[Verdict]] = {}
    for verdict in source.verdicts:
        verdicts.setdefault((verdict.function, *_made_for(verdict)), []).append(verdict)
    judged = {name[:-1] for name in verdicts}
    results: dict[tuple[str, ...], list[Result]] = {}
    for result in source.results():
        results.setdefault((result.workload, *_made_for(result)[:2]), []).append(result)
    found = [
        *(newest(some) for some in verdicts.values()),
        *(fastest(some) for name, some in results.items() if name not in judged),
    ]
    kept = [one for one in found if one is not None]
    named = {one.workload for one in kept}
    chosen: list[Workload | Result | Verdict] = [
        *kept,
        *(one for one in source.entries if isinstance(one, Workload) and one.id in named),
        *(
            result
            for one in kept
            if isinstance(one, Verdict) and one.trace is not None
            for result in source.results(one.workload)
            if _made_for(result)[:2] == _made_for(one)[:2] and result.trace == one.trace
        ),
    ]
    try:
        with whole(into) as part:
            part.write_bytes(b"".join(map(encode, chosen)))
    except OSError as error:
        raise RecordError(
            f"the file of tuning records cannot be written: {error.strerror}", where=str(into)
        ) from error
    return len(kept)


def _made_for(one: Result | Verdict) -> tuple[str, ...]:
    rules = one.tvmlab if isinstance(one, Verdict) else ""
    return json.dumps(one.target, sort_keys=True), one.tvm, rules


def export_database(
    records: Records | str | os.PathLike[str], folder: str | os.PathLike[str]
) -> int:
    """Write results as MetaSchedule's database of two files.

    Parameters
    ----------
    records : Records or path
        Where they are. What failed is left out, and so are, with a warning, results whose function
        or trace is damaged. Verdicts have no place there: upstream takes the fastest.
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
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any((folder / name).exists() for name in (_WORKLOADS, _RECORDS)):
            raise RecordError(
                "the folder holds a database of MetaSchedule's already",
                where=str(folder),
                fix="give another folder",
            )
        database = meta_schedule.database.JSONDatabase(work_dir=str(folder))
    except (OSError, ValueError, RuntimeError) as error:
        raise RecordError(
            f"MetaSchedule's database cannot be written: {telling(error)}", where=str(folder)
        ) from error
    records = records if isinstance(records, Records) else existing(records, mixed=True)
    results = [result for result in records.results() if result.times]
    count, left_out = 0, []
    for result in results:
        try:
            module = records.module(result.workload)
            trace = replay(module, result.trace).trace
            target = tvm.target.Target(result.target)
            arguments = meta_schedule.arg_info.ArgInfo.from_prim_func(module["main"])
            workload = database.commit_workload(module)
            database.commit_tuning_record(
                meta_schedule.database.TuningRecord(
                    trace, workload, list(result.times), target, arguments
                )
            )
        except Exception as error:  # TVM raises several classes, by what is wrong
            left_out.append(telling(error))
        else:
            count += 1
    _tell(str(records.path), len(results), left_out)
    return count


def import_database(
    folder: str | os.PathLike[str],
    into: str | os.PathLike[str],
    target: tvm.target.Target | Mapping[str, Any] | str | None = None,
) -> int:
    """Copy what MetaSchedule has measured into a file of records.

    Parameters
    ----------
    folder : path
        Where a `JSONDatabase` wrote its two files.
    into : path
        A file of records, which keeps what it has, or one to be made.
    target : tvm.target.Target, mapping, str or None
        What it was measured for; None is this machine. Results that say another target are left
        out, with a warning, as are those that are damaged, or whose schedule `replay` refuses.

    Returns
    -------
    int
        Results that were copied: those that are not in `into` yet.

    Raises
    ------
    RecordError
        The folder holds no database, nothing in it can be used, or `into` cannot be written.
    """
    folder, made_for = Path(folder), as_target(target)
    left_out: list[str] = []
    texts = [_module_text(line) for line in _json_lines(folder / _WORKLOADS)]
    measured = list(_json_lines(folder / _RECORDS))
    made: list[tuple[IRModule, Result]] = []
    for line in measured:
        try:
            made.append(_imported(line, texts, made_for))
        except (ValueError, RecordError) as error:
            left_out.append(telling(error))
    if measured and not made:
        raise RecordError(
            f"none of {len(measured)} results of a database can be used: {_summary(left_out)}",
            where=str(folder),
        )
    _tell(str(folder), len(measured), left_out)
    records = Records(into, mixed=True)
    for module in {result.workload: module for module, result in made}.values():
        records.workload(module)
    known = {_measured(one) for one in records.results()}
    fresh = [result for _, result in made if _measured(result) not in known]
    records.add(fresh)
    return len(fresh)


def _measured(result: Result) -> str:
    """Tell results apart by what was measured, not by when it was imported."""
    return json.dumps([result.workload, result.trace, result.times, result.target], sort_keys=True)


def _imported(line: Any, texts: list[str], target: tvm.target.Target) -> tuple[IRModule, Result]:
    """Read a line of MetaSchedule's results."""
    match line:
        case [int(place), [trace, list(seconds), dict() | None as said, *_]] if (
            0 <= place < len(texts)
        ):
            pass
        case _:
            raise ValueError("a line is no result of MetaSchedule's")
    module = read_module(texts[place])
    if not seconds or not all(type(s) in (int, float) and 0 < s < _FAILED for s in seconds):
        raise ValueError("the candidate failed")
    about = target_data(target) if said is None else said
    result = Result(
        workload=workload_id(module),
        task="imported",
        origin="search",
        trace=as_data(replay(module, trace).trace),
        target=about,
        threads=int(target.attrs.get("num-cores", 0)),
        times=tuple(map(float, seconds)),
        tuner="metaschedule",
        cpu="",
        tvm=_version(texts[place]),
    )
    if trouble := mismatch(result, target):
        raise ValueError(trouble)
    return module, result


def _json_lines(path: Path) -> Iterator[Any]:
    """Read a file of MetaSchedule's; a line that is no JSON gives None."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise RecordError(
            f"a database of MetaSchedule's cannot be read: {error.strerror}",
            where=str(path),
            fix=f"give the folder that holds {_WORKLOADS} and {_RECORDS}",
        ) from error
    for line in lines:
        try:
            yield json.loads(line)
        except (ValueError, RecursionError):
            yield None


def _module_text(line: Any) -> str:
    """Take the text out of a line: base64 of its length in eight bytes, and the text."""
    match line:
        case [str(), str(packed)]:
            try:
                return base64.b64decode(packed, validate=True)[8:].decode()
            except (binascii.Error, ValueError):
                return ""
        case _:
            return ""


def _version(text: str) -> str:
    """Tell which TVM wrote a module's text."""
    return str(json.loads(text).get("metadata", {}).get("tvm_version", tvm.__version__))


def _summary(reasons: list[str]) -> str:
    counted = {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}
    most = sorted(counted, key=lambda reason: -counted[reason])[:_SHOWN]
    return "; ".join(f"{counted[reason]} times: {reason}" for reason in most)


def _tell(where: str, count: int, left_out: list[str]) -> None:
    if left_out:
        warnings.warn(
            f"{where}: {len(left_out)} of {count} results are left out: {_summary(left_out)}",
            RuntimeWarning,
            stacklevel=3,
        )
