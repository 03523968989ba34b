"""Convolutions, matrix products and averages: their sums are exact in int32.

The scale of a product's sums is the product of the operands', by output channel where the weight
has one for each, and their zero point is 0. An operator whose sums could leave int32 stays float. A
mean over whole axes is a sum whose scale is that of its operand over the count: one rounding in
all, that of the quantize which follows. Averages of windows are ``qnn.avg_pool2d``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from ...ir import dialect
from .. import frameworks
from ..contractions import sum_parts, sum_range
from .context import Context, Rule, Site, check_scales
from .quantized_value import (
    NARROW,
    Array,
    NotQuantizable,
    QuantizedValue,
    QuantParams,
    channel_count,
    check_sums,
    fixed_sizes,
    require,
    sizes,
    with_dtype,
)


def conv_attributes(
    outputs: int, taps: list[int], layouts: tuple[str, str, str], **given: Any
) -> dict[str, Any]:
    """Return the attributes of ``qnn.conv2d``."""
    plain = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}
    return {
        **plain,
        **given,
        "channels": outputs,
        "kernel_size": taps,
        "data_layout": layouts[0],
        "kernel_layout": layouts[1],
        "out_layout": "" if layouts[2] == layouts[0] else layouts[2],
        "out_dtype": "int32",
    }


def _conv2d(site: Site) -> QuantizedValue:
    """Emit ``qnn.conv2d``, or ``qnn.conv2d_transpose``."""
    ctx, attrs, name = site.ctx, site.call.attrs, site.name.removeprefix("nn.")
    transposed, groups = name == "conv2d_transpose", int(attrs.groups)
    data, kernel, out = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
    out = out or data
    for layout, letters in ((data, "CHNW"), (kernel, "HIOW"), (out, "CHNW")):
        require("".join(sorted(layout)) == letters, f"its layout is {layout}")
    x, w = ctx.stored(site.call.args[0]), _weight(ctx, site.call.args[1], kernel.index("O"))
    grouped = "its weight is quantized by output within each of its groups"
    require(not transposed or groups == 1 or w.scalar, grouped)
    shape = fixed_sizes(site.call.args[1].ty)
    if shape is None:
        raise NotQuantizable("its weight's shape is not known")
    by_letter = dict(zip(kernel, shape, strict=True))
    outputs = by_letter["O"] * (groups if transposed else 1)
    names = ("strides", "padding", "dilation", *(["output_padding"] if transposed else []))
    given: dict[str, Any] = {name: [int(n) for n in getattr(attrs, name)] for name in names}
    taps = [by_letter["H"], by_letter["W"]]
    attributes = conv_attributes(outputs, taps, (data, kernel, out), groups=groups, **given)
    rows = None if w.array is None else np.moveaxis(w.array, kernel.index("O"), 0)
    bounds = _bounds(x, w, rows, by_letter["I"] * taps[0] * taps[1])
    expr = bind_product(site, name, x, w, attributes)
    exact = ctx.rounding == "TFLITE" and x.dtype != "uint8"
    return QuantizedValue.sums(expr, _scale(x, w, exact), out.index("C"), *bounds)


def _weight(ctx: Context, expr: relax.Expr, outputs: int) -> QuantizedValue:
    """Return a weight's integers, with one scale or one for each output."""
    value = ctx.clipped(expr)
    require(value.dtype in NARROW, f"its weight is {value.dtype}")
    by_output = value.scalar or value.axis == outputs
    require(by_output, f"its weight is quantized along axis {value.axis}, not by output")
    return value


def _scale(x: QuantizedValue, w: QuantizedValue, exact: bool) -> Array:
    """Multiply two scales: in float32 as Relay, or exactly as TFLite's convolutions (float64).

    `PopulateConvolutionQuantizationParams` (tensorflow/lite/kernels/kernel_util.cc) multiplies in
    double; convolutions of uint8 multiply in float.
    """
    kind = np.float64 if exact else np.float32
    scale = np.asarray(x.scale.astype(kind) * w.scale.astype(kind))
    small = "the product of its scales is below every float32"
    require(np.all(scale.astype(np.float32) > 0), small)
    return scale


def _bounds(
    x: QuantizedValue, w: QuantizedValue, rows: Array | None, terms: int
) -> tuple[int, int]:
    """Return bounds of sums of `terms` products; refuse those that could be beyond int32.

    `rows` are the constant weights, one output after another, None where they are not constant.
    """
    low, high = min(x.least - int(x.zero), 0), max(x.most - int(x.zero), 0)  # padding is 0
    if rows is None:
        most = terms * w.far * max(-low, high)
        least = -most
    else:
        flat = rows.reshape(len(rows), -1).astype(np.int64) - w.zero.reshape(-1, 1)
        lows, highs = sum_range(sum_parts(flat), low, high)
        least, most = int(lows.min(initial=0)), int(highs.max(initial=0))
    check_sums(least, most)
    return least, most


