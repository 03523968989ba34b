"""Quantized ONNX models against ONNX Runtime: QDQ, QOperator, and operators on integers.

Weights are square where an axis could be mistaken: a wrong one would fit, and give other numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvmlab
from tests.oracles.models import (
    array,
    by_onnx_reference,
    by_onnx_runtime,
    model,
    node,
    quickly,
    said,
    value,
    weight,
)
from tests.oracles.onnx_qnn import Value, close, integers, kind_of, operator, parameters, within
from tvmlab.errors import ModelError, UnsupportedOperatorError

UINT8, INT32, FLOAT = TensorProto.UINT8, TensorProto.INT32, TensorProto.FLOAT
MIDDLE = {"uint8": 131, "int8": 3}
SCALES = np.array([0.01, 0.1, 0.02, 0.001], "float32")


# QuantizeLinear and DequantizeLinear


def there_and_back(
    x: np.ndarray, cases: list[tuple[str, Any, dict[str, int]]], opset: int = 17
) -> None:
    """Quantize and dequantize one input in several ways; all results are ONNX Runtime's."""
    nodes, parts, outputs = [], [], []
    for i, (dtype, scale, named) in enumerate(cases):
        zeros = 7 + np.arange(scale.size).reshape(scale.shape)
        parts += parameters(f"p{i}", scale, zeros, dtype)
        names = [f"p{i}_s", f"p{i}_z"]
        nodes.append(node("QuantizeLinear", ["x", *names], [f"q{i}"], **named))
        nodes.append(node("DequantizeLinear", [f"q{i}", *names], [f"y{i}"], **named))
        outputs += [value(f"q{i}", kind_of(dtype), x.shape), value(f"y{i}", FLOAT, x.shape)]
    within(model(nodes, {"x": x.shape}, outputs, parts, opset=opset, ir_version=10), x, steps=0)


@pytest.mark.parametrize("opset", [10, 13, 21])
def test_quantize_and_dequantize(opset: int) -> None:
    """With one scale, and from opset 13 on along every axis and the default one."""
    x = array(2, 3, 4) * 50
    dtypes = ["int8", "uint8", *(["int16", "uint16"] if opset >= 21 else [])]
    axes: list[dict[str, int]] = [{}, *({"axis": axis} for axis in (0, 1, 2, -1))]
    cases = [(dtype, np.array(0.37), {}) for dtype in dtypes] + [
        (dtype, 0.1 * (1 + np.arange(x.shape[named.get("axis", 1)])), named)
        for named in axes * (opset >= 13)
        for dtype in ("int8", "uint8")
    ]
    there_and_back(x, cases, opset)


def test_ties_large_values_and_scales_of_one_number() -> None:
    ties = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1e30, -1e30, 200, -200], "float32")
    there_and_back(ties, [("int8", np.array(1.0), {})])
    for x in (array(), array(3)):
        there_and_back(x, [("int8", np.full(shape, 0.1), {}) for shape in ((), (1,))])


def test_without_a_zero_point_a_quantize_makes_uint8() -> None:
    x = array(2, 3) * 100
    nodes = [node("QuantizeLinear", ["x", "s"], ["q"]), node("DequantizeLinear", ["q", "s"], ["y"])]
    proto = model(nodes, {"x": x.shape}, ["y"], [weight("s", np.float32(1.5))])
    assert "uint8" in within(proto, x, steps=0).script()


def test_a_bias_of_int32() -> None:
    nodes = [node("DequantizeLinear", ["b", "s"], ["y"], axis=0)]
    proto = model(nodes, [value("b", INT32, (4,))], ["y"], [weight("s", SCALES)])
    within(proto, integers((4,), "int32"), steps=0)


# QOperator; scales can be computed from others, or be one for several zero points

THROUGH = {
    "initializer": [],
    "Constant": [node("Constant", [], ["w_s"], value=weight("w_s", SCALES))],
    "Identity": [node("Identity", ["kept"], ["w_s"])],
    "Mul": [node("Mul", ["kept", "one"], ["w_s"])],
}


