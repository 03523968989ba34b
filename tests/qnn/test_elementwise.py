"""Quantized addition, products, joining, pooling and functions of one tensor in the reference."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.exact import SCALES, away, cut, values, whole, wrapped
from tests.qnn.cases import Draw
from tvmlab.qnn import arithmetic, unary
from tvmlab.qnn.config import requantize_config

NARROW = ("int8", "uint8", "int16")
ROUNDINGS = ("UPWARD", "TONEAREST")


def side(x: int, scale: float, zero: int, out: tuple[float, int], rounding: str) -> int:
    """Bring a value to the result's scale and zero point, an int32, as Relay does for one side."""
    if (scale, zero) == out:
        return x
    if scale == out[0]:
        return x - zero + out[1]
    return wrapped(whole(x, zero, scale / out[0], out[1], rounding))


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", NARROW)
@settings(max_examples=20)
@given(
    scales=st.tuples(SCALES, SCALES, SCALES), points=st.tuples(*[st.integers(0, 127)] * 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_add_and_subtract_round_both_sides(
    dtype: str, rounding: str, scales: tuple[float, ...], points: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, y = values(rng, (60,), dtype), values(rng, (60,), dtype)
    given = (scales[0], points[0], scales[1], points[1], scales[2], points[2])
    out = scales[2], points[2]
    left = [side(int(v), scales[0], points[0], out, rounding) for v in x]
    right = [side(int(v), scales[1], points[1], out, rounding) for v in y]
    sums = [cut(a + b - points[2], dtype) for a, b in zip(left, right, strict=True)]
    rests = [cut(a - b + points[2], dtype) for a, b in zip(left, right, strict=True)]
    assert arithmetic.add(x, y, *given, rounding=rounding).tolist() == sums
    assert arithmetic.subtract(x, y, *given, rounding=rounding).tolist() == rests
    with requantize_config(rounding=rounding):
        assert arithmetic.add(x, y, *given).tolist() == sums


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@settings(max_examples=20)
@given(
    scales=st.tuples(SCALES, SCALES, SCALES), points=st.tuples(*[st.integers(0, 127)] * 3),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_mul_rounds_the_product_of_scales(
    dtype: str, rounding: str, scales: tuple[float, ...], points: tuple[int, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, y = values(rng, (60,), dtype), values(rng, (60,), dtype)
    product = float(np.float32(scales[0]) * np.float32(scales[1]))
    found = arithmetic.mul(
        x, y, scales[0], points[0], scales[1], points[1], scales[2], points[2], rounding=rounding
    )
    out = scales[2], points[2]
    for a, b, result in zip(x.tolist(), y.tolist(), found.tolist(), strict=True):
        found_whole = whole(
            (a - points[0]) * (b - points[1]), 0, product / out[0], out[1], rounding
        )
        assert result == cut(found_whole, dtype)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_average_pooling_against_pytorch(seed: int) -> None:
    """On the real values, whose padding is the real 0; averages are exact fractions."""
    draw = Draw(seed)
    size, pool, strides = (
        tuple(draw.whole(*ends) for _ in "HW") for ends in ((4, 9), (2, 4), (1, 3))
    )
    padding, ceil, include = draw.whole(0, 1), draw.of(True, False), draw.of(True, False)
    zero, x = draw.whole(-128, 127), values(draw.rng, (2, *size, 3), "int8")
    real = torch.from_numpy(x.astype("float64") - zero).permute(0, 3, 1, 2)
    window = {"ceil_mode": ceil, "count_include_pad": include}
    expected = torch.nn.functional.avg_pool2d(real, pool, strides, padding, **window).numpy()
    given = (x, 0.5, zero, 0.5, zero, pool, strides, [padding], [1, 1], ceil, include)
    found = arithmetic.avg_pool2d(*given, out_layout="NCHW", rounding="TFLITE")
    nearest = np.vectorize(lambda v: away(Fraction(round(v * 144 * 25), 144 * 25)))(expected + zero)
    np.testing.assert_array_equal(found, nearest)
    relay = arithmetic.avg_pool2d(*given, out_layout="NCHW")
    exact = np.vectorize(lambda v: math.trunc(Fraction(round(v * 144 * 25), 144 * 25)))(
        expected + zero
    )
    np.testing.assert_array_equal(relay, exact)


def test_average_pooling_dilated_and_empty() -> None:
    x = np.arange(25, dtype="int8").reshape(1, 1, 5, 5)
    found = arithmetic.avg_pool2d(x, 1.0, 0, 1.0, 0, [2, 2], [1, 2], [0], [3, 2], layout="NCHW")
    corners = [[(x[0, 0, i, j] + x[0, 0, i, j + 2] + x[0, 0, i + 3, j] + x[0, 0, i + 3, j + 2]) // 4
                for j in (0, 2)] for i in (0, 1)]  # fmt: skip
    assert found[0, 0].tolist() == corners
    # A third window of one place would begin behind the data; one before it has the real 0.
    row = np.full((1, 1, 5, 1), 9, "int8")
    for include in (False, True):
        for padding, wanted in (([0], [9, 9]), ([0, 1], [4, 9])):
            given = (1.0, 4, 1.0, 4, [1, 1], [1, 3], padding, [1, 1], True, include)
            assert arithmetic.avg_pool2d(row, *given).ravel().tolist() == wanted


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("name", sorted(unary.FUNCTIONS))
def test_functions_of_one_tensor(name: str, dtype: str) -> None:
    """Against float64, where at most a result next to a border between two may differ."""
    references = {
        "abs": abs,
        "erf": math.erf,
        "exp": math.exp,
        "hardswish": lambda v: v * min(max(v + 3, 0), 6) / 6,
        "log": lambda v: math.log(v) if v > 0 else (-math.inf if v == 0 else math.nan),
        "rsqrt": lambda v: 1 / math.sqrt(v) if v > 0 else (math.inf if v == 0 else math.nan),
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
        "sqrt": lambda v: math.sqrt(v) if v >= 0 else math.nan,
        "tanh": math.tanh,
    }
    bytes_ = np.arange(256, dtype="uint8")
    x = np.arange(-200, 200, dtype=dtype) if dtype == "int16" else bytes_.view(dtype)
    zero, out = (100, 90) if dtype == "uint8" else (-20, 5)
    found = getattr(arithmetic, name)(x, 0.04, zero, 0.03, out)
    assert found.dtype == dtype
    for value, result in zip(x.tolist(), found.tolist(), strict=True):
        real = references[name]((value - zero) * float(np.float32(0.04)))
        steps = real / float(np.float32(0.03))
        if not math.isfinite(steps):
            assert result == (np.iinfo(dtype).min if steps == -math.inf else np.iinfo(dtype).max)
        else:
            near = {cut(away(Fraction(steps + more)) + out, dtype) for more in (-1e-3, 0, 1e-3)}
            assert result in near


@settings(max_examples=40)
@given(
    alpha=st.sampled_from([0.25, 0.1, 1 / 3, 0.0, -1.5, 1.5]),
    first=SCALES,
    second=SCALES,
    zero=st.integers(-128, 127),
    out=st.integers(-128, 127),
)
def test_leaky_relu(alpha: float, first: float, second: float, zero: int, out: int) -> None:
    x = np.arange(-128, 128).astype("int8")
    found = arithmetic.leaky_relu(x, alpha, first, zero, second, out)
    positive = x >= zero
    if (first, zero) != (second, out):
        expected = arithmetic.requantize(x, first, zero, second, out)
        np.testing.assert_array_equal(found[positive], expected[positive])
    below = (x[~positive].astype("float64") - zero) * alpha * first / second + out
    # Three roundings, the first of them multiplied by alpha.
    apart = np.abs(np.clip(below, -128, 127) - found[~positive])
    assert (apart <= 1.01 + abs(alpha) / 2).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("ratio", [0.6849, 1.7, 2.0**-30, 2.0**12])
@pytest.mark.parametrize("include", [False, True])
def test_average_pooling_between_two_scales_rounds_once(
    dtype: str, ratio: float, include: bool
) -> None:
    """``"TFLITE"`` brings the sum to the result's scale: at most half a step from the real one."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = values(np.random.default_rng(0), (2, 7, 7, 3), dtype)
    zero, out_zero = (low + high) // 2 + 11, (low + high) // 2 - 5
    scale = np.float32(0.02)
    out_scale = np.float32(scale / ratio)
    given = (x, scale, zero, out_scale, out_zero, (3, 2), (2, 2), [1], [1, 1], True, include)
    found = arithmetic.avg_pool2d(*given, rounding="TFLITE")
    real = torch.from_numpy(x.astype("float64") - zero).permute(0, 3, 1, 2)
    mean = torch.nn.functional.avg_pool2d(
        real, (3, 2), (2, 2), 1, ceil_mode=True, count_include_pad=include
    ).permute(0, 2, 3, 1)
    want = np.clip(mean.numpy() * (float(scale) / float(out_scale)) + out_zero, low, high)
    assert np.abs(found - want).max() <= 0.5 + 1e-4
