"""The ONNX form of a network, written from the table of its layers."""

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
_OPERATORS = {
    "batch_norm": "BatchNormalization",
    "conv": "Conv",
    "relu": "Relu",
    "relu6": "Clip",
    "max_pool": "MaxPool",
    "add": "Add",
    "global_pool": "GlobalAveragePool",
    "flatten": "Flatten",
    "dense": "Gemm",
}
# Clip reads its limits as tensors. All the clips of a model share these two.
_LIMITS = {"relu6.min": 0.0, "relu6.max": 6.0}


@dataclass(frozen=True)
class Model:
    """A network in ONNX form, and where its weights come from.

    Parameters
    ----------
    proto : onnx.ModelProto
        The model, for `tvmlab.load`, ONNX Runtime or `onnx.save`.
    name : str
        The network's name.
    weights : {"zoo", "seeded", "trained"}
        Where the weights come from.
    input_name : str
        The input's name.
    input_shape : tuple
        The input's shape: numbers, and a name where the model leaves one open.
    note : str
        A sentence on the weights; `print(model)` shows it.
    """

    proto: onnx.ModelProto = field(repr=False)
    name: str
    weights: Literal["zoo", "seeded", "trained"]
    input_name: str
    input_shape: tuple[int | str, ...]
    note: str

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

    @classmethod
    def of(
        cls,
        proto: onnx.ModelProto,
        name: str,
        weights: Literal["zoo", "seeded", "trained"],
        note: str = "",
    ) -> Model:
        """Describe an ONNX model of one input besides its weights."""
        value = graph_input(proto)
        dims = value.type.tensor_type.shape.dim
        shape = tuple(dim.dim_param if dim.HasField("dim_param") else dim.dim_value for dim in dims)
        return cls(proto, name, weights, value.name, shape, note)


def to_onnx(
    spec: Architecture, parameters: Mapping[str, npt.NDArray[np.float32]], *, batch: int | None = 1
) -> onnx.ModelProto:
    """Write a network as an ONNX model, from "data" to "logits".

    `parameters` are float32 arrays under the names of `spec.parameters()`; a `batch` of None leaves
    the number of pictures open, as the symbolic dimension "N". Raises `ModelError` if a parameter
    is missing or has another type or shape, or the batch is below one.
    """
    need("onnx", extra="models")
    from onnx import TensorProto, helper

    layers = spec.layers
    nodes = [_node(layer) for layer in layers]
    if any(layer.op == "relu6" for layer in layers):
        # Nodes and not initializers, because limits are no weights.
        nodes[:0] = [
            helper.make_node(
                "Constant",
                [],
                [name],
                name=name,
                value=helper.make_tensor(name, TensorProto.FLOAT, [], [limit]),
            )
            for name, limit in _LIMITS.items()
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
    # Weights last and in place: the helpers would copy them, all hundred megabytes, three times.
    for name, shape in spec.parameters().items():
        value = parameters.get(name)
        if value is None or value.shape != shape or value.dtype != np.float32:
            found = "missing" if value is None else f"{value.dtype}{list(value.shape)}"
            raise ModelError(f"A parameter is {found} instead of float32{list(shape)}.", where=name)
        tensor = model.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.raw_data = np.ascontiguousarray(value, "<f4").tobytes()
    return model


def _node(layer: Layer) -> onnx.NodeProto:
    from onnx import helper

    inputs = [*layer.inputs, *layer.parameters(), *(_LIMITS if layer.op == "relu6" else ())]
    window = {
        "kernel_shape": [layer.kernel] * 2,
        "strides": [layer.stride] * 2,
        "pads": [layer.padding] * 4,
    }
    attributes: dict[str, dict[str, Any]] = {
        "batch_norm": {"epsilon": EPSILON},
        "dense": {"transB": 1},
        "conv": {**window, "group": layer.groups} if layer.groups > 1 else window,
        "max_pool": window,
    }
    node: onnx.NodeProto = helper.make_node(
        *(_OPERATORS[layer.op], inputs, [layer.name]),
        **{"name": layer.name, **attributes.get(layer.op, {})},
    )
    return node


def graph_input(model: onnx.ModelProto) -> onnx.ValueInfoProto:
    """Return the model's one input that is not a weight.

    Files of ONNX's first years list their weights among the inputs. Raises `ModelError` if the
    model has no such input, or several.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if len(inputs) != 1:
        raise ModelError(
            f"The model has {len(inputs)} inputs besides its weights instead of one.",
            where=model.graph.name,
        )
    return inputs[0]


def set_batch(model: onnx.ModelProto, batch: int | None) -> None:
    """Change, in place, how many pictures a model takes in one call; None leaves it open as "N".

    The model's first dimension is the batch, and its operators take any.
    """
    if batch is not None and batch < 1:
        raise ModelError(f"A batch of {batch} pictures.", fix="Give one or more, or None.")
    for value in (graph_input(model), *model.graph.output):
        dimension = value.type.tensor_type.shape.dim[0]
        if batch is None:
            dimension.dim_param = "N"
        else:
            dimension.dim_value = batch
    # Shapes noted for values in between would contradict the new batch.
    del model.graph.value_info[:]
