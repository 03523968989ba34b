"""Functions of 8-bit numbers by tables in registers, and attention in integers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import tvmlab
from tests.oracles.models import by_onnx_runtime, model, node, value
from tests.oracles.onnx_qnn import integers, parameters, within
from tests.qnn.cases import Case, module
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

TARGETS = {"icelake-server": "Tables", "skylake-avx512": "ElementWise"}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("shape", [(256,), (3, 5, 128), (7, 5)])
def test_every_number_of_8_bits(shape: tuple[int, ...], dtype: str) -> None:
    x = np.resize(np.arange(256, dtype="uint8").view(dtype), shape)
    points = [np.float32(0.03), np.int32(9), np.float32(0.02), np.int32(11)]
    case = Case("gelu", [x, *points], (0,), {})
    run = tvmlab.compile(module([case])[0])
    np.testing.assert_array_equal(run(x)[0], case.expected())


@pytest.mark.parametrize("mcpu", TARGETS)
def test_the_rule_needs_an_instruction(mcpu: str) -> None:
    points = [np.float32(0.03), np.int32(9), np.float32(0.02), np.int32(11)]
    case = Case("tanh", [np.zeros((4, 64), "uint8"), *points], (0,), {})
    run = tvmlab.compile(module([case])[0], {"kind": "llvm", "mcpu": mcpu, "num-cores": 2})
    assert [kernel.rule for kernel in run.summary().kernels] == [TARGETS[mcpu]]


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 2, 1, 3)])
def test_products_of_heads_stay_integers(order: tuple[int, ...]) -> None:
    """Transposes of heads do not separate a product from its operands."""
    shape = (1, 6, 2, 8)
    parts = [
        part
        for name, scale, zero in (("a", 0.05, 120), ("b", 0.04, 131), ("y", 0.9, 100))
        for part in parameters(name, scale, zero, "uint8")
    ]
    nodes = []
    for name, axes in (("a", (0, 2, 1, 3)), ("b", order)):
        nodes.append(node("DequantizeLinear", [name, f"{name}_s", f"{name}_z"], [f"{name}r"]))
        nodes.append(node("Transpose", [f"{name}r"], [f"{name}t"], perm=axes))
    if order == (0, 2, 1, 3):
        nodes.append(node("Transpose", ["bt"], ["bu"], perm=(0, 1, 3, 2)))
    nodes.append(node("MatMul", ["at", "bu" if order == (0, 2, 1, 3) else "bt"], ["r"]))
    nodes.append(node("QuantizeLinear", ["r", "y_s", "y_z"], ["y"]))
    ends = [value(name, TensorProto.UINT8, shape) for name in ("a", "b")]
    out = [value("y", TensorProto.UINT8, (1, 2, 6, 6))]
    proto = model(nodes, ends, out, parts)
    given = integers(shape, "uint8"), integers(shape, "uint8", 1)
    mod = FakeQuantizationToInteger()(within(proto, *given, share=0.05))
    assert not float_operators(mod)
    script = mod.script()
    assert script.count("permute_dims") == 2
    assert "transpose_b=True" in script
    (wanted,) = by_onnx_runtime(proto, *given)
    np.testing.assert_array_equal(tvmlab.compile(mod)(*given), wanted)


@pytest.mark.parametrize("kind", ["none", "tanh"])
def test_gelu_between_integers_is_one_step_away_at_most(kind: str) -> None:
    """ONNX Runtime computes it in float32."""
    parts = [*parameters("x", 0.03, 128, "uint8"), *parameters("y", 0.015, 12, "uint8")]
    nodes = [
        node("DequantizeLinear", ["x", "x_s", "x_z"], ["r"]),
        node("Gelu", ["r"], ["g"], approximate=kind),
        node("QuantizeLinear", ["g", "y_s", "y_z"], ["y"]),
    ]
    ends = [value("x", TensorProto.UINT8, (4, 64))]
    out = [value("y", TensorProto.UINT8, (4, 64))]
    proto = model(nodes, ends, out, parts, opset=20, ir_version=10)
    x = np.arange(256, dtype="uint8").reshape(4, 64)
    mod = FakeQuantizationToInteger()(within(proto, x))
    assert not float_operators(mod)
    (wanted,) = by_onnx_runtime(proto, x)
    assert np.abs(tvmlab.compile(mod)(x).astype(int) - wanted).max() <= 1
