"""Quantized convolutions and matrix products: integers in, int32 sums out.

The result's scale is the product of the operands' scales, its zero point 0. The scales are
operands for those who read the graph; the sums do not use them. The operators are Relay's
(src/relay/qnn/op/convolution.cc, convolution_transpose.cc, dense.cc, batch_matmul.cc, TVM 0.18),
which split the product into four sums; the whole is the same in wrapping integers.

The kernels are plain loops. `tvmlab.schedule` has forms of its own for what it serves (NHWC with
constant weights); all else, and other targets than CPUs, get these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tvm import relax, te, tirx, topi

from ..ir import windows
from ..ir.checks import Array, limits
from ..ir.products import batch_matmul_shape, dense_shape
from ..ir.types import Tensor
from .contractions import ConvWeights, ZeroPointCorrection, exact
from .layout import convolution
from .operands import CallOperands, ChannelParam, call_te, known_shape
from .operator import Operand, operator

_PRODUCT: dict[str, Any] = {
    "layout": None,
    "dtypes": ("int8", "uint8", "int16"),
    "choices": {"out_dtype": ("int16", "int32", "int64")},
}


# Convolutions


def _in_order(x: Array, layout: str, wanted: str) -> Array:
    return x.transpose([layout.index(letter) for letter in wanted])


def _convolve(
    x: Array, w: Array, groups: int, strides: Sequence[int], dilation: Sequence[int]
) -> Array:
    """Convolve x (n, h, w, c) with w (o, c / groups, kh, kw), without padding: (n, oh, ow, o)."""
    reach = [(taps - 1) * step + 1 for taps, step in zip(w.shape[2:], dilation, strict=True)]
    x, w = exact(x, w, w[0].size)
    seen = sliding_window_view(x, reach, (1, 2))
    seen = seen[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]
    rows = seen.reshape(*seen.shape[:3], groups, 1, -1)
    weights = w.reshape(groups, len(w) // groups, -1).swapaxes(1, 2)
    return (rows @ weights).astype(np.int64).reshape(*rows.shape[:3], -1)


def _shape(seen: dict[str, Tensor], a: dict[str, Any]) -> tuple[Any, int, Any]:
    rule = windows.transposed if "output_padding" in a else windows.convolution
    data, kernel, *_ = seen.values()
    shape, channels = rule(data, kernel, "HW", a)
    return shape, 4, channels


def _convolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Sum windows; transposed, each output looks for the inputs that are spread to it."""
    given = CallOperands(builder, call)
    a, dtype, transposed = given.attributes, given.dtype("data"), given.name.endswith("transpose")
    layout, out_layout = a["data_layout"], a["out_layout"] or a["data_layout"]
    shape, channel = known_shape(given.name, "data", call), out_layout.index("C")
    sizes = dict(zip(layout, given.shape("data"), strict=True))
    weights = ConvWeights(given, sizes["C"], shape[channel])
    zero = given.zero_row("input_zero_point", dtype)
    extra = weights.correction.row() if weights.correction and not transposed else None
    strides, dilation = (
        windows.steps(a[name], 2, given.name, name) for name in ("strides", "dilation")
    )
    pads = windows.padding(a["padding"], 2, given.name)
    hint = given.name.replace(".", "_")

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        if not transposed and any(map(any, pads)):
            around = dict(zip("HW", pads, strict=True))
            before, after = zip(*(around.get(letter, (0, 0)) for letter in layout), strict=True)
            data = topi.nn.pad(data, before, after, zero.read(0).astype(dtype), name="pad")
        named = zip(("ri", "ry", "rx"), (weights.inner, *weights.taps), strict=True)
        i, *taps = (te.reduce_axis((0, size), name) for name, size in named)

        def value(*index: Any) -> tirx.PrimExpr:
            at, inside = dict(zip(out_layout, index, strict=True)), []
            o = at["C"]
            at["C"] = o // weights.each * weights.inner + i
            for n, (letter, tap) in enumerate(zip("HW", taps, strict=True)):
                if not transposed:
                    at[letter] = at[letter] * strides[n] + tap * dilation[n]
                    continue
                place = at[letter] + pads[n][0] - tap * dilation[n]
                at[letter] = tirx.floordiv(place, strides[n])
                inside += [tirx.floormod(place, strides[n]) == 0]
                inside += [at[letter] >= 0, at[letter] < sizes[letter]]
            number = data(*(at[letter] for letter in layout)).astype(weights.kind)
            if extra is None:
                number = number - zero.read(0).astype(weights.kind)
            if inside:
                number = tirx.if_then_else(tirx.all(*inside), number, tirx.const(0, weights.kind))
            return te.sum(number * weights.read(weight, o, i, *taps), axis=[i, *taps])

        return _finished(te.compute(shape, value, name=hint), extra, channel, a["out_dtype"])

    rows = [zero, *weights.rows, *([extra] if extra else [])]
    return call_te(builder, compute, [given["data"], weights.operand], rows, hint)


