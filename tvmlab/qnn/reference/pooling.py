"""Quantized average pooling in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...ir import checks, windows
from ...ir.checks import Array
from .. import config
from . import onnx_runtime, tflite
from .layouts import arranged, transposed
from .scaling import requantize_or_widen, saturate

Window = tuple[list[int], list[int], list[int], list[tuple[int, int]]]


def avg_pool2d(
    data: Array,
    input_scale: npt.ArrayLike,
    input_zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
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
    """Average windows of a quantized image.

    Parameters
    ----------
    data : numpy.ndarray
        Shape (n, h, w, c) in `layout`; int8, uint8, int16 or int32.
    input_scale, input_zero_point, output_scale, output_zero_point : array_like
        One value.
    pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout
        As in `tvmlab.qnn.op.avg_pool2d`.
    rounding : str
        As in `tvmlab.qnn.arithmetic.requantize`.

    Returns
    -------
    numpy.ndarray
        The averages in the data's dtype, in `out_layout`.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.

    Notes
    -----
    Relay's `QnnAvgPoolCanonicalize` (src/relay/qnn/op/avg_pool2d.cc): the values are requantized to
    the result's scale and zero point, as int32, unless they have them already; then they are summed
    and divided as integers, the fraction cut off towards zero (include/tvm/topi/nn/pooling.h).
    TFLite's `AveragePool` (integer_ops/pooling.h) divides with rounding, half away from zero; it
    has no two scales, and between two, of 8 or 16 bits, its rounding here is one of the sum times
    their ratio over the count (`tvmlab.qnn.reference.tflite.average`).
    ONNX Runtime's rounding: `tvmlab.qnn.reference.onnx_runtime.average`.

    Relay pads with the integer 0 where padding counts in an average, which stands for another real
    number; here padding is the zero point, the real 0. In `ceil_mode` a last window that begins
    before the end of the data counts what lies in the padded data, and one that begins after it is
    left out, as in PyTorch (Relay makes an average of padding of it).
    """
    call, dtype = "qnn.avg_pool2d", np.asarray(data).dtype.name
    way = config.resolve(call, rounding)
    x = transposed(data, layout, "NHWC", f"{call}, operand data")
    scales = (
        checks.scale(input_scale, call, "input_scale"),
        checks.scale(output_scale, call, "output_scale"),
    )
    zeros = (
        checks.zero_point(input_zero_point, call, "input_zero_point", dtype),
        checks.zero_point(output_zero_point, call, "output_zero_point", dtype),
    )
    in_floats = way.rounding == "ONNX"
    once = averages_once(way.rounding, dtype, scales, int(np.prod(list(pool_size))))
    if in_floats:
        values = onnx_runtime.real(x.astype(np.int64) - zeros[0], scales[0])
    elif once:
        values = x.astype(np.int64) - zeros[0]
    else:
        values = requantize_or_widen(x, scales[0], zeros[0], scales[1], zeros[1], -1, way)
    window = (
        windows.steps(list(pool_size), 2, call, "pool_size"),
        windows.steps(list(strides), 2, call, "strides"),
        windows.steps(list(dilation), 2, call, "dilation"),
        windows.padding(list(padding), 2, call),
    )
    sums, counts, inside = _sums(values, window, ceil_mode)
    if not count_include_pad:
        counts = inside
    if in_floats:
        found = onnx_runtime.average(sums, np.maximum(counts, 1), scales[1], zeros[1])
        return arranged(saturate(found, dtype), out_layout or layout)
    if once:
        parts = tflite.average_parts(float(scales[0]) / float(scales[1]), dtype)
        found = tflite.average(sums, np.maximum(counts, 1), *parts) + zeros[1]
        return arranged(saturate(found, dtype), out_layout or layout)
    # A window of nothing, which ceil_mode can make, averages to the real 0 as well.
    sums = sums + np.where(counts, counts - inside, 1) * zeros[1]
    counts = np.maximum(counts, 1)
    magnitude = np.abs(sums) + (counts // 2 if way.rounding == "TFLITE" else 0)
    found = np.sign(sums) * (magnitude // counts)
    return arranged(saturate(found, dtype), out_layout or layout)


def averages_once(rounding: str, dtype: str, scales: Sequence[Array], taps: int) -> bool:
    """Say whether an average between two scales is rounded once, after the sum.

    Parameters
    ----------
    rounding : str
        As resolved.
    dtype : str
        The data's.
    scales : sequence of numpy.ndarray
        The data's and the result's.
    taps : int
        The places of a window.
    """
    if rounding != "TFLITE" or dtype == "int32" or scales[0] == scales[1]:
        return False
    return taps <= tflite.most_averaged(dtype)


def _sums(x: Array, window: Window, ceil_mode: bool) -> tuple[Array, Array, Array]:
    """Sum each window of (n, h, w, c), and count its places: in the padded data, in the data."""
    n, *size, c = x.shape
    pool, strides, dilation, pads = window
    out, places = [], []
    for length, taps, stride, step, (before, after) in zip(
        size, pool, strides, dilation, pads, strict=True
    ):
        reach, pair = (taps - 1) * step + 1, (before, after)
        size_out = windows.pooled_size(length, reach, stride, pair, ceil_mode, "qnn.avg_pool2d")
        out.append(size_out)
        starts = np.arange(out[-1])[:, None] * stride + np.arange(taps) * step - before
        places.append((starts, (starts >= 0) & (starts < length), starts < length + after))
    counts, inside = (
        np.outer(places[0][i].sum(1), places[1][i].sum(1))[None, :, :, None] for i in (2, 1)
    )
    zero = x.dtype.type(0)
    sums: Any = np.zeros((n, *out, c), np.float32 if x.dtype == np.float32 else np.int64)
    (rows, row_inside, _), (columns, column_inside, _) = places
    for i in range(pool[0]):
        for j in range(pool[1]):
            part = x[:, np.where(row_inside[:, i], rows[:, i], 0)]
            part = part[:, :, np.where(column_inside[:, j], columns[:, j], 0)]
            both = np.outer(row_inside[:, i], column_inside[:, j])[None, :, :, None]
            sums = sums + np.where(both, part, zero)
    return sums, counts, inside
