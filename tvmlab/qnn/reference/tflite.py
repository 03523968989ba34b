"""The kernels of TensorFlow Lite where they differ from Relay, in NumPy.

They are its reference kernels (tensorflow/lite/kernels/internal/reference/integer_ops and the
``Prepare`` functions beside them), as LiteRT runs them with its reference resolver. Its optimized
kernels and XNNPACK give other results here and there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import InputError
from ..checks import Array
from .fixed_point import fixed_point_multipliers, multiply_tflite

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
    `AddElementwise` (integer_ops/add.h) and `Prepare` (kernels/add.cc); kernels/sub.cc is the same
    with a difference. Each side is scaled against twice the larger scale, so three roundings of two
    steps each.
    """
    if dtype not in ADD_SHIFTS:
        raise InputError(
            f'TFLite adds no quantized {dtype}: rounding "TFLITE" takes int8, uint8 and int16',
            where="qnn.add or qnn.subtract, attribute rounding",
        )
    bits = ADD_SHIFTS[dtype]
    left, right, out = (np.float64(scale) for scale in scales)
    twice = 2 * max(left, right)
    first, second = (
        multiply_tflite(side << bits, *fixed_point_multipliers(scale / twice))
        for side, scale in ((lhs, left), (rhs, right))
    )
    whole = fixed_point_multipliers(twice / ((1 << bits) * out))
    return multiply_tflite(first + sign * second, *whole)


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
