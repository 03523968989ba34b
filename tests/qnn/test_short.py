"""Shorter constants than the reference's, for all numbers of 8 bits and for all pairs of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tvm import relax

import tvmlab
from tests.short import examples
from tvmlab import qnn
from tvmlab.qnn import arithmetic

ROUNDINGS = ("UPWARD", "TONEAREST", "TFLITE")
# Addition's scales and zero points: lhs, rhs, result.
Points = tuple[float, int, float, int, float, int]
#: From a network: one pair lies so close to a half-way case that no short factors give its result.
APART: Points = (0.05852431058883667, 122, 0.07062270492315292, 133, 0.09070692956447601, 133)


def every(dtype: str) -> np.ndarray:
    ends = np.iinfo(dtype)
    return np.arange(ends.min, ends.max + 1, dtype=dtype)


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


@settings(max_examples=examples(8))
@given(
    cases=st.lists(points(), min_size=12, max_size=12),
    operator=st.sampled_from(("add", "subtract")),
)
@example(cases=[("uint8", APART)], operator="add")
def test_additions_of_all_pairs_are_the_references(
    cases: list[tuple[str, Points]], operator: str
) -> None:
    for case, made in zip(cases, additions(cases, operator), strict=True):
        np.testing.assert_array_equal(made, expected(case, operator), err_msg=str(case))
