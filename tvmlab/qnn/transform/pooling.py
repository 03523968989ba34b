"""Averages: of windows, and of whole axes.

A mean over whole axes is a sum, exact in int32, whose scale is that of its operand over the count:
one rounding in all, that of the quantize which follows. Windows are ``qnn.avg_pool2d``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from .. import frameworks
from .context import Context, Rule
from .quantized_value import (
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    check_sums,
    fixed_sizes,
    sizes,
    with_dtype,
)
from .sums import check_scales


def _axes(ctx: Context, call: relax.Call, var: relax.Var) -> tuple[list[int], bool] | None:
    """Return the axes that a call averages whole, and whether it keeps them; None for windows."""
    operand, attrs = call.args[0], call.attrs
    if call.op.name == "relax.mean":
        ndim = int(operand.ty.ndim)
        given = range(ndim) if attrs.axis is None else attrs.axis
        return [int(i) % ndim for i in given], bool(attrs.keepdims)
    if call.op.name == "relax.nn.adaptive_avg_pool2d":
        layout = str(attrs.layout)
        if layout not in ("NCHW", "NHWC") or str(attrs.out_layout) not in ("", layout):
            raise NotQuantizable(f"its layout is {layout}")
        axes, shape = [layout.index(letter) for letter in "HW"], sizes(var.ty)
        whole = shape is not None and all(shape[axis] == 1 for axis in axes)
        return (axes, True) if whole else None
    # ONNX Runtime computes a window of the whole picture as a mean.
    attributes, shape = pooling_attributes(call), sizes(operand.ty)
    axes = [attributes["layout"].index(letter) for letter in "HW"]
    whole = (
        ctx.rounding == "ONNX"
        and shape is not None
        and [shape[axis] for axis in axes] == attributes["pool_size"]
        and attributes["dilation"] == [1, 1]
        and not any(attributes["padding"])
        and not attributes["out_layout"]
        and ctx.operand(operand).dtype in ("int8", "uint8")
    )
    return (axes, True) if whole else None


def _count(operand: relax.Expr, axes: list[int]) -> int:
    shape, count = sizes(operand.ty), 1
    for axis in axes:
        length = shape[axis] if shape else None
        if not isinstance(length, int) or not length:
            raise NotQuantizable("how many values it averages is not known")
        count *= length
    return count


def _average(ctx: Context, call: relax.Call, var: relax.Var) -> QuantizedValue:
    """Sum, at the scale of the mean."""
    found, operand = _axes(ctx, call, var), call.args[0]
    if found is None:
        ctx.stored(operand)
        raise NotQuantizable("its result is not quantized")
    axes, keepdims = found
    value = ctx.clipped(operand)
    if not value.scalar and value.axis in axes:
        raise NotQuantizable("it averages over channels that have scales of their own")
    count = _count(operand, axes)
    least, most = value.least * count, value.most * count
    check_sums(least, most)
    scale = np.asarray((value.scale.astype(np.float64) / count).astype(value.scale.dtype))
    if not np.all(scale.astype(np.float32) > 0):
        raise NotQuantizable("its scale is below every float32")
    expr = value.expr
    if value.dtype != "int32":
        wide = with_dtype(operand.ty, "int32")
        expr = ctx.emit.bind(relax.op.astype(expr, "int32"), wide, f"{var.name}_wide")
    total = relax.op.sum(expr, axes, keepdims)
    expr = ctx.emit.bind(total, with_dtype(var.ty, "int32"), f"{var.name}_sums")
    if value.scalar:
        axis = min(1, max(int(var.ty.ndim) - 1, 0))
    else:
        axis = value.axis - (0 if keepdims else sum(other < value.axis for other in axes))
    zero = np.asarray(value.zero * count)
    return QuantizedValue(expr, "int32", scale, zero, axis, least, most, error=value.error)


def _average_at(
    ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams
) -> QuantizedValue:
    """Emit ``qnn.avg_pool2d``, or a mean whose scale is ONNX Runtime's."""
    found, operand = _axes(ctx, call, var), call.args[0]
    if found is None:
        return _windows(ctx, call, var, params)
    mean = ctx.value(var)
    if ctx.rounding == "ONNX" and mean.scalar:
        scale, count = ctx.operand(operand).scale, _count(operand, found[0])
        own = frameworks.mean_scale(scale, np.asarray(params.scale, np.float32), count)
        if own > 0:
            made = ctx.emit.requantize_to(replace(mean, scale=own), params)
            return QuantizedValue.of(made, params)
    return mean


def pooling_attributes(call: relax.Call) -> dict[str, Any]:
    """Return Relay's attributes of a call of ``nn.avg_pool2d``, but for the rounding."""
    attrs = call.attrs
    layout, out = str(attrs.layout), str(attrs.out_layout)
    if "".join(sorted(layout)) != "CHNW" or "".join(sorted(out or layout)) != "CHNW":
        raise NotQuantizable(f"its layout is {layout}")
    numbers = ("pool_size", "strides", "dilation", "padding")
    return {
        **{name: [int(n) for n in getattr(attrs, name)] for name in numbers},
        "layout": layout,
        "out_layout": "" if out == layout else out,
        "ceil_mode": bool(attrs.ceil_mode),
        "count_include_pad": bool(attrs.count_include_pad),
    }


def _adaptive_attributes(call: relax.Call, var: relax.Var) -> dict[str, Any]:
    """Return the attributes of windows of one size."""
    layout = str(call.attrs.layout)
    axes = [layout.index(letter) for letter in "HW"]
    before, after = fixed_sizes(call.args[0].ty), fixed_sizes(var.ty)
    if before is None or after is None or any(before[i] % after[i] for i in axes):
        raise NotQuantizable("its windows are of several sizes")
    window = [before[i] // after[i] for i in axes]
    return {
        "pool_size": window,
        "strides": window,
        "dilation": [1, 1],
        "padding": [0, 0, 0, 0],
        "layout": layout,
        "out_layout": "",
        "ceil_mode": False,
        "count_include_pad": False,
    }


def _windows(ctx: Context, call: relax.Call, var: relax.Var, params: QuantParams) -> QuantizedValue:
    adaptive = call.op.name == "relax.nn.adaptive_avg_pool2d"
    attributes = _adaptive_attributes(call, var) if adaptive else pooling_attributes(call)
    value = ctx.stored(call.args[0])
    if params.dtype == "int32" or (value.dtype == "int16") != (params.dtype == "int16"):
        raise NotQuantizable(f"it averages {value.dtype} into {params.dtype}")
    check_scales([value], params, "avg_pool2d")
    # Relay's ways cut the fraction off; only the frameworks' round an average.
    attributes["rounding"] = "ONNX" if ctx.rounding == "ONNX" else "TFLITE"
    operands = [value.expr, *ctx.emit.params(value)]
    return ctx.emit.call_at("avg_pool2d", operands, attributes, var, params, value.dtype)


RULES = dict.fromkeys(
    ("relax.mean", "relax.nn.adaptive_avg_pool2d", "relax.nn.avg_pool2d"),
    Rule(_average, _average_at),
)
