"""Quantized arithmetic element by element, functions of one tensor, and joining.

Each takes its operands' scales and zero points and those of the result, as operands. The operators
are Relay's (src/relay/qnn/op: op_common.h, unary_elementwise_op.cc, leaky_relu.cc, softmax.cc,
concatenate.cc, TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax

from ..errors import InputError, ShapeError
from ..ir import dialect
from ..ir.types import (
    Tensor,
    broadcast,
    checked_call,
    differ,
    expression,
    parameter,
    result,
    view,
    views,
)
from .config import ROUNDINGS, one_of

BINARY_OPERANDS = (
    "lhs",
    "rhs",
    "lhs_scale",
    "lhs_zero_point",
    "rhs_scale",
    "rhs_zero_point",
    "output_scale",
    "output_zero_point",
)
UNARY_OPERANDS = ("x", "scale", "zero_point", "output_scale", "output_zero_point")
CONCATENATE_OPERANDS = (
    "data",
    "input_scales",
    "input_zero_points",
    "output_scale",
    "output_zero_point",
)
BINARY = ("add", "subtract", "mul")
UNARY = ("tanh", "exp", "sqrt", "rsqrt", "erf", "sigmoid", "hardswish", "log", "abs")
_NARROW = ("int8", "uint8", "int16", "int32")


def pairs(
    rest: Sequence[Tensor], channels: Sequence[Any], axes: Sequence[int | None] | None = None
) -> None:
    """Check scales and zero points, which stand in turn."""
    axes = axes or [None] * len(channels)
    for scale, zero, count, axis in zip(rest[::2], rest[1::2], channels, axes, strict=True):
        parameter(scale, "float32", count, axis)
        parameter(zero, "int32", count, axis)


def _binary_type(name: str) -> dialect.Infer:
    def infer(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
        lhs, rhs, *rest = views(name, BINARY_OPERANDS, types)
        one_of(name, "rounding", a["rounding"], ROUNDINGS)
        lhs.holds(_NARROW)
        rhs.holds((lhs.dtype,) if lhs.dtype else _NARROW)
        axes = (a["lhs_axis"], a["rhs_axis"], None)
        pairs(rest, (lhs.size(a["lhs_axis"]), rhs.size(a["rhs_axis"]), 1), axes)
        shape = broadcast(lhs, rhs)
        known = min(lhs.ndim, rhs.ndim) >= 0
        return result(shape, lhs.dtype or rhs.dtype, max(lhs.ndim, rhs.ndim) if known else -1)

    return infer


def _unary_type(name: str) -> dialect.Infer:
    def infer(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
        x, *rest = views(name, UNARY_OPERANDS, types)
        x.holds(_NARROW)
        if "axis" in a:
            x.axis(a["axis"])
        pairs(rest, (1, 1))
        return result(x.shape, x.dtype, x.ndim)

    return infer


def _fields(call: str, name: str, ty: ir.Type) -> list[Tensor] | None:
    """Look at a tuple operand's fields; None where it is unknown."""
    if isinstance(ty, relax.TupleType):
        return [view(call, f"{name}.{i}", field) for i, field in enumerate(ty.fields)]
    if isinstance(ty, relax.ObjectType):
        return None
    raise InputError(f"{name} is no tuple: {ty}", where=f"{call}, operand {name}")


def _concatenate_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    call = "qnn.concatenate"
    tensors, scales, zeros = (
        _fields(call, name, ty)
        for name, ty in zip(CONCATENATE_OPERANDS[:3], types[:3], strict=True)
    )
    pairs(views(call, CONCATENATE_OPERANDS[3:], types[3:]), (1,))
    for name, dtype, given in (
        ("input_scales", "float32", scales),
        ("input_zero_points", "int32", zeros),
    ):
        for operand in given or ():
            parameter(operand, dtype)
        if given is not None and tensors is not None and len(given) != len(tensors):
            raise InputError(
                f"{name} has {len(given)} fields, data {len(tensors)}",
                where=f"{call}, operand {name}",
            )
    if tensors is None:
        return relax.TensorType(dtype="", ndim=-1)
    if not tensors:
        raise InputError("data is an empty tuple", where=f"{call}, operand data")
    dtype = next((tensor.dtype for tensor in tensors if tensor.dtype), "")
    ndim = next((tensor.ndim for tensor in tensors if tensor.ndim >= 0), -1)
    for tensor in tensors:
        tensor.holds((dtype,) if dtype in _NARROW else _NARROW)
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


for _name in BINARY:
    dialect.register(f"relax.qnn.{_name}", BINARY_OPERANDS, _binary_type(f"qnn.{_name}"))
for _name in (*UNARY, "leaky_relu", "softmax"):
    dialect.register(f"relax.qnn.{_name}", UNARY_OPERANDS, _unary_type(f"qnn.{_name}"))
dialect.register("relax.qnn.concatenate", CONCATENATE_OPERANDS, _concatenate_type)


