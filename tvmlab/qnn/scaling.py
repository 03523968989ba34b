"""To and from quantized tensors, and from one scale to another.

A quantized tensor stands for ``scale * (value - zero_point)``. Scales (float32) and zero points
(int32) are operands: scalars, or one for each channel along an axis. The operators are Relay's
(src/relay/qnn/op/quantize.cc, dequantize.cc, requantize.cc, TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax

from ..ir import dialect
from ..ir.types import checked_call, parameter, result, views
from .config import COMPUTE_DTYPES, QUANTIZE_ROUNDINGS, ROUNDINGS, one_of

QUANTIZED = ("int8", "uint8", "int16", "int32")
FLOATS = ("float32", "float16")


def _quantize_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    names = ("data", "output_scale", "output_zero_point")
    data, scale, zero = views("qnn.quantize", names, types)
    data.holds(FLOATS)
    one_of("qnn.quantize", "out_dtype", a["out_dtype"], QUANTIZED)
    one_of("qnn.quantize", "rounding", a.get("rounding", "None"), QUANTIZE_ROUNDINGS)
    parameter(scale, "float32", data.size(a["axis"]), a["axis"])
    parameter(zero, "int32", data.size(a["axis"]), a["axis"])
    return result(data.shape, a["out_dtype"], data.ndim)


def _dequantize_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    names = ("data", "input_scale", "input_zero_point")
    data, scale, zero = views("qnn.dequantize", names, types)
    data.holds(QUANTIZED)
    one_of("qnn.dequantize", "out_dtype", a["out_dtype"], FLOATS)
    parameter(scale, "float32", data.size(a["axis"]), a["axis"])
    parameter(zero, "int32", data.size(a["axis"]), a["axis"])
    return result(data.shape, a["out_dtype"], data.ndim)


def _requantize_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    names = ("data", "input_scale", "input_zero_point", "output_scale", "output_zero_point")
    data, scale, zero, out_scale, out_zero = views("qnn.requantize", names, types)
    data.holds((*QUANTIZED, "int64"))
    one_of("qnn.requantize", "out_dtype", a["out_dtype"], ("", *QUANTIZED))
    one_of("qnn.requantize", "rounding", a["rounding"], ROUNDINGS)
    one_of("qnn.requantize", "compute_dtype", a["compute_dtype"], COMPUTE_DTYPES)
    # TFLite's kernels take the product of two scales unrounded, which float64 holds.
    parameter(scale, ("float32", "float64"), data.size(a["axis"]), a["axis"])
    parameter(zero, "int32", data.size(a["axis"]), a["axis"])
    parameter(out_scale, "float32")
    parameter(out_zero, "int32")
    return result(data.shape, a["out_dtype"] or data.dtype, data.ndim)


dialect.register(
    "relax.qnn.quantize", ("data", "output_scale", "output_zero_point"), _quantize_type
)
dialect.register(
    "relax.qnn.dequantize", ("data", "input_scale", "input_zero_point"), _dequantize_type
)
dialect.register(
    "relax.qnn.requantize",
    ("data", "input_scale", "input_zero_point", "output_scale", "output_zero_point"),
    _requantize_type,
)


def quantize(
    data: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int = -1,
    out_dtype: str = "int8",
    rounding: str = "None",
) -> relax.Call:
    """Quantize a float tensor: ``clip(round(data / output_scale) + output_zero_point)``.

    Parameters
    ----------
    data : tvm.relax.Expr
        Any shape, float32 or float16.
    output_scale : tvm.relax.Expr
        float32, a scalar or one for each channel.
    output_zero_point : tvm.relax.Expr
        int32, a scalar or one for each channel.
    axis : int
        The channels' axis.
    out_dtype : str
        int8, uint8, int16 or int32; the result is clipped to its range.
    rounding : str
        ``"None"``: half-way cases away from zero, as Relay's operator and TFLite's do; ``"ONNX"``:
        to even.

    Returns
    -------
    tvm.relax.Call
        The data's shape in `out_dtype`, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand's dtype or shape does not fit; they name the operand.
    """
    operands = [data, output_scale, output_zero_point]
    attributes = {"out_dtype": out_dtype, "axis": axis, "rounding": rounding}
    return checked_call("relax.qnn.quantize", operands, attributes)


def dequantize(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    axis: int = -1,
    out_dtype: str = "float32",
) -> relax.Call:
    """Give a quantized tensor's real values: ``(data - input_zero_point) * input_scale``.

    Parameters
    ----------
    data : tvm.relax.Expr
        Any shape; int8, uint8, int16 or int32.
    input_scale, input_zero_point : tvm.relax.Expr
        float32 and int32, scalars or one for each channel.
    axis : int
        The channels' axis.
    out_dtype : str
        float32 or float16.

    Returns
    -------
    tvm.relax.Call
        The data's shape in `out_dtype`, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand's dtype or shape does not fit; they name the operand.
    """
    operands = [data, input_scale, input_zero_point]
    attributes = {"out_dtype": out_dtype, "axis": axis}
    return checked_call("relax.qnn.dequantize", operands, attributes)


def requantize(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> relax.Call:
    """Bring a quantized tensor to another scale and zero point.

    Parameters
    ----------
    data : tvm.relax.Expr
        Any shape, an integer dtype; often a convolution's int32 sums.
    input_scale, input_zero_point : tvm.relax.Expr
        float32 (or float64) and int32, scalars or one for each channel.
    output_scale, output_zero_point : tvm.relax.Expr
        float32 and int32 scalars.
    axis : int
        The channels' axis.
    rounding : str
        ``"UPWARD"``, ``"TONEAREST"``, ``"TFLITE"`` (rounded twice, as its kernels do), ``"ONNX"``
        (to even, from float32, as ONNX Runtime's do), or
        ``"None"`` to leave the choice to the configuration (`tvmlab.qnn.config`).
    compute_dtype : str
        ``"int64"``, ``"float32"``, ``"float64"``, or ``"None"`` as above.
    out_dtype : str
        int8, uint8, int16 or int32.

    Returns
    -------
    tvm.relax.Call
        The data's shape in `out_dtype`, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand's dtype or shape does not fit; they name the operand.
    """
    operands = [data, input_scale, input_zero_point, output_scale, output_zero_point]
    attributes = {
        "axis": axis,
        "rounding": rounding,
        "compute_dtype": compute_dtype,
        "out_dtype": out_dtype,
    }
    return checked_call("relax.qnn.requantize", operands, attributes)
