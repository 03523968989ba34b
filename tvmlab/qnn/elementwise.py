"""Quantized arithmetic element by element, functions of one tensor, joining and pooling.

Each takes its operands' scales and zero points and those of the result, as operands. The operators
are Relay's (src/relay/qnn/op: op_common.h, unary_elementwise_op.cc, leaky_relu.cc, softmax.cc,
concatenate.cc, avg_pool2d.cc, TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax

from .. import dialect
from ..errors import InputError, ShapeError
from .config import ROUNDINGS, one_of
from .types import Tensor, broadcast, differ, parameter, result, view, views
from .windows import pooling

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
POOL_OPERANDS = (
    "data",
    "input_scale",
    "input_zero_point",
    "output_scale",
    "output_zero_point",
)
BINARY = ("add", "subtract", "mul")
UNARY = ("tanh", "exp", "sqrt", "rsqrt", "erf", "sigmoid", "hardswish", "log", "abs")
_NARROW = ("int8", "uint8", "int16", "int32")


def _pairs(rest: Sequence[Tensor], channels: Sequence[Any]) -> None:
    """Check scales and zero points, which stand in turn."""
    for scale, zero, count in zip(rest[::2], rest[1::2], channels, strict=True):
        parameter(scale, "float32", count)
        parameter(zero, "int32", count)


def _binary_type(name: str) -> dialect.Infer:
    def infer(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
        lhs, rhs, *rest = views(name, BINARY_OPERANDS, types)
        one_of(name, "rounding", a["rounding"], ROUNDINGS)
        lhs.holds(_NARROW)
        rhs.holds((lhs.dtype,) if lhs.dtype else _NARROW)
        _pairs(rest, (lhs.size(a["lhs_axis"]), rhs.size(a["rhs_axis"]), 1))
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
        _pairs(rest, (1, 1))
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
    _pairs(views(call, CONCATENATE_OPERANDS[3:], types[3:]), (1,))
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


def _avg_pool2d_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    data, *rest = views("qnn.avg_pool2d", POOL_OPERANDS, types)
    one_of("qnn.avg_pool2d", "rounding", a["rounding"], ROUNDINGS)
    data.holds(_NARROW)
    _pairs(rest, (1, 1))
    return result(pooling(data, "HW", a), data.dtype, 4)


for _name in BINARY:
    dialect.register(f"relax.qnn.{_name}", BINARY_OPERANDS, _binary_type(f"qnn.{_name}"))
for _name in (*UNARY, "leaky_relu", "softmax"):
    dialect.register(f"relax.qnn.{_name}", UNARY_OPERANDS, _unary_type(f"qnn.{_name}"))
dialect.register("relax.qnn.concatenate", CONCATENATE_OPERANDS, _concatenate_type)
dialect.register("relax.qnn.avg_pool2d", POOL_OPERANDS, _avg_pool2d_type)


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
        return dialect.typed_call(
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
        return dialect.typed_call(f"relax.qnn.{name}", operands, {})

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

    Parameters, results and errors are as in `tanh`, and `axis` is an axis of `x`.
    """
    operands = [x, scale, zero_point, output_scale, output_zero_point]
    return dialect.typed_call("relax.qnn.softmax", operands, {"axis": axis})


def leaky_relu(
    x: relax.Expr,
    alpha: float,
    scale: relax.Expr,
    zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
) -> relax.Call:
    """Multiply negative values of a quantized tensor by `alpha`, and quantize again.

    Other parameters, results and errors are as in `tanh`.
    """
    operands = [x, scale, zero_point, output_scale, output_zero_point]
    return dialect.typed_call("relax.qnn.leaky_relu", operands, {"alpha": float(alpha)})


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
        data if isinstance(data, relax.Expr) else relax.Tuple(list(data)),
        relax.Tuple(list(input_scales)),
        relax.Tuple(list(input_zero_points)),
        output_scale,
        output_zero_point,
    ]
    return dialect.typed_call("relax.qnn.concatenate", operands, {"axis": axis})


def avg_pool2d(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NHWC",
    out_layout: str = "",
    rounding: str = "None",
) -> relax.Call:
    """Average windows of a quantized image.

    Parameters
    ----------
    data : tvm.relax.Expr
        Shape (n, h, w, c) in `layout`; int8, uint8, int16 or int32.
    input_scale, input_zero_point, output_scale, output_zero_point : tvm.relax.Expr
        float32 and int32 scalars.
    pool_size, strides, dilation : sequence of int
        For height and width.
    padding : sequence of int
        One for all sides, (height, width), or (top, left, bottom, right).
    ceil_mode : bool
        Whether a last window that is not full counts, unless it begins after the data's end.
    count_include_pad : bool
        Whether padding counts in an average.
    layout, out_layout : str
        Orders of NHWC; an empty `out_layout` is `layout`.
    rounding : str
        As in `tvmlab.qnn.op.requantize`. ``"TFLITE"`` means its kernel: averages rounded half away
        from zero; Relay's other ways cut them off.

    Returns
    -------
    tvm.relax.Call
        The averages in the data's dtype, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.
    """
    operands = [data, input_scale, input_zero_point, output_scale, output_zero_point]
    attributes = {
        "pool_size": list(pool_size),
        "strides": list(strides),
        "dilation": list(dilation),
        "padding": list(padding),
        "layout": layout,
        "out_layout": out_layout,
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
        "rounding": rounding,
    }
    return dialect.typed_call("relax.qnn.avg_pool2d", operands, attributes)
