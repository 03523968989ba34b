"""Padding in ONNX models: as an operator, and with integers between integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tvmlab
from tests.frontend.test_quantized_onnx import close, parameters
from tests.oracles.models import (
    agree_with_onnx_runtime,
    array,
    by_onnx_runtime,
    model,
    node,
    quickly,
    value,
    weight,
)
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

to_integer: Any = FakeQuantizationToInteger()
WIDTHS = weight("widths", np.array([0, 0, 1, 2, 0, 0, 0, 1]))


def padded(mode: str = "constant", by: Any = None, kind: int = TensorProto.FLOAT) -> Any:
    operands = ["x", "widths"] if by is None else ["x", "widths", "by"]
    parts = [WIDTHS] if by is None else [WIDTHS, weight("by", by)]
    return model(
        [node("Pad", operands, ["y"], mode=mode)],
        [value("x", kind, (1, 3, 6, 6))],
        [value("y", kind, None)],
        parts,
        opset=19,  # the first that knows "wrap"
    )


@pytest.mark.parametrize("by", [None, np.float32(0), np.float32(0.1), np.uint8(5)])
def test_a_constant_pad_is_an_operator(by: Any) -> None:
    integer = isinstance(by, np.uint8)
    kind = TensorProto.UINT8 if integer else TensorProto.FLOAT
    proto = padded(by=by, kind=kind)
    assert tvmlab.load(proto).script().count("R.nn.pad(x, pad_width=[0, 0, 0, 0, 1, 0, 2, 1]") == 1
    x = array(1, 3, 6, 6)
    agree_with_onnx_runtime(proto, (x * 10 + 100).astype("uint8") if integer else x)


def test_widths_that_cut_and_batches_of_any_size() -> None:
    widths = weight("widths", np.array([0, 0, -1, 1, 0, 0, 2, -3]))
    proto = model([node("Pad", ["x", "widths"], ["y"])], {"x": ("n", 3, 6, 6)}, ["y"], [widths])
    shapes = {"x": ("n", 3, 6, 6)}
    mod = tvmlab.load(proto, shapes=shapes)
    assert "pad_width=[0, 0, 0, 0, -1, 2, 1, -3]" in mod.script()
    agree_with_onnx_runtime(proto, array(2, 3, 6, 6), shapes=shapes)


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_other_pads_are_operators(mode: str) -> None:
    proto = padded(mode)
    assert "R.nn.pad(" in tvmlab.load(proto).script()
    agree_with_onnx_runtime(proto, array(1, 3, 6, 6))


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_quantized_mirror(mode: str) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "a_s", "a_z"], ["q"]),
        node("DequantizeLinear", ["q", "a_s", "a_z"], ["d"]),
        node("Pad", ["d", "widths"], ["p"], mode=mode),
        node("QuantizeLinear", ["p", "a_s", "a_z"], ["r"]),
        node("DequantizeLinear", ["r", "a_s", "a_z"], ["y"]),
    ]
    parts = [WIDTHS, *parameters("a", 0.02, 3, "uint8")]
    proto, x = model(nodes, {"x": (1, 3, 6, 6)}, ["y"], parts), array(1, 3, 6, 6)
    mod = to_integer(tvmlab.load(proto))
    np.testing.assert_array_equal(quickly(mod, x)[0], by_onnx_runtime(proto, x)[0])


@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_a_quantized_value_to_pad_with_is_a_constant(kind: str, quantize: bool) -> None:
    """As ONNX Runtime's quantizer writes it, and with the quantize not yet computed."""
    first = [node("QuantizeLinear", ["by", "a_s", "a_z"], ["by_q"])] if quantize else []
    by = weight("by", np.float32(0.27)) if quantize else weight("by_q", np.array(27, kind))
    nodes = [
        node("QuantizeLinear", ["x", "a_s", "a_z"], ["q"]),
        node("DequantizeLinear", ["q", "a_s", "a_z"], ["d"]),
        *first,
        node("DequantizeLinear", ["by_q", "a_s", "a_z"], ["by_d"]),
        node("Pad", ["d", "widths", "by_d"], ["p"]),
        node("QuantizeLinear", ["p", "a_s", "a_z"], ["r"]),
        node("DequantizeLinear", ["r", "a_s", "a_z"], ["y"]),
    ]
    parts = [WIDTHS, by, *parameters("a", 0.02, 3, kind)]
    proto, x = model(nodes, {"x": (1, 3, 6, 6)}, ["y"], parts), array(1, 3, 6, 6)
    before = proto.SerializeToString()
    mod = to_integer(tvmlab.load(proto))
    assert proto.SerializeToString() == before
    assert float_operators(mod) == []
    np.testing.assert_array_equal(quickly(mod, x)[0], by_onnx_runtime(proto, x)[0])


