"""Average pooling against ONNX Runtime, bit for bit, in many windows, paddings and scales.

ONNX Runtime's optimizations make QLinearAveragePool of each pool. It adds rounded real numbers, so
that the order of the sum shows in the integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, shape_inference

import tvmlab
from tests.qnn.run import run
from tests.short import fresh
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
