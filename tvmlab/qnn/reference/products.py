"""Quantized convolutions and matrix products in NumPy: integers in, whole sums out.

Sums of products of integers are computed by matrix products of floats wherever every partial sum
is a number that the float type holds, which makes them exact and fast.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...errors import ShapeError
from ...ir import checks, windows
from ...ir.checks import Array
from .exact import exact, matmul
from .layouts import agree, arranged, transposed


def conv2d(
    data: Array,
    kernel: Array,
    input_zero_point: npt.ArrayLike,
    kernel_zero_point: npt.ArrayLike,
    input_scale: npt.ArrayLike,
    kernel_scale: npt.ArrayLike,
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
    data : numpy.ndarray
        Shape (n, c, h, w) in `data_layout`; int8, uint8 or int16.
    kernel : numpy.ndarray
        Shape (o, c / groups, kh, kw) in `kernel_layout`. With `groups` = c, (c, multiplier, kh, kw)
        as well.
    input_zero_point, input_scale : array_like
        One value. The sums do not use the scales; they are checked.
    kernel_zero_point, kernel_scale : array_like
        One value, or one for each output channel.
    kernel_size, channels, strides, padding, dilation, groups, data_layout, kernel_layout, \
out_layout, out_dtype
        As in `tvmlab.qnn.op.conv2d`.

    Returns
    -------
    numpy.ndarray
        Shape (n, o, oh, ow) in `out_layout`, in `out_dtype`: a sum that does not fit wraps, as
        Relay's does. `tvmlab.qnn.arithmetic.largest_sum` says whether one can.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.

    Notes
    -----
    Relay's `QnnConv2DCanonicalize` (src/relay/qnn/op/convolution.cc), which splits the product into
    four sums; the whole is the same in wrapping integers.
    """
    call = "qnn.conv2d"
    x, w = _plain(data, kernel, groups, data_layout, kernel_layout, call)
    made = w.shape[0]
    agree(call, "channels", channels, made)
    agree(call, "kernel_size", kernel_size, list(w.shape[2:]))
    zero, kernel_zero = _operands(
        call, data, kernel, input_zero_point, kernel_zero_point, input_scale, kernel_scale, made
    )
    x = x - zero
    w = w - kernel_zero.reshape(-1, 1, 1, 1)
    sides = windows.padding(list(padding), 2, call)
    step = windows.steps(list(strides), 2, call, "strides")
    apart = windows.steps(list(dilation), 2, call, "dilation")
    x = np.pad(x, [(0, 0), *sides, (0, 0)])
    sums = _convolve(x, w, groups, step, apart, call)
    return arranged(sums, out_layout or data_layout).astype(out_dtype)


def _plain(
    data: Array, kernel: Array, groups: int, data_layout: str, kernel_layout: str, call: str
) -> tuple[Array, Array]:
    """Bring data to NHWC and the kernel to OIHW with one row of weights an output channel."""
    x = transposed(data, data_layout, "NHWC", f"{call}, operand data").astype(np.int64)
    w = transposed(kernel, kernel_layout, "OIHW", f"{call}, operand weight").astype(np.int64)
    inputs, (outer, inner) = x.shape[3], w.shape[:2]
    if windows.depthwise(inputs, outer, groups):
        w = w.reshape(outer * inner, 1, *w.shape[2:])
    elif groups < 1 or inputs % groups or outer % groups or inputs // groups != inner:
        raise ShapeError(
            f"weight of shape {kernel.shape} ({kernel_layout}) does not fit data of shape "
            f"{data.shape} ({data_layout}) in {groups} groups",
            where=f"{call}, operand weight",
        )
    return x, w


