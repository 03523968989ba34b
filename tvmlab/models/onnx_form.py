"""The ONNX form of a network, written from the table of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from ..support.extras import need
from .architecture import EPSILON, Architecture, Layer

if TYPE_CHECKING:
    import onnx

__all__ = ["graph_input", "set_batch", "to_onnx"]

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


def to_onnx(
    spec: Architecture, parameters: Mapping[str, npt.NDArray[np.float32]], *, batch: int | None = 1
) -> onnx.ModelProto:
    """Write a network as an ONNX model.

    Parameters
    ----------
    spec : Architecture
        The network.
    parameters : mapping of str to ndarray
        float32 arrays under the names of `spec.parameters()`; as `seeded_parameters` and
        `torch_form.parameters_of` return them.
    batch : int or None, optional
        Pictures in one call; None leaves the number open, as the symbolic dimension "N".

    Returns
    -------
    onnx.ModelProto
        Input "data" [batch, channels, height, width], output "logits" [batch, classes], float32.

    Raises
    ------
    ModelError
        If a parameter is missing, is not float32 or has another shape; or the batch is below one.
    ToolchainError
        If onnx is not installed.
    """
    need("onnx", extra="models")
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [*_limits(spec), *(_node(layer) for layer in spec.layers())],
        spec.name,
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, *spec.image])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, spec.classes])],
    )
    model = helper.make_model(
        graph,
        producer_name="tvmlab",
        ir_version=8,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
    set_batch(model, batch)
    # Weights last and in place: the helpers would copy them, all hundred megabytes, three times.
    for name, shape in spec.parameters().items():
        tensor = model.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.raw_data = _little_endian(parameters, name, shape)
    return model


def _little_endian(
    parameters: Mapping[str, npt.NDArray[np.float32]], name: str, shape: tuple[int, ...]
) -> bytes:
    value = parameters.get(name)
    if value is None or value.shape != shape or value.dtype != np.float32:
        found = "missing" if value is None else f"{value.dtype}{list(value.shape)}"
        raise ModelError(f"A parameter is {found} instead of float32{list(shape)}.", where=name)
    return np.ascontiguousarray(value, "<f4").tobytes()


def _limits(spec: Architecture) -> list[onnx.NodeProto]:
    """The constants that Clip reads. Nodes and not initializers: they are no weights."""
    from onnx import TensorProto, helper

    if not any(layer.op == "relu6" for layer in spec.layers()):
        return []
    return [
        helper.make_node(
            "Constant",
            [],
            [name],
            name=name,
            value=helper.make_tensor(name, TensorProto.FLOAT, [], [limit]),
        )
        for name, limit in _LIMITS.items()
    ]


def _node(layer: Layer) -> onnx.NodeProto:
    from onnx import helper

    node: onnx.NodeProto = helper.make_node(
        _OPERATORS[layer.op],
        [*layer.inputs, *layer.parameters(), *(_LIMITS if layer.op == "relu6" else ())],
        [layer.name],
        name=layer.name,
        **_attributes(layer),
    )
    return node


def _attributes(layer: Layer) -> dict[str, Any]:
    match layer.op:
        case "batch_norm":
            return {"epsilon": EPSILON}
        case "conv" | "max_pool":
            return {
                "kernel_shape": [layer.kernel] * 2,
                "strides": [layer.stride] * 2,
                "pads": [layer.padding] * 4,
                **({"group": layer.groups} if layer.groups > 1 else {}),
            }
        case "dense":
            return {"transB": 1}
        case _:
            return {}


def graph_input(model: onnx.ModelProto) -> onnx.ValueInfoProto:
    """Find the model's one input that is not a weight.

    Files of ONNX's first years list their weights among the inputs.

    Parameters
    ----------
    model : onnx.ModelProto
        A model.

    Returns
    -------
    onnx.ValueInfoProto
        Name, type and shape of the input.

    Raises
    ------
    ModelError
        If the model has no such input, or several.
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
    """Change, in place, how many pictures a model takes in one call.

    Parameters
    ----------
    model : onnx.ModelProto
        A model whose first dimension is the batch, and whose operators take any.
    batch : int or None
        The number; None for the symbolic dimension "N".

    Raises
    ------
    ModelError
        If the number is below one.
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
