"""What an ONNX graph says of its values before it runs: constants, element types and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..support.extras import need

__all__ = ["Values", "names", "nodes", "subgraphs"]

# Operators whose result has the type of what they read first.
_PASSING = {
    "Concat",
    "Flatten",
    "Gather",
    "Identity",
    "MaxPool",
    "Pad",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
}


def subgraphs(node: Any) -> Iterator[Any]:
    """Yield the graphs that a node holds: branches and loop bodies."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes(graph: Any) -> Iterator[Any]:
    """Yield a graph's nodes, and those of the graphs in them."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from nodes(inner)


def names(graph: Any) -> set[str]:
    """Give every name that a graph and the graphs in it use for a value."""
    found = {value.name for value in (*graph.input, *graph.value_info, *graph.output)}
    found.update(tensor.name for tensor in graph.initializer)
    for node in graph.node:
        found.update(node.input, node.output)
        for inner in subgraphs(node):
            found |= names(inner)
    return found


class Values:
    """What is known of a graph's values.

    Parameters
    ----------
    graph : onnx.GraphProto
        What it declares is known at once; what its nodes make, once `note` has seen them.
    outer : Values, optional
        What is known around a branch, which sees all of it.

    Attributes
    ----------
    constants : dict of str to onnx.TensorProto
        Initializers, the results of Constant nodes, and what Identity makes of either.
    types : dict of str to int
        Element types, by the numbers of `onnx.TensorProto`; 0 where unknown.
    shapes : dict of str to list
        Sizes, None for one that is open.
    """

    def __init__(self, graph: Any, outer: Values | None = None) -> None:
        self._onnx = need("onnx", extra="onnx")
        self.constants: dict[str, Any] = dict(outer.constants) if outer else {}
        self.types: dict[str, int] = dict(outer.types) if outer else {}
        self.shapes: dict[str, list[int | None]] = dict(outer.shapes) if outer else {}
        for value in (*graph.input, *graph.value_info, *graph.output):
            declared = value.type.tensor_type
            self.types[value.name] = declared.elem_type
            if declared.HasField("shape"):
                self.shapes[value.name] = [dim.dim_value or None for dim in declared.shape.dim]
        for tensor in graph.initializer:
            self.constant(tensor.name, tensor)

    def constant(self, name: str, tensor: Any) -> None:
        """Note a constant."""
        self.constants[name] = tensor
        self.types[name], self.shapes[name] = tensor.data_type, list(tensor.dims)

    def note(self, node: Any) -> None:
        """Note what is known of a node's results; nodes come in their order."""
        if node.op_type == "Constant" and node.attribute:
            given = node.attribute[0]
            if given.name == "value":
                self.constant(node.output[0], given.t)
        elif node.op_type == "QuantizeLinear":
            zero = node.input[2] if len(node.input) > 2 else ""
            unknown = self._onnx.TensorProto.UINT8 if not zero else 0
            self.types.setdefault(node.output[0], self.types.get(zero, unknown))
        elif node.input and node.op_type in _PASSING:
            self.types.setdefault(node.output[0], self.types.get(node.input[0], 0))
        if node.op_type == "Identity" and node.input[0] in self.constants:
            self.constant(node.output[0], self.constants[node.input[0]])

    def value(self, name: str) -> npt.NDArray[Any] | None:
        """Give a constant's value, None for what is computed."""
        tensor = self.constants.get(name)
        return None if tensor is None else np.asarray(self._onnx.numpy_helper.to_array(tensor))

    def single(self, name: str) -> bool:
        """Say whether a value is known to hold one number."""
        shape = self.shapes.get(name)
        return shape is not None and all(size == 1 for size in shape)