def _convolve(
    x: Array, w: Array, groups: int, strides: list[int], dilation: list[int], call: str
) -> Array:
    """Convolve x (n, h, w, c) with w (o, c / groups, kh, kw), without padding: (n, oh, ow, o)."""
    n, *size, _ = x.shape
    o, inner, *taps = w.shape
    reach = [(tap - 1) * step + 1 for tap, step in zip(taps, dilation, strict=True)]
    out = [(a - b) // s + 1 for a, b, s in zip(size, reach, strides, strict=True)]
    if min(out) < 1:
        raise ShapeError(
            f"the window of {reach} is larger than the padded data of {size}",
            where=f"{call}, operand data",
        )
    x, w = exact(x, w, inner * taps[0] * taps[1])
    sums = np.zeros((n * out[0] * out[1], o), x.dtype)
    for i in range(taps[0]):
        for j in range(taps[1]):
            top, left = i * dilation[0], j * dilation[1]
            part = x[
                :,
                top : top + (out[0] - 1) * strides[0] + 1 : strides[0],
                left : left + (out[1] - 1) * strides[1] + 1 : strides[1],
            ]
            rows = part.reshape(-1, groups, inner)
            tap = w[:, :, i, j].reshape(groups, o // groups, inner)
            if inner == 1:
                sums += (rows * tap[:, :, 0]).reshape(len(rows), o)
            else:
                found = np.matmul(rows.transpose(1, 0, 2), tap.transpose(0, 2, 1))
                sums += found.transpose(1, 0, 2).reshape(len(rows), o)
    return sums.reshape(n, *out, o).astype(np.int64)


def dense(
    data: Array,
    weight: Array,
    input_zero_point: npt.ArrayLike,
    kernel_zero_point: npt.ArrayLike,
    input_scale: npt.ArrayLike,
    kernel_scale: npt.ArrayLike,
    units: int | None = None,
    out_dtype: str = "int32",
) -> Array:
    """Multiply quantized data by a quantized weight, transposed.

    Parameters
    ----------
    data : numpy.ndarray
        Shape (..., k); int8, uint8 or int16.
    weight : numpy.ndarray
        Shape (units, k).
    input_zero_point, input_scale : array_like
        One value.
    kernel_zero_point, kernel_scale : array_like
        One value, or one for each unit.
    units, out_dtype
        As in `tvmlab.qnn.op.dense`.

    Returns
    -------
    numpy.ndarray
        Shape (..., units) in `out_dtype`; sums wrap as in `conv2d`.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.

    Notes
    -----
    Relay's `QnnDenseCanonicalize` (src/relay/qnn/op/dense.cc).
    """
    call, (data, weight) = "qnn.dense", (np.asarray(data), np.asarray(weight))
    if data.ndim < 1 or weight.ndim != 2 or data.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"weight of shape {weight.shape} does not fit data of shape {data.shape}",
            where=f"{call}, operand weight",
        )
    agree(call, "units", units, len(weight))
    zero, kernel_zero = _operands(
        call,
        data,
        weight,
        input_zero_point,
        kernel_zero_point,
        input_scale,
        kernel_scale,
        len(weight),
    )
    x = data.reshape(-1, data.shape[-1]).astype(np.int64) - zero
    w = weight.astype(np.int64) - kernel_zero.reshape(-1, 1)
    return matmul(x, w.T).reshape(*data.shape[:-1], len(weight)).astype(out_dtype)


def conv2d_transpose(
    data: Array,
    weight: Array,
    input_zero_point: npt.ArrayLike,
    kernel_zero_point: npt.ArrayLike,
    input_scale: npt.ArrayLike,
    kernel_scale: npt.ArrayLike,
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
    data : numpy.ndarray
        Shape (n, c, h, w) in `data_layout`; int8, uint8 or int16.
    weight : numpy.ndarray
        Shape (c, o / groups, kh, kw) in `kernel_layout`.
    output_padding : sequence of int
        Rows and columns added at the bottom and right of the result.

    Other parameters, results and errors are as in `conv2d`.

    Notes
    -----
    Relay's `QnnConv2DTransposeCanonicalize` (src/relay/qnn/op/convolution_transpose.cc): the zero
    points are taken off, then it is a transposed convolution of integers.
    """
    call = "qnn.conv2d_transpose"
    x = transposed(data, data_layout, "NHWC", f"{call}, operand data").astype(np.int64)
    w = transposed(weight, kernel_layout, "IOHW", f"{call}, operand weight").astype(np.int64)
    n, *size, inputs = x.shape
    outer, inner, *taps = w.shape
    if groups < 1 or inputs % groups or outer != inputs:
        raise ShapeError(
            f"weight of shape {weight.shape} ({kernel_layout}) does not fit data of shape "
            f"{data.shape} ({data_layout}) in {groups} groups",
            where=f"{call}, operand weight",
        )
    made = inner * groups
    agree(call, "channels", channels, made)
    agree(call, "kernel_size", kernel_size, taps)
    zero, kernel_zero = _operands(
        call, data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale, made
    )
    by_group = np.broadcast_to(kernel_zero, made).reshape(groups, 1, inner)
    w = w.reshape(groups, inputs // groups, inner, *taps) - by_group[..., None, None]
    step = windows.steps(list(strides), 2, call, "strides")
    apart = windows.steps(list(dilation), 2, call, "dilation")
    sides = windows.padding(list(padding), 2, call)
    more = [after for _, after in windows.padding(list(output_padding), 2, call)]
    full = [
        (a - 1) * s + (tap - 1) * d + 1 + extra
        for a, s, tap, d, extra in zip(size, step, taps, apart, more, strict=True)
    ]
    sums = np.zeros((n, *full, made), np.int64)
    rows = (x - zero).reshape(-1, groups, inputs // groups).transpose(1, 0, 2)
    for i in range(taps[0]):
        for j in range(taps[1]):
            part = matmul(rows, w[..., i, j]).transpose(1, 0, 2).reshape(n, *size, made)
            top, left = i * apart[0], j * apart[1]
            sums[
                :,
                top : top + (size[0] - 1) * step[0] + 1 : step[0],
                left : left + (size[1] - 1) * step[1] + 1 : step[1],
            ] += part
    (top, bottom), (left, right) = sides
    sums = sums[:, top : full[0] - bottom, left : full[1] - right]
    if 0 in sums.shape[1:3]:
        raise ShapeError("nothing is left inside the padding", where=f"{call}, attribute padding")
    return arranged(sums, out_layout or data_layout).astype(out_dtype)


def batch_matmul(
    x: Array,
    y: Array,
    x_zero_point: npt.ArrayLike,
    y_zero_point: npt.ArrayLike,
    x_scale: npt.ArrayLike,
    y_scale: npt.ArrayLike,
    out_dtype: str = "int32",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Array:
    """Multiply quantized matrices by quantized matrices.

    Parameters
    ----------
    x, y : numpy.ndarray
        Shapes (b, m, k) and (b, n, k), either b may be 1; int8, uint8 or int16.
    x_zero_point, y_zero_point, x_scale, y_scale : array_like
        One value.
    out_dtype
        As in `tvmlab.qnn.op.batch_matmul`.
    transpose_a, transpose_b : bool
        Whether `x` is (b, k, m), and whether `y` is (b, n, k) rather than (b, k, n): attributes
        that Relay's function does not offer, and its operator has.

    Returns
    -------
    numpy.ndarray
        Shape (b, m, n) in `out_dtype`; sums wrap as in `conv2d`.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand does not fit; they name it.

    Notes
    -----
    Relay's `QnnBatchMatmulCanonicalize` (src/relay/qnn/op/batch_matmul.cc).
    """
    call, (x, y) = "qnn.batch_matmul", (np.asarray(x), np.asarray(y))
    names = ("x_zero_point", "y_zero_point", "x_scale", "y_scale")
    zeros = _operands(call, x, y, x_zero_point, y_zero_point, x_scale, y_scale, 1, names)
    left, right = (a.astype(np.int64) - zero for a, zero in zip((x, y), zeros, strict=True))
    left = np.swapaxes(left, -1, -2) if transpose_a else left
    right = np.swapaxes(right, -1, -2) if transpose_b else right
    fits = left.ndim == right.ndim == 3 and left.shape[2] == right.shape[1]
    if not fits or (left.shape[0] != right.shape[0] and 1 not in (left.shape[0], right.shape[0])):
        raise ShapeError(
            f"x of shape {x.shape} and y of shape {y.shape} do not fit",
            where=f"{call}, operand y",
        )
    return matmul(left, right).astype(out_dtype)


def _operands(
    call: str,
    data: Array,
    weight: Array,
    zero: npt.ArrayLike,
    weight_zero: npt.ArrayLike,
    scale: npt.ArrayLike,
    weight_scale: npt.ArrayLike,
    made: int,
    names: Sequence[str] = ("input_zero_point", "kernel_zero_point", "input_scale", "kernel_scale"),
) -> tuple[Array, Array]:
    """Check zero points and scales; give the zero points."""
    checks.scale(scale, call, names[2])
    checks.scale(weight_scale, call, names[3], made)
    return (
        checks.zero_point(zero, call, names[0], np.asarray(data).dtype.name),
        checks.zero_point(weight_zero, call, names[1], np.asarray(weight).dtype.name, made),
    )
