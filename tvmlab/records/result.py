"""Entries of a file of records: functions, measurements, and verdicts."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self

import tvm

import tvmlab

from ..support.host import processor_name
from .traces import plain

__all__ = ["Result", "Verdict", "Workload", "mismatch", "now", "target_data"]

_NUMBERS = ("times", "answer", "ratios")
# Traces of one task share most of their instructions, and ten thousand traces fill the memory.
_SHARED: dict[str, Any] = {}


def now() -> str:
    """Return the time in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat()


def target_data(target: tvm.target.Target) -> dict[str, Any]:
    """Return a target as plain data."""
    exported: dict[str, Any] = plain(target.export())
    return exported


class _Entry:
    """A line of a file of records."""

    def line(self) -> dict[str, Any]:
        """Return the fields as JSON takes them."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        if "answer" in found:  # JSON has no infinity, which a kernel can compute
            found["answer"] = [n if math.isfinite(n) else str(n) for n in found["answer"]]
        return {"kind": type(self).__name__.lower(), **found}

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Self:
        """Read the fields of a line; raise KeyError, TypeError or ValueError if one is missing."""
        found = {one.name: line[one.name] for one in fields(cls)}  # type: ignore[arg-type]
        for name in found.keys() & _NUMBERS:
            found[name] = tuple(map(float, found[name]))
        if found.get("trace"):
            steps, *rest = found["trace"]
            found["trace"] = [[_SHARED.setdefault(json.dumps(one), one) for one in steps], *rest]
        return cls(**found)


@dataclass(frozen=True)
class Workload(_Entry):
    """A function: its `workload_id`, its name, and its text as ``tvm.ir.save_json`` writes it."""

    id: str
    name: str
    module: str


@dataclass(frozen=True, kw_only=True)
class _Made(_Entry):
    """What results and verdicts have in common.

    Attributes
    ----------
    workload : str
        The `workload_id` of the function that is scheduled.
    task : str
        The task's name.
    operator, layout : str
        The operator and the way in which its weights are packed; empty means the rules' choice.
    target, threads : dict, int
        What it was compiled for, as `target_data` writes it, and the threads that it ran with.
    cpu, tvm, tvmlab, date : str
        The processor that it ran on, the versions, and when, in ISO 8601, UTC.
    """

    workload: str
    task: str
    target: dict[str, Any]
    threads: int
    operator: str = ""
    layout: str = ""
    cpu: str = field(default_factory=processor_name)
    tvm: str = tvm.__version__
    tvmlab: str = field(default_factory=lambda: tvmlab.__version__)
    date: str = field(default_factory=now)


@dataclass(frozen=True, kw_only=True)
class Result(_Made):
    """One measurement: a line of a record file.

    Attributes
    ----------
    origin : str
        ``"rule"`` for a schedule of a rule of `tvmlab.schedule`, ``"search"`` for a found one.
    trace : list
        The schedule as `tvmlab.tuning.replay` takes it: the instructions, and the decisions of
        those that sample.
    times : tuple of float
        Seconds per call, one number per sample; empty where the candidate failed.
    error : str
        Why it failed; else empty.
    how : str
        How it was timed: times that were taken in other ways do not compare. Empty for imported
        results.
    answer : tuple of float
        The fingerprint of what it computed: see `Outcome`.
    tuner, seed : str, int
        The tuner that proposed it, and its seed.
    """

    origin: str
    trace: list[Any]
    times: tuple[float, ...] = ()
    error: str = ""
    how: str = ""
    answer: tuple[float, ...] = ()
    tuner: str = ""
    seed: int = 0

    @property
    def seconds(self) -> float:
        """The median time of a call; infinite where the candidate failed."""
        return statistics.median(self.times) if self.times else math.inf

    @property
    def imported(self) -> bool:
        """Whether it ran and was imported, which leaves no note of how it was timed."""
        return bool(self.times) and not self.how


@dataclass(frozen=True, kw_only=True)
class Verdict(_Made):
    """The decision about a function that `tvmlab.compile` takes.

    Attributes
    ----------
    function : str
        The `workload_id` of the function as the rules lay it out, which `tvmlab.compile` looks up;
        `workload` is another one if `layout` is not empty.
    rule : float
        Median seconds per call of what is taken without tuning; 0 where that does not run.
    trace : list or None
        The schedule of `workload`, as of a `Result`; None where the rules are to schedule it.
    ratios : tuple of float
        The time of the best candidate over the rule's, one number per process: the median of the
        rounds in which both were measured alternately. Empty if no candidate met the rule.
    """

    function: str
    rule: float
    trace: list[Any] | None = None
    ratios: tuple[float, ...] = ()

    @property
    def stays(self) -> bool:
        """Whether everything stays as it is without tuning."""
        return self.trace is None and not self.layout

    @property
    def ratio(self) -> float:
        """The time of a call from now on over the time without tuning; 1 where the rule stays."""
        return 1.0 if self.stays or not self.ratios else statistics.median(self.ratios)


def mismatch(entry: Result | Verdict, target: tvm.target.Target) -> str:
    """Say why an entry does not hold for a target; empty where it does.

    A verdict holds for one version of tvmlab, too, since the rules that lost to it may have
    changed. A number of cores that is missing on one side is no difference.
    """
    rules = entry.tvmlab if isinstance(entry, Verdict) else tvmlab.__version__
    return _mismatch(entry.tvm, rules, json.dumps(entry.target), json.dumps(target_data(target)))


@functools.lru_cache(maxsize=1024)
def _mismatch(version: str, rules: str, theirs: str, ours: str) -> str:
    if version != tvm.__version__:
        return f"made with TVM {version[:40]}, and this is {tvm.__version__}"
    if rules != tvmlab.__version__:
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
