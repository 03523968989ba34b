"""Operators that move values or choose among them: they do the same to integers.

Moving, copying and taking the largest need no arithmetic, so they may be done before or after
rounding, and what they do to the real values they do to the integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from .context import Context
from .demand import Asked
from .form import Form, Goal, NoForm, fixed, with_dtype

__all__ = ["ASKS", "MOVES", "RULES", "number"]

Array = npt.NDArray[Any]

#: Gives the channels' axis after an operator, or None where they do not stay on one axis.
AxisAfter = Callable[[relax.Call, relax.Var, int], int | None]


def _ask(call: relax.Call) -> tuple[list[relax.Expr], list[relax.Expr]]:
    return [call.args[0]], []


def _same_axis(call: relax.Call, var: relax.Var, axis: int) -> int | None:
    return axis


def _permuted(call: relax.Call, var: relax.Var, axis: int) -> int | None:
    return _order(call).index(axis)


def _order(call: relax.Call) -> list[int]:
    ndim = int(call.args[0].ty.ndim)
    axes = call.attrs.axes
    return list(range(ndim))[::-1] if axes is None else [int(i) % ndim for i in axes]


def _reshaped(call: relax.Call, var: relax.Var, axis: int) -> int | None:
    """Find the axis that stays what it was: as long, with as much before it."""
    before, after = fixed(call.args[0].ty), fixed(var.ty)
    if before is None or after is None:
        return None
    place = int(np.prod(before[:axis], dtype=np.int64))
    for i, size in enumerate(after):
        if size == before[axis] and int(np.prod(after[:i], dtype=np.int64)) == place:
            return i
    return None


def _broadcast(call: relax.Call, var: relax.Var, axis: int) -> int | None:
    return axis + int(var.ty.ndim) - int(call.args[0].ty.ndim)


def _lost(call: relax.Call, var: relax.Var, axis: int) -> int | None:
    return None


def _reshape_array(array: Array, call: relax.Call, var: relax.Var) -> Array | None:
    shape = fixed(var.ty)
    return None if shape is None else array.reshape(shape)


def _permute_array(array: Array, call: relax.Call, var: relax.Var) -> Array | None:
    return array.transpose(_order(call))


def _broadcast_array(array: Array, call: relax.Call, var: relax.Var) -> Array | None:
    shape = fixed(var.ty)
    return None if shape is None else np.broadcast_to(array, shape)


Compute = Callable[[Array, relax.Call, relax.Var], Array | None]
_RESHAPES = ("reshape", "expand_dims", "squeeze", "flatten", "nn.batch_flatten")
_TABLE: dict[str, tuple[AxisAfter, Compute | None]] = {
    **{f"relax.{name}": (_reshaped, _reshape_array) for name in _RESHAPES},
    "relax.permute_dims": (_permuted, _permute_array),
    "relax.broadcast_to": (_broadcast, _broadcast_array),
    "relax.nn.max_pool2d": (_same_axis, None),
    **{
        f"relax.{name}": (_lost, None)
        for name in ("split", "strided_slice", "repeat", "tile", "flip", "max", "min")
    },
}

#: Operators whose results are among their operand's values.
MOVES = tuple(_TABLE)


def _move(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Do to the integers what the operator does to the values."""
    after, compute = _TABLE[call.op.name]
    operand = call.args[0]
    if not isinstance(operand, relax.Var):
        raise NoForm("its operand is a float constant")
    found = ctx.forms.get(operand, {})
    form = found.get(None)
    if form is None and not found:
        ctx.natural(operand)  # raises, saying why
    made = False
    # Stored integers are moved as they are; sums are first made small, if a quantize follows.
    if form is not None and (form.narrow or form.array is not None or asked.exact):
        axis = form.axis if form.scalar else after(call, var, form.axis)
        if axis is not None:
            array = None
            if form.array is not None and compute is not None:
                array = compute(form.array, call, var)
            if array is None:
                expr = _again(ctx, call, form.expr, var, form.dtype)
            else:
                expr = relax.const(np.ascontiguousarray(array), form.dtype)
            if form.scalar:
                axis = max(0, min(axis, _rank(var) - 1))
            ctx.put(var, replace(form, expr=expr, axis=axis, array=array))
            made = True
    if made and form is not None and form.narrow:
        return
    for goal in asked.goals:
        form = ctx.at(operand, goal)
        axis = max(0, min(form.axis, _rank(var) - 1))
        ctx.put(
            var, replace(form, expr=_again(ctx, call, form.expr, var, goal.dtype), axis=axis), goal
        )
        made = True
    if not made:
        raise NoForm("its operand has scales by channel, which do not stay on one axis")


