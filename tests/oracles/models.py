"""Small ONNX models, made in memory, and what the tests compare them with."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

import tvmlab
from tests.short import SHARED, beside

FLOAT = TensorProto.FLOAT

node = helper.make_node
value = helper.make_tensor_value_info


def array(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def weight(name: str, content: Any) -> TensorProto:
    return numpy_helper.from_array(np.asarray(content), name)


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[int | str]] | Sequence[Any],
    outputs: Sequence[str | Any],
    weights: Sequence[TensorProto] = (),
    *,
    opset: int = 17,
    domains: Sequence[str] = (),
    ir_version: int = 8,
) -> onnx.ModelProto:
    """A model; inputs by name and shape are float32, and so are outputs by name."""
    if isinstance(inputs, dict):
        inputs = [value(name, FLOAT, shape) for name, shape in inputs.items()]
    results = [value(out, FLOAT, None) if isinstance(out, str) else out for out in outputs]
    graph = helper.make_graph(list(nodes), "graph", list(inputs), results, list(weights))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    if all(out.type.tensor_type.HasField("shape") for out in made.graph.output):
        return made
    return onnx.shape_inference.infer_shapes(made)


def relu(name: str = "x", shape: Sequence[int | str] = (2, 3), kind: int = FLOAT) -> Any:
    return model(
        [node("Relu", [name], ["y"])], [value(name, kind, shape)], [value("y", kind, shape)]
    )


def dense(batch: int | str = 2) -> onnx.ModelProto:
    """`y = x @ w` for x of [batch, 4] and w of [4, 3]."""
    return model(
        [node("MatMul", ["x", "w"], ["y"])], {"x": (batch, 4)}, ["y"], [weight("w", array(4, 3))]
    )


def convolutional() -> onnx.ModelProto:
    """A convolution, batch normalization, ReLU and pooling: [1, 3, 8, 8] to [1, 4]."""
    statistics = [weight(name, np.abs(array(4, seed=i)) + 0.1) for i, name in enumerate("sbmv")]
    return model(
        [
            node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["c", *"sbmv"], ["n"]),
            node("Relu", ["n"], ["r"]),
            node("GlobalAveragePool", ["r"], ["p"]),
            node("Flatten", ["p"], ["y"]),
        ],
        {"x": (1, 3, 8, 8)},
        ["y"],
        [weight("k", array(4, 3, 3, 3)), *statistics],
        opset=15,
    )


def at_hand(name: str) -> Path | None:
    """Where a file lies that `tvmlab.data` knows; None without it."""
    places = [SHARED / "models" / name, tvmlab.data.cached(name)]
    return next((place for place in places if place is not None and place.is_file()), None)


@functools.cache
def real_model(name: str) -> bytes:
    """The content of a file that `tvmlab.data` knows; see `tests.short.absent` without it."""
    return (at_hand(name) or beside(f"models/{name}")).read_bytes()


def as_tuple(result: Any) -> tuple[np.ndarray, ...]:
    return result if isinstance(result, tuple) else (result,)


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime, with sums of uint8, given or computed, times constant int8 that are exact.

    By default they saturate at 16 bits on x86-64 without VNNI. Models without uint8 keep the
    default, which is exact for them; some do not run with the option. On x86-64, int8 activations
    are computed in float unless another option allows integers.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    kinds = {tensor.data_type for tensor in proto.graph.initializer}
    kinds |= {given.type.tensor_type.elem_type for given in proto.graph.input}
    dynamic = any("Dynamic" in one.op_type for one in proto.graph.node)
    exact = dynamic or onnx.TensorProto.UINT8 in kinds
    options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    # Its idle threads would take ours.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def by_onnx_runtime(proto: onnx.ModelProto, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    running = session(proto)
    names = [wanted.name for wanted in running.get_inputs()]
    return tuple(running.run(None, dict(zip(names, inputs, strict=True))))


def by_onnx_reference(proto: onnx.ModelProto, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """ONNX's own definition in NumPy: its sums are exact on every processor."""
    running = ReferenceEvaluator(proto)
    return tuple(running.run(None, dict(zip(running.input_names, inputs, strict=True))))


def agree_with_onnx_runtime(
    proto: onnx.ModelProto, *inputs: np.ndarray, close: float = 1e-4, **load: Any
) -> None:
    """Run a model on both sides: dtypes and shapes equal, values to float32 rounding."""
    ours = as_tuple(tvmlab.compile(tvmlab.load(proto, **load))(*inputs))
    theirs = by_onnx_runtime(proto, *inputs)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=close, atol=close / 10)


def plainly(mod: tvm.IRModule, *inputs: np.ndarray) -> np.ndarray:
    """Run `main` as upstream builds it, without any pass of ours."""
    machine = relax.VirtualMachine(relax.build(mod, tvmlab.host_target()), tvm.cpu())
    return machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()


def quickly(mod: tvm.IRModule, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run `main` once, without any pass of ours and without LLVM's: compiled in half the time."""
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    machine = relax.VirtualMachine(relax.build(mod, target), tvm.cpu())
    results = machine["main"](*map(tvm.runtime.tensor, inputs))
    several = isinstance(mod["main"].ret_ty, relax.TupleType)
    return tuple(y.numpy() for y in results) if several else (results.numpy(),)


def said(error: tvmlab.errors.TvmlabError) -> str:
    """The whole message, after a check that it says what, where and what to do."""
    assert error.what, "the error does not say what is wrong"
    assert error.where, "the error does not say where"
    assert error.fix, "the error does not say what to do"
    return str(error)
