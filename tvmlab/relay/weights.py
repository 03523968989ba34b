"""Shapes of weights that Relay's type inference finds, and Relax's does not look for.

In Relay ``nn.conv2d(data, relay.var("w"), channels=8, kernel_size=(3, 3))`` determines the type of
``w``. Relax's operators have no such attributes, so the variable gets its type where the call is
made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm import relax

from ..ir import graph
from .ty import Any_

Operands = Mapping[str, relax.Expr]

# Vectors as long as the axis of the data.
_NORM = ("gamma", "beta")
_VECTORS = {
    "nn.bias_add": ("bias",),
    "nn.prelu": ("alpha",),
    "nn.batch_norm": (*_NORM, "moving_mean", "moving_var"),
    "nn.layer_norm": _NORM,
    "nn.instance_norm": _NORM,
    "nn.group_norm": _NORM,
}
# The axis of a kernel that groups divide.
_KERNELS = {"nn.conv1d": "I", "nn.conv2d": "I", "nn.conv3d": "I", "nn.conv2d_transpose": "O"}


def complete(name: str, operands: Operands, attributes: dict[str, Any]) -> None:
    """Set the types of operands that are variables without one, in place.

    `operands` have Relay's names, and `attributes` are all of the call's.
    """
    if all(graph.has_type(value) for value in operands.values()):
        return
    for key, shape in _shapes(name, operands, attributes).items():
        weight = operands.get(key)
        if isinstance(weight, relax.Var) and not graph.has_type(weight):
            first = next(iter(operands.values()))
            dtype = str(first.ty.dtype) if graph.has_type(first) else "float32"
            relax.expr._update_type(weight, relax.TensorType(shape, dtype))


def _shapes(name: str, operands: Operands, a: dict[str, Any]) -> dict[str, list[Any]]:
    """Find the shapes of weights; a size that nothing determines is a new variable."""

    def size(axis: int) -> Any:
        shape = getattr(operands["data"].ty, "shape", None)
        return shape[axis] if isinstance(shape, relax.ShapeExpr) else None

    if name in _VECTORS:
        channels = size(a["axis"])
        return {} if channels is None else {vector: [channels] for vector in _VECTORS[name]}
    if name == "nn.dense":
        known = a["units"] is not None and size(-1) is not None
        return {"weight": [a["units"], size(-1)]} if known else {}
    if name not in _KERNELS or a["kernel_size"] is None:
        return {}
    data_layout, layout = a["data_layout"], a["kernel_layout"]
    if not (data_layout + layout).isalpha():  # parts of axes
        return {}
    sizes = {"I": size(data_layout.index("C")), "O": a["channels"]}
    grouped = _KERNELS[name]
    if sizes[grouped] is not None:
        sizes[grouped] //= a["groups"]
    sizes |= zip([axis for axis in layout if axis not in "IO"], a["kernel_size"], strict=False)
    return {"weight": [Any_() if sizes[axis] is None else sizes[axis] for axis in layout]}
