"""Every quantized operator, rounding, dtype and constness: compiled result against the reference.

The results are equal bit for bit. `make test` compiles every second operator of a draw, and most
roundings either with the schedules or without; `make test-all` compiles all operators in both ways.

Small operators go into one module, because compiling one with many of them takes less time than
many with one.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from tvm import relax

from tests.qnn.cases import WAYS, Case, Draw, configured, differences, module, others
from tests.short import ALL, examples
from tvmlab.errors import CompileError
from tvmlab.qnn import op
from tvmlab.qnn.config import requantize_config
from tvmlab.qnn.operator import OPERATORS

# A difference names its operator with all operands, so that nothing is left to shrink.
drawn = settings(max_examples=4 if ALL else 1, phases=[Phase.generate])
PRODUCTS = ("conv2d", "conv2d_transpose", "dense", "batch_matmul")
SEEDS = st.integers(0, 2**32 - 1)


def part(cases: list[Case], number: int) -> list[Case]:
    """Take all operators, or in `make test` every other one: the next draw takes the others."""
    return cases if ALL else cases[number % 2 :: 2]


def agree(cases: list[Case], schedule: bool) -> None:
    troubles = differences(cases, schedule=schedule)
    assert not troubles, "\n".join(troubles)


# Relay's roundings have three dtypes each: in `make test` one is scheduled, the next is not.
HOW = [(way, how) for i, way in enumerate(WAYS) for how in (1, 0) if ALL or how == i % 2]


@pytest.mark.parametrize(("way", "schedule"), [(way, bool(how)) for way, how in HOW])
@drawn
@given(seed=SEEDS)
def test_operators_that_change_scales(way: tuple[str, str], schedule: bool, seed: int) -> None:
    """In a rounding that each call says, or that is configured where the call says none."""
    with requantize_config(rounding=way[0], compute_dtype=way[1]):
        cases = [*configured(Draw(seed, WAYS.index(way)), way)]
        agree(part(cases, WAYS.index(way) // 2 + schedule), schedule)


@pytest.mark.parametrize("schedule", [True, False], ids=["scheduled", "unscheduled"])
@drawn
@given(seed=SEEDS)
def test_the_other_operators(schedule: bool, seed: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # sums in int16 can overflow
        agree(part([*others(Draw(seed))], schedule), schedule)


@functools.cache
def one_of_each() -> list[Case]:
    draw = Draw(0)
    return [*configured(draw, WAYS[0]), *others(draw)]


@pytest.mark.parametrize("name", sorted(op.__all__))
def test_a_scale_or_zero_point_at_run_time_is_read_or_refused(name: str) -> None:
    """By its name; what is read has the reference's bits, see above."""
    case, row = next(case for case in one_of_each() if case.name == name), OPERATORS[name]
    read = row.operands[2:4] if name in PRODUCTS else row.at_run_time
    for i, word in enumerate(row.operands):
        mod, _ = module([replace(case, given=(0, i))])
        if word in read or (name in PRODUCTS and word.endswith("scale")):
            assert "R.qnn." not in relax.transform.LegalizeOps()(mod).script()
        elif word not in row.tensors:
            with pytest.raises(CompileError, match=rf"^{word}(\.0)? is not a constant"):
                relax.transform.LegalizeOps()(mod)


@pytest.mark.parametrize("schedule", [True, False], ids=["scheduled", "unscheduled"])
def test_a_product_is_rounded_before_the_zero_point_is_added(schedule: bool) -> None:
    """Products that only rounding to float32 makes half-way cases: contraction would show there."""
    n, k = np.mgrid[1:100, 1:100]
    ratios = ((k + 0.5) / n).astype("float32")
    product = n * ratios.astype("float64")
    n, k, ratios = (a[(product.astype("float32") == k + 0.5) & (product > k + 0.5)][:3]
                    for a in (n, k, ratios))  # fmt: skip
    one, none = np.float32(1), np.int32(0)
    window = {"strides": [1, 1], "padding": [0], "dilation": [1, 1]}
    cases = []
    for number, zero, ratio in zip(n.astype("int8"), -k.astype("int32"), ratios, strict=True):
        x = np.full((1, 2, 2, 16), number)
        points = [*map(np.asarray, (ratio, none, one, zero))]
        more = {"pool_size": [1, 1], **window, "rounding": "ONNX"}
        cases.append(Case("avg_pool2d", [x, *points], (0,), more))
        sides = [x, x // x, *points[:2], *map(np.asarray, (one, none)), *points[2:]]
        cases.append(Case("mul", sides, (0, 1), {"rounding": "ONNX"}))
        for rounding in ("UPWARD", "TONEAREST"):
            more = {"rounding": rounding, "compute_dtype": "float32", "out_dtype": "int8"}
            cases.append(Case("requantize", [x.astype("int32"), *points], (0,), more))
    assert len(cases) == 12
    agree(cases, schedule)


# Addition's scales and zero points: lhs, rhs, result.
Points = tuple[float, int, float, int, float, int]
#: From a network: one pair lies so close to a half-way case that no short factors give its result.
APART: Points = (0.05852431058883667, 122, 0.07062270492315292, 133, 0.09070692956447601, 133)


@st.composite
def points(draw: st.DrawFn) -> tuple[str, Points]:
    dtype = draw(st.sampled_from(("int8", "uint8")))
    low = int(np.iinfo(dtype).min)
    zeros = draw(st.tuples(*[st.integers(low, low + 255)] * 3))
    left, right = draw(st.tuples(*[st.floats(2.0**-10, 1.0)] * 2))
    whole = (left + right) * draw(st.floats(0.3, 2.0))
    return dtype, (left, zeros[0], right, zeros[1], whole, zeros[2])


@settings(max_examples=examples(8))
@given(
    cases=st.lists(points(), min_size=12, max_size=12),
    operator=st.sampled_from(("add", "subtract")),
)
@example(cases=[("uint8", APART)], operator="add")
def test_additions_of_all_pairs_are_the_references(
    cases: list[tuple[str, Points]], operator: str
) -> None:
    made = []
    for dtype, numbers in cases:
        ends = np.iinfo(dtype)
        every = np.arange(ends.min, ends.max + 1, dtype=dtype)
        constants = [np.array(n, "int32" if i % 2 else "float32") for i, n in enumerate(numbers)]
        sides = [every.reshape(256, 1), every.reshape(1, 256)]
        made.append(Case(operator, [*sides, *constants], (0, 1), {"rounding": "TFLITE"}))
    assert not differences(made)
