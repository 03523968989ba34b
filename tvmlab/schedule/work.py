"""Count a function's arithmetic operations in its loops, before it is scheduled."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx

__all__ = ["Tally", "Work", "counted"]

#: Function attribute: the result of `counted` before the function was scheduled.
_WORK = "tvmlab.work"
#: Function attribute: the rule that scheduled it (`tvmlab.schedule.apply` sets it).
_RULE = "tvmlab.rule"

_ARITHMETIC = (
    *(tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod),
    *(tirx.Min, tirx.Max, tirx.LShift, tirx.RShift),
    *(tirx.BitwiseAnd, tirx.BitwiseOr, tirx.BitwiseXor),
)
# Calls to code whose operations cannot be counted.
_OPAQUE = re.compile(r"extern|packed|llvm|intrin|inject|access_ptr|address_of|workspace")


@dataclass(frozen=True)
class Work:
    """The work of one call of a compiled function.

    Attributes
    ----------
    operations : int or None
        Arithmetic on elements: a multiply-add is two operations; loads, casts, comparisons and
        index arithmetic do not count. Counted before scheduling. None if a size is known
        only at run time, or if the function calls other code.
    dtype : str
        The dtype of most operations, empty without any. Products of narrow integers that are
        summed in int32 count as int8 or int16, because processors have instructions for them.
    rule : str
        The rule that scheduled the function; empty if none did.
    """

    operations: int | None
    dtype: str
    rule: str


# Operations by dtype. A share is the fraction of a tensor that is read, whose loops fill all of it.
_Counts = Mapping[str, int | Fraction]


class _Unknown(Exception):
    """The work cannot be counted."""


def counted(func: tirx.PrimFunc) -> dict[str, Any]:
    """Return the attributes that keep a function's operation count through scheduling."""
    operations, dtype = _count(func)
    return {_WORK: [-1 if operations is None else operations, dtype]}


@tvm.transform.module_pass(opt_level=0)
class Tally:
    """A pass that changes nothing, and records every TIR function and its work."""

    def __init__(self) -> None:
        self.work: dict[str, Work] = {}
        self.tir = tvm.ir.IRModule()

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Read a module, called by TVM's pass infrastructure."""
        for var, func in mod.functions_items():
            if isinstance(func, tirx.PrimFunc):
                self.tir[var] = func
                attrs = func.attrs or {}
                number, dtype = attrs.get(_WORK) or counted(func)[_WORK]
                operations = None if number < 0 else int(number)
                self.work[var.name_hint] = Work(operations, str(dtype), str(attrs.get(_RULE, "")))
        return mod


def _count(func: tirx.PrimFunc) -> tuple[int | None, str]:
    """Return the number of operations, and the dtype of most of them."""
    try:
        found = _statement(func.body, _read_shares(func))
    except _Unknown:
        return None, ""
    return int(sum(found.values())), max(found, key=found.__getitem__, default="")


def _statement(stmt: Any, shares: Mapping[Any, Fraction]) -> _Counts:
    """Count operations in a statement and all statements below it."""
    if isinstance(stmt, tirx.For):
        if not isinstance(stmt.extent, tirx.IntImm):
            raise _Unknown
        return _times(_statement(stmt.body, shares), int(stmt.extent.value))
    if isinstance(stmt, tirx.SeqStmt):
        return _sum(_statement(part, shares) for part in stmt.seq)
    if isinstance(stmt, tirx.IfThenElse):
        sides = [stmt.then_case, stmt.else_case]
        return _larger(_statement(side, shares) for side in sides if side is not None)
    if isinstance(stmt, tirx.BufferStore):
        return _times(_expression(stmt.value) or {}, shares.get(stmt.buffer, 1))
    if isinstance(stmt, (tirx.Bind, tirx.Evaluate)):
        return _expression(stmt.value) or {}
    if isinstance(stmt, tirx.While):
        raise _Unknown
    # The initial value of a reduction (`init`) is a constant.
    inside = getattr(stmt, "block", None) or getattr(stmt, "body", None)
    return {} if inside is None else _statement(inside, shares)


def _expression(expr: Any) -> _Counts | None:
    """Count operations in an expression; None if it has only indices and constants."""
    if isinstance(expr, _ARITHMETIC):
        return _with(expr, [_expression(expr.a), _expression(expr.b)])
    if isinstance(expr, tirx.BitwiseNot):
        return _with(expr, [_expression(expr.a)])
    if isinstance(expr, (tirx.Cast, tirx.Broadcast)):
        return _expression(expr.value)
    if isinstance(expr, tirx.Select):
        return _either([expr.true_value, expr.false_value])
    if isinstance(expr, tirx.Let):
        parts = [_expression(expr.value), _expression(expr.body)]
        return None if parts == [None, None] else _sum(part or {} for part in parts)
    if isinstance(expr, tvm.ir.Call):
        return _call(expr)
    # Loops count in integers; every variable that is not a loop variable was loaded.
    named = isinstance(expr, tvm.ir.Var) and not str(expr.ty.dtype).startswith(("int", "uint"))
    return {} if named or isinstance(expr, tvm.ir.TensorLoad) else None


