"""Functions of one value: ``qnn.sigmoid`` and its like, looked up in a table.

Hard swish comes from the importers as four operators, none of which is quantized; together they are
``qnn.hardswish``.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from .. import arithmetic
from ..unary import FUNCTIONS
from .clip import limits
from .context import Context, Rule, calls
from .quantized_value import NotQuantizable, QuantizedValue, QuantParams, common_dtype

# Relax's constants are float32: 1 / 6 is not the nearest number to a sixth.
_SAME = 2.0**-22


def _looked_up(
    ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams | None = None
) -> QuantizedValue:
    name, attributes = _name(call)
    if params is not None:
        return table_at(ctx, name, call.args[0], attributes, var, params)
    ctx.stored(call.args[0])
    raise NotQuantizable("its result is not quantized")


def _name(call: relax.Call) -> tuple[str, dict[str, float]]:
    """Return a function's name in the dialect, and its attributes."""
    if call.op.name != "relax.nn.leakyrelu":
        return call.op.name.removeprefix("relax."), {}
    alpha = float(call.attrs.alpha)
    if not abs(alpha) <= 1:  # it rounds twice, and a larger slope would enlarge the first
        raise NotQuantizable(f"its slope is {alpha}")
    return "leaky_relu", {"alpha": alpha}


def table_at(
    ctx: Context,
    name: str,
    operand: relax.Expr,
    attributes: dict[str, float],
    var: relax.Var,
    params: QuantParams,
) -> QuantizedValue:
    """Emit a function of stored integers."""
    value = ctx.stored(operand)
    if value.error:
        raise NotQuantizable("its operand was rounded before it")
    _check_defined(name, value)
    if params.dtype == "int32":
        raise NotQuantizable("its result is quantized to int32, for which there is no table")
    dtype = common_dtype([value.dtype], params.dtype)
    own = ctx.emit.change_dtype(value, dtype)
    operands = [own.expr, *ctx.emit.params(own)]
    return ctx.emit.call_at(name, operands, dict(attributes), var, params, dtype)


def _check_defined(name: str, value: QuantizedValue) -> None:
    """Refuse a function that is "not a number" somewhere: no integer stands for that."""
    if name not in FUNCTIONS:
        return
    every = np.arange(value.least, value.most + 1).astype(value.dtype)
    with np.errstate(all="ignore"):
        real = FUNCTIONS[name](arithmetic.dequantize(every, value.scale, value.zero))
    if np.isnan(real).any():
        raise NotQuantizable(f"its operand may be what {name} has no value for")


def hardswish_operand(ctx: Context, call: relax.Call) -> relax.Var | None:
    """Return x of ``x * (clip(x + 3, 0, 6) / 6)`` or ``x * clip(x + 3, 0, 6) / 6``."""
    whole = _sixth(ctx, call)
    product = call if whole is None else ctx.calls.get(whole)
    if not calls(product, "multiply"):
        return None
    for x, other in (product.args, product.args[::-1]):
        clipped = other if whole is not None else _sixth(ctx, ctx.calls.get(other))
        if isinstance(x, relax.Var) and _is_clipped(ctx, ctx.calls.get(clipped), x):
            return x
    return None


def _sixth(ctx: Context, call: relax.Call | None) -> relax.Expr | None:
    """Return what a call divides by six."""
    divided = _beside(ctx, call, "divide", 6.0)
    return _beside(ctx, call, "multiply", 1 / 6) if divided is None else divided


def _is_clipped(ctx: Context, clip: relax.Call | None, x: relax.Var) -> bool:
    """Whether a call is ``clip(x + 3, 0, 6)``."""
    if not calls(clip, "clip") or limits(clip) != (0, 6):
        return False
    return bool(x.same_as(_beside(ctx, ctx.calls.get(clip.args[0]), "add", 3.0)))


def _beside(ctx: Context, call: relax.Call | None, name: str, value: float) -> relax.Expr | None:
    """Return the operand that a call combines with a number."""
    if not calls(call, name):
        return None
    sides = [call.args] if name == "divide" else [call.args, call.args[::-1]]
    for operand, other in sides:
        found = ctx.number(other)
        if found is not None and found.size == 1 and abs(float(found.flat[0]) - value) < _SAME:
            return operand
    return None


RULES = dict.fromkeys(
    [*(f"relax.{name}" for name in FUNCTIONS if name != "hardswish"), "relax.nn.leakyrelu"],
    Rule(_looked_up, _looked_up),
)
