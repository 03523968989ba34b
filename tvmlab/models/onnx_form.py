"""The ONNX form of a network: written from the table, and read back against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from ..support.extras import need
from .architecture import EPSILON, Architecture, Layer, Parameters

if TYPE_CHECKING:
    import onnx

__all__ = ["from_onnx", "graph_input", "set_batch", "to_onnx"]

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
        float32 arrays under the names of `spec.parameters()`; `seeded_parameters`, `from_onnx` and
        `torch_form.parameters_of` give such.
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


def from_onnx(spec: Architecture, model: onnx.ModelProto) -> Parameters:
    """Read a network's parameters out of an ONNX model of the same architecture.

    The model's own names do not matter: the table is followed through its graph, from the input
    on. So this also proves that a file, the model zoo's for one, has this architecture.

    Parameters
    ----------
    spec : Architecture
        The network.
    model : onnx.ModelProto
        A model that computes it.

    Returns
    -------
    dict of str to ndarray
        float32 arrays with the names and shapes of `spec.parameters()`.

    Raises
    ------
    ModelError
        If the model's graph is another one; the message names the first layer not found in it.
    """
    from onnx import numpy_helper

    tensors = _constants(model.graph)
    shapes = {name: tuple(tensor.dims) for name, tensor in tensors.items()}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input[: 2 if node.op_type == "Add" else 1]:
            readers.setdefault(name, []).append(node)
    names = {"data": graph_input(model).name}  # the table's names -> the model's names
    found: Parameters = {}
    for layer in spec.layers():
        inputs = {names[name] for name in layer.inputs}
        for node in readers.get(names[layer.inputs[0]], []):
            weights = list(node.input[1:]) if layer.op not in ("add", "relu6") else []
            if (
                node.op_type == _OPERATORS[layer.op]
                and (layer.op != "add" or set(node.input) == inputs)
                and [shapes.get(name) for name in weights] == list(layer.parameters().values())
                and _computes(node, layer)
                and (layer.op != "relu6" or _stops_at_six(node, tensors))
            ):
                break
        else:
            raise ModelError(
                f"The model is not a {spec.name}: it has no {layer.op} like {layer.name}.",
                where=model.graph.name,
                fix="Give a model of that architecture.",
            )
        names[layer.name] = node.output[0]
        for name, theirs in zip(layer.parameters(), weights, strict=True):
            found[name] = numpy_helper.to_array(tensors[theirs]).astype(np.float32)
    if names["logits"] != model.graph.output[0].name:
        raise ModelError(f"The model goes on where {spec.name} ends.", where=model.graph.name)
    return found


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """All tensors that stand in the graph, as initializers or as nodes."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    return tensors


def _stops_at_six(node: onnx.NodeProto, tensors: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a Clip's limits, attributes before opset 11 and inputs since, are zero and six."""
    from onnx import helper, numpy_helper

    limits = [
        numpy_helper.to_array(tensors[name]).item() for name in node.input[1:] if name in tensors
    ]
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    limits += [given[name] for name in ("min", "max") if name in given]
    return limits == list(_LIMITS.values())


def _computes(node: onnx.NodeProto, layer: Layer) -> bool:
    """Whether a node's attributes, defaults included, are the layer's."""
    from onnx import helper

    defaults: dict[str, Any] = {
        "epsilon": EPSILON,
        "kernel_shape": [layer.kernel] * 2,
        "strides": [1, 1],
        "pads": [0, 0, 0, 0],
        "transB": 0,
        "group": 1,
    }
    neutral: dict[str, Any] = {
        "dilations": [1, 1],
        "auto_pad": b"NOTSET",
        "ceil_mode": 0,
        "transA": 0,
        "alpha": 1.0,
        "beta": 1.0,
        "axis": 1,
    }
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    same = all(
        np.allclose(given.get(name, defaults[name]), wanted, rtol=1e-4, atol=0)
        for name, wanted in {"group": layer.groups, **_attributes(layer)}.items()
    )
    return same and all(given.get(name, usual) == usual for name, usual in neutral.items())


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
