"""What was measured of one candidate, where, and with what."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import tvm

import tvmlab

from ..errors import RecordError
from ..support.host import processor_name
from .lines import Raw
from .traces import plain

__all__ = [
    "MOST_SECONDS",
    "Result",
    "Workload",
    "check_date",
    "check_target",
    "check_text",
    "now",
    "seconds_of",
    "target_data",
]

_ORIGINS = ("rule", "search")
_LONGEST_TEXT, _LONGEST_TARGET, _LONGEST_MODULE = 100_000, 10_000, 1 << 28
_MOST_SAMPLES, MOST_SECONDS = 100_000, 1e6
_ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def now() -> str:
    """Say when it is, in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat()


def target_data(target: tvm.target.Target) -> dict[str, Any]:
    """Write a target as plain data."""
    exported: dict[str, Any] = plain(target.export())
    return exported


@dataclass(frozen=True, eq=False)
class Result:
    """One measurement: a line of a record file.

    Attributes
    ----------
    workload : str
        The function: its `workload_id`.
    task : str
        The task's name.
    origin : str
        ``"rule"`` for a schedule of a rule of `tvmlab.schedule`, ``"search"`` for a found one.
    trace : list
        The schedule, as `tvmlab.records.traces.as_data` writes it.
    target : dict
        What it was compiled for, as `target_data` writes it.
    threads : int
        Threads that it ran with.
    operator, layout : str
        The operator and the way in which its weights are packed; empty where there is no choice.
    times : tuple of float
        Seconds a call, one number a sample; empty where the candidate failed.
    error : str
        Why it failed; else empty.
    how : str
        What was asked of the clock, as `how` in `tvmlab.tuning.measure` says it: times that were
        taken in other ways do not compare.
    answer : tuple of float
        The fingerprint of what it computed: see `Outcome`.
    tuner : str
        Who proposed it.
    seed : int
        The seed of the search.
    cpu : str
        The processor that it ran on, by its maker's name.
    tvm, tvmlab : str
        Versions.
    date : str
        When, in ISO 8601, UTC.
    """

    workload: str
    task: str
    origin: str
    trace: list[Any]
    target: dict[str, Any]
    threads: int
    operator: str = ""
    layout: str = ""
    times: tuple[float, ...] = ()
    error: str = ""
    how: str = ""
    answer: tuple[float, ...] = ()
    tuner: str = ""
    seed: int = 0
    cpu: str = field(default_factory=processor_name)
    tvm: str = tvm.__version__
    tvmlab: str = field(default_factory=lambda: tvmlab.__version__)
    date: str = field(default_factory=now)

    @property
    def seconds(self) -> float:
        """The median time of a call; infinite where the candidate failed."""
        return statistics.median(self.times) if self.times else math.inf

    def line(self) -> dict[str, Any]:
        """Write it as a line's fields."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}
        # A kernel may well compute an infinity; JSON has none.
        answer = [n if math.isfinite(n) else str(n) for n in self.answer]
        return {"kind": "result", **said, "answer": answer}

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Result:
        """Read a line's fields.

        Raises
        ------
        ValueError
            A field is missing, or is not what it should be.
        """
        try:
            said = {name: line[name] for name in _FIELDS}
        except KeyError as error:
            raise ValueError(f"it has no {error.args[0]}") from None
        for name in _TEXTS:
            check_text(said[name], name)
        for name in _NUMBERS:
            if type(said[name]) is not int or abs(said[name]) >= 2**63:
                raise ValueError(f"its {name} is no number")
        if not isinstance(said["trace"], list | Raw):
            raise ValueError("its trace is no list")
        check_target(said["target"])
        check_date(said["date"])
        said["times"] = seconds_of(said["times"], "times")
        said["answer"] = tuple(_numbers(said["answer"]))
        if isinstance(said["trace"], Raw):
            made: Result = object.__new__(_Read)
            vars(made).update(said, raw=said.pop("trace"))
        else:
            made = cls(**said)
        made._check()
        return made

    def _check(self) -> None:
        if self.origin not in _ORIGINS:
            raise ValueError("its origin is neither rule nor search")
        if bool(self.times) == bool(self.error):
            raise ValueError("it has both times and an error, or neither")
        if not self.workload:
            raise ValueError("it names no workload")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and self.line() == other.line()

    def __hash__(self) -> int:
        return hash((self.workload, self.date))


class _Read(Result):
    """A result whose trace is read on first use, because ten thousand traces fill the memory."""

    raw: str

    @cached_property
    def trace(self) -> list[Any]:  # type: ignore[override]
        """The schedule."""
        try:
            found = json.loads(self.raw)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, list):
            raise RecordError("a record's trace is no list", where=f"{self.task}, {self.date}")
        return found


_FIELDS = tuple(one.name for one in fields(Result))
_TEXTS = tuple(one.name for one in fields(Result) if one.type == "str")
_NUMBERS = tuple(one.name for one in fields(Result) if one.type == "int")


@dataclass(frozen=True)
class Workload:
    """A function: a line of a record file.

    Attributes
    ----------
    id : str
        Its `workload_id`.
    name : str
        What a reader calls it.
    module : str
        Its text, as `tvmlab.records.workloads.to_text` writes it.
    """

    id: str
    name: str
    module: str

    def line(self) -> dict[str, Any]:
        """Write it as a line's fields."""
        return {"kind": "workload", "id": self.id, "name": self.name, "module": self.module}

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Workload:
        """Read a line's fields.

        Raises
        ------
        ValueError
            A field is missing, or is no text.
        """
        said: dict[str, Any] = {one.name: line.get(one.name) for one in fields(cls)}
        for name, text in said.items():
            check_text(text, name, longest=_LONGEST_MODULE)
        return cls(**said)


def check_text(value: Any, name: str, longest: int = _LONGEST_TEXT) -> None:
    """Refuse what is no text, with a ValueError."""
    if not isinstance(value, str) or len(value) > longest:
        raise ValueError(f"its {name} is no text")
    if not value.isascii():
        value.encode()  # half a character, which JSON can name, has no UTF-8


def check_date(value: str) -> None:
    """Refuse what is no date, with a ValueError."""
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("its date is no date") from None


def check_target(value: Any) -> None:
    """Refuse what is no target, with a ValueError."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        text = "." * _LONGEST_TARGET
    if not isinstance(value, dict) or len(text.encode()) >= _LONGEST_TARGET:
        raise ValueError("its target is no object, or too long for one")


def seconds_of(values: Any, name: str) -> tuple[float, ...]:
    """Take times; a ValueError where they are none."""
    if not isinstance(values, list | tuple) or len(values) > _MOST_SAMPLES:
        raise ValueError(f"its {name} are no list")
    if not all(type(value) in (int, float) for value in values):
        raise ValueError(f"its {name} are no numbers")
    if not all(0 < value <= MOST_SECONDS for value in values):  # false for what is no number
        raise ValueError(f"its {name} cannot be seconds")
    return tuple(map(float, values))


def _numbers(values: Any) -> Iterator[float]:
    if not isinstance(values, list | tuple) or len(values) > _MOST_SAMPLES:
        raise ValueError("its answer is no list")
    for value in values:
        if isinstance(value, str) and value in _ODD:
            yield _ODD[value]
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("its answer has no numbers")
        else:
            try:
                yield float(value)
            except OverflowError:
                raise ValueError("its answer has a number without end") from None
