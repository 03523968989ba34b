"""From records to schedules: what `tvmlab.compile` asks when it is given, or finds, some."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import tvm
from tvm import s_tir, tirx
from tvm.ir import IRModule

from .._telling import several
from ..errors import RecordError
from ..target import physical_cores
from .records.records import Records
from .records.traces import replay
from .records.workloads import workload_id

__all__ = ["Recorded", "recorded", "shipped"]

# The generic targets that records ship for, with the instruction sets that make a machine one.
_GENERIC = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "fma", "bmi2"},
}


class Recorded:
    """What some files of records hold for one target: a `tvmlab.schedule.Tuned`.

    Parameters
    ----------
    sources : sequence of (Records, tvm.target.Target)
        Records, and the target whose results are taken; what stands first goes first.
    own : Records, optional
        Which of them the user has named: a warning says so where it is of no use.
    """

    def __init__(
        self, sources: Sequence[tuple[Records, tvm.target.Target]], own: Records | None = None
    ) -> None:
        self._sources = list(sources)
        self._own = own
        self._knew = False

    def layout(self, func: tirx.PrimFunc) -> str | None:
        """Give the layout that was decided on for a function's operator; None where none was."""
        named = workload_id(func)
        for records, target in self._sources:
            verdict = records.verdict(named, target)
            if verdict is not None:
                return verdict.layout
        return None

    def schedule(self, func: tirx.PrimFunc) -> s_tir.Schedule | None:
        """Schedule a function as was decided; None where the rule is to stay."""
        named = workload_id(func)
        for records, target in self._sources:
            found = records.best(named, target)
            if found is None:
                continue
            self._knew |= records is self._own
            if found.trace is None:
                return None
            try:
                return replay(IRModule({"main": func}), found.trace)
            except RecordError as error:
                warnings.warn(
                    f"{records.path}: the schedule of {found.task} is left out: {error.what}",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return None
        return None

    def done(self) -> None:
        """Warn where the user's records knew none of the functions."""
        if self._own is None or self._own.mixed or self._knew:
            return
        if len(self._own) and not self._own.verdicts:
            said = (
                f"holds {several(len(self._own), 'measurement')}, and nothing was decided yet: "
                "call tvmlab.tune again, with trials=1 to decide about what there is"
            )
        else:
            said = "knows none of the functions of this module: it was made for another one"
        warnings.warn(f"{self._own.path} {said}", RuntimeWarning, stacklevel=2)


def recorded(
    records: Records | str | os.PathLike[str] | bool | None, target: tvm.target.Target
) -> Recorded | None:
    """Find the records for a compilation.

    Parameters
    ----------
    records : Records, path, bool or None
        A file of the user's, whose results go before those that ship with the package; None or True
        for the latter alone; False for none.
    target : tvm.target.Target
        What is compiled for.

    Returns
    -------
    Recorded or None
        None where there is nothing to ask.

    Raises
    ------
    RecordError
        The file is missing, cannot be read, or holds nothing for this target.
    """
    if records is False:
        return None
    sources = list(shipped(target))
    if records is not None and records is not True:
        if not isinstance(records, Records):
            if isinstance(records, str | os.PathLike) and not Path(records).exists():
                raise RecordError(
                    "there is no such file of tuning records",
                    where=os.fspath(records),
                    fix="tvmlab.tune(..., records=...) makes it",
                )
            records = Records(records)
        sources.insert(0, (records, target))
        return Recorded(sources, records)
    return Recorded(sources) if sources else None


def shipped(target: tvm.target.Target) -> list[tuple[Records, tvm.target.Target]]:
    """Find the records that ship with the package and hold for a target.

    They were made for the generic processors ``x86-64-v4`` and ``x86-64-v3``. Whatever has the
    former's vectors takes the former's, whatever else has the latter's those, for as many threads
    as they were measured with.
    """
    if target.kind.name != "llvm":
        return []
    features = {str(f) for f in tvm.get_global_func("target.llvm_get_cpu_features")(target)}
    for name, needed in _GENERIC.items():
        if needed <= features:
            found = _file(name)
            threads = int(target.attrs.get("num-cores", physical_cores()))
            generic = {"kind": "llvm", "mcpu": name, "num-cores": threads}
            return [(found, tvm.target.Target(generic))] if found is not None else []
    return []


@cache
def _file(name: str) -> Records | None:
    """Read the shipped records for one processor, once."""
    with resources.as_file(resources.files("tvmlab") / "assets" / f"{name}.jsonl") as path:
        return Records(path, mixed=True) if path.is_file() else None
