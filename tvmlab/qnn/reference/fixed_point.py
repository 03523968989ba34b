"""Multiplying integers by a real number, with integers alone.

A positive real number is ``multiplier / 2**31 * 2**shift`` with a multiplier of 31 bits. An integer
times that is a product of 64 bits, rounded while it is shifted right. The three ways differ only in
how half-way cases go, and in whether there is one rounding or two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...errors import InputError

Int64 = npt.NDArray[np.int64]

BITS = 31
LARGEST_SHIFT = 30
"""Real numbers of 2**30 and more are refused: no result of int32 could be right."""
LEAST_SHIFT = -31
"""Real numbers below 2**-32 count as 0: an int32 times that rounds to 0."""


def fixed_point_multiplier(scale: float) -> tuple[int, int]:
    """Write a real number as a 31-bit multiplier and a shift.

    Parameters
    ----------
    scale : float
        Not negative, below 2**30.

    Returns
    -------
    tuple of (int, int)
        ``(multiplier, shift)`` with ``scale`` about ``multiplier * 2.0**(shift - 31)``. The
        multiplier lies in 2**30 to 2**31 - 1, or both are 0 where `scale` is 0 or below 2**-32.

    Raises
    ------
    tvmlab.errors.InputError
        If `scale` is negative, NaN, or 2**30 and more.

    Notes
    -----
    Relay's `GetFixedPointMultiplierShift` (src/relay/qnn/utils.cc) and TFLite's
    `QuantizeMultiplier` (kernels/internal/quantization_util.cc), which flushes small numbers to 0;
    Relay's results for them are 0 too. The significand is rounded half away from zero.
    """
    if not 0 <= scale < 2.0**LARGEST_SHIFT:
        raise InputError(
            f"the input's scale is {scale} times the output's; up to 2**30 can be computed",
            where="requantize, operands input_scale and output_scale",
        )
    significand, shift = math.frexp(scale)
    multiplier = math.floor(significand * 2.0**BITS + 0.5)
    if multiplier == 1 << BITS:
        multiplier, shift = multiplier // 2, shift + 1
    return (0, 0) if shift < LEAST_SHIFT else (multiplier, shift)


def fixed_point_multipliers(scales: npt.ArrayLike) -> tuple[Int64, Int64]:
    """Write several real numbers as multipliers and shifts; see `fixed_point_multiplier`.

    Parameters
    ----------
    scales : array_like
        Any shape, float64.

    Returns
    -------
    tuple of (numpy.ndarray, numpy.ndarray)
        Multipliers and shifts, int64, of the same shape.

    Raises
    ------
    tvmlab.errors.InputError
        As `fixed_point_multiplier`.
    """
    given = np.asarray(scales, np.float64)
    pairs = [fixed_point_multiplier(float(scale)) for scale in given.ravel()]
    multipliers, shifts = np.array(pairs, np.int64).reshape(-1, 2).T
    return multipliers.reshape(given.shape), shifts.reshape(given.shape)


def multiply(x: Int64, multiplier: Int64, shift: Int64, rounding: str) -> Int64:
    """Multiply integers by what multipliers and shifts stand for, and round.

    Parameters
    ----------
    x : numpy.ndarray
        int64 holding values of int32.
    multiplier, shift : numpy.ndarray
        int64, of shapes that broadcast with `x`; see `fixed_point_multiplier`.
    rounding : str
        ``"UPWARD"``, ``"TONEAREST"`` or ``"TFLITE"``.

    Returns
    -------
    numpy.ndarray
        int64: up to 61 bits, as nothing is cut here (but see `multiply_tflite`).
    """
    return _WAYS[rounding](x, multiplier, shift)


def multiply_upward(x: Int64, multiplier: Int64, shift: Int64) -> Int64:
    """Multiply, rounding half-way cases towards plus infinity; parameters as in `multiply`.

    Notes
    -----
    ``(x * multiplier + 2**(n - 1)) >> n`` with ``n = 31 - shift``: Relay's `fixed_point_multiply`
    (`tir.q_multiply_shift`, src/target/intrin_rule.cc). That shifts `x` to the left first where
    `shift` is positive and adds 2**30; both sides of its division are 2**shift times ours, so the
    quotient is the same and no product leaves int64. Its way around for powers of two gives the
    same too.
    """
    right = BITS - shift
    return (x * multiplier + (np.int64(1) << (right - 1))) >> right


def multiply_to_nearest(x: Int64, multiplier: Int64, shift: Int64) -> Int64:
    """Multiply, rounding half-way cases away from zero; parameters as in `multiply`.

    Notes
    -----
    Relay's `FixedPointMultiplyToNearest` (src/relay/qnn/utils.cc): as upward, but one less is
    added to negative products.
    """
    right = BITS - shift
    product = x * multiplier
    return (product + (np.int64(1) << (right - 1)) - (product < 0)) >> right


def multiply_tflite(x: Int64, multiplier: Int64, shift: Int64) -> Int64:
    """Multiply, rounding to 31 bits and then again; parameters as in `multiply`.

    Notes
    -----
    TFLite's `MultiplyByQuantizedMultiplier` (kernels/internal/common.h) in its form with two
    roundings: a left shift in int32, gemmlowp's `SaturatingRoundingDoublingHighMul`, then its
    `RoundingDivideByPOT`.
    """
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    shifted = (x << left).astype(np.int32).astype(np.int64)
    return rounding_divide_by_pot(saturating_rounding_doubling_high_mul(shifted, multiplier), right)


def saturating_rounding_doubling_high_mul(a: Int64, b: Int64) -> Int64:
    """Give ``a * b / 2**31``, rounded half upward and cut to int32.

    Parameters
    ----------
    a, b : numpy.ndarray
        int64 holding values of int32.

    Notes
    -----
    gemmlowp (fixedpoint/fixedpoint.h). It adds 2**30 to products from zero up and 1 - 2**30 to
    those below, and divides towards zero: half-way cases go up on both sides. The one product that
    does not fit, of the least int32 with itself, becomes the largest.
    """
    found = (a * b + (np.int64(1) << (BITS - 1))) >> BITS
    cut: Int64 = np.minimum(found, np.int64((1 << BITS) - 1))
    return cut


def rounding_divide_by_pot(x: Int64, exponent: Int64) -> Int64:
    """Give ``x / 2**exponent``, rounded half away from zero.

    Parameters
    ----------
    x : numpy.ndarray
        int64.
    exponent : numpy.ndarray
        int64, from 0 to 31.

    Notes
    -----
    gemmlowp (fixedpoint/fixedpoint.h).
    """
    mask = (np.int64(1) << exponent) - 1
    rounded: Int64 = (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))
    return rounded


_WAYS: dict[str, Callable[[Int64, Int64, Int64], Int64]] = {
    "UPWARD": multiply_upward,
    "TONEAREST": multiply_to_nearest,
    "TFLITE": multiply_tflite,
}
