"""Operators that move values or choose among them: they do the same to integers.

Moving, copying and taking the largest need no arithmetic, so they can be done before or after
rounding, and what they do to the real values they do to the integers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relax

from .context import Context, Rule
from .quantized_value import (
    Array,
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    fixed_sizes,
    with_dtype,
)


class Move(NamedTuple):
    """What an operator does to its operand."""

    axis: Callable[[relax.Call, relax.Var, int], int | None]
    compute: Callable[[Array, relax.Call, relax.Var], Array | None] | None = None


def _order(call: relax.Call) -> list[int]:
    ndim = int(call.args[0].ty.ndim)
    axes = call.attrs.axes
    return list(range(ndim))[::-1] if axes is None else [int(i) % ndim for i in axes]


def _reshaped_axis(call: relax.Call, var: relax.Var, axis: int) -> int | None:
    """Find the axis that stays what it was: as long, with as much before it."""
    before, after = fixed_sizes(call.args[0].ty), fixed_sizes(var.ty)
    if before is None or after is None:
        return None
    place = int(np.prod(before[:axis], dtype=np.int64))
    for i, size in enumerate(after):
        if size == before[axis] and int(np.prod(after[:i], dtype=np.int64)) == place:
            return i
    return None


def _shaped(change: Callable[..., Array]) -> Callable[..., Array | None]:
    """Compute on a constant what only needs the result's shape."""

    def compute(array: Array, call: relax.Call, var: relax.Var) -> Array | None:
        shape = fixed_sizes(var.ty)
        return None if shape is None else change(array, shape)

    return compute


_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten")
_SELECTIONS = ("split", "strided_slice", "repeat", "tile", "flip", "max", "min")
#: Operators whose results are among their operand's values.
MOVES: dict[str, Move] = {
    **{f"relax.{name}": Move(_reshaped_axis, _shaped(np.reshape)) for name in _RESHAPES},
    **{f"relax.{name}": Move(lambda call, var, axis: None) for name in _SELECTIONS},
    "relax.permute_dims": Move(
        lambda call, var, axis: _order(call).index(axis),
        lambda array, call, var: array.transpose(_order(call)),
    ),
    "relax.broadcast_to": Move(
        lambda call, var, axis: axis + int(var.ty.ndim) - int(call.args[0].ty.ndim),
        _shaped(np.broadcast_to),
    ),
    "relax.nn.max_pool2d": Move(lambda call, var, axis: axis),
}


def move_constant(array: Array, call: relax.Call, var: relax.Var) -> Array | None:
    """Compute what a moving operator makes of a constant; None for other operators."""
    move = MOVES.get(call.op.name)
    return None if move is None or move.compute is None else move.compute(array, call, var)


def _move(ctx: Context, call: relax.Call, var: relax.Var) -> QuantizedValue:
    value = ctx.operand(call.args[0])
    axis: int | None = value.axis
    if not value.scalar:
        axis = MOVES[call.op.name].axis(call, var, value.axis)
    if axis is None:
        raise NotQuantizable("its operand has scales by channel, which do not stay on one axis")
    array = None if value.array is None else move_constant(value.array, call, var)
    if array is None:
        return _again(ctx, call, var, replace(value, axis=axis, array=None))
    expr = relax.const(np.ascontiguousarray(array), value.dtype)
    return replace(value, expr=expr, axis=_within(axis, var, value), array=array)


def _move_at(ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams) -> QuantizedValue:
    """Move stored integers as they are, and requantize sums first, which makes them smaller."""
    operand = call.args[0]
    value = ctx.operand(operand, params)
    if value is ctx.known(operand) and (value.narrow or value.array is not None):
        with contextlib.suppress(NotQuantizable):
            return ctx.value(var)
    return _again(ctx, call, var, ctx.at(operand, params))


def _again(ctx: Context, call: relax.Call, var: relax.Var, value: QuantizedValue) -> QuantizedValue:
    expr = ctx.emit.again(call, [value.expr], var, value.dtype)
    return replace(value, expr=expr, axis=_within(value.axis, var, value))


def _within(axis: int, var: relax.Var, value: QuantizedValue) -> int:
    """Keep the axis of a single scale, which means nothing, within the result's rank."""
    ndim = int(getattr(var.ty, "ndim", 1))
    return axis if not value.scalar else max(0, min(axis, max(ndim, 1) - 1))


def _pad(ctx: Context, call: relax.Call, var: relax.Var) -> QuantizedValue:
    """Pad with the integer for the padding's value."""
    padding = _padding(call)
    value = ctx.operand(call.args[0])
    place = padding / value.scale.astype(np.float64) + value.zero
    first = float(place.flat[0])
    whole = first == round(first) and bool(np.all(place == first))
    kept = value.low <= padding <= value.high and value.least <= first <= value.most
    if not (whole and kept):
        raise NotQuantizable(f"it pads with {padding}, which is no step of its operand's scale")
    return _padded(ctx, call, var, value, int(first))


def _pad_at(ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams) -> QuantizedValue:
    padding, operand = _padding(call), call.args[0]
    value = ctx.operand(operand, params)
    if value is ctx.known(operand) and value.narrow:
        with contextlib.suppress(NotQuantizable):
            return ctx.value(var)
    value = ctx.at(operand, params)
    if value.clipped:
        value = replace(value.unclipped(), expr=ctx.emit.requantize_to(value, params))
    return _padded(ctx, call, var, value, int(ctx.emit.quantize(padding, params)))


def _padding(call: relax.Call) -> float:
    if str(call.attrs.pad_mode) != "constant":
        raise NotQuantizable(f'it pads in mode "{call.attrs.pad_mode}"')
    return float(call.attrs.pad_value)


def _padded(
    ctx: Context, call: relax.Call, var: relax.Var, value: QuantizedValue, padding: int
) -> QuantizedValue:
    attributes = {name: getattr(call.attrs, name) for name in ("pad_width", "pad_mode")}
    attrs = tvm.ir.make_node("relax.attrs.PadAttrs", pad_value=float(padding), **attributes)
    made = relax.Call(call.op, [value.expr, *list(call.args)[1:]], attrs, call.ty_args)
    ty = with_dtype(var.ty, value.dtype)
    return replace(value, expr=ctx.emit.bind(made, ty, f"{var.name}_{value.dtype}"), array=None)


def _cast(
    ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams | None = None
) -> QuantizedValue:
    """Keep the integers through a cast to the dtype that the value has."""
    if str(var.ty.dtype) != str(call.args[0].ty.dtype):
        raise NotQuantizable(f"it casts to {var.ty.dtype}")
    return ctx.operand(call.args[0], params)


RULES = {
    **dict.fromkeys(MOVES, Rule(_move, _move_at)),
    "relax.nn.pad": Rule(_pad, _pad_at),
    "relax.astype": Rule(_cast, _cast),
}
