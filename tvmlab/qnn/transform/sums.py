"""Additions, products element by element, and joining: operators of two or more scales.

At a goal they are ``qnn.add``, ``qnn.subtract``, ``qnn.mul`` and ``qnn.concatenate``. A constant
added to sums is their bias. Sums added to something, unrounded, are added in int32 at a scale fine
enough for every step to be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from .affine import channels, constant_form, multiply_by_constant, scaled, shifted
from .context import Context, Rule
from .demand import Asked, leaves
from .emit import INT32, shift
from .form import INFINITY, Form, Goal, NoForm, at, common, same_shape, sizes, with_dtype
from .products import sums_form
from .unary import hardswish

__all__ = ["ASKS", "RULES"]

Array = npt.NDArray[Any]

# Sums are added at this part of a step of the finest operand, where int32 allows it.
_FINE = 2.0**12
# So many steps of a result beyond its operands' reach are more than a left shift in int32 takes.
_APART = 2.0**20
# A float32 number is rounded by at most this part of itself, twice in a product.
_FLOATS = 2.0**-23
# Beyond this there may be no room for both sides and their sum.
_ROOM = 2.0**30


def _both(call: relax.Call) -> tuple[list[relax.Expr], list[relax.Expr]]:
    return [], list(call.args)


def _fields(call: relax.Call) -> tuple[list[relax.Expr], list[relax.Expr]]:
    return list(leaves(call.args[0])), []


def _add(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Make ``qnn.add`` or ``qnn.subtract``, or a bias."""
    name = call.op.name.removeprefix("relax.")
    left, right = call.args
    for value, other in [(left, right)] if name == "subtract" else [(left, right), (right, left)]:
        number = ctx.number(other)
        if number is None or ctx.number(value) is not None:
            continue
        form, twin = ctx.natural(value), constant_form(ctx, other)
        if form.narrow and twin is not None and twin.narrow:
            break  # both are quantized
        if not same_shape(value.ty, var.ty):
            raise NoForm("a constant that is not quantized makes it larger")
        if name == "subtract":
            number, twin = -number, None
        low, high = -INFINITY, INFINITY
        if number.size == 1:  # what is cut before may as well be cut behind it
            low, high = form.low + float(number.flat[0]), form.high + float(number.flat[0])
            form = replace(form, low=-INFINITY, high=INFINITY)
        form = _sums(ctx, ctx.emit.settle(form), number, value, var)
        form = shifted(ctx, form, number, twin, var.ty, var)
        ctx.put(var, replace(form, low=low, high=high))
        return
    forms = [ctx.plain(arg) for arg in call.args]
    if not all(form.narrow for form in forms) or asked.exact:
        _fine(ctx, name, forms, var)
    else:
        _rounded(ctx, name, forms, var, asked)


def _sums(ctx: Context, form: Form, add: Array, value: relax.Expr, var: relax.Var) -> Form:
    """Give sums to which a constant can be added: stored integers times 32767 by channel."""
    if not form.narrow:
        return form
    axis, shape = channels(add, int(var.ty.ndim)), sizes(var.ty)
    if axis is None or shape is None or not isinstance(shape[axis], int):
        raise NoForm("a constant is added that is not quantized and differs by more than channel")
    each = np.broadcast_to(add.ravel(), (shape[axis],))
    return scaled(ctx, form, np.ones(shape[axis]), each, axis, value.ty, var)


def _rounded(ctx: Context, name: str, forms: Sequence[Form], var: relax.Var, asked: Asked) -> None:
    """Make the quantized operator of two operands, for each goal."""
    if not asked.goals:
        raise NoForm("its result is not quantized")
    for goal in asked.goals:
        dtype = common([form.dtype for form in forms], goal.dtype)
        own = [ctx.emit.recode(form, dtype) for form in forms]
        zero = goal.zero + shift(goal.dtype, dtype)
        near(own, goal, name)
        operands = [form.expr for form in own]
        for form in own:
            operands += [ctx.emit.scale(form.scale), ctx.emit.zero(form.zero)]
        operands += [ctx.emit.scale(np.float32(goal.scale)), ctx.emit.zero(zero)]
        attributes = {
            "lhs_axis": -1 if own[0].scalar else own[0].axis,
            "rhs_axis": -1 if own[1].scalar else own[1].axis,
            "rounding": _way(ctx, name, own),
        }
        ty = with_dtype(var.ty, dtype)
        expr = ctx.emit.quantized(name, operands, attributes, ty, f"{var.name}_{dtype}")
        ctx.met(var, at(expr, goal, zero, dtype), goal)


