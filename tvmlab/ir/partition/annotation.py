"""The marks on a graph: making them, and telling them from other expressions."""

from __future__ import annotations

from tvm import ir, relax, tirx

from .. import dialect, graph
from ..operators.annotation import BEGIN, END

DEFAULT = "default"
"""The compiler that stands for TVM itself: what no other compiler takes."""


def compiler_begin(data: relax.Expr, compiler: str) -> relax.Call:
    """Mark an expression as an input of a compiler's part of the graph.

    Parameters
    ----------
    data : tvm.relax.Expr
        A tensor or a tuple.
    compiler : str
        The compiler's name.

    Returns
    -------
    tvm.relax.Call
        The same value, marked; of the same type.

    Notes
    -----
    Relay's `relay.annotation.compiler_begin`, as a Relax operator of ours.
    """
    return _mark(BEGIN, data, compiler)


def compiler_end(data: relax.Expr, compiler: str) -> relax.Call:
    """Mark an expression as an output of a compiler's part of the graph.

    Parameters
    ----------
    data : tvm.relax.Expr
        A tensor or a tuple.
    compiler : str
        The compiler's name.

    Returns
    -------
    tvm.relax.Call
        The same value, marked; of the same type.

    Notes
    -----
    Relay's `relay.annotation.compiler_end`, as a Relax operator of ours.
    """
    return _mark(END, data, compiler)


def _mark(operator: str, data: relax.Expr, compiler: str) -> relax.Call:
    return graph.typed(dialect.call(operator, [data], {"compiler": str(compiler)}))


def is_begin(expr: relax.Expr) -> bool:
    """Return whether an expression is a `compiler_begin`."""
    return graph.is_call(expr, BEGIN)


def is_end(expr: relax.Expr) -> bool:
    """Return whether an expression is a `compiler_end`."""
    return graph.is_call(expr, END)


def compiler_of(mark: relax.Call) -> str:
    """Give the compiler that a mark names."""
    return str(mark.attrs["compiler"])


def is_data(expr: relax.Expr) -> bool:
    """Say whether an operand was an operand in Relay too.

    Relax has shapes, numbers, dtypes and tuples of numbers as operands that were attributes in
    Relay; nothing computes them, so they bear no marks. Nor does the empty tuple.
    """
    if isinstance(expr, relax.Tuple):
        return any(map(is_data, expr.fields))
    if isinstance(expr, (tirx.Var, relax.Var)):
        return not isinstance(expr.ty, (ir.PrimType, relax.ShapeType))
    return isinstance(expr, (relax.Call, relax.TupleGetItem, relax.If, ir.GenericConst))


def operands(expr: relax.Expr) -> list[relax.Expr]:
    """List what bears marks: a call's operands, a tuple's fields, the parts of an `if`."""
    if isinstance(expr, relax.Call):
        return [arg for arg in expr.args if is_data(arg)]
    if isinstance(expr, relax.Tuple):
        return list(expr.fields) if is_data(expr) else []
    if isinstance(expr, relax.TupleGetItem):
        return [expr.tuple_value]
    return graph.children(expr)
