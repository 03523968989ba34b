"""Convolutions and matrix products: their sums are exact in int32.

The sums' scale is the product of the operands', by output channel where the weight has one for
each, and their zero point is 0. An operator whose sums could leave int32 stays float.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from ...ir import dialect
from .context import Context, Rule
from .quantized_value import (
    NARROW,
    Array,
    NotQuantizable,
    QuantizedValue,
    check_sums,
    fixed_sizes,
    sizes,
    with_dtype,
)


def conv_attributes(
    outputs: int | None, taps: list[int] | None, layouts: tuple[str, str, str], **given: Any
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


def _conv2d(ctx: Context, call: relax.Call, var: relax.Var) -> QuantizedValue:
    """Emit ``qnn.conv2d``, or ``qnn.conv2d_transpose``."""
    attrs, name = call.attrs, call.op.name.removeprefix("relax.nn.")
    transposed = name == "conv2d_transpose"
    data, kernel, out = str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)
    out = out or data
    for layout, letters in ((data, "CHNW"), (kernel, "HIOW"), (out, "CHNW")):
        if "".join(sorted(layout)) != letters:
            raise NotQuantizable(f"its layout is {layout}")
    x, w = ctx.stored(call.args[0]), _weight(ctx, call.args[1], kernel.index("O"))
    groups = int(attrs.groups)
    if transposed and groups > 1 and not w.scalar:
        raise NotQuantizable("its weight is quantized by output within each of its groups")
    shape = sizes(call.args[1].ty)
    if shape is None:
        raise NotQuantizable("its weight's shape is not known")
    by_letter = dict(zip(kernel, shape, strict=True))
    outputs: int | None = by_letter["O"]
    taps: list[int] | None = [by_letter["H"], by_letter["W"]]
    if not all(isinstance(by_letter[letter], int) for letter in "OHW"):
        outputs = taps = None
    elif transposed:
        outputs = by_letter["O"] * groups
    names = ("strides", "padding", "dilation", *(["output_padding"] if transposed else []))
    given: dict[str, Any] = {name: [int(n) for n in getattr(attrs, name)] for name in names}
    attributes = conv_attributes(outputs, taps, (data, kernel, out), groups=groups, **given)
    rows = None if w.array is None else np.moveaxis(w.array, kernel.index("O"), 0)
    bounds = product_bounds(x, w, rows, [by_letter[letter] for letter in "IHW"])
    expr = bind_product(ctx, name, x, w, attributes, var)
    exact = ctx.rounding == "TFLITE" and x.dtype != "uint8"
    return QuantizedValue.sums(expr, _scale(x, w, exact), out.index("C"), *bounds)


def _weight(ctx: Context, expr: relax.Expr, outputs: int) -> QuantizedValue:
    """Return a weight's integers, with one scale or one for each output."""
    value = ctx.clipped(expr)
    if value.dtype not in NARROW:
        raise NotQuantizable(f"its weight is {value.dtype}")
    if not value.scalar and value.axis != outputs:
        raise NotQuantizable(f"its weight is quantized along axis {value.axis}, not by output")
    return value


def _scale(x: QuantizedValue, w: QuantizedValue, exact: bool) -> Array:
    """Multiply two scales: in float32 as Relay, or exactly as TFLite's convolutions (float64).

    `PopulateConvolutionQuantizationParams` (tensorflow/lite/kernels/kernel_util.cc) multiplies in
    double; convolutions of uint8 multiply in float.
    """
    kind = np.float64 if exact else np.float32
    scale = np.asarray(x.scale.astype(kind) * w.scale.astype(kind))
    if not np.all(scale.astype(np.float32) > 0):
        raise NotQuantizable("the product of its scales is below every float32")
    return scale


def product_bounds(
    x: QuantizedValue, w: QuantizedValue, rows: Array | None, inner: list[Any]
) -> tuple[int, int]:
    """Return bounds of sums of products; refuse those that may be beyond int32.

    `rows` are the constant weights, one output after another, None where they are not constant;
    `inner` are the sizes summed over.
    """
    low, high = min(x.least - int(x.zero), 0), max(x.most - int(x.zero), 0)  # padding is 0
    if rows is not None:
        flat = rows.reshape(len(rows), -1).astype(np.int64) - w.zero.reshape(-1, 1)
        above = np.maximum(flat, 0).sum(axis=1)
        below = flat.sum(axis=1) - above
        least = int((above * low + below * high).min(initial=0))
        most = int((above * high + below * low).max(initial=0))
    else:
        if not all(isinstance(size, int) for size in inner):
            raise NotQuantizable(
                "how many products it sums is not known, so the sums may leave int32"
            )
        most = int(np.prod(inner, dtype=np.int64)) * w.far * max(-low, high)
        least = -most
    check_sums(least, most)
    return least, most


