"""The file of tuning records: each measurement is appended as a line.

Each line is written under an exclusive lock, and synchronized with the disk, so
several processes can use one file. A process that is killed during a write leaves a partial line,
which the next writer terminates and every reader skips.
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
from typing import IO

import tvm
from tvm import s_tir, tirx
from tvm.ir import IRModule

from ..errors import RecordError
from ..support.wording import several, telling
from .entries import Result, Verdict, Workload, mismatch, normalized, replay, workload_id

_START = b'{"check":"'
_SHOWN = 3  # damaged lines that a warning names
_KINDS = {one.__name__.lower(): one for one in (Workload, Result, Verdict)}


def encode(entry: Workload | Result | Verdict) -> bytes:
    """Encode an entry as a line of JSON; raise ValueError or TypeError if that is impossible.

    ``check`` is the first 16 hexadecimal digits of the SHA-256 of the object without ``check``.
    """
    text = json.dumps(
        entry.line(), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()
    return _START + _checksum(text) + b'",' + text[1:] + b"\n"


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


def _decode(line: bytes) -> tuple[bytes, Workload | Result | Verdict]:
    """Parse a line's checksum and entry; raise ValueError if the line is damaged."""
    start, check, text = line[:10], line[10:26], b"{" + line[28:].rstrip()
    if start != _START or check != _checksum(text):
        raise ValueError("its checksum is wrong")
    try:
        fields = json.loads(text)
        return check, _KINDS[fields["kind"]].of(fields)
    except (LookupError, TypeError, ValueError):
        raise ValueError("its kind is unknown") from None


class Records:
    """A file of tuning records.

    Each line is a JSON object: a workload (a function's text), a result (one measurement), or a
    verdict (a decision about a function). Damaged lines are skipped, with a warning.

    Parameters
    ----------
    path : path
        The file; if it is missing, the first `append` creates it.
    existing : bool
        Whether a missing file is an error.

    Raises
    ------
    RecordError
        The file cannot be read, or is not a file of tuning records.
    """

    def __init__(self, path: str | os.PathLike[str], *, existing: bool = False) -> None:
        if not isinstance(path, str | os.PathLike):
            raise RecordError(
                f"{path!r} is not the path of a file of tuning records",
                fix="pass a path, or tvmlab.tuning.Records(path)",
            )
        self.path = Path(path)
        if existing and not self.path.exists():
            raise RecordError(
                "there is no such file of tuning records",
                where=str(path),
                fix="check the path; tvmlab.tune(..., records=...) creates the file",
            )
        self.entries: list[Workload | Result | Verdict] = []
        self._offset = self._number = 0
        self._seen: set[bytes] = set()
        self.refresh()

    def __len__(self) -> int:
        """The number of results."""
        return len(self.results())

    def refresh(self) -> None:
        """Read new lines of other processes; raise RecordError as `Records` does."""
        if not self.path.exists():
            return
        with self._opened("rb", "read", fcntl.LOCK_SH) as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        damaged: list[str] = []
        lines = [line for line in data.splitlines() if line.strip()]
        for line in lines:
            self._number += 1
            try:
                check, entry = _decode(line)
            except ValueError as error:
                damaged.append(f"{self._number} ({error})")
                continue
            if check not in self._seen:
                self._seen.add(check)
                self.entries.append(entry)
        if lines and not self._seen and not any(one.startswith(_START) for one in lines):
            raise RecordError(
                "this is not a file of tuning records: no line is a record",
                where=str(self.path),
                fix="pass another path; tvmlab.tune creates the file",
            )
        if damaged:
            more = f" and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
            warnings.warn(
                f"{self.path}: {several(len(damaged), 'damaged line')} left out: "
                f"line {', '.join(damaged[:_SHOWN])}{more}",
                RuntimeWarning,
                stacklevel=3,
            )

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
                fix="pass the path of a file in an existing folder that you can write to",
            ) from error

    def append(self, *entries: Workload | Result | Verdict) -> int:
        """Write entries that are not in the file yet, and return their number.

        They are on the disk when this method returns.

        Raises
        ------
        RecordError
            The file cannot be written, or JSON cannot represent a field of an entry.
        """
        fresh: dict[bytes, None] = {}
        for entry in entries:
            try:
                data = encode(entry)
            except (TypeError, ValueError) as error:
                raise RecordError(f"this is not a record: {error}", where=str(self.path)) from error
            if data[10:26] not in self._seen:
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

    def workload(self, module: IRModule | tirx.PrimFunc, name: str = "") -> str:
        """Return the `workload_id` of a function, and store its text if the file does not have it.

        Raises
        ------
        RecordError
            The file cannot be written, or the module is not one function without a schedule.
        """
        module = normalized(module)
        found = workload_id(module)
        if found not in self.workloads:
            self.append(Workload(found, name, str(tvm.ir.save_json(module))))
        return found

    @property
    def workloads(self) -> dict[str, str]:
        """The functions' names by `workload_id`."""
        return {one.id: one.name for one in self.entries if isinstance(one, Workload)}

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts in the order of the file; the newest one applies."""
        return [one for one in self.entries if isinstance(one, Verdict)]

    def results(self, workload: str | None = None) -> list[Result]:
        """Return all results, or those of one function, in the order of the file."""
        found = [one for one in self.entries if isinstance(one, Result)]
        return found if workload is None else [one for one in found if one.workload == workload]

    def module(self, workload: str) -> IRModule:
        """Return a function as a module of one function ``main``, by its `workload_id`.

        Raises
        ------
        RecordError
            The file does not contain the function, or this TVM cannot read its text.
        """
        held = (one for one in self.entries if isinstance(one, Workload) and one.id == workload)
        if (found := next(held, None)) is None:
            raise RecordError("the records do not contain this workload", where=str(self.path))
        try:
            return normalized(tvm.ir.load_json(found.module))
        except Exception as error:  # TVM raises several classes, by what is wrong
            raise RecordError(f"TVM cannot read a workload: {telling(error)}") from error

    def verdict(self, function: str, target: tvm.target.Target) -> Verdict | None:
        """Return the last verdict on a function, by its `workload_id` in the rules' layout."""
        return _newest(target, [one for one in self.verdicts if one.function == function])

    def best(self, workload: str, target: tvm.target.Target) -> Verdict | None:
        """Return the last verdict on a function, by its `workload_id` in the current layout."""
        return _newest(target, [one for one in self.verdicts if one.workload == workload])