def _binary(name: str, what: str) -> Callable[..., relax.Call]:
    def build(
        lhs: relax.Expr,
        rhs: relax.Expr,
        lhs_scale: relax.Expr,
        lhs_zero_point: relax.Expr,
        rhs_scale: relax.Expr,
        rhs_zero_point: relax.Expr,
        output_scale: relax.Expr,
        output_zero_point: relax.Expr,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
        rounding: str = "None",
    ) -> relax.Call:
        operands = [lhs, rhs, lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point]
        attributes = {"lhs_axis": lhs_axis, "rhs_axis": rhs_axis, "rounding": rounding}
        return checked_call(
            f"relax.qnn.{name}", [*operands, output_scale, output_zero_point], attributes
        )

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"""{what} two quantized tensors, with NumPy's broadcasting.

    Parameters
    ----------
    lhs, rhs : tvm.relax.Expr
        Shapes that broadcast, one dtype: int8, uint8, int16 or int32.
    lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point : tvm.relax.Expr
        float32 and int32, scalars or one for each channel of their tensor.
    output_scale, output_zero_point : tvm.relax.Expr
        float32 and int32 scalars.
    lhs_axis, rhs_axis : int
        The channels' axes.
    rounding : str
        As in `tvmlab.qnn.op.requantize`. ``"TFLITE"`` means its kernel of this operator.

    Returns
    -------
    tvm.relax.Call
        The broadcast shape in the operands' dtype, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand's dtype or shape does not fit; they name the operand.
    """
    return build


def _unary(name: str, what: str) -> Callable[..., relax.Call]:
    def build(
        x: relax.Expr,
        scale: relax.Expr,
        zero_point: relax.Expr,
        output_scale: relax.Expr,
        output_zero_point: relax.Expr,
    ) -> relax.Call:
        operands = [x, scale, zero_point, output_scale, output_zero_point]
        return checked_call(f"relax.qnn.{name}", operands, {})

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"""{what} of a quantized tensor's real values, quantized again.

    Parameters
    ----------
    x : tvm.relax.Expr
        Any shape; int8, uint8, int16 or int32.
    scale, zero_point, output_scale, output_zero_point : tvm.relax.Expr
        float32 and int32 scalars.

    Returns
    -------
    tvm.relax.Call
        The shape and dtype of `x`, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand's dtype or shape does not fit; they name the operand.
    """
    return build


add = _binary("add", "Add")
subtract = _binary("subtract", "Subtract")
mul = _binary("mul", "Multiply")
tanh = _unary("tanh", "Hyperbolic tangent")
exp = _unary("exp", "Exponential")
sqrt = _unary("sqrt", "Square root")
rsqrt = _unary("rsqrt", "Reciprocal of the square root")
erf = _unary("erf", "Error function")
sigmoid = _unary("sigmoid", "Logistic function")
hardswish = _unary("hardswish", "Hard swish, ``x * clip(x + 3, 0, 6) / 6``,")
log = _unary("log", "Logarithm")
abs = _unary("abs", "Absolute value")


def softmax(
    x: relax.Expr,
    scale: relax.Expr,
    zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int = -1,
) -> relax.Call:
    """Softmax of a quantized tensor's real values along an axis, quantized again.

    Parameters
    ----------
    x : tvm.relax.Expr
        Any shape; int8, the only dtype that Relay's arithmetic has here.
    scale, zero_point, output_scale, output_zero_point : tvm.relax.Expr
        float32 and int32 scalars; `scale` is at most 1 where it is compiled.
    axis : int
        Along which the results add up to 1.

    Returns
    -------
    tvm.relax.Call
        The shape and dtype of `x`, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand's dtype or shape does not fit, or there is no such axis; they name the
        operand.
    """
    # Relay's type relation takes other dtypes, and text of Relay's is read by that.
    view("qnn.softmax", "x", expression("qnn.softmax", "x", x).ty).holds(("int8",))
    operands = [x, scale, zero_point, output_scale, output_zero_point]
    return checked_call("relax.qnn.softmax", operands, {"axis": axis})


def leaky_relu(
    x: relax.Expr,
    alpha: float,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
) -> relax.Call:
    """Multiply negative values of a quantized tensor by `alpha`, and quantize again.

    Other parameters, results and errors are as in `tanh`.
    """
    operands = [x, input_scale, input_zero_point, output_scale, output_zero_point]
    return checked_call("relax.qnn.leaky_relu", operands, {"alpha": float(alpha)})


def concatenate(
    data: Sequence[relax.Expr] | relax.Expr,
    input_scales: Sequence[relax.Expr],
    input_zero_points: Sequence[relax.Expr],
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int,
) -> relax.Call:
    """Join quantized tensors along an axis, each brought to the result's scale.

    Parameters
    ----------
    data : sequence of tvm.relax.Expr, or one that is a tuple
        Shapes that agree but for `axis`, one dtype.
    input_scales, input_zero_points : sequence of tvm.relax.Expr
        float32 and int32 scalars, one for each tensor.
    output_scale, output_zero_point : tvm.relax.Expr
        float32 and int32 scalars.
    axis : int
        Along which to join.

    Returns
    -------
    tvm.relax.Call
        The joined tensor, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand's dtype or shape does not fit; they name the operand.
    """
    operands = [
        data if isinstance(data, relax.Expr) else _tuple("data", data),
        _tuple("input_scales", input_scales),
        _tuple("input_zero_points", input_zero_points),
        output_scale,
        output_zero_point,
    ]
    return checked_call("relax.qnn.concatenate", operands, {"axis": axis})


def _tuple(name: str, given: Sequence[relax.Expr]) -> relax.Tuple:
    call = "qnn.concatenate"
    return relax.Tuple([expression(call, f"{name}.{i}", value) for i, value in enumerate(given)])
