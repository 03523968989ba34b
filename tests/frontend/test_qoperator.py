"""ONNX's quantized operators against ONNX Runtime; what is wrong or not supported is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvmlab
from tests.frontend.quantized_onnx import KINDS, close, integers, parameters, refused, within
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
from tvmlab.errors import ModelError, UnsupportedOperatorError

MICROSOFT = "com.microsoft"


def middle(dtype: str) -> int:
    return 131 if dtype == "uint8" else 3


def q_conv(dtype: str, kernel: str, by_channel: bool, bias: bool, **more: Any) -> Any:
    shape = (6, 4 // more.get("group", 1), 3, 3)
    scales = 0.01 * (1 + np.arange(6)) if by_channel else 0.02
    if kernel == "int8":
        zeros: Any = np.zeros(6) if by_channel else 0
    else:
        zeros = np.full(6, 128) if by_channel else 128
    x_scale = 0.05
    parts = [
        *parameters("x", x_scale, middle(dtype), dtype),
        *parameters("w", scales, zeros, kernel),
        *parameters("y", 0.9, middle(dtype) - 9, dtype),
        weight("w", integers(shape, kernel, 3)),
        weight("b", integers((6,), "int16", 4).astype("int32")),
    ]
    names = [f"{n}{p}" for n in "xw" for p in ("", "_s", "_z")] + ["y_s", "y_z"]
    names += ["b"] if bias else []
    nodes = [node("QLinearConv", names, ["y"], name="one", pads=[1, 1, 1, 1], **more)]
    inputs = [value("x", KINDS[dtype], (1, 4, 8, 8))]
    return model(nodes, inputs, [value("y", KINDS[dtype], None)], parts if bias else parts[:-1])


@pytest.mark.parametrize(
    ("dtype", "kernel", "by_channel", "bias", "more"),
    [
        ("uint8", "int8", True, True, {}),
        ("uint8", "int8", False, True, {"strides": [2, 2]}),
        ("int8", "int8", True, True, {"group": 2}),
        ("int8", "int8", True, False, {"dilations": [2, 2]}),
        ("uint8", "uint8", False, True, {}),
    ],
)
def test_qlinearconv(
    dtype: str, kernel: str, by_channel: bool, bias: bool, more: dict[str, Any]
) -> None:
    proto = q_conv(dtype, kernel, by_channel, bias, **more)
    text = within(proto, integers((1, 4, 8, 8), dtype)).script()
    assert text.count("R.quantize(") == 1
    assert text.count("R.dequantize(") == 2 + bias


@pytest.mark.parametrize(("dtype", "kernel"), [("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize("by_channel", [False, True])
def test_qlinearmatmul(dtype: str, kernel: str, by_channel: bool) -> None:
    scales = 0.01 * (1 + np.arange(5)) if by_channel else 0.02
    parts = [
        *parameters("a", 0.05, middle(dtype), dtype),
        *parameters("b", scales, np.zeros(5) if by_channel else 0, kernel),
        *parameters("y", 0.5, 7, dtype),
        weight("b", integers((8, 5), kernel)),
    ]
    names = [f"{n}{p}" for n in "ab" for p in ("", "_s", "_z")] + ["y_s", "y_z"]
    inputs = [value("a", KINDS[dtype], (2, 3, 8))]
    nodes = [node("QLinearMatMul", names, ["y"])]
    within(
        model(nodes, inputs, [value("y", KINDS[dtype], None)], parts), integers((2, 3, 8), dtype)
    )


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("quantized", [False, True])
def test_qgemm(transposed: int, by_channel: bool, quantized: bool) -> None:
    scales = 0.01 * (1 + np.arange(5)) if by_channel else 0.02
    parts = [
        *parameters("a", 0.05, 131, "uint8"),
        *parameters("b", scales, np.zeros(5) if by_channel else 0, "int8"),
        *parameters("y", 0.9, 7, "uint8"),
        weight("b", integers((5, 8) if transposed else (8, 5), "int8")),
        weight("c", integers((5,), "int16").astype("int32")),
    ]
    names = [f"{n}{p}" for n in "ab" for p in ("", "_s", "_z")] + ["c"]
    names += ["y_s", "y_z"] if quantized else []
    made = node("QGemm", names, ["y"], domain=MICROSOFT, transB=transposed, alpha=1.5)
    kind = TensorProto.UINT8 if quantized else TensorProto.FLOAT
    inputs = [value("a", TensorProto.UINT8, (3, 8))]
    out = [value("y", kind, (3, 5))]
    proto = model([made], inputs, out, parts, domains=[MICROSOFT])
    within(proto, integers((3, 8), "uint8"), steps=1 if quantized else 1e-3, share=1)


def q_binary(kind: str, dtype: str, zeros: list[int] | None) -> onnx.ModelProto:
    """A sum or product; without zero points they are left out."""
    parts, names = [], []
    for name, scale, zero in zip("aby", (0.05, 0.03, 0.07), zeros or [0] * 3, strict=True):
        parts += parameters(name, scale, zero, dtype)
        names += [name] * (name != "y") + [f"{name}_s", f"{name}_z" if zeros else ""]
    shape = (1, 3, 5, 5)
    return model(
        [node(kind, names, ["y"], domain=MICROSOFT)],
        [value(n, KINDS[dtype], shape) for n in "ab"],
        [value("y", KINDS[dtype], shape)],
        parts,
        domains=[MICROSOFT],
    )


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("kind", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products(kind: str, dtype: str) -> None:
    a, b = (integers((1, 3, 5, 5), dtype, seed) for seed in (0, 1))
    low = middle(dtype)
    within(q_binary(kind, dtype, [low, low - 8, low + 8]), a, b)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_zero_points_may_be_left_out(dtype: str) -> None:
    """ONNX Runtime's schema says so, its code wants them; they are zeros of the data's type."""
    a, b = (integers((1, 3, 5, 5), dtype, seed) for seed in (0, 1))
    (result,) = quickly(tvmlab.load(q_binary("QLinearAdd", dtype, None)), a, b)
    (expected,) = by_onnx_runtime(told(q_binary("QLinearAdd", dtype, None)), a, b)
    close(result, expected, steps=1, share=0.02)


def told(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Name the zero points that a node leaves out."""
    names = proto.graph.node[0].input
    names[:] = [name or f"{names[i - 1][0]}_z" for i, name in enumerate(names)]
    return proto


