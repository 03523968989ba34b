"""The file of tuning records: what was measured, kept line by line as it is measured."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule

from ..errors import RecordError
from ..support.wording import several
from .choosing import Fitting, fastest, newest
from .journal import Journal
from .lines import START, decode, encode
from .reading import read_modules
from .result import Result, Workload
from .verdict import Verdict
from .workloads import normalized, to_text, workload_id

__all__ = ["Records"]

_TOGETHER = 1000  # lines that are written at once
_SHOWN = 3  # damaged lines that a warning names


class Records:
    """A file of tuning records.

    Each line is a JSON object: a workload (a function's text), a result (one measurement), or a
    verdict (what was decided about a function). A line that is damaged is left out, with a warning.

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
        self._journal = Journal(self.path)
        self._forget()
        self._told: set[str] = set()
        self._torn = b""
        self._fitting = Fitting()
        self.refresh()

    def _forget(self) -> None:
        self._seen: set[bytes] = set()
        self._modules: dict[str, IRModule] = {}
        self._workloads: dict[str, tuple[int, Workload]] = {}
        self._results: dict[str, list[Result]] = {}
        self._verdicts: list[Verdict] = []
        self._judged: dict[str, list[Verdict]] = {}
        self._decided: dict[str, list[Verdict]] = {}

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
        anew, lines = self._journal.unread()
        if anew:
            self._forget()
        damaged: list[str] = []
        good = len(self._seen) + sum(self._take(at, line, damaged) for at, line in lines)
        torn = self._journal.torn
        if torn.strip():
            last: list[str] = []
            good += self._take(self._journal.number + 1, torn, last)
            if last and START.startswith(torn[: len(START)]):
                last = [f"{self._journal.number + 1} (it is torn)"]
                good += 1
            if last and torn != self._torn:
                damaged += last
        self._torn = torn
        if damaged and not good:
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

    def _take(self, number: int, line: bytes, damaged: list[str]) -> bool:
        """Take a line in; tell whether it is one."""
        start = line[: len(START) + 16]
        if start in self._seen and line.startswith(START):
            return True  # a line that stands there twice
        try:
            fields = decode(line)
            self._keep(number, fields)
        except ValueError as error:
            damaged.append(f"{number} ({error})")
            return False
        self._seen.add(start)
        return True

    def _keep(self, number: int, fields: dict[str, Any]) -> None:
        kind = fields.get("kind")
        if kind == "result":
            result = Result.of(fields)
            self._results.setdefault(result.workload, []).append(result)
        elif kind == "verdict":
            verdict = Verdict.of(fields)
            self._verdicts.append(verdict)
            self._judged.setdefault(verdict.function, []).append(verdict)
            self._decided.setdefault(verdict.workload, []).append(verdict)
        elif kind == "workload":
            workload = Workload.of(fields)
            self._workloads.setdefault(workload.id, (number, workload))
        else:
            raise ValueError("it is of no kind that is known")

    def add(self, entries: Iterable[Workload | Result | Verdict]) -> int:
        """Write what is not here yet, and see it to the disk.

        Parameters
        ----------
        entries : iterable of Workload, Result or Verdict
            For instance those of another file: `entries`.

        Returns
        -------
        int
            Lines that were written.

        Raises
        ------
        RecordError
            The file cannot be written, or an entry has a field that is not what it should be.
        """
        fresh: dict[bytes, None] = {}
        for entry in entries:
            try:
                line = entry.line()
                entry.of(line)
                data = encode(line)
            except (TypeError, ValueError, RecursionError) as error:
                raise RecordError(f"this is no record: {error}", where=str(self.path)) from error
            if data[: len(START) + 16] not in self._seen:
                fresh[data] = None
        lines = list(fresh)
        for at in range(0, len(lines), _TOGETHER):
            self._journal.append(b"".join(lines[at : at + _TOGETHER]))
        if lines:
            self.refresh()
        return len(lines)

    @property
    def entries(self) -> list[Workload | Result | Verdict]:
        """Everything that is kept here: functions, results and verdicts."""
        workloads = [workload for _, workload in self._workloads.values()]
        return [*workloads, *self.results(), *self._verdicts]

    def workload(self, module: IRModule | tirx.PrimFunc, name: str = "") -> str:
        """Name a function, and keep its text where it is not in the file yet.

        Parameters
        ----------
        module : tvm.ir.IRModule or tvm.tirx.PrimFunc
            One function without a schedule.
        name : str
            What a reader calls it.

        Returns
        -------
        str
            Its `workload_id`.

        Raises
        ------
        RecordError
            The file cannot be written, or the module is not one function.
        """
        plain = normalized(module)
        named = workload_id(plain)
        if named not in self._workloads:
            self.add([Workload(named, name, to_text(plain))])
        self._modules.setdefault(named, plain)
        return named

    def append(self, entry: Result | Verdict) -> None:
        """Write a result or a verdict, and see it to the disk.

        Parameters
        ----------
        entry : Result or Verdict
            Of a function that `workload` has named.

        Raises
        ------
        RecordError
            The file cannot be written, or a field is not what it should be.
        """
        self.add([entry])

    @property
    def workloads(self) -> dict[str, str]:
        """The functions: from their `workload_id` to their names."""
        return {one: workload.name for one, (_, workload) in self._workloads.items()}

    @property
    def verdicts(self) -> list[Verdict]:
        """What was decided about functions, in the order of the file; the newest word holds."""
        return list(self._verdicts)

    def results(self, workload: str | None = None) -> list[Result]:
        """Give the results, all of them or those of a function, in the order of the file."""
        if workload is not None:
            return list(self._results.get(workload, ()))
        return [result for results in self._results.values() for result in results]

    def module(self, workload: str) -> IRModule:
        """Give a function that is kept here.

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

        Notes
        -----
        A text from a file is first read by another process, which takes some seconds: see
        `read_modules`. Where several are needed, `modules` does it once for all of them.
        """
        found = self.modules([workload])[workload]
        if isinstance(found, str):
            known = self._workloads.get(workload)
            where = f"{self.path}, line {known[0]}" if known else f"{self.path}: {workload}"
            raise RecordError(found, where=where, fix="tune the function again")
        return found

    def modules(self, workloads: Iterable[str] | None = None) -> dict[str, IRModule | str]:
        """Give several functions, or all that are kept here.

        Parameters
        ----------
        workloads : iterable of str, optional
            Their `workload_id`.

        Returns
        -------
        dict of str to (tvm.ir.IRModule or str)
            By `workload_id`, one function ``main``; or why it cannot be had.
        """
        wanted = list(self._workloads if workloads is None else workloads)
        missing = [one for one in wanted if one not in self._modules and one in self._workloads]
        read = read_modules([self._workloads[one][1].module for one in missing])
        found: dict[str, IRModule | str] = dict.fromkeys(
            wanted, "the records hold no such workload"
        )
        for one, module in zip(missing, read, strict=True):
            if isinstance(module, str):
                found[one] = module
            elif workload_id(module) != one:
                found[one] = "a workload's text is that of another function"
            else:
                self._modules[one] = module
        return found | {one: self._modules[one] for one in wanted if one in self._modules}

    def check(self, target: tvm.target.Target) -> None:
        """Warn once of results that do not hold for a target, and refuse a file where none does.

        Parameters
        ----------
        target : tvm.target.Target
            What is to be compiled for.

        Raises
        ------
        RecordError
            There are results, and none is for this target and this TVM.
        """
        if self.mixed or str(target) in self._told:
            return
        key = f"{target} {len(self)} {len(self._verdicts)}"
        if key in self._told:
            return
        everything: list[Result | Verdict] = [*self.results(), *self._verdicts]
        reasons = [self._fitting.reason(entry, target) for entry in everything]
        count = sum(map(bool, reasons))
        if count < len(everything) or not count:
            self._told.add(key)
        if not count:
            return
        said = "; ".join(list(dict.fromkeys(filter(None, reasons)))[:_SHOWN])
        if count == len(everything):
            raise RecordError(
                f"none of {count} tuning records is for this target: they are {said}",
                where=str(self.path),
                fix="keep a file for each target; or say that this one is for several, with "
                "tvmlab.tuning.Records(path, mixed=True)",
            )
        self._told.add(str(target))
        warnings.warn(
            f"{self.path}: {count} of {len(everything)} tuning records are ignored: {said}",
            RuntimeWarning,
            stacklevel=3,
        )

    def verdict(self, function: str, target: tvm.target.Target) -> Verdict | None:
        """Give the last word on a function.

        Parameters
        ----------
        function : str
            The `workload_id` of the function as the rules lay it out.
        target : tvm.target.Target
            What is to be compiled for.

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
        return newest(self._fitting.take(self._judged.get(function, ()), target))

    def best(self, workload: str, target: tvm.target.Target) -> Verdict | Result | None:
        """Return what to schedule a function with.

        Parameters
        ----------
        workload : str
            Its `workload_id`, as it is laid out.
        target : tvm.target.Target
            What is to be compiled for.

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
        decided = newest(self._fitting.take(self._decided.get(workload, ()), target))
        return decided or fastest(self._fitting.take(self._results.get(workload, ()), target))
