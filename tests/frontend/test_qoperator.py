"""ONNX's quantized operators against ONNX Runtime: of each kind, and in branches.

Weights are square where an axis could be mistaken: a wrong one would fit, and give other numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvmlab
from tests.frontend.quantized_onnx import (
    KINDS,
    Value,
    close,
    integers,
    operator,
    parameters,
    refused,
    within,
)
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

UINT8 = TensorProto.UINT8
MIDDLE = {"uint8": 131, "int8": 3}
SCALES = np.array([0.01, 0.1, 0.02, 0.001], "float32")


def q_conv(dtype: str, kernel: str, by_channel: bool, bias: bool, **more: Any) -> onnx.ModelProto:
    shape, zero = (6, 4 // more.get("group", 1), 3, 3), 0 if kernel == "int8" else 128
    scales = 0.01 * (1 + np.arange(6)) if by_channel else 0.02
    operands = {
        "x": Value((1, 4, 8, 8), 0.05, MIDDLE[dtype], dtype),
        "w": Value(integers(shape, kernel, 3), scales, np.full_like(scales, zero), kernel),
        "b": Value(integers((6,), "int16", 4).astype("int32")),
    }
    y = Value(None, 0.9, MIDDLE[dtype] - 9, dtype)
    order = "xwyb" if bias else "xwy"
    return operator("QLinearConv", operands, y, order=order, name="one", pads=[1] * 4, **more)


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


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("by_channel", [False, True])
def test_qlinearmatmul(dtype: str, by_channel: bool) -> None:
    scales = 0.01 * (1 + np.arange(5)) if by_channel else np.array(0.02)
    a = Value((2, 3, 8), 0.05, MIDDLE[dtype], dtype)
    b = Value(integers((8, 5), "int8"), scales, np.zeros_like(scales), "int8")
    proto = operator("QLinearMatMul", {"a": a, "b": b}, Value(None, 0.5, 7, dtype))
    within(proto, integers((2, 3, 8), dtype))


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("quantized", [False, True])
def test_qgemm(transposed: int, by_channel: bool, quantized: bool) -> None:
    scales = 0.01 * (1 + np.arange(5)) if by_channel else np.array(0.02)
    shape = (5, 8) if transposed else (8, 5)
    operands = {
        "a": Value((3, 8), 0.05, 131),
        "b": Value(integers(shape, "int8"), scales, np.zeros_like(scales), "int8"),
        "c": Value(integers((5,), "int16").astype("int32")),
    }
    y = Value((3, 5), 0.9, 7) if quantized else Value((3, 5), dtype="float32")
    proto = operator("QGemm", operands, y, transB=transposed, alpha=1.5)
    within(proto, integers((3, 8), "uint8"), steps=1 if quantized else 1e-3, share=1)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("kind", ["QLinearAdd", "QLinearMul", "without zero points"])
def test_sums_and_products(kind: str, dtype: str) -> None:
    """ONNX Runtime's schema lets zero points be left out, its code wants them: zeros."""
    without, shape, low = kind.startswith("without"), (1, 3, 5, 5), MIDDLE[dtype]
    a, b, y = (
        Value(shape, scale, None if without else zero, dtype)
        for scale, zero in ((0.05, low), (0.03, low - 8), (0.07, low + 8))
    )
    inputs = [integers(shape, dtype, seed) for seed in (0, 1)]
    if not without:
        within(operator(kind, {"a": a, "b": b}, y), *inputs)
        return
    proto, told = (
        operator("QLinearAdd", {"a": p, "b": q}, r)
        for p, q, r in ((a, b, y), [one._replace(zero=0) for one in (a, b, y)])
    )
    (expected,) = by_onnx_runtime(told, *inputs)
    close(quickly(tvmlab.load(proto), *inputs)[0], expected, steps=1, share=0.02)


