"""ONNX's values of 2 and 4 bits: TVM holds each of them in 8 bits.

TVM's code for CPUs cannot address less than a byte, so a model's tensors of 2 and 4 bits get 8
before the model is imported. An executable converts the model's inputs and outputs
(`tvmlab.runtime.signature`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes  # noqa: F401 (registers the dtypes with NumPy)
import numpy as np
import onnx
from onnx.helper import np_dtype_to_tensor_dtype

from ..ir.dialect import WIDENED

__all__ = ["widened"]

#: The dtypes by ONNX's number of each.
_DTYPES = {np_dtype_to_tensor_dtype(np.dtype(name)): name for name in WIDENED}
#: Attributes that are the number of a dtype.
_NUMBERS = ("to", "output_dtype")


def widened(model: Any) -> tuple[Any, dict[str, str]]:
    """Return a model with 8 bits for 2 and 4, and the dtypes of its values of 2 and 4 bits by name.

    A model without values of 2 and 4 bits is returned unchanged, any other is copied.
    """
    if not any(map(_is_narrow, _graphs(model.graph))):
        return model, {}
    model = onnx.shape_inference.infer_shapes(model, check_type=True)
    dtypes = {}
    for graph in _graphs(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type
            if (dtype := _DTYPES.get(kind.elem_type)) is not None:
                dtypes[value.name] = dtype
                kind.elem_type = np_dtype_to_tensor_dtype(np.dtype(WIDENED[dtype]))
    for graph in _graphs(model.graph):
        for tensor in _tensors(graph):
            if (dtype := _DTYPES.get(tensor.data_type)) is not None:
                values = onnx.numpy_helper.to_array(tensor).astype(WIDENED[dtype])
                tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        for node in graph.node:
            dtype = dtypes.get(node.output[0])
            if dtype is not None and node.op_type == "CastLike":  # of a tensor that has 8 bits now
                node.op_type = "Cast"
                del node.input[1:]
                number = np_dtype_to_tensor_dtype(np.dtype(dtype))
                node.attribute.append(onnx.helper.make_attribute("to", number))
            elif node.op_type == "QuantizeLinear" and any(node.input[2:]):
                kept = [one for one in node.attribute if one.name != "output_dtype"]
                del node.attribute[:]
                node.attribute.extend(kept)
    return model, dtypes


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and its subgraphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield the constants of a graph."""
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))


def _is_narrow(graph: Any) -> bool:
    """Return whether a graph has values of 2 or 4 bits, apart from its subgraphs."""
    numbers = [tensor.data_type for tensor in _tensors(graph)]
    numbers += [value.type.tensor_type.elem_type for value in graph.input]
    attributes = (attribute for node in graph.node for attribute in node.attribute)
    numbers += [attribute.i for attribute in attributes if attribute.name in _NUMBERS]
    return any(number in _DTYPES for number in numbers)
