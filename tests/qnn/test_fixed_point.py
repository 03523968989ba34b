"""Multiplying integers by a real number against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.oracles.exact import away, twice, upward
from tvmlab.errors import InputError
from tvmlab.qnn import arithmetic
from tvmlab.qnn.reference import fixed_point

INT32 = st.integers(-(2**31), 2**31 - 1)
SHIFTS = st.integers(fixed_point.LEAST_SHIFT, fixed_point.LARGEST_SHIFT)
MULTIPLIERS = st.integers(2**30, 2**31 - 1)


@given(st.floats(2.0**-32, 2.0**29))
@example(0.5)
@example(math.nextafter(0.5, 0))
@example(math.nextafter(0.5, 1))
@example(math.nextafter(1.0, 0))
@example(1.0)
@example(1 - 2.0**-32)  # Half-way between the largest multiplier and the next power of two.
@example(1 - 2.0**-32 - 2.0**-53)
def test_a_multiplier_is_the_nearest_of_31_bits(scale: float) -> None:
    multiplier, shift = arithmetic.fixed_point_multiplier(scale)
    assert 2**30 <= multiplier < 2**31
    assert fixed_point.LEAST_SHIFT <= shift <= fixed_point.LARGEST_SHIFT
    means = Fraction(multiplier) * Fraction(2) ** (shift - 31)
    assert abs(means - Fraction(scale)) <= Fraction(2) ** (shift - 32)


def test_multipliers_at_the_edges() -> None:
    assert arithmetic.fixed_point_multiplier(0.5) == (2**30, 0)
    assert arithmetic.fixed_point_multiplier(math.nextafter(0.5, 0)) == (2**30, 0)
    assert arithmetic.fixed_point_multiplier(0.5 - 2.0**-32) == (2**31 - 1, -1)
    assert arithmetic.fixed_point_multiplier(1.0) == (2**30, 1)
    assert arithmetic.fixed_point_multiplier(0.0) == (0, 0)
    assert arithmetic.fixed_point_multiplier(2.0**-32) == (2**30, -31)
    assert arithmetic.fixed_point_multiplier(math.nextafter(2.0**-32, 0)) == (2**30, -31)
    assert arithmetic.fixed_point_multiplier(2.0**-33) == (0, 0)
    assert arithmetic.fixed_point_multiplier(math.nextafter(2.0**30, 0) - 64)[1] == 30


@pytest.mark.parametrize(
    "scale", [-1.0, -(2.0**-40), math.nan, math.inf, 2.0**30, 1e30, 2.0**30 - 0.2]
)
def test_no_multiplier(scale: float) -> None:
    with pytest.raises(InputError, match="scale"):
        arithmetic.fixed_point_multiplier(scale)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "TFLITE"])
@given(x=INT32, multiplier=MULTIPLIERS, shift=SHIFTS)
@example(x=2**31 - 1, multiplier=2**31 - 1, shift=30)
@example(x=-(2**31), multiplier=2**31 - 1, shift=30)
@example(x=-(2**31), multiplier=2**31 - 1, shift=-31)
@example(x=2**31 - 1, multiplier=2**30, shift=0)
@example(x=-(2**31), multiplier=2**30, shift=0)
@example(x=-1, multiplier=2**30, shift=0)
@example(x=1, multiplier=2**30, shift=0)
@example(x=-3, multiplier=2**30, shift=-1)
@example(x=2**31 - 1, multiplier=2**30, shift=-31)
def test_products_are_rounded_exactly(rounding: str, x: int, multiplier: int, shift: int) -> None:
    real = x * multiplier * Fraction(2) ** (shift - 31)
    expected = {
        "UPWARD": lambda: upward(real),
        "TONEAREST": lambda: away(real),
        "TFLITE": lambda: twice(x, multiplier, shift),
    }[rounding]()
    given = (np.array(value, np.int64) for value in (x, multiplier, shift))
    assert int(fixed_point.multiply(*given, rounding)) == expected
