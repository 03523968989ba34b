"""Padding in ONNX models: as an operator, and with integers between integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tvmlab
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
from tests.oracles.onnx_qnn import close, parameters
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

to_integer: Any = FakeQuantizationToInteger()
X = array(1, 3, 6, 6)
WIDTHS = weight("widths", np.array([0, 0, 1, 2, 0, 0, 0, 1]))


@pytest.mark.parametrize(
    ("mode", "by"),
    [
        *(("constant", by) for by in (None, np.float32(0), np.float32(0.1), np.uint8(5))),
        *((mode, None) for mode in ("reflect", "edge", "wrap")),
    ],
)
def test_a_pad_is_an_operator(mode: str, by: Any) -> None:
    integer = isinstance(by, np.uint8)
    kind = TensorProto.UINT8 if integer else TensorProto.FLOAT
    parts = [WIDTHS] if by is None else [WIDTHS, weight("by", by)]
    proto = model(
        [node("Pad", ["x", *(part.name for part in parts)], ["y"], mode=mode)],
        *([value("x", kind, X.shape)], [value("y", kind, None)], parts),
        opset=19,  # the first that knows "wrap"
    )
    assert tvmlab.load(proto).script().count("R.nn.pad(x, pad_width=[0, 0, 0, 0, 1, 0, 2, 1]") == 1
    agree_with_onnx_runtime(proto, (X * 10 + 100).astype("uint8") if integer else X)


def test_widths_that_cut_and_batches_of_any_size() -> None:
    widths = weight("widths", np.array([0, 0, -1, 1, 0, 0, 2, -3]))
    proto = model([node("Pad", ["x", "widths"], ["y"])], {"x": ("n", 3, 6, 6)}, ["y"], [widths])
    shapes = {"x": ("n", 3, 6, 6)}
    mod = tvmlab.load(proto, shapes=shapes)
    assert "pad_width=[0, 0, 0, 0, -1, 2, 1, -3]" in mod.script()
    agree_with_onnx_runtime(proto, array(2, 3, 6, 6), shapes=shapes)


def quantized(middle: list[Any], parts: list[Any], kind: str, out: str = "a") -> Any:
    """Operators from "d" to "p" between integers, of scale `a` before and `out` after them."""
    nodes = [
        node("QuantizeLinear", ["x", "a_s", "a_z"], ["q"]),
        node("DequantizeLinear", ["q", "a_s", "a_z"], ["d"]),
        *middle,
        node("QuantizeLinear", ["p", f"{out}_s", f"{out}_z"], ["r"]),
        node("DequantizeLinear", ["r", f"{out}_s", f"{out}_z"], ["y"]),
    ]
    parts = [WIDTHS, *parts, *parameters("a", 0.02, 3, kind)]
    return model(nodes, {"x": X.shape}, ["y"], parts)


def integral(proto: Any) -> np.ndarray:
    """Run the integer form of a model that has one."""
    before = proto.SerializeToString()
    mod = to_integer(tvmlab.load(proto))
    assert proto.SerializeToString() == before
    assert float_operators(mod) == []
    return quickly(mod, X)[0]


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_quantized_mirror(mode: str) -> None:
    proto = quantized([node("Pad", ["d", "widths"], ["p"], mode=mode)], [], "uint8")
    np.testing.assert_array_equal(
        quickly(to_integer(tvmlab.load(proto)), X)[0], by_onnx_runtime(proto, X)[0]
    )


@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_a_quantized_value_to_pad_with_is_a_constant(kind: str, quantize: bool) -> None:
    """As ONNX Runtime's quantizer writes it, and with the quantize not yet computed."""
    middle = [
        *([node("QuantizeLinear", ["by", "a_s", "a_z"], ["by_q"])] if quantize else []),
        node("DequantizeLinear", ["by_q", "a_s", "a_z"], ["by_d"]),
        node("Pad", ["d", "widths", "by_d"], ["p"]),
    ]
    by = weight("by", np.float32(0.27)) if quantize else weight("by_q", np.array(27, kind))
    proto = quantized(middle, [by], kind)
    np.testing.assert_array_equal(integral(proto), by_onnx_runtime(proto, X)[0])


def test_a_quantized_convolution_with_same_is_in_integers() -> None:
    middle = [
        node("DequantizeLinear", ["w", "w_s", "w_z"], ["wd"]),
        node("Conv", ["d", "wd"], ["p"], auto_pad="SAME_LOWER", strides=[2, 2]),
    ]
    parts = [*parameters("b", 0.05, 120, "uint8"), *parameters("w", 0.01, 0, "int8")]
    parts.append(weight("w", (array(4, 3, 3, 3) * 40).astype("int8")))
    proto = quantized(middle, parts, "uint8", "b")
    close(integral(proto), by_onnx_runtime(proto, X)[0], steps=0.051, share=0.02)


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
