"""The arithmetic of a function, counted by hand and by the package."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvmlab
from tests.oracles.models import array, convolutional, model, node, weight
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


@pytest.mark.parametrize("groups", [1, 2, 10])
def test_a_convolution_of_odd_sizes(groups: int) -> None:
    """Rows, columns and channels are all rounded up for the tiles; 13 * 17 * 10 are of use."""
    inputs = 20 // groups if groups < 10 else 1
    nodes = [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], group=groups)]
    shape = (1, groups * inputs, 13, 17)
    proto = model(nodes, {"x": shape}, ["y"], [weight("w", array(10, inputs, 3, 3))])
    work = tvmlab.compile(tvmlab.load(proto)).work
    assert sum(found.operations or 0 for found in work.values()) == 2 * 13 * 17 * 10 * 9 * inputs


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
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.sampled_from(["Exp", "Relu", "Neg", "Tanh"]), min_size=1, max_size=4),
)
def test_what_is_done_to_each_element_is_counted_for_each(shape: list[int], ops: list[str]) -> None:
    names = [f"v{i}" for i in range(len(ops) + 1)]
    nodes = [node(op, [a], [b]) for op, a, b in zip(ops, names, names[1:], strict=False)]
    work = of(model(nodes, {names[0]: shape}, [names[-1]]), "fuse")
    assert sum(found.operations or 0 for found in work.values()) == len(ops) * math.prod(shape)


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


@pytest.mark.parametrize(
    ("data", "weights", "dtype"),
    [("int8", "int8", "int8"), ("uint8", "int8", "int8"), ("int16", "int8", "int16"),
     ("int16", "int16", "int16"), ("int8", "int64", "int32")],
)  # fmt: skip
def test_products_of_narrow_integers(data: str, weights: str, dtype: str) -> None:
    @I.ir_module(check_well_formed=False)
    class Module:
        @T.prim_func(private=True, s_tir=True)
        def dot(x: T.Buffer((8,), data), w: T.Buffer((8,), weights), y: T.Buffer((1,), "int32")):
            for i in T.serial(8):
                y[0] = y[0] + T.cast(x[i], "int32") * T.cast(w[i], "int32")

    assert tallied(Module)["dot"] == Work(16, dtype, "")


def test_branches_count_as_the_larger_one_and_other_code_as_unknown() -> None:
    work = tallied(Odd)
    assert work["choice"] == Work(16, "float32", "")
    assert work["outside"] == Work(None, "", "")
    assert work["vectors"] == Work(8, "int32", "")
