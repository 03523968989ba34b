"""Quantized ONNX models against ONNX Runtime: QDQ, QOperator, and operators on integers.

Weights are square where an axis could be mistaken: a wrong one would fit, and give other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

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
from tvmlab.errors import ModelError, UnsupportedOperatorError

MICROSOFT = "com.microsoft"
KINDS = {
    "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8,
    "int16": TensorProto.INT16,
    "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32,
    "float32": TensorProto.FLOAT,
}


class Value(NamedTuple):
    """A tensor with its scale and zero point: an input by its shape, or a constant by its values.

    Without a scale it is an operand by itself; with the zero point None that is left out.
    """

    content: Any
    scale: Any = None
    zero: Any = None
    dtype: str = "uint8"


def integers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers of all of a type's range."""
    info = np.iinfo(dtype)
    random = np.random.default_rng([seed, *shape])
    return random.integers(info.min, info.max, shape, dtype, endpoint=True)


def parameters(name: str, scale: Any, zero: Any, dtype: str) -> list[Any]:
    """A scale and a zero point as initializers, ``NAME_s`` and ``NAME_z``."""
    scales = weight(f"{name}_s", np.asarray(scale, "float32"))
    return [scales, weight(f"{name}_z", np.asarray(zero, dtype))]


def operator(
    kind: str,
    operands: dict[str, Value],
    y: Value,
    more: Sequence[Any] = (),
    first: Sequence[Any] = (),
    order: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """Write one operator of several values; its operands come in the order of their names.

    `more` are initializers that other nodes, `first`, read; `order` is of names, ``"y"`` among
    them, where the result's scale does not come last.
    """
    names, parts, inputs = [], [*more], []
    known = {tensor.name for tensor in more} | {name for one in first for name in one.output}
    for name in order or (*operands, "y"):
        one = y if name == "y" else operands[name]
        if name != "y":
            names.append(name)
            if isinstance(one.content, tuple):
                inputs.append(value(name, KINDS[one.dtype], one.content))
            else:
                parts.append(weight(name, one.content))
        if one.scale is None:
            continue
        names += [f"{name}_s", "" if one.zero is None else f"{name}_z"]
        given = parameters(name, one.scale, 0 if one.zero is None else one.zero, one.dtype)
        parts += [tensor for tensor in given if tensor.name not in known]
    domain = "" if kind in ("QLinearConv", "QLinearMatMul", "QuantizeLinear") else MICROSOFT
    made = node(kind, names, ["y"], domain=domain, **attributes)
    out = [value("y", KINDS[y.dtype], y.content)]
    return model([*first, made], inputs, out, parts, domains=[domain] * bool(domain))


def within(
    proto: onnx.ModelProto, *inputs: np.ndarray, steps: float = 1, share: float = 0.02
) -> Any:
    """Compare with ONNX Runtime: integers differ by a step in few places at most."""
    before = proto.SerializeToString()
    mod = tvmlab.load(proto)
    assert proto.SerializeToString() == before, "the user's model is changed"
    close(quickly(mod, *inputs)[0], by_onnx_runtime(proto, *inputs)[0], steps, share)
    return mod


def close(result: np.ndarray, expected: np.ndarray, steps: float, share: float) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert len(np.unique(expected)) > 1
    difference = np.abs(result.astype("float64") - expected.astype("float64"))
    assert difference.max() <= steps
    assert (difference > 0).sum() <= max(2, share * difference.size) * bool(steps)


# QuantizeLinear and DequantizeLinear


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
    within(model(nodes, {"x": x.shape}, q, parameters("x", 1, 3, "int8")), x, steps=0)


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


# QOperator

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
    pads = {} if "auto_pad" in more else {"pads": [1] * 4}
    return operator("QLinearConv", operands, y, order=order, name="one", **pads, **more)


@pytest.mark.parametrize(
    ("dtype", "kernel", "by_channel", "bias", "more"),
    [
        ("uint8", "int8", True, True, {}),
        ("uint8", "int8", False, True, {"strides": [2, 2]}),
        ("int8", "int8", True, True, {"group": 2}),
        ("int8", "int8", True, False, {"dilations": [2, 2]}),
        ("uint8", "uint8", False, True, {}),
        ("uint8", "int8", True, True, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ("int8", "int8", True, False, {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
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
    """A convolution in either branch, with scales of its own, by channel in the first."""
    parts = [*parameters("x", 0.1, 7, "uint8"), *parameters("y", 3.0, 7, "uint8")]
    both = []
    for seed, (name, own) in enumerate((("v", SCALES), ("w", scale)), start=3):
        parts += [
            *parameters(name, own, np.zeros_like(own), "int8"),
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


ONE = "QLinearConv in node 'one'"
WRONG: list[tuple[onnx.ModelProto, str, str]] = [
    (changed("x_s", np.float32(-1)), "scale of -1.0, not positive", ONE),
    (changed("y_s", np.float32("nan")), "scale of nan, not positive", ONE),
    (changed("w_z", np.zeros(4, "int8")), "4 zero points for an axis of 6", ONE),
    (branches(scale=-1.0), "a scale of -1.0", "in node 'in w'"),
    (quantize(np.ones(3), np.zeros(3, "int8"), axis=3), "axis 3 of a tensor with 3", "'the one'"),
]
MEAN = unary("QLinearReduceMean", name="mean", axes=[1])
POOL = unary("QLinearAveragePool", channels_last=1, kernel_shape=[2, 2])
BLOCKS = quantize(np.ones((2, 3, 2)), np.zeros((2, 3, 2), "int8"), axis=2, block_size=2)
UNSUPPORTED: list[tuple[onnx.ModelProto, str, str]] = [
    (POOL, "QLinearAveragePool with channels_last", "giving ['y']"),
    (unary("QLinearSoftmax", axis=1, opset=11), "before opset 13", "giving ['y']"),
    (MEAN, "QLinearReduceMean", "in node 'mean'"),
    (BLOCKS, "QuantizeLinear by blocks", "node 'the one'"),
    *(
        (
            quantize(1.0, helper.make_tensor("z", getattr(TensorProto, name), [], [0])),
            *(f"QuantizeLinear of {name[:6].lower()}", "supported are int8"),
        )
        for name in ("INT4", "FLOAT8E4M3FN")
    ),
]


@pytest.mark.parametrize(
    ("kind", "proto", "match", "place"),
    [(ModelError, *row) for row in WRONG]
    + [(UnsupportedOperatorError, *row) for row in UNSUPPORTED],
)
def test_a_model_that_cannot_be_right_is_refused(
    kind: type[ModelError], proto: onnx.ModelProto, match: str, place: str
) -> None:
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(proto)
    assert type(caught.value) is kind
    assert place in said(caught.value)
