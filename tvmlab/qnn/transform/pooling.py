"""Averages: of windows, and of whole axes.

A mean over whole axes is a sum, exact in int32, whose scale is that of its operand over the count:
one rounding in all, that of the quantize which follows. Windows are ``qnn.avg_pool2d``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from ..reference import onnx_runtime
from .context import Context
from .demand import Asked
from .emit import INT32, shift
from .form import Form, NoForm, at, fixed, sizes, with_dtype
from .sums import near

__all__ = ["ASKS", "RULES", "pooling_attributes"]


def _ask(call: relax.Call) -> tuple[list[relax.Expr], list[relax.Expr]]:
    return [], [call.args[0]]


def _mean(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Sum, at the scale of the mean."""
    operand = call.args[0]
    ndim = int(operand.ty.ndim)
    given = call.attrs.axis
    axes = list(range(ndim)) if given is None else [int(i) % ndim for i in given]
    _whole(ctx, operand, axes, bool(call.attrs.keepdims), var, asked)


def _whole(
    ctx: Context,
    operand: relax.Expr,
    axes: list[int],
    keepdims: bool,
    var: relax.Var,
    asked: Asked,
) -> None:
    form, shape = ctx.plain(operand), sizes(operand.ty)
    if not form.scalar and form.axis in axes:
        raise NoForm("it averages over channels that have scales of their own")
    count = 1
    for axis in axes:
        length = shape[axis] if shape else None
        if not isinstance(length, int) or not length:
            raise NoForm("how many values it averages is not known")
        count *= length
    least, most = form.least * count, form.most * count
    if least < INT32[0] or most > INT32[1]:
        raise NoForm(f"its sums may reach {max(-least, most)}, beyond int32")
    expr = form.expr
    if form.dtype != "int32":
        wide = with_dtype(operand.ty, "int32")
        expr = ctx.emit.bind(relax.op.astype(expr, "int32"), wide, f"{var.name}_wide")
    total = relax.op.sum(expr, axes, keepdims)
    expr = ctx.emit.bind(total, with_dtype(var.ty, "int32"), f"{var.name}_sums")
    scale = np.asarray((form.scale.astype(np.float64) / count).astype(form.scale.dtype))
    if not np.all(scale.astype(np.float32) > 0):
        raise NoForm("its scale is below every float32")
    if form.scalar:
        axis = min(1, max(int(var.ty.ndim) - 1, 0))
    else:
        axis = form.axis - (0 if keepdims else sum(other < form.axis for other in axes))
    zero = np.asarray(form.zero * count)
    mean = Form(expr, "int32", scale, zero, axis, least, most, error=form.error)
    if ctx.rounding == "ONNX" and form.scalar:
        for goal in asked.goals:
            own = onnx_runtime.mean_scale(form.scale, np.asarray(goal.scale, np.float32), count)
            if own > 0:
                made = ctx.emit.bring(replace(mean, scale=own), goal)
                ctx.put(var, at(made, goal, goal.zero, goal.dtype), goal)
    ctx.put(var, mean)


def _adaptive(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Average everything, where that is what is asked for, or windows of one size."""
    attrs, operand = call.attrs, call.args[0]
    layout = str(attrs.layout)
    if layout not in ("NCHW", "NHWC") or str(attrs.out_layout) not in ("", layout):
        raise NoForm(f"its layout is {layout}")
    axes = [layout.index("H"), layout.index("W")]
    before, after = fixed(operand.ty), fixed(var.ty)
    found = sizes(var.ty)
    if found is not None and all(found[axis] == 1 for axis in axes):
        _whole(ctx, operand, axes, True, var, asked)
        return
    if before is None or after is None or any(before[i] % after[i] for i in axes):
        raise NoForm("its windows are of several sizes")
    window = [before[i] // after[i] for i in axes]
    attributes = {
        "pool_size": window,
        "strides": window,
        "dilation": [1, 1],
        "padding": [0, 0, 0, 0],
        "layout": layout,
        "out_layout": "",
        "ceil_mode": False,
        "count_include_pad": False,
    }
    _windows(ctx, operand, attributes, var, asked)


def _avg_pool2d(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Make ``qnn.avg_pool2d``, or a mean where ONNX Runtime does."""
    attributes, operand = pooling_attributes(call), call.args[0]
    axes = [attributes["layout"].index(letter) for letter in "HW"]
    shape = sizes(operand.ty)
    covers = shape is not None and [shape[axis] for axis in axes] == attributes["pool_size"]
    plain = attributes["dilation"] == [1, 1] and not any(attributes["padding"])
    narrow = ctx.natural(operand).dtype in ("int8", "uint8")
    if ctx.rounding == "ONNX" and covers and plain and narrow and not attributes["out_layout"]:
        _whole(ctx, operand, axes, True, var, asked)
        return
    _windows(ctx, operand, attributes, var, asked)


def pooling_attributes(call: relax.Call) -> dict[str, Any]:
    """Give Relay's attributes of a call of ``nn.avg_pool2d``, but for the rounding.

    Raises
    ------
    NoForm
        If its layout is none that ``qnn.avg_pool2d`` takes.
    """
    attrs = call.attrs
    layout, out = str(attrs.layout), str(attrs.out_layout)
    if "".join(sorted(layout)) != "CHNW" or "".join(sorted(out or layout)) != "CHNW":
        raise NoForm(f"its layout is {layout}")
    return {
        "pool_size": [int(n) for n in attrs.pool_size],
        "strides": [int(n) for n in attrs.strides],
        "dilation": [int(n) for n in attrs.dilation],
        "padding": [int(n) for n in attrs.padding],
        "layout": layout,
        "out_layout": "" if out == layout else out,
        "ceil_mode": bool(attrs.ceil_mode),
        "count_include_pad": bool(attrs.count_include_pad),
    }


def _windows(
    ctx: Context, operand: relax.Expr, attributes: dict[str, Any], var: relax.Var, asked: Asked
) -> None:
    form = ctx.stored(operand)
    if not asked.goals:
        raise NoForm("its result is not quantized")
    for goal in asked.goals:
        if goal.dtype == "int32" or (form.dtype == "int16") != (goal.dtype == "int16"):
            raise NoForm(f"it averages {form.dtype} into {goal.dtype}")
        zero = goal.zero + shift(goal.dtype, form.dtype)
        near([form], goal, "avg_pool2d")
        operands = [
            form.expr,
            ctx.emit.scale(form.scale),
            ctx.emit.zero(form.zero),
            ctx.emit.scale(np.float32(goal.scale)),
            ctx.emit.zero(zero),
        ]
        # Relay's ways cut the fraction off; only the frameworks' round an average.
        rounding = "ONNX" if ctx.rounding == "ONNX" else "TFLITE"
        values = {**attributes, "rounding": rounding}
        ty = with_dtype(var.ty, form.dtype)
        hint = f"{var.name}_{form.dtype}"
        expr = ctx.emit.quantized("avg_pool2d", operands, values, ty, hint)
        ctx.met(var, at(expr, goal, zero, form.dtype), goal)


RULES = {
    "relax.mean": _mean,
    "relax.nn.adaptive_avg_pool2d": _adaptive,
    "relax.nn.avg_pool2d": _avg_pool2d,
}
ASKS = dict.fromkeys(RULES, _ask)
