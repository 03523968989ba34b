"""Averages of windows of a quantized image.

The operator is Relay's (src/relay/qnn/op/avg_pool2d.cc, TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..ir import windows
from ..ir.types import Tensor
from . import config, frameworks
from . import layout as layouts
from .checks import Array, limits
from .numbers import Kernel, Number, half_even, prevent_contraction, saturate
from .operands import CallOperands, call_te, known_shape
from .operator import OPERATORS, Operand, operator
from .rescale import rescale_or_keep

# A float sum depends on its order. TVM recognizes no reducer with the new value on the left, so
# `rfactor` refuses to compute partial sums.
_IN_ORDER = te.comm_reducer(
    lambda x, y: prevent_contraction(Number(y), float(np.finfo("float32").max)).expr + x,
    lambda dtype: tirx.const(0, dtype),
    name="sum_in_order",
)


class _Axis:
    """Positions of windows along rows, or columns; padding lies before and after the data."""

    def __init__(
        self, length: Any, taps: int, stride: int, step: int, pads: tuple[int, int]
    ) -> None:
        self.length, self.taps, self.stride, self.step = length, taps, stride, step
        self.before, self.after = pads

    def place(self, window: Any, tap: Any) -> Any:
        """Return the position in the data of a tap of a window."""
        return window * self.stride + tap * self.step - self.before

    def count(self, window: Any, *, padded: bool) -> Any:
        """Count the taps of a window that lie in the data, or in the padded data."""
        start = self.place(window, 0)
        end = self.length + (self.after if padded else 0)
        upto = self._least(end - start)
        first = 0 if padded else self._least(0 - start)
        return tirx.max(upto - first, 0)

    def _least(self, distance: Any) -> Any:
        """Count the taps of a window that lie less than a distance after its start."""
        fitting = tirx.floordiv(distance + self.step - 1, self.step)
        return tirx.max(tirx.min(fitting, self.taps), 0)


def _axes(a: dict[str, Any], sizes: dict[str, Any]) -> list[_Axis]:
    call = "qnn.avg_pool2d"
    names = ("pool_size", "strides", "dilation")
    windowed = [windows.steps(a[name], 2, call, name) for name in names]
    pads = windows.padding(a["padding"], 2, call)
    return [
        _Axis(sizes[letter], taps, stride, step, pad)
        for letter, pad, taps, stride, step in zip("HW", pads, *windowed, strict=True)
    ]


def _shape(seen: dict[str, Tensor], a: dict[str, Any]) -> tuple[list[Any] | None, int, Any]:
    return windows.pooling(seen["data"], "HW", a), 4, 1


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Sum and divide as integers at the result's scale, or in float for ONNX Runtime's averages."""
    given = CallOperands(builder, call)
    a, dtype = given.attributes, given.dtype("data")
    layout, out_layout = a["layout"], a["out_layout"] or a["layout"]
    sizes, shape = given.shape("data"), known_shape(given.name, "data", call)
    way = config.resolve(given.name, a["rounding"])
    points = [*OPERATORS["avg_pool2d"].known(given, dtype).values()]
    scales, zeros = points[::2], points[1::2]
    rows, columns = axes = _axes(a, dict(zip(layout, sizes, strict=True)))
    taps, in_floats = rows.taps * columns.taps, way.rounding == "ONNX"
    once = frameworks.averages_once(way.rounding, dtype, scales, taps)
    moves = not (in_floats or once) and (scales[0] != scales[1] or zeros[0] != zeros[1])
    numbers = Kernel(dtype)

    def rescaled(x: tirx.PrimExpr) -> Number:
        numbers.again()
        source, target = zip(scales, zeros, strict=True)
        found = rescale_or_keep(numbers, Number(x, limits(dtype)), source, target, way, "data")
        return Number(found.whole(), found.bounds)

    bounds, move = limits(dtype), int(zeros[0]) if in_floats or once else 0
    if moves:
        bounds = rescaled(tirx.Var("x", dtype)).range
    whole = not a["ceil_mode"] and not any(axis.before or axis.after for axis in axes)
    largest = max(move - bounds[0], bounds[1] - move)
    kind = "int32" if (largest + 1) * taps < 1 << 31 else "int64"
    zero, (in_scale, out_scale) = int(zeros[1]), map(float, scales)
    multiplier, exponent = 0, 0
    if once:
        multiplier, exponent = frameworks.average_parts(in_scale / out_scale, dtype)

    def compute(data: te.Tensor) -> te.Tensor:
        if moves:
            x = data
            data = te.compute(sizes, lambda *i: rescaled(x(*i)).expr, name="requantize")
        y, x = te.reduce_axis((0, rows.taps), "ry"), te.reduce_axis((0, columns.taps), "rx")

        def total(*index: Any) -> tirx.PrimExpr:
            at = dict(zip(out_layout, index, strict=True))
            at |= {"H": rows.place(at["H"], y), "W": columns.place(at["W"], x)}
            number = data(*(at[letter] for letter in layout)).astype(kind) - tirx.const(move, kind)
            if not whole:
                inside = [at["H"] >= 0, at["H"] < rows.length]
                inside += [at["W"] >= 0, at["W"] < columns.length]
                number = tirx.if_then_else(tirx.all(*inside), number, tirx.const(0, kind))
            if in_floats:
                real = number.astype("float32") * tirx.const(in_scale, "float32")
                return _IN_ORDER(real, axis=[y, x])
            return te.sum(number, axis=[y, x])

        sums = te.compute(shape, total, name="qnn_avg_pool2d")

        def average(*index: Any) -> tirx.PrimExpr:
            number, count = sums(*index), tirx.const(taps, kind)
            if not whole:
                at = dict(zip(out_layout, index, strict=True))
                inside, every = (
                    (rows.count(at["H"], padded=p) * columns.count(at["W"], padded=p)).astype(kind)
                    for p in (False, True)
                )
                count = every if a["count_include_pad"] else inside
                if not (in_floats or once):
                    # Padding represents the real 0, and an empty window has the average 0.
                    some = tirx.Select(count > 0, count - inside, tirx.const(1, kind))
                    number = number + some * zero
                count = tirx.max(count, 1)
            if in_floats:
                mean = number / count.astype("float32") / tirx.const(out_scale, "float32")
                moved = mean + tirx.const(zero, "float32")
                return saturate(half_even(Number(moved)), dtype).expr
            if once:
                number = number.astype("int64") * tirx.const(multiplier, "int64")
                count = tirx.shift_left(count.astype("int64"), tirx.const(exponent, "int64"))
            if way.rounding == "TFLITE":
                half = tirx.truncdiv(count, tirx.const(2, str(count.ty)))
                none = tirx.const(0, str(count.ty))
                number = number + tirx.Select(number < 0, none - half, half)
            found = tirx.truncdiv(number, count) + (zero if once else 0)
            return tirx.Max(tirx.Min(found, high), low).astype(dtype)

        low, high = (tirx.const(end, "int64" if once else kind) for end in limits(dtype))
        return te.compute(shape, average, name="average")

    return call_te(builder, compute, [given["data"]], numbers.rows, "qnn_avg_pool2d")


