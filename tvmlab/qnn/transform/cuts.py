"""Relu, clip, and the larger or smaller of two: cuts that rounding passes through.

Rounding keeps the order of numbers. So a cut may wait until the integers are at their goal, where
it is exact, and where mostly there is nothing left to cut: the dtype ends there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import tvm
from tvm import relax

from .context import Context
from .demand import Asked
from .form import INFINITY, Form, Goal, NoForm, same_shape, with_dtype

__all__ = ["ASKS", "RULES", "limits"]


def _bound(expr: relax.Expr) -> float:
    """Read a limit of a clip: a number in one of the ways Relax has.

    Raises
    ------
    NoForm
        If it is not constant.
    """
    if isinstance(expr, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return float(expr.value)
    if isinstance(expr, tvm.ir.GenericConst) and expr.value.numpy().size == 1:
        return float(expr.value.numpy().ravel()[0])
    value = getattr(expr, "value", None)
    if isinstance(value, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
        return float(value.value)
    raise NoForm("its limits are not constant")


def _relu(call: relax.Call) -> tuple[float, float]:
    return 0.0, INFINITY


def _clip(call: relax.Call) -> tuple[float, float]:
    return _bound(call.args[1]), _bound(call.args[2])


_LIMITS: dict[str, Callable[[relax.Call], tuple[float, float]]] = {
    "relax.nn.relu": _relu,
    "relax.clip": _clip,
}


def limits(call: relax.Call) -> tuple[float, float]:
    """Give where a relu or a clip cuts.

    Raises
    ------
    NoForm
        If a limit is not constant.
    """
    return _LIMITS[call.op.name](call)


def _first(call: relax.Call) -> tuple[list[relax.Expr], list[relax.Expr]]:
    return [call.args[0]], []


def _both(call: relax.Call) -> tuple[list[relax.Expr], list[relax.Expr]]:
    return list(call.args), []


def _cut(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Note the limits on the operand's forms."""
    _limit(ctx, call.args[0], var, *limits(call))


def _limit(ctx: Context, operand: relax.Expr, var: relax.Var, low: float, high: float) -> None:
    if not low <= high:
        raise NoForm(f"its limits are {low} and {high}")
    found = ctx.forms.get(operand, {}) if isinstance(operand, relax.Var) else {}
    if not found:
        ctx.natural(operand)
    for goal, form in found.items():
        ends = (min(max(form.low, low), high), min(max(form.high, low), high))
        ctx.put(var, replace(form, low=ends[0], high=ends[1]), goal)


def _extreme(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Take the larger or the smaller: a cut where one side is one number, else at each goal."""
    larger = call.op.name == "relax.maximum"
    for value, other in ((0, 1), (1, 0)):
        number = ctx.number(call.args[other])
        if number is not None and number.size == 1 and same_shape(call.args[value].ty, var.ty):
            limit = float(number.ravel()[0])
            ends = (limit, INFINITY) if larger else (-INFINITY, limit)
            _limit(ctx, call.args[value], var, *ends)
            return
    if not asked.goals:
        raise NoForm("it compares values of two scales")

    def at(goal: Goal) -> Form:
        sides = [ctx.at(arg, goal) for arg in call.args]
        exprs = [ctx.emit.bring(side, goal) for side in sides]
        made = relax.Call(call.op, exprs, call.attrs, call.ty_args)
        expr = ctx.emit.bind(made, with_dtype(var.ty, goal.dtype), f"{var.name}_{goal.dtype}")
        return replace(sides[0], expr=expr, axis=0, low=-INFINITY, high=INFINITY)

    ctx.at_goals(asked, at, var)


RULES = {
    **dict.fromkeys(_LIMITS, _cut),
    "relax.maximum": _extreme,
    "relax.minimum": _extreme,
}
ASKS = {
    **dict.fromkeys(_LIMITS, _first),
    "relax.maximum": _both,
    "relax.minimum": _both,
}
