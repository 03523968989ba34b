"""Compute element-wise operators before a reshape or a transpose, to fuse them with a product.

Importers compute a product of images or sentences as one of matrices, between two reshapes. But
``gelu(reshape(x))`` is ``reshape(gelu(x))``, and fusion continues through element-wise operators,
not through reshapes and transposes. Moved behind them, these also meet others that undo them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op
from tvm_ffi import structural_equal

from ..ir.graph import bound
from .compute import sizes

__all__ = ["as_group_norm", "sink_view", "transpose_axes"]

_RESHAPE, _TRANSPOSE = "relax.reshape", "relax.permute_dims"
_UNARY = ["abs", "clip", "cos", "erf", "exp", "negative", "rsqrt", "sigmoid", "sin", "sqrt", "tanh"]
_ACTIVATIONS = ["nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.silu"]
_BINARY = ["add", "divide", "maximum", "minimum", "multiply", "power", "subtract"]
_ELEMENTWISE = {f"relax.{name}" for name in (*_UNARY, *_ACTIVATIONS, *_BINARY)}
# Operators to look at for a product, so that the time is linear in the size of a network.
_NEAR = 16
# The axes of images by groups: batch, group, numbers.
_GROUPED = 3
_MATMUL = "relax.matmul"
_PRODUCTS = {_MATMUL, "relax.nn.conv2d", "relax.nn.conv3d", "relax.qnn.conv2d", "relax.qnn.dense"}


def sink_view(call: relax.Call, builder: relax.BlockBuilder, *, add: bool = True) -> relax.Expr:
    """Move the reshapes and transposes of a call's operands behind it, and merge adjacent ones.

    Another operand can need a reshape instead, if `add` is true. If it were moved as well, that of
    the first operand could come back, without end.
    """
    name = _name(call)
    if name in (_RESHAPE, _TRANSPOSE):
        return _merged(call, builder)
    if name == _MATMUL:
        return _as_one_matrix(call, builder)
    shape = _known(call) if name in _ELEMENTWISE else None
    if shape is None:
        return call
    tensors = [arg for arg in call.args if getattr(arg.ty, "ndim", 0)]
    views = [_view(arg, builder) for arg in tensors]
    whole = [view for view in views if view is not None and _alike(_known(view), shape)]
    first = next((view for view in whole if _multiplied(view.args[0], builder)), None)
    if first is None:
        return call
    move = _reshaped if _name(first) == _RESHAPE else _transposed
    moved = [move(arg, view, first, shape, add) for arg, view in zip(tensors, views, strict=True)]
    if any(arg is None for arg in moved):
        return call
    found = iter(moved)
    args = [
        builder.normalize(next(found)) if getattr(arg.ty, "ndim", 0) else arg for arg in call.args
    ]
    made = builder.normalize(relax.Call(call.op, args, call.attrs))
    inner = builder.emit(sink_view(made, builder, add=False))
    if move is _reshaped:
        return op.reshape(inner, shape)
    return op.permute_dims(inner, transpose_axes(first))


def as_group_norm(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    """Replace an instance normalization between reshapes: exporters to ONNX write groups so."""
    norm = bound(call.args[0], builder) if _name(call) == _RESHAPE else None
    if norm is None or _name(norm) != "relax.nn.instance_norm":
        return call
    view, shape = bound(norm.args[0], builder), _known(call)
    if _name(view) != _RESHAPE or not shape or not _alike(_known(view.args[0]), shape):
        return call
    groups, weights = _known(view), norm.args[1:]
    if not groups or not all(isinstance(size, int) for size in (*groups, *shape)):
        return call
    if len(groups) != _GROUPED or groups[0] != shape[0] or shape[1] % groups[1]:
        return call
    if not all(isinstance(weight, tvm.ir.GenericConst) for weight in weights):
        return call
    each = [np.repeat(weight.value.numpy(), shape[1] // groups[1]) for weight in weights]
    scale, offset = (relax.const(value, str(value.dtype)) for value in each)
    axes = [*range(2, len(shape))]
    epsilon = norm.attrs.epsilon
    return op.nn.group_norm(view.args[0], scale, offset, groups[1], 1, axes, epsilon)


def _merged(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    """Merge a reshape or a transpose with the same before it; drop a transpose without effect."""
    x, before = call.args[0], bound(call.args[0], builder)
    same = _name(before) == _name(call)
    if _name(call) == _TRANSPOSE:
        axes = transpose_axes(call)
        if same:
            x, axes = before.args[0], [transpose_axes(before)[axis] for axis in axes]
        if axes == sorted(axes):
            return x
        return op.permute_dims(x, axes) if same else call
    if not same or not _known(call) or not _known(before.args[0]):
        return call
    x = before.args[0]
    return x if _alike(_known(x), _known(call)) else op.reshape(x, call.args[1])


def _as_one_matrix(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    """Join the rows of all batches if their number is open; the rules join known numbers."""
    (left, right), shape = call.args, _known(call)
    if not isinstance(right, tvm.ir.GenericConst) or right.ty.ndim != 2 or not shape:
        return call
    *batch, _ = shape
    if len(batch) < 2 or all(isinstance(size, int) for size in batch) or batch[:-1] == [1]:
        return call
    if 0 in (*shape, *sizes(right.ty.shape)):  # in a list of sizes, 0 means the size before
        return call
    rows = math.prod(batch)
    matrix = builder.emit(op.reshape(left, [rows, *sizes(right.ty.shape)[:1]]))
    made = builder.emit(relax.Call(call.op, [matrix, right], call.attrs))
    return op.reshape(made, shape)


def _reshaped(
    arg: relax.Expr, view: relax.Call | None, first: relax.Call, shape: list[Any], add: bool
) -> relax.Expr | None:
    """Return what an operand is before the reshape `first`; None if it has no such form."""
    inner = _known(first.args[0])
    if view is not None and _name(view) == _RESHAPE and _alike(_known(view.args[0]), inner):
        return view.args[0]
    own = _known(arg)
    if _alike(own, shape):
        return op.reshape(arg, inner) if add else None
    # One number for each place of the last axis.
    one_line = own and _alike(own[:-1], [1] * (len(own) - 1))
    if inner and own and one_line and _alike([own[-1]] * 2, [shape[-1], inner[-1]]):
        last = [1] * (len(inner) - 1) + own[-1:]
        if isinstance(arg, tvm.ir.GenericConst):
            return relax.const(arg.value.numpy().reshape(last), arg.ty.dtype)
        return op.reshape(arg, last)
    return None


def _transposed(
    arg: relax.Expr, view: relax.Call | None, first: relax.Call, shape: list[Any], add: bool
) -> relax.Expr | None:
    """Return what an operand is before the transpose `first`; None if it would be copied."""
    axes = transpose_axes(first)
    if view is not None and _name(view) == _TRANSPOSE and transpose_axes(view) == axes:
        return view.args[0]
    if not isinstance(arg, tvm.ir.GenericConst):
        return None
    value = arg.value.numpy()
    whole = value.reshape([1] * (len(shape) - value.ndim) + [*value.shape])
    moved = whole.transpose(np.argsort(axes))
    return relax.const(np.ascontiguousarray(moved), arg.ty.dtype)


def _name(expr: Any) -> str:
    return str(getattr(getattr(expr, "op", None), "name", ""))


def transpose_axes(call: relax.Call) -> list[int]:
    """Return the axes of a transpose; without axes, it reverses the order."""
    rank, axes = call.ty.ndim, call.attrs.axes
    return [int(axis) % rank for axis in axes] if axes is not None else [*range(rank)][::-1]


def _known(expr: relax.Expr) -> list[Any] | None:
    """Return a shape, whose sizes can be symbolic; None if it is unknown."""
    shape = getattr(expr.ty, "shape", None)
    return sizes(shape.values) if isinstance(shape, relax.ShapeExpr) else None


def _alike(one: Sequence[Any] | None, other: Sequence[Any] | None) -> bool:
    """Return whether two shapes are known, and are the same."""
    if one is None or other is None or len(one) != len(other):
        return False
    return all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int) or isinstance(other, int):
        return isinstance(one, int) and isinstance(other, int) and one == other
    return bool(structural_equal(one, other))


def _view(expr: relax.Expr, builder: relax.BlockBuilder) -> relax.Call | None:
    """Return the reshape or transpose of a known shape that an expression is."""
    call = bound(expr, builder)
    view = _name(call) in (_RESHAPE, _TRANSPOSE) and _known(call) and _known(call.args[0])
    return call if view else None


def _multiplied(expr: relax.Expr, builder: relax.BlockBuilder) -> bool:
    """Return whether an expression is a product, or some element-wise operators and views later."""
    waiting = [expr]
    for _ in range(_NEAR):
        call = bound(waiting.pop(), builder)
        name = _name(call)
        if name in _PRODUCTS:
            return True
        if name in _ELEMENTWISE | {_RESHAPE, _TRANSPOSE}:
            waiting += [arg for arg in call.args if isinstance(arg, relax.Var)][::-1]
        if not waiting:
            break
    return False
