"""Functions of one value: ``qnn.sigmoid`` and its like, looked up in a table at each goal.

Hard swish comes from the importers as four operators, none of which is quantized; together they are
``qnn.hardswish``.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from .. import arithmetic
from ..reference.unary import FUNCTIONS
from .context import Context
from .cuts import limits
from .demand import Asked
from .emit import shift
from .form import Form, NoForm, at, common, with_dtype

__all__ = ["ASKS", "RULES", "hardswish"]

_NAMES = {f"relax.{name}": name for name in FUNCTIONS if name != "hardswish"}
# Relax's constants are float32: 1 / 6 is not the nearest number to a sixth.
_SAME = 2.0**-22


def _first(call: relax.Call) -> tuple[list[relax.Expr], list[relax.Expr]]:
    return [], [call.args[0]]


def _function(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Make the function of the dialect that has the operator's name."""
    _tabulated(ctx, _NAMES[call.op.name], call.args[0], {}, var, asked)


def _leaky_relu(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Make ``qnn.leaky_relu``, which rounds twice: its slope must not enlarge the first."""
    alpha = float(call.attrs.alpha)
    if not abs(alpha) <= 1:
        raise NoForm(f"its slope is {alpha}")
    _tabulated(ctx, "leaky_relu", call.args[0], {"alpha": alpha}, var, asked)


def _tabulated(
    ctx: Context,
    name: str,
    operand: relax.Expr,
    attributes: dict[str, float],
    var: relax.Var,
    asked: Asked,
) -> None:
    form = ctx.stored(operand)
    if not asked.goals:
        raise NoForm("its result is not quantized")
    if form.error:
        raise NoForm("its operand was rounded before it")
    _defined(name, form)
    for goal in asked.goals:
        if goal.dtype == "int32":
            raise NoForm("its result is quantized to int32, for which there is no table")
        dtype = common([form.dtype], goal.dtype)
        own, zero = ctx.emit.recode(form, dtype), goal.zero + shift(goal.dtype, dtype)
        operands = [
            own.expr,
            ctx.emit.scale(own.scale),
            ctx.emit.zero(own.zero),
            ctx.emit.scale(np.float32(goal.scale)),
            ctx.emit.zero(zero),
        ]
        ty = with_dtype(var.ty, dtype)
        expr = ctx.emit.quantized(name, operands, dict(attributes), ty, f"{var.name}_{dtype}")
        ctx.met(var, at(expr, goal, zero, dtype), goal)


def _defined(name: str, form: Form) -> None:
    """Insist that a function has a value for all that may come.

    Raises
    ------
    NoForm
        If it has none: what a quantize makes of "not a number" is nobody's.
    """
    if name not in FUNCTIONS:
        return
    every = np.arange(form.least, form.most + 1).astype(form.dtype)
    with np.errstate(all="ignore"):
        real = FUNCTIONS[name](arithmetic.dequantize(every, form.scale, form.zero))
    if np.isnan(real).any():
        raise NoForm(f"its operand may be what {name} has no value for")


def hardswish(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> bool:
    """Make ``qnn.hardswish`` where a product or quotient is the last of its operators.

    Parameters
    ----------
    ctx : Context
    call : tvm.relax.Call
        ``relax.multiply`` or ``relax.divide``.
    var : tvm.relax.Var
        Of the result.
    asked : Asked
        What is asked of it.

    Returns
    -------
    bool
        Whether all that is asked for was made.

    Raises
    ------
    NoForm
        If it is a hard swish whose operand has no form to be looked up.
    """
    if asked.exact or not asked.goals:
        return False
    x = _swished(ctx, call)
    if x is None:
        return False
    _tabulated(ctx, "hardswish", x, {}, var, asked)
    return True


def _swished(ctx: Context, call: relax.Call) -> relax.Var | None:
    """Give x of ``x * (clip(x + 3, 0, 6) / 6)`` or ``x * clip(x + 3, 0, 6) / 6``."""
    whole = _sixth(ctx, call)
    product = call if whole is None else ctx.calls.get(whole)
    if product is None or product.op.name != "relax.multiply":
        return None
    for x, other in (product.args, product.args[::-1]):
        cut = other if whole is not None else _sixth(ctx, ctx.calls.get(other))
        if isinstance(x, relax.Var) and _is_cut(ctx, cut, x):
            return x
    return None


def _sixth(ctx: Context, call: relax.Call | None) -> relax.Expr | None:
    """Give what a call divides by six."""
    if call is None or call.op.name not in ("relax.multiply", "relax.divide"):
        return None
    value, other = call.args
    if call.op.name == "relax.divide":
        return value if _is(ctx, other, 6.0) else None
    for one, factor in ((value, other), (other, value)):
        if _is(ctx, factor, 1 / 6):
            return one
    return None


def _is_cut(ctx: Context, expr: relax.Expr | None, x: relax.Var) -> bool:
    """Say whether an expression is ``clip(x + 3, 0, 6)``."""
    clip = ctx.calls.get(expr)
    if clip is None or clip.op.name != "relax.clip":
        return False
    if not _cuts(clip, 0, 6):
        return False
    moved = ctx.calls.get(clip.args[0])
    if moved is None or moved.op.name != "relax.add":
        return False
    a, b = moved.args
    return any(one.same_as(x) and _is(ctx, three, 3.0) for one, three in ((a, b), (b, a)))


def _cuts(clip: relax.Call, low: float, high: float) -> bool:
    try:
        return limits(clip) == (low, high)
    except NoForm:
        return False


def _is(ctx: Context, expr: relax.Expr, value: float) -> bool:
    found = ctx.number(expr)
    return found is not None and found.size == 1 and abs(float(found.flat[0]) - value) < _SAME


RULES = {**dict.fromkeys(_NAMES, _function), "relax.nn.leakyrelu": _leaky_relu}
ASKS = dict.fromkeys(RULES, _first)
