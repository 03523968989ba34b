"""Quantized convolutions and matrix products: integers in, int32 sums out.

The result's scale is the product of the operands' scales, its zero point 0. The scales are
operands for those who read the graph; the sums do not use them. The operators are Relay's
(src/relay/qnn/op/convolution.cc, convolution_transpose.cc, dense.cc, batch_matmul.cc, TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax

from ..ir import dialect
from ..ir.products import batch_matmul_shape, dense_shape
from ..ir.types import Tensor, checked_call, parameter, result, views
from ..ir.windows import convolution, transposed
from ..ir.windows import padding as sides
from .config import one_of

OPERANDS = (
    "data",
    "weight",
    "input_zero_point",
    "kernel_zero_point",
    "input_scale",
    "kernel_scale",
)
BATCH_OPERANDS = ("x", "y", "x_zero_point", "y_zero_point", "x_scale", "y_scale")
_NARROW = ("int8", "uint8", "int16")
_SUMS = ("int16", "int32", "int64")


def _parameters(rest: list[Tensor], channels: Any) -> None:
    """Check zero points and scales: of the data scalars, of the weight by channel or scalars."""
    zero, weight_zero, scale, weight_scale = rest
    parameter(zero, "int32")
    parameter(weight_zero, "int32", channels)
    parameter(scale, "float32")
    parameter(weight_scale, "float32", channels)


def _dtypes(call: str, data: Tensor, weight: Tensor, a: dict[str, Any]) -> None:
    data.holds(_NARROW)
    weight.holds(_NARROW)
    one_of(call, "out_dtype", a["out_dtype"], _SUMS)


def _conv2d_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    data, weight, *rest = views("qnn.conv2d", OPERANDS, types)
    _dtypes("qnn.conv2d", data, weight, a)
    shape, channels = convolution(data, weight, "HW", a)
    _parameters(rest, channels)
    return result(shape, a["out_dtype"], 4)


def _conv2d_transpose_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    data, weight, *rest = views("qnn.conv2d_transpose", OPERANDS, types)
    _dtypes("qnn.conv2d_transpose", data, weight, a)
    shape, channels = transposed(data, weight, "HW", a)
    _parameters(rest, channels)
    return result(shape, a["out_dtype"], 4)


def _dense_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    data, weight, *rest = views("qnn.dense", OPERANDS, types)
    _dtypes("qnn.dense", data, weight, a)
    shape, units = dense_shape(data, weight, a["units"])
    _parameters(rest, units)
    return result(shape, a["out_dtype"], data.ndim)


def _batch_matmul_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    x, y, *rest = views("qnn.batch_matmul", BATCH_OPERANDS, types)
    _dtypes("qnn.batch_matmul", x, y, a)
    _parameters(rest, 1)
    return result(batch_matmul_shape(x, y, a), a["out_dtype"], 3)


dialect.register("relax.qnn.conv2d", OPERANDS, _conv2d_type)
dialect.register("relax.qnn.conv2d_transpose", OPERANDS, _conv2d_transpose_type)
dialect.register("relax.qnn.dense", OPERANDS, _dense_type)
dialect.register("relax.qnn.batch_matmul", BATCH_OPERANDS, _batch_matmul_type)


def conv2d(
    data: relax.Expr,
    kernel: relax.Expr,
    input_zero_point: relax.Expr,
    kernel_zero_point: relax.Expr,
    input_scale: relax.Expr,
    kernel_scale: relax.Expr,
    kernel_size: Sequence[int] | None,
    channels: int | None,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "int32",
) -> relax.Call:
    """Convolve quantized data with a quantized kernel.

    ``sum((data - input_zero_point) * (kernel - kernel_zero_point))``, the padding being
    `input_zero_point`.

    Parameters
    ----------
    data : tvm.relax.Expr
        Shape (n, c, h, w) in `data_layout`; int8, uint8 or int16.
    kernel : tvm.relax.Expr
        Shape (o, c / groups, kh, kw) in `kernel_layout`; int8, uint8 or int16. With `groups` = c,
        (c, multiplier, kh, kw) as well.
    input_zero_point, input_scale : tvm.relax.Expr
        int32 and float32 scalars.
    kernel_zero_point, kernel_scale : tvm.relax.Expr
        int32 and float32, scalars or one for each output channel.
    kernel_size : sequence of int or None
        (kh, kw); None leaves it to the kernel.
    channels : int or None
        o; None leaves it to the kernel.
    strides, dilation : sequence of int
        For height and width.
    padding : sequence of int
        One for all sides, (height, width), or (top, left, bottom, right).
    groups : int
        Into how many parts the channels are split.
    data_layout, kernel_layout, out_layout : str
        Orders of NCHW and OIHW; an empty `out_layout` is `data_layout`.
    out_dtype : str
        int32, int16 or int64.

    Returns
    -------
    tvm.relax.Call
        The sums, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.
    """
    attributes = {
        "strides": list(strides),
        "padding": _four(padding, "qnn.conv2d"),
        "dilation": list(dilation),
        "groups": groups,
        "channels": channels,
        "kernel_size": None if kernel_size is None else list(kernel_size),
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_layout": out_layout,
        "out_dtype": out_dtype,
    }
    operands = [data, kernel, input_zero_point, kernel_zero_point, input_scale, kernel_scale]
    return checked_call("relax.qnn.conv2d", operands, attributes)


def conv2d_transpose(
    data: relax.Expr,
    weight: relax.Expr,
    input_zero_point: relax.Expr,
    kernel_zero_point: relax.Expr,
    input_scale: relax.Expr,
    kernel_scale: relax.Expr,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sequence[int] | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Sequence[int] = (0, 0),
    out_dtype: str = "int32",
) -> relax.Call:
    """Convolve quantized data with a quantized kernel, transposed.

    Parameters
    ----------
    data : tvm.relax.Expr
        Shape (n, c, h, w) in `data_layout`; int8, uint8 or int16.
    weight : tvm.relax.Expr
        Shape (c, o / groups, kh, kw) in `kernel_layout`; int8, uint8 or int16.
    output_padding : sequence of int
        Rows and columns added at the bottom and right of the result.

    Other parameters, results and errors are as in `conv2d`.
    """
    attributes = {
        "channels": channels,
        "kernel_size": None if kernel_size is None else list(kernel_size),
        "strides": list(strides),
        "output_padding": list(output_padding),
        "padding": _four(padding, "qnn.conv2d_transpose"),
        "dilation": list(dilation),
        "groups": groups,
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_layout": out_layout,
        "out_dtype": out_dtype,
    }
    operands = [data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale]
    return checked_call("relax.qnn.conv2d_transpose", operands, attributes)


def _four(given: Sequence[int], call: str) -> list[int]:
    """Spell padding as Relay's Python functions do: top, left, bottom, right."""
    return [size for side in zip(*sides(list(given), 2, call), strict=True) for size in side]


