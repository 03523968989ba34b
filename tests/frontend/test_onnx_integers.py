"""ONNX Runtime's dynamic quantization, and weights of a few bits, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvmlab
from tests.oracles.models import (
    array,
    by_onnx_reference,
    by_onnx_runtime,
    model,
    node,
    quickly,
    value,
    weight,
)
from tests.oracles.onnx_qnn import close, integers, kind_of, within
from tvmlab.errors import UnsupportedOperatorError

FLOAT, UINT8, INT32 = TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT32


def contributed(
    kind: str, x: tuple[int, ...], parts: list[Any], names: list[str], **how: Any
) -> onnx.ModelProto:
    """Write one operator of the domain com.microsoft."""
    made = node(kind, ["x", *names], ["y"], domain="com.microsoft", **how)
    out = [value("y", FLOAT, (None, None))]
    return model([made], [value("x", FLOAT, x)], out, parts, domains=["com.microsoft"])


@pytest.mark.parametrize("zeros", ["none", "scalars", "columns", "computed"])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
def test_matmulinteger_with_constant_weights_is_exact(dtypes: tuple[str, str], zeros: str) -> None:
    """Compiled too: 7 columns and 13 rows fill no tile, and 30 numbers no instruction."""
    a, b = integers((13, 30), dtypes[0]), integers((30, 7), dtypes[1])
    low = 100 if dtypes[1] == "uint8" else -3
    own = low + np.arange(7) if zeros == "columns" else np.array(low)
    point = np.array(3, dtypes[0])
    parts = [weight("b", b)]
    parts += [weight("b_z", own.astype(dtypes[1]))] * (zeros != "none")
    parts += [weight("a_z", point)] * (zeros in ("scalars", "columns"))
    names = ["a", "b"] if zeros == "none" else ["a", "b", "a_z", "b_z"]
    inputs = [value("a", kind_of(dtypes[0]), a.shape)]
    inputs += [value("a_z", kind_of(dtypes[0]), ())] * (zeros == "computed")
    made = [node("MatMulInteger", names, ["y"])]
    proto = model(made, inputs, [value("y", INT32, (13, 7))], parts)
    given = [a, point] if zeros == "computed" else [a]
    (wanted,) = by_onnx_runtime(proto, *given)
    mod = tvmlab.load(proto)
    assert "R.qnn.dense(" in mod.script()
    np.testing.assert_array_equal(quickly(mod, *given)[0], wanted)
    np.testing.assert_array_equal(tvmlab.compile(mod)(*given), wanted)


def test_a_product_with_a_computed_zero_point_has_the_rule_of_contractions() -> None:
    parts = [weight("b", integers((64, 32), "int8")), weight("b_z", np.int8(0))]
    inputs = [value("a", UINT8, (16, 64)), value("a_z", UINT8, (1,))]
    made = [node("MatMulInteger", ["a", "b", "a_z", "b_z"], ["y"])]
    proto = model(made, inputs, [value("y", INT32, (16, 32))], parts)
    target = {"kind": "llvm", "mcpu": "icelake-server", "num-cores": 2}
    assert "Contraction" in str(tvmlab.compile(tvmlab.load(proto), target).summary())


@pytest.mark.parametrize("shape", [(5, 24), (2, 5, 24)])
def test_dynamic_quantization(shape: tuple[int, ...], tmp_path: Any) -> None:
    """A product quantized by ONNX Runtime's `quantize_dynamic`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    made = [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["y"])]
    parts = [weight("w", array(24, 16) / 8), weight("b", array(16))]
    onnx.save(model(made, {"x": shape}, ["y"], parts), tmp_path / "float.onnx")
    paths = tmp_path / "float.onnx", tmp_path / "int.onnx"
    quantize_dynamic(*paths, per_channel=True, weight_type=QuantType.QInt8)
    proto = onnx.load(paths[1])
    assert "MatMulInteger" in [one.op_type for one in proto.graph.node]
    within(proto, array(*shape), steps=1e-5, share=1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_products_that_onnx_runtime_joins(kind: str, bias: bool) -> None:
    x = array(5, 24)
    parts = [
        weight("w", integers((24, 16), "int8")),
        weight("s", (np.arange(16, dtype="float32") + 1) / 500),
        weight("z", np.zeros(16, "int8")),
        weight("b", array(16)),
    ]
    if kind == "DynamicQuantizeMatMul":
        names = ["w", "s", "z", "b"][: 3 + bias]
        proto = contributed(kind, x.shape, parts, names)
    else:
        names = ["q", "w", "xs", "s", "xz", "z", "b"][: 6 + bias]
        first = node("DynamicQuantizeLinear", ["x"], ["q", "xs", "xz"])
        made = node(kind, names, ["y"], domain="com.microsoft")
        out = [value("y", FLOAT, (None, None))]
        inputs = [value("x", FLOAT, x.shape)]
        proto = model([first, made], inputs, out, parts, domains=["com.microsoft"])
    within(proto, x, steps=1e-4, share=1)


@pytest.mark.parametrize(
    ("bits", "zeros"),  # ONNX Runtime has no kernel for 8 bits and float zero points
    [(4, "none"), (4, "packed"), (4, "float"), (8, "none"), (8, "packed"), (2, "packed")],
)
def test_weights_of_a_few_bits(bits: int, zeros: str) -> None:
    """N of 9 and K of 40: the last block of a row is not full."""
    x, blocks, block = array(3, 40), 3, 16
    rng = np.random.default_rng(bits)
    data = rng.integers(0, 256, (9, blocks, block * bits // 8), dtype="uint8")
    scales = rng.uniform(0.5, 1.5, (9, blocks)).astype("float32")
    points = rng.integers(0, 256, (9, -(-blocks * bits // 8)), dtype="uint8")
    real = rng.uniform(0, 15, (9, blocks)).astype("float32")
    parts = [weight("w", data), weight("s", scales)]
    names = ["w", "s"]
    if zeros != "none":
        parts.append(weight("z", points if zeros == "packed" else real))
        names.append("z")
    how = {"N": 9, "K": 40, "bits": bits, "block_size": block}
    within(contributed("MatMulNBits", x.shape, parts, names, **how), x, steps=2e-3, share=1)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("level", [0, 1])
def test_full_blocks_stay_integers(bits: int, zeros: bool, level: int) -> None:
    """Level 1 asks for inputs of float32, so that the weights become floats, too."""
    x, rng = array(3, 64), np.random.default_rng(bits)
    data = rng.integers(0, 256, (9, 2, 4 * bits), dtype="uint8")
    parts = [weight("w", data), weight("s", rng.uniform(0.5, 1.5, (9, 2)).astype("float32"))]
    parts += [weight("z", rng.integers(0, 256, (9, -(-2 * bits // 8)), dtype="uint8"))] * zeros
    how = {"N": 9, "K": 64, "bits": bits, "block_size": 32, "accuracy_level": level}
    proto = contributed("MatMulNBits", x.shape, parts, ["w", "s", "z"][: 2 + zeros], **how)
    (wanted,) = by_onnx_runtime(proto, x)
    built = tvmlab.compile(tvmlab.load(proto))
    taken = {kernel.rule for kernel in built.summary().kernels}
    assert taken == {"Contraction" if level else "IntegerWeights"}
    np.testing.assert_allclose(built(x), wanted, atol=1e-4 * np.abs(wanted).max())


def test_weights_in_another_order_are_refused() -> None:
    parts = [
        weight("w", np.zeros((8, 1, 8), "uint8")),
        weight("s", np.ones((8, 1), "float32")),
        weight("z", np.zeros((8, 1), "uint8")),
        weight("g", np.zeros(16, "int32")),
    ]
    how = {"N": 8, "K": 16, "bits": 4, "block_size": 16}
    proto = contributed("MatMulNBits", (3, 16), parts, ["w", "s", "z", "g"], **how)
    with pytest.raises(UnsupportedOperatorError, match="another order"):
        tvmlab.load(proto)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 9, 64)])
def test_dynamicquantizelinear_of_any_rank(shape: tuple[int, ...]) -> None:
    x = array(*shape)
    outputs = [value("q", UINT8, shape), value("s", FLOAT, ()), value("z", UINT8, ())]
    proto = model([node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], {"x": shape}, outputs)
    wanted = by_onnx_runtime(proto, x)
    for one, other in zip(quickly(tvmlab.load(proto), x), wanted, strict=True):
        close(one, other, steps=0, share=0) if one.size > 1 else np.testing.assert_equal(one, other)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8"])
def test_dequantized_blocks_stay_integers(dtype: str, transposed: bool) -> None:
    """DequantizeLinear with block_size, as weight-only quantization writes it for MatMul."""
    low = 0 if dtype.startswith("u") else -8
    data = (low + np.arange(96 * 6) * 7 % 16).reshape(96, 6).astype(dtype)
    scales = (1 + np.arange(18, dtype="float32")).reshape(3, 6) / 90
    zeros = (low + np.arange(18) % 16).reshape(3, 6).astype(dtype)
    arrays = [one.T if transposed else one for one in (data, scales, zeros)]
    names = ["w", "s", "z"]
    parts = [
        weight(name, np.ascontiguousarray(one)) for name, one in zip(names, arrays, strict=True)
    ]
    nodes = [node("DequantizeLinear", names, ["d"], axis=int(transposed), block_size=32)]
    nodes += [node("Transpose", ["d"], ["t"])] if transposed else []
    nodes += [node("MatMul", ["x", "t" if transposed else "d"], ["y"])]
    proto = model(nodes, {"x": (4, 96)}, ["y"], parts, opset=21, ir_version=10)
    x = array(4, 96)
    built = tvmlab.compile(tvmlab.load(proto))
    assert {kernel.rule for kernel in built.summary().kernels} == {"IntegerWeights"}
    # ONNX Runtime joins both operators, and rounds the inputs to 8 bits.
    (wanted,) = by_onnx_reference(proto, x)
    np.testing.assert_allclose(built(x), wanted, atol=1e-4 * np.abs(wanted).max())
