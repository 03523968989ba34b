"""The entries of a record file: functions, schedules, measurements and verdicts as data."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, Self

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import IRModule

import tvmlab

from ..errors import RecordError
from ..schedule.machine import DOTS
from ..support.host import processor_name
from ..support.wording import telling

# Attributes that affect a schedule; others only record which pass has processed the function.
_KEPT = ("s_tir", "tirx.noalias", "layout_free_buffers")
_NUMBERS = ("times", "answer", "ratios")
# Traces of one task share most instructions; ten thousand separate traces would fill the memory.
_SHARED: dict[str, Any] = {}


def target_data(target: tvm.target.Target) -> dict[str, Any]:
    """Convert a target to plain data."""
    data: dict[str, Any] = json.loads(str(target))
    return data


class _Entry:
    """A line of a file of records."""

    def line(self) -> dict[str, Any]:
        """Return the fields in a form that JSON supports."""
        found = {"kind": type(self).__name__.lower(), **vars(self)}
        if "answer" in found:  # a kernel can compute infinity, which JSON does not support
            found["answer"] = [n if math.isfinite(n) else str(n) for n in found["answer"]]
        return found

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Self:
        """Parse the fields of a line; raise KeyError, TypeError or ValueError if one is missing."""
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
    """The fields of both results and verdicts: the target, the machine, and the time."""

    workload: str
    task: str
    target: dict[str, Any]
    threads: int
    operator: str = ""
    layout: str = ""
    cpu: str = field(default_factory=processor_name)
    tvm: str = tvm.__version__
    tvmlab: str = field(default_factory=lambda: tvmlab.__version__)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat())


@dataclass(frozen=True, kw_only=True)
class Result(_Made):
    """One measurement: a line of a record file.

    Attributes
    ----------
    workload, task, operator, layout : str
        The `workload_id` of the scheduled function; the task's name; its operator and the
        packing of its weights, empty for the rules' choice.
    target, threads, cpu : dict, int, str
        The target that the function was compiled for, and the threads and processor that it ran on.
    tvm, tvmlab, date : str
        The versions, and the date in ISO 8601, UTC.
    origin : str
        ``"rule"`` for a schedule of a rule of `tvmlab.schedule`, ``"search"`` for a searched one.
    trace : list
        The schedule in the format of `tvmlab.tuning.replay`.
    times, error : tuple of float, str
        Seconds per call, one number per sample; or why the candidate failed.
    how : str
        How it was timed; times with different values are not comparable.
    answer : tuple of float
        The fingerprint of the kernel's result: see `Outcome`.
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
        """The median time of a call; infinite if the candidate failed."""
        return statistics.median(self.times) if self.times else math.inf


@dataclass(frozen=True, kw_only=True)
class Verdict(_Made):
    """The decision about a function that `tvmlab.compile` uses.

    Attributes
    ----------
    function : str
        The `workload_id` of the function in the rules' layout, which `tvmlab.compile` looks up;
        `workload` differs from it if `layout` is not empty.
    rule : float
        Median seconds per call without tuning; 0 if that schedule fails, or if the
        verdict was imported.
    trace : list or None
        The schedule of `workload`, as in a `Result`; None if the rules schedule it.
    ratios : tuple of float
        The time of the best candidate over the rule's, one number per process: the median of the
        rounds in which both were measured alternately.
    """

    function: str
    rule: float
    trace: list[Any] | None = None
    ratios: tuple[float, ...] = ()

    @property
    def stays(self) -> bool:
        """Whether the verdict keeps the rules' layout and schedule."""
        return self.trace is None and not self.layout

    @property
    def ratio(self) -> float:
        """The time of a call relative to the time without tuning; 1 if the rule stays."""
        return 1.0 if self.stays or not self.ratios else statistics.median(self.ratios)


