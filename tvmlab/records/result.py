"""Entries of a record file: functions, measurements, and verdicts."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import tvm

import tvmlab

from ..support.host import processor_name
from .traces import plain

__all__ = [
    "MOST_SECONDS",
    "Result",
    "Verdict",
    "Workload",
    "after",
    "mismatch",
    "now",
    "target_data",
]

MOST_SECONDS = 1e6
_KINDS: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "dict[str, Any]": dict,
    "list[Any]": list,
    "list[Any] | None": (list, type(None)),
    "tuple[float, ...]": (list, tuple),
}
# Traces of one task share most of their instructions, and ten thousand traces fill the memory.
_SHARED: dict[str, Any] = {}


def now() -> str:
    """Return the time in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat()


def after(date: str) -> str:
    """Return the next date after one, or the same where there is none."""
    try:
        return (datetime.fromisoformat(date) + timedelta(microseconds=1)).isoformat()
    except OverflowError:
        return date


def target_data(target: tvm.target.Target) -> dict[str, Any]:
    """Return a target as plain data."""
    exported: dict[str, Any] = plain(target.export())
    return exported


class _Entry:
    """A line of a record file."""

    def line(self) -> dict[str, Any]:
        """Return the fields as JSON takes them."""
        said = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        if "answer" in said:  # JSON has no infinity, which a kernel can compute
            said["answer"] = [n if math.isfinite(n) else str(n) for n in said["answer"]]
        return {"kind": type(self).__name__.lower(), **said}

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Self:
        """Read the fields of a line; raise ValueError if one is missing or wrong."""
        said: dict[str, Any] = {}
        for one in fields(cls):  # type: ignore[arg-type]
            value = line.get(one.name)
            kind = str(one.type)
            if not isinstance(value, _KINDS[kind]) or isinstance(value, bool):
                raise ValueError(f"its {one.name} is missing or of a wrong type")
            if isinstance(value, str):
                value.encode()  # half a character, which JSON can name, has no UTF-8
            if kind == "tuple[float, ...]":
                value = tuple(_number(n, one.name) for n in value)
            said[one.name] = value
        if said.get("trace"):
            steps = said["trace"][0]
            if not isinstance(steps, list):
                raise ValueError("its trace is no list of instructions")
            shared = [_SHARED.setdefault(json.dumps(step), step) for step in steps]
            said["trace"] = [shared, *said["trace"][1:]]
        made = cls(**said)
        made._check()
        return made

    def _check(self) -> None:
        """Raise ValueError if fields contradict each other."""


def _number(value: Any, name: str) -> float:
    odd = name == "answer" and value in ("nan", "inf", "-inf")
    if not odd and type(value) not in (int, float):
        raise ValueError(f"its {name} has no numbers")
    number = float(value)
    if name != "answer" and not 0 < number <= MOST_SECONDS:  # false for NaN
        raise ValueError(f"its {name} cannot be seconds")
    return number


@dataclass(frozen=True)
class Workload(_Entry):
    """A function: its `workload_id`, its name, and its text as ``tvm.ir.save_json`` writes it."""

    id: str
    name: str
    module: str


@dataclass(frozen=True, eq=False)
class Result(_Entry):
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
        The schedule in MetaSchedule's form, which `tvmlab.tuning.replay` takes: the instructions,
        and the decisions of those that sample.
    target : dict
        What it was compiled for, as `target_data` writes it.
    threads : int
        Threads that it ran with.
    operator, layout : str
        The operator and the way in which its weights are packed; empty where there is no choice.
    times : tuple of float
        Seconds per call, one number per sample; empty where the candidate failed.
    error : str
        Why it failed; else empty.
    how : str
        How it was timed, as `tvmlab.tuning.measure.how` describes it: times that were taken in
        other ways do not compare. Empty for imported results.
    answer : tuple of float
        The fingerprint of what it computed: see `Outcome`.
    tuner : str
        The tuner that proposed it.
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

    def _check(self) -> None:
        datetime.fromisoformat(self.date)
        if self.origin not in ("rule", "search") or not self.workload:
            raise ValueError("its origin is neither rule nor search, or it names no workload")
        if bool(self.times) == bool(self.error):
            raise ValueError("it has both times and an error, or neither")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and self.line() == other.line()

    def __hash__(self) -> int:
        return hash((self.workload, self.date))


