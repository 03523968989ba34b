"""Operators that `ConvertLayout` raises at, said with those that it carries layouts through.

A dropout's two results, ``stack``, and negative axes of a transpose or a squeeze each make
upstream's pass (TVM 0.27) give up on the whole module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_op, rewrite_call, wildcard

__all__ = ["CarryLayouts", "convolves"]


def convolves(mod: tvm.ir.IRModule) -> bool:
    """Say whether a module has a two-dimensional convolution, whose layout could be converted."""
    found = []

    def look(expr: Any) -> None:
        found.append(getattr(getattr(expr, "op", None), "name", "") in _CONVOLUTIONS)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, look)
    return any(found)


_CONVOLUTIONS = {"relax.nn.conv2d", "relax.qnn.conv2d"}


@relax.transform.function_pass(opt_level=0)
class CarryLayouts:
    """The pass: the same values, by operators whose layouts can be converted.

    A dropout, which does nothing in inference, becomes its operand; where its mask is used too, it
    stays.
    """

    def transform_function(
        self, func: relax.Function, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Rewrite one function, called by TVM's pass infrastructure."""
        x = wildcard()
        dropout = TupleGetItemPattern(is_op("relax.nn.dropout")(x), 0)
        func = rewrite_call(dropout, lambda _, found: found[x], func)
        for name, change in _CHANGES.items():
            func = rewrite_call(is_op(name)(x), lambda call, _, change=change: change(call), func)
        return func


def _transpose(call: relax.Call) -> relax.Expr:
    axes, rank = call.attrs.axes, call.ty.ndim
    if axes is None or rank < 0 or all(int(axis) >= 0 for axis in axes):
        return call
    return relax.op.permute_dims(call.args[0], [int(axis) % rank for axis in axes])


def _squeeze(call: relax.Call) -> relax.Expr:
    axes, rank = call.attrs.axis, call.args[0].ty.ndim
    if axes is None or rank < 0 or all(int(axis) >= 0 for axis in axes):
        return call
    return relax.op.squeeze(call.args[0], [int(axis) % rank for axis in axes])


def _stack(call: relax.Call) -> relax.Expr:
    fields = call.args[0]
    if not isinstance(fields, relax.Tuple) or call.ty.ndim < 0:
        return call
    axis = int(call.attrs.axis or 0) % call.ty.ndim
    return relax.op.concat([relax.op.expand_dims(one, axis) for one in fields.fields], axis)


_CHANGES: dict[str, Callable[[relax.Call], relax.Expr]] = {
    "relax.permute_dims": _transpose,
    "relax.squeeze": _squeeze,
    "relax.stack": _stack,
}
