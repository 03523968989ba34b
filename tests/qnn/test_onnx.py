"""The rounding "ONNX" against ONNX Runtime itself, bit for bit.

Its kernels for x86 are meant; those for ARM add in fixed point. ONNX Runtime's optimizations make
QLinearAveragePool of each pool, which adds rounded real numbers, so that the order of the sum shows
in the integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper, shape_inference

import tvmlab
from tests.oracles.models import by_onnx_runtime
from tests.oracles.onnx_qnn import x86
from tests.qnn.cases import Case, module
from tests.qnn.run import run
from tests.short import fresh
from tvmlab.qnn import arithmetic
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

SIZE = (9, 32)  # a row is two vectors wide


def pools(
    rng: np.random.Generator, kind: str, channels: int, count: int, beyond: bool = False
) -> ModelProto:
    """Make a model of pools side by side, each between a dequantize and a quantize of its own.

    Where padding counts, `beyond` lets the last windows reach beyond it.
    """
    ends, nodes, constants, results = np.iinfo(kind), [], [], []
    dtype = getattr(TensorProto, kind.upper())

    def point(name: str, scale: float) -> list[str]:
        zero = rng.integers(ends.min, ends.max, dtype=kind, endpoint=True)
        for part, value in (("s", np.float32(scale)), ("z", zero)):
            constants.append(numpy_helper.from_array(np.asarray(value), f"{name}_{part}"))
        return [f"{name}_s", f"{name}_z"]

    for i in range(count):
        window = [int(rng.integers(1, 6)), int(rng.choice((1, 2, 3, 5, SIZE[1])))]
        window = list(SIZE) if rng.random() < 0.05 else window
        pads = [int(rng.integers(0, min(n, 4))) for n in (*window, *window)]
        pads = [0] * 4 if rng.random() < 0.4 else pads
        strides, counted = [int(n) for n in rng.integers(1, 4, 2)], int(rng.integers(2))
        ceil = int(rng.integers(2)) if beyond or not counted else 0
        if ceil:  # no window starts after the image: ONNX's and ONNX Runtime's shapes differ then
            strides, pads = list(map(min, strides, window)), [*pads[:2], 0, 0]
        attributes: dict[str, Any] = {
            "kernel_shape": window,
            "strides": strides,
            "pads": pads,
            "count_include_pad": counted,
            "ceil_mode": ceil,
        }
        scales = rng.uniform(0.02, 0.1, 2)
        if rng.random() < 0.7:  # many averages lie half-way, but for the roundings of the sum
            scales[1] = scales[0] * rng.choice((1, 0.5, 0.25))
        names = [f"{part}{i}" for part in ("real", "mean", "result")]
        nodes += [
            helper.make_node("DequantizeLinear", ["x", *point(f"x{i}", scales[0])], [names[0]]),
            helper.make_node("AveragePool", [names[0]], [names[1]], **attributes),
            helper.make_node("QuantizeLinear", [names[1], *point(f"y{i}", scales[1])], [names[2]]),
        ]
        results.append(helper.make_tensor_value_info(names[2], dtype, None))
    image = helper.make_tensor_value_info("x", dtype, (1, channels, *SIZE))
    graph = helper.make_graph(nodes, "pools", [image], results, constants)
    sets = [helper.make_opsetid("", 21 if kind == "int16" else 17)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return shape_inference.infer_shapes(model)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(("channels", "count", "compiled"), [(3, 120, False), (64, 16, True)])
def test_windows_are_averaged_as_onnx_runtime_does(
    kind: str, channels: int, count: int, compiled: bool
) -> None:
    rng = np.random.default_rng([fresh(0), channels, kind == "int8"])
    model, ends = pools(rng, kind, channels, count), np.iinfo(kind)
    image = rng.integers(ends.min, ends.max, (1, channels, *SIZE), kind, endpoint=True)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": image})
    integer = FakeQuantizationToInteger()(tvmlab.load(model))
    assert not float_operators(integer)
    found = [run(integer, image)[0]]
    if compiled:
        found += [tvmlab.compile(integer, schedule=schedule)(image) for schedule in (True, False)]
    for each in found:
        for node, one, other in zip(model.graph.node[1::3], each, wanted, strict=True):
            assert np.array_equal(one, other), node


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16"])
def test_what_onnx_runtime_averages_in_float_is_one_step_away_at_most(kind: str) -> None:
    """For int16, and where QLinearAveragePool counts places that ONNX does not count."""
    rng = np.random.default_rng([fresh(1), len(kind)])
    model, ends = pools(rng, kind, 3, 120, beyond=True), np.iinfo(kind)
    image = rng.integers(ends.min, ends.max, (1, 3, *SIZE), kind, endpoint=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    integer = FakeQuantizationToInteger()(tvmlab.load(model))
    assert not float_operators(integer)
    got, wanted = run(integer, image)[0], session.run(None, {"x": image})
    for node, one, other in zip(model.graph.node[1::3], got, wanted, strict=True):
        assert np.max(np.abs(one.astype(int) - other)) <= 1, node


pytestmark = x86
Points = tuple[float, int, float, int, float, int]
scales = st.floats(1 / 256, 0.25, width=32)
zeros = st.integers(0, 255)
EVERY = np.arange(256, dtype=np.uint8)
# Each pair of two 8-bit numbers.
LEFT, RIGHT = np.repeat(EVERY, 256), np.tile(EVERY, 256)


def by_nodes(
    nodes: list[Any], feed: dict[str, np.ndarray], constants: dict[str, Any], opset: int = 17
) -> Any:
    """Run nodes in ONNX Runtime; what the last one gives is the result."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feed.items()
    ]
    kind = inputs[0].type.tensor_type.elem_type if opset > 17 else TensorProto.UINT8
    output = helper.make_tensor_value_info(nodes[-1].output[0], kind, None)
    made = [numpy_helper.from_array(np.asarray(each), name) for name, each in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [output], made)
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return by_onnx_runtime(model, *feed.values())[0]


