"""The file of tuning records: what was measured, kept line by line as it is measured.

Each line is written while no other process writes or reads, and synchronized with the disk, so
several processes can use one file. A process that is killed during a write leaves a torn line,
which the next writer ends and every reader leaves out.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import tvm
from tvm import s_tir, tirx
from tvm.ir import IRModule

from ..errors import RecordError
from ..support.wording import several, telling
from .result import Result, Verdict, Workload, mismatch
from .traces import normalized, replay, workload_id

__all__ = ["Recorded", "Records", "encode", "existing", "recorded"]

_START = b'{"check":"'
_SHOWN = 3  # damaged lines that a warning names
_KINDS = {one.__name__.lower(): one for one in (Workload, Result, Verdict)}


def encode(entry: Workload | Result | Verdict) -> bytes:
    """Return an entry as a line of JSON; raise ValueError or TypeError if that is not possible.

    ``check`` is the first 16 hexadecimal digits of the SHA-256 of the object without it, written
    with sorted keys and no spaces.
    """
    text = _canonical(entry.line())
    return _START + _checksum(text).encode() + b'",' + text[1:] + b"\n"


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(
        fields, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def _decode(line: bytes) -> tuple[str, Workload | Result | Verdict]:
    """Read a line's checksum and entry; raise ValueError if the line is damaged."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(fields, dict) or "check" not in fields:
        raise ValueError("it has no checksum")
    check = fields.pop("check")
    if _checksum(_canonical(fields)) != check:
        raise ValueError("its checksum is wrong")
    try:
        return check, _KINDS[fields["kind"]].of(fields)
    except (LookupError, TypeError, ValueError):
        raise ValueError("it is of no known kind") from None