def _four(a: dict[str, Any]) -> dict[str, Any]:
    """Give padding as Relay prints it: top, left, bottom, right."""
    (top, bottom), (left, right) = windows.padding(a["padding"], 2, "qnn.conv2d")
    return a | {"padding": [top, left, bottom, right]}


@operator(
    shape=_shape,
    kernel=_convolution,
    kept=_four,
    printed=(
        *("strides", "padding", "dilation", "groups", "channels", "kernel_size"),
        *("data_layout", "kernel_layout", "out_layout", "out_dtype"),
    ),
    relay={"out_dtype": ""},
    **(_PRODUCT | {"layout": convolution}),
)
def conv2d(
    numbers: Any,
    data: Operand,
    kernel: Operand,
    input_zero_point: Operand,
    kernel_zero_point: Operand,
    input_scale: Operand,
    kernel_scale: Operand,
    kernel_size: Sequence[int] | None = None,
    channels: int | None = None,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> Array:
    """Convolve quantized data with a quantized kernel.

    ``sum((data - input_zero_point) * (kernel - kernel_zero_point))``, the padding being
    `input_zero_point`, which is the real 0.

    Parameters
    ----------
    data : tensor
        Shape (n, c, h, w) in `data_layout`; int8, uint8 or int16.
    kernel : tensor
        Shape (o, c / groups, kh, kw) in `kernel_layout`; int8, uint8 or int16. With `groups` = c,
        (c, multiplier, kh, kw) as well.
    input_zero_point, input_scale : int32, float32
        Scalars.
    kernel_zero_point, kernel_scale : int32, float32
        Scalars, or one for each output channel.
    kernel_size : sequence of int or None
        (kh, kw); None leaves it to the kernel.
    channels : int or None
        o; None leaves it to the kernel.
    strides, dilation : sequence of int
        For height and width.
    padding : sequence of int
        One for all sides, (height, width), or (top, left, bottom, right).
    groups : int
        Into how many parts the channels are split.
    data_layout, kernel_layout, out_layout : str
        Orders of NCHW and OIHW; an empty `out_layout` is `data_layout`.
    out_dtype : str
        int32, int16 or int64: a sum that does not fit wraps, as Relay's does. Compiling a call with
        constant weights whose sums can wrap warns.
    """
    x, w = _in_order(data, data_layout, "NHWC"), _in_order(kernel, kernel_layout, "OIHW")
    if windows.depthwise(x.shape[3], len(w), groups):
        w = w.reshape(-1, 1, *w.shape[2:])
    w = w - kernel_zero_point.reshape(-1, 1, 1, 1)
    sides = windows.padding(list(padding), 2, "qnn.conv2d")
    x = np.pad(x - input_zero_point, [(0, 0), *sides, (0, 0)])
    sums = _convolve(x, w, groups, strides, dilation)
    return _in_order(sums, "NHWC", out_layout or data_layout)


@operator(
    shape=_shape,
    kernel=_convolution,
    kept=_four,
    printed=(
        *("channels", "kernel_size", "strides", "output_padding", "padding", "dilation", "groups"),
        *("data_layout", "kernel_layout", "out_layout", "out_dtype"),
    ),
    relay={"out_dtype": ""},
    **(_PRODUCT | {"layout": convolution}),
)
def conv2d_transpose(
    numbers: Any,
    data: Operand,
    weight: Operand,
    input_zero_point: Operand,
    kernel_zero_point: Operand,
    input_scale: Operand,
    kernel_scale: Operand,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sequence[int] | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Sequence[int] = (0, 0),
    out_dtype: str = "int32",
) -> Array:
    """Convolve quantized data with a quantized kernel, transposed.

    Parameters
    ----------
    data : tensor
        Shape (n, c, h, w) in `data_layout`; int8, uint8 or int16.
    weight : tensor
        Shape (c, o / groups, kh, kw) in `kernel_layout`; int8, uint8 or int16.
    output_padding : sequence of int
        Rows and columns added at the bottom and right of the result.

    Other parameters, results and errors are as in `conv2d`.
    """
    call = "qnn.conv2d_transpose"
    x, w = _in_order(data, data_layout, "NHWC"), _in_order(weight, kernel_layout, "IOHW")
    made, taps = w.shape[1] * groups, w.shape[2:]
    w = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2).reshape(made, -1, *taps)
    w = w[..., ::-1, ::-1] - kernel_zero_point.reshape(-1, 1, 1, 1)
    more = [after for _, after in windows.padding(list(output_padding), 2, call)]
    size = [(n - 1) * step + 1 for n, step in zip(x.shape[1:3], strides, strict=True)]
    # Around the data that are spread lies what the kernel reaches, less the padding.
    pads = [
        ((tap - 1) * step - before, (tap - 1) * step - after + extra)
        for tap, step, (before, after), extra in zip(
            taps, dilation, windows.padding(list(padding), 2, call), more, strict=True
        )
    ]
    around = [(max(before, 0), max(after, 0)) for before, after in pads]
    wide = np.zeros([len(x), *(n + sum(p) for n, p in zip(size, around, strict=True)), x.shape[3]])
    wide = wide.astype(np.int64)
    inner = [slice(p, p + n, step) for n, (p, _), step in zip(size, around, strides, strict=True)]
    wide[:, inner[0], inner[1]] = x - input_zero_point
    cut = [slice(max(-before, 0), -max(-after, 0) or None) for before, after in pads]
    sums = _convolve(wide[:, cut[0], cut[1]], w, groups, (1, 1), dilation)
    return _in_order(sums, "NHWC", out_layout or data_layout)