def bind_product(
    site: Site,
    name: str,
    x: QuantizedValue,
    w: QuantizedValue,
    attributes: dict[str, Any],
    ty: Any = None,
) -> relax.Expr:
    """Bind a product of quantized operands: its int32 sums."""
    (x_scale, x_zero), (w_scale, w_zero) = site.ctx.params(x), site.ctx.params(w)
    operands = [x.expr, w.expr, x_zero, w_zero, x_scale, w_scale]
    return site.bind(dialect.call(f"relax.qnn.{name}", operands, attributes), "sums", ty=ty)


def _matmul(site: Site) -> QuantizedValue:
    """Emit ``qnn.dense`` of a constant matrix, else ``qnn.batch_matmul``."""
    ctx, (left, right) = site.ctx, site.call.args
    ranks = int(left.ty.ndim), int(right.ty.ndim)
    x, w = ctx.stored(left), _weight(ctx, right, ranks[1] - 1)
    a, b, axis = fixed_sizes(left.ty), fixed_sizes(right.ty), int(site.var.ty.ndim) - 1
    if w.array is not None and ranks[1] == 2 and b is not None:
        rows = np.ascontiguousarray(w.array.T)
        bounds = _bounds(x, w, rows, b[0])
        w = replace(w, expr=relax.const(rows, w.dtype))
        expr = bind_product(site, "dense", x, w, {"units": b[1], "out_dtype": "int32"})
        tflite = ctx.rounding == "TFLITE"
        value = QuantizedValue.sums(expr, _scale(x, w, tflite), axis, *bounds)
        # LiteRT's fully connected layers multiply in float64 and round once.
        return replace(value, compute="float64") if tflite else value
    require(w.scalar, "its second operand is quantized by channel")
    if a is None or b is None:
        raise NotQuantizable("its operands' shapes are not constant")
    same = len(a) >= 2 and len(a) == len(b) and a[:-2] == b[:-2]
    require(same, f"it multiplies shapes {a} and {b}, which are not the same batches")
    bounds = _bounds(x, w, None, b[-2])
    return QuantizedValue.sums(_batches(site, x, w, a, b), _scale(x, w, False), axis, *bounds)


def _batches(
    site: Site, x: QuantizedValue, w: QuantizedValue, a: list[int], b: list[int]
) -> relax.Expr:
    """Multiply batches of matrices: any leading axes as one, the second matrix transposed."""

    def reshaped(expr: relax.Expr, before: list[int], after: list[int], dtype: str) -> relax.Expr:
        if before == after:
            return expr
        ty = relax.TensorType(after, dtype)
        return site.ctx.bind(relax.op.reshape(expr, after), ty, "batches")

    batch = int(np.prod(a[:-2], dtype=np.int64))
    lhs = reshaped(x.expr, a, [batch, *a[-2:]], x.dtype)
    rhs = reshaped(w.expr, b, [batch, *b[-2:]], w.dtype)
    ty = relax.TensorType([batch, b[-1], b[-2]], w.dtype)
    rhs = site.bind(relax.op.permute_dims(rhs, [0, 2, 1]), "turned", ty=ty)
    x, w = replace(x, expr=lhs), replace(w, expr=rhs)
    attributes = {"out_dtype": "int32", "transpose_a": False, "transpose_b": True}
    sums = [batch, a[-2], b[-1]]
    expr = bind_product(site, "batch_matmul", x, w, attributes, relax.TensorType(sums, "int32"))
    return reshaped(expr, sums, [*a[:-1], b[-1]], "int32")


# Averages


def _axes(site: Site) -> tuple[list[int], bool] | None:
    """Return the axes that a call averages whole, and whether it keeps them; None for windows."""
    operand, attrs = site.call.args[0], site.call.attrs
    if site.name == "mean":
        ndim = int(operand.ty.ndim)
        given = range(ndim) if attrs.axis is None else attrs.axis
        return [int(i) % ndim for i in given], bool(attrs.keepdims)
    if site.name == "nn.adaptive_avg_pool2d":
        layout, shape = str(attrs.layout), sizes(site.var.ty)
        known = layout in ("NCHW", "NHWC") and str(attrs.out_layout) in ("", layout)
        require(known, f"its layout is {layout}")
        axes = [layout.index(letter) for letter in "HW"]
        whole = shape is not None and all(shape[axis] == 1 for axis in axes)
        require(whole, "it averages windows whose sizes follow from the result's")
        return axes, True
    # ONNX Runtime computes a window of the whole picture as a mean.
    attributes, shape = pooling_attributes(site.call), sizes(operand.ty)
    axes = [attributes["layout"].index(letter) for letter in "HW"]
    whole = (
        site.ctx.rounding == "ONNX"
        and shape is not None
        and [shape[axis] for axis in axes] == attributes["pool_size"]
        and attributes["dilation"] == [1, 1]
        and not any(attributes["padding"])
        and not attributes["out_layout"]
        and site.ctx.operand(operand).dtype in ("int8", "uint8")
    )
    return (axes, True) if whole else None


