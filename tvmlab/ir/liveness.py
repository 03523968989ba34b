"""Dropping bindings that nothing reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import tvm
from tvm import relax

__all__ = ["Block", "live"]

#: A block's bindings, and whether it is a dataflow block.
Block = tuple[bool, list[relax.Binding]]


def live(blocks: list[Block], body: relax.Expr) -> list[Block]:
    """Drop what nothing reads and what has no effect, from the last binding to the first."""
    needed = set(_reads(body))
    kept: list[Block] = []
    for dataflow, bindings in reversed(blocks):
        mine = []
        for binding in reversed(bindings):
            if binding.var in needed or not _pure(binding):
                mine.append(binding)
                needed.update(_reads(binding.value))
        if mine:
            kept.append((dataflow, mine[::-1]))
    return kept[::-1]


def _reads(expr: relax.Expr) -> Iterable[relax.Var]:
    """List the variables that an expression reads."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return _leaves(expr.args)
    if isinstance(expr, relax.Var):
        return [expr]
    if isinstance(expr, relax.TupleGetItem):
        return _leaves([expr.tuple_value])
    return list(relax.analysis.free_vars(expr))


def _leaves(exprs: Iterable[relax.Expr]) -> Iterator[relax.Var]:
    for expr in exprs:
        if isinstance(expr, relax.Var):
            yield expr
        elif isinstance(expr, relax.Tuple):
            yield from _leaves(expr.fields)
        elif isinstance(expr, (relax.Call, relax.TupleGetItem)):
            yield from relax.analysis.free_vars(expr)


def _pure(binding: relax.Binding) -> bool:
    """Return whether a binding can go if nothing reads it."""
    value = binding.value
    if not isinstance(binding, relax.VarBinding):
        return False  # a match_cast checks
    if isinstance(value, relax.Call):
        return isinstance(value.op, tvm.ir.Op) and bool(value.op.get_attr("FPurity"))
    return isinstance(
        value, (relax.Var, relax.Tuple, relax.TupleGetItem, relax.ShapeExpr, tvm.ir.GenericConst)
    )
