"""Quantized convolutions and matrix products: integers in, int32 sums out.

The result's scale is the product of the operands' scales, and its zero point is 0. The operators
keep the scales as operands for readers of the graph, but do not compute with them. They are Relay's
operators (src/relay/qnn/op: convolution.cc, convolution_transpose.cc, dense.cc, batch_matmul.cc,
TVM 0.18), which split the product into four sums; in wrapping integers the result is the same.

    sum((a - za) * (w - zw)) == sum(a * v) - za * sum(v)   with v = w - zw, and padding being za

If the weights are constant, v and ``sum(v)`` are computed at compile time. The loops then multiply
integers of the original width, and the zero points contribute one number per output channel. In
wrapping integers both sides are equal; compiling a kernel whose sums can wrap prints a warning.

The kernels are plain loops. `tvmlab.schedule` has faster forms for convolutions in NHWC with
constant weights; other calls, and other targets than CPUs, use these.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from tvm import relax, te, tirx, topi

from ..ir import dialect, windows
from ..ir.types import Tensor, differ
from ..ir.windows import batch_matmul_shape, dense_shape
from .checks import Array, limits
from .layout import convolution
from .operands import CallOperands, ChannelParam, call_te, known_shape
from .operator import NARROW, Operand, operator

PRODUCT: dict[str, Any] = {
    "layout": None,
    "dtypes": NARROW,
    "choices": {"out_dtype": ("int16", "int32", "int64")},
}
_DTYPES = ("int8", "int16", "int32")
_EXACT = ((np.float32, 24), (np.float64, 53))


def exact(a: Array, b: Array, terms: int) -> tuple[Array, Array]:
    """Cast integers to the fastest dtype in which sums of `terms` of their products are exact.

    A float with a significand of p bits holds every integer up to 2**p. Sums in int64 wrap.
    """
    largest = terms
    for x in (a, b):  # Python ints cannot overflow
        largest *= max(int(x.max()), -int(x.min())) if x.size else 0
    kind = next((kind for kind, bits in _EXACT if largest <= 1 << bits), np.int64)
    return a.astype(kind), b.astype(kind)


def sum_parts(rows: Array) -> tuple[Array, Array]:
    """Sum the positive and the negative weights of each row (less their zero points), in int64."""
    above = np.maximum(rows, 0).sum(1)
    return above, rows.sum(1) - above


def sum_range(parts: tuple[Array, Array], low: int, high: int) -> tuple[Array, Array]:
    """Bound sums of products with data between two integers: the smallest and the largest sum."""
    above, below = parts
    return above * low + below * high, above * high + below * low


@dataclass(frozen=True)
class ZeroPointCorrection:
    """A product's constant weights less their zero points, and the correction for the data's."""

    weight: Array
    zero: int
    extra: Array

    @classmethod
    def of(cls, given: CallOperands, kernel: Array | None) -> ZeroPointCorrection | None:
        """Split a call's constant weights and zero points; None if one of them is not constant."""
        data, weight, zero_name, kernel_zero_name = given.names[:4]
        channels = None if kernel is None else len(kernel)
        given.check_scales(kernel_scale=channels)
        names = zero_name, kernel_zero_name
        if kernel is None or any(given.array(name) is None for name in names):
            return None
        dtype, kind = given.dtype(data), given.attributes["out_dtype"]
        zero = given.zero_point(zero_name, dtype)
        kernel_zero = given.zero_point(kernel_zero_name, given.dtype(weight), channels)
        whole = kernel.astype(np.int64) - kernel_zero.reshape(-1, *[1] * (kernel.ndim - 1))
        parts = sum_parts(whole.reshape(len(kernel), -1))
        least, most = limits(kind)
        low, high = sum_range(parts, *(end - int(zero) for end in limits(dtype)))
        if low.min(initial=0) < least or high.max(initial=0) > most:
            largest = max(-int(low.min()), int(high.max()))
            warnings.warn(
                f"{given.name} with weights of shape {kernel.shape} can overflow: {dtype} data "
                f"with zero point {int(zero)} make sums of up to {largest}, and {kind} "
                f"holds {most}",
                stacklevel=2,
            )
        least, most = int(whole.min(initial=0)), int(whole.max(initial=0))
        narrow = next(d for d in _DTYPES if limits(d)[0] <= least and most <= limits(d)[1])
        kind = "int64" if kind == "int64" else "int32"
        return cls(whole.astype(narrow), int(zero), (-zero * sum(parts)).astype(kind))

    def row(self) -> ChannelParam:
        """Return `extra` as a parameter that a kernel reads."""
        return ChannelParam(self.extra, dtype=str(self.extra.dtype))


