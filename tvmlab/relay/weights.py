"""Shapes of weights that Relay's type inference finds, and Relax's does not look for.

In Relay ``nn.conv2d(data, relay.var("w"), channels=8, kernel_size=(3, 3))`` says what ``w`` is.
Relax's operators have no such attributes, so the variable gets its type where the call is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tvm import relax

from ..ir import graph
from .ty import Any_

Shapes = dict[str, list[Any]]
Operands = Mapping[str, relax.Expr]


def complete(name: str, operands: Operands, attributes: dict[str, Any]) -> None:
    """Give types to the operands that are variables without one, in place.

    Parameters
    ----------
    name : str
        Relay's operator.
    operands : mapping of str to tvm.relax.Expr
        By Relay's names.
    attributes : dict
        All of the call's.
    """
    find = _RULES.get(name)
    bare = {
        key: value
        for key, value in operands.items()
        if isinstance(value, relax.Var) and not graph.known(value)
    }
    if find is None or not bare:
        return
    for key, shape in find(operands, attributes).items():
        if key in bare:
            first = next(iter(operands.values()))
            dtype = str(first.ty.dtype) if graph.known(first) else "float32"
            relax.expr._update_type(bare[key], relax.TensorType(shape, dtype))


def _size(expr: relax.Expr, axis: int) -> Any:
    """Give a dimension of an operand; None where it is not known."""
    shape = getattr(expr.ty, "shape", None)
    return shape[axis] if isinstance(shape, relax.ShapeExpr) else None


def _convolution(channels_first: str) -> Callable[[Operands, dict[str, Any]], Shapes]:
    """Find a kernel from channels and kernel_size; a size that nothing tells is a new name."""

    def find(operands: Operands, a: dict[str, Any]) -> Shapes:
        if a["kernel_size"] is None:
            return {}
        data_layout, layout = a["data_layout"], a["kernel_layout"]
        given, groups = _size(operands["data"], data_layout.index("C")), a["groups"]
        sizes = dict(zip([c for c in layout if c not in "IO"], a["kernel_size"], strict=False))
        per_group = {"I": given, "O": a["channels"]}
        other = "I" if channels_first == "O" else "O"
        if per_group[other] is not None:
            per_group[other] = per_group[other] // groups
        sizes |= {axis: Any_() if size is None else size for axis, size in per_group.items()}
        return {"weight": [sizes[axis] for axis in layout]}

    return find


def _dense(operands: Operands, a: dict[str, Any]) -> Shapes:
    features = _size(operands["data"], -1)
    known = a["units"] is not None and features is not None
    return {"weight": [a["units"], features]} if known else {}


def _channels(*names: str) -> Callable[[Operands, dict[str, Any]], Shapes]:
    """Find vectors as long as the data's axis."""

    def find(operands: Operands, a: dict[str, Any]) -> Shapes:
        size = _size(operands["data"], a["axis"])
        return {} if size is None else {name: [size] for name in names}

    return find


_NORM = ("gamma", "beta")
_RULES: dict[str, Callable[[Operands, dict[str, Any]], Shapes]] = {
    "nn.conv1d": _convolution("O"),
    "nn.conv2d": _convolution("O"),
    "nn.conv3d": _convolution("O"),
    "nn.conv2d_transpose": _convolution("I"),
    "nn.dense": _dense,
    "nn.bias_add": _channels("bias"),
    "nn.prelu": _channels("alpha"),
    "nn.batch_norm": _channels(*_NORM, "moving_mean", "moving_var"),
    "nn.layer_norm": _channels(*_NORM),
    "nn.instance_norm": _channels(*_NORM),
    "nn.group_norm": _channels(*_NORM),
}