def dense(
    data: relax.Expr,
    weight: relax.Expr,
    input_zero_point: relax.Expr,
    kernel_zero_point: relax.Expr,
    input_scale: relax.Expr,
    kernel_scale: relax.Expr,
    units: int | None,
    out_dtype: str = "int32",
) -> relax.Call:
    """Multiply quantized data by a quantized weight, transposed.

    Parameters
    ----------
    data : tvm.relax.Expr
        Shape (..., k); int8, uint8 or int16.
    weight : tvm.relax.Expr
        Shape (units, k); int8, uint8 or int16.
    input_zero_point, input_scale : tvm.relax.Expr
        int32 and float32 scalars.
    kernel_zero_point, kernel_scale : tvm.relax.Expr
        int32 and float32, scalars or one for each unit.
    units : int or None
        The weight's rows; None leaves it to the weight.
    out_dtype : str
        int32, int16 or int64.

    Returns
    -------
    tvm.relax.Call
        Shape (..., units), typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.
    """
    operands = [data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale]
    attributes = {"units": units, "out_dtype": out_dtype}
    return checked_call("relax.qnn.dense", operands, attributes)


def batch_matmul(
    x: relax.Expr,
    y: relax.Expr,
    x_zero_point: relax.Expr,
    y_zero_point: relax.Expr,
    x_scale: relax.Expr,
    y_scale: relax.Expr,
    out_dtype: str = "int32",
) -> relax.Call:
    """Multiply quantized matrices by quantized matrices, transposed.

    Parameters
    ----------
    x, y : tvm.relax.Expr
        Shapes (b, m, k) and (b, n, k), either b may be 1; int8, uint8 or int16.
    x_zero_point, y_zero_point, x_scale, y_scale : tvm.relax.Expr
        int32 and float32 scalars.
    out_dtype : str
        int32, int16 or int64.

    Returns
    -------
    tvm.relax.Call
        Shape (b, m, n), typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.
    """
    operands = [x, y, x_zero_point, y_zero_point, x_scale, y_scale]
    attributes = {"out_dtype": out_dtype, "transpose_a": False, "transpose_b": True}
    return checked_call("relax.qnn.batch_matmul", operands, attributes)