def _finished(sums: te.Tensor, extra: ChannelParam | None, channel: int, dtype: str) -> te.Tensor:
    """Add what the zero points do, and cast; return the sums as they are where that is nothing."""
    extra = None if extra is not None and extra.is_all(0) else extra
    if extra is None and str(sums.dtype) == dtype:
        return sums

    def value(*index: Any) -> tirx.PrimExpr:
        found = sums(*index)
        found = found if extra is None else found + extra.read(index[channel])
        return found.astype(dtype)

    return te.compute(sums.shape, value, name="corrected")


# Matrix products: a kernel where the weights are constant, else Relax's matmul


def _matmul(x: Array, y: Array) -> Array:
    found: Array = np.matmul(*exact(x, y, x.shape[-1])).astype(np.int64)
    return found


def _dense_shape(seen: dict[str, Tensor], a: dict[str, Any]) -> tuple[Any, int, Any]:
    shape, units = dense_shape(seen["data"], seen["weight"], a["units"])
    return shape, seen["data"].ndim, units


def _dense(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given = CallOperands(builder, call)
    weight, dtype = given.array("weight"), given.attributes["out_dtype"]
    correction = ZeroPointCorrection.of(given, weight)
    if correction is None:
        units = given.shape("weight")[0]
        data = _shifted(given, "data", "input_zero_point")
        kernel = _shifted(given, "weight", "kernel_zero_point", units)
        return _relax_matmul(builder, data, _turned(builder, kernel), dtype)
    shape, extra = known_shape(given.name, "data", call), correction.row()
    kind = str(correction.extra.dtype)

    def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, w.shape[1]), "k")

        def value(*index: Any) -> tirx.PrimExpr:
            *rows, unit = index
            return te.sum(x(*rows, k).astype(kind) * w(unit, k).astype(kind), axis=k)

        return _finished(te.compute(shape, value, name="qnn_dense"), extra, -1, dtype)

    kept = relax.const(correction.weight, str(correction.weight.dtype))
    return call_te(builder, compute, [given["data"], kept], [extra], "qnn_dense")


