"""ONNX Runtime's kernels where they differ from Relay, in NumPy.

They are those of its CPU provider on x86 with FMA (MLAS). Its kernels for ARM add in fixed point.
The tests compare bits on x86-64 with VNNI: sums and products of all pairs of uint8, differences of
int8, uint8 and int16, quantize, matrix products, average pools, and random networks of
convolutions, element-wise operators and pooling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.checks import Array

__all__ = [
    "add",
    "average",
    "fixed_part",
    "mean_scale",
    "product",
    "ratios",
    "real",
    "subtract",
]


def ratios(scales: Sequence[Array], out_scale: Array) -> list[Array]:
    """Give both sides' scales over the result's in float32."""
    with np.errstate(over="ignore", under="ignore"):
        return [scale / out_scale for scale in scales]


def fixed_part(ratios: Sequence[Array], zeros: Sequence[Array], out_zero: Array) -> Array:
    """Give what all sums of `add` have in common: the result's zero point less the sides'.

    Parameters
    ----------
    ratios : sequence of numpy.ndarray
        Of the function of that name.
    zeros : sequence of numpy.ndarray
        The sides' zero points.
    out_zero : numpy.ndarray
        The result's.

    Returns
    -------
    numpy.ndarray
        float32.
    """
    second = ratios[1] * zeros[1].astype(np.float32)
    both = _fused(ratios[0], zeros[0], second)
    part: Array = out_zero.astype(np.float32) - both
    return part


def add(
    lhs: Array, rhs: Array, ratios: Sequence[Array], zeros: Sequence[Array], out_zero: Array
) -> Array:
    """Add quantized values, zero points and all, giving the result's, not yet cut.

    Parameters
    ----------
    lhs, rhs : numpy.ndarray
        Integers, shapes that broadcast.
    ratios, zeros, out_zero
        As in `fixed_part`.

    Returns
    -------
    numpy.ndarray
        Whole numbers in float32.

    Notes
    -----
    `MlasQLinearAddKernel` (core/mlas/lib/qladd.cpp): two fused products and sums in float32, the
    right side first, rounded half to even at the end.
    """
    right = _fused(rhs, ratios[1], fixed_part(ratios, zeros, out_zero))
    whole: Array = np.rint(_fused(lhs, ratios[0], right))
    return whole


def real(data: Array, scale: Array) -> Array:
    """Dequantize values less their zero points, cut to float32's range.

    Parameters
    ----------
    data : numpy.ndarray
        Integers.
    scale : numpy.ndarray
        float32, one value.

    Returns
    -------
    numpy.ndarray
        float32.
    """
    most = np.finfo(np.float32).max
    with np.errstate(over="ignore"):
        found: Array = np.clip(data.astype(np.float32) * scale, -most, most)
    return found


def subtract(
    lhs: Array, rhs: Array, scales: Sequence[Array], out_scale: Array, out_zero: Array
) -> Array:
    """Subtract quantized values less their zero points, giving the result's, not yet cut.

    Parameters
    ----------
    lhs, rhs : numpy.ndarray
        Integers, shapes that broadcast: values less their zero points.
    scales : sequence of numpy.ndarray
        The sides', float32.
    out_scale, out_zero : numpy.ndarray
        The result's scale (float32) and zero point.

    Returns
    -------
    numpy.ndarray
        Whole numbers in float64.

    Notes
    -----
    ONNX Runtime has no kernel for it: it dequantizes both sides, subtracts in float32 and
    quantizes (`MlasQuantizeLinear`, core/mlas/lib/quantize.cpp). Products that overflow
    float32 are clamped here; only int32 with scales above 1e28 can overflow.
    """
    left, right = (real(x, s) for x, s in zip((lhs, rhs), scales, strict=True))
    with np.errstate(over="ignore"):
        whole: Array = np.rint((left - right) / out_scale).astype(np.float64) + out_zero
    return whole


def product(products: Array, ratio: Array, out_zero: Array) -> Array:
    """Bring products of quantized values to the result's scale and zero point, not yet cut.

    Parameters
    ----------
    products : numpy.ndarray
        Integers: both sides less their zero points, multiplied.
    ratio : numpy.ndarray
        float32: the sides' scales multiplied, over the result's.
    out_zero : numpy.ndarray
        The result's zero point.

    Returns
    -------
    numpy.ndarray
        Whole numbers in float32.

    Notes
    -----
    `MlasQLinearMulKernel` (core/mlas/lib/qlmul.cpp): the zero point is added before the rounding.
    """
    whole: Array = np.rint(products.astype(np.float32) * ratio + out_zero.astype(np.float32))
    return whole


def average(sums: Array, counts: Array, out_scale: Array, out_zero: Array) -> Array:
    """Divide sums of real numbers, at the result's scale and zero point, not yet cut.

    Parameters
    ----------
    sums : numpy.ndarray
        float32: the `real` numbers of each window, added one by one, row by row.
    counts : numpy.ndarray
        Integers, a shape that broadcasts: the places of each window.
    out_scale : numpy.ndarray
        The result's scale, float32.
    out_zero : numpy.ndarray
        The result's zero point.

    Returns
    -------
    numpy.ndarray
        Whole numbers in float32.

    Notes
    -----
    `QLinearAveragePool` (contrib_ops/cpu/quantization/qlinear_pool.cc), which ONNX Runtime makes of
    an AveragePool between 8-bit quantizes: plain C++, so the same on every processor. The zero
    point is added before the rounding, so that half-way cases go where the stored integer is even.

    ONNX Runtime computes otherwise in three cases:

    - A window that covers the whole image without padding is a sum in int32 (`mean_scale`).
    - Where padding counts, `ceil_mode` lets the last window reach beyond it. ONNX and ONNX
      Runtime's float kernel count the places up to the end of the padding, and so does
      `tvmlab.qnn.reference.pooling.avg_pool2d`. `QLinearAveragePool` counts all of the window.
    - 16 bits stay in float: the kernel depends on the processor and on the shapes and may add
      columns first, and the zero point is added after the rounding. In the tests, results differ
      from these by one step at most.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean = sums / counts.astype(np.float32) / out_scale
        whole: Array = np.rint(mean + out_zero.astype(np.float32))
    return whole


def mean_scale(scale: Array, out_scale: Array, count: int) -> Array:
    """Give the scale of sums whose mean over all places is wanted.

    Parameters
    ----------
    scale, out_scale : numpy.ndarray
        float32, one value each: the data's and the result's.
    count : int
        How many values are summed.

    Returns
    -------
    numpy.ndarray
        float64: over the result's scale it is, in float32, what ONNX Runtime multiplies by.

    Notes
    -----
    `CheckQLinearGlobalAveragePoolScaleAndSize` (core/mlas/lib/qlgavgpool.cpp) divides by the
    product of the result's scale and the count.
    """
    with np.errstate(over="ignore", under="ignore"):
        ratio = scale / (out_scale * np.float32(count))
    return np.asarray(ratio.astype(np.float64) * out_scale.astype(np.float64))


def _fused(x: Array, factor: Array, plus: Array) -> Array:
    """Multiply and add with one rounding, to float32, as a processor's FMA does.

    In float64 the product of two float32 is exact; the sum is rounded there before it is rounded to
    float32, which makes a difference only where 29 bits lie between.
    """
    return (x.astype(np.float32).astype(np.float64) * factor + plus).astype(np.float32)