@operator(
    shape=_shape,
    kernel=_legalize,
    layout=layouts.pooling,
    printed=(
        *("pool_size", "strides", "dilation", "padding", "layout", "out_layout", "ceil_mode"),
        *("count_include_pad", "rounding"),
    ),
    relay={
        **{"strides": [1, 1], "dilation": [1, 1], "padding": [0, 0]},
        **{"count_include_pad": False, "layout": "NCHW"},
    },
)
def avg_pool2d(
    numbers: Any,
    data: Operand,
    input_scale: Operand,
    input_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NHWC",
    out_layout: str = "",
    rounding: str = "None",
) -> Array:
    """Average the windows of a quantized image.

    Parameters
    ----------
    data : tensor
        Shape (n, h, w, c) in `layout`; int8, uint8, int16 or int32.
    input_scale, input_zero_point, output_scale, output_zero_point : float32, int32
        Scalars.
    pool_size, strides, dilation : sequence of int
        For height and width.
    padding : sequence of int
        One value for all sides, (height, width), or (top, left, bottom, right).
    ceil_mode : bool
        Whether an incomplete last window counts, unless it begins after the end of the data.
    count_include_pad : bool
        Whether padding counts in an average.
    layout, out_layout : str
        Permutations of NHWC; an empty `out_layout` means `layout`.
    rounding : str
        As in `requantize`. ``"TFLITE"`` selects its kernel, which rounds averages half away from
        zero; Relay's other roundings truncate them.

    Notes
    -----
    Relay's `QnnAvgPoolCanonicalize` requantizes the values to the result's scale and zero point, as
    int32, unless they already have them, then sums and divides them as integers, truncated towards
    zero (include/tvm/topi/nn/pooling.h). TFLite's `AveragePool` (integer_ops/pooling.h) rounds the
    quotient half away from zero; between two scales, which TFLite does not support, this is
    `tvmlab.qnn.frameworks.average_once`. ONNX Runtime's rounding is
    `tvmlab.qnn.frameworks.average`.

    If padding counts, Relay pads with the integer 0, which represents another real number; here
    padding is the zero point, the real 0. In `ceil_mode` a last window that begins
    before the end of the data counts the positions in the padded data, and one that begins after it
    is left out, as in PyTorch (Relay returns an average of padding).
    """
    way, dtype = config.resolve("qnn.avg_pool2d", rounding), numbers.dtype
    x = data.transpose([layout.index(letter) for letter in "NHWC"])
    in_floats, once = way.rounding == "ONNX", frameworks.averages_once(
        way.rounding, dtype, (input_scale, output_scale), int(np.prod(pool_size))
    )  # fmt: skip
    if in_floats:
        values = frameworks.real(x - input_zero_point, input_scale)
    elif once:
        values = x - input_zero_point
    else:
        source, target = (input_scale, input_zero_point), (output_scale, output_zero_point)
        values = rescale_or_keep(numbers, x, source, target, way, "data")
    a = {"pool_size": pool_size, "strides": strides, "padding": padding, "dilation": dilation}
    axes = _axes(a, dict(zip("NHWC", x.shape, strict=True)))
    ones = np.ones((1, *x.shape[1:3], 1), np.int64)
    counts = _sums(ones, axes, ceil_mode, int(count_include_pad))
    whole = not in_floats and not once
    sums = _sums(values, axes, ceil_mode, output_zero_point if whole and count_include_pad else 0)
    # An empty window, which ceil_mode can produce, averages to the real 0.
    sums = sums + (counts == 0) * output_zero_point if whole else sums
    counts = np.maximum(counts, 1)
    if in_floats:
        found = frameworks.average(sums, counts, output_scale, output_zero_point)
    elif once:
        parts = frameworks.average_parts(float(input_scale) / float(output_scale), dtype)
        found = frameworks.average_once(sums, counts, *parts) + output_zero_point
    else:
        magnitude = np.abs(sums) + (counts // 2 if way.rounding == "TFLITE" else 0)
        found = np.sign(sums) * (magnitude // counts)
    order = ["NHWC".index(letter) for letter in out_layout or layout]
    return np.ascontiguousarray(saturate(found, dtype).transpose(order))


def _sums(x: Array, axes: Sequence[_Axis], ceil_mode: bool, padding: int) -> Array:
    """Sum windows of (n, h, w, c), tap by tap, because sums of floats depend on the order."""
    sides = [(axis.before, axis.after) for axis in axes]
    x = np.pad(x, [(0, 0), *sides, (0, 0)], constant_values=padding)
    # The last windows of `ceil_mode` reach beyond the padding.
    beyond = [(0, axis.stride + axis.taps * axis.step) for axis in axes]
    x = np.pad(x, [(0, 0), *beyond, (0, 0)])
    starts = []
    for axis, pads in zip(axes, sides, strict=True):
        window = (axis.taps - 1) * axis.step + 1, axis.stride, pads, ceil_mode
        count = windows.pooled_size(axis.length, *window, "qnn.avg_pool2d")
        starts.append(np.arange(count) * axis.stride)
    (rows, columns), sums = starts, np.zeros((), x.dtype)
    for i, j in np.ndindex(axes[0].taps, axes[1].taps):
        sums = sums + x[:, rows[:, None] + i * axes[0].step, columns + j * axes[1].step]
    return sums
