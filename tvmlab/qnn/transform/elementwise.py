"""Integer forms of moves, clips, functions of one value, and elementwise sums and products.

Moves, copies, maxima and clips preserve the order of numbers, so they can come before or after the
rounding. A relu, clip, maximum or minimum is delayed until the integers have the parameters of the
quantize, where it is exact. The others become calls of the quantized operator. A constant added to
sums is their bias; other unrounded sums are added in int32 at a fine scale. The importers write
hard swish as four operators without a quantize between them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from .. import arithmetic
from ..checks import Array
from ..fixed_point import INT32
from ..unary import FUNCTIONS
from . import reading
from .context import Context, Rule, Site
from .products import add_constant
from .values import NotQuantizable, QuantizedValue, QuantParams, common_dtype, known, require

# Sums are added at the smallest operand's scale divided by this number, where int32 allows it.
_FINE = 2.0**12
# A float32 number is rounded by at most this fraction of itself, twice in a product.
_FLOATS = 2.0**-23
# A larger ratio leaves no room in int32 for both sides and their sum.
_ROOM = 2.0**30


class Move(NamedTuple):
    """The effect of an operator that moves elements: on the channels' axis and on constants."""

    axis: Callable[[relax.Call, relax.Var, int], int | None]
    compute: Callable[[Array, relax.Call, relax.Var], Array | None] | None = None


def _order(call: relax.Call) -> list[int]:
    ndim = int(call.args[0].ty.ndim)
    axes = call.attrs.axes
    return list(range(ndim))[::-1] if axes is None else [int(i) % ndim for i in axes]


def _reshaped_axis(call: relax.Call, var: relax.Var, axis: int) -> int | None:
    """Return the result's axis with the same size and the same number of elements before it."""
    before, after = reading.fixed_sizes(call.args[0].ty), reading.fixed_sizes(var.ty)
    if before is None or after is None:
        return None
    place = int(np.prod(before[:axis], dtype=np.int64))
    for i, size in enumerate(after):
        if size == before[axis] and int(np.prod(after[:i], dtype=np.int64)) == place:
            return i
    return None


def _shaped(change: Callable[..., Array]) -> Callable[..., Array | None]:
    """Make a function for constants from one that needs only the result's shape."""

    def compute(array: Array, call: relax.Call, var: relax.Var) -> Array | None:
        shape = reading.fixed_sizes(var.ty)
        return None if shape is None else change(array, shape)

    return compute


_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten")
_SELECTIONS = "split", "strided_slice", "repeat", "tile", "flip", "max", "min", "take", "topk"
#: Operators whose results contain only values of their operand.
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
    """Return the result of a moving operator on a constant; None for other operators."""
    move = MOVES.get(call.op.name)
    return None if move is None or move.compute is None else move.compute(array, call, var)


def _move(site: Site) -> QuantizedValue:
    call, var = site.call, site.var
    value = site.ctx.operand(call.args[0])
    axis = value.axis if value.scalar else MOVES[call.op.name].axis(call, var, value.axis)
    axis = known(axis, "its operand's channels do not stay on one axis")
    array = None if value.array is None else move_constant(value.array, call, var)
    if array is None:
        return _moved(site, replace(value, axis=axis, array=None))
    expr = relax.const(np.ascontiguousarray(array), value.dtype)
    return replace(value, expr=expr, axis=_within(axis, var, value), array=array)


def _move_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Move stored integers directly, but requantize sums first, because that makes them smaller."""
    ctx, operand = site.ctx, site.call.args[0]
    value = ctx.operand(operand, params)
    if value is ctx.known(operand) and (value.narrow or value.array is not None):
        with contextlib.suppress(NotQuantizable):
            return ctx.value(site.var)
    return _moved(site, ctx.at(operand, params))


def _moved(site: Site, value: QuantizedValue) -> QuantizedValue:
    expr = site.again([value.expr], value.dtype)
    return replace(value, expr=expr, axis=_within(value.axis, site.var, value))


def _topk(site: Site, params: QuantParams | None = None) -> QuantizedValue:
    require(str(site.call.attrs.ret_type) == "values", "its result has indices")
    return _move(site) if params is None else _move_at(site, params)


def _within(axis: int, var: relax.Var, value: QuantizedValue) -> int:
    """Clamp the axis of a single scale, which has no meaning, to the result's rank."""
    ndim = int(getattr(var.ty, "ndim", 1))
    return axis if not value.scalar else max(0, min(axis, max(ndim, 1) - 1))


