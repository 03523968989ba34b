"""The ONNX form of a network, generated from the table of its layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from ..support.extras import need
from .networks import EPSILON, Architecture, Layer

if TYPE_CHECKING:
    import onnx

__all__ = ["Model", "graph_input", "set_batch", "to_onnx"]

_OPSET = 17
# Clip takes its limits as tensors. All clips of a model share these two.
_LIMITS = {"relu6.min": 0.0, "relu6.max": 6.0}


@dataclass(frozen=True)
class Model:
    """A network in ONNX form, for `tvmlab.load`, ONNX Runtime or `onnx.save`.

    `weights` is the origin of its weights, and `note` a sentence about them that `print` shows.
    """

    proto: onnx.ModelProto = field(repr=False)
    name: str
    weights: Literal["zoo", "seeded", "trained"]
    note: str = ""

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.input_shape))
        millions = self.parameter_count / 1e6
        return (
            f"{self.name}: input {self.input_name} float32 [{shape}], "
            f"{millions:.3g} million parameters.\n{self.note}"
        ).rstrip()

    @property
    def parameter_count(self) -> int:
        """The number of weights."""
        return sum(math.prod(tensor.dims) for tensor in self.proto.graph.initializer)

    @property
    def input_name(self) -> str:
        """The input's name."""
        return str(graph_input(self.proto).name)

    @property
    def input_shape(self) -> tuple[int | str, ...]:
        """The input's shape: numbers, and names for open dimensions."""
        dims = graph_input(self.proto).type.tensor_type.shape.dim
        return tuple(dim.dim_param if dim.HasField("dim_param") else dim.dim_value for dim in dims)


def to_onnx(
    spec: Architecture, parameters: Mapping[str, npt.NDArray[np.float32]], *, batch: int | None = 1
) -> onnx.ModelProto:
    """Convert a network to an ONNX model; a `batch` of None leaves the number of images open."""
    need("onnx", extra="models")
    from onnx import TensorProto, helper

    layers = spec.layers
    nodes = [_node(layer) for layer in layers]
    if any(layer.op == "relu6" for layer in layers):
        # Nodes instead of initializers, because limits are not weights.
        tensors = [
            helper.make_tensor(name, TensorProto.FLOAT, [], [x]) for name, x in _LIMITS.items()
        ]
        nodes[:0] = [
            helper.make_node("Constant", [], [tensor.name], name=tensor.name, value=tensor)
            for tensor in tensors
        ]
    graph = helper.make_graph(
        nodes,
        spec.name,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, *spec.image])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, spec.classes])],
    )
    opset = helper.make_opsetid("", _OPSET)
    model = helper.make_model(graph, producer_name="tvmlab", ir_version=8, opset_imports=[opset])
    set_batch(model, batch)
    # Weights last and in place: the helpers would copy them, a hundred megabytes, three times.
    for name, shape in spec.parameters().items():
        tensor = model.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.raw_data = np.ascontiguousarray(parameters[name], "<f4").tobytes()
    return model


def _node(layer: Layer) -> onnx.NodeProto:
    from onnx import helper

    inputs = [*layer.inputs, *layer.parameters(), *(_LIMITS if layer.op == "relu6" else ())]
    window = {
        "kernel_shape": [layer.kernel] * 2,
        "strides": [layer.stride] * 2,
        "pads": [layer.padding] * 4,
    }
    operators: dict[str, tuple[str, dict[str, Any]]] = {
        "batch_norm": ("BatchNormalization", {"epsilon": EPSILON}),
        "conv": ("Conv", {**window, "group": layer.groups} if layer.groups > 1 else window),
        "relu": ("Relu", {}),
        "relu6": ("Clip", {}),
        "max_pool": ("MaxPool", window),
        "add": ("Add", {}),
        "global_pool": ("GlobalAveragePool", {}),
        "flatten": ("Flatten", {}),
        "dense": ("Gemm", {"transB": 1}),
    }
    kind, attributes = operators[layer.op]
    return helper.make_node(kind, inputs, [layer.name], name=layer.name, **attributes)


def graph_input(model: onnx.ModelProto) -> onnx.ValueInfoProto:
    """Return the model's only input; files of early ONNX versions list weights as inputs, too."""
    weights = {tensor.name for tensor in model.graph.initializer}
    [found] = [value for value in model.graph.input if value.name not in weights]
    return found


def set_batch(model: onnx.ModelProto, batch: int | None) -> None:
    """Change, in place, the number of images per call; None leaves it open as "N"."""
    if batch is not None and batch < 1:
        raise ModelError(f"The batch size is {batch}.", fix="Pass 1 or more, or None.")
    for value in (graph_input(model), *model.graph.output):
        dimension = value.type.tensor_type.shape.dim[0]
        if batch is None:
            dimension.dim_param = "N"
        else:
            dimension.dim_value = batch
    # The shapes recorded for intermediate values would contradict the new batch.
    del model.graph.value_info[:]
