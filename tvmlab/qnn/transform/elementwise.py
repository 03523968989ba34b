"""Functions of one value, sums, products element by element, and joining.

At the parameters of a quantize they are calls of the quantized operator: a function of one value is
looked up in a table, and two values are ``qnn.add``, ``qnn.subtract``, ``qnn.mul`` or
``qnn.concatenate``. A constant added to sums is their bias. Sums added to something, unrounded, are
added in int32 at a scale fine enough for every step to be seen. Hard swish comes from the importers
as four operators, none of which is quantized; together they are ``qnn.hardswish``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from .. import arithmetic
from ..unary import FUNCTIONS
from .batch_norm import (
    add_constant,
    channel_axis,
    constant_factor,
    multiply_by_constant,
    scale_channels,
)
from .context import Context, Rule, Site, check_scales
from .movement import limits
from .quantized_value import (
    INFINITY,
    INT32,
    Array,
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    calls,
    channel_count,
    common_dtype,
    leaves,
    require,
    same_shape,
)

# Sums are added at this part of a step of the finest operand, where int32 allows it.
_FINE = 2.0**12
# A float32 number is rounded by at most this part of itself, twice in a product.
_FLOATS = 2.0**-23
# Beyond this there may be no room for both sides and their sum.
_ROOM = 2.0**30
# Relax's constants are float32: 1 / 6 is not the nearest number to a sixth.
_SAME = 2.0**-22


# Functions of one value


def _unrounded(site: Site) -> QuantizedValue:
    site.ctx.stored(site.call.args[0])
    raise NotQuantizable("its result is not quantized")


def _looked_up(site: Site, params: QuantParams) -> QuantizedValue:
    if site.name != "nn.leakyrelu":
        return _table(site, site.name, site.call.args[0], {}, params)
    alpha = float(site.call.attrs.alpha)
    # It rounds twice, and a larger slope would enlarge the first rounding.
    require(abs(alpha) <= 1, f"its slope is {alpha}")
    return _table(site, "leaky_relu", site.call.args[0], {"alpha": alpha}, params)


def _table(
    site: Site,
    name: str,
    operand: relax.Expr,
    attributes: dict[str, float],
    params: QuantParams,
) -> QuantizedValue:
    """Emit a function of stored integers."""
    value = site.ctx.stored(operand)
    require(not value.error, "its operand was rounded before it")
    if name in FUNCTIONS:
        every = np.arange(value.least, value.most + 1).astype(value.dtype)
        with np.errstate(all="ignore"):
            real = FUNCTIONS[name](arithmetic.dequantize(every, value.scale, value.zero))
        # No integer stands for "not a number".
        undefined = f"its operand may be what {name} has no value for"
        require(not np.isnan(real).any(), undefined)
    wide = "its result is quantized to int32, for which there is no table"
    require(params.dtype != "int32", wide)
    dtype = common_dtype([value.dtype], params.dtype)
    own = site.ctx.change_dtype(value, dtype)
    return site.call_at(name, [own.expr, *site.ctx.params(own)], attributes, params, dtype)


def _hardswish_operand(site: Site) -> relax.Var | None:
    """Return x of ``x * (clip(x + 3, 0, 6) / 6)`` or ``x * clip(x + 3, 0, 6) / 6``."""
    ctx, made = site.ctx, site.ctx.calls
    whole = _sixth(ctx, site.call)
    product = site.call if whole is None else made.get(whole)
    if not calls(product, "multiply"):
        return None
    for x, other in (product.args, product.args[::-1]):
        cut = made.get(other if whole is not None else _sixth(ctx, made.get(other)))
        if not calls(cut, "clip") or limits(cut) != (0, 6):
            continue
        if isinstance(x, relax.Var) and x.same_as(_beside(ctx, made.get(cut.args[0]), "add", 3.0)):
            return x
    return None


def _sixth(ctx: Context, call: relax.Call | None) -> relax.Expr | None:
    """Return what a call divides by six."""
    divided = _beside(ctx, call, "divide", 6.0)
    return _beside(ctx, call, "multiply", 1 / 6) if divided is None else divided


def _beside(ctx: Context, call: relax.Call | None, name: str, value: float) -> relax.Expr | None:
    """Return the operand that a call combines with a number."""
    if not calls(call, name):
        return None
    for operand, other in [call.args] if name == "divide" else [call.args, call.args[::-1]]:
        found = ctx.number(other)
        if found is not None and found.size == 1 and abs(float(found.flat[0]) - value) < _SAME:
            return operand
    return None


# Two values


def _biased_operand(site: Site) -> tuple[relax.Expr, Array, QuantizedValue | None] | None:
    """Return the operand to which a call adds a constant, the constant, and its integers."""
    subtracts = site.name == "subtract"
    found = site.constant_side(subtracts)
    if found is None:
        return None
    operand, other, number = found
    stored = site.ctx.known_constant(other)
    if site.ctx.operand(operand).narrow and stored is not None and stored.narrow:
        return None  # both are quantized
    return (operand, -number, None) if subtracts else (operand, number, stored)


def _add(site: Site) -> QuantizedValue:
    """Add a bias, or add in int32."""
    ctx, ty = site.ctx, site.var.ty
    found = _biased_operand(site)
    if found is None:
        return _fine(site, [ctx.clipped(arg) for arg in site.call.args])
    operand, number, stored = found
    larger = "a constant that is not quantized makes it larger"
    require(same_shape(operand.ty, ty), larger)
    value, low, high = ctx.operand(operand), -INFINITY, INFINITY
    if number.size == 1:  # clipping can wait until the constant is added
        low, high = value.low + float(number.flat[0]), value.high + float(number.flat[0])
        value = value.unclipped()
    value = ctx.apply_clip(value)
    if value.narrow:  # stored integers times 32767 are sums
        axis = channel_axis(number, int(ty.ndim))
        count = None if axis is None else channel_count(ty, axis)
        if axis is None or count is None:
            raise NotQuantizable(
                "a constant is added that is not quantized and differs by more than channel"
            )
        each = np.broadcast_to(number.ravel(), (count,))
        value = scale_channels(site, value, np.ones(count), each, axis, operand.ty)
    value = add_constant(site, value, number, stored, ty)
    return replace(value, low=low, high=high)


def _add_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.add`` or ``qnn.subtract`` of stored integers."""
    if _biased_operand(site) is None:
        values = [site.ctx.clipped(arg) for arg in site.call.args]
        if all(value.narrow for value in values):
            return _rounded(site, site.name, values, params)
    return site.ctx.value(site.var)


