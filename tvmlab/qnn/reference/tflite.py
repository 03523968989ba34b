"""The kernels of TensorFlow Lite where they differ from Relay, in NumPy.

They are its reference kernels (tensorflow/lite/kernels/internal/reference/integer_ops and the
``Prepare`` functions beside them), as LiteRT runs them with its reference resolver. Its optimized
kernels and XNNPACK give other results here and there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import InputError
from ...ir.checks import Array
from .fixed_point import BITS, fixed_point_multiplier, fixed_point_multipliers, multiply_tflite

ADD_SHIFTS = {"int8": 20, "uint8": 20, "int16": 15}
"""By how much both sides of an addition are shifted left, so that little is lost in scaling."""


def add(lhs: Array, rhs: Array, scales: Sequence[Array], dtype: str, sign: int = 1) -> Array:
    """Add or subtract values whose zero points are taken off, giving the result's likewise.

    Parameters
    ----------
    lhs, rhs : numpy.ndarray
        int64, shapes that broadcast: values less their zero points.
    scales : sequence of numpy.ndarray
        The left side's, the right side's and the result's: float32, one value each.
    dtype : str
        The tensors' dtype: int8, uint8 or int16.
    sign : int
        1 to add, -1 to subtract.

    Returns
    -------
    numpy.ndarray
        int64, without zero point and not yet cut.

    Raises
    ------
    tvmlab.errors.InputError
        If there is no such kernel for the dtype.

    Notes
    -----
    `AddElementwise` (integer_ops/add.h) and `Prepare` (kernels/add.cc, kernels/sub.cc).
    Each side is scaled against twice the larger scale, so three roundings of two steps each. Not
    here: what a model marks as ``pot_scale_int16``, int16 with powers of two as scales.
    """
    if dtype not in ADD_SHIFTS:
        raise InputError(
            f'TFLite adds no quantized {dtype}: rounding "TFLITE" takes int8, uint8 and int16',
            where="qnn.add or qnn.subtract, attribute rounding",
        )
    bits = ADD_SHIFTS[dtype]
    left, right, out = (np.float64(scale) for scale in scales)
    twice = 2 * max(left, right)
    factor, shift = fixed_point_multipliers(left / twice)
    first = multiply_tflite(lhs << bits, factor, shift)
    # To subtract, the multiplier is negated: half-way cases go the other way than the sum's would.
    factor, shift = fixed_point_multipliers(right / twice)
    second = multiply_tflite(rhs << bits, sign * factor, shift)
    whole = fixed_point_multipliers(twice / ((1 << bits) * out))
    return multiply_tflite(first + second, *whole)


def product_multiplier(scales: Sequence[Array]) -> Array:
    """Give what a product of quantized values is multiplied by: float32 at every step.

    Parameters
    ----------
    scales : sequence of numpy.ndarray
        As in `add`.

    Notes
    -----
    `Prepare` in kernels/mul.cc divides a product of floats by a float, and only then widens.
    """
    left, right, out = (np.float32(scale) for scale in scales)
    product = left * right / out
    return np.asarray(product, np.float64)


# Where an average would be divided by more than these powers of two times the count, it is 0.
_SMALLEST = {8: 41, 16: 49}


def most_averaged(dtype: str) -> int:
    """Give how many places a window may have for `average` to stay in 62 bits."""
    return 1 << (62 - _SMALLEST[np.dtype(dtype).itemsize * 8])


def average_parts(ratio: float, dtype: str) -> tuple[int, int]:
    """Give what `average` multiplies by, and by which power of two it divides.

    Parameters
    ----------
    ratio : float
        The data's scale over the result's.
    dtype : str
        The data's: 8 or 16 bits.

    Returns
    -------
    tuple of (int, int)
        A multiplier of 31 bits, and an exponent.
    """
    multiplier, shift = fixed_point_multiplier(ratio)
    return multiplier, min(BITS - shift, _SMALLEST[np.dtype(dtype).itemsize * 8])


def average(sums: Array, counts: Array, multiplier: int, exponent: int) -> Array:
    """Average sums at another scale, rounding once, half-way cases away from zero.

    Parameters
    ----------
    sums, counts : numpy.ndarray
        int64, shapes that broadcast: of each window, of values less their zero point.
    multiplier, exponent : int
        Of `average_parts`.

    Returns
    -------
    numpy.ndarray
        int64, without zero point and not yet cut.

    Notes
    -----
    TFLite averages at one scale alone (`AveragePool`, integer_ops/pooling.h). This is the same
    division with the ratio of two scales in it, so that nothing is rounded before the sum.
    """
    over = counts.astype(np.int64) << exponent
    magnitude = (np.abs(sums) * multiplier + over // 2) // over
    return np.asarray(np.sign(sums) * magnitude)
