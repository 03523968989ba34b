"""Functions and their schedules as data: names of functions, and traces that TVM replays."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import IRModule

from ..errors import RecordError
from ..schedule.machine import DOTS
from ..support.wording import telling

__all__ = ["as_data", "normalized", "plain", "replay", "workload_id"]

# What a schedule depends on; other attributes tell which pass has seen the function.
_KEPT = ("s_tir", "tirx.noalias", "layout_free_buffers")


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
    """Return a trace as TVM's JSON: instructions, and the decisions of those that sample."""
    data: list[Any] = plain(trace.as_json())
    return data


@functools.cache
def _register_dots() -> None:
    """Register the intrinsics of `tvmlab.schedule`, which its traces name."""
    for dot in DOTS:
        _ = dot.name


def replay(module: IRModule, trace: Any) -> s_tir.Schedule:
    """Schedule a function as a trace says.

    Parameters
    ----------
    module : tvm.ir.IRModule
        One TIR function ``main`` without a schedule.
    trace : list
        The ``trace`` of a record. TVM trusts a trace, as it trusts a library: the file of records
        has to come from somebody you trust.

    Returns
    -------
    tvm.s_tir.Schedule
        It computes what `module` computes, from the same arguments.

    Raises
    ------
    RecordError
        The trace is malformed or does not fit the function.
    """
    _register_dots()
    sch = s_tir.Schedule(module, debug_mask="none", error_render_level="none")
    try:
        s_tir.schedule.Trace.apply_json_to_schedule(trace, sch)
    except Exception as error:  # TVM raises several classes, by what is wrong
        raise RecordError(
            f"a trace cannot be applied: {telling(error)}",
            fix="the record is damaged, or made for another function: tune the function again",
        ) from error
    return sch
