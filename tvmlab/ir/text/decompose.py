"""Operators that Relay lacks, put into several that it has.

Relay has no GELU and no product of stacks of matrices with more than one axis of stacking. Such a
call is decomposed before it is printed: the text computes the same, in more calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from .. import expand, table

__all__ = ["decompose"]


def decompose(mod: ir.IRModule) -> ir.IRModule:
    """Decompose calls that Relay has no operator for; other modules are returned as they are."""
    return expand.replace_calls(mod, _replacement)


def _replacement(call: relax.Call) -> relax.Expr | None:
    if call.op.name not in _DECOMPOSITIONS or table.written(call) is not None:
        return None
    return _DECOMPOSITIONS[call.op.name](call)


def _like(x: relax.Expr, value: float) -> relax.Expr:
    return relax.const(value, str(x.ty.dtype))


def _gelu(call: relax.Call) -> relax.Expr:
    (x,) = call.args
    half = op.multiply(op.erf(op.multiply(x, _like(x, math.sqrt(0.5)))), _like(x, 0.5))
    return op.multiply(x, op.add(_like(x, 0.5), half))


def _gelu_tanh(call: relax.Call) -> relax.Expr:
    (x,) = call.args
    cube = op.multiply(op.multiply(op.multiply(x, x), x), _like(x, 0.044715))
    inner = op.multiply(_like(x, math.sqrt(2 / math.pi)), op.add(x, cube))
    return op.multiply(op.multiply(_like(x, 0.5), x), op.add(_like(x, 1.0), op.tanh(inner)))


def _position(call: relax.Call) -> relax.Expr | None:
    """Find a position in int32, as Relay does, and make it an int64, as Relax has it."""
    row, axis = table.find(call.op.name.removeprefix("relax.")), call.attrs.axis
    if row is None:
        return None
    given = {"axis": None if axis is None else [int(axis)], "keepdims": call.attrs.keepdims}
    found = row.to_relax(list(call.args), table.complete_attributes(row, given))
    return op.astype(found, "int64")


def _flatten(call: relax.Call) -> relax.Expr | None:
    sizes = _sizes(call.args[0])
    return None if sizes is None else op.reshape(call.args[0], [math.prod(sizes)])


def _matmul(call: relax.Call) -> relax.Expr | None:
    """Put the axes of stacking into one, or into the rows where the right side has none."""
    shapes = [_sizes(arg) for arg in call.args]
    if None in shapes or min(map(len, shapes)) < 2:
        return None
    (left, right), (*stack, rows, columns) = call.args, _sizes(call)
    inner, count = shapes[0][-1], math.prod(stack)
    if len(shapes[1]) == 2:
        stacked = [op.reshape(left, [count * rows, inner]), right]
    else:
        stacked = [
            op.reshape(op.broadcast_to(x, [*stack, *last]), [count, *last])
            for x, last in ((left, [rows, inner]), (right, [inner, columns]))
        ]
    product = op.matmul(*stacked, out_dtype=call.attrs.out_dtype)
    return op.reshape(product, [*stack, rows, columns])


def _sizes(x: relax.Expr) -> Any:
    """Return the extents of a tensor, None where one of them is unknown."""
    extents = x.ty.shape.values if isinstance(x.ty.shape, relax.ShapeExpr) else [None]
    sizes = [getattr(extent, "value", None) for extent in extents]
    return None if None in sizes else sizes


_DECOMPOSITIONS: dict[str, Callable[[relax.Call], relax.Expr | None]] = {
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.silu": lambda call: op.multiply(call.args[0], op.sigmoid(call.args[0])),
    "relax.square": lambda call: op.multiply(call.args[0], call.args[0]),
    "relax.argmax": _position,
    "relax.argmin": _position,
    "relax.flatten": _flatten,
    "relax.matmul": _matmul,
}