UNARY: dict[str, tuple[str, tuple[int, ...], float, dict[str, Any]]] = {
    "mean": ("QLinearGlobalAveragePool", (1, 9, 7, 6), 0.02, {"channels_last": 0}),
    "average": (
        "QLinearAveragePool",
        (1, 3, 7, 7),
        0.04,
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "average with padding": (
        "QLinearAveragePool",
        (1, 3, 7, 7),
        0.04,
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "leaky": ("QLinearLeakyRelu", (4, 60), 0.03, {"alpha": 0.1}),
    "sigmoid": ("QLinearSigmoid", (4, 60), 1 / 256, {}),
    "softmax": ("QLinearSoftmax", (4, 60), 1 / 256, {"axis": -1, "opset": 13}),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("case", UNARY)
def test_functions_of_one_tensor(case: str, dtype: str) -> None:
    kind, shape, scale, attributes = UNARY[case]
    parts = [
        *parameters("x", 0.05, middle(dtype), dtype),
        *parameters("y", scale, middle(dtype), dtype),
    ]
    made = node(kind, ["x", "x_s", "x_z", "y_s", "y_z"], ["y"], domain=MICROSOFT, **attributes)
    sizes = {"mean": (1, 9, 1, 1), "average": (1, 3, 4, 4)}
    proto = model(
        [made],
        [value("x", KINDS[dtype], shape)],
        [value("y", KINDS[dtype], sizes.get(case, shape))],
        parts,
        domains=[MICROSOFT],
    )
    # ONNX Runtime's sums of windows and its softmax are rounded otherwise in a few more places.
    within(proto, integers(shape, dtype), share=0.05)


def test_joining() -> None:
    parts = [
        *parameters("y", 0.06, 100, "uint8"),
        *parameters("a", 0.05, 131, "uint8"),
        *parameters("b", 0.08, 90, "uint8"),
    ]
    names = ["y_s", "y_z", "a", "a_s", "a_z", "b", "b_s", "b_z"]
    proto = model(
        [node("QLinearConcat", names, ["y"], domain=MICROSOFT, axis=1)],
        [value("a", TensorProto.UINT8, (1, 3, 4)), value("b", TensorProto.UINT8, (1, 2, 4))],
        [value("y", TensorProto.UINT8, (1, 5, 4))],
        parts,
        domains=[MICROSOFT],
    )
    within(proto, integers((1, 3, 4), "uint8"), integers((1, 2, 4), "uint8"))


@pytest.mark.parametrize("constants", ["initializers", "Constant nodes", "Identity"])
def test_scales_may_come_from_anywhere(constants: str) -> None:
    proto = q_conv("uint8", "int8", False, True)
    kept = [t for t in proto.graph.initializer if t.name in ("w", "b")]
    moved = [t for t in proto.graph.initializer if t.name not in ("w", "b")]
    nodes = list(proto.graph.node)
    if constants == "Constant nodes":
        nodes = [*(node("Constant", [], [t.name], value=t) for t in moved), *nodes]
    elif constants == "Identity":
        nodes = [*(node("Identity", [f"{t.name}_0"], [t.name]) for t in moved), *nodes]
        for tensor in moved:
            tensor.name += "_0"
        kept += moved
    else:
        kept += moved
    proto = model(nodes, list(proto.graph.input), list(proto.graph.output), kept)
    within(proto, integers((1, 4, 8, 8), "uint8"))


# Integers as results


@pytest.mark.parametrize(("x_type", "w_type"), [("uint8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("zeros", [False, True])
def test_convinteger_is_exact(x_type: str, w_type: str, zeros: bool) -> None:
    # 40 * 9 products of up to 2**15 are more than a float32 holds.
    x, w = integers((1, 40, 6, 6), x_type), integers((3, 40, 3, 3), w_type)
    x[0, :, 2:5, 2:5], w[0] = np.iinfo(x_type).max, np.iinfo(w_type).max
    parts = [weight("w", w)]
    names = ["x", "w"]
    if zeros:
        parts += [weight("x_z", np.array(5, x_type)), weight("w_z", np.array(9, w_type))]
        names += ["x_z", "w_z"]
    proto = model(
        [node("ConvInteger", names, ["y"], pads=[1, 1, 1, 1], strides=[2, 2])],
        [value("x", KINDS[x_type], x.shape)],
        [value("y", TensorProto.INT32, None)],
        parts,
    )
    np.testing.assert_array_equal(quickly(tvmlab.load(proto), x)[0], by_onnx_reference(proto, x)[0])


def test_convinteger_with_zero_points_by_channel() -> None:
    """ONNX Runtime does not take these, ONNX does."""
    x, w, zeros = integers((1, 2, 4, 4), "uint8"), integers((3, 2, 1, 1), "int8"), [1, -2, 3]
    proto = model(
        [node("ConvInteger", ["x", "w", "", "w_z"], ["y"])],
        [value("x", TensorProto.UINT8, x.shape)],
        [value("y", TensorProto.INT32, None)],
        [weight("w", w), weight("w_z", np.array(zeros, "int8"))],
    )
    shifted = w[:, :, 0, 0].astype("int32") - np.array(zeros)[:, None]
    expected = np.einsum("oc,nchw->nohw", shifted, x.astype("int32"))
    np.testing.assert_array_equal(quickly(tvmlab.load(proto), x)[0], expected)


@pytest.mark.parametrize("zeros", ["none", "scalars", "columns"])
def test_matmulinteger_is_exact(zeros: str) -> None:
    a, b = integers((5, 600), "int8"), integers((600, 7), "uint8")
    a[0], b[:, 0] = 127, 255
    parts, names = [], ["a", "b"]
    if zeros != "none":
        columns = np.arange(7) if zeros == "columns" else np.array(7)
        parts = [weight("a_z", np.int8(3)), weight("b_z", columns.astype("uint8"))]
        names += ["a_z", "b_z"]
    proto = model(
        [node("MatMulInteger", names, ["y"])],
        [value("a", TensorProto.INT8, a.shape), value("b", TensorProto.UINT8, b.shape)],
        [value("y", TensorProto.INT32, (5, 7))],
        parts,
    )
    within(proto, a, b, steps=0)


@pytest.mark.parametrize("factor", [1.0, 0.0, -1.0], ids=["mixed", "zeros", "other sign"])
def test_dynamicquantizelinear(factor: float) -> None:
    x = (np.abs(array(3, 5)) if factor < 0 else array(3, 5)) * np.float32(factor)
    outputs = [value(n, TensorProto.UINT8, s) for n, s in (("q", x.shape), ("z", ()))]
    outputs.append(value("s", TensorProto.FLOAT, ()))
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    proto = model(nodes, {"x": x.shape}, outputs)
    for ours, theirs in zip(quickly(tvmlab.load(proto), x), by_onnx_runtime(proto, x), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


# What is refused


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x_s", np.float32(0), "scale of 0.0, not positive"),
        ("x_s", np.float32(-1), "scale of -1.0, not positive"),
        ("y_s", np.float32("nan"), "scale of nan, not positive"),
        ("w_s", np.float32("inf"), "scale of inf, not positive"),
        ("w_s", np.ones(4, "float32"), "4 scales for an axis of 6"),
        ("w_z", np.zeros(4, "int8"), "4 zero points for an axis of 6"),
    ],
)
def test_wrong_scales_and_zero_points(name: str, content: Any, match: str) -> None:
    proto = q_conv("uint8", "int8", True, True)
    for tensor in proto.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(weight(name, content))
    refused(proto, ModelError, match, "one_")


@pytest.mark.parametrize("kind", ["QLinearGlobalAveragePool", "QLinearAveragePool"])
def test_channels_last_is_refused(kind: str) -> None:
    parts = [*parameters("x", 0.05, 3, "int8"), *parameters("y", 0.05, 3, "int8")]
    more = {"kernel_shape": [2, 2]} if kind == "QLinearAveragePool" else {}
    made = node(
        kind, ["x", "x_s", "x_z", "y_s", "y_z"], ["y"], domain=MICROSOFT, channels_last=1, **more
    )
    inputs = [value("x", TensorProto.INT8, (1, 4, 4, 3))]
    proto = model(
        [made], inputs, [value("y", TensorProto.INT8, (2, 4))], parts, domains=[MICROSOFT]
    )
    refused(proto, UnsupportedOperatorError, f"{kind} with channels_last", f"{kind} giving ['y']")


def test_the_old_softmax_is_refused() -> None:
    parts = [*parameters("x", 0.05, 3, "int8"), *parameters("y", 0.05, 3, "int8")]
    names = ["x", "x_s", "x_z", "y_s", "y_z"]
    made = node("QLinearSoftmax", names, ["y"], domain=MICROSOFT, axis=1, opset=11)
    inputs = [value("x", TensorProto.INT8, (1, 4, 4, 3))]
    proto = model(
        [made], inputs, [value("y", TensorProto.INT8, (2, 4))], parts, domains=[MICROSOFT]
    )
    refused(proto, UnsupportedOperatorError, "before opset 13", "QLinearSoftmax giving ['y']")


def test_an_operator_that_is_not_written_out_is_named() -> None:
    parts = [*parameters("x", 0.05, 3, "int8"), *parameters("y", 0.05, 3, "int8")]
    names = ["x", "x_s", "x_z", "y_s", "y_z"]
    made = node("QLinearReduceMean", names, ["y"], name="mean", domain=MICROSOFT, axes=[1])
    inputs = [value("x", TensorProto.INT8, (2, 4))]
    proto = model(
        [made], inputs, [value("y", TensorProto.INT8, (2, 4))], parts, domains=[MICROSOFT]
    )
    refused(proto, UnsupportedOperatorError, "QLinearReduceMean", "in node 'mean'")
