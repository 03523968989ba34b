"""Rows for normalizations.

Names, attributes and types are those of src/relay/op/nn/nn.cc (TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from .. import dialect
from ..table import Attribute, Operator, add, add_ours
from ..types import result, view
from .checks import relay_errors
from .common import Operands, Values, Written, two_forms


def _attributes(axis: int, *before: Attribute) -> tuple[Attribute, ...]:
    return (
        *before,
        Attribute("axis", "int", axis),
        Attribute("epsilon", "float", 1e-5),
        Attribute("center", "bool", True),
        Attribute("scale", "bool", True),
    )


def _common(a: Any, axis: int) -> Values:
    return {
        "axis": axis,
        "epsilon": float(a.epsilon),
        "center": bool(a.center),
        "scale": bool(a.scale),
    }


# Batch normalization. Relay has no momentum, which matters in training only: 0.9 is ONNX's
# default, so that a network from there comes back as it went.

_MOMENTUM = 0.9


def _read_batch_norm(operands: Operands, a: Values) -> relax.Expr:
    return op.nn.batch_norm(*operands, **a, momentum=_MOMENTUM, training=False)


def _write_batch_norm(call: relax.Call) -> Written | None:
    if call.attrs.training:
        return None
    return list(call.args), _common(call.attrs, int(call.attrs.axis))


add(
    Operator(
        "nn.batch_norm",
        "relax.nn.batch_norm",
        ("data", "gamma", "beta", "moving_mean", "moving_var"),
        _attributes(1),
        _read_batch_norm,
        _write_batch_norm,
    )
)


# Layer, instance and group normalization. Relax's own multiply and add in any case, whatever
# ``scale`` and ``center`` say: they serve where both are set, an operator of ours elsewhere.

Native = Callable[[Operands, Values, int], relax.Expr]
"""Relax's call from the operands, Relay's attributes and the number of axes."""


def _norm(
    name: str, attributes: tuple[Attribute, ...], native: Native, axis: Callable[[Any], int]
) -> None:
    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        data = view(name, "data", types[0])
        data.axis(a["axis"])
        return result(data.shape, data.dtype, data.ndim)

    def expand(given: Operands, a: Values) -> relax.Expr:
        data, gamma, beta = given
        gamma = gamma if a["scale"] else op.ones_like(gamma)
        beta = beta if a["center"] else op.zeros_like(beta)
        return native((data, gamma, beta), a | {"center": True, "scale": True}, data.ty.ndim)

    def read(given: Operands, a: Values) -> relax.Expr | None:
        data = view(name, "data", given[0].ty)
        with relay_errors():
            data.axis(a["axis"])
        if a["center"] and a["scale"] and data.ndim >= 0:
            return native(given, a, data.ndim)
        return None

    def write(call: relax.Call) -> Written | None:
        ndim = view(name, "data", call.args[0].ty).ndim
        found = _common(call.attrs, axis(call.attrs))
        if "num_groups" in {attribute.name for attribute in attributes}:
            found = {"num_groups": int(call.attrs.num_groups), **found}
        if ndim < 0:
            return None
        # Relax normalizes over any axes, Relay over those that its one axis implies.
        same = native(call.args, found, ndim).attrs.axes
        wanted = sorted(int(i) % ndim for i in call.attrs.axes)
        return (list(call.args), found) if sorted(int(i) % ndim for i in same) == wanted else None

    operands = ("data", "gamma", "beta")
    two_forms(name, operands, attributes, f"relax.{name}", read, write, infer, expand)


def _layer_norm(operands: Operands, a: Values, _: int) -> relax.Expr:
    return op.nn.layer_norm(*operands, [a["axis"]], a["epsilon"], a["center"], a["scale"])


def _others(axis: int, ndim: int) -> list[int]:
    """List the axes that are neither the batch nor the channels."""
    return [i for i in range(1, ndim) if i != axis % ndim]


def _instance_norm(operands: Operands, a: Values, ndim: int) -> relax.Expr:
    axes = _others(a["axis"], ndim)
    return op.nn.instance_norm(*operands, a["axis"], axes, a["epsilon"], a["center"], a["scale"])


def _group_norm(operands: Operands, a: Values, ndim: int) -> relax.Expr:
    axes = _others(a["axis"], ndim)
    return op.nn.group_norm(
        *operands, a["num_groups"], a["axis"], axes, a["epsilon"], a["center"], a["scale"]
    )


_GROUPS = Attribute("num_groups", "int", 0)
_norm("nn.layer_norm", _attributes(-1), _layer_norm, lambda a: int(a.axes[0]))
_norm("nn.instance_norm", _attributes(1), _instance_norm, lambda a: int(a.channel_axis))
_norm("nn.group_norm", _attributes(1, _GROUPS), _group_norm, lambda a: int(a.channel_axis))


# Normalization by neighbours, and by length


def _same_type(name: str) -> dialect.Infer:
    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        data = view(name, "data", types[0])
        for axis in [a["axis"]] if isinstance(a["axis"], int) else a["axis"] or ():
            data.axis(axis)
        if a.get("size", 1) % 2 == 0:
            raise RelayError(f"size is {a['size']}; it has to be odd", where=f"{name}, size")
        return result(data.shape, data.dtype, data.ndim)

    return infer


def _scalar(value: float, like: relax.Expr) -> relax.Expr:
    return relax.const(value, str(like.ty.dtype))


def _lrn(operands: Operands, a: Values) -> relax.Expr:
    (data,) = operands
    axis, half = a["axis"] % data.ty.ndim, a["size"] // 2
    widths = [0] * (2 * data.ty.ndim)
    widths[2 * axis] = widths[2 * axis + 1] = half
    squares = op.nn.pad(op.multiply(data, data), widths)
    length = data.ty.shape[axis]
    total = None
    for start in range(a["size"]):
        part = op.strided_slice(squares, [axis], [start], [length + start])
        total = part if total is None else op.add(total, part)
    scaled = op.multiply(total, _scalar(a["alpha"] / a["size"], data))
    base = op.add(scaled, _scalar(a["bias"], data))
    return op.divide(data, op.power(base, _scalar(a["beta"], data)))


add_ours(
    "nn.lrn",
    ("data",),
    (
        Attribute("size", "int", 5),
        Attribute("axis", "int", 1),
        Attribute("bias", "float", 2.0),
        Attribute("alpha", "float", 0.0001),
        Attribute("beta", "float", 0.75),
    ),
    _same_type("nn.lrn"),
    _lrn,
    defaults={"alpha": 0.00001},
)


def _l2_normalize(operands: Operands, a: Values) -> relax.Expr:
    (data,) = operands
    total = op.sum(op.multiply(data, data), a["axis"] or None, keepdims=True)
    return op.divide(data, op.sqrt(op.maximum(total, _scalar(a["eps"], data))))


add_ours(
    "nn.l2_normalize",
    ("data",),
    (Attribute("eps", "float"), Attribute("axis", "ints")),
    _same_type("nn.l2_normalize"),
    _l2_normalize,
    defaults={"axis": None},
)
