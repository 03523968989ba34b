"""Rewrite calls one by one; compute transposes and reshapes of constants in NumPy.

Upstream's `FoldConstant` compiles a function for every constant expression, and runs it without a
schedule: for the transposed weights of BERT-base this takes 9 s of 15 s. It also repeats a weight
that an importer broadcasts to all batches of a product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm_ffi import structural_equal

from .graph import is_call

__all__ = ["bound", "each_call", "fold_views"]

_RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten")


def each_call(
    change: Callable[[relax.Call, relax.BlockBuilder], relax.Expr],
) -> tvm.transform.Pass:
    """Make a pass that replaces each call of a function, operands first."""

    @relax.expr_functor.mutator
    class Changed(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            return change(self.visit_expr_post_order(call), self.builder_)

    @relax.transform.function_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def changed(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
        return Changed().visit_expr(func)

    return changed


def bound(expr: relax.Expr, builder: relax.BlockBuilder) -> Any:
    """Return what a variable is bound to, if it is bound in the function."""
    while isinstance(expr, relax.Var):
        value = builder.lookup_binding(expr)
        if value is None:
            return expr
        expr = value
    return expr


def fold_views() -> tvm.transform.Pass:
    """Return the pass that folds views of constants, and drops broadcasts before products."""
    return each_call(_fold)


def _fold(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    if is_call(call, "relax.matmul"):
        return _without_broadcasts(call, builder)
    if is_call(call, "relax.broadcast_to") and structural_equal(call.ty, call.args[0].ty):
        return call.args[0]
    if not is_call(call, "relax.permute_dims", *_RESHAPES):
        return call
    data = bound(call.args[0], builder)
    if not isinstance(data, tvm.ir.GenericConst):
        return call
    value = data.value.numpy()
    if is_call(call, *_RESHAPES):
        value = value.reshape([int(size) for size in call.ty.shape])
    else:
        axes = call.attrs.axes
        value = np.transpose(value, None if axes is None else [int(axis) for axis in axes])
    return relax.const(np.ascontiguousarray(value), str(data.ty.dtype))


def _without_broadcasts(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    """Multiply matrices as they are before they are repeated."""
    for place in (1, 0):
        before = bound(call.args[place], builder)
        if not is_call(before, "relax.broadcast_to"):
            continue
        matrices = [one.ty.shape for one in (before, before.args[0])]
        if not all(isinstance(shape, relax.ShapeExpr) for shape in matrices):
            continue
        if not structural_equal(*[relax.ShapeExpr(shape.values[-2:]) for shape in matrices]):
            continue
        args = [*call.args[:place], before.args[0], *call.args[place + 1 :]]
        made = builder.normalize(relax.Call(call.op, args, call.attrs))
        call = made if structural_equal(made.ty, call.ty) else call
    return call
