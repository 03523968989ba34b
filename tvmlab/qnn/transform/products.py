"""Convolutions and matrix products: their sums are exact in int32.

The sums' scale is the product of the operands', by output channel where the weight has one for
each, and their zero point is 0. A sum that could leave int32 leaves its operator float.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

from .context import Context
from .demand import Asked
from .emit import INT32
from .form import NARROW, Form, NoForm, fixed, sizes, with_dtype

__all__ = ["ASKS", "RULES", "reach", "sums_form"]

Array = npt.NDArray[Any]


def _ask(call: relax.Call) -> tuple[list[relax.Expr], list[relax.Expr]]:
    return [], list(call.args)


def _conv2d(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Make ``qnn.conv2d``, or ``qnn.conv2d_transpose``."""
    attrs, name = call.attrs, call.op.name.removeprefix("relax.nn.")
    transposed = name == "conv2d_transpose"
    layouts = [str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)]
    layouts[2] = layouts[2] or layouts[0]
    for layout, letters in zip(layouts, ("CHNW", "HIOW", "CHNW"), strict=True):
        if "".join(sorted(layout)) != letters:
            raise NoForm(f"its layout is {layout}")
    x, w = ctx.stored(call.args[0]), _weight(ctx, call.args[1], layouts[1].index("O"))
    groups = int(attrs.groups)
    if transposed and groups > 1 and not w.scalar:
        raise NoForm("its weight is quantized by output within each of its groups")
    shape = sizes(call.args[1].ty)
    if shape is None:
        raise NoForm("its weight's shape is not known")
    by_letter = dict(zip(layouts[1], shape, strict=True))
    outputs, taps = by_letter["O"], [by_letter["H"], by_letter["W"]]
    known = all(isinstance(size, int) for size in (outputs, *taps))
    if transposed and known:
        outputs *= groups
    attributes = {
        "strides": [int(n) for n in attrs.strides],
        "padding": [int(n) for n in attrs.padding],
        "dilation": [int(n) for n in attrs.dilation],
        "groups": groups,
        "channels": outputs if known else None,
        "kernel_size": taps if known else None,
        "data_layout": layouts[0],
        "kernel_layout": layouts[1],
        "out_layout": "" if layouts[2] == layouts[0] else layouts[2],
        "out_dtype": "int32",
    }
    if transposed:
        attributes["output_padding"] = [int(n) for n in attrs.output_padding]
    rows = None if w.array is None else np.moveaxis(w.array, layouts[1].index("O"), 0)
    least, most = reach(x, w, rows, [by_letter["I"], *taps])
    expr = _product(ctx, name, x, w, attributes, var)
    exact = ctx.rounding == "TFLITE" and x.dtype != "uint8"
    ctx.put(var, sums_form(expr, _scale(x, w, exact), layouts[2].index("C"), least, most))


def _weight(ctx: Context, expr: relax.Expr, outputs: int) -> Form:
    """Give a weight's form, with one scale or one for each output.

    Raises
    ------
    NoForm
        If it is not quantized, or by another axis.
    """
    form = ctx.plain(expr)
    if form.dtype not in NARROW:
        raise NoForm(f"its weight is {form.dtype}")
    if not form.scalar and form.axis != outputs:
        raise NoForm(f"its weight is quantized along axis {form.axis}, not by output")
    return form


def _scale(x: Form, w: Form, exact: bool) -> Array:
    """Multiply two scales: in float32 as Relay, or exactly as TFLite's convolutions (float64).

    Notes
    -----
    `PopulateConvolutionQuantizationParams` (tensorflow/lite/kernels/kernel_util.cc) multiplies in
    double; convolutions of uint8 multiply in float.
    """
    kind = np.float64 if exact else np.float32
    scale: Array = x.scale.astype(kind) * w.scale.astype(kind)
    if not np.all(scale.astype(np.float32) > 0):
        raise NoForm("the product of its scales is below every float32")
    return np.asarray(scale)


def reach(x: Form, w: Form, rows: Array | None, inner: list[Any]) -> tuple[int, int]:
    """Bound the sums of products.

    Parameters
    ----------
    x, w : Form
        The operands.
    rows : numpy.ndarray or None
        The constant weights, one output after another; None where they are not constant.
    inner : list
        The sizes summed over.

    Raises
    ------
    NoForm
        If they may be beyond int32, or how many are summed is not known.
    """
    low, high = x.least - int(x.zero), x.most - int(x.zero)
    low, high = min(low, 0), max(high, 0)  # padding is 0
    if rows is not None:
        flat = rows.reshape(len(rows), -1).astype(np.int64) - w.zero.reshape(-1, 1)
        above = np.maximum(flat, 0).sum(axis=1)
        below = flat.sum(axis=1) - above
        ends = [above * low + below * high, above * high + below * low]
        least, most = int(ends[0].min(initial=0)), int(ends[1].max(initial=0))
    else:
        if not all(isinstance(size, int) for size in inner):
            raise NoForm("how many products it sums is not known, so the sums may leave int32")
        far = max(
            abs(end - int(zero)) for end in (w.least, w.most) for zero in np.atleast_1d(w.zero)
        )
        count = int(np.prod(inner, dtype=np.int64))
        most = count * far * max(-low, high)
        least = -most
    if least < INT32[0] or most > INT32[1]:
        raise NoForm(f"its sums may reach {max(-least, most)}, beyond int32")
    return least, most