def _call(call: Any) -> _Counts | None:
    """Count the call of an intrinsic as one operation, plus those of its operands."""
    name = str(getattr(call.op, "name", "extern"))
    if _OPAQUE.search(name):
        raise _Unknown
    if name.endswith("if_then_else"):
        return _either(call.args[1:])
    parts = [_expression(part) for part in call.args]
    if name.endswith(("reinterpret", "likely", "prefetch")):
        return None if all(part is None for part in parts) else _sum(part or {} for part in parts)
    return _with(call, parts)


def _either(sides: Iterable[Any]) -> _Counts | None:
    """Return the count of the larger branch of a choice."""
    parts = [part for part in map(_expression, sides) if part is not None]
    return _larger(parts) if parts else None


def _with(expr: Any, parts: Sequence[_Counts | None]) -> _Counts | None:
    """Add one operation to those of the operands, if any operand has elements."""
    elements = [part for part in parts if part is not None]
    dtype, lanes = _dtype(expr)
    sides = [expr.a, expr.b] if isinstance(expr, tirx.Add) else [expr]
    narrow = next(filter(None, map(_narrow, sides)), dtype)
    return _sum([{narrow: lanes}, *elements]) if elements else None


def _narrow(expr: Any) -> str | None:
    """Return the dtype if an int32 product is one of narrow integers."""
    if not isinstance(expr, tirx.Mul) or _dtype(expr)[0] != "int32":
        return None
    if not isinstance(expr.a, tirx.Cast) or not isinstance(expr.b, tirx.Cast):
        return None
    factors = {_dtype(side.value)[0] for side in (expr.a, expr.b)}
    if factors <= {"int8", "uint8"}:
        return "int8"
    return "int16" if factors <= {"int8", "uint8", "int16"} else None


def _dtype(expr: Any) -> tuple[str, int]:
    """Split a dtype: ``"float32x16"`` is 16 of ``"float32"``."""
    element, _, lanes = str(expr.ty.dtype).partition("x")
    return element, int(lanes or 1)


def _sum(parts: Iterable[_Counts]) -> _Counts:
    total: dict[str, int | Fraction] = {}
    for part in parts:
        for dtype, count in part.items():
            total[dtype] = total.get(dtype, 0) + count
    return total


def _times(part: _Counts, number: int | Fraction) -> _Counts:
    return {dtype: number * count for dtype, count in part.items()}


def _larger(sides: Iterable[_Counts]) -> _Counts:
    return max(sides, key=lambda side: sum(side.values()), default={})


_Box = list[tuple[int, int]]


def _read_shares(func: tirx.PrimFunc) -> Mapping[Any, Fraction]:
    """Find the buffers that are filled completely, and the fraction of each that is read."""
    boxes: dict[Any, _Box] = {}
    analyzer = sym.Analyzer()

    def visit(block: Any) -> None:
        for var in block.iter_vars:
            analyzer.bind(var.var, var.dom, allow_override=True)
        own = {written.source for written in block.writes}
        for read in block.reads:
            if read.source not in own:  # sums read their own result
                box = [_span(analyzer, each) for each in read.region]
                boxes[read.source] = _around(boxes.get(read.source, box), box)

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, visit))
    given = set(func.params)
    shares = {
        buffer: _share(box, buffer.shape) for buffer, box in boxes.items() if buffer not in given
    }
    return {buffer: share for buffer, share in shares.items() if share < 1}


def _span(analyzer: Any, each: Any) -> tuple[int, int]:
    """Bound the indices of one axis: the first, and the one after the last."""
    first = analyzer.const_int_bound(each.min)
    last = analyzer.const_int_bound(each.min + each.extent)
    return int(first.min_value), int(last.max_value)


def _around(one: _Box, other: _Box) -> _Box:
    return [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)]


def _share(box: _Box, shape: Any) -> Fraction:
    """Return the fraction of a shape that a box covers."""
    if not all(isinstance(size, tirx.IntImm) and size.value > 0 for size in shape):
        return Fraction(1)
    sizes = [int(size.value) for size in shape]
    inside = [
        max(0, min(end, size) - max(first, 0))
        for (first, end), size in zip(box, sizes, strict=True)
    ]
    return Fraction(math.prod(inside), math.prod(sizes))