def _pad(site: Site, params: QuantParams | None = None) -> QuantizedValue:
    """Pad with the integer that represents the padding's value."""
    ctx, attrs, operand = site.ctx, site.call.attrs, site.call.args[0]
    require(str(attrs.pad_mode) == "constant", f'it pads in mode "{attrs.pad_mode}"')
    padding, value = float(attrs.pad_value), ctx.operand(operand, params)
    if params is None:
        place = padding / value.scale.astype(np.float64) + value.zero
        filler = float(place.flat[0])
        whole = filler == round(filler) and bool(np.all(place == filler))
        kept = value.low <= padding <= value.high and value.least <= filler <= value.most
        require(whole and kept, f"it pads with {padding}, not a multiple of its operand's scale")
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
    operand, dtype = site.call.args[0], str(site.var.ty.dtype)
    require(dtype == str(operand.ty.dtype), f"it casts to {dtype}")
    return site.ctx.operand(operand, params)


# Clips


def limits(call: relax.Call) -> tuple[float, float] | None:
    """Return the limits of a relu or a clip; None if they are not constant."""
    if call.op.name == "relax.nn.relu":
        return 0.0, math.inf
    low, high = (getattr(limit, "value", None) for limit in call.args[1:])
    if isinstance(low, int | float) and isinstance(high, int | float):
        return float(low), float(high)
    return None


def _cut(site: Site) -> tuple[relax.Expr, float, float] | None:
    """Return the clipped operand and the limits; None for a comparison of two computed values."""
    call = site.call
    if site.name not in ("maximum", "minimum"):
        return (call.args[0], *known(limits(call), "its limits are not constant"))
    for value, other in (call.args, call.args[::-1]):
        number = site.ctx.number(other)
        if number is not None and number.size == 1 and reading.same_shape(value.ty, site.var.ty):
            limit = float(number.ravel()[0])
            larger = site.name == "maximum"
            return (value, limit, math.inf) if larger else (value, -math.inf, limit)
    return None


def _clip(site: Site, params: QuantParams | None = None) -> QuantizedValue:
    ctx, found = site.ctx, _cut(site)
    if found is None:
        params = known(params, "it compares values of two scales")
        sides = [ctx.requantize_to(ctx.at(arg, params), params) for arg in site.call.args]
        return QuantizedValue.of(site.again(sides, params.dtype), params)
    operand, low, high = found
    value = ctx.operand(operand, params)
    if params is not None and value is ctx.known(operand):
        return ctx.value(site.var)
    require(low <= high, f"its limits are {low} and {high}")
    return replace(value, low=min(max(value.low, low), high), high=min(max(value.high, low), high))


# Functions of one value


def _unrounded(site: Site) -> QuantizedValue:
    for arg in site.call.args:
        for operand in reading.leaves(arg):
            site.ctx.stored(operand)
    raise NotQuantizable("its result is not quantized")


def _looked_up(site: Site, params: QuantParams) -> QuantizedValue:
    if site.name != "nn.leakyrelu":
        return _table(site, site.name.removeprefix("nn."), site.call.args[0], {}, params)
    alpha = float(site.call.attrs.alpha)
    # The kernel rounds twice, and a larger slope would enlarge the first rounding.
    require(abs(alpha) <= 1, f"its slope is {alpha}")
    return _table(site, "leaky_relu", site.call.args[0], {"alpha": alpha}, params)


def _table(
    site: Site, name: str, operand: relax.Expr, attributes: dict[str, float], params: QuantParams
) -> QuantizedValue:
    value = site.ctx.stored(operand)
    require(not value.error, "its operand was rounded before it")
    if name in FUNCTIONS:
        every = np.arange(value.least, value.most + 1).astype(value.dtype)
        with np.errstate(all="ignore"):
            real = FUNCTIONS[name](arithmetic.dequantize(every, value.scale, value.zero))
        # Integers cannot represent NaN.
        require(not np.isnan(real).any(), f"{name} is undefined for some values of its operand")
    require(params.dtype != "int32", "its result is int32, which is too wide for a lookup table")
    dtype = common_dtype([value.dtype], params.dtype)
    own = site.ctx.change_dtype(value, dtype)
    return site.call_at(name, [own.expr, *site.ctx.params(own)], attributes, params, dtype)