def _newest(target: tvm.target.Target, verdicts: list[Verdict]) -> Verdict | None:
    """Return the last verdict by date, because the lines of merged files are not in order."""
    found = [one for one in reversed(verdicts) if not mismatch(one, target)]
    return max(found, key=lambda one: one.date, default=None)


class Recorded:
    """The records that a compilation for one target uses: a `tvmlab.schedule.Tuned`.

    Raises RecordError if the file is missing, is not a file of records, or has none for the target.
    """

    def __init__(
        self, records: Records | str | os.PathLike[str], target: tvm.target.Target
    ) -> None:
        self._records = records if isinstance(records, Records) else Records(records, existing=True)
        self._target, self._knew = target, False
        entries: list[Result | Verdict] = [*self._records.results(), *self._records.verdicts]
        reasons = [mismatch(entry, target) for entry in entries]
        if reasons and all(reasons):
            raise RecordError(
                f"none of {len(reasons)} tuning records is for this target: they are {reasons[0]}",
                where=str(self._records.path),
                fix="tune for this target, too: one file can hold records for several targets",
            )

    def layout(self, func: tirx.PrimFunc) -> str | None:
        """Return the verdict's layout for a function's operator, or None."""
        verdict = self._records.verdict(workload_id(func), self._target)
        return None if verdict is None else verdict.layout

    def schedule(self, func: tirx.PrimFunc) -> s_tir.Schedule | None:
        """Schedule a function by its verdict; None if the rule stays."""
        found = self._records.best(workload_id(func), self._target)
        self._knew = self._knew or found is not None
        if found is None or found.trace is None:
            return None
        try:
            return replay(IRModule({"main": func}), found.trace)
        except RecordError as error:
            self._warn(f": the schedule of {found.task} is left out: {error.what}")
            return None

    def done(self) -> None:
        """Warn if the records have no verdict on any function."""
        if not self._knew:
            self._warn(
                " has no verdict on any function of this module: it is for another module, "
                "or tuning was interrupted; call tvmlab.tune again"
            )

    def _warn(self, what: str) -> None:
        warnings.warn(f"{self._records.path}{what}", RuntimeWarning, stacklevel=3)