@operator(shape=_dense_shape, kernel=_dense, relay={"out_dtype": ""}, **_PRODUCT)
def dense(
    numbers: Any,
    data: Operand,
    weight: Operand,
    input_zero_point: Operand,
    kernel_zero_point: Operand,
    input_scale: Operand,
    kernel_scale: Operand,
    units: int | None = None,
    out_dtype: str = "int32",
) -> Array:
    """Multiply quantized data by a quantized weight, transposed.

    Parameters
    ----------
    data : tensor
        Shape (..., k); int8, uint8 or int16.
    weight : tensor
        Shape (units, k); int8, uint8 or int16.
    input_zero_point, input_scale : int32, float32
        Scalars.
    kernel_zero_point, kernel_scale : int32, float32
        Scalars, or one for each unit.
    units : int or None
        The weight's rows; None leaves it to the weight.
    out_dtype : str
        int32, int16 or int64; sums wrap as in `conv2d`.
    """
    x, w = data - input_zero_point, weight - kernel_zero_point.reshape(-1, 1)
    return _matmul(x, w.T)


def _batch_shape(seen: dict[str, Tensor], a: dict[str, Any]) -> tuple[Any, int, Any]:
    return batch_matmul_shape(seen["x"], seen["y"], a), 3, 1


def _batch_matmul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given = CallOperands(builder, call)
    given.check_scales()
    x = _shifted(given, "x", "x_zero_point")
    y = _shifted(given, "y", "y_zero_point")
    x = _turned(builder, x) if given.attributes["transpose_a"] else x
    y = _turned(builder, y) if given.attributes["transpose_b"] else y
    return _relax_matmul(builder, x, y, given.attributes["out_dtype"])


@operator(
    shape=_batch_shape,
    kernel=_batch_matmul,
    relay={"out_dtype": "", "transpose_b": False},
    **_PRODUCT,
)
def batch_matmul(
    numbers: Any,
    x: Operand,
    y: Operand,
    x_zero_point: Operand,
    y_zero_point: Operand,
    x_scale: Operand,
    y_scale: Operand,
    out_dtype: str = "int32",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Array:
    """Multiply quantized matrices by quantized matrices, transposed.

    Parameters
    ----------
    x, y : tensor
        Shapes (b, m, k) and (b, n, k), either b may be 1; int8, uint8 or int16.
    x_zero_point, y_zero_point, x_scale, y_scale : int32, float32
        Scalars.
    out_dtype : str
        int32, int16 or int64; sums wrap as in `conv2d`.
    transpose_a, transpose_b : bool
        Whether `x` is (b, k, m), and whether `y` is (b, n, k) rather than (b, k, n): attributes
        that Relay's function does not offer, and its operator has.
    """
    left, right = x - x_zero_point, y - y_zero_point
    left = left.swapaxes(-1, -2) if transpose_a else left
    right = right.swapaxes(-1, -2) if transpose_b else right
    return _matmul(left, right)


def _shifted(given: CallOperands, name: str, zero_name: str, channels: Any = 1) -> relax.Expr:
    """Take the zero points off a tensor, whose first axis is that of the channels."""
    dtype, shape = given.dtype(name), given.shape(name)
    zero = given.zero_row(zero_name, dtype, channels)
    low, high = limits(dtype)
    # Differences of 8 bits fit into 16.
    kind = "int16" if high - low < 1 << 15 else "int32"

    def compute(x: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> tirx.PrimExpr:
            return x(*index).astype(kind) - zero.read(index[0]).astype(kind)

        return te.compute(shape, value, name="shifted")

    made: relax.Expr = given.builder.emit(
        call_te(given.builder, compute, [given[name]], [zero], "qnn_shifted")
    )
    return made


def _turned(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Transpose the matrices of a tensor."""
    axes = [*range(x.ty.ndim)]
    axes[-2:] = axes[:-3:-1]
    made: relax.Expr = builder.emit(relax.op.permute_dims(x, axes))
    return made


def _relax_matmul(
    builder: relax.BlockBuilder, x: relax.Expr, y: relax.Expr, dtype: str
) -> relax.Expr:
    """Multiply, with sums of 32 bits or 64, which wrap to fewer."""
    if str(x.ty.dtype) != str(y.ty.dtype):
        x, y = (builder.emit(relax.op.astype(side, "int32")) for side in (x, y))
    made = relax.op.matmul(x, y, out_dtype="int64" if dtype == "int64" else "int32")
    return made if dtype != "int16" else relax.op.astype(builder.emit(made), dtype)
