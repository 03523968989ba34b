"""Schedules as data: a trace written as JSON, and carried out again after it was read from a file.

TVM's own reader of traces trusts what it reads: a tile of size zero ends the process, an
instruction may change what the function computes. Here every instruction is looked at first, and
carried out by one call of the schedule's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import IRModule

from ..errors import RecordError
from ..support.wording import telling
from .instructions import INSTRUCTIONS, MOST_COPIES, refuse

__all__ = ["as_data", "plain", "replay"]

# A hundred instructions make a schedule of the largest functions. Each loop nests the function
# deeper, and TVM follows the nesting by recursion.
_MOST_INSTRUCTIONS, _MOST_LOOPS, _MOST_VALUES = 2000, 500, 256
_SPREAD = (tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED)
_MAKES_LOOPS = ("Split", "AddUnitLoop", "ComputeAt", "ReverseComputeAt", "CacheRead", "CacheWrite")


def as_data(trace: s_tir.schedule.Trace) -> list[Any]:
    """Write a trace as plain lists, numbers and strings.

    Parameters
    ----------
    trace : tvm.s_tir.schedule.Trace
        Of any schedule.

    Returns
    -------
    list
        MetaSchedule's form: the instructions, each one its kind, inputs, attributes and outputs;
        and the decisions of those that sample, each with the instruction's place.
    """
    data: list[Any] = plain(trace.as_json())
    return data


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


def replay(module: IRModule, trace: Any) -> s_tir.Schedule:
    """Schedule a function as a trace says.

    Parameters
    ----------
    module : tvm.ir.IRModule
        One TIR function ``main`` without a schedule.
    trace : list
        What `as_data` wrote; it may be damaged, or made to do harm.

    Returns
    -------
    tvm.s_tir.Schedule
        It computes what `module` computes, from the same arguments.

    Raises
    ------
    RecordError
        The trace is no trace, has an instruction that is not known to keep the function's meaning,
        or does not fit the function; the error says which instruction it is.
    """
    place = "the whole"
    try:
        instructions, decisions = _parts(trace)
        sch = s_tir.Schedule(module, debug_mask="none", error_render_level="none")
        named: dict[str, Any] = {}
        loops = 0
        for i, (kind, inputs, attrs, outputs) in enumerate(instructions):
            place = f"instruction {i} ({kind})"
            given = [_input(value, named) for value in inputs]
            if i in decisions and not kind.startswith("Sample"):
                refuse("it has a decision and takes none")
            made = INSTRUCTIONS[kind](sch, given, [_attribute(a) for a in attrs], decisions.get(i))
            loops += len(made) if kind in _MAKES_LOOPS else 0
            if loops > _MOST_LOOPS:
                refuse(f"more than {_MOST_LOOPS} loops are made")
            if len(made) != len(outputs) or not named.keys().isdisjoint(outputs):
                refuse(f"it makes {len(made)} things, and has names for {len(outputs)}")
            named.update(zip(outputs, made, strict=True))
        place = "the result"
        _check(module["main"], sch.mod["main"])
    except Exception as error:  # TVM raises several classes, by what is wrong
        raise RecordError(
            f"a trace cannot be applied: {telling(error)}",
            where=place,
            fix="the record is damaged, or made for another function: tune the function again",
        ) from error
    return sch


def _parts(trace: Any) -> tuple[list[tuple[str, list[Any], list[Any], list[str]]], dict[int, Any]]:
    """Take a trace apart, and make sure of its form."""
    match trace:
        case [list(instructions), list(decisions)] if len(instructions) <= _MOST_INSTRUCTIONS:
            pass
        case _:
            refuse("it is no pair of a list of instructions and a list of decisions")
    taken: list[tuple[str, list[Any], list[Any], list[str]]] = []
    for instruction in instructions:
        match instruction:
            case [str(kind), list(inputs), list(attrs), list(outputs)] if kind in INSTRUCTIONS:
                pass
            case [str(kind), *_] if kind not in INSTRUCTIONS:
                refuse(f"the instruction {kind[:60]!r} is not one that is known to be harmless")
            case _:
                refuse(f"instruction {len(taken)} is no list of four")
        if max(len(inputs), len(attrs), len(outputs)) > _MOST_VALUES:
            refuse(f"instruction {len(taken)} is too long")
        if not all(isinstance(name, str) and name for name in outputs):
            refuse(f"instruction {len(taken)} has an output without a name")
        if len(set(outputs)) < len(outputs):
            refuse(f"instruction {len(taken)} has a name for two outputs")
        taken.append((kind, inputs, attrs, outputs))
    chosen: dict[int, Any] = {}
    for decision in decisions:
        match decision:
            case [int(place), value] if 0 <= place < len(taken) and place not in chosen:
                chosen[place] = value
            case _:
                refuse("a decision is no pair of an instruction's place and a value")
    return taken, chosen


def _input(value: Any, named: Mapping[str, Any], depth: int = 0) -> Any:
    """Give what an input stands for: a name, a text in quotes, a number, or a list of these."""
    if isinstance(value, list) and depth == 0 and len(value) <= _MOST_VALUES:
        return [_input(one, named, 1) for one in value]
    if isinstance(value, str):
        if value == "None":
            return None
        if len(value) >= 2 and value[0] == value[-1] == '"':
            return value[1:-1]
        if value not in named:
            refuse(f"the name {value[:40]!r} stands for nothing")
        return named[value]
    if value is None or isinstance(value, int | float):
        return value
    return refuse("an input is no name, text or number")


def _attribute(value: Any) -> Any:
    """Let numbers, texts and lists of numbers through."""
    if isinstance(value, list) and len(value) <= _MOST_VALUES:
        return value
    return value if isinstance(value, int | float | str) else refuse("an attribute is no number")


def _check(before: tirx.PrimFunc, after: tirx.PrimFunc) -> None:
    """Make sure that a function takes what it took, and can be compiled in reasonable time."""
    for old, new in zip(before.params, after.params, strict=True):
        if not tvm_ffi.structural_equal(_type(old), _type(new)):
            refuse(f"the parameter {old.name} is not what it was")
    copies = _copies(after.body)
    if copies > MOST_COPIES:
        refuse(f"a statement would be written out {copies} times")


def _type(param: Any) -> Any:
    return param.ty


def _copies(stmt: Any, times: int = 1, outer: tuple[Any, ...] = ()) -> int:
    """Count how often loops that are unrolled or vectorized write a statement out, at most."""
    if isinstance(stmt, tirx.For):
        kind = stmt.kind
        if kind in _SPREAD:
            # TVM refuses these no earlier than when it compiles, or ignores the inner one.
            if tirx.ForKind.VECTORIZED in outer or kind in outer:
                refuse("a loop is parallel or vectorized within another one")
            outer = (*outer, kind)
        if kind in (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED):
            times *= int(stmt.extent)
        return _copies(stmt.body, times, outer)
    if isinstance(stmt, s_tir.SBlockRealize):
        return _copies(stmt.block.body, times, outer)
    if isinstance(stmt, tirx.SeqStmt):
        return max(_copies(one, times, outer) for one in stmt.seq)
    if isinstance(stmt, tirx.IfThenElse):
        branches = [stmt.then_case, *([] if stmt.else_case is None else [stmt.else_case])]
        return max(_copies(one, times, outer) for one in branches)
    return times
