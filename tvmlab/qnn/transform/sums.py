"""Additions, products element by element, and joining: operators of two or more scales.

At the parameters of a quantize they are ``qnn.add``, ``qnn.subtract``, ``qnn.mul`` and
``qnn.concatenate``. A constant added to sums is their bias. Sums added to something, unrounded, are
added in int32 at a scale fine enough for every step to be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from .batch_norm import (
    add_constant,
    channel_axis,
    constant_factor,
    multiply_by_constant,
    scale_channels,
)
from .context import Context, Rule, leaves
from .quantized_value import (
    INFINITY,
    INT32,
    Array,
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    common_dtype,
    same_shape,
    sizes,
    with_dtype,
)
from .unary import hardswish_operand, table_at

# Sums are added at this part of a step of the finest operand, where int32 allows it.
_FINE = 2.0**12
# So many steps of a result beyond its operands' reach are more than a left shift in int32 takes.
_APART = 2.0**20
# A float32 number is rounded by at most this part of itself, twice in a product.
_FLOATS = 2.0**-23
# Beyond this there may be no room for both sides and their sum.
_ROOM = 2.0**30


def _biased_operand(
    ctx: Context, call: relax.Call
) -> tuple[relax.Expr, Array, QuantizedValue | None] | None:
    """Return the operand to which a call adds a constant, the constant, and its integers."""
    subtracts = call.op.name == "relax.subtract"
    found = ctx.constant_side(call, subtracts)
    if found is None:
        return None
    operand, other, number = found
    stored = ctx.known_constant(other)
    if ctx.operand(operand).narrow and stored is not None and stored.narrow:
        return None  # both are quantized
    return (operand, -number, None) if subtracts else (operand, number, stored)


def _add(ctx: Context, call: relax.Call, var: relax.Var) -> QuantizedValue:
    """Add a bias, or add in int32."""
    found = _biased_operand(ctx, call)
    if found is None:
        return _fine(ctx, call, [ctx.clipped(arg) for arg in call.args], var)
    operand, number, stored = found
    if not same_shape(operand.ty, var.ty):
        raise NotQuantizable("a constant that is not quantized makes it larger")
    value, low, high = ctx.operand(operand), -INFINITY, INFINITY
    if number.size == 1:  # clipping can wait until the constant is added
        low, high = value.low + float(number.flat[0]), value.high + float(number.flat[0])
        value = value.unclipped()
    value = ctx.emit.apply_clip(value)
    if value.narrow:  # stored integers times 32767 are sums
        axis, shape = channel_axis(number, int(var.ty.ndim)), sizes(var.ty)
        if axis is None or shape is None or not isinstance(shape[axis], int):
            raise NotQuantizable(
                "a constant is added that is not quantized and differs by more than channel"
            )
        each = np.broadcast_to(number.ravel(), (shape[axis],))
        ones = np.ones(shape[axis])
        value = scale_channels(ctx, value, ones, each, axis, operand.ty, var)
    value = add_constant(ctx, value, number, stored, var.ty, var)
    return replace(value, low=low, high=high)


def _add_at(ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.add`` or ``qnn.subtract`` of stored integers."""
    if _biased_operand(ctx, call) is None:
        values = [ctx.clipped(arg) for arg in call.args]
        if all(value.narrow for value in values):
            return _rounded(ctx, call.op.name.removeprefix("relax."), values, var, params)
    return ctx.value(var)


def _rounded(
    ctx: Context, name: str, values: Sequence[QuantizedValue], var: relax.Var, params: QuantParams
) -> QuantizedValue:
    """Emit the quantized operator of two operands."""
    dtype = common_dtype([value.dtype for value in values], params.dtype)
    own = [ctx.emit.change_dtype(value, dtype) for value in values]
    check_scales(own, params, name)
    left, right = own
    operands = [left.expr, right.expr, *ctx.emit.params(left), *ctx.emit.params(right)]
    lhs, rhs = (-1 if value.scalar else value.axis for value in own)
    attributes = {"lhs_axis": lhs, "rhs_axis": rhs, "rounding": _rounding(ctx, name, own)}
    return ctx.emit.call_at(name, operands, attributes, var, params, dtype)


def _rounding(ctx: Context, name: str, values: Sequence[QuantizedValue]) -> str:
    """Choose an operator's rounding."""
    if not all(value.scalar for value in values):
        return "None"
    if name == "mul" or ctx.rounding == "ONNX":
        return ctx.rounding
    wide = any(
        value.dtype == "int32" or (value.dtype == "int16" and int(value.zero)) for value in values
    )
    return "None" if wide else "TFLITE"


def check_scales(values: Sequence[QuantizedValue], params: QuantParams, name: str) -> None:
    """Refuse operands whose requantize within an operator would be refused, or wrap."""
    if name == "mul":
        scale = float(np.float32(values[0].scale * values[1].scale))
        if not scale > 0 or scale / params.scale >= _ROOM:
            raise NotQuantizable("its scales are too far apart")
        if any(not value.scalar for value in values):
            raise NotQuantizable("its operands are quantized by channel")
        _product_reach(values)
        return
    for value in values:
        if value.reach / params.scale + abs(params.zero) >= _APART:
            raise NotQuantizable("its scales are too far apart")
        if value.error > params.scale / 4:
            raise NotQuantizable(
                "roundings before it could be more than a quarter of its result's step"
            )


def _product_reach(values: Sequence[QuantizedValue]) -> int:
    reach = values[0].far * values[1].far
    if reach > INT32[1]:
        raise NotQuantizable(f"its products may reach {reach}, beyond int32")
    return reach


