"""Relu, clip, maximum and minimum: clips that rounding passes through.

Rounding keeps the order of numbers. So a clip can wait until the integers have the parameters of
the quantize, where it is exact, and where mostly the dtype has the same limits.
"""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax

from .context import Context, Rule
from .quantized_value import (
    INFINITY,
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    array_of,
    same_shape,
)


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


def _operand(
    ctx: Context, call: relax.Call, var: relax.Var
) -> tuple[relax.Expr, float, float] | None:
    """Return what a call clips, and where; None where it compares two computed values."""
    if call.op.name not in ("relax.maximum", "relax.minimum"):
        if (found := limits(call)) is None:
            raise NotQuantizable("its limits are not constant")
        return (call.args[0], *found)
    for value, other in (call.args, call.args[::-1]):
        number = ctx.number(other)
        if number is not None and number.size == 1 and same_shape(value.ty, var.ty):
            limit = float(number.ravel()[0])
            larger = call.op.name == "relax.maximum"
            return (value, limit, INFINITY) if larger else (value, -INFINITY, limit)
    return None


def _clipped(
    ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams | None = None
) -> QuantizedValue:
    found = _operand(ctx, call, var)
    if found is None:
        if params is None:
            raise NotQuantizable("it compares values of two scales")
        sides = [ctx.emit.requantize_to(ctx.at(arg, params), params) for arg in call.args]
        return QuantizedValue.of(ctx.emit.again(call, sides, var, params.dtype), params)
    operand, low, high = found
    value = ctx.operand(operand, params)
    if params is not None and value is ctx.known(operand):
        return ctx.value(var)
    if not low <= high:
        raise NotQuantizable(f"its limits are {low} and {high}")
    return replace(value, low=min(max(value.low, low), high), high=min(max(value.high, low), high))


RULES = dict.fromkeys(
    ("relax.nn.relu", "relax.clip", "relax.maximum", "relax.minimum"), Rule(_clipped, _clipped)
)