@dataclass(frozen=True)
class Verdict(_Entry):
    """The decision about a function that `tvmlab.compile` takes.

    Attributes
    ----------
    function : str
        The `workload_id` of the function as the rules lay it out: `tvmlab.compile` looks it up.
    workload : str
        The `workload_id` of what is to be scheduled: the same function with the weights of its
        operator packed as `layout` says; `function` where that is empty.
    task : str
        The task's name.
    target : dict
        What it was decided for, as `target_data` writes it.
    threads : int
        Threads that it ran with.
    rule : float
        Median seconds per call of what is taken without tuning; 0 where that does not run.
    operator, layout : str
        The operator, and its layout; empty means the rules' choice.
    trace : list or None
        The schedule of `workload`, as of a `Result`; None where the rules are to schedule it.
    ratios : tuple of float
        The time of the best candidate over the rule's, one number per process: the median of the
        rounds in which both were measured alternately. Empty if no candidate met the rule.
    cpu, tvm, tvmlab, date : str
        As of a `Result`.
    """

    function: str
    workload: str
    task: str
    target: dict[str, Any]
    threads: int
    rule: float
    operator: str = ""
    layout: str = ""
    trace: list[Any] | None = None
    ratios: tuple[float, ...] = ()
    cpu: str = field(default_factory=processor_name)
    tvm: str = tvm.__version__
    tvmlab: str = field(default_factory=lambda: tvmlab.__version__)
    date: str = field(default_factory=now)

    @property
    def stays(self) -> bool:
        """Whether everything stays as it is without tuning."""
        return self.trace is None and not self.layout

    @property
    def ratio(self) -> float:
        """The time of a call from now on over the time without tuning; 1 where the rule stays."""
        return 1.0 if self.stays or not self.ratios else statistics.median(self.ratios)

    def _check(self) -> None:
        datetime.fromisoformat(self.date)
        if not 0 <= self.rule <= MOST_SECONDS:  # false for NaN
            raise ValueError("its rule cannot be seconds")
        if not self.function or not self.workload:
            raise ValueError("it names no function")
        if not self.layout and self.workload != self.function:
            raise ValueError("it names two functions of one layout")


def mismatch(entry: Result | Verdict, target: tvm.target.Target) -> str:
    """Say why an entry does not hold for a target; empty where it does.

    The kind, the architecture, the processor, its features or the number of cores can differ, or
    the version of TVM; of a verdict the version of tvmlab too, since the rules that lost to it may
    have changed. A number of cores that is missing on one side is no difference.
    """
    rules = entry.tvmlab if isinstance(entry, Verdict) else ""
    return _mismatch(entry.tvm, rules, json.dumps(entry.target), json.dumps(target_data(target)))


@functools.lru_cache(maxsize=1024)
def _mismatch(version: str, rules: str, theirs: str, ours: str) -> str:
    if version != tvm.__version__:
        return f"made with TVM {version[:40]}, and this is {tvm.__version__}"
    if rules and rules != tvmlab.__version__:
        return f"made with tvmlab {rules[:40]}, and this is {tvmlab.__version__}"
    made, wanted = (_about(json.loads(text)) for text in (theirs, ours))
    for name, mine in wanted.items():
        if made[name] != mine and not (name == "num-cores" and None in (made[name], mine)):
            return f"made for {name} {str(made[name])[:80] or 'none'}, not {mine or 'none'}"
    return ""


def _about(target: Mapping[str, Any]) -> dict[str, Any]:
    """Take from a target what a schedule depends on."""
    triple = str(target.get("mtriple") or tvm.get_global_func("target.llvm_get_system_triple")())
    features = target.get("mattr") or []
    return {
        "kind": target.get("kind"),
        "architecture": triple.partition("-")[0],
        "mcpu": str(target.get("mcpu", "")),
        "mattr": ",".join(sorted(map(str, features if isinstance(features, list) else [features]))),
        "num-cores": target.get("num-cores"),
    }