SAME: list[tuple[str, dict[str, Any]]] = [
    ("Conv", {"strides": [2, 2]}),
    ("Conv", {"strides": [3, 3], "kernel_shape": [3, 3]}),
    ("MaxPool", {"strides": [2, 2], "kernel_shape": [3, 2]}),
    ("AveragePool", {"strides": [2, 2], "kernel_shape": [3, 2]}),
    ("AveragePool", {"strides": [2, 2], "kernel_shape": [3, 2], "count_include_pad": 1}),
]


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kind", "more"), SAME)
def test_same_is_written_as_widths(kind: str, more: dict[str, Any], mode: str) -> None:
    conv = kind == "Conv"
    nodes = [node(kind, ["x", "w"] if conv else ["x"], ["y"], auto_pad=mode, **more)]
    parts = [weight("w", array(4, 3, 3, 3))] if conv else []
    proto = model(nodes, {"x": ("n", 3, 7, 6)}, ["y"], parts)
    agree_with_onnx_runtime(proto, array(1, 3, 7, 6), shapes={"x": (1, 3, 7, 6)})
    text = tvmlab.load(proto, shapes={"x": (1, 3, 7, 6)}).script()
    assert "R.call_tir(" not in text
    assert "R.nn.pad(" not in text


def test_same_with_dilation() -> None:
    """ONNX Runtime does not take it, ONNX does."""
    both = []
    for more in ({"auto_pad": "SAME_UPPER"}, {"pads": [2, 1, 2, 2]}):
        nodes = [node("Conv", ["x", "w"], ["y"], dilations=[2, 3], strides=[2, 3], **more)]
        weights = [weight("w", array(4, 3, 3, 2))]
        both.append(tvmlab.load(model(nodes, {"x": (1, 3, 7, 7)}, ["y"], weights)).script())
    assert both[0] == both[1]
    assert "padding=[2, 1, 2, 2]" in both[0]


def test_same_of_a_picture_of_any_size() -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], auto_pad="SAME_UPPER")]
    proto = model(nodes, {"x": (1, 3, "h", 6)}, ["y"], [weight("w", array(4, 3, 3, 3))])
    agree_with_onnx_runtime(proto, array(1, 3, 7, 6), shapes={"x": (1, 3, "h", 6)})


def test_a_quantized_convolution_with_same_is_in_integers() -> None:
    nodes = [
        node("QuantizeLinear", ["x", "a_s", "a_z"], ["q"]),
        node("DequantizeLinear", ["q", "a_s", "a_z"], ["d"]),
        node("DequantizeLinear", ["w", "w_s", "w_z"], ["wd"]),
        node("Conv", ["d", "wd"], ["c"], auto_pad="SAME_LOWER", strides=[2, 2]),
        node("QuantizeLinear", ["c", "b_s", "b_z"], ["r"]),
        node("DequantizeLinear", ["r", "b_s", "b_z"], ["y"]),
    ]
    parts = [
        *parameters("a", 0.02, 100, "uint8"),
        *parameters("b", 0.05, 120, "uint8"),
        *parameters("w", 0.01, 0, "int8"),
        weight("w", (array(4, 3, 3, 3) * 40).astype("int8")),
    ]
    proto, x = model(nodes, {"x": (1, 3, 7, 6)}, ["y"], parts), array(1, 3, 7, 6)
    mod = to_integer(tvmlab.load(proto))
    assert float_operators(mod) == []
    close(quickly(mod, x)[0], by_onnx_runtime(proto, x)[0], steps=0.051, share=0.02)
