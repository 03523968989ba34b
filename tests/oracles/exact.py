"""Integers rounded exactly, with fractions, and integers drawn at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from tvmlab.qnn import arithmetic

SCALES = st.floats(2.0**-12, 2.0**6, width=32)


def upward(x: Fraction) -> int:
    return math.floor(x + Fraction(1, 2))


def away(x: Fraction) -> int:
    return upward(x) if x >= 0 else -upward(-x)


def wrapped(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def twice(x: int, multiplier: int, shift: int) -> int:
    """TFLite's two roundings, as gemmlowp describes them."""
    x = wrapped(x * 2 ** max(shift, 0))
    high = min(upward(Fraction(x * multiplier, 2**31)), 2**31 - 1)
    return away(Fraction(high, 2 ** max(-shift, 0)))


def cut(value: int, dtype: str) -> int:
    info = np.iinfo(dtype)
    return min(max(value, int(info.min)), int(info.max))


def whole(x: int, zero: int, ratio: float, out_zero: int, rounding: str) -> int:
    """Requantize with fractions: exact but for the multiplier's 31 bits."""
    multiplier, shift = arithmetic.fixed_point_multiplier(ratio)
    if rounding == "TFLITE":
        return twice(x - zero, multiplier, shift) + out_zero
    real = (x - zero) * multiplier * Fraction(2) ** (shift - 31)
    return (upward if rounding == "UPWARD" else away)(real) + out_zero


def values(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, tuple(shape)).astype(dtype)