def _rounded(
    site: Site, name: str, values: Sequence[QuantizedValue], params: QuantParams
) -> QuantizedValue:
    """Emit the quantized operator of two operands."""
    ctx, dtype = site.ctx, common_dtype([value.dtype for value in values], params.dtype)
    left, right = own = [ctx.change_dtype(value, dtype) for value in values]
    if name != "mul":
        check_scales(own, params)
    else:
        scale = float(np.float32(left.scale * right.scale))
        require(scale > 0 and scale / params.scale < _ROOM, "its scales are too far apart")
        reach = left.far * right.far
        require(reach <= INT32[1], f"its products may reach {reach}, beyond int32")
    operands = [left.expr, right.expr, *ctx.params(left), *ctx.params(right)]
    lhs, rhs = (-1 if value.scalar else value.axis for value in own)
    attributes = {"lhs_axis": lhs, "rhs_axis": rhs, "rounding": _rounding(ctx, name, own)}
    return site.call_at(name, operands, attributes, params, dtype)


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


def _fine(site: Site, values: Sequence[QuantizedValue]) -> QuantizedValue:
    """Add in int32, at a scale so fine that the rounding is a small part of a step."""
    reach = sum(value.reach for value in values)
    narrow = [float(np.min(value.scale)) for value in values if value.narrow]
    scale = min(narrow) / _FINE if narrow else reach / 2.0**28
    while reach / scale > _ROOM:
        scale *= 2
    with np.errstate(over="ignore"):
        fine = QuantParams(float(np.float32(scale)), 0, "int32")
    require(0 < fine.scale < INFINITY, "its scales are beyond float32")
    # What was rounded before counts against the result's step and not this one's: `error` below.
    sides = [site.ctx.requantize_to(replace(value, error=0.0), fine) for value in values]
    made = relax.op.subtract(*sides) if site.name == "subtract" else relax.op.add(*sides)
    expr, most = site.bind(made, "sums"), int(reach / fine.scale) + 2
    sums = QuantizedValue.sums(expr, np.asarray(fine.scale, np.float32), 0, -most, most)
    # Two roundings of half a step, and what float32 loses where requantizes compute in that.
    error = sum(value.error for value in values) + fine.scale + reach * _FLOATS
    return replace(sums, error=error)


def _multiply(site: Site) -> QuantizedValue:
    """Multiply by a constant, which only changes the scale."""
    found = constant_factor(site)
    if found is None:
        for arg in site.call.args:
            site.ctx.stored(arg)
        raise NotQuantizable("its result is not quantized")
    return multiply_by_constant(site, *found)


def _multiply_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.hardswish`` or ``qnn.mul``."""
    swished = _hardswish_operand(site)
    if swished is not None:
        return _table(site, "hardswish", swished, {}, params)
    if constant_factor(site) is not None:
        return site.ctx.value(site.var)
    require(site.name == "multiply", "it divides by what is not constant")
    return _rounded(site, "mul", [site.ctx.stored(arg) for arg in site.call.args], params)


def _concat(site: Site) -> QuantizedValue:
    raise NotQuantizable("it joins values, and its result is not quantized")


def _concat_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.concatenate``, which requantizes stored integers."""
    require(site.call.attrs.axis is not None, "it joins flattened values")
    parts = [_part(site.ctx, field, params) for field in leaves(site.call.args[0])]
    scales, zeros = zip(*map(site.ctx.params, parts), strict=True)
    operands = [relax.Tuple(list(each)) for each in ([p.expr for p in parts], scales, zeros)]
    axis = {"axis": int(site.call.attrs.axis) % int(site.var.ty.ndim)}
    return site.call_at("concatenate", operands, axis, params, params.dtype)


def _part(ctx: Context, field: relax.Expr, params: QuantParams) -> QuantizedValue:
    """Return a field as it is stored if ``qnn.concatenate`` can requantize it, else at `params`."""
    constant = ctx.number(field) is not None
    value = ctx.known_constant(field) if constant else ctx.operand(field, params)
    # TFLite's rounding cannot be said of this operator: a requantize of its own says it.
    plain = value and value.narrow and value.scalar and not (value.clipped or value.error)
    if value and plain and (ctx.rounding == "None" or value.has(params)):
        require(value.reach / params.scale < _ROOM, "its scales are too far apart")
        if value.dtype == params.dtype:
            return value
    value = ctx.at(field, params)
    return QuantizedValue.of(ctx.requantize_to(value, params), params)


_FUNCTIONS = [f"relax.{name}" for name in FUNCTIONS if name != "hardswish"]
RULES = {
    **dict.fromkeys([*_FUNCTIONS, "relax.nn.leakyrelu"], Rule(_unrounded, _looked_up)),
    **dict.fromkeys(("relax.add", "relax.subtract"), Rule(_add, _add_at)),
    **dict.fromkeys(("relax.multiply", "relax.divide"), Rule(_multiply, _multiply_at)),
    "relax.concat": Rule(_concat, _concat_at),
}