def mismatch(entry: Result | Verdict, target: tvm.target.Target) -> str:
    """Return why an entry does not apply to a target; empty if it applies.

    A verdict applies only to one version of tvmlab, because the rules that it was compared with can
    have changed. A number of cores that is missing on one side is no difference.
    """
    ours = {"TVM": tvm.__version__, "tvmlab": tvmlab.__version__, **_about(str(target))}
    theirs = {"TVM": entry.tvm, "tvmlab": entry.tvmlab, **_about(json.dumps(entry.target))}
    if isinstance(entry, Result):
        del ours["tvmlab"]
    for name, mine in ours.items():
        if theirs[name] != mine and not (name == "num-cores" and None in (theirs[name], mine)):
            return f"made for {name} {str(theirs[name])[:80] or 'none'}, not {mine or 'none'}"
    return ""


@functools.lru_cache(maxsize=1024)
def _about(text: str) -> dict[str, Any]:
    """Return the attributes of a target that affect a schedule."""
    target = json.loads(text)
    triple = str(target.get("mtriple") or tvm.get_global_func("target.llvm_get_system_triple")())
    return {
        "kind": target.get("kind"),
        "architecture": triple.partition("-")[0],
        "mcpu": str(target.get("mcpu", "")),
        "mattr": ",".join(sorted(target.get("mattr", []))),
        "num-cores": target.get("num-cores"),
    }


def normalized(given: tirx.PrimFunc | IRModule) -> IRModule:
    """Return a module of one function named ``main``, without the attributes of passes."""
    functions = list(given.functions.values()) if isinstance(given, IRModule) else [given]
    if len(functions) != 1 or not isinstance(functions[0], tirx.PrimFunc):
        raise RecordError(
            f"a workload is one TIR function; the module has {len(functions)} functions",
            fix="pass the functions of the module one by one",
        )
    func: tirx.PrimFunc = functions[0]
    for name in [] if func.attrs is None else list(func.attrs.keys()):
        if name not in _KEPT:
            func = func.without_attr(name)
    return IRModule({"main": func.with_attr("global_symbol", "main")})


def workload_id(given: tirx.PrimFunc | IRModule) -> str:
    """Identify a function by its computation, independent of its name and attributes.

    Parameters
    ----------
    given : tvm.tirx.PrimFunc or tvm.ir.IRModule
        A function without a schedule, or a module of one.

    Returns
    -------
    str
        32 hexadecimal digits: TVM's structural hash, and a hash of the names of the blocks, by
        which a trace finds them.

    Raises
    ------
    RecordError
        The module has no function, or several.
    """
    module = normalized(given)
    names: list[str] = []
    kinds = ((s_tir.SBlock, lambda block: names.append(str(block.name_hint))),)
    tvm_ffi.structural_walk(module["main"].body, kinds)
    blocks = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    return f"{tvm_ffi.structural_hash(module):016x}{blocks}"


def _plain(value: Any) -> Any:
    """Convert TVM's numbers and lists to Python's."""
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return value.value
    if isinstance(value, list | tuple | tvm_ffi.Array):
        return [_plain(one) for one in value]
    return value


def as_data(trace: s_tir.schedule.Trace) -> list[Any]:
    """Convert a trace to TVM's JSON: instructions, and the decisions of sampling instructions."""
    data: list[Any] = _plain(trace.as_json())
    return data


def replay(module: IRModule, trace: Any) -> s_tir.Schedule:
    """Schedule a function with a recorded trace.

    Parameters
    ----------
    module : tvm.ir.IRModule
        One TIR function ``main`` without a schedule.
    trace : list
        The ``trace`` of a record. Use only records from sources that you trust: TVM executes the

    Returns
    -------
    tvm.s_tir.Schedule

    Raises
    ------
    RecordError
        The trace is malformed or does not fit the function.
    """
    for dot in DOTS:
        _ = dot.name  # registers the intrinsic, which a trace can name
    sch = s_tir.Schedule(module, debug_mask="none", error_render_level="none")
    try:
        s_tir.schedule.Trace.apply_json_to_schedule(trace, sch)
    except Exception as error:  # TVM raises several classes
        raise RecordError(
            f"a trace cannot be applied: {telling(error)}",
            fix="the record is damaged, or made for another function: tune the function again",
        ) from error
    return sch
