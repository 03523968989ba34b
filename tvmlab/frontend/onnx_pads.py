"""Padding of an ONNX model in numbers, where it says it otherwise.

ONNX Runtime's quantizer writes the value that a Pad pads with as a DequantizeLinear of a constant;
upstream wants the constant. A convolution whose ``auto_pad`` is SAME is imported as a TIR function
that pads, before a convolution that does not; a pool with SAME_LOWER gets another shape than ONNX
gives it, for upstream rounds the result's size down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..support.extras import need
from .onnx_values import Values, names, nodes, subgraphs

__all__ = ["explicit"]

_SAME = (b"SAME_UPPER", b"SAME_LOWER")
_WINDOWS = ("AveragePool", "Conv", "LpPool", "MaxPool")


def explicit(model: Any, sizes: dict[str, list[Any]]) -> Any:
    """Write out what pads with constants, and how wide SAME is.

    Parameters
    ----------
    model : onnx.ModelProto
        A valid model; it is left unchanged.
    sizes : dict of str to list
        The inputs' shapes; what is no int is known at run time only.

    Returns
    -------
    onnx.ModelProto
        The same object where there is nothing to write out, else a copy. SAME stays what it is
        where a picture's size is not known.
    """
    pads = any(node.op_type == "Pad" and len(node.input) > 2 for node in nodes(model.graph))
    same = any(_same(node) for node in model.graph.node)
    if not pads and not same:
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    if pads:
        _settle(copy.graph, names(copy.graph), None)
    if same:
        _widths(copy, sizes)
    return copy


def _same(node: Any) -> bool:
    return node.op_type in _WINDOWS and any(
        a.name == "auto_pad" and a.s in _SAME for a in node.attribute
    )


def _settle(graph: Any, taken: set[str], outer: Values | None) -> None:
    """Give every Pad the constant that its value is computed as."""
    onnx = need("onnx", extra="onnx")
    known = Values(graph, outer)
    for node in graph.node:
        for inner in subgraphs(node):
            _settle(inner, taken, known)
        known.note(node)
        folded = _folded(known, node)
        if folded is not None:
            known.constant(node.output[0], onnx.numpy_helper.from_array(folded))
        if node.op_type != "Pad" or len(node.input) < 3 or node.input[2] not in known.constants:
            continue
        name, number = f"{node.output[0]}_value", 0
        while name in taken:
            name, number = f"{node.output[0]}_value_{number}", number + 1
        taken.add(name)
        tensor = onnx.TensorProto()
        tensor.CopyFrom(known.constants[node.input[2]])
        tensor.name = name
        graph.initializer.append(tensor)
        node.input[2] = name


def _folded(known: Values, node: Any) -> npt.NDArray[Any] | None:
    """Compute the quantize or dequantize of one constant, as ONNX defines it."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return None
    given = [known.value(name) for name in node.input if name]
    value, scale, zero = (*given, np.zeros((), "uint8"))[:3]
    if value is None or scale is None or zero is None or value.size != 1:
        return None
    if value.dtype.kind not in "iuf" or scale.dtype != np.float32 or scale.size != 1:
        return None
    scale, offset = scale.reshape(()), zero.reshape(()).astype("int64")
    if node.op_type == "DequantizeLinear":
        return np.asarray((value.astype("int64") - offset).astype("float32") * scale, "float32")
    info = np.iinfo(zero.dtype)
    return np.asarray(np.clip(np.rint(value / scale) + offset, info.min, info.max), zero.dtype)


def _widths(model: Any, sizes: dict[str, list[Any]]) -> None:
    """Write the widths that SAME means for the pictures' sizes."""
    onnx = need("onnx", extra="onnx")
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, sizes.get(value.name, ()), strict=False):
            if isinstance(size, int):
                dim.dim_value = size
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except ValueError:  # over 2 GB
        return
    known = Values(inferred)
    for node in model.graph.node:
        if not _same(node):
            continue
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        window = given.get("kernel_shape") or (known.shapes.get(node.input[1]) or [])[2:]
        picture = [size for size in known.shapes.get(node.input[0], [])[2:] if size]
        if not picture or len(picture) != len(window):
            continue
        before, after = [], []
        for i, (size, kernel) in enumerate(zip(picture, window, strict=True)):
            stride = given.get("strides", [1] * len(window))[i]
            reach = (kernel - 1) * given.get("dilations", [1] * len(window))[i] + 1
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
            # An odd one stands at the end for SAME_UPPER, before for SAME_LOWER.
            small, large = total // 2, total - total // 2
            upper = given["auto_pad"] == b"SAME_UPPER"
            before.append(small if upper else large)
            after.append(large if upper else small)
        kept = [a for a in node.attribute if a.name not in ("auto_pad", "pads")]
        del node.attribute[:]
        node.attribute.extend([*kept, onnx.helper.make_attribute("pads", [*before, *after])])
