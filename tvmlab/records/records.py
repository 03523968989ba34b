"""The file of tuning records: what was measured, kept line by line as it is measured.

Each line is written by one call while no other process writes or reads, and seen to the disk, so
several processes can use one file. A process that is killed during a write leaves a torn line,
which the next writer ends and every reader leaves out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import tvm
from tvm import tirx
from tvm.ir import IRModule

from ..errors import RecordError
from ..support.wording import several, telling
from .result import Result, Verdict, Workload, mismatch
from .traces import normalized, workload_id

__all__ = ["Records", "encode", "existing", "fastest", "newest"]

_START = b'{"check":"'
_SHOWN = 3  # damaged lines that a warning names
_KINDS: dict[str, type[Workload] | type[Result] | type[Verdict]] = {
    "workload": Workload,
    "result": Result,
    "verdict": Verdict,
}


def encode(entry: Workload | Result | Verdict) -> bytes:
    """Write an entry as a line of JSON; raise ValueError or TypeError if it is none.

    ``check`` is the first 16 hexadecimal digits of the SHA-256 of the object without it, written
    with sorted keys and no spaces.
    """
    line = entry.line()
    type(entry).of(line)
    text = _canonical(line)
    return _START + _checksum(text).encode() + b'",' + text[1:] + b"\n"


def _canonical(fields: dict[str, Any]) -> bytes:
    return json.dumps(
        fields, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode()


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def _decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """Read a line; raise ValueError if it is damaged."""
    try:
        fields = json.loads(line)
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(fields, dict) or "check" not in fields:
        raise ValueError("it has no checksum")
    check = fields.pop("check")
    if _checksum(_canonical(fields)) != check:
        raise ValueError("its checksum is wrong")
    return check, fields


def newest(verdicts: Iterable[Verdict]) -> Verdict | None:
    """Return the last verdict by date, because the lines of merged files are not in order."""
    return max(reversed(list(verdicts)), key=lambda verdict: verdict.date, default=None)


def fastest(results: Iterable[Result]) -> Result | None:
    """Return the fastest imported result, which holds where there is no verdict.

    The fastest of many that were measured here is the one that noise favoured the most, so it has
    to be compared with the rule first.
    """
    imported = [result for result in results if result.times and not result.how]
    return min(imported, key=lambda result: result.seconds, default=None)


class Records:
    """A file of tuning records.

    Each line is a JSON object: a workload (a function's text), a result (one measurement), or a
    verdict (a decision about a function). Damaged lines are left out, with a warning.

    Parameters
    ----------
    path : path
        The file; where it is missing, it is made by the first `append`.
    mixed : bool
        Whether the file is meant to hold results for several targets. Then those for another one
        are neither an error nor worth a warning.

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
        self._inode = 0
        self._told: set[str] = set()
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        self._offset = self._number = 0
        self._torn = False
        self._seen: set[str] = set()
        self._modules: dict[str, IRModule] = {}
        self._workloads: dict[str, Workload] = {}
        self._results: dict[str, list[Result]] = {}
        self._verdicts: list[Verdict] = []

    def __len__(self) -> int:
        """How many results there are."""
        return sum(map(len, self._results.values()))

    def refresh(self) -> None:
        """Read what other processes have written since.

        Raises
        ------
        RecordError
            The file cannot be read, or is no file of tuning records.
        """
        data = b""
        if self.path.exists():
            with self._opened("rb", "read", fcntl.LOCK_SH) as file:
                found = os.fstat(file.fileno())
                if found.st_ino != self._inode or found.st_size < self._offset:
                    self._forget()
                self._inode = found.st_ino
                file.seek(self._offset)
                data = file.read()
        elif self._offset:
            self._forget()
        self._offset += len(data)
        damaged: list[str] = []
        ours = False
        lines = data.splitlines()[self._torn and data.startswith(b"\n") :]
        self._torn = data[-1:] != b"\n" if data else self._torn
        for line in lines:
            self._number += 1
            if line.strip():
                try:
                    self._keep(*_decode(line))
                except (ValueError, OverflowError, RecursionError) as error:
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

    def _keep(self, check: str, fields: dict[str, Any]) -> None:
        if check in self._seen:
            return
        kind = _KINDS.get(str(fields.get("kind")))
        if kind is None:
            raise ValueError("it is of no known kind")
        entry = kind.of(fields)
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
            if self.path.exists() and not self.path.is_file():
                raise OSError(errno.EINVAL, "it is no regular file")
            while True:
                with open(self.path, mode, buffering=0) as file:
                    fcntl.flock(file, lock)
                    # Another process can replace the file while this one waits for the lock.
                    if self.path.exists() and os.path.samestat(
                        os.fstat(file.fileno()), os.stat(self.path)
                    ):
                        yield file
                        return
        except OSError as error:
            raise RecordError(
                f"the file of tuning records cannot be {what}: {error.strerror or error}",
                where=str(self.path),
                fix="give the path of a file, in a folder that is there and can be written",
            ) from error

    def add(self, entries: Iterable[Workload | Result | Verdict]) -> int:
        """Write what is not in the file yet, and see it to the disk.

        Parameters
        ----------
        entries : iterable of Workload, Result or Verdict
            For instance the `entries` of another file.

        Returns
        -------
        int
            Lines that were written.

        Raises
        ------
        RecordError
            The file cannot be written, or an entry has a wrong field.
        """
        fresh: dict[bytes, None] = {}
        for entry in entries:
            try:
                data = encode(entry)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                raise RecordError(f"this is no record: {error}", where=str(self.path)) from error
            if data[len(_START) :][:16].decode() not in self._seen:
                fresh[data] = None
        if fresh:
            self._append(b"".join(fresh))
            self.refresh()
        return len(fresh)

    def _append(self, data: bytes) -> None:
        with self._opened("ab+", "written", fcntl.LOCK_EX) as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                if file.read(1) != b"\n":  # a writer was killed
                    data = b"\n" + data
            try:
                if file.write(data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), size)
                raise

    @property
    def entries(self) -> list[Workload | Result | Verdict]:
        """All functions, results and verdicts."""
        return [*self._workloads.values(), *self.results(), *self._verdicts]

    def workload(self, module: IRModule | tirx.PrimFunc, name: str = "") -> str:
        """Name a function, and keep its text where it is not in the file yet.

        Parameters
        ----------
        module : tvm.ir.IRModule or tvm.tirx.PrimFunc
            One function without a schedule.
        name : str
            The function's name for readers.

        Returns
        -------
        str
            Its `workload_id`.

        Raises
        ------
        RecordError
            The file cannot be written, or the module is not one function.
        """
        module = normalized(module)
        named = workload_id(module)
        if named not in self._workloads:
            self.add([Workload(named, name, str(tvm.ir.save_json(module)))])
        self._modules[named] = module
        return named

    def append(self, entry: Result | Verdict) -> None:
        """Write a result or a verdict of a function that `workload` has named.

        Parameters
        ----------
        entry : Result or Verdict
            It is on the disk when this method returns.

        Raises
        ------
        RecordError
            The file cannot be written, or a field is wrong.
        """
        self.add([entry])

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
        """Return a function that is kept here.

        Parameters
        ----------
        workload : str
            Its `workload_id`.

        Returns
        -------
        tvm.ir.IRModule
            One function ``main``.

        Raises
        ------
        RecordError
            It is not kept here, or its text is damaged.
        """
        if workload not in self._modules:
            if workload not in self._workloads:
                raise RecordError("the records hold no such workload", where=str(self.path))
            module = read_module(self._workloads[workload].module)
            if workload_id(module) != workload:
                raise RecordError("a workload's text is that of another function")
            self._modules[workload] = module
        return self._modules[workload]

    def check(self, target: tvm.target.Target) -> None:
        """Warn once of results that do not hold for a target, and refuse a file where none does.

        Parameters
        ----------
        target : tvm.target.Target
            The target to compile for.

        Raises
        ------
        RecordError
            There are results, and none is for this target and this TVM.
        """
        key = f"{target} {len(self)} {len(self._verdicts)}"
        if self.mixed or {str(target), key} & self._told:
            return
        entries: list[Result | Verdict] = [*self.results(), *self._verdicts]
        reasons = [mismatch(entry, target) for entry in entries]
        count = sum(map(bool, reasons))
        said = "; ".join(list(dict.fromkeys(filter(None, reasons)))[:_SHOWN])
        if count and count == len(reasons):
            raise RecordError(
                f"none of {count} tuning records is for this target: they are {said}",
                where=str(self.path),
                fix="keep a file for each target; or say that this one is for several, with "
                "tvmlab.tuning.Records(path, mixed=True)",
            )
        self._told.add(str(target) if count else key)
        if count:
            warnings.warn(
                f"{self.path}: {count} of {len(reasons)} tuning records are ignored: {said}",
                RuntimeWarning,
                stacklevel=3,
            )

    def verdict(self, function: str, target: tvm.target.Target) -> Verdict | None:
        """Return the last verdict on a function.

        Parameters
        ----------
        function : str
            The `workload_id` of the function as the rules lay it out.
        target : tvm.target.Target
            The target to compile for.

        Returns
        -------
        Verdict or None
            None where nothing was decided: tuning that was interrupted goes on to it.

        Raises
        ------
        RecordError
            There are records, and none is for this target, this TVM and this tvmlab.
        """
        self.check(target)
        found = [one for one in self._verdicts if one.function == function]
        return newest(one for one in found if not mismatch(one, target))

    def best(self, workload: str, target: tvm.target.Target) -> Verdict | Result | None:
        """Return what to schedule a function with.

        Parameters
        ----------
        workload : str
            Its `workload_id`, as it is laid out.
        target : tvm.target.Target
            The target to compile for.

        Returns
        -------
        Verdict, Result or None
            The last verdict, whose trace is None where the rule stays. Without one, the fastest of
            what was imported. Else None.

        Raises
        ------
        RecordError
            There are records, and none is for this target, this TVM and this tvmlab.
        """
        self.check(target)
        found = [one for one in self._verdicts if one.workload == workload]
        decided = newest(one for one in found if not mismatch(one, target))
        return decided or fastest(r for r in self.results(workload) if not mismatch(r, target))


@functools.lru_cache(maxsize=64)
def read_module(text: str) -> IRModule:
    """Read a function's text; raise RecordError if it is damaged."""
    try:
        return normalized(tvm.ir.load_json(text))
    except Exception as error:  # TVM raises several classes, by what is wrong
        raise RecordError(f"TVM cannot read a workload's text: {telling(error)}"[:500]) from error


def existing(path: str | os.PathLike[str], *, mixed: bool = False) -> Records:
    """Open a file of records; raise RecordError if it is missing."""
    if isinstance(path, str | os.PathLike) and not Path(path).exists():
        raise RecordError(
            "there is no such file of tuning records",
            where=os.fspath(path),
            fix="check the path; tvmlab.tune(..., records=...) makes the file",
        )
    return Records(path, mixed=mixed)