def _count(operand: relax.Expr, axes: list[int]) -> int:
    counts = [channel_count(operand.ty, axis) or 0 for axis in axes]
    require(all(counts), "how many values it averages is not known")
    return int(np.prod(counts, dtype=np.int64))


def _average(site: Site) -> QuantizedValue:
    """Sum, at the scale of the mean."""
    found, operand = _axes(site), site.call.args[0]
    if found is None:
        site.ctx.stored(operand)
        raise NotQuantizable("its result is not quantized")
    axes, keepdims = found
    value = site.ctx.clipped(operand)
    apart = value.scalar or value.axis not in axes
    require(apart, "it averages over channels that have scales of their own")
    count = _count(operand, axes)
    least, most = value.least * count, value.most * count
    check_sums(least, most)
    scale = np.asarray((value.scale.astype(np.float64) / count).astype(value.scale.dtype))
    require(np.all(scale.astype(np.float32) > 0), "its scale is below every float32")
    expr = value.expr
    if value.dtype != "int32":
        wide = with_dtype(operand.ty, "int32")
        expr = site.bind(relax.op.astype(expr, "int32"), "wide", ty=wide)
    expr = site.bind(relax.op.sum(expr, axes, keepdims), "sums")
    if value.scalar:
        axis = min(1, max(int(site.var.ty.ndim) - 1, 0))
    else:
        axis = value.axis - (0 if keepdims else sum(other < value.axis for other in axes))
    zero = np.asarray(value.zero * count)
    return QuantizedValue(expr, "int32", scale, zero, axis, least, most, error=value.error)


def _average_at(site: Site, params: QuantParams) -> QuantizedValue:
    """Emit ``qnn.avg_pool2d``, or a mean whose scale is ONNX Runtime's."""
    ctx, found, operand = site.ctx, _axes(site), site.call.args[0]
    if found is None:
        return _windows(site, params)
    mean = ctx.value(site.var)
    if ctx.rounding == "ONNX" and mean.scalar:
        scale, count = ctx.operand(operand).scale, _count(operand, found[0])
        own = frameworks.mean_scale(scale, np.asarray(params.scale, np.float32), count)
        if own > 0:
            made = ctx.requantize_to(replace(mean, scale=own), params)
            return QuantizedValue.of(made, params)
    return mean


def pooling_attributes(call: relax.Call) -> dict[str, Any]:
    """Return Relay's attributes of a call of ``nn.avg_pool2d``, but for the rounding."""
    attrs = call.attrs
    layout, out = str(attrs.layout), str(attrs.out_layout)
    for each in (layout, out or layout):
        require("".join(sorted(each)) == "CHNW", f"its layout is {layout}")
    numbers = ("pool_size", "strides", "dilation", "padding")
    return {
        **{name: [int(n) for n in getattr(attrs, name)] for name in numbers},
        "layout": layout,
        "out_layout": "" if out == layout else out,
        "ceil_mode": bool(attrs.ceil_mode),
        "count_include_pad": bool(attrs.count_include_pad),
    }


def _windows(site: Site, params: QuantParams) -> QuantizedValue:
    attributes, value = pooling_attributes(site.call), site.ctx.stored(site.call.args[0])
    same = params.dtype != "int32" and (value.dtype == "int16") == (params.dtype == "int16")
    require(same, f"it averages {value.dtype} into {params.dtype}")
    check_scales([value], params)
    # Relay's ways cut the fraction off; only the frameworks' round an average.
    attributes["rounding"] = "ONNX" if site.ctx.rounding == "ONNX" else "TFLITE"
    operands = [value.expr, *site.ctx.params(value)]
    return site.call_at("avg_pool2d", operands, attributes, params, value.dtype)


PRODUCTS = dict.fromkeys(
    ("relax.nn.conv2d", "relax.nn.conv2d_transpose"), Rule(_conv2d)
) | {"relax.matmul": Rule(_matmul)}  # fmt: skip
_AVERAGES = ("relax.mean", "relax.nn.adaptive_avg_pool2d", "relax.nn.avg_pool2d")
RULES = PRODUCTS | dict.fromkeys(_AVERAGES, Rule(_average, _average_at))