@pytest.mark.parametrize("name", ["add", "mul"])
@settings(max_examples=12)
@given(points=st.tuples(scales, zeros, scales, zeros, scales, zeros))
def test_every_sum_and_product_of_two_bytes(name: str, points: Points) -> None:
    words = ("a_scale", "a_zero", "b_scale", "b_zero", "c_scale", "c_zero")
    kinds = (np.float32, np.uint8) * 3
    constants = {
        word: np.array(value, kind) for word, value, kind in zip(words, points, kinds, strict=True)
    }
    node = helper.make_node(
        f"QLinear{name.title()}", ["a", *words[:2], "b", *words[2:]], ["c"], domain="com.microsoft"
    )
    wanted = by_nodes([node], {"a": LEFT, "b": RIGHT}, constants)
    made = getattr(arithmetic, name)(LEFT, RIGHT, *points, rounding="ONNX")
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@settings(max_examples=4)
@given(numbers=st.tuples(scales, scales, scales), seed=st.integers(0, 99))
def test_differences_compiled(dtype: str, numbers: Any, seed: int) -> None:
    """ONNX Runtime dequantizes, subtracts and quantizes; so do the compiled kernels."""
    rng, ends = np.random.default_rng(seed), np.iinfo(dtype)
    x, y = rng.integers(ends.min, ends.max, (2, 40_000), dtype, endpoint=True)
    points = rng.integers(ends.min, ends.max, 3, dtype, endpoint=True)
    constants = {f"s{i}": np.float32(scale) for i, scale in enumerate(numbers)}
    constants |= {f"z{i}": zero for i, zero in enumerate(points)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s0", "z0"], ["a"]),
        helper.make_node("DequantizeLinear", ["y", "s1", "z1"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s2", "z2"], ["d"]),
    ]
    wanted = by_nodes(nodes, {"x": x, "y": y}, constants, opset=21)
    pairs = [
        (np.float32(scale), np.int32(zero)) for scale, zero in zip(numbers, points, strict=True)
    ]
    operands = [x, y, *(np.asarray(value) for pair in pairs for value in pair)]
    case = Case("subtract", operands, (0, 1), {"rounding": "ONNX"})
    np.testing.assert_array_equal(case.expected(), wanted)
    for schedule in (True, False):
        (found,) = tvmlab.compile(module([case])[0], schedule=schedule)(x, y)
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=12)
@given(points=st.tuples(scales, zeros, scales, scales, zeros), seed=st.integers(0, 99))
def test_products_summed_and_requantized(points: Any, seed: int) -> None:
    x_scale, x_zero, w_scale, y_scale, y_zero = points
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, (64, 32), dtype=np.uint8)
    w = rng.integers(-127, 128, (32, 48), dtype=np.int8)
    constants = {
        "xs": np.float32(x_scale),
        "xz": np.uint8(x_zero),
        "w": w,
        "ws": np.float32(w_scale),
        "wz": np.int8(0),
        "ys": np.float32(y_scale * 64),
        "yz": np.uint8(y_zero),
    }
    node = helper.make_node("QLinearMatMul", ["x", *constants], ["y"])
    wanted = by_nodes([node], {"x": x}, constants)
    sums = (x.astype(np.int32) - x_zero) @ w.astype(np.int32)
    product = constants["xs"] * constants["ws"]
    made = arithmetic.requantize(
        sums, product, 0, constants["ys"], y_zero, rounding="ONNX", out_dtype="uint8"
    )
    np.testing.assert_array_equal(made, wanted)


@given(scale=scales, zero=zeros)
@settings(max_examples=12)
def test_quantize_rounds_halves_to_even(scale: float, zero: int) -> None:
    halves = (np.arange(-300, 300) + 0.5).astype(np.float32)
    x = np.concatenate([halves, halves * np.float32(scale), [np.inf, -np.inf]]).astype(np.float32)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    constants = {"s": np.array(scale, np.float32), "z": np.array(zero, np.uint8)}
    made = arithmetic.quantize(x, scale, zero, out_dtype="uint8", rounding="ONNX")
    np.testing.assert_array_equal(made, by_nodes([node], {"x": x}, constants))
    ties = np.array([0.5, 1.5, 2.5, -0.5], np.float32)
    assert arithmetic.quantize(ties, 1.0, 0, rounding="ONNX").tolist() == [0, 2, 2, 0]