def _hardswish_operand(site: Site) -> relax.Var | None:
    """Return x of ``x * (clip(x + 3, 0, 6) / 6)`` or ``x * clip(x + 3, 0, 6) / 6``."""
    ctx = site.ctx

    def beside(expr: Any, name: str, value: float) -> Any:
        """Return the operand that a call combines with a number, as importers write it."""
        call = ctx.calls.get(expr)
        if not reading.calls(call, name) or (number := ctx.number(call.args[1])) is None:
            return None
        return call.args[0] if number.size == 1 and number.flat[0] == value else None

    whole = beside(site.var, "divide", 6)
    product = ctx.calls.get(site.var if whole is None else whole)
    if not reading.calls(product, "multiply"):
        return None
    x, cut = product.args
    clip = ctx.calls.get(beside(cut, "divide", 6) if whole is None else cut)
    if not reading.calls(clip, "clip") or limits(clip) != (0, 6):
        return None
    return x if x.same_as(beside(clip.args[0], "add", 3)) else None


# Two values


def _biased_operand(site: Site) -> tuple[relax.Expr, Array, QuantizedValue | None] | None:
    """Return the operand that a constant is added to, the constant, and the constant's integers."""
    ctx, args, subtracts = site.ctx, site.call.args, site.name == "subtract"
    for operand, other in [args] if subtracts else [args, args[::-1]]:
        number, stored = ctx.number(other), ctx.known_constant(other)
        if number is None or ctx.number(operand) is not None:
            continue
        if ctx.operand(operand).narrow and (
            number.size == 1 or (stored is not None and stored.narrow)
        ):
            return None  # both have stored integers
        return (operand, -number, None) if subtracts else (operand, number, stored)
    return None


def _sides(site: Site) -> list[QuantizedValue]:
    """Return both operands' integers; one number becomes a step of its own size, which is exact."""
    found, (lhs, rhs) = [], site.call.args
    for arg, other in ((lhs, rhs), (rhs, lhs)):
        number = site.ctx.number(arg)
        if number is None or number.size != 1 or site.ctx.known_constant(arg) is not None:
            found.append(site.ctx.clipped(arg))
            continue
        real, dtype = float(number.ravel()[0]), site.ctx.operand(other).dtype
        step = QuantParams(abs(real) or 1.0, int(real < 0), dtype)
        whole = np.full(number.shape, real > 0)
        made = QuantizedValue.of(site.ctx.constant(whole, dtype), step)
        found.append(replace(made, least=int(real > 0), most=int(real > 0)))
    return found


def _add(site: Site) -> QuantizedValue:
    ctx, ty = site.ctx, site.var.ty
    found = _biased_operand(site)
    if found is None:
        return _fine(site, _sides(site))
    operand, number, stored = found
    require(reading.same_shape(operand.ty, ty), "it adds a float constant of a larger shape")
    value, low, high = ctx.operand(operand), -math.inf, math.inf
    if number.size == 1:  # clipping can wait until the constant is added
        low, high = value.low + float(number.flat[0]), value.high + float(number.flat[0])
        value = value.unclipped()
    value = ctx.apply_clip(value)
    require(not value.narrow, "it adds a constant that is not quantized")
    value = add_constant(site, value, number, stored, ty)
    return replace(value, low=low, high=high)


def _add_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.add`` or ``qnn.subtract`` of stored integers."""
    if _biased_operand(site) is None:
        values = _sides(site)
        if all(value.narrow for value in values):
            return _rounded(site, site.name, values, params)
    return site.ctx.value(site.var)


def _rounded(
    site: Site, name: str, values: Sequence[QuantizedValue], params: QuantParams
) -> QuantizedValue:
    ctx, dtype = site.ctx, common_dtype([value.dtype for value in values], params.dtype)
    left, right = own = [ctx.change_dtype(value, dtype) for value in values]
    if name != "mul":
        for value in own:
            value.check_operand(params)
    else:
        scale = float(np.float32(left.scale * right.scale))
        require(scale > 0 and scale / params.scale < _ROOM, "its scales differ by too much")
        reach = left.far * right.far
        require(reach <= INT32[1], f"its products may reach {reach}, beyond int32")
    operands = [left.expr, right.expr, *ctx.params(left), *ctx.params(right)]
    lhs, rhs = (-1 if value.scalar else value.axis for value in own)
    attributes = {"lhs_axis": lhs, "rhs_axis": rhs, "rounding": _rounding(ctx, name, own)}
    return site.call_at(name, operands, attributes, params, dtype)


def _rounding(ctx: Context, name: str, values: Sequence[QuantizedValue]) -> str:
    if not all(value.scalar for value in values):
        return "None"
    if name == "mul" or ctx.rounding == "ONNX":
        return ctx.rounding
    wide = any(
        value.dtype == "int32" or (value.dtype == "int16" and int(value.zero)) for value in values
    )
    return "None" if wide else "TFLITE"


def _fine(site: Site, values: Sequence[QuantizedValue]) -> QuantizedValue:
    """Add in int32, at a scale so fine that its rounding is a small fraction of a step."""
    reach = sum(value.reach for value in values)
    narrow = [float(np.min(value.scale)) for value in values if value.narrow]
    scale = min(narrow) / _FINE if narrow else reach / 2.0**28
    while reach / scale > _ROOM:
        scale *= 2
    with np.errstate(over="ignore"):
        fine = QuantParams(float(np.float32(scale)), 0, "int32")
    require(0 < fine.scale < math.inf, "its scales are beyond float32")
    # Earlier roundings count against the result's step, not against this one: `error` below.
    sides = [site.ctx.requantize_to(replace(value, error=0.0), fine) for value in values]
    made = relax.op.subtract(*sides) if site.name == "subtract" else relax.op.add(*sides)
    expr, most = site.bind(made, "sums"), int(reach / fine.scale) + 2
    sums = QuantizedValue.sums(expr, np.asarray(fine.scale, np.float32), 0, -most, most)
    # Two roundings of half a step, and the error of requantizes that compute in float32.
    error = sum(value.error for value in values) + fine.scale + reach * _FLOATS
    return replace(sums, error=error)


def _multiply_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.hardswish`` or ``qnn.mul``."""
    swished = _hardswish_operand(site)
    if swished is not None:
        return _table(site, "hardswish", swished, {}, params)
    require(site.name == "multiply", "its divisor is not constant")
    values = _sides(site)
    require(all(value.narrow for value in values), "its operands are not quantized before it")
    if all(value.scalar for value in values):
        return _rounded(site, "mul", values, params)
    return _multiply_channels(site, *values)