def _way(ctx: Context, name: str, forms: Sequence[Form]) -> str:
    """Choose an operator's rounding.

    Relay's addition rounds both sides to the result's steps before it adds: in one of twenty places
    it is a step off. TFLite's, which rounds once for all that one can see, serves every
    network but those that are to give ONNX Runtime's bits; it takes one scale a tensor, no int32,
    and int16 only about 0.
    """
    if not all(form.scalar for form in forms):
        return "None"
    if name == "mul" or ctx.rounding == "ONNX":
        return ctx.rounding
    wide = any(
        form.dtype == "int32" or (form.dtype == "int16" and int(form.zero)) for form in forms
    )
    return "None" if wide else "TFLITE"


def near(forms: Sequence[Form], goal: Goal, name: str) -> None:
    """Insist that no requantize within an operator is refused, or wraps.

    Raises
    ------
    NoForm
        If one would be.
    """
    if name == "mul":
        scale = float(np.float32(forms[0].scale * forms[1].scale))
        if not scale > 0 or scale / goal.scale >= _ROOM:
            raise NoForm("its scales are too far apart")
        if any(not form.scalar for form in forms):
            raise NoForm("its operands are quantized by channel")
        reach = 1
        for form in forms:
            reach *= max(abs(end - int(form.zero)) for end in (form.least, form.most))
        if reach > INT32[1]:
            raise NoForm(f"its products may reach {reach}, beyond int32")
        return
    for form in forms:
        if form.reach / goal.scale + abs(goal.zero) >= _APART:
            raise NoForm("its scales are too far apart")
        if form.error > goal.scale / 4:
            raise NoForm("roundings before it could be more than a quarter of its result's step")


def _fine(ctx: Context, name: str, forms: Sequence[Form], var: relax.Var) -> None:
    """Add in int32, at a scale so fine that the rounding is a small part of a step."""
    reach = sum(form.reach for form in forms)
    narrow = [float(np.min(form.scale)) for form in forms if form.narrow]
    scale = min(narrow) / _FINE if narrow else reach / 2.0**28
    while reach / scale > _ROOM:
        scale *= 2
    fine = Goal(float(np.float32(scale)), 0, "int32")
    if not fine.scale > 0:
        raise NoForm("its scales are below every float32")
    # What was rounded before counts against the result's step and not this one's: `error` below.
    sides = [ctx.emit.bring(replace(form, error=0.0), fine) for form in forms]
    call = {"add": relax.op.add, "subtract": relax.op.subtract}[name](*sides)
    expr = ctx.emit.bind(call, with_dtype(var.ty, "int32"), f"{var.name}_sums")
    most = int(reach / fine.scale) + 2
    form = sums_form(expr, np.asarray(fine.scale, np.float32), 0, -most, most)
    # Two roundings of half a step, and what float32 loses where requantizes compute in that.
    error = sum(form.error for form in forms) + fine.scale + reach * _FLOATS
    ctx.put(var, replace(form, error=error))


