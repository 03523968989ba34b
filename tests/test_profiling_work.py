"""The arithmetic of a function, counted by hand and by the package."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tvm
from helpers_models import array, convolutional, dense, model, node, weight
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvmlab
from tvmlab.compiler import simplify
from tvmlab.schedule import Tally, Work, fused_passes, schedule_passes


def tallied(mod: tvm.IRModule) -> dict[str, Work]:
    tally = Tally()
    tally(mod)
    return tally.work


def of(proto: Any, step: str = "winograd") -> dict[str, Work]:
    """What is counted in a network before any schedule."""
    target = tvmlab.host_target()
    with target:
        return tallied(fused_passes(target, step)(simplify(tvmlab.load(proto))))


def test_a_network_counted_by_hand() -> None:
    """[1, 3, 8, 8]: a 3x3 convolution to 4 channels with bias and ReLU, a mean, a reshape."""
    work = of(convolutional(), "fuse")
    pixels, taps = 8 * 8, 3 * 3 * 3
    assert {name: found.operations for name, found in work.items()} == {
        # A multiply-add for each tap, then an addition and a maximum; a pad is no arithmetic.
        "fused_conv2d_add_relu": 4 * pixels * (2 * taps + 2),
        # An addition for each pixel, then a division.
        "mean": 4 * (pixels + 1),
        "reshape": 0,
    }
    assert {found.dtype for found in work.values()} == {"float32", ""}


def test_channels_that_packing_fills_up_are_counted() -> None:
    """Four channels are computed as a whole vector or two of them."""
    lanes = max(tvmlab.schedule.Machine.of(tvmlab.host_target()).lanes("float32"), 4)
    found = of(convolutional())["fused_conv2d_add_relu"].operations
    assert found is not None
    sums = found - 2 * 4 * 64
    assert sums % (lanes * 64 * 2 * 27) == 0
    assert sums >= 4 * 64 * 2 * 27


def test_a_schedule_changes_no_count() -> None:
    target = tvmlab.host_target()
    with target:
        mod = simplify(tvmlab.load(convolutional()))
        before = tallied(fused_passes(target)(mod))
        after = tallied(schedule_passes(target)(mod))
    assert before.keys() == after.keys()
    for name, found in after.items():
        assert (found.operations, found.dtype) == (before[name].operations, before[name].dtype)
        assert before[name].rule == ""
    assert {found.rule for found in after.values()} == {"Contraction", "Reduction", "ElementWise"}


@settings(max_examples=12, deadline=None)
@given(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)))
def test_a_matrix_product_is_two_operations_a_term(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    proto = model(
        [node("MatMul", ["x", "w"], ["y"])], {"x": (m, k)}, ["y"], [weight("w", array(k, n))]
    )
    work = of(proto, "fuse")
    assert sum(found.operations or 0 for found in work.values()) == 2 * m * k * n


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.sampled_from(["Exp", "Relu", "Neg", "Tanh"]), min_size=1, max_size=4),
)
def test_what_is_done_to_each_element_is_counted_for_each(shape: list[int], ops: list[str]) -> None:
    names = [f"v{i}" for i in range(len(ops) + 1)]
    nodes = [node(op, [a], [b]) for op, a, b in zip(ops, names, names[1:], strict=False)]
    work = of(model(nodes, {names[0]: shape}, [names[-1]]), "fuse")
    assert sum(found.operations or 0 for found in work.values()) == len(ops) * math.prod(shape)


def test_sizes_that_are_not_known_give_no_number() -> None:
    target = tvmlab.host_target()
    with target:
        mod = simplify(tvmlab.load(dense("N"), shapes={"x": ("n", 4)}))
        work = tallied(schedule_passes(target)(mod))
    assert work["matmul"].operations is None
    assert work["matmul"].rule == "Contraction"


@I.ir_module(check_well_formed=False)
class Odd:
    @T.prim_func(private=True, s_tir=True)
    def choice(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in T.serial(8):
            if i < 4:
                y[i] = x[i] * x[i] + T.float32(1)
            else:
                y[i] = T.if_then_else(i < 6, x[i] + T.float32(2), x[7 - i])

    @T.prim_func(private=True, s_tir=True)
    def outside(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in T.serial(8):
            y[i] = T.call_extern("float32", "sinf", x[i])

    @T.prim_func(private=True, s_tir=True)
    def vectors(x: T.Buffer((8,), "int32"), y: T.Buffer((8,), "int32")):
        for i in T.vectorized(8):
            y[i] = T.shift_right(x[i], 1)

    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        return x


def test_branches_count_as_the_larger_one_and_other_code_as_unknown() -> None:
    work = tallied(Odd)
    assert work["choice"] == Work(16, "float32", "")
    assert work["outside"] == Work(None, "", "")
    assert work["vectors"] == Work(8, "int32", "")


@pytest.mark.parametrize("schedule", [True, False, "fuse", "tile"])
def test_an_executable_knows_the_work_of_its_functions(schedule: bool | str) -> None:
    compiled = tvmlab.compile(tvmlab.load(dense()), schedule=schedule)
    assert compiled.work["matmul"].dtype == "float32"
    assert (compiled.work["matmul"].operations or 0) >= 2 * 2 * 4 * 3


@pytest.mark.parametrize(
    "fields",
    [[-1, "float32", ""], [1 << 63, "", ""], [True, "", ""], [1.5, "", ""], ["1", "", ""],
     [1, 2, ""], [1, "", None], [], [1, ""], [1, "", "", ""], 3, None],
)  # fmt: skip
def test_what_is_no_work_is_refused(fields: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Work.read(fields)


def test_what_is_read_is_what_was_written() -> None:
    for work in (Work(None, "", ""), Work(12, "int32", "Parallel")):
        assert Work.read([work.operations, work.dtype, work.rule]) == work