def q_conv(
    dtype: str = "uint8",
    kernel: str = "int8",
    scales: Any = SCALES,
    zeros: Any = 0,
    through: str = "initializer",
    bias: bool = True,
    **more: Any,
) -> onnx.ModelProto:
    shape = (4, 4 // more.get("group", 1), 3, 3)
    operands = {
        "x": Value((1, 4, 8, 8), 0.05, MIDDLE[dtype], dtype),
        "w": Value(integers(shape, kernel, 3), scales, zeros + np.zeros_like(scales), kernel),
        "b": Value(integers((4,), "int16", 4).astype("int32")),
    }
    kept = [weight("kept", scales), weight("one", np.float32(1))]
    more = {"order": "xwyb" if bias else "xwy", "name": "one", **more}
    y = Value(None, 1.4, MIDDLE[dtype] - 9, dtype)
    return operator("QLinearConv", operands, y, kept, THROUGH[through], **more)


ONE = np.float32(0.02)
ZEROS = np.array([10, 120, 200, 128])


@pytest.mark.parametrize(
    "how",
    [
        {"pads": [1] * 4},
        {"scales": ONE, "strides": [2, 2]},
        {"dtype": "int8", "group": 2},
        {"dtype": "int8", "bias": False, "dilations": [2, 2]},
        {"kernel": "uint8", "scales": ONE, "zeros": 128, "pads": [1] * 4},
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"dtype": "int8", "bias": False, "strides": [2, 2], "auto_pad": "SAME_LOWER"},
        *({"through": through, "bias": False} for through in THROUGH),
        *({"through": through} for through in THROUGH),
        *(
            {"kernel": "uint8", "scales": ONE, "zeros": zeros, "through": through, "bias": bias}
            for through in ("initializer", "Identity", "Mul")
            for zeros, bias in ((ZEROS, False), (120, True))
        ),
    ],
    ids=str,
)
def test_qlinearconv(how: dict[str, Any]) -> None:
    text = within(q_conv(**how), integers((1, 4, 8, 8), how.get("dtype", "uint8"))).script()
    assert text.count("R.quantize(") == 1
    assert text.count("R.dequantize(") == 2 + how.get("bias", True)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("many", [False, True])
def test_qlinearmatmul(rank: int, many: bool, dtype: str) -> None:
    shape, scales = (2, 4, 4)[-rank:], SCALES if many else ONE
    b = Value(integers((4, 4), "int8"), scales, np.zeros_like(scales), "int8")
    operands = {"a": Value(shape, 0.1, MIDDLE[dtype], dtype), "b": b}
    first, kept = THROUGH["Identity" if dtype == "uint8" else "initializer"], weight("kept", scales)
    y = Value(shape, 3.0, 7, dtype)
    within(operator("QLinearMatMul", operands, y, [kept], first), integers(shape, dtype))


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


