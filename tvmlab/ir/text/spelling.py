"""What Relax says in one word and Relay in several.

Relay has no GELU and no product of stacks of matrices with more than one axis of stacking. Before
such a call is printed, it is put into operators that Relay has: what is read again computes the
same, in more calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import ir, relax
from tvm.relax import op

from .. import expand, table

__all__ = ["spell_out"]


def spell_out(mod: ir.IRModule) -> ir.IRModule:
    """Replace calls that Relay has no operator for by several that it has.

    A module without such calls is returned as it is.
    """
    found: list[relax.Call] = []

    def look(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and _spelled(expr) is not None:
            found.append(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, look)
    return expand.replace_calls(mod, _spelled) if found else mod


def _spelled(call: relax.Call) -> relax.Expr | None:
    if not isinstance(call.op, ir.Op) or call.op.name not in _SPELLINGS:
        return None
    if table.written(call) is not None:
        return None
    return _SPELLINGS[call.op.name](call)


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


def _position(name: str) -> Callable[[relax.Call], relax.Expr | None]:
    def spell(call: relax.Call) -> relax.Expr | None:
        """Relay counts positions in int32, Relax in int64."""
        row, axis = table.find(name), call.attrs.axis
        if row is None:
            return None
        given = {"axis": None if axis is None else [int(axis)], "keepdims": call.attrs.keepdims}
        return op.astype(
            row.to_relax(list(call.args), table.complete_attributes(row, given)), "int64"
        )

    return spell


def _flatten(call: relax.Call) -> relax.Expr | None:
    (x,) = call.args
    if not isinstance(x.ty.shape, relax.ShapeExpr):
        return None
    return op.reshape(x, [math.prod(_sizes(x))] if _fixed(x) else [-1])


def _matmul(call: relax.Call) -> relax.Expr | None:
    """Put the axes of stacking into one, or into the rows where the right side has none."""
    left, right = call.args
    if not (_fixed(left) and _fixed(right)) or min(left.ty.ndim, right.ty.ndim) < 2:
        return None
    *stack, rows, columns = _sizes(call)
    inner, count = _sizes(left)[-1], math.prod(stack)
    if right.ty.ndim == 2:
        stacked = [op.reshape(left, [count * rows, inner]), right]
    else:
        stacked = [
            op.reshape(op.broadcast_to(x, [*stack, *last]), [count, *last])
            for x, last in ((left, [rows, inner]), (right, [inner, columns]))
        ]
    product = op.matmul(*stacked, out_dtype=call.attrs.out_dtype)
    return op.reshape(product, [*stack, rows, columns])


def _fixed(x: relax.Expr) -> bool:
    """Say whether every extent is known."""
    shape = x.ty.shape
    return isinstance(shape, relax.ShapeExpr) and all(
        hasattr(extent, "value") for extent in shape.values
    )


def _sizes(x: relax.Expr) -> list[int]:
    return [int(extent) for extent in x.ty.shape.values]


_SPELLINGS: dict[str, Callable[[relax.Call], relax.Expr | None]] = {
    "relax.nn.gelu": _gelu,
    "relax.nn.gelu_tanh": _gelu_tanh,
    "relax.nn.silu": lambda call: op.multiply(call.args[0], op.sigmoid(call.args[0])),
    "relax.square": lambda call: op.multiply(call.args[0], call.args[0]),
    "relax.argmax": _position("argmax"),
    "relax.argmin": _position("argmin"),
    "relax.flatten": _flatten,
    "relax.matmul": _matmul,
}
