"""Joining quantized tensors: Relay's `qnn.concatenate` (src/relay/qnn/op/concatenate.cc)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir, relax

from ..errors import InputError, ShapeError
from ..ir.types import Tensor, differ, parameter, result, view, views
from . import config, layout
from .numbers import Value
from .operands import CallOperands, fields
from .operator import OPERATORS, QUANTIZED, Operand, operator
from .rescale import requantize, rescale

_OUT = ("output_scale", "output_zero_point")


def _fields(name: str, ty: ir.Type) -> list[Tensor] | None:
    """Look at a tuple operand's fields; None where it is unknown."""
    call = "qnn.concatenate"
    if isinstance(ty, relax.TupleType):
        return [view(call, f"{name}.{i}", field) for i, field in enumerate(ty.fields)]
    if isinstance(ty, relax.ObjectType):
        return None
    raise InputError(f"{name} is no tuple: {ty}", where=f"{call}, operand {name}")


def _concatenate_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    call, row = "qnn.concatenate", OPERATORS["concatenate"]
    tensors, *rest = (_fields(*given) for given in zip(row.operands[:3], types[:3], strict=True))
    named = zip(row.operands[1:3], ("float32", "int32"), rest, strict=True)
    for name, dtype, given in named:
        for operand in given or ():
            parameter(operand, dtype)
        if given is not None and tensors is not None and len(given) != len(tensors):
            raise InputError(
                f"{name} has {len(given)} fields, data {len(tensors)}",
                where=f"{call}, operand {name}",
            )
    for operand, dtype in zip(views(call, _OUT, types[3:]), ("float32", "int32"), strict=True):
        parameter(operand, dtype)
    if tensors is None:
        return relax.TensorType(dtype="", ndim=-1)
    if not tensors:
        raise InputError("data is an empty tuple", where=f"{call}, operand data")
    dtype = next((tensor.dtype for tensor in tensors if tensor.dtype), "")
    ndim = next((tensor.ndim for tensor in tensors if tensor.ndim >= 0), -1)
    for tensor in tensors:
        tensor.holds((dtype,) if dtype in QUANTIZED else QUANTIZED)
        tensor.rank(ndim)
    return result(_joined(tensors, a["axis"]), dtype, ndim)


def _joined(tensors: list[Tensor], axis: int) -> list[Any] | None:
    first = tensors[0]
    axis = first.axis(axis)
    if any(tensor.shape is None for tensor in tensors):
        return None
    sizes = list(first.shape or ())
    if not sizes:
        raise ShapeError("scalars cannot be joined", where=first.where)
    for tensor in tensors[1:]:
        for i, size in enumerate(tensor.shape or ()):
            if i == axis:
                sizes[i] = sizes[i] + size
            elif differ(sizes[i], size):
                raise ShapeError(
                    f"{tensor.name} has shape {tensor.shape}, {first.name} {first.shape}; they "
                    f"may differ along axis {axis} only",
                    where=tensor.where,
                )
    return sizes


def _concatenate(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Requantize what has another scale, and join all."""
    given, dtype = CallOperands(builder, call), str(call.ty.dtype)
    out = given.scale("output_scale"), given.zero_point("output_zero_point", dtype)
    named = zip(*(fields(builder, operand) for operand in call.args[:3]), strict=True)
    parts = []
    for i, (x, scale, zero) in enumerate(named):
        own = (
            given.scale(f"input_scales.{i}", expr=scale),
            given.zero_point(f"input_zero_points.{i}", dtype, expr=zero),
        )
        if own != out:
            x = builder.emit(requantize.call(x, scale, zero, *call.args[3:], out_dtype=dtype))
        parts.append(x)
    return relax.op.concat(parts, given.attributes["axis"])


@operator(
    infer_type=_concatenate_type,
    kernel=_concatenate,
    layout=layout.concatenate,
    relay={"axis": 0},
)
def concatenate(
    numbers: Any,
    data: Operand,
    input_scales: Operand,
    input_zero_points: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int,
) -> Value:
    """Join quantized tensors along an axis, each brought to the result's scale.

    Parameters
    ----------
    data : sequence of tensors, or (for a call) one expression that is a tuple
        Shapes that agree but for `axis`, one dtype.
    input_scales, input_zero_points : sequences of float32, of int32
        Scalars, one for each tensor.
    output_scale, output_zero_point : float32, int32
        Scalars.
    axis : int
        Along which to join.

    Notes
    -----
    Relay's `ConcatenateQnnCanonicalize`: what has the result's scale and zero point already passes
    as it is; the rest is requantized as the configuration says.
    """
    target, way = (output_scale, output_zero_point), config.resolve("qnn.requantize")
    sources = zip(data, zip(input_scales, input_zero_points, strict=True), strict=True)
    parts = [
        x if source == target else rescale(numbers, x, source, target, way, numbers.dtype, "")
        for x, source in sources
    ]
    return np.concatenate(parts, axis)
