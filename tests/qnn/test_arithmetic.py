"""The reference arithmetic of scaling against exact fractions, and against float arithmetic.

`test_compile.py` compares with Relay, `test_litert.py` with TensorFlow Lite.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.oracles.exact import SCALES, away, cut, twice, upward, whole, wrapped
from tvmlab.errors import InputError
from tvmlab.qnn import arithmetic, fixed_point

INT32 = np.array(
    [-(2**31), -(2**31) + 1, -(2**24) - 1, -255, -5, -3, -1, 0, 1, 2, 3, 5, 127, 2**24 + 1,
     2**31 - 2, 2**31 - 1],
    "int32",
)  # fmt: skip
NARROW = st.sampled_from(["int8", "uint8", "int16"])


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "TFLITE"])
@settings(max_examples=40)
@given(
    first=SCALES,
    second=SCALES,
    zero=st.integers(-300, 300),
    out=st.integers(0, 127),
    dtype=NARROW,
    seed=st.integers(0, 99),
)
def test_requantize_in_integers(
    rounding: str, first: float, second: float, zero: int, out: int, dtype: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    near = rng.integers(-2000, 2000, 40).astype("int32")
    x = np.concatenate([INT32, near, rng.integers(-(2**31), 2**31, 20).astype("int32")])
    if first == second:
        second = first * 2
    found = arithmetic.requantize(
        x, first, zero, second, out, rounding=rounding, compute_dtype="int64", out_dtype=dtype
    )
    wanted = [cut(whole(int(v), zero, first / second, out, rounding), dtype) for v in x]
    assert found.dtype == dtype
    assert found.tolist() == wanted


def test_half_way_cases() -> None:
    x = np.array([-5, -3, -1, 1, 3, 5], "int32")

    def halved(rounding: str, **more: str) -> list[int]:
        found = arithmetic.requantize(x, 0.5, 0, 1.0, 0, rounding=rounding, **more)
        return [int(value) for value in found]

    assert halved("UPWARD") == [-2, -1, 0, 1, 2, 3]
    assert halved("TONEAREST") == [-3, -2, -1, 1, 2, 3]
    # The high product alone halves, and it rounds up.
    assert halved("TFLITE") == [-2, -1, 0, 1, 2, 3]
    assert halved("TFLITE", compute_dtype="float64") == [-3, -2, -1, 1, 2, 3]


@pytest.mark.parametrize("kind", ["int64", "float64"])
@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "TFLITE"])
def test_equal_scales_only_move_the_zero_point(rounding: str, kind: str) -> None:
    found = arithmetic.requantize(
        INT32, 0.3, 5, 0.3, -7, rounding=rounding, compute_dtype=kind, out_dtype="int16"
    )
    assert found.tolist() == [cut(int(x) - 12, "int16") for x in INT32]


def test_int32_results_are_not_cut() -> None:
    """Relay leaves the clip out, so what is too large for int32 wraps."""
    found = arithmetic.requantize(INT32, 1.5, 0, 1.0, 4, out_dtype="int32")
    assert found.tolist() == [wrapped(whole(int(x), 0, 1.5, 4, "UPWARD")) for x in INT32]
    assert found[-1] < 0 < INT32[-1]
    floats = arithmetic.requantize(
        INT32, 1.5, 0, 1.0, 4, compute_dtype="float32", out_dtype="int32"
    )
    assert (floats[0], floats[-1]) == (-(2**31), 2**31 - 1)


def test_int64_sums_are_brought_to_int32() -> None:
    x = np.array([2**32 + 6, -4], "int64")
    assert arithmetic.requantize(x, 1.0, 0, 2.0, 0).tolist() == [3, -2]


def test_a_float64_scale_is_taken_as_it_is() -> None:
    """The unrounded product of two scales, of which the rounded one gives something else."""
    first, second = np.float32(0.0123), np.float32(0.0457)
    product = np.float64(first) * np.float64(second)
    sums = np.arange(2**27, 2**27 + 2000, dtype="int32")
    found = arithmetic.requantize(sums, product, 0, 1.0, 0, out_dtype="int32")
    rounded = arithmetic.requantize(sums, first * second, 0, 1.0, 0, out_dtype="int32")
    exact = [whole(int(x), 0, float(product), 0, "UPWARD") for x in sums]
    assert found.tolist() == exact
    assert (found != rounded).any()
    # Python's floats are float32, as constants of Relay are.
    plain = arithmetic.requantize(sums, float(product), 0, 1.0, 0, out_dtype="int32")
    np.testing.assert_array_equal(plain, rounded)


@settings(max_examples=40)
@given(scale=SCALES, zero=st.integers(0, 127), dtype=NARROW, seed=st.integers(0, 99))
def test_quantize(scale: float, zero: int, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = rng.integers(-300, 300, 50).astype("float32")
    data = np.concatenate([steps * np.float32(scale), (steps + 0.5) * np.float32(scale)])
    found = arithmetic.quantize(data, scale, zero, out_dtype=dtype)
    for value, result in zip(data, found.tolist(), strict=True):
        quotient = Fraction(float(np.float32(value) / np.float32(scale)))
        assert result == cut(away(quotient) + zero, dtype)


def test_quantize_at_the_ends() -> None:
    data = np.array(
        [-np.inf, -1e30, -2.5, -0.5, 0.49999997, 0.5, 2.5, 1e30, np.inf, np.nan], "float32"
    )
    ends = [-128, -128, -3, -1, 0, 1, 3, 127, 127, 127]
    assert arithmetic.quantize(data, 1.0, 0).tolist() == ends
    wide = arithmetic.quantize(data, 1.0, 0, out_dtype="int32")
    assert wide[[0, -2, -1]].tolist() == [-(2**31), 2**31 - 1, 2**31 - 1]
    with np.errstate(over="ignore"):
        half = arithmetic.quantize(data.astype("float16"), 1.0, 0)
    assert half.tolist() == [-128, -128, -3, -1, 1, 1, 3, 127, 127, 127]
    assert arithmetic.quantize(np.float32(3), 2.0, 1).tolist() == 3


def test_quantize_and_dequantize_by_channel() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(0, 4, (3, 5, 2)).astype("float32")
    scales, zeros = [0.1, 0.02, 0.5, 1.0, 0.07], [3, 0, -5, 100, -128]
    found = arithmetic.quantize(data, scales, zeros, axis=1)
    back = arithmetic.dequantize(found, scales, zeros, axis=-2)
    for i in range(5):
        one = arithmetic.quantize(data[:, i], scales[i], zeros[i])
        np.testing.assert_array_equal(found[:, i], one)
        real = arithmetic.dequantize(one, scales[i], zeros[i])
        np.testing.assert_array_equal(back[:, i], real)
    assert back.dtype == "float32"
    assert arithmetic.dequantize(found, 0.1, 0, out_dtype="float16").dtype == "float16"


def test_dequantize_does_not_wrap() -> None:
    x = np.array([2**31 - 1, -(2**31)], "int32")
    found = arithmetic.dequantize(x, 1.0, -(2**31))
    assert found.tolist() == [2.0**32, 0.0]


# Multiplying integers by a real number

WIDE = st.integers(-(2**31), 2**31 - 1)
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
@given(x=WIDE, multiplier=MULTIPLIERS, shift=SHIFTS)
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