class Records:
    """A file of tuning records.

    Each line is a JSON object: a workload (a function's text), a result (one measurement), or a
    verdict (a decision about a function). Damaged lines are left out, with a warning.

    Parameters
    ----------
    path : path
        The file; where it is missing, it is made by the first `append`.
    mixed : bool
        Whether the file is meant to hold results for several targets. Then it is no error if all
        are for another one.

    Raises
    ------
    RecordError
        The file cannot be read, or is no file of tuning records.
    """

    def __init__(self, path: str | os.PathLike[str], *, mixed: bool = False) -> None:
        if not isinstance(path, str | os.PathLike):
            raise RecordError(
                f"{path!r} names no file of tuning records",
                fix="give its path, or tvmlab.tuning.Records(path)",
            )
        self.path = Path(path)
        self.mixed = mixed
        self._offset = self._number = 0
        self._checked: tuple[str, int] | None = None
        self._seen: set[str] = set()
        self._modules: dict[str, IRModule] = {}
        self._workloads: dict[str, Workload] = {}
        self._results: dict[str, list[Result]] = {}
        self._verdicts: list[Verdict] = []
        self.refresh()

    def __len__(self) -> int:
        """How many results there are."""
        return sum(map(len, self._results.values()))

    def refresh(self) -> None:
        """Read what other processes have written since; raise RecordError as `Records` does."""
        if not self.path.exists():
            return
        with self._opened("rb", "read", fcntl.LOCK_SH) as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        damaged: list[str] = []
        ours = False
        for line in filter(bytes.strip, data.splitlines()):
            self._number += 1
            try:
                self._keep(*_decode(line))
            except ValueError as error:
                damaged.append(f"{self._number} ({error})")
                ours = ours or line.startswith(_START)
        if damaged and not self._seen and not ours:
            raise RecordError(
                "this is no file of tuning records: none of its lines is a record",
                where=str(self.path),
                fix="give another path; tvmlab.tune makes the file",
            )
        if damaged:
            more = f" and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
            warnings.warn(
                f"{self.path}: {several(len(damaged), 'damaged line')} left out: "
                f"line {', '.join(damaged[:_SHOWN])}{more}",
                RuntimeWarning,
                stacklevel=3,
            )

    def _keep(self, check: str, entry: Workload | Result | Verdict) -> None:
        if check in self._seen:
            return
        self._seen.add(check)
        if isinstance(entry, Result):
            self._results.setdefault(entry.workload, []).append(entry)
        elif isinstance(entry, Verdict):
            self._verdicts.append(entry)
        else:
            self._workloads.setdefault(entry.id, entry)

    @contextlib.contextmanager
    def _opened(self, mode: str, what: str, lock: int) -> Iterator[IO[bytes]]:
        """Open the file and wait for the lock on it."""
        try:
            with open(self.path, mode) as file:
                fcntl.flock(file, lock)
                yield file
        except OSError as error:
            raise RecordError(
                f"the file of tuning records cannot be {what}: {error.strerror or error}",
                where=str(self.path),
                fix="give the path of a file, in a folder that is there and can be written",
            ) from error

    def append(self, *entries: Workload | Result | Verdict) -> int:
        """Write entries that are not in the file yet, and return their number.

        They are on the disk when this method returns.

        Raises
        ------
        RecordError
            The file cannot be written, or JSON has no form for a field of an entry.
        """
        fresh: dict[bytes, None] = {}
        for entry in entries:
            try:
                data = encode(entry)
            except (TypeError, ValueError) as error:
                raise RecordError(f"this is no record: {error}", where=str(self.path)) from error
            if data[len(_START) :][:16].decode() not in self._seen:
                fresh[data] = None
        if fresh:
            with self._opened("ab+", "written", fcntl.LOCK_EX) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 1))
                torn = size and file.read(1) != b"\n"  # a writer was killed
                file.write(b"\n" * bool(torn) + b"".join(fresh))
                file.flush()
                os.fsync(file.fileno())
            self.refresh()
        return len(fresh)

    @property
    def entries(self) -> list[Workload | Result | Verdict]:
        """All functions, results and verdicts."""
        return [*self._workloads.values(), *self.results(), *self._verdicts]

    def workload(self, module: IRModule | tirx.PrimFunc, name: str = "") -> str:
        """Return the `workload_id` of a function, and keep its text if the file does not have it.

        Raises
        ------
        RecordError
            The file cannot be written, or the module is not one function without a schedule.
        """
        module = normalized(module)
        found = workload_id(module)
        if found not in self._workloads:
            self.append(Workload(found, name, str(tvm.ir.save_json(module))))
        self._modules[found] = module
        return found

    @property
    def workloads(self) -> dict[str, str]:
        """The functions: from their `workload_id` to their names."""
        return {one: workload.name for one, workload in self._workloads.items()}

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts in the order of the file; the newest one holds."""
        return list(self._verdicts)

    def results(self, workload: str | None = None) -> list[Result]:
        """Return the results, all of them or those of a function, in the order of the file."""
        if workload is not None:
            return list(self._results.get(workload, ()))
        return [result for results in self._results.values() for result in results]

    def module(self, workload: str) -> IRModule:
        """Return a function as a module of one function ``main``, by its `workload_id`.

        Raises
        ------
        RecordError
            The file does not hold the function, or this TVM cannot read its text.
        """
        if workload not in self._modules:
            if workload not in self._workloads:
                raise RecordError("the records hold no such workload", where=str(self.path))
            try:
                module = normalized(tvm.ir.load_json(self._workloads[workload].module))
            except Exception as error:  # TVM raises several classes, by what is wrong
                raise RecordError(f"TVM cannot read a workload: {telling(error)}") from error
            self._modules[workload] = module
        return self._modules[workload]

    def check(self, target: tvm.target.Target) -> None:
        """Raise RecordError if there are entries, and none is for this target."""
        state = str(target), len(self._seen)
        if self.mixed or self._checked == state:
            return
        entries: list[Result | Verdict] = [*self.results(), *self._verdicts]
        reasons = list(filter(None, (mismatch(entry, target) for entry in entries)))
        if reasons and len(reasons) == len(entries):
            raise RecordError(
                f"none of {len(reasons)} tuning records is for this target: they are {reasons[0]}",
                where=str(self.path),
                fix="keep a file for each target; or say that this one is for several, with "
                "tvmlab.tuning.Records(path, mixed=True)",
            )
        self._checked = state

    def verdict(self, function: str, target: tvm.target.Target) -> Verdict | None:
        """Return the last verdict on a function, or None where nothing was decided.

        Parameters
        ----------
        function : str
            The `workload_id` of the function as the rules lay it out.
        target : tvm.target.Target
            The target to compile for.

        Raises
        ------
        RecordError
            There are records, and none is for this target, this TVM and this tvmlab.
        """
        self.check(target)
        return self._newest(target, [one for one in self._verdicts if one.function == function])

    def best(self, workload: str, target: tvm.target.Target) -> Verdict | Result | None:
        """Return what to schedule a function with.

        Parameters
        ----------
        workload : str
            The function's `workload_id`, as it is laid out.
        target : tvm.target.Target
            The target to compile for.

        Returns
        -------
        Verdict, Result or None
            The last verdict, whose trace is None where the rule stays. Without one, the fastest of
            what was imported: noise favoured the fastest of what was measured here, so that has to
            be compared with the rule first. Else None.

        Raises
        ------
        RecordError
            As of `verdict`.
        """
        self.check(target)
        decided = self._newest(target, [one for one in self._verdicts if one.workload == workload])
        imported = [
            one for one in self.results(workload) if one.imported and not mismatch(one, target)
        ]
        return decided or min(imported, key=lambda one: one.seconds, default=None)

    def _newest(self, target: tvm.target.Target, verdicts: list[Verdict]) -> Verdict | None:
        """Return the last verdict by date, because the lines of merged files are not in order."""
        found = [one for one in reversed(verdicts) if not mismatch(one, target)]
        return max(found, key=lambda one: one.date, default=None)


def existing(path: str | os.PathLike[str], *, mixed: bool = False) -> Records:
    """Open a file of records; raise RecordError if it is missing."""
    if isinstance(path, str | os.PathLike) and not Path(path).exists():
        raise RecordError(
            "there is no such file of tuning records",
            where=os.fspath(path),
            fix="check the path; tvmlab.tune(..., records=...) makes the file",
        )
    return Records(path, mixed=mixed)


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
        """Schedule a function as was decided; None where the rule stays."""
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
        warnings.warn(
            f"{records.path} decides about none of the functions of this module: it was made for "
            "another one, or tuning was interrupted: call tvmlab.tune again",
            RuntimeWarning,
            stacklevel=2,
        )


def recorded(records: Records | str | os.PathLike[str], target: tvm.target.Target) -> Recorded:
    """Open the records for a compilation; raise RecordError if the file is missing or wrong."""
    return Recorded(records if isinstance(records, Records) else existing(records), target)
