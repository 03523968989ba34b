"""To and from quantized tensors, and from one scale to another, in NumPy.

A quantized tensor stands for ``scale * (value - zero_point)``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ...ir import checks
from ...ir.checks import Array
from .. import config
from .fixed_point import fixed_point_multipliers, multiply


def quantize(
    data: Array,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
    axis: int = -1,
    out_dtype: str = "int8",
    rounding: str = "None",
) -> Array:
    """Quantize real numbers: ``clip(round(data / output_scale) + output_zero_point)``.

    Parameters
    ----------
    data : numpy.ndarray
        Any shape, float32 or float16 (widened first).
    output_scale, output_zero_point : array_like
        One value, or one for each channel.
    axis : int
        The channels' axis.
    out_dtype : str
        int8, uint8, int16 or int32.
    rounding : str
        ``"None"``: half-way cases away from zero; ``"ONNX"``: to even.

    Returns
    -------
    numpy.ndarray
        The data's shape in `out_dtype`. NaN becomes the largest value.

    Raises
    ------
    tvmlab.errors.InputError
        If a scale or zero point is none, or the axis is out of range.

    Notes
    -----
    Relay's `QuantizeLower` (src/relay/qnn/op/quantize.cc, TVM 0.18): all of it in float32, half-way
    cases away from zero, clipped before the cast, so that infinities saturate. (Its round is no
    longer TVM's: `te.round` has been ties-to-even since 0.24.) ONNX's QuantizeLinear rounds half
    to even.
    """
    config.one_of("qnn.quantize", "rounding", rounding, config.QUANTIZE_ROUNDINGS)
    data = np.asarray(data)
    count = channels("qnn.quantize", data, axis)
    scale = along(checks.scale(output_scale, "qnn.quantize", "output_scale", count), data, axis)
    zero = checks.zero_point(
        output_zero_point, "qnn.quantize", "output_zero_point", out_dtype, count
    )
    with np.errstate(over="ignore", invalid="ignore"):
        steps = data.astype(np.float32) / scale
        rounded = np.rint(steps) if rounding == "ONNX" else half_away(steps)
        shifted = rounded + along(zero, data, axis).astype(np.float32)
    return saturate(shifted, out_dtype)


def dequantize(
    data: Array,
    input_scale: npt.ArrayLike,
    input_zero_point: npt.ArrayLike,
    axis: int = -1,
    out_dtype: str = "float32",
) -> Array:
    """Give the real numbers of a quantized tensor: ``(data - input_zero_point) * input_scale``.

    Parameters
    ----------
    data : numpy.ndarray
        Any shape; int8, uint8, int16 or int32.
    input_scale, input_zero_point : array_like
        One value, or one for each channel.
    axis : int
        The channels' axis.
    out_dtype : str
        float32, or float16 (rounded from it).

    Returns
    -------
    numpy.ndarray
        The data's shape in `out_dtype`.

    Raises
    ------
    tvmlab.errors.InputError
        If a scale or zero point is none, or the axis is out of range.

    Notes
    -----
    Relay's `DequantizeLower` (src/relay/qnn/op/dequantize.cc): the difference in integers (here
    without wrapping), the product in float32.
    """
    data = np.asarray(data)
    call, count = "qnn.dequantize", channels("qnn.dequantize", data, axis)
    scale = along(checks.scale(input_scale, call, "input_scale", count), data, axis)
    zero = checks.zero_point(input_zero_point, call, "input_zero_point", data.dtype.name, count)
    shifted = data.astype(np.int64) - along(zero, data, axis)
    with np.errstate(over="ignore"):
        return (shifted.astype(np.float32) * scale).astype(out_dtype)


def requantize(
    data: Array,
    input_scale: npt.ArrayLike,
    input_zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> Array:
    """Bring integers to another scale and zero point.

    Parameters
    ----------
    data : numpy.ndarray
        Any shape, an integer dtype. int64 is brought to int32 first, by wrapping.
    input_scale, input_zero_point : array_like
        One value, or one for each channel. A float64 array is taken as it is: TFLite's kernels use
        the product of two float32 scales unrounded.
    output_scale, output_zero_point : array_like
        One value.
    axis : int
        The channels' axis.
    rounding : str
        ``"UPWARD"``, ``"TONEAREST"``, ``"TFLITE"``, ``"ONNX"``, or ``"None"`` for the
        configuration's (`tvmlab.qnn.config.requantize_config`).
    compute_dtype : str
        ``"int64"``, ``"float32"``, ``"float64"``, or ``"None"`` as above.
    out_dtype : str
        int8, uint8, int16 or int32; an empty one is the data's.

    Returns
    -------
    numpy.ndarray
        The data's shape in `out_dtype`. Narrow dtypes are saturated. In int32 the integer ways wrap
        as Relay's do (it has no clip there), the float ways saturate.

    Raises
    ------
    tvmlab.errors.InputError
        If a scale or zero point is none, an attribute is unknown, the axis is out of range, or the
        scales are 2**30 apart.

    Notes
    -----
    Relay's `RequantizeLowerInt` and `RequantizeLowerFP` (src/relay/qnn/op/requantize.cc). The
    multiplier is ``float64(input_scale) / float64(output_scale)``. Where one input scale is the
    output's, there is no multiplication, so nothing is rounded. Relay wraps sums and quotients to
    int32 before it clips; here they are whole, so that what is too large saturates: the same
    wherever Relay's stay within int32.

    TFLite's rounding in int64 is `tvmlab.qnn.reference.fixed_point.multiply_tflite`; in float64 it
    is `FullyConnected` of LiteRT (internal/reference/integer_ops/fully_connected.h), which rounds
    the product half away from zero and then adds the zero point, while Relay's float ways add it
    first.

    ONNX Runtime's rounding is `MlasRequantizeOutput` (core/mlas/lib/quantize.cpp): the sum in
    float32, times the quotient of the scales in float32, rounded half to even; then the zero point.
    """
    data, call = np.asarray(data), "qnn.requantize"
    count = channels(call, data, axis)
    way = config.resolve(call, rounding, compute_dtype)
    out_dtype = out_dtype or data.dtype.name
    kind = "int32" if data.dtype == np.int64 else data.dtype.name
    scale = checks.scale(input_scale, call, "input_scale", count, wide=True)
    zero = along(
        checks.zero_point(input_zero_point, call, "input_zero_point", kind, count), data, axis
    )
    out_scale = checks.scale(output_scale, call, "output_scale")
    out_zero = checks.zero_point(output_zero_point, call, "output_zero_point", out_dtype)
    ratio = multiplier(scale, out_scale)
    x = data.astype(kind).astype(np.int64)
    if way.compute_dtype != "int64" and not (way.rounding == "ONNX" and ratio is None):
        return _in_floats(x, zero, ratio, out_zero, axis, way, out_dtype)
    x = x - zero
    if ratio is not None:
        factor, shift = (along(part, data, axis) for part in fixed_point_multipliers(ratio))
        x = multiply(x, factor, shift, way.rounding)
    x = x + out_zero
    return x.astype(np.int32) if out_dtype == "int32" else saturate(x, out_dtype)


def _in_floats(
    x: Array,
    zero: Array,
    ratio: Array | None,
    out_zero: Array,
    axis: int,
    way: config.Requantization,
    out_dtype: str,
) -> Array:
    """Requantize in float32 or float64; each operation rounds to that dtype."""
    kind = np.dtype(way.compute_dtype)
    if way.rounding == "ONNX":
        assert ratio is not None
        even = np.rint((x - zero).astype(kind) * along(ratio.astype(kind), x, axis))
        return saturate(even.astype(np.float64) + out_zero, out_dtype)
    found = x.astype(kind) - zero.astype(kind)
    if ratio is not None:
        found = found * along(ratio.astype(kind), x, axis)
    if way.rounding == "TFLITE":
        return saturate(half_away(found) + out_zero.astype(kind), out_dtype)
    found = found + out_zero.astype(kind)
    if way.rounding == "UPWARD":
        return saturate(np.floor(found + kind.type(0.5)), out_dtype)
    return saturate(half_away(found), out_dtype)


def requantize_or_widen(
    data: Array,
    input_scale: Array,
    input_zero_point: Array,
    output_scale: Array,
    output_zero_point: Array,
    axis: int,
    way: config.Requantization,
) -> Array:
    """Bring integers to another scale and zero point unless they have them already.

    Parameters
    ----------
    data, input_scale, input_zero_point, output_scale, output_zero_point, axis
        As in `requantize`, checked.
    way : Requantization
        How.

    Returns
    -------
    numpy.ndarray
        int64, holding values of int32.

    Notes
    -----
    Relay's `RequantizeOrUpcast` (src/relay/qnn/op/op_common.h).
    """
    pairs = ((input_scale, output_scale), (input_zero_point, output_zero_point))
    if all(mine.ndim == 0 and mine == other for mine, other in pairs):
        return data.astype(np.int64)
    return requantize(
        data,
        input_scale,
        input_zero_point,
        output_scale,
        output_zero_point,
        axis,
        way.rounding,
        way.compute_dtype,
        "int32",
    ).astype(np.int64)


def multiplier(input_scale: Array, output_scale: Array) -> Array | None:
    """Give what integers are multiplied by to change their scale.

    Parameters
    ----------
    input_scale, output_scale : numpy.ndarray
        Checked scales.

    Returns
    -------
    numpy.ndarray or None
        float64, the shape of `input_scale`; None where there is nothing to multiply by, as one
        input scale is the output's.
    """
    if input_scale.ndim == 0 and input_scale == output_scale:
        return None
    return input_scale.astype(np.float64) / output_scale.astype(np.float64)


def channels(call: str, data: Array, axis: int) -> int:
    """Give the number of channels along an axis; a scalar has one.

    Raises
    ------
    tvmlab.errors.InputError
        If there is no such axis.
    """
    ndim = max(data.ndim, 1)
    if not -ndim <= axis < ndim:
        raise InputError(
            f"axis is {axis}; the data has {data.ndim} dimensions", where=f"{call}, attribute axis"
        )
    return int(data.shape[axis]) if data.ndim else 1


def along(values: Array, data: Array, axis: int) -> Array:
    """Shape one value a channel so that it broadcasts along an axis of the data."""
    if values.ndim == 0:
        return values
    shape = [1] * data.ndim
    shape[axis] = -1
    return values.reshape(shape)


def half_away(x: Array) -> Array:
    """Round floats to integers, half-way cases away from zero: C's round, Relay's `Round`.

    Notes
    -----
    From the whole part and the rest, which are exact; adding a half first is not, and would take
    the float before 0.5 to 1.
    """
    whole = np.trunc(x)
    rest = np.abs(x - whole) >= 0.5
    rounded: Array = whole + np.copysign(rest.astype(x.dtype), x)
    return rounded


def saturate(x: Array, dtype: str) -> Array:
    """Cast whole numbers, ints or floats, to an integer dtype, cutting at its ends.

    Notes
    -----
    Relay's `ConvertDtype` (src/relay/qnn/op/op_common.h). NaN becomes the largest value, as in
    TVM's ``max(min(x, high), low)``.
    """
    low, high = checks.limits(dtype)
    if x.dtype.kind != "f":
        cut: Array = np.clip(x, low, high).astype(dtype)
        return cut
    # In float32 int32's largest value rounds up, out of its range: cut in float64, which has both.
    wide: Array = np.where(np.isnan(x), high, x.astype(np.float64))
    return np.clip(wide, low, high).astype(dtype)
