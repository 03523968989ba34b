"""What is wrong with an ONNX model's QuantizeLinear and DequantizeLinear, said before importing.

Upstream refuses some of it with a traceback, and computes something else with the rest: a scale of
zero gives infinities, a scale too many is cut off.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ModelError, UnsupportedOperatorError
from ..support.extras import need
from .onnx_values import Values, nodes, subgraphs

__all__ = ["check", "quantized"]

_OPERATORS = ("QuantizeLinear", "DequantizeLinear")
_INTEGERS = ("INT8", "UINT8", "INT16", "UINT16", "INT32")
_SUPPORTED = (
    "supported are int8, uint8, int16 and uint16, int32 for biases, with one scale or one for "
    "each index of an axis"
)


def quantized(model: Any) -> bool:
    """Say whether an ONNX model quantizes or dequantizes anywhere."""
    return any(node.op_type in _OPERATORS for node in nodes(model.graph))


def check(model: Any, where: str) -> None:
    """Refuse quantization that is wrong or that the importer does not do.

    Parameters
    ----------
    model : onnx.ModelProto
        A valid model.
    where : str
        The model, for errors.

    Raises
    ------
    ModelError
        A constant scale is not positive and finite, or there are more or fewer scales or zero
        points than the axis is long, or the axis does not exist.
    UnsupportedOperatorError
        Quantization by blocks, of 4-bit integers or of floats.
    """
    if quantized(model):
        _check(need("onnx", extra="onnx"), model.graph, None, where)


def _check(onnx: Any, graph: Any, outer: Values | None, where: str) -> None:
    """Check a graph, and those in it: branches and loop bodies."""
    known = Values(graph, outer)
    for node in graph.node:
        for inner in subgraphs(node):
            _check(onnx, inner, known, where)
        known.note(node)
        if node.op_type in _OPERATORS:
            place = (
                f"{node.op_type} in node {node.name!r}"
                if node.name
                else (f"{node.op_type} giving {node.output[0]!r}")
            )
            _one(onnx, node, known, f"{where}: {place}")


def _one(onnx: Any, node: Any, known: Values, where: str) -> None:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    x, scale_name, *rest = node.input
    zero_name = rest[0] if rest else ""
    if attributes.get("block_size", 0):
        raise _unsupported(node, "by blocks (block_size)", where)
    integer = x if node.op_type == "DequantizeLinear" else node.output[0]
    kinds = {known.types.get(name, 0) for name in (integer, zero_name)}
    kinds.add(attributes.get("output_dtype", 0))
    for kind in kinds - {0}:
        name = onnx.TensorProto.DataType.Name(kind)
        quantizing = kind == attributes.get("output_dtype") and node.op_type != "QuantizeLinear"
        if name not in _INTEGERS and not quantizing:
            raise _unsupported(node, f"of {name.lower()}", where)
    scale, zero = known.value(scale_name), known.value(zero_name)
    if scale is not None:
        _scale(scale, where)
    for name, value in (("scale", scale), ("zero point", zero)):
        if value is None or value.size == 1:
            continue
        if value.ndim != 1:
            raise _unsupported(node, f"with a {name} of {value.ndim} dimensions", where)
        shape = known.shapes.get(x)
        if shape is None:
            continue
        axis = attributes.get("axis", 1 if len(shape) > 1 else 0)
        if not -len(shape) <= axis < len(shape):
            raise _wrong(f"axis {axis} of a tensor with {len(shape)} dimensions", where)
        if shape[axis] not in (None, len(value)):
            raise _wrong(f"{len(value)} {name}s for an axis of {shape[axis]}", where)
    if scale is not None and zero is not None and zero.size not in (1, scale.size):
        raise _wrong(f"{scale.size} scales and {zero.size} zero points", where)


def _scale(scale: Any, where: str) -> None:
    bad = ~np.isfinite(scale) | (scale <= 0)
    if bad.any():
        raise _wrong(f"a scale of {scale[bad].ravel()[0]}, not positive and finite", where)


def _wrong(why: str, where: str) -> ModelError:
    return ModelError(
        f"a quantized operator is wrong: {why}", where=where, fix="quantize the model again"
    )


def _unsupported(node: Any, why: str, where: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"TVM cannot import the ONNX operator {node.op_type} {why}", where=where, fix=_SUPPORTED
    )
