"""Quantize, dequantize, requantize and concatenate.

A quantized tensor represents ``scale * (value - zero_point)``. The operators are Relay's
(src/relay/qnn/op: quantize.cc, dequantize.cc, requantize.cc, concatenate.cc, TVM 0.18). Roundings
``"TFLITE"`` and ``"ONNX"`` compute like those frameworks' kernels, see `tvmlab.qnn.frameworks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir, relax

from ..errors import InputError
from ..ir.types import Tensor, differ, result, views
from . import checks, config, layout
from .checks import Array, parameter
from .numbers import (
    Number,
    Value,
    cast,
    clip,
    half_away,
    half_even,
    half_up,
    prevent_contraction,
    saturate,
    saturate_or_wrap,
    to_whole,
)
from .operands import CallOperands
from .operator import FLOATS, OPERATORS, QUANTIZED, Operand, operator

_OUT = ("output_scale", "output_zero_point")


@operator(
    dtypes=FLOATS,
    axes={"output": "axis", "data": "axis"},
    choices={"out_dtype": (*QUANTIZED, "uint16"), "rounding": config.QUANTIZE_ROUNDINGS},
    relay={"out_dtype": ...},
    printed=("out_dtype", "axis", "rounding"),
    at_run_time=_OUT,
)
def quantize(
    numbers: Any,
    data: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
    out_dtype: str = "int8",
    rounding: str = "None",
) -> Value:
    """Quantize a float tensor: ``clip(round(data / output_scale) + output_zero_point)``.

    Parameters
    ----------
    data : tensor
        Any shape, float32 or float16 (widened first).
    output_scale, output_zero_point : float32, int32
        Scalars, or one for each channel.
    axis : int
        The channels' axis.
    out_dtype : str
        int8, uint8, int16, uint16 or int32; the result is clipped to its range, and NaN becomes
        the largest value.
    rounding : str
        ``"None"`` rounds half away from zero, like Relay's operator and TFLite's; ``"ONNX"`` rounds
        half to even.

    Notes
    -----
    Relay's `QuantizeLower` computes in float32 and clips before the cast, so infinities saturate.
    """
    rounded = half_even if rounding == "ONNX" else half_away
    steps = cast(data, "float32") / numbers.along("data", output_scale, "float32")
    zero = cast(numbers.along("data", output_zero_point), "float32")
    return saturate(rounded(steps) + zero, numbers.dtype)


@operator(
    axes={"data": "axis"},
    choices={"out_dtype": FLOATS},
    relay={"out_dtype": ...},
    printed=("out_dtype", "axis"),
    at_run_time=("input_scale", "input_zero_point"),
)
def dequantize(
    numbers: Any,
    data: Operand,
    input_scale: Operand,
    input_zero_point: Operand,
    axis: int = -1,
    out_dtype: str = "float32",
) -> Value:
    """Return the real values of a tensor: ``(data - input_zero_point) * input_scale``.

    Parameters
    ----------
    data : tensor
        Any shape; int8, uint8, int16 or int32.
    input_scale, input_zero_point : float32, int32
        Scalars, or one for each channel.
    axis : int
        The channels' axis.
    out_dtype : str
        float32, or float16 (rounded from it).

    Notes
    -----
    Relay's `DequantizeLower` subtracts in integers (here without wrapping) and multiplies in
    float32.
    """
    scale = numbers.along("data", input_scale, "float32")
    whole = data - numbers.along("data", input_zero_point)
    return cast(cast(whole, "float32") * scale, numbers.dtype)


def rescale(
    numbers: Any,
    x: Value,
    source: tuple[Any, Any],
    target: tuple[Any, Any],
    way: config.Requantization,
    dtype: str,
    name: str,
) -> Value:
    """Convert integers from one scale and zero point to another."""
    ratio, zero = multiplier(source[0], target[0]), numbers.along(name, source[1])
    if ratio is None and way.rounding == "ONNX":
        way = config.Requantization()  # without a multiplication there is no rounding
    kind, out_zero = way.compute_dtype, numbers.along("", target[1])
    if kind == "int64":
        moved = x - zero
        moved = moved if ratio is None else numbers.times(moved, ratio, way.rounding, name)
        return saturate_or_wrap(moved + out_zero, dtype)
    if way.rounding == "ONNX":
        assert ratio is not None
        found = cast(x - zero, kind) * numbers.along(name, ratio, kind)
        if isinstance(out_zero, int) and dtype != "int32":
            # Clip before rounding, so that the rounding handles no larger values than a cast does.
            low, high = (end - out_zero for end in checks.limits(dtype))
            return to_whole(half_even(clip(found, low, high)), (low, high)) + out_zero
        even = cast(half_even(found), "float64") + cast(out_zero, "float64")
        return saturate(even, dtype)
    found = cast(x, kind) - cast(zero, kind)
    if ratio is not None:
        found = prevent_contraction(found * numbers.along(name, ratio, kind))
    out = cast(out_zero, kind)
    if way.rounding == "TFLITE":  # TFLite rounds before it adds the zero point
        return saturate(half_away(found) + out, dtype)
    rounded = half_up if way.rounding == "UPWARD" else half_away
    return saturate(rounded(found + out), dtype)


def multiplier(input_scale: Array, output_scale: Array) -> Array | None:
    """Return the float64 multiplier that changes the scale of integers; None for equal scales."""
    if input_scale.ndim == 0 and input_scale == output_scale:
        return None
    return np.asarray(input_scale.astype(np.float64) / output_scale.astype(np.float64))


def rescale_or_keep(
    numbers: Any, x: Value, source: Any, target: Any, way: config.Requantization, name: str
) -> Value:
    """Convert integers to another scale as int32, unless they have it (`RequantizeOrUpcast`)."""
    if all(a.ndim == 0 and a == b for a, b in zip(source, target, strict=True)):
        return x
    found = rescale(numbers, x, source, target, way, "int32", name)
    return found if isinstance(found, Number) else found.astype(np.int64)


@operator(
    dtypes=(*QUANTIZED, "int64"),
    axes={"data": "axis"},
    choices={"out_dtype": ("", *QUANTIZED)},
    relay={"out_dtype": ""},
    at_run_time=("input_zero_point", "output_zero_point"),
    wide=("input_scale",),
)
def requantize(
    numbers: Any,
    data: Operand,
    input_scale: Operand,
    input_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> Value:
    """Convert a quantized tensor to another scale and zero point.

    Parameters
    ----------
    data : tensor
        Any shape, an integer dtype; often a convolution's int32 sums. int64 is first reduced to
        int32, by wrapping.
    input_scale, input_zero_point : float32, int32
        Scalars, or one for each channel. A float64 scale is used unrounded, because TFLite's
        kernels use the exact product of two float32 scales.
    output_scale, output_zero_point : float32, int32
        Scalars.
    axis : int
        The channels' axis.
    rounding : str
        ``"UPWARD"``, ``"TONEAREST"``, ``"TFLITE"`` (rounded twice, like its kernels), ``"ONNX"``
        (half to even in float32, like ONNX Runtime's kernels), or ``"None"`` for the
        configuration (`tvmlab.qnn.config`).
    compute_dtype : str
        ``"int64"``, ``"float32"``, ``"float64"``, or ``"None"`` as above.
    out_dtype : str
        int8, uint8, int16 or int32; empty for the dtype of the data. Narrow dtypes saturate. In
        int32 the integer roundings wrap, as Relay does not clip there, and the float ones saturate.

    Notes
    -----
    In Relay these are `RequantizeLowerInt` and `RequantizeLowerFP`. The multiplier is
    ``float64(input_scale) / float64(output_scale)``. If a single input scale equals the output's,
    nothing is multiplied or rounded. Relay wraps sums and quotients to int32 before it
    clips; here they do not wrap, so that large values saturate. Results are the same as long as
    Relay's values stay within int32.

    TFLite's rounding in float64 is `FullyConnected` of LiteRT
    (internal/reference/integer_ops/fully_connected.h), which rounds the product half away from zero
    and then adds the zero point, while Relay's float roundings add it first. ONNX Runtime's is
    `MlasRequantizeOutput` (core/mlas/lib/quantize.cpp).
    """
    way = config.resolve("qnn.requantize", rounding, compute_dtype)
    source, target = (input_scale, input_zero_point), (output_scale, output_zero_point)
    return rescale(numbers, data, source, target, way, numbers.dtype, "data")


# Joining


def _concatenate_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    call, names = "qnn.concatenate", OPERATORS["concatenate"].operands
    listed: list[list[Tensor]] = []
    for name, ty in zip(names[:3], types[:3], strict=True):
        parts = list(ty.fields) if isinstance(ty, relax.TupleType) else []
        if not parts or (listed and len(parts) != len(listed[0])):
            what = f"{name} is {ty}; it must be a tuple with one field for each tensor"
            raise InputError(what, where=f"{call}, operand {name}")
        listed.append(views(call, [f"{name}.{i}" for i in range(len(parts))], parts))
    tensors, scales, zeros = listed
    scale, zero = views(call, names[3:], types[3:])
    for operand in (*scales, scale):
        parameter(operand, "float32")
    for operand in (*zeros, zero):
        parameter(operand, "int32")
    dtype = next((tensor.dtype for tensor in tensors if tensor.dtype), "")
    ndim = next((tensor.ndim for tensor in tensors if tensor.ndim >= 0), -1)
    for tensor in tensors:
        tensor.holds((dtype,) if dtype in QUANTIZED else QUANTIZED)
        tensor.rank(ndim)
    return result(_joined(tensors, a["axis"]), dtype, ndim)


def _joined(tensors: list[Tensor], axis: int) -> list[Any] | None:
    first, axis = tensors[0], tensors[0].axis(axis)
    shapes = [tensor.shape for tensor in tensors if tensor.shape is not None]
    if len(shapes) < len(tensors):
        return None
    if not shapes[0]:
        raise first.error("scalars cannot be concatenated")
    for tensor, shape in zip(tensors, shapes, strict=True):
        pairs = enumerate(zip(shapes[0], shape, strict=True))
        if any(differ(*pair) for i, pair in pairs if i != axis):
            raise tensor.error(
                f"{tensor.name} has shape {shape}, {first.name} {shapes[0]}; they can differ along "
                f"axis {axis} only"
            )
    total = sum(shape[axis] for shape in shapes)
    return [*shapes[0][:axis], total, *shapes[0][axis + 1 :]]


def _concatenate(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given, dtype = CallOperands(builder, call), str(call.ty.dtype)
    out, parts = (given.scale("output_scale"), given.zero_point("output_zero_point", dtype)), []
    for i in range(len(call.args[0].ty.fields)):
        data, scale, zero = (f"{name}.{i}" for name in given.names[:3])
        x = given[data]
        if (given.scale(scale), given.zero_point(zero, dtype)) != out:
            points = given[scale], given[zero], *call.args[3:]
            x = builder.emit(requantize.call(x, *points, out_dtype=dtype))
        parts.append(x)
    return relax.op.concat(parts, given.attributes["axis"])


@operator(
    infer_type=_concatenate_type, kernel=_concatenate, layout=layout.concatenate, relay={"axis": 0}
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
    """Concatenate quantized tensors along an axis, each converted to the result's scale.

    Parameters
    ----------
    data : sequence of tensors, or (for a call) one expression that is a tuple
        Shapes that are equal except along `axis`, with the same dtype.
    input_scales, input_zero_points : sequences of float32, of int32
        Scalars, one for each tensor.
    output_scale, output_zero_point : float32, int32
        Scalars.
    axis : int
        The axis along which to concatenate.

    Notes
    -----
    Relay's `ConcatenateQnnCanonicalize` keeps tensors that have the result's scale and zero point;
    it requantizes the others as configured.
    """
    target, way = (output_scale, output_zero_point), config.resolve("qnn.requantize")
    sources = zip(data, zip(input_scales, input_zero_points, strict=True), strict=True)
    parts = [
        x if source == target else rescale(numbers, x, source, target, way, numbers.dtype, "")
        for x, source in sources
    ]
    return np.concatenate(parts, axis)
