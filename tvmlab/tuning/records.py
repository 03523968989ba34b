"""The file of tuning records: what was measured, kept line by line as it is measured."""

from __future__ import annotations

import json
import os
import statistics
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import IRModule

from ..errors import RecordError
from .journal import Journal
from .lines import START, decode, encode
from .result import Decision, Result, fits, target_data
from .workloads import from_text, normalized, to_text, workload_id

__all__ = ["Records"]

# Measured in turn, a candidate has to win by this much; measured apart, by more.
_DUEL, _APART = 0.98, 0.95
_SHOWN = 3  # damaged lines that a warning names


class Records:
    """A file of tuning records.

    Each line is a JSON object: a workload (a function's text), a result, or the layout that was
    decided on for an operator. A line that is damaged is left out, with a warning.

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
        self.path = Path(path)
        self.mixed = mixed
        self._journal = Journal(self.path)
        self._forget()
        self._told: set[str] = set()
        self.refresh()

    def _forget(self) -> None:
        self._seen: set[bytes] = set()
        self._modules: dict[str, IRModule] = {}
        self._texts: dict[str, tuple[int, str]] = {}
        self._names: dict[str, str] = {}
        self._results: dict[str, list[Result]] = {}
        self._decisions: list[Decision] = []
        self._fit: dict[tuple[str, str], str] = {}

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
        damaged: list[str] = []
        good = len(self._seen)
        for number, line in self._journal.unread():
            if number == 1:
                self._forget()
                good = 0
            good += self._take(number, line, damaged)
        torn = self._journal.torn
        if torn.strip():
            trouble = self._take(self._journal.number + 1, torn, [])
            ours = START.startswith(torn[: len(START)])
            if not trouble:
                damaged.append(f"{self._journal.number + 1} (it is torn)" if ours else "last")
            good += trouble or ours
        if damaged and not good:
            raise RecordError(
                "this is no file of tuning records: none of its lines is a record",
                where=str(self.path),
                fix="give another path; tvmlab.tune makes the file",
            )
        if damaged:
            more = f" and {len(damaged) - _SHOWN} more" if len(damaged) > _SHOWN else ""
            warnings.warn(
                f"{self.path}: {len(damaged)} damaged line{'s' * (len(damaged) > 1)} left out: "
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
        elif kind == "layout":
            self._decisions.append(Decision.of(fields))
        elif kind == "workload":
            texts = [fields.get(name) for name in ("id", "name", "module")]
            if not all(isinstance(text, str) for text in texts) or not texts[0]:
                raise ValueError("a field of it is missing or no text")
            named, name, text = map(str, texts)
            self._texts.setdefault(named, (number, text))
            self._names.setdefault(named, name)
        else:
            raise ValueError("it is of no kind that is known")

    def _append(self, *lines: dict[str, Any]) -> None:
        try:
            data = b"".join(encode(line) for line in lines)
        except (TypeError, ValueError) as error:
            raise RecordError(
                f"this cannot be written as JSON: {error}", where=str(self.path)
            ) from error
        self._journal.append(data)
        self.refresh()

    def workload(self, module: IRModule | tirx.PrimFunc, name: str = "") -> str:
        """Name a function, and keep its text where it is not in the file yet.

        Parameters
        ----------
        module : tvm.ir.IRModule or tvm.tirx.PrimFunc
            One function that nobody has scheduled.
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
        if named not in self._texts:
            text = to_text(plain)
            self._append({"kind": "workload", "id": named, "name": name, "module": text})
        self._modules.setdefault(named, plain)
        return named

    def append(self, result: Result) -> None:
        """Write a result, and see it to the disk.

        Parameters
        ----------
        result : Result
            Of a function that `workload` has named.

        Raises
        ------
        RecordError
            The file cannot be written, or a field of the result is not what it should be.
        """
        line = result.line()
        try:
            Result.of(line)
        except ValueError as error:
            raise RecordError(f"this is no result: {error}", where=result.task) from error
        self._append(line)

    def decide(self, operator: str, layout: str, target: tvm.target.Target) -> None:
        """Write down which layout an operator shall have; the last word holds.

        Parameters
        ----------
        operator, layout : str
            The operator and the layout; empty is what the rules choose.
        target : tvm.target.Target
            What it was decided for.

        Raises
        ------
        RecordError
            The file cannot be written.
        """
        self._append(Decision(operator, layout, target_data(target)).line())

    @property
    def workloads(self) -> dict[str, str]:
        """The functions: from their `workload_id` to their names."""
        return dict(self._names)

    @property
    def decisions(self) -> list[Decision]:
        """The layouts that were decided on, in their order."""
        return list(self._decisions)

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
        """
        if workload not in self._modules:
            number, text = self._texts.get(workload, (0, ""))
            if not text:
                raise RecordError(
                    "the records hold no such workload", where=f"{self.path}: {workload}"
                )
            try:
                self._modules[workload] = from_text(text, workload)
            except RecordError as error:
                where = f"{self.path}, line {number}"
                raise RecordError(error.what, where=where, fix="tune the function again") from error
        return self._modules[workload]

    def _fitting(self, found: Iterable[Any], target: tvm.target.Target) -> list[Any]:
        """Take the results or decisions that hold for a target."""
        ours = str(target)
        fitting = []
        for one in found:
            key = (f"{one.tvm} {json.dumps(one.target, sort_keys=True)}", ours)
            if key not in self._fit:
                self._fit[key] = fits(one, target)
            if not self._fit[key]:
                fitting.append(one)
        return fitting

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
        everything = [*self.results(), *self._decisions]
        count = len(everything) - len(self._fitting(everything, target))
        if not count:
            return
        reasons = {self._fit[key]: None for key in self._fit if key[1] == str(target)}
        said = "; ".join([reason for reason in reasons if reason][:_SHOWN])
        if count == len(everything):
            raise RecordError(
                f"none of {count} tuning records is for this target: they are {said}",
                where=str(self.path),
                fix="tune for this target, or compile without these records",
            )
        self._told.add(str(target))
        warnings.warn(
            f"{self.path}: {count} of {len(everything)} tuning records are ignored: {said}",
            RuntimeWarning,
            stacklevel=3,
        )

    def layouts(self, target: tvm.target.Target) -> dict[str, str]:
        """Give the layouts that were decided on, of operators that shall not have the rules' own.

        Parameters
        ----------
        target : tvm.target.Target
            What is to be compiled for.

        Returns
        -------
        dict of str to str
            From operators to layouts.

        Raises
        ------
        RecordError
            There are results, and none is for this target and this TVM.
        """
        self.check(target)
        fitting = self._fitting(self._decisions, target)
        last = {decision.operator: decision.layout for decision in fitting}
        return {operator: layout for operator, layout in last.items() if layout}

    def best(self, workload: str, target: tvm.target.Target) -> Result | None:
        """Give what a function shall be scheduled with.

        Parameters
        ----------
        workload : str
            Its `workload_id`.
        target : tvm.target.Target
            What is to be compiled for.

        Returns
        -------
        Result or None
            The candidate of the last duel, where it needed less than 0.98 of the rule's time. Where
            there was no duel: the fastest that was found, where it needed less than 0.95 of the
            rule's time; or the fastest, where the rule was not measured. Else None, and the rule
            stays.

        Raises
        ------
        RecordError
            There are results, and none is for this target and this TVM.
        """
        self.check(target)
        return decisive(self._fitting(self._results.get(workload, ()), target))


def decisive(results: Iterable[Result]) -> Result | None:
    """Choose among a function's results for one target: see `Records.best`."""
    worked = [result for result in results if result.times]
    duels = [result for result in worked if result.against]
    if duels:
        return duels[-1] if duels[-1].ratio < _DUEL else None
    found = [result for result in worked if result.origin == "search"]
    rules = [result.seconds for result in worked if result.origin == "rule"]
    fastest = min(found, key=lambda result: result.seconds, default=None)
    if fastest is not None and rules and fastest.seconds >= _APART * statistics.median(rules):
        return None
    return fastest