def _rank(var: relax.Var) -> int:
    ty = var.ty
    return int(ty.ndim) if isinstance(ty, relax.TensorType) and ty.ndim > 0 else 1


def _again(
    ctx: Context, call: relax.Call, operand: relax.Expr, var: relax.Var, dtype: str
) -> relax.Expr:
    """Bind the same call of integers."""
    made = relax.Call(call.op, [operand, *list(call.args)[1:]], call.attrs, call.ty_args)
    return ctx.emit.bind(made, with_dtype(var.ty, dtype), f"{var.name}_{dtype}")


def _pad(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Pad with the integer that is the padding's value."""
    operand = call.args[0]
    if str(call.attrs.pad_mode) != "constant":
        raise NoForm(f'it pads in mode "{call.attrs.pad_mode}"')
    value = float(call.attrs.pad_value)
    form = ctx.forms.get(operand, {}).get(None) if isinstance(operand, relax.Var) else None
    if form is not None and (form.narrow or asked.exact):
        place = _place(form, value)
        if place is not None:
            expr = _padded(ctx, call, form.expr, var, form.dtype, place)
            ctx.put(var, replace(form, expr=expr, array=None))
            return
    if not asked.goals:
        ctx.natural(operand)
        raise NoForm(f"it pads with {value}, which is no step of its operand's scale")
    for goal in asked.goals:
        found = ctx.at(operand, goal)
        if found.cut:
            found = _cut(ctx, found, goal)
        place = int(ctx.emit.quantize(value, goal))
        expr = _padded(ctx, call, found.expr, var, goal.dtype, place)
        ctx.put(var, replace(found, expr=expr), goal)


def _cut(ctx: Context, form: Form, goal: Goal) -> Form:
    infinity = float("inf")
    return replace(form, expr=ctx.emit.bring(form, goal), low=-infinity, high=infinity)


def _place(form: Form, value: float) -> int | None:
    """Give the integer that stands for a value exactly, if there is one that no clip changes."""
    if not form.low <= value <= form.high:
        return None
    place = value / form.scale.astype(np.float64) + form.zero
    first = float(place.flat[0])
    if first != round(first) or np.any(place != first):
        return None
    return int(first) if form.least <= first <= form.most else None


def _padded(
    ctx: Context, call: relax.Call, operand: relax.Expr, var: relax.Var, dtype: str, place: int
) -> relax.Expr:
    attrs = tvm.ir.make_node(
        "relax.attrs.PadAttrs",
        pad_width=call.attrs.pad_width,
        pad_value=float(place),
        pad_mode=call.attrs.pad_mode,
    )
    made = relax.Call(call.op, [operand, *list(call.args)[1:]], attrs, call.ty_args)
    return ctx.emit.bind(made, with_dtype(var.ty, dtype), f"{var.name}_{dtype}")


def _as_is(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Keep the forms through a cast to the dtype that the value has."""
    operand = call.args[0]
    if str(var.ty.dtype) != str(operand.ty.dtype):
        raise NoForm(f"it casts to {var.ty.dtype}")
    found = ctx.forms.get(operand, {}) if isinstance(operand, relax.Var) else {}
    if not found:
        ctx.natural(operand)
    for goal, form in found.items():
        ctx.put(var, form, goal)


def number(name: str, array: Array, call: relax.Call, var: relax.Var) -> Array | None:
    """Compute what a moving operator makes of a float constant; None for other operators."""
    compute = _TABLE.get(name, (None, None))[1]
    return None if compute is None else compute(array, call, var)


RULES = {
    **dict.fromkeys(_TABLE, _move),
    "relax.nn.pad": _pad,
    "relax.astype": _as_is,
}
ASKS = dict.fromkeys(RULES, _ask)
