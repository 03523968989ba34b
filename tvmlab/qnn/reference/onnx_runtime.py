"""ONNX Runtime's kernels where they differ from Relay, in NumPy.

They are those of its CPU provider on x86 with FMA (MLAS). Its kernels for ARM add in fixed point.
The tests compare bits on x86-64 with VNNI: sums and products of all pairs of uint8, differences of
int8, uint8 and int16, quantize, matrix products, and random networks of convolutions, element-wise
operators and pooling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..checks import Array

__all__ = ["add", "average", "fixed_part", "mean_scale", "product", "ratios", "subtract"]


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
    quantizes (`MlasQuantizeLinear`, core/mlas/lib/quantize.cpp). Real numbers beyond float32's
    range, which int32 with scales above 1e28 has alone, are cut to it here.
    """
    most, sides = np.finfo(np.float32).max, (lhs, rhs)
    with np.errstate(over="ignore"):
        left, right = (
            np.clip(x.astype(np.float32) * s, -most, most)
            for x, s in zip(sides, scales, strict=True)
        )
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


def average(sums: Array, counts: Array, ratio: Array, out_zero: Array) -> Array:
    """Average sums of values less their zero points, at the result's scale and zero point, not cut.

    Parameters
    ----------
    sums, counts : numpy.ndarray
        Integers, shapes that broadcast: of each window.
    ratio : numpy.ndarray
        float32: the data's scale over the result's.
    out_zero : numpy.ndarray
        The result's zero point.

    Returns
    -------
    numpy.ndarray
        Whole numbers in float32.

    Notes
    -----
    The zero point is added before the rounding, so that half-way cases go where the stored integer
    is even (`quantize_value`, contrib_ops/cpu/quantization/qlinear_pool.cc). ONNX Runtime takes the
    values to float32 first and sums there, so its sums are rounded on the way; these are not.
    """
    mean = sums.astype(np.float32) * ratio / counts.astype(np.float32)
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
