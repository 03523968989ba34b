"""Scales by channel whose number an ONNX model does not say outright, and operators in branches.

The weights are square, so that a wrong axis would fit too, and give other numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvmlab
from tests.frontend.quantized_onnx import close, integers, parameters, refused, within
from tests.oracles.models import by_onnx_reference, model, node, quickly, value, weight
from tvmlab.errors import ModelError, UnsupportedOperatorError

UINT8 = TensorProto.UINT8
SCALES = np.array([0.01, 0.1, 0.02, 0.001], "float32")


def convolution(weights: list[Any], first: list[Any], bias: bool = False) -> onnx.ModelProto:
    """QLinearConv with square weights, whose scales and zero points are `weights` or `first`."""
    names = ["x", "x_s", "x_z", "w", "w_s", "w_z", "y_s", "y_z"]
    parts = [
        *parameters("x", 0.1, 7, "uint8"),
        *parameters("y", 3.0, 7, "uint8"),
        *weights,
    ]
    if bias:
        parts.append(weight("b", np.array([10, -2000, 300, 4], "int32")))
        names.append("b")
    nodes = [*first, node("QLinearConv", names, ["y"])]
    return model(nodes, [value("x", UINT8, (1, 4, 6, 6))], [value("y", UINT8, None)], parts)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("through", ["Identity", "Mul"])
def test_scales_that_are_no_initializers_are_by_output_channel(through: str, bias: bool) -> None:
    parts = [
        weight("w", integers((4, 4, 3, 3), "int8", 3)),
        weight("kept", SCALES),
        weight("one", np.float32(1)),
        weight("w_z", np.zeros(4, "int8")),
    ]
    operands = ["kept", "one"] if through == "Mul" else ["kept"]
    proto = convolution(parts, [node(through, operands, ["w_s"])], bias)
    within(proto, integers((1, 4, 6, 6), "uint8"))


@pytest.mark.parametrize("through", ["initializer", "Identity", "Mul"])
def test_one_scale_with_zero_points_by_channel(through: str) -> None:
    parts = [
        weight("w", integers((4, 4, 3, 3), "uint8", 3)),
        weight("w_s" if through == "initializer" else "kept", np.float32(0.01)),
        weight("one", np.float32(1)),
        weight("w_z", np.array([10, 120, 200, 128], "uint8")),
    ]
    operands = ["kept", "one"] if through == "Mul" else ["kept"]
    first = [] if through == "initializer" else [node(through, operands, ["w_s"])]
    within(convolution(parts, first), integers((1, 4, 6, 6), "uint8"))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("many", [False, True])
def test_columns_of_a_product(rank: int, many: bool) -> None:
    shape = (2, 4, 4)[-rank:]
    parts = [
        *parameters("a", 0.1, 7, "uint8"),
        *parameters("y", 3.0, 7, "uint8"),
        weight("b", integers((4, 4), "int8")),
        weight("kept", SCALES if many else np.float32(0.01)),
        weight("b_z", np.zeros(4 if many else (), "int8")),
    ]
    names = [f"{n}{p}" for n in "ab" for p in ("", "_s", "_z")] + ["y_s", "y_z"]
    nodes = [node("Identity", ["kept"], ["b_s"]), node("QLinearMatMul", names, ["y"])]
    proto = model(nodes, [value("a", UINT8, shape)], [value("y", UINT8, shape)], parts)
    within(proto, integers(shape, "uint8"))


# Branches


def choice(then: list[Any], otherwise: list[Any], parts: list[Any]) -> onnx.ModelProto:
    """A model of two branches, each of which makes "t" of the outer "x"."""
    branches = [
        helper.make_graph(nodes, "branch", [], [value("t", UINT8, (1, 4, 4, 4))])
        for nodes in (then, otherwise)
    ]
    made = node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    inputs = [value("x", UINT8, (1, 4, 6, 6)), value("c", TensorProto.BOOL, ())]
    return model([made], inputs, [value("y", UINT8, (1, 4, 4, 4))], parts)


def branches(scale: float = 0.02, kind: str = "QLinearConv") -> onnx.ModelProto:
    """A convolution in either branch, with scales of its own."""
    parts = [
        *parameters("x", 0.1, 7, "uint8"),
        *parameters("y", 3.0, 7, "uint8"),
        *parameters("v", 0.01, 0, "int8"),
        *parameters("w", scale, 0, "int8"),
        weight("v", integers((4, 4, 3, 3), "int8", 3)),
        weight("w", integers((4, 4, 3, 3), "int8", 4)),
    ]
    both = []
    for name in "vw":
        names = ["x", "x_s", "x_z", name, f"{name}_s", f"{name}_z", "y_s", "y_z"]
        both.append([node(kind, names, ["t"], name=f"in {name}")])
    return choice(both[0], both[1], parts)


@pytest.mark.parametrize("way", [True, False])
def test_operators_in_branches_are_written_out(way: bool) -> None:
    proto, x = branches(), integers((1, 4, 6, 6), "uint8")
    inputs = (x, np.array(way))
    (expected,) = by_onnx_reference(proto, *inputs)
    close(quickly(tvmlab.load(proto), *inputs)[0], expected, steps=1, share=0.02)


def test_a_wrong_scale_in_a_branch_is_refused() -> None:
    refused(branches(scale=-1.0), ModelError, "a scale of -1.0", "in w_w_dequantized")


def test_an_unknown_operator_in_a_branch_is_named() -> None:
    lengths = weight("lengths", np.full(4, 1, "int64"))
    turned = node("ReverseSequence", ["x", "lengths"], ["t"], name="turned")
    proto = choice([turned], [node("Identity", ["x"], ["t"])], [lengths])
    refused(proto, UnsupportedOperatorError, "ONNX operator ReverseSequence", "in node 'turned'")
