"""Functions and their schedules as data: names of functions, and traces that are replayed.

TVM replays a trace from JSON. It trusts what it reads, so `replay` checks a trace first: an
annotation or an unknown instruction could run code of another person or change what is computed,
and a tile of size zero ends the process.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import IRModule

from ..errors import RecordError
from ..schedule.machine import DOTS
from ..support.wording import telling

__all__ = ["as_data", "normalized", "plain", "replay", "workload_id"]

# What a schedule depends on; other attributes tell which pass has seen the function.
_KEPT = ("s_tir", "tirx.noalias", "layout_free_buffers")

# Instructions of `tvmlab.schedule` and of MetaSchedule's rules for CPUs. TVM checks for each of
# them that the function's meaning stays, except for the attributes that `_check` looks at.
_INSTRUCTIONS = frozenset(
    [
        "AddUnitLoop",
        "Annotate",
        "Blockize",
        "CacheRead",
        "CacheWrite",
        "ComputeAt",
        "ComputeInline",
        "DecomposeReduction",
        "EnterPostproc",
        "Fuse",
        "GetChildBlocks",
        "GetConsumers",
        "GetLoops",
        "GetOutputBlocks",
        "GetProducers",
        "GetSBlock",
        "Parallel",
        "RFactor",
        "Reorder",
        "ReverseComputeAt",
        "ReverseComputeInline",
        "SampleCategorical",
        "SampleComputeLocation",
        "SamplePerfectTile",
        "Split",
        "StorageAlign",
        "Tensorize",
        "TransformBlockLayout",
        "Unannotate",
        "Unroll",
        "Vectorize",
    ]
)
# Other pragmas import C or LLVM code into the kernel.
_ANNOTATIONS = ("meta_schedule.", "pragma_auto_unroll_max_step", "pragma_unroll_", "tvmlab.ahead")
# TVM follows nested loops by recursion; the largest functions take a few hundred instructions.
_MOST_INSTRUCTIONS, _MOST = 1000, 2**31


def normalized(given: tirx.PrimFunc | IRModule) -> IRModule:
    """Return a module of one function named ``main``, without the attributes that passes left."""
    if isinstance(given, IRModule):
        functions = list(given.functions.values())
        if len(functions) != 1 or not isinstance(functions[0], tirx.PrimFunc):
            raise RecordError(
                f"a workload is one TIR function; the module has {len(functions)} functions",
                where=", ".join(var.name_hint for var in given.get_global_vars()) or None,
                fix="take the functions of the module one by one",
            )
        given = functions[0]
    func: tirx.PrimFunc = given
    for name in [] if func.attrs is None else list(func.attrs.keys()):
        if name not in _KEPT:
            func = func.without_attr(name)
    return IRModule({"main": func.with_attr("global_symbol", "main")})


def workload_id(given: tirx.PrimFunc | IRModule) -> str:
    """Name a function by what it computes.

    Parameters
    ----------
    given : tvm.tirx.PrimFunc or tvm.ir.IRModule
        A function without a schedule, or a module of one.

    Returns
    -------
    str
        32 hexadecimal digits: TVM's structural hash, which leaves out the names of variables and
        buffers and is the same in every process, and a hash of the names of the blocks, by which a
        trace finds them. Neither the function's name nor its attributes matter.

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


def plain(value: Any) -> Any:
    """Turn TVM's numbers, texts and containers into Python's."""
    if isinstance(value, tirx.IntImm):
        return int(value)
    if isinstance(value, tirx.FloatImm):
        return float(value.value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping | tvm_ffi.Map):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | tvm_ffi.Array):
        return [plain(one) for one in value]
    return value


def as_data(trace: s_tir.schedule.Trace) -> list[Any]:
    """Write a trace as TVM's JSON: instructions, and the decisions of those that sample."""
    data: list[Any] = plain(trace.as_json())
    return data