def _multiply_channels(site: Site, x: QuantizedValue, y: QuantizedValue) -> QuantizedValue:
    """Multiply in int32, exactly; the scale of each channel is the product of the scales."""
    axes = {value.axis for value in (x, y) if not value.scalar}
    same = all(reading.same_shape(arg.ty, site.var.ty) for arg in site.call.args)
    require(same and len(axes) == 1, "its operands' channels are on different axes")
    sides, reach = [], x.far * y.far
    require(reach <= INT32[1], f"its products may reach {reach}, beyond int32")
    for value in (x, y):
        wide = site.bind(relax.op.astype(value.expr, "int32"), "wide")
        zero = reading.spread(value.zero, value.axis, int(site.var.ty.ndim))
        sides.append(site.bind(relax.op.subtract(wide, site.ctx.constant(zero, "int32")), "wide"))
    scale = np.asarray(x.scale.astype(np.float32) * y.scale.astype(np.float32))
    require(np.all(scale > 0), "the product of its scales is below float32")
    expr = site.bind(relax.op.multiply(*sides), "sums")
    return QuantizedValue.sums(expr, scale, axes.pop(), -reach, reach)


def _concat_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.concatenate`` of integers with the result's parameters."""
    require(site.call.attrs.axis is not None, "it concatenates flattened values")
    ctx, parts = site.ctx, []
    for field in reading.leaves(site.call.args[0]):
        # Requantize here, because the operator has no attribute for the rounding.
        parts.append(ctx.requantize_to(ctx.at(field, params), params))
    scale, zero = ctx.params(params)
    operands = [relax.Tuple(each) for each in (parts, [scale] * len(parts), [zero] * len(parts))]
    axis = {"axis": int(site.call.attrs.axis) % int(site.var.ty.ndim)}
    return site.call_at("concatenate", operands, axis, params, params.dtype)


_OF_NN = ("gelu", "gelu_tanh", "silu")
_FUNCTIONS = [
    f"relax.{'nn.' * (name in _OF_NN)}{name}" for name in FUNCTIONS if name != "hardswish"
]
_CLIPS = ("relax.nn.relu", "relax.clip", "relax.maximum", "relax.minimum")
RULES = {
    **dict.fromkeys(MOVES, Rule(_move, _move_at)),
    "relax.topk": Rule(_topk, _topk),
    **dict.fromkeys(_CLIPS, Rule(_clip, _clip)),
    "relax.nn.pad": Rule(_pad, _pad),
    "relax.astype": Rule(_cast, _cast),
    **dict.fromkeys([*_FUNCTIONS, "relax.nn.leakyrelu"], Rule(_unrounded, _looked_up)),
    **dict.fromkeys(("relax.add", "relax.subtract"), Rule(_add, _add_at)),
    **dict.fromkeys(("relax.multiply", "relax.divide"), Rule(_unrounded, _multiply_at)),
    "relax.concat": Rule(_unrounded, _concat_at),
}
