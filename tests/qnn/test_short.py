"""Shorter constants than the reference's, for all numbers of 8 bits and for all pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvmlab
from tvmlab import qnn
from tvmlab.qnn import arithmetic
from tvmlab.qnn.legalize.pairs import ShortSum
from tvmlab.qnn.legalize.small import ShortMultiplication
from tvmlab.qnn.reference.fixed_point import fixed_point_multipliers, multiply

ROUNDINGS = ("UPWARD", "TONEAREST", "TFLITE")
# Addition's scales and zero points: lhs, rhs, result.
Points = tuple[float, int, float, int, float, int]
#: From a network: one pair lies so close to a half-way case that no short factors give its result.
APART: Points = (0.05852431058883667, 122, 0.07062270492315292, 133, 0.09070692956447601, 133)


def every(dtype: str) -> np.ndarray:
    ends = np.iinfo(dtype)
    return np.arange(ends.min, ends.max + 1, dtype=dtype)


@given(
    ratio=st.floats(2.0**-12, 16.0),
    rounding=st.sampled_from(ROUNDINGS),
    zero=st.integers(-128, 127),
    plus=st.integers(-255, 255),
)
def test_short_multipliers_give_the_references_numbers(
    ratio: float, rounding: str, zero: int, plus: int
) -> None:
    multiplier, shift = fixed_point_multipliers(ratio)
    ends = -128 - zero, 127 - zero
    found = ShortMultiplication.find(multiplier, shift, rounding, ends, plus)
    if found is None:
        return
    x = np.arange(ends[0], ends[1] + 1)
    made = (x * found.factor + found.half) >> found.shift
    np.testing.assert_array_equal(made, multiply(x, multiplier, shift, rounding) + plus)
    assert 0 < found.factor < 1 << 15
    assert np.abs(x * found.factor + found.half).max() < 1 << 31


def test_most_ratios_have_short_multipliers() -> None:
    random = np.random.default_rng(0)
    pairs = [fixed_point_multipliers(ratio) for ratio in random.uniform(0.01, 2, 100)]
    found = [ShortMultiplication.find(*pair, "UPWARD", (-255, 255)) for pair in pairs]
    assert sum(one is not None for one in found) > 70
    # What is computed for each channel, or for many numbers, is not for it.
    each = fixed_point_multipliers([0.1, 0.2])
    assert ShortMultiplication.find(*each, "UPWARD", (-255, 255)) is None
    assert ShortMultiplication.find(*pairs[0], "UPWARD", (-(1 << 20), 1 << 20)) is None


@st.composite
def points(draw: st.DrawFn) -> tuple[str, Points]:
    dtype = draw(st.sampled_from(("int8", "uint8")))
    low = int(np.iinfo(dtype).min)
    zeros = draw(st.tuples(*[st.integers(low, low + 255)] * 3))
    left, right = draw(st.tuples(*[st.floats(2.0**-10, 1.0)] * 2))
    whole = (left + right) * draw(st.floats(0.3, 2.0))
    return dtype, (left, zeros[0], right, zeros[1], whole, zeros[2])


def additions(cases: Sequence[tuple[str, Points]], operator: str) -> list[np.ndarray]:
    """Compile additions of all pairs of numbers, side by side, and run them."""
    builder, parameters, inputs = relax.BlockBuilder(), [], []
    for i, (dtype, _) in enumerate(cases):
        for side, shape in (("x", (256, 1)), ("y", (1, 256))):
            parameters.append(relax.Var(f"{side}{i}", relax.TensorType(shape, dtype)))
            inputs.append(every(dtype).reshape(shape))
    with builder.function("main", parameters):
        with builder.dataflow():
            results = []
            for i, (_, numbers) in enumerate(cases):
                constants = [
                    relax.const(np.array(n, "int32" if j % 2 else "float32"))
                    for j, n in enumerate(numbers)
                ]
                sides = parameters[2 * i : 2 * i + 2]
                call = getattr(qnn.op, operator)(*sides, *constants, rounding="TFLITE")
                results.append(builder.emit_output(builder.emit(call)))
        builder.emit_func_output(relax.Tuple(results))
    return list(tvmlab.compile(builder.get())(*inputs))


def expected(case: tuple[str, Points], operator: str) -> np.ndarray:
    dtype, numbers = case
    x = every(dtype)
    constants: list[Any] = [
        np.array(n, "int32" if j % 2 else "float32") for j, n in enumerate(numbers)
    ]
    return getattr(arithmetic, operator)(x[:, None], x, *constants, rounding="TFLITE")


@settings(max_examples=4)
@given(
    cases=st.lists(points(), min_size=12, max_size=12),
    operator=st.sampled_from(("add", "subtract")),
)
def test_additions_of_all_pairs_are_the_references(
    cases: list[tuple[str, Points]], operator: str
) -> None:
    for case, made in zip(cases, additions(cases, operator), strict=True):
        np.testing.assert_array_equal(made, expected(case, operator), err_msg=str(case))


def test_a_pair_that_is_told_apart() -> None:
    case = ("uint8", APART)
    wanted = expected(case, "add").astype(np.int64)
    found = ShortSum.find((APART[0] / APART[4], APART[2] / APART[4]), wanted, "uint8")
    assert found is not None
    assert found.apart
    np.testing.assert_array_equal(additions([case], "add")[0], wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_table_that_is_no_sum_has_no_factors(dtype: str) -> None:
    x = every(dtype).astype(np.int64)
    table = np.clip(x[:, None] * x, np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert ShortSum.find((0.5, 0.5), table, dtype) is None