def replay(module: IRModule, trace: Any) -> s_tir.Schedule:
    """Schedule a function as a trace says.

    Parameters
    ----------
    module : tvm.ir.IRModule
        One TIR function ``main`` without a schedule.
    trace : list
        The ``trace`` of a record, which can be damaged, or from a file of another person.

    Returns
    -------
    tvm.s_tir.Schedule
        It computes what `module` computes, from the same arguments.

    Raises
    ------
    RecordError
        The trace is malformed, has an instruction that is not known to keep the function's
        meaning, or does not fit the function.
    """
    sch = s_tir.Schedule(module, debug_mask="none", error_render_level="none")
    try:
        s_tir.schedule.Trace.apply_json_to_schedule(_checked(trace), sch)
    except Exception as error:  # TVM raises several classes, by what is wrong
        raise RecordError(
            f"a trace cannot be applied: {telling(error)}",
            fix="the record is damaged, or made for another function: tune the function again",
        ) from error
    return sch


def _checked(trace: Any) -> Any:
    """Return a trace that TVM can replay; raise an exception of any class if it must not."""
    instructions, decisions = trace[0].copy(), trace[1]
    chosen = dict(decisions)
    _require(len(instructions) <= _MOST_INSTRUCTIONS, "it has too many instructions")
    sampled = [i for i, one in enumerate(instructions) if str(one[0]).startswith("Sample")]
    # Without a decision TVM samples, which may never end.
    _require(sorted(chosen) == sampled, "its decisions are not those of its instructions")
    for place, (kind, inputs, attrs, outputs) in enumerate(instructions):
        what = f"instruction {place} ({str(kind)[:60]})"
        _require(kind in _INSTRUCTIONS, f"{what} is not one that is known to be harmless")
        # A location outside of all loops and an axis that is counted from the last are negative.
        numbers = [one for one in _leaves([inputs, attrs]) if not isinstance(one, str | None)]
        _require(all(-16 <= one < _MOST for one in numbers), f"{what} has a number out of range")
        if kind == "SamplePerfectTile":
            sizes = chosen[place]
            fine = len(sizes) == attrs[0] and all(type(size) is int and size > 0 for size in sizes)
            _require(fine, f"{what} has other tiles than it should")
            _require(math.prod(sizes) < _MOST, f"{what} has tiles that are too large")
        elif kind == "SampleCategorical":
            _require(0 <= chosen[place] < len(attrs[0]), f"{what} chooses what is not there")
        elif kind == "Split":
            _require(not attrs[1], f"{what} splits without predicates")
            sizes = [size for size in inputs[1:] if isinstance(size, int)]
            fine = all(size > 0 for size in sizes) and math.prod(sizes) < _MOST
            _require(fine, f"{what} has factors out of range")
        elif kind == "Annotate":
            _require(attrs[0].startswith(_ANNOTATIONS), f"{what} adds {attrs[0][:60]!r}")
        elif kind == "Tensorize":
            # `Dot.name` registers the intrinsic.
            known = [dot.name for dot in DOTS if f"tvmlab.{dot.llvm}" == attrs[0]]
            _require(bool(known), f"{what} takes the unknown intrinsic {attrs[0][:60]!r}")
        elif kind in ("CacheRead", "CacheWrite"):
            _require(attrs[1] == "global", f"{what} caches elsewhere than in memory")
        elif kind == "TransformBlockLayout":
            instructions[place] = [kind, inputs, [_index_map(attrs[0])], outputs]
    return [instructions, decisions]


def _index_map(text: str) -> str:
    """Write a map that leaves axes out or reorders them anew, because TVM trusts such a text."""
    graph = json.loads(text)
    nodes = graph["nodes"]
    data = nodes[graph["root_index"]]["data"]
    first, last = (nodes[data[name]]["data"] for name in ("initial_indices", "final_indices"))
    dtype = nodes[nodes[first[0]]["data"]["ty"]]["data"]["dtype"]
    _require({*last} <= {*first} and dtype in ("int32", "int64"), "an index map computes")
    made = tirx.IndexMap.from_func(
        lambda *axes: [axes[first.index(one)] for one in last], len(first), index_dtype=dtype
    )
    return str(tvm.ir.save_json(made))


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _leaves(value: Any) -> list[Any]:
    """List the numbers and texts in nested lists."""
    return [leaf for one in value for leaf in _leaves(one)] if isinstance(value, list) else [value]
