"""QuantizeLinear and DequantizeLinear against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import tvmlab
from tests.frontend.quantized_onnx import KINDS, close, integers, parameters, within
from tests.oracles.models import array, by_onnx_runtime, model, node, quickly, value, weight
from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.qnn.transform import FakeQuantizationToInteger


def there_and_back(x: np.ndarray, cases: list[tuple[str, Any, dict[str, int]]], opset: int) -> None:
    """Quantize and dequantize one input in several ways; all results are ONNX Runtime's."""
    nodes, parts = [], []
    for i, (dtype, scale, named) in enumerate(cases):
        zeros = 7 + np.arange(scale.size).reshape(scale.shape)
        parts += parameters(f"p{i}", scale, zeros, dtype)
        names = [f"p{i}_s", f"p{i}_z"]
        nodes.append(node("QuantizeLinear", ["x", *names], [f"q{i}"], **named))
        nodes.append(node("DequantizeLinear", [f"q{i}", *names], [f"y{i}"], **named))
    outputs = [value(f"q{i}", KINDS[dtype], x.shape) for i, (dtype, _, _) in enumerate(cases)]
    outputs += [value(f"y{i}", TensorProto.FLOAT, x.shape) for i in range(len(cases))]
    proto = model(nodes, {"x": x.shape}, outputs, parts, opset=opset, ir_version=10)
    results = quickly(tvmlab.load(proto), x)
    for result, expected in zip(results, by_onnx_runtime(proto, x), strict=True):
        close(result, expected, steps=0, share=0)


@pytest.mark.parametrize("opset", [10, 13, 21])
def test_quantize_and_dequantize_a_tensor(opset: int) -> None:
    dtypes = ["int8", "uint8", *(["int16", "uint16"] if opset >= 21 else [])]
    there_and_back(array(2, 4, 5) * 50, [(d, np.array(0.37), {}) for d in dtypes], opset)


@pytest.mark.parametrize("opset", [13, 21])
def test_an_axis_and_its_default(opset: int) -> None:
    x = array(2, 3, 4) * 50
    axes: list[dict[str, int]] = [{}, *({"axis": axis} for axis in (0, 1, 2, -1))]
    cases = [
        (dtype, 0.1 * (1 + np.arange(x.shape[named.get("axis", 1)])), named)
        for named in axes
        for dtype in ("int8", "uint8")
    ]
    there_and_back(x, cases, opset)


def test_ties_go_to_even_and_large_values_to_the_ends() -> None:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30, 200, -200], "float32")
    q = [value("q", TensorProto.INT8, x.shape)]
    nodes = [node("QuantizeLinear", ["x", "x_s", "x_z"], ["q"])]
    proto = model(nodes, {"x": x.shape}, q, parameters("x", 1, 3, "int8"))
    within(proto, x, steps=0)
    (result,) = quickly(tvmlab.load(proto), x)
    assert result.tolist() == [1, 1, 3, 3, 5, 5, 127, -128, 127, -128]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_scale_may_be_a_scalar_or_a_vector_of_one(shape: tuple[int, ...]) -> None:
    for x in (array(), array(3)):
        parts = parameters("x", np.full(shape, 0.1), np.zeros(shape), "int8")
        nodes = [node("QuantizeLinear", ["x", "x_s", "x_z"], ["q"])]
        proto = model(nodes, {"x": x.shape}, [value("q", TensorProto.INT8, x.shape)], parts)
        mod = tvmlab.load(proto)
        np.testing.assert_array_equal(quickly(mod, x)[0], by_onnx_runtime(proto, x)[0])


def test_without_a_zero_point_a_quantize_makes_uint8() -> None:
    x = array(2, 3) * 100
    nodes = [node("QuantizeLinear", ["x", "s"], ["q"]), node("DequantizeLinear", ["q", "s"], ["y"])]
    proto = model(nodes, {"x": x.shape}, ["y"], [weight("s", np.float32(1.5))])
    assert "uint8" in within(proto, x, steps=0).script()


def test_a_bias_of_int32() -> None:
    bias = integers((4,), "int32")
    nodes = [node("DequantizeLinear", ["b", "s"], ["y"], axis=0)]
    scale = weight("s", np.array([0.1, 0.2, 0.3, 0.4], "float32"))
    within(model(nodes, [value("b", TensorProto.INT32, (4,))], ["y"], [scale]), bias, steps=0)


def test_as_relay_it_is_printed_after_the_pass_and_says_so() -> None:
    nodes = [node("QuantizeLinear", ["x", "s"], ["q"]), node("DequantizeLinear", ["q", "s"], ["y"])]
    mod = tvmlab.load(model(nodes, {"x": (2, 3)}, ["y"], [weight("s", np.float32(1.5))]))
    with pytest.raises(RelayError, match=r"no operator like relax\.quantize") as caught:
        relay.astext(mod)
    assert "run tvmlab.qnn.transform.FakeQuantizationToInteger first" in str(caught.value.fix)
    to_integer: Any = FakeQuantizationToInteger()
    assert "qnn.quantize(" in relay.astext(to_integer(mod))