def _mul(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Make ``qnn.mul``, or another scale where one side is a constant."""
    if hardswish(ctx, call, var, asked) or multiply_by_constant(ctx, call, var, asked):
        return
    forms = [ctx.stored(arg) for arg in call.args]
    if asked.exact:
        _products(ctx, forms, var)
    else:
        _rounded(ctx, "mul", forms, var, asked)


def _products(ctx: Context, forms: Sequence[Form], var: relax.Var) -> None:
    """Multiply in int32, with no rounding."""
    reach, sides = 1, []
    for form in forms:
        reach *= max(abs(end - int(form.zero)) for end in (form.least, form.most))
        ty = with_dtype(form.expr.ty, "int32")
        wide = ctx.emit.bind(relax.op.astype(form.expr, "int32"), ty, f"{var.name}_wide")
        if int(form.zero):
            moved = relax.op.subtract(wide, ctx.emit.zero(form.zero))
            wide = ctx.emit.bind(moved, ty, f"{var.name}_wide")
        sides.append(wide)
    if reach > INT32[1]:
        raise NoForm(f"its products may reach {reach}, beyond int32")
    ty = with_dtype(var.ty, "int32")
    expr = ctx.emit.bind(relax.op.multiply(*sides), ty, f"{var.name}_products")
    scale = np.asarray(forms[0].scale * forms[1].scale)
    if not scale > 0:
        raise NoForm("the product of its scales is below every float32")
    ctx.put(var, sums_form(expr, scale, 0, -reach, reach))


def _divide(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Divide by a constant."""
    if not (hardswish(ctx, call, var, asked) or multiply_by_constant(ctx, call, var, asked)):
        raise NoForm("it divides by what is not constant")


def _concat(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Make ``qnn.concatenate``; values of one scale are only joined."""
    if call.attrs.axis is None:
        raise NoForm("it joins flattened values")
    fields, axis = list(leaves(call.args[0])), int(call.attrs.axis) % int(var.ty.ndim)
    for goal in asked.goals:
        ctx.put(var, _joined(ctx, fields, axis, goal, var), goal)
    if not asked.exact:
        return
    forms = [ctx.plain(field) for field in fields]
    first = forms[0]
    if not all(_alike(first, form) for form in forms):
        if asked.goals:
            return
        raise NoForm("it joins values of several scales, and its result is not quantized")
    made = relax.Call(
        call.op, [relax.Tuple([form.expr for form in forms])], call.attrs, call.ty_args
    )
    expr = ctx.emit.bind(made, with_dtype(var.ty, first.dtype), f"{var.name}_{first.dtype}")
    least, most = min(form.least for form in forms), max(form.most for form in forms)
    error = max(form.error for form in forms)
    joined = Form(expr, first.dtype, first.scale, first.zero, 0, least, most, error=error)
    ctx.put(var, joined)


def _alike(a: Form, b: Form) -> bool:
    same = a.scalar and b.scalar and a.dtype == b.dtype
    return same and bool(a.scale == b.scale and a.zero == b.zero)


def _joined(
    ctx: Context, fields: Sequence[relax.Expr], axis: int, goal: Goal, var: relax.Var
) -> Form:
    """Join at a goal: stored integers with their own scales, all else brought there first."""
    parts = []
    for field in fields:
        part = _part(ctx, field, goal)
        if part is None:
            found = ctx.at(field, goal)
            part = at(ctx.emit.bring(found, goal), goal, goal.zero, goal.dtype)
        parts.append(part)
    operands = [
        relax.Tuple([part.expr for part in parts]),
        relax.Tuple([ctx.emit.scale(part.scale) for part in parts]),
        relax.Tuple([ctx.emit.zero(part.zero) for part in parts]),
        ctx.emit.scale(np.float32(goal.scale)),
        ctx.emit.zero(goal.zero),
    ]
    ty = with_dtype(var.ty, goal.dtype)
    hint = f"{var.name}_{goal.dtype}"
    expr = ctx.emit.quantized("concatenate", operands, {"axis": axis}, ty, hint)
    return at(expr, goal, goal.zero, goal.dtype)


def _part(ctx: Context, field: relax.Expr, goal: Goal) -> Form | None:
    """Give a field as it is stored, where ``qnn.concatenate`` can requantize it."""
    form = ctx.forms.get(field, {}).get(None) if isinstance(field, relax.Var) else None
    if form is None or not form.narrow or not form.scalar or form.cut or form.error:
        return None
    # TFLite's rounding cannot be said of this operator: a requantize of its own says it.
    there = float(form.scale) == goal.scale and int(form.zero) == goal.zero
    if not there and ctx.rounding != "None":
        return None
    if form.reach / goal.scale >= _ROOM:
        raise NoForm("its scales are too far apart")
    return form if form.dtype == goal.dtype else None


RULES: dict[str, Rule] = {
    "relax.add": _add,
    "relax.subtract": _add,
    "relax.multiply": _mul,
    "relax.divide": _divide,
    "relax.concat": _concat,
}
ASKS = {
    **dict.fromkeys(("relax.add", "relax.subtract", "relax.multiply", "relax.divide"), _both),
    "relax.concat": _fields,
}