SHAPE, ROWS, POOLED = (1, 3, 5, 5), (4, 60), (1, 3, 7, 7)
WINDOW: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
#: Operands' shapes, and the result's shape, scale and attributes.
FUNCTIONS: dict[str, tuple[list[Any], Any, float, dict[str, Any]]] = {
    "QLinearAdd": ([SHAPE, SHAPE], SHAPE, 0.07, {}),
    "QLinearMul": ([SHAPE, SHAPE], SHAPE, 0.07, {}),
    "QLinearConcat": ([(1, 3, 4), (1, 2, 4)], (1, 5, 4), 0.06, {"axis": 1, "order": "yab"}),
    "QLinearGlobalAveragePool": ([(1, 9, 7, 6)], (1, 9, 1, 1), 0.02, {"channels_last": 0}),
    "QLinearAveragePool": ([POOLED], (1, 3, 4, 4), 0.04, {**WINDOW, "strides": [2, 2]}),
    "QLinearAveragePool padded": ([POOLED], POOLED, 0.04, {**WINDOW, "count_include_pad": 1}),
    "QLinearLeakyRelu": ([ROWS], ROWS, 0.03, {"alpha": 0.1}),
    "QLinearSigmoid": ([ROWS], ROWS, 1 / 256, {}),
    "QLinearSoftmax": ([ROWS], ROWS, 1 / 256, {"axis": -1, "opset": 13}),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("case", FUNCTIONS)
def test_functions_of_scales_of_their_own(case: str, dtype: str) -> None:
    shapes, shape, scale, attributes = FUNCTIONS[case]
    operands = {
        name: Value(given, 0.05 - 0.02 * i, MIDDLE[dtype] - 8 * i, dtype)
        for i, (name, given) in enumerate(zip("ab", shapes, strict=False))
    }
    y = Value(shape, scale, MIDDLE[dtype] + 8 * (len(shapes) > 1), dtype)
    proto = operator(case.split()[0], operands, y, **attributes)
    inputs = [integers(given, dtype, seed) for seed, given in enumerate(shapes)]
    # ONNX Runtime's sums of windows and its softmax are rounded otherwise in a few more places.
    within(proto, *inputs, share=0.02 if len(shapes) > 1 else 0.05)


def test_a_sum_without_zero_points() -> None:
    """ONNX Runtime's schema lets zero points be left out, its code wants them: zeros."""
    inputs = [integers(SHAPE, "int8", seed) for seed in (0, 1)]
    without, told = (
        operator("QLinearAdd", {"a": values[0], "b": values[1]}, values[2])
        for zero in (None, 0)
        for values in [[Value(SHAPE, scale, zero, "int8") for scale in (0.05, 0.03, 0.07)]]
    )
    (expected,) = by_onnx_runtime(told, *inputs)
    close(quickly(tvmlab.load(without), *inputs)[0], expected, steps=1, share=0.02)


# Integers as results


@pytest.mark.parametrize(("x_type", "w_type"), [("uint8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("zeros", ["none", "scalars", "channels"])
def test_convinteger_is_exact(x_type: str, w_type: str, zeros: str) -> None:
    # 40 * 9 products of up to 2**15 are more than a float32 holds.
    x, w = integers((1, 40, 6, 6), x_type), integers((3, 40, 3, 3), w_type)
    x[0, :, 2:5, 2:5], w[0] = np.iinfo(x_type).max, np.iinfo(w_type).max
    each = np.array([9, 1, 3] if zeros == "channels" else 9, w_type)
    points = [weight("x_z", np.array(5, x_type)), weight("w_z", each)] * (zeros != "none")

    def convolution(x: np.ndarray, w: np.ndarray, points: list[Any]) -> onnx.ModelProto:
        names = ["x", "w", *(point.name for point in points)]
        nodes = [node("ConvInteger", names, ["y"], pads=[1, 1, 1, 1], strides=[2, 2])]
        inputs = [value("x", kind_of(x.dtype.name), x.shape)]
        return model(nodes, inputs, [value("y", INT32, None)], [weight("w", w), *points])

    (result,) = quickly(tvmlab.load(convolution(x, w, points)), x)
    if zeros == "channels":  # neither ONNX Runtime nor ONNX's reference takes these
        rows = []
        for one in range(3):
            scalars = [points[0], weight("w_z", each[one])]
            rows += by_onnx_reference(convolution(x, w[one : one + 1], scalars), x)
        expected = np.concatenate(rows, axis=1)
    else:
        (expected,) = by_onnx_reference(convolution(x, w, points), x)
    np.testing.assert_array_equal(result, expected)


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
        [value("y", INT32, (5, 7))],
        points,
    )
    within(proto, a, b, steps=0)


@pytest.mark.parametrize("factor", [1.0, 0.0, -1.0], ids=["mixed", "zeros", "other sign"])
def test_dynamicquantizelinear(factor: float) -> None:
    x = (np.abs(array(3, 5)) if factor < 0 else array(3, 5)) * np.float32(factor)
    outputs = [value("q", UINT8, x.shape), value("s", FLOAT, ()), value("z", UINT8, ())]
    proto = model([node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])], {"x": x.shape}, outputs)
    for ours, theirs in zip(quickly(tvmlab.load(proto), x), by_onnx_runtime(proto, x), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def branches(scale: float = 0.02) -> onnx.ModelProto:
    """A convolution in either branch, with scales of its own, by channel in the first."""
    parts = [*parameters("x", 0.1, 7, "uint8"), *parameters("y", 3.0, 7, "uint8")]
    out, both = value("t", UINT8, (1, 4, 4, 4)), []
    for seed, (name, own) in enumerate((("v", SCALES), ("w", scale)), start=3):
        parts += parameters(name, own, np.zeros_like(own), "int8")
        parts.append(weight(name, integers((4, 4, 3, 3), "int8", seed)))
        names = ["x", "x_s", "x_z", name, f"{name}_s", f"{name}_z", "y_s", "y_z"]
        made = node("QLinearConv", names, ["t"], name=f"in {name}")
        both.append(helper.make_graph([made], "branch", [], [out]))
    chosen = node("If", ["c"], ["y"], then_branch=both[0], else_branch=both[1])
    inputs = [value("x", UINT8, (1, 4, 6, 6)), value("c", TensorProto.BOOL, ())]
    return model([chosen], inputs, [value("y", UINT8, (1, 4, 4, 4))], parts)


@pytest.mark.parametrize("way", [True, False])
def test_operators_in_branches_are_written_out(way: bool) -> None:
    proto, inputs = branches(), (integers((1, 4, 6, 6), "uint8"), np.array(way))
    (expected,) = by_onnx_reference(proto, *inputs)
    close(quickly(tvmlab.load(proto), *inputs)[0], expected, steps=1, share=0.02)


# What is refused


def unary(kind: str, **attributes: Any) -> onnx.ModelProto:
    x, y = Value((1, 4, 4, 3), 0.05, 3, "int8"), Value((2, 4), 0.05, 3, "int8")
    return operator(kind, {"x": x}, y, name="one", **attributes)


def quantize(scale: Any, zero: Any, **more: Any) -> Any:
    zero = weight("z", np.asarray(zero))
    made, shape = node("QuantizeLinear", ["x", "s", "z"], ["q"], name="one", **more), (2, 3, 4)
    parts = [weight("s", np.asarray(scale, "float32")), zero]
    out = value("q", zero.data_type, shape)
    return model([made], {"x": shape}, [out], parts, opset=21, ir_version=10)


POOL = {"channels_last": 1, "kernel_shape": [2, 2]}
REFUSED: list[tuple[type[ModelError], onnx.ModelProto, str, str]] = [
    (ModelError, q_conv(scales=np.float32("nan")), "scale of nan, not positive", "'one'"),
    (ModelError, q_conv(scales=SCALES[:3]), "3 scales for an axis of 4", "QLinearConv in node"),
    (ModelError, branches(scale=-1.0), "a scale of -1.0", "in node 'in w'"),
    (ModelError, quantize(np.ones(3), np.zeros(3, "int8"), axis=3), "axis 3 of a", "'one'"),
    (ModelError, quantize(-1.0, np.array(0, "int4")), "a scale of -1.0", "'one'"),
    *(
        (UnsupportedOperatorError, proto, match, "'one'")
        for proto, match in (
            (unary("QLinearAveragePool", **POOL), "QLinearAveragePool with channels_last"),
            (unary("QLinearSoftmax", axis=1, opset=11), "before opset 13"),
            (unary("QLinearReduceMean", axes=[1]), "QLinearReduceMean"),
        )
    ),
]


@pytest.mark.parametrize(("kind", "proto", "match", "place"), REFUSED)
def test_a_model_that_cannot_be_right_is_refused(
    kind: type[ModelError], proto: onnx.ModelProto, match: str, place: str
) -> None:
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(proto)
    assert type(caught.value) is kind
    assert place in said(caught.value)