class ConvWeights:
    """Weights of a convolution, in any layout and groups, less their zero points, for a kernel."""

    def __init__(self, given: CallOperands, inputs: Any, made: int) -> None:
        a, weight = given.attributes, given.names[1]
        self._layout = a["kernel_layout"]
        sizes = dict(zip(self._layout, given.shape(weight), strict=True))
        self._multiplier = sizes["I"]
        self._deep = windows.depthwise(inputs, sizes["O"], a["groups"])
        self.kind = "int64" if a["out_dtype"] == "int64" else "int32"
        self.each, self.taps = made // a["groups"], [sizes["H"], sizes["W"]]
        self.inner = 1 if self._deep else sizes["I"]
        plain = given.array(weight)
        if plain is not None:  # as [outputs, inputs of a group, kh, kw]
            plain = _in_order(plain, self._layout, "OIHW")
            plain = plain.reshape(-1, 1, *plain.shape[2:]) if self._deep else plain
        self.correction = ZeroPointCorrection.of(given, plain)
        if self.correction is None:
            self.operand = given[weight]
            self._zero = given.zero_row("kernel_zero_point", given.dtype(weight), made)
            self.rows = [self._zero]
            return
        # The axis of inputs goes last if the data's layout has its channels last.
        self._layout = "OHWI" if a["data_layout"].endswith("C") else "OIHW"
        kept = np.ascontiguousarray(_in_order(self.correction.weight, "OIHW", self._layout))
        self.operand, self.rows = relax.const(kept, str(kept.dtype)), []

    def read(self, weight: te.Tensor, o: Any, i: Any, y: Any, x: Any) -> tirx.PrimExpr:
        """Return the weight for an output channel, an input of its group and a position."""
        at = {"O": o, "I": i, "H": y, "W": x}
        if self.correction is None and self._deep:
            at |= {"O": o // self._multiplier, "I": o % self._multiplier}
        found = weight(*(at[letter] for letter in self._layout)).astype(self.kind)
        if self.correction is not None:
            return found
        return found - self._zero.read(o).astype(self.kind)


# Convolutions


def _in_order(x: Array, layout: str, wanted: str) -> Array:
    return x.transpose([layout.index(letter) for letter in wanted])


def _conv_shape(seen: dict[str, Tensor], a: dict[str, Any]) -> tuple[Any, int, Any]:
    """Infer a convolution's shape, its rank and its channels."""
    data, kernel, *_ = seen.values()
    made, channels = windows.convolution(data, kernel, "HW", a)
    return made, 4, channels


def _convolution(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given = CallOperands(builder, call)
    a, dtype = given.attributes, given.dtype("data")
    layout, out_layout = a["data_layout"], a["out_layout"] or a["data_layout"]
    shape, channel = known_shape(given.name, "data", call), out_layout.index("C")
    inputs = given.shape("data")[layout.index("C")]
    weights = ConvWeights(given, inputs, shape[channel])
    zero = given.zero_row("input_zero_point", dtype)
    extra = weights.correction.row() if weights.correction else None
    strides, dilation = (
        windows.steps(a[name], 2, given.name, name) for name in ("strides", "dilation")
    )
    pads = windows.padding(a["padding"], 2, given.name)

    def compute(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        if any(map(any, pads)):
            around = dict(zip("HW", pads, strict=True))
            before, after = zip(*(around.get(letter, (0, 0)) for letter in layout), strict=True)
            data = topi.nn.pad(data, before, after, zero.read(0).astype(dtype), name="pad")
        named = zip(("ri", "ry", "rx"), (weights.inner, *weights.taps), strict=True)
        i, *taps = (te.reduce_axis((0, size), name) for name, size in named)

        def value(*index: Any) -> tirx.PrimExpr:
            at = dict(zip(out_layout, index, strict=True))
            o = at["C"]
            at["C"] = o // weights.each * weights.inner + i
            for n, (letter, tap) in enumerate(zip("HW", taps, strict=True)):
                at[letter] = at[letter] * strides[n] + tap * dilation[n]
            number = data(*(at[letter] for letter in layout)).astype(weights.kind)
            if extra is None:
                number = number - zero.read(0).astype(weights.kind)
            return te.sum(number * weights.read(weight, o, i, *taps), axis=[i, *taps])

        sums = te.compute(shape, value, name="qnn_conv2d")
        return _finished(sums, extra, channel, a["out_dtype"])

    rows = [zero, *weights.rows, *([extra] if extra else [])]
    return call_te(builder, compute, [given["data"], weights.operand], rows, "qnn_conv2d")


def _four_sides(a: dict[str, Any]) -> dict[str, Any]:
    """Return padding as Relay prints it: top, left, bottom, right."""
    (top, bottom), (left, right) = windows.padding(a["padding"], 2, "qnn.conv2d")
    return a | {"padding": [top, left, bottom, right]}


@operator(
    shape=_conv_shape,
    kernel=_convolution,
    kept=_four_sides,
    printed=(
        *("strides", "padding", "dilation", "groups", "channels", "kernel_size"),
        *("data_layout", "kernel_layout", "out_layout", "out_dtype"),
    ),
    relay={"out_dtype": ""},
    **(PRODUCT | {"layout": convolution}),
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

    Computes ``sum((data - input_zero_point) * (kernel - kernel_zero_point))``. Padding has the
    value `input_zero_point`, which represents the real 0.

    Parameters
    ----------
    data : tensor
        Shape (n, c, h, w) in `data_layout`; int8, uint8 or int16.
    kernel : tensor
        Shape (o, c / groups, kh, kw) in `kernel_layout`; int8, uint8 or int16. With `groups` = c,
        (c, multiplier, kh, kw) is also allowed.
    input_zero_point, input_scale : int32, float32
        Scalars.
    kernel_zero_point, kernel_scale : int32, float32
        Scalars, or one for each output channel.
    kernel_size : sequence of int or None
        (kh, kw); None takes the kernel's shape.
    channels : int or None
        o; None takes the kernel's shape.
    strides, dilation : sequence of int
        For height and width.
    padding : sequence of int
        One value for all sides, (height, width), or (top, left, bottom, right).
    groups : int
        The number of groups that the channels are split into.
    data_layout, kernel_layout, out_layout : str
        Permutations of NCHW and OIHW; an empty `out_layout` means `data_layout`.
    out_dtype : str
        int32, int16 or int64. A sum that does not fit wraps, as in Relay. Compiling a call whose
        sums can wrap prints a warning if its weights are constant.
    """
    x, w = _in_order(data, data_layout, "NHWC"), _in_order(kernel, kernel_layout, "OIHW")
    if windows.depthwise(x.shape[3], len(w), groups):
        w = w.reshape(-1, 1, *w.shape[2:])
    w = w - kernel_zero_point.reshape(-1, 1, 1, 1)
    sides = windows.padding(list(padding), 2, "qnn.conv2d")
    x = np.pad(x - input_zero_point, [(0, 0), *sides, (0, 0)])
    reach = [(taps - 1) * step + 1 for taps, step in zip(w.shape[2:], dilation, strict=True)]
    x, w = exact(x, w, w[0].size)
    seen = sliding_window_view(x, reach, (1, 2))
    seen = seen[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]
    rows = seen.reshape(*seen.shape[:3], groups, 1, -1)
    weights = w.reshape(groups, len(w) // groups, -1).swapaxes(1, 2)
    sums = (rows @ weights).astype(np.int64).reshape(*rows.shape[:3], -1)
    return _in_order(sums, "NHWC", out_layout or data_layout)


def _finished(sums: te.Tensor, extra: ChannelParam | None, channel: int, dtype: str) -> te.Tensor:
    """Add the zero points' correction, and cast; without either, return the sums unchanged."""
    extra = None if extra is not None and extra.is_all(0) else extra
    if extra is None and str(sums.dtype) == dtype:
        return sums

    def value(*index: Any) -> tirx.PrimExpr:
        found = sums(*index)
        found = found if extra is None else found + extra.read(index[channel])
        return found.astype(dtype)

    return te.compute(sums.shape, value, name="corrected")


# Transposed convolutions are convolutions of spread data: zero points, which represent the real 0,
# lie between the data and around them as far as the kernel reaches, and the kernel is rotated.


def _transposed(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given = CallOperands(builder, call)
    a, dtype, written = given.attributes, given.dtype("data"), given.attributes["data_layout"]
    groups, zero = a["groups"], given.zero_row("input_zero_point", dtype)
    taps = dict(zip(a["kernel_layout"], given.shape("weight"), strict=True))
    outer, inner = taps["O"], taps["I"] // groups
    given.check_scales(kernel_scale=groups * outer)
    given.zero_row("kernel_zero_point", given.dtype("weight"), groups * outer)  # for its checks
    strides, dilation = (
        windows.steps(a[name], 2, given.name, name) for name in ("strides", "dilation")
    )
    before = [pads[0] for pads in windows.padding(a["padding"], 2, given.name)]
    reach = [(taps[letter] - 1) * step for letter, step in zip("HW", dilation, strict=True)]
    sizes = dict(zip(written, given.shape("data"), strict=True))
    out = known_shape(given.name, "data", call)
    made = dict(zip(a["out_layout"] or written, out, strict=True))
    wide = sizes | {letter: made[letter] + more for letter, more in zip("HW", reach, strict=True)}

    def spread(data: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> tirx.PrimExpr:
            at, inside = dict(zip(written, index, strict=True)), []
            for n, letter in enumerate("HW"):
                place = at[letter] - (reach[n] - before[n])
                at[letter] = place // strides[n]
                inside += [place % strides[n] == 0, place >= 0, at[letter] < sizes[letter]]
            found = data(*(at[letter] for letter in written))
            return tirx.if_then_else(tirx.all(*inside), found, zero.read(0).astype(dtype))

        return te.compute([wide[letter] for letter in written], value, name="spread")

    def turned(o: Any, i: Any, y: Any, x: Any) -> tuple[Any, ...]:
        """Return the position in the weight of a position in the rotated weight."""
        at = {"O": o % outer, "I": o // outer * inner + i}
        at |= {"H": taps["H"] - 1 - y, "W": taps["W"] - 1 - x}
        return tuple(at[letter] for letter in a["kernel_layout"])

    def turn(weight: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *index: weight(*turned(*index)), name="turned")

    shape, weight = [groups * outer, inner, taps["H"], taps["W"]], given.array("weight")
    if weight is None:
        kernel = builder.emit(call_te(builder, turn, [given["weight"]], [], "qnn_turned"))
    else:
        kernel = relax.const(weight[turned(*np.ogrid[tuple(map(slice, shape))])])
    data = builder.emit(call_te(builder, spread, [given["data"]], [zero], "qnn_spread"))
    kept = ("dilation", "groups", "data_layout", "out_layout", "out_dtype")
    operands = conv2d.bind([data, kernel, *call.args[2:]], {name: a[name] for name in kept})
    return conv2d.legalize(builder, builder.normalize(dialect.call("relax.qnn.conv2d", *operands)))


@operator(
    shape=_conv_shape,
    kernel=_transposed,
    kept=_four_sides,
    printed=(
        *("channels", "kernel_size", "strides", "output_padding", "padding", "dilation", "groups"),
        *("data_layout", "kernel_layout", "out_layout", "out_dtype"),
    ),
    relay={"out_dtype": ""},
    **(PRODUCT | {"layout": convolution}),
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

    Other parameters and results are as in `conv2d`.
    """
    call = "qnn.conv2d_transpose"
    x, w = _in_order(data, data_layout, "NHWC"), _in_order(weight, kernel_layout, "HWIO")
    taps, outer = w.shape[:2], w.shape[3]
    own = np.broadcast_to(kernel_zero_point, groups * outer).reshape(groups, 1, outer)
    x = (x - input_zero_point).reshape(*x.shape[:3], groups, 1, -1)
    x, w = exact(x, w.reshape(*taps, groups, -1, outer) - own, w[..., 0].size)
    strides, dilation = windows.steps(strides, 2, call, ""), windows.steps(dilation, 2, call, "")
    sides, more = (windows.padding(list(each), 2, call) for each in (padding, output_padding))
    spans = [(size - 1) * step + 1 for size, step in zip(x.shape[1:3], strides, strict=True)]
    ends = [spans[n] + (taps[n] - 1) * dilation[n] + more[n][1] for n in (0, 1)]
    sums = np.zeros([len(x), *ends, groups, outer], x.dtype)
    for places in np.ndindex(*taps):
        rows, columns = (
            slice(place * dilation[n], place * dilation[n] + spans[n], strides[n])
            for n, place in enumerate(places)
        )
        sums[:, rows, columns] += (x @ w[places])[..., 0, :]
    (top, bottom), (left, right) = sides
    sums = sums[:, top : ends[0] - bottom, left : ends[1] - right].astype(np.int64)
    return _in_order(sums.reshape(*sums.shape[:3], -1), "NHWC", out_layout or data_layout)


# Matrix products: Relax's


def _matmul(x: Array, y: Array) -> Array:
    found: Array = np.matmul(*exact(x, y, x.shape[-1])).astype(np.int64)
    return found


def _dense_shape(seen: dict[str, Tensor], a: dict[str, Any]) -> tuple[Any, int, Any]:
    shape, units = dense_shape(seen["data"], seen["weight"], a["units"])
    return shape, seen["data"].ndim, units


def _dense(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given = CallOperands(builder, call)
    correction = ZeroPointCorrection.of(given, given.array("weight"))
    data = _shifted(given, "data", "input_zero_point")
    if correction is None:
        units = given.shape("weight")[0]
        weight = _turned(builder, _shifted(given, "weight", "kernel_zero_point", units))
    else:
        kind = np.promote_types(correction.weight.dtype, str(data.ty.dtype))
        weight = relax.const(np.ascontiguousarray(correction.weight.T, kind))
    return _relax_matmul(builder, data, weight, given.attributes["out_dtype"])


@operator(shape=_dense_shape, kernel=_dense, relay={"out_dtype": ""}, **PRODUCT)
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
        The weight's rows; None takes the weight's shape.
    out_dtype : str
        int32, int16 or int64; sums wrap as in `conv2d`.
    """
    x, w = data - input_zero_point, weight - kernel_zero_point.reshape(-1, 1)
    return _matmul(x, w.T)


def _batch_shape(seen: dict[str, Tensor], a: dict[str, Any]) -> tuple[Any, int, Any]:
    x, y = seen["x"], seen["y"]
    if x.ndim <= 3:
        return batch_matmul_shape(x, y, a), 3, 1
    y.rank(x.ndim)  # Relay's operator has one axis of batches
    if x.shape is None or y.shape is None:
        return None, x.ndim, 1
    outer = x.shape[:-3]
    if any(differ(*pair) for pair in zip(outer, y.shape[:-3], strict=True)):
        raise y.error(f"{x.name} of shape {x.shape} and {y.name} of {y.shape} differ in batches")
    left, right = replace(x, shape=x.shape[-3:], ndim=3), replace(y, shape=y.shape[-3:], ndim=3)
    found = batch_matmul_shape(left, right, a)
    return None if found is None else [*outer, *found], x.ndim, 1


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
    **PRODUCT,
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
        Shapes (b, m, k) and (b, n, k), where either b can be 1; int8, uint8 or int16. Further axes
        before these, which Relay's operator does not have, are equal in both.
    x_zero_point, y_zero_point, x_scale, y_scale : int32, float32
        Scalars.
    out_dtype : str
        int32, int16 or int64; sums wrap as in `conv2d`.
    transpose_a, transpose_b : bool
        Whether `x` is (b, k, m), and whether `y` is (b, n, k) rather than (b, k, n). Relay's
        operator has these attributes, but its function does not.
    """
    left, right = x - x_zero_point, y - y_zero_point
    left = left.swapaxes(-1, -2) if transpose_a else left
    right = right.swapaxes(-1, -2) if transpose_b else right
    return _matmul(left, right)


def _shifted(given: CallOperands, name: str, zero_name: str, channels: Any = 1) -> relax.Expr:
    """Subtract the zero points from a tensor whose first axis is that of the channels."""
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
    axes = [*range(x.ty.ndim)]
    axes[-2:] = axes[:-3:-1]
    made: relax.Expr = builder.emit(relax.op.permute_dims(x, axes))
    return made


def _relax_matmul(
    builder: relax.BlockBuilder, x: relax.Expr, y: relax.Expr, dtype: str
) -> relax.Expr:
    """Multiply with sums of 32 or 64 bits, and wrap them to narrower ones."""
    if str(x.ty.dtype) != str(y.ty.dtype):
        x, y = (builder.emit(relax.op.astype(side, "int32")) for side in (x, y))
    made = relax.op.matmul(x, y, out_dtype="int64" if dtype == "int64" else "int32")
    return made if dtype != "int16" else relax.op.astype(builder.emit(made), dtype)
