"""Operators whose results are among their operand's values, or limits that cut them.

Moving, copying, taking the largest and cutting keep the order of numbers. So each can be done
before or after rounding, and does to the integers what it does to the real values. A relu, clip,
maximum or minimum waits until the integers have the parameters of the quantize, where it is exact,
and where mostly the dtype has the same limits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import tvm
from tvm import relax

from .context import Rule, Site
from .quantized_value import (
    INFINITY,
    Array,
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    array_of,
    fixed_sizes,
    require,
    same_shape,
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


def _move(site: Site) -> QuantizedValue:
    call, var = site.call, site.var
    value = site.ctx.operand(call.args[0])
    axis: int | None = value.axis
    if not value.scalar:
        axis = MOVES[call.op.name].axis(call, var, value.axis)
    if axis is None:
        raise NotQuantizable("its operand has scales by channel, which do not stay on one axis")
    array = None if value.array is None else move_constant(value.array, call, var)
    if array is None:
        return _moved(site, replace(value, axis=axis, array=None))
    expr = relax.const(np.ascontiguousarray(array), value.dtype)
    return replace(value, expr=expr, axis=_within(axis, var, value), array=array)


def _move_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Move stored integers as they are, and requantize sums first, which makes them smaller."""
    ctx, operand = site.ctx, site.call.args[0]
    value = ctx.operand(operand, params)
    if value is ctx.known(operand) and (value.narrow or value.array is not None):
        with contextlib.suppress(NotQuantizable):
            return ctx.value(site.var)
    return _moved(site, ctx.at(operand, params))


def _moved(site: Site, value: QuantizedValue) -> QuantizedValue:
    expr = site.again([value.expr], value.dtype)
    return replace(value, expr=expr, axis=_within(value.axis, site.var, value))


def _within(axis: int, var: relax.Var, value: QuantizedValue) -> int:
    """Keep the axis of a single scale, which means nothing, within the result's rank."""
    ndim = int(getattr(var.ty, "ndim", 1))
    return axis if not value.scalar else max(0, min(axis, max(ndim, 1) - 1))


def _pad(site: Site, params: QuantParams | None = None) -> QuantizedValue:
    """Pad with the integer for the padding's value."""
    ctx, attrs, operand = site.ctx, site.call.attrs, site.call.args[0]
    require(str(attrs.pad_mode) == "constant", f'it pads in mode "{attrs.pad_mode}"')
    padding, value = float(attrs.pad_value), ctx.operand(operand, params)
    if params is None:
        place = padding / value.scale.astype(np.float64) + value.zero
        filler = float(place.flat[0])
        whole = filler == round(filler) and bool(np.all(place == filler))
        kept = value.low <= padding <= value.high and value.least <= filler <= value.most
        step = f"it pads with {padding}, which is no step of its operand's scale"
        require(whole and kept, step)
    else:
        if value is ctx.known(operand) and value.narrow:
            with contextlib.suppress(NotQuantizable):
                return ctx.value(site.var)
        value = ctx.at(operand, params)
        if value.clipped:
            value = replace(value.unclipped(), expr=ctx.requantize_to(value, params))
        filler = float(ctx.quantize(padding, params))
    widths = {name: getattr(attrs, name) for name in ("pad_width", "pad_mode")}
    made = tvm.ir.make_node("relax.attrs.PadAttrs", pad_value=filler, **widths)
    args = [value.expr, *list(site.call.args)[1:]]
    call = relax.Call(site.call.op, args, made, site.call.ty_args)
    return replace(value, expr=site.bind(call, value.dtype, value.dtype), array=None)


def _cast(site: Site, params: QuantParams | None = None) -> QuantizedValue:
    """Keep the integers through a cast to the dtype that the value has."""
    operand, dtype = site.call.args[0], str(site.var.ty.dtype)
    require(dtype == str(operand.ty.dtype), f"it casts to {dtype}")
    return site.ctx.operand(operand, params)


# Clips


def _number(expr: relax.Expr) -> float | None:
    """Read a limit of a clip, in one of the ways Relax has."""
    array = array_of(expr)
    if array is not None and array.size == 1:
        return float(array.ravel()[0])
    for number in (expr, getattr(expr, "value", None)):
        if isinstance(number, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
            return float(number.value)
    return None


def limits(call: relax.Call) -> tuple[float, float] | None:
    """Return the limits of a relu or a clip; None where they are not constant."""
    if call.op.name == "relax.nn.relu":
        return 0.0, INFINITY
    low, high = map(_number, call.args[1:])
    return None if low is None or high is None else (low, high)


def _cut(site: Site) -> tuple[relax.Expr, float, float] | None:
    """Return what a call clips, and where; None where it compares two computed values."""
    call = site.call
    if site.name not in ("maximum", "minimum"):
        if (found := limits(call)) is None:
            raise NotQuantizable("its limits are not constant")
        return (call.args[0], *found)
    for value, other in (call.args, call.args[::-1]):
        number = site.ctx.number(other)
        if number is not None and number.size == 1 and same_shape(value.ty, site.var.ty):
            limit = float(number.ravel()[0])
            larger = site.name == "maximum"
            return (value, limit, INFINITY) if larger else (value, -INFINITY, limit)
    return None


def _clip(site: Site, params: QuantParams | None = None) -> QuantizedValue:
    ctx, found = site.ctx, _cut(site)
    if found is None:
        if params is None:
            raise NotQuantizable("it compares values of two scales")
        sides = [ctx.requantize_to(ctx.at(arg, params), params) for arg in site.call.args]
        return QuantizedValue.of(site.again(sides, params.dtype), params)
    operand, low, high = found
    value = ctx.operand(operand, params)
    if params is not None and value is ctx.known(operand):
        return ctx.value(site.var)
    require(low <= high, f"its limits are {low} and {high}")
    return replace(value, low=min(max(value.low, low), high), high=min(max(value.high, low), high))


RULES = {
    **dict.fromkeys(MOVES, Rule(_move, _move_at)),
    **dict.fromkeys(
        ("relax.nn.relu", "relax.clip", "relax.maximum", "relax.minimum"), Rule(_clip, _clip)
    ),
    "relax.nn.pad": Rule(_pad, _pad),
    "relax.astype": Rule(_cast, _cast),
}