def _product(
    ctx: Context, name: str, x: Form, w: Form, attributes: dict[str, Any], var: relax.Var
) -> relax.Expr:
    operands = [
        x.expr,
        w.expr,
        ctx.emit.zero(x.zero),
        ctx.emit.zero(w.zero),
        ctx.emit.scale(x.scale),
        ctx.emit.scale(w.scale),
    ]
    ty = with_dtype(var.ty, "int32")
    return ctx.emit.quantized(name, operands, attributes, ty, f"{var.name}_sums")


def sums_form(expr: relax.Expr, scale: Array, axis: int, least: int, most: int) -> Form:
    """Make the form of sums: int32, zero point 0."""
    return Form(expr, "int32", scale, np.zeros((), np.int64), axis, least, most)


def _matmul(ctx: Context, call: relax.Call, var: relax.Var, asked: Asked) -> None:
    """Make ``qnn.dense`` of a constant matrix, else ``qnn.batch_matmul``."""
    left, right = call.args
    ranks = int(left.ty.ndim), int(right.ty.ndim)
    x, w = ctx.stored(left), _weight(ctx, right, ranks[1] - 1)
    shape = sizes(right.ty)
    if shape is None or min(ranks) < 1:
        raise NoForm("its operands' shapes are not known")
    if w.array is not None and ranks[1] == 2:
        rows = np.ascontiguousarray(w.array.T)
        least, most = reach(x, w, rows, shape[:1])
        weight = Form(relax.const(rows, w.dtype), w.dtype, w.scale, w.zero, 0, w.least, w.most)
        expr = _product(ctx, "dense", x, weight, {"units": shape[1], "out_dtype": "int32"}, var)
        tflite = ctx.rounding == "TFLITE"
        form = sums_form(expr, _scale(x, w, tflite), int(var.ty.ndim) - 1, least, most)
        # LiteRT's fully connected layers multiply in float64 and round once.
        ctx.put(var, replace(form, compute="float64") if tflite else form)
        return
    if not w.scalar:
        raise NoForm("its second operand is quantized by channel")
    least, most = reach(x, w, None, shape[-2:-1])
    expr = _batches(ctx, x, w, (fixed(left.ty), fixed(right.ty)), var)
    ctx.put(var, sums_form(expr, _scale(x, w, False), int(var.ty.ndim) - 1, least, most))


def _batches(
    ctx: Context,
    x: Form,
    w: Form,
    shapes: tuple[list[int] | None, list[int] | None],
    var: relax.Var,
) -> relax.Expr:
    """Multiply batches of matrices: any leading axes as one, the second matrix transposed."""
    a, b = shapes
    if a is None or b is None:
        raise NoForm("its operands' shapes are not constant")
    if len(a) < 2 or len(a) != len(b) or a[:-2] != b[:-2]:
        raise NoForm(f"it multiplies shapes {a} and {b}, which are not the same batches")
    batch = int(np.prod(a[:-2], dtype=np.int64))
    lhs = _reshaped(ctx, x.expr, a, [batch, *a[-2:]], x.dtype)
    rhs = _reshaped(ctx, w.expr, b, [batch, *b[-2:]], w.dtype)
    ty = relax.TensorType([batch, b[-1], b[-2]], w.dtype)
    rhs = ctx.emit.bind(relax.op.permute_dims(rhs, [0, 2, 1]), ty, f"{var.name}_turned")
    sums = relax.TensorType([batch, a[-2], b[-1]], "int32")
    operands = [
        lhs,
        rhs,
        ctx.emit.zero(x.zero),
        ctx.emit.zero(w.zero),
        ctx.emit.scale(x.scale),
        ctx.emit.scale(w.scale),
    ]
    attributes = {"out_dtype": "int32", "transpose_a": False, "transpose_b": True}
    expr = ctx.emit.quantized("batch_matmul", operands, attributes, sums, f"{var.name}_sums")
    return _reshaped(ctx, expr, [batch, a[-2], b[-1]], [*a[:-1], b[-1]], "int32")


def _reshaped(
    ctx: Context, expr: relax.Expr, before: list[int], after: list[int], dtype: str
) -> relax.Expr:
    if before == after:
        return expr
    ty = relax.TensorType(after, dtype)
    return ctx.emit.bind(relax.op.reshape(expr, after), ty, "batches")


RULES = {
    "relax.nn.conv2d": _conv2d,
    "relax.nn.conv2d_transpose": _conv2d,
    "relax.matmul": _matmul,
}
ASKS = dict.fromkeys(RULES, _ask)