def _fine(
    ctx: Context, call: relax.Call, values: Sequence[QuantizedValue], var: relax.Var
) -> QuantizedValue:
    """Add in int32, at a scale so fine that the rounding is a small part of a step."""
    reach = sum(value.reach for value in values)
    narrow = [float(np.min(value.scale)) for value in values if value.narrow]
    scale = min(narrow) / _FINE if narrow else reach / 2.0**28
    while reach / scale > _ROOM:
        scale *= 2
    with np.errstate(over="ignore"):
        fine = QuantParams(float(np.float32(scale)), 0, "int32")
    if not 0 < fine.scale < INFINITY:
        raise NotQuantizable("its scales are beyond float32")
    # What was rounded before counts against the result's step and not this one's: `error` below.
    sides = [ctx.emit.requantize_to(replace(value, error=0.0), fine) for value in values]
    made = relax.op.subtract(*sides) if "subtract" in call.op.name else relax.op.add(*sides)
    expr = ctx.emit.bind(made, with_dtype(var.ty, "int32"), f"{var.name}_sums")
    most = int(reach / fine.scale) + 2
    sums = QuantizedValue.sums(expr, np.asarray(fine.scale, np.float32), 0, -most, most)
    # Two roundings of half a step, and what float32 loses where requantizes compute in that.
    error = sum(value.error for value in values) + fine.scale + reach * _FLOATS
    return replace(sums, error=error)


def _multiply(ctx: Context, call: relax.Call, var: relax.Var) -> QuantizedValue:
    """Multiply by a constant, or in int32 with no rounding."""
    found = constant_factor(ctx, call, var)
    if found is not None:
        return multiply_by_constant(ctx, *found, var)
    if call.op.name == "relax.divide":
        raise NotQuantizable("it divides by what is not constant")
    values = [ctx.stored(arg) for arg in call.args]
    reach, sides = _product_reach(values), []
    for value in values:
        ty, hint = with_dtype(value.expr.ty, "int32"), f"{var.name}_wide"
        wide = ctx.emit.bind(relax.op.astype(value.expr, "int32"), ty, hint)
        if int(value.zero):
            wide = ctx.emit.bind(relax.op.subtract(wide, ctx.emit.zero(value.zero)), ty, hint)
        sides.append(wide)
    made, ty = relax.op.multiply(*sides), with_dtype(var.ty, "int32")
    expr = ctx.emit.bind(made, ty, f"{var.name}_products")
    scale = np.asarray(values[0].scale * values[1].scale)
    if not scale > 0:
        raise NotQuantizable("the product of its scales is below every float32")
    return QuantizedValue.sums(expr, scale, 0, -reach, reach)


def _multiply_at(
    ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams
) -> QuantizedValue:
    """Emit ``qnn.hardswish`` or ``qnn.mul``; a constant only changes the scale."""
    swished = hardswish_operand(ctx, call)
    if swished is not None:
        return table_at(ctx, "hardswish", swished, {}, var, params)
    if call.op.name == "relax.divide" or constant_factor(ctx, call, var) is not None:
        return ctx.value(var)
    values = [ctx.stored(arg) for arg in call.args]
    return _rounded(ctx, "mul", values, var, params)


def _concat(ctx: Context, call: relax.Call, var: relax.Var) -> QuantizedValue:
    """Join values of one scale."""
    if call.attrs.axis is None:
        raise NotQuantizable("it joins flattened values")
    values = [ctx.clipped(field) for field in leaves(call.args[0])]
    first = values[0]
    for value in values:
        same = value.scalar and first.scalar and value.dtype == first.dtype
        if not (same and value.scale == first.scale and value.zero == first.zero):
            raise NotQuantizable(
                "it joins values of several scales, and its result is not quantized"
            )
    expr = ctx.emit.again(call, [relax.Tuple([value.expr for value in values])], var, first.dtype)
    ends = min(value.least for value in values), max(value.most for value in values)
    error = max(value.error for value in values)
    return QuantizedValue(expr, first.dtype, first.scale, first.zero, 0, *ends, error=error)


def _concat_at(
    ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams
) -> QuantizedValue:
    """Emit ``qnn.concatenate``, which requantizes stored integers."""
    if call.attrs.axis is None:
        raise NotQuantizable("it joins flattened values")
    parts = [_part(ctx, field, params) for field in leaves(call.args[0])]
    scales, zeros = zip(*map(ctx.emit.params, parts), strict=True)
    operands = [relax.Tuple(list(each)) for each in ([p.expr for p in parts], scales, zeros)]
    axis = {"axis": int(call.attrs.axis) % int(var.ty.ndim)}
    return ctx.emit.call_at("concatenate", operands, axis, var, params, params.dtype)


def _part(ctx: Context, field: relax.Expr, params: QuantParams) -> QuantizedValue:
    """Return a field as it is stored if ``qnn.concatenate`` can requantize it, else at `params`."""
    constant = ctx.number(field) is not None
    value = ctx.known_constant(field) if constant else ctx.operand(field, params)
    # TFLite's rounding cannot be said of this operator: a requantize of its own says it.
    plain = value and value.narrow and value.scalar and not (value.clipped or value.error)
    if value and plain and (ctx.rounding == "None" or value.has(params)):
        if value.reach / params.scale >= _ROOM:
            raise NotQuantizable("its scales are too far apart")
        if value.dtype == params.dtype:
            return value
    value = ctx.at(field, params)
    return QuantizedValue.of(ctx.emit.requantize_to(value, params), params)


_SUM, _PRODUCT = Rule(_add, _add_at), Rule(_multiply, _multiply_at)
RULES = {
    "relax.add": _SUM,
    "relax.subtract": _SUM,
    "relax.multiply": _PRODUCT,
    "relax.divide": _PRODUCT,
    "relax.concat": Rule(_concat, _concat_at),
}