def bind_product(
    ctx: Context,
    name: str,
    x: QuantizedValue,
    w: QuantizedValue,
    attributes: dict[str, Any],
    var: relax.Var,
    ty: Any = None,
) -> relax.Expr:
    """Bind a product of quantized operands: its int32 sums."""
    (x_scale, x_zero), (w_scale, w_zero) = ctx.emit.params(x), ctx.emit.params(w)
    operands = [x.expr, w.expr, x_zero, w_zero, x_scale, w_scale]
    made = dialect.call(f"relax.qnn.{name}", operands, attributes)
    return ctx.emit.bind(made, ty or with_dtype(var.ty, "int32"), f"{var.name}_sums")


def _matmul(ctx: Context, call: relax.Call, var: relax.Var) -> QuantizedValue:
    """Emit ``qnn.dense`` of a constant matrix, else ``qnn.batch_matmul``."""
    left, right = call.args
    ranks = int(left.ty.ndim), int(right.ty.ndim)
    x, w = ctx.stored(left), _weight(ctx, right, ranks[1] - 1)
    shape = sizes(right.ty)
    if shape is None or min(ranks) < 1:
        raise NotQuantizable("its operands' shapes are not known")
    axis = int(var.ty.ndim) - 1
    if w.array is not None and ranks[1] == 2:
        rows = np.ascontiguousarray(w.array.T)
        bounds = product_bounds(x, w, rows, shape[:1])
        w = replace(w, expr=relax.const(rows, w.dtype))
        expr = bind_product(ctx, "dense", x, w, {"units": shape[1], "out_dtype": "int32"}, var)
        tflite = ctx.rounding == "TFLITE"
        value = QuantizedValue.sums(expr, _scale(x, w, tflite), axis, *bounds)
        # LiteRT's fully connected layers multiply in float64 and round once.
        return replace(value, compute="float64") if tflite else value
    if not w.scalar:
        raise NotQuantizable("its second operand is quantized by channel")
    bounds = product_bounds(x, w, None, shape[-2:-1])
    expr = _batches(ctx, x, w, fixed_sizes(left.ty), fixed_sizes(right.ty), var)
    return QuantizedValue.sums(expr, _scale(x, w, False), axis, *bounds)


def _batches(
    ctx: Context,
    x: QuantizedValue,
    w: QuantizedValue,
    a: list[int] | None,
    b: list[int] | None,
    var: relax.Var,
) -> relax.Expr:
    """Multiply batches of matrices: any leading axes as one, the second matrix transposed."""
    if a is None or b is None:
        raise NotQuantizable("its operands' shapes are not constant")
    if len(a) < 2 or len(a) != len(b) or a[:-2] != b[:-2]:
        raise NotQuantizable(f"it multiplies shapes {a} and {b}, which are not the same batches")
    batch = int(np.prod(a[:-2], dtype=np.int64))
    lhs = _reshaped(ctx, x.expr, a, [batch, *a[-2:]], x.dtype)
    rhs = _reshaped(ctx, w.expr, b, [batch, *b[-2:]], w.dtype)
    ty = relax.TensorType([batch, b[-1], b[-2]], w.dtype)
    rhs = ctx.emit.bind(relax.op.permute_dims(rhs, [0, 2, 1]), ty, f"{var.name}_turned")
    x, w = replace(x, expr=lhs), replace(w, expr=rhs)
    attributes = {"out_dtype": "int32", "transpose_a": False, "transpose_b": True}
    sums = [batch, a[-2], b[-1]]
    expr = bind_product(ctx, "batch_matmul", x, w, attributes, var, relax.TensorType(sums, "int32"))
    return _reshaped(ctx, expr, sums, [*a[:-1], b[-1]], "int32")


def _reshaped(
    ctx: Context, expr: relax.Expr, before: list[int], after: list[int], dtype: str
) -> relax.Expr:
    if before == after:
        return expr
    return ctx.emit.bind(relax.op.reshape(expr, after), relax.TensorType(after, dtype), "batches")


RULES = {
    "relax.nn.conv2d": Rule(_conv2d),
    "relax.nn.conv2d_transpose": Rule(_conv2d),
    "relax.matmul": Rule(_matmul),
}