UNARY: dict[str, tuple[tuple[int, ...], float, dict[str, Any]]] = {
    "QLinearGlobalAveragePool": ((1, 9, 7, 6), 0.02, {"channels_last": 0}),
    "QLinearAveragePool": (
        *((1, 3, 7, 7), 0.04),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "QLinearAveragePool with padding": (
        *((1, 3, 7, 7), 0.04),
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "QLinearLeakyRelu": ((4, 60), 0.03, {"alpha": 0.1}),
    "QLinearSigmoid": ((4, 60), 1 / 256, {}),
    "QLinearSoftmax": ((4, 60), 1 / 256, {"axis": -1, "opset": 13}),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("case", UNARY)
def test_functions_of_one_tensor(case: str, dtype: str) -> None:
    shape, scale, attributes = UNARY[case]
    sizes = {"QLinearGlobalAveragePool": (1, 9, 1, 1), "QLinearAveragePool": (1, 3, 4, 4)}
    x = Value(shape, 0.05, MIDDLE[dtype], dtype)
    y = Value(sizes.get(case, shape), scale, MIDDLE[dtype], dtype)
    proto = operator(case.split()[0], {"x": x}, y, **attributes)
    # ONNX Runtime's sums of windows and its softmax are rounded otherwise in a few more places.
    within(proto, integers(shape, dtype), share=0.05)


def test_joining() -> None:
    a, b = Value((1, 3, 4), 0.05, 131), Value((1, 2, 4), 0.08, 90)
    y = Value((1, 5, 4), 0.06, 100)
    proto = operator("QLinearConcat", {"a": a, "b": b}, y, order="yab", axis=1)
    within(proto, integers((1, 3, 4), "uint8"), integers((1, 2, 4), "uint8"))


# Scales and zero points whose values or whose number the model does not say outright


@pytest.mark.parametrize("through", ["initializer", "Constant", "Identity", "Mul"])
@pytest.mark.parametrize(
    ("scales", "zeros", "dtype", "bias"),
    [
        (SCALES, np.zeros(4), "int8", False),
        (SCALES, np.zeros(4), "int8", True),
        (np.float32(0.01), np.array([10, 120, 200, 128]), "uint8", False),
        (np.float32(0.01), np.array(120), "uint8", True),
    ],
    ids=["by channel", "by channel and biased", "zero points by channel", "one"],
)
def test_scales_are_by_output_channel_wherever_they_come_from(
    through: str, scales: Any, zeros: Any, dtype: str, bias: bool
) -> None:
    kept = [weight("kept", scales), weight("one", np.float32(1))]
    first = {
        "initializer": [],
        "Constant": [node("Constant", [], ["w_s"], value=weight("w_s", scales))],
        "Identity": [node("Identity", ["kept"], ["w_s"])],
        "Mul": [node("Mul", ["kept", "one"], ["w_s"])],
    }[through]
    operands = {
        "x": Value((1, 4, 6, 6), 0.1, 7),
        "w": Value(integers((4, 4, 3, 3), dtype, 3), scales, zeros, dtype),
        "b": Value(np.array([10, -2000, 300, 4], "int32")),
    }
    order = "xwyb" if bias else "xwy"
    proto = operator("QLinearConv", operands, Value(None, 3.0, 7), kept, first, order)
    within(proto, integers((1, 4, 6, 6), "uint8"))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("many", [False, True])
def test_columns_of_a_product(rank: int, many: bool) -> None:
    shape, scales = (2, 4, 4)[-rank:], SCALES if many else np.float32(0.01)
    b = Value(integers((4, 4), "int8"), scales, np.zeros_like(scales), "int8")
    first, kept = [node("Identity", ["kept"], ["b_s"])], [weight("kept", scales)]
    operands = {"a": Value(shape, 0.1, 7), "b": b}
    proto = operator("QLinearMatMul", operands, Value(shape, 3.0, 7), kept, first)
    within(proto, integers(shape, "uint8"))


# Integers as results


@pytest.mark.parametrize(("x_type", "w_type"), [("uint8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("zeros", [False, True])
def test_convinteger_is_exact(x_type: str, w_type: str, zeros: bool) -> None:
    # 40 * 9 products of up to 2**15 are more than a float32 holds.
    x, w = integers((1, 40, 6, 6), x_type), integers((3, 40, 3, 3), w_type)
    x[0, :, 2:5, 2:5], w[0] = np.iinfo(x_type).max, np.iinfo(w_type).max
    points = [weight("x_z", np.array(5, x_type)), weight("w_z", np.array(9, w_type))] * zeros
    names = ["x", "w", *(point.name for point in points)]
    proto = model(
        [node("ConvInteger", names, ["y"], pads=[1, 1, 1, 1], strides=[2, 2])],
        [value("x", KINDS[x_type], x.shape)],
        [value("y", TensorProto.INT32, None)],
        [weight("w", w), *points],
    )
    np.testing.assert_array_equal(quickly(tvmlab.load(proto), x)[0], by_onnx_reference(proto, x)[0])


def test_convinteger_with_zero_points_by_channel() -> None:
    """ONNX Runtime does not take these, ONNX does."""
    x, w, zeros = integers((1, 2, 4, 4), "uint8"), integers((3, 2, 1, 1), "int8"), [1, -2, 3]
    proto = model(
        [node("ConvInteger", ["x", "w", "", "w_z"], ["y"])],
        [value("x", UINT8, x.shape)],
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
    columns = np.arange(7) if zeros == "columns" else np.array(7)
    points = [weight("a_z", np.int8(3)), weight("b_z", columns.astype("uint8"))]
    points = [] if zeros == "none" else points
    proto = model(
        [node("MatMulInteger", ["a", "b", *(point.name for point in points)], ["y"])],
        [value("a", TensorProto.INT8, a.shape), value("b", UINT8, b.shape)],
        [value("y", TensorProto.INT32, (5, 7))],
        points,
    )
    within(proto, a, b, steps=0)


@pytest.mark.parametrize("factor", [1.0, 0.0, -1.0], ids=["mixed", "zeros", "other sign"])
def test_dynamicquantizelinear(factor: float) -> None:
    x = (np.abs(array(3, 5)) if factor < 0 else array(3, 5)) * np.float32(factor)
    outputs = [value(n, UINT8, s) for n, s in (("q", x.shape), ("z", ()))]
    outputs.append(value("s", TensorProto.FLOAT, ()))
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    proto = model(nodes, {"x": x.shape}, outputs)
    for ours, theirs in zip(quickly(tvmlab.load(proto), x), by_onnx_runtime(proto, x), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


# Branches


def choice(then: list[Any], otherwise: list[Any], parts: list[Any]) -> onnx.ModelProto:
    """A model of two branches, each of which makes "t" of the outer "x"."""
    both = [
        helper.make_graph(nodes, "branch", [], [value("t", UINT8, (1, 4, 4, 4))])
        for nodes in (then, otherwise)
    ]
    made = node("If", ["c"], ["y"], then_branch=both[0], else_branch=both[1])
    inputs = [value("x", UINT8, (1, 4, 6, 6)), value("c", TensorProto.BOOL, ())]
    return model([made], inputs, [value("y", UINT8, (1, 4, 4, 4))], parts)


def branches(scale: float = 0.02) -> onnx.ModelProto:
    """A convolution in either branch, with scales of its own."""
    parts = [*parameters("x", 0.1, 7, "uint8"), *parameters("y", 3.0, 7, "uint8")]
    both = []
    for seed, (name, own) in enumerate((("v", 0.01), ("w", scale)), start=3):
        parts += [
            *parameters(name, own, 0, "int8"),
            weight(name, integers((4, 4, 3, 3), "int8", seed)),
        ]
        names = ["x", "x_s", "x_z", name, f"{name}_s", f"{name}_z", "y_s", "y_z"]
        both.append([node("QLinearConv", names, ["t"], name=f"in {name}")])
    return choice(*both, parts)


@pytest.mark.parametrize("way", [True, False])
def test_operators_in_branches_are_written_out(way: bool) -> None:
    proto, inputs = branches(), (integers((1, 4, 6, 6), "uint8"), np.array(way))
    (expected,) = by_onnx_reference(proto, *inputs)
    close(quickly(tvmlab.load(proto), *inputs)[0], expected, steps=1, share=0.02)


# What is refused


def changed(name: str, content: Any) -> onnx.ModelProto:
    proto = q_conv("uint8", "int8", True, True)
    for tensor in proto.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(weight(name, content))
    return proto


def unary(kind: str, **attributes: Any) -> onnx.ModelProto:
    x, y = Value((1, 4, 4, 3), 0.05, 3, "int8"), Value((2, 4), 0.05, 3, "int8")
    return operator(kind, {"x": x}, y, **attributes)


def quantize(scale: Any, zero: Any, shape: tuple[int, ...] = (2, 3, 4), **more: Any) -> Any:
    zero = zero if isinstance(zero, TensorProto) else weight("z", np.asarray(zero))
    made = node("QuantizeLinear", ["x", "s", "z"], ["q"], name="the one", **more)
    parts, out = (
        [weight("s", np.asarray(scale, "float32")), zero],
        value("q", zero.data_type, shape),
    )
    return model([made], {"x": shape}, [out], parts, opset=21, ir_version=10)


def turned() -> onnx.ModelProto:
    lengths = weight("lengths", np.full(4, 1, "int64"))
    made = node("ReverseSequence", ["x", "lengths"], ["t"], name="turned")
    return choice([made], [node("Identity", ["x"], ["t"])], [lengths])


EIGHTS = np.zeros((2, 3, 2), "int8")
REFUSED: list[tuple[onnx.ModelProto, type[ModelError], str, str]] = [
    (changed("x_s", np.float32(0)), ModelError, "scale of 0.0, not positive", "one_"),
    (changed("x_s", np.float32(-1)), ModelError, "scale of -1.0, not positive", "one_"),
    (changed("y_s", np.float32("nan")), ModelError, "scale of nan, not positive", "one_"),
    (changed("w_s", np.float32("inf")), ModelError, "scale of inf, not positive", "one_"),
    (changed("w_s", np.ones(4, "float32")), ModelError, "4 scales for an axis of 6", "one_"),
    (changed("w_z", np.zeros(4, "int8")), ModelError, "4 zero points for an axis of 6", "one_"),
    (branches(scale=-1.0), ModelError, "a scale of -1.0", "in w_w_dequantized"),
    *(
        (
            *(unary(kind, channels_last=1, **more), UnsupportedOperatorError),
            *(f"{kind} with channels_last", f"{kind} giving ['y']"),
        )
        for kind, more in (
            ("QLinearGlobalAveragePool", {}),
            ("QLinearAveragePool", {"kernel_shape": [2, 2]}),
        )
    ),
    (
        *(unary("QLinearSoftmax", axis=1, opset=11), UnsupportedOperatorError),
        *("before opset 13", "QLinearSoftmax giving ['y']"),
    ),
    (
        *(unary("QLinearReduceMean", name="mean", axes=[1]), UnsupportedOperatorError),
        *("QLinearReduceMean", "in node 'mean'"),
    ),
    (turned(), UnsupportedOperatorError, "ONNX operator ReverseSequence", "in node 'turned'"),
    (
        *(quantize(np.ones(3), np.zeros(3, "int8"), axis=3), ModelError),
        *("axis 3 of a tensor with 3 dimensions", "QuantizeLinear in node 'the"),
    ),
    (
        *(quantize(np.ones(3), np.zeros(2, "int8"), (2, 3), axis=-1), ModelError),
        *("2 zero points for an axis of 3", "node 'the one'"),
    ),
    (
        *(quantize(np.ones((2, 3, 2)), EIGHTS, axis=2, block_size=2), UnsupportedOperatorError),
        *("QuantizeLinear by blocks", "node 'the one'"),
    ),
    *(
        (
            *(quantize(1.0, helper.make_tensor("z", getattr(TensorProto, name), [], [0])),),
            *(UnsupportedOperatorError, f"QuantizeLinear of {name.lower()}", "supported are int8"),
        )
        for name in ("INT4", "UINT4", "FLOAT8E4M3FN")
    ),
]


@pytest.mark.parametrize(("proto", "kind", "match", "place"), REFUSED)
def test_a_model_that_cannot_be_right_is_refused(
    proto: onnx.ModelProto, kind: type[ModelError], match: str, place: str
) -> None:
    refused(proto, kind, match, place)
