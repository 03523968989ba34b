"""From records to schedules: what `tvmlab.compile` takes from a file of records."""

from __future__ import annotations

import os
import warnings

import tvm
from tvm import s_tir, tirx
from tvm.ir import IRModule

from ..errors import RecordError
from ..support.wording import several
from .records import Records, existing
from .traces import replay, workload_id

__all__ = ["Recorded", "recorded"]


class Recorded:
    """A file of records for one target: a `tvmlab.schedule.Tuned`."""

    def __init__(self, records: Records, target: tvm.target.Target) -> None:
        self._records, self._target = records, target
        self._knew = False

    def layout(self, func: tirx.PrimFunc) -> str | None:
        """Return the layout that was decided on for a function's operator, or None."""
        verdict = self._records.verdict(workload_id(func), self._target)
        return None if verdict is None else verdict.layout

    def schedule(self, func: tirx.PrimFunc) -> s_tir.Schedule | None:
        """Schedule a function as was decided; None where the rule is to stay."""
        found = self._records.best(workload_id(func), self._target)
        if found is None:
            return None
        self._knew = True
        if found.trace is None:
            return None
        try:
            return replay(IRModule({"main": func}), found.trace)
        except RecordError as error:
            warnings.warn(
                f"{self._records.path}: the schedule of {found.task} is left out: {error.what}",
                RuntimeWarning,
                stacklevel=2,
            )
            return None

    def done(self) -> None:
        """Warn if the records knew none of the functions."""
        records = self._records
        if records.mixed or self._knew:
            return
        if len(records) and not records.verdicts:
            said = (
                f"holds {several(len(records), 'measurement')}, and nothing was decided yet: "
                "call tvmlab.tune again, with trials=1 to decide about what there is"
            )
        else:
            said = "knows none of the functions of this module: it was made for another one"
        warnings.warn(f"{records.path} {said}", RuntimeWarning, stacklevel=2)


def recorded(records: Records | str | os.PathLike[str], target: tvm.target.Target) -> Recorded:
    """Open the records for a compilation; raise RecordError if the file is missing or wrong."""
    return Recorded(records if isinstance(records, Records) else existing(records), target)
