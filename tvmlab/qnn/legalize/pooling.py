"""`avg_pool2d` as a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ...ir import windows
from ...ir.checks import limits
from .. import config
from ..reference import tflite
from ..reference.pooling import averages_once
from .casts import fenced, half_even, saturate_float, saturate_int
from .operands import Given, Row, call_te, known_shape
from .scale import Scaling

__all__ = ["avg_pool2d"]


# A float sum depends on its order. TVM knows no combiner that has the new value on its left, so
# `rfactor` refuses to sum parts first.
_IN_ORDER = te.comm_reducer(
    lambda x, y: fenced(y, float(np.finfo("float32").max)) + x,
    lambda dtype: tirx.const(0, dtype),
    name="sum_in_order",
)


class _Axis:
    """Where windows lie along one axis: rows, or columns.

    Parameters
    ----------
    length : int or tvm.tirx.PrimExpr
        Of the data.
    taps, stride, step : int
        Of a window: its size, the way to the next one, and the dilation.
    pads : tuple of int
        Padding before and after.
    """

    def __init__(
        self, length: Any, taps: int, stride: int, step: int, pads: tuple[int, int]
    ) -> None:
        self.length, self.taps, self.stride, self.step = length, taps, stride, step
        self.before, self.after = pads

    def place(self, window: Any, tap: Any) -> Any:
        """Say where in the data a place of a window lies."""
        return window * self.stride + tap * self.step - self.before

    def count(self, window: Any, *, padded: bool) -> Any:
        """Count the places of a window in the data, or in the padded data."""
        start = self.place(window, 0)
        end = self.length + (self.after if padded else 0)
        upto = self._least(end - start)
        first = 0 if padded else self._least(0 - start)
        return tirx.max(upto - first, 0)

    def _least(self, distance: Any) -> Any:
        """Count the places of a window that lie less than a distance after its start."""
        fitting = tirx.floordiv(distance + self.step - 1, self.step)
        return tirx.max(tirx.min(fitting, self.taps), 0)


def avg_pool2d(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.avg_pool2d`: summed, and divided as integers, at the result's scale."""
    given = Given(builder, call)
    a, dtype = given.attributes, given.dtype("data")
    layout, out_layout = a["layout"], a["out_layout"] or a["layout"]
    sizes, shape = given.shape("data"), known_shape(given.name, "data", call)
    way = config.resolve(given.name, a["rounding"])
    scales = given.scale("input_scale"), given.scale("output_scale")
    zeros = [given.zero_point(f"{end}put_zero_point", dtype) for end in ("in", "out")]
    scaling, in_floats = None, way.rounding == "ONNX"
    pool, strides, dilation = (
        windows.steps(a[name], 2, given.name, name) for name in ("pool_size", "strides", "dilation")
    )
    once = averages_once(way.rounding, dtype, scales, pool[0] * pool[1])
    if in_floats or once:
        move, ends = int(zeros[0]), limits(dtype)
    elif scales[0] != scales[1] or zeros[0] != zeros[1]:
        first, last = (Row(zero, dtype="int32") for zero in zeros)
        scaling = Scaling(scales[0], first, scales[1], last, dtype, "int32", way)
    pads = windows.padding(a["padding"], 2, given.name)
    rows, columns = (
        _Axis(sizes[layout.index(letter)], pool[n], strides[n], dilation[n], pads[n])
        for n, letter in enumerate("HW")
    )
    whole = not a["ceil_mode"] and not any(side for pair in pads for side in pair)
    taps = rows.taps * columns.taps
    if not (in_floats or once):
        move, ends = 0, scaling.ends if scaling else limits(dtype)
    largest = max(move - ends[0], ends[1] - move)
    kind = "int32" if (largest + 1) * taps < 1 << 31 else "int64"
    zero, (in_scale, out_scale) = int(zeros[1]), map(float, scales)
    multiplier, exponent = 0, 0
    if once:
        multiplier, exponent = tflite.average_parts(float(scales[0]) / float(scales[1]), dtype)

    def values(data: te.Tensor) -> te.Tensor:
        if scaling is None:
            return data
        return te.compute(sizes, lambda *index: scaling.apply(data(*index), 0), name="requantize")

    def compute(data: te.Tensor) -> te.Tensor:
        data = values(data)
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
                    # Padding is the real 0, and so is the average of a window of nothing.
                    some = tirx.Select(count > 0, count - inside, tirx.const(1, kind))
                    number = number + some * zero
                count = tirx.max(count, 1)
            if in_floats:
                mean = number / count.astype("float32") / tirx.const(out_scale, "float32")
                moved = mean + tirx.const(zero, "float32")
                return saturate_float(half_even(moved), dtype)
            if once:
                number, count = number.astype("int64"), count.astype("int64")
                over = tirx.shift_left(count, tirx.const(exponent, "int64"))
                number = number * tirx.const(multiplier, "int64")
                half = tirx.truncdiv(over, tirx.const(2, "int64"))
                number = number + tirx.Select(number < 0, tirx.const(0, "int64") - half, half)
                return saturate_int(tirx.truncdiv(number, over) + zero, dtype)
            if way.rounding == "TFLITE":
                half = tirx.truncdiv(count, tirx.const(2, kind))
                number = number + tirx.Select(number < 0, tirx.const(0, kind) - half, half)
            return saturate_int(tirx.truncdiv(number, count), dtype)

        return te.compute(shape, average, name="average")

    rows_read = scaling.rows if scaling else []
    return call_te(builder, compute, [given["data"]], rows_read, "qnn_avg_pool2d")
