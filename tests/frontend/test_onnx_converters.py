"""ONNX operators that upstream converts wrongly give ONNX Runtime's results, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import tvmlab
from tvmlab.errors import UnsupportedOperatorError

X = np.random.default_rng(0).normal(size=(1, 2, 6, 5)).astype("float32")
ODD = np.array([1, np.inf, -np.inf, np.nan], "float32")


def network(kind: str, x: np.ndarray, *constants: Any, outputs: int = 1, **more: Any) -> Any:
    parts = {f"c{i}": c for i, c in enumerate(constants) if c is not None}
    names = [f"c{i}" if c is not None else "" for i, c in enumerate(constants)]
    node = helper.make_node(kind, ["x", *names], [f"y{i}" for i in range(outputs)], **more)
    value = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    weights = [numpy_helper.from_array(np.asarray(c), name) for name, c in parts.items()]
    open_ends = [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], "one", [value], open_ends, weights)
    opset = helper.make_opsetid("", 18)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[opset], ir_version=9)
    )


@pytest.mark.parametrize(
    ("kind", "x", "constants", "more"),
    [
        ("Shape", X, (), {"start": 1, "end": -1}),
        ("IsInf", ODD, (), {"detect_negative": 0}),
        ("IsInf", ODD, (), {"detect_positive": 0}),
        ("OneHot", np.array([1, -1]), (np.array(4), np.array([-1, 3], "float32")), {}),
        ("Resize", X, (None, np.array([1, 1, 0.5, 3], "float32")), {"mode": "linear"}),
    ],
)
def test_operators(kind: str, x: np.ndarray, constants: tuple[Any, ...], more: Any) -> None:
    proto = network(kind, x, *constants, **more)
    [expected] = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    found = np.asarray(tvmlab.compile(tvmlab.load(proto))(x))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "constants", "more"),
    [
        ("Resize", (None, np.array([1, 1, 0.6, 1], "float32")), {}),
        ("Resize", (None, np.array([1, 1, 0.5, 1], "float32")), {"antialias": 1, "mode": "linear"}),
        ("LayerNormalization", (np.ones(5, "float32"),), {"outputs": 2}),
        ("BatchNormalization", (np.ones(2, "float32"),) * 4, {"training_mode": 1, "outputs": 3}),
    ],
)
def test_what_is_refused(kind: str, constants: tuple[Any, ...], more: Any) -> None:
    with pytest.raises(UnsupportedOperatorError, match=kind):
        tvmlab.load(network(kind, X, *constants, **more))
