"""Quantized arithmetic on two tensors element by element, and joining tensors, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...errors import InputError, ShapeError
from ...ir import checks
from ...ir.checks import Array
from .. import config
from . import onnx_runtime, tflite
from .fixed_point import fixed_point_multipliers, multiply_tflite
from .scaling import along, channels, requantize, requantize_or_widen, saturate


class _Sides:
    """The operands of an addition or a product, checked.

    Attributes
    ----------
    scales, zeros : list of numpy.ndarray
        Of the left and the right side, one value or one for each channel.
    shifted : list of numpy.ndarray
        Both sides less their zero points, int64.
    out_scale, out_zero : numpy.ndarray
        One value each.
    """

    def __init__(
        self,
        call: str,
        tensors: tuple[Array, Array],
        scales: tuple[npt.ArrayLike, npt.ArrayLike],
        zeros: tuple[npt.ArrayLike, npt.ArrayLike],
        out: tuple[npt.ArrayLike, npt.ArrayLike],
        axes: tuple[int, int],
    ) -> None:
        self.call, self.axes = call, axes
        self.tensors = [np.asarray(tensor) for tensor in tensors]
        self.dtype = self.tensors[0].dtype.name
        if self.tensors[1].dtype.name != self.dtype:
            raise InputError(
                f"rhs has dtype {self.tensors[1].dtype}; lhs has {self.dtype}",
                where=f"{call}, operand rhs",
            )
        try:
            np.broadcast_shapes(*(tensor.shape for tensor in self.tensors))
        except ValueError as error:
            raise ShapeError(
                f"lhs of shape {self.tensors[0].shape} and rhs of shape {self.tensors[1].shape} "
                "do not broadcast",
                where=f"{call}, operand rhs",
            ) from error
        self.scales, self.zeros, self.shifted = [], [], []
        for name, tensor, scale, zero, axis in zip(
            ("lhs", "rhs"), self.tensors, scales, zeros, axes, strict=True
        ):
            count = channels(call, tensor, axis)
            self.scales.append(checks.scale(scale, call, f"{name}_scale", count))
            point = checks.zero_point(zero, call, f"{name}_zero_point", self.dtype, count)
            self.zeros.append(point)
            self.shifted.append(tensor.astype(np.int64) - along(point, tensor, axis))
        self.out_scale = checks.scale(out[0], call, "output_scale")
        self.out_zero = checks.zero_point(out[1], call, "output_zero_point", self.dtype)

    def scalars_only(self, way: config.Requantization) -> None:
        """Insist on one scale for each side, and for ONNX Runtime on one zero point too."""
        zeros = self.zeros if way.rounding == "ONNX" else []
        if any(value.ndim for value in (*self.scales, *zeros)):
            raise InputError(
                f'rounding "{way.rounding}" takes one scale a tensor, as its kernels do',
                where=f"{self.call}, operands lhs_scale and rhs_scale",
            )

    def requantized(self, i: int, way: config.Requantization) -> Array:
        """Bring a side to the result's scale and zero point, as int64."""
        scale, zero, axis = self.scales[i], self.zeros[i], self.axes[i]
        out = self.out_scale, self.out_zero
        return requantize_or_widen(self.tensors[i], scale, zero, *out, axis, way)


def add(
    lhs: Array,
    rhs: Array,
    lhs_scale: npt.ArrayLike,
    lhs_zero_point: npt.ArrayLike,
    rhs_scale: npt.ArrayLike,
    rhs_zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
    rounding: str = "None",
) -> Array:
    """Add two quantized tensors, with NumPy's broadcasting.

    Parameters
    ----------
    lhs, rhs : numpy.ndarray
        Shapes that broadcast, one dtype: int8, uint8, int16 or int32.
    lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point : array_like
        One value, or one for each channel of their tensor.
    output_scale, output_zero_point : array_like
        One value.
    lhs_axis, rhs_axis : int
        The channels' axes.
    rounding : str
        As in `tvmlab.qnn.arithmetic.requantize`. ``"TFLITE"``: its kernel of this operator, which
        takes one scale a tensor. ``"ONNX"``: ONNX Runtime's.

    Returns
    -------
    numpy.ndarray
        The broadcast shape in the operands' dtype, saturated.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.

    Notes
    -----
    Relay's `QnnAddCanonicalize` (src/relay/qnn/op/add.cc): each side is requantized to the result's
    scale and zero point (where they are the same already, nothing is done), the two are added, and
    one zero point is taken off: two roundings. Each side is an int32 and wraps if scales are so far
    apart that it does not fit (2**15 for int16, 2**22 for narrower ones); the sum saturates.
    TFLite's: `tvmlab.qnn.reference.tflite.add`; ONNX Runtime's:
    `tvmlab.qnn.reference.onnx_runtime.add`.
    """
    sides = _Sides(
        "qnn.add",
        (lhs, rhs),
        (lhs_scale, rhs_scale),
        (lhs_zero_point, rhs_zero_point),
        (output_scale, output_zero_point),
        (lhs_axis, rhs_axis),
    )
    return _sum(sides, rounding, 1)


def subtract(
    lhs: Array,
    rhs: Array,
    lhs_scale: npt.ArrayLike,
    lhs_zero_point: npt.ArrayLike,
    rhs_scale: npt.ArrayLike,
    rhs_zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
    rounding: str = "None",
) -> Array:
    """Subtract a quantized tensor from another, with NumPy's broadcasting.

    Parameters, result, errors and sources are as in `add` (src/relay/qnn/op/subtract.cc,
    kernels/sub.cc), but for ONNX Runtime's: `tvmlab.qnn.reference.onnx_runtime.subtract`.
    """
    sides = _Sides(
        "qnn.subtract",
        (lhs, rhs),
        (lhs_scale, rhs_scale),
        (lhs_zero_point, rhs_zero_point),
        (output_scale, output_zero_point),
        (lhs_axis, rhs_axis),
    )
    return _sum(sides, rounding, -1)


def _sum(sides: _Sides, rounding: str, sign: int) -> Array:
    way = config.resolve(sides.call, rounding)
    if way.rounding == "TFLITE":
        sides.scalars_only(way)
        (left, right), scales = sides.shifted, (*sides.scales, sides.out_scale)
        found = tflite.add(left, right, scales, sides.dtype, sign) + sides.out_zero
        return saturate(found, sides.dtype)
    if way.rounding == "ONNX":
        sides.scalars_only(way)
        if sign < 0:
            left, right = sides.shifted
            to = sides.out_scale, sides.out_zero
            return saturate(onnx_runtime.subtract(left, right, sides.scales, *to), sides.dtype)
        ratios = onnx_runtime.ratios(sides.scales, sides.out_scale)
        left, right = sides.tensors
        whole = onnx_runtime.add(left, right, ratios, sides.zeros, sides.out_zero)
        return saturate(whole, sides.dtype)
    left, right = (sides.requantized(i, way) for i in range(2))
    return saturate(left + sign * right - sign * sides.out_zero, sides.dtype)


def mul(
    lhs: Array,
    rhs: Array,
    lhs_scale: npt.ArrayLike,
    lhs_zero_point: npt.ArrayLike,
    rhs_scale: npt.ArrayLike,
    rhs_zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
    rounding: str = "None",
) -> Array:
    """Multiply two quantized tensors, with NumPy's broadcasting.

    Parameters, result and errors are as in `add`. Scales by channel need one axis for both sides.

    Notes
    -----
    Relay's `QnnMulCanonicalize` (src/relay/qnn/op/mul.cc): the product of the values less their
    zero points, an int32 that wraps, has the product of the scales, rounded to float32, and is
    requantized. TFLite's: `Mul` (integer_ops/mul.h), with the multiplier of
    `tvmlab.qnn.reference.tflite.product_multiplier`. ONNX Runtime's:
    `tvmlab.qnn.reference.onnx_runtime.product`.
    """
    sides = _Sides(
        "qnn.mul",
        (lhs, rhs),
        (lhs_scale, rhs_scale),
        (lhs_zero_point, rhs_zero_point),
        (output_scale, output_zero_point),
        (lhs_axis, rhs_axis),
    )
    way = config.resolve(sides.call, rounding)
    product = (sides.shifted[0] * sides.shifted[1]).astype(np.int32)
    if way.rounding == "TFLITE":
        sides.scalars_only(way)
        ratio = tflite.product_multiplier((*sides.scales, sides.out_scale))
        found = multiply_tflite(product.astype(np.int64), *fixed_point_multipliers(ratio))
        return saturate(found + sides.out_zero, sides.dtype)
    axis = _product_axis(sides)
    with np.errstate(over="ignore", under="ignore"):
        scale = sides.scales[0] * sides.scales[1]
    scale = checks.scale(scale, sides.call, "lhs_scale times rhs_scale", None)
    if way.rounding == "ONNX":
        ratio = along(scale / sides.out_scale, product, axis)
        return saturate(onnx_runtime.product(product, ratio, sides.out_zero), sides.dtype)
    return requantize(
        product,
        scale,
        0,
        sides.out_scale,
        sides.out_zero,
        axis,
        way.rounding,
        way.compute_dtype,
        sides.dtype,
    )


def _product_axis(sides: _Sides) -> int:
    """Give the axis of a product's channels, counted from the back."""
    axes = {
        axis if axis < 0 else axis - tensor.ndim
        for axis, tensor, scale in zip(sides.axes, sides.tensors, sides.scales, strict=True)
        if scale.ndim
    }
    if len(axes) > 1:
        raise InputError(
            f"lhs_axis is {sides.axes[0]} and rhs_axis {sides.axes[1]}; scales by channel need the "
            "same axis of the product",
            where=f"{sides.call}, attribute rhs_axis",
        )
    return axes.pop() if axes else -1


def concatenate(
    data: Sequence[Array],
    input_scales: Sequence[npt.ArrayLike],
    input_zero_points: Sequence[npt.ArrayLike],
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
    axis: int,
) -> Array:
    """Join quantized tensors along an axis, each brought to the result's scale.

    Parameters
    ----------
    data : sequence of numpy.ndarray
        Shapes that agree but for `axis`, one dtype.
    input_scales, input_zero_points : sequence of array_like
        One value for each tensor.
    output_scale, output_zero_point : array_like
        One value.
    axis : int
        Along which to join.

    Returns
    -------
    numpy.ndarray
        The joined tensor in the operands' dtype.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand does not fit; they name it.

    Notes
    -----
    Relay's `ConcatenateQnnCanonicalize` (src/relay/qnn/op/concatenate.cc): what has the result's
    scale and zero point already passes as it is; the rest is requantized as the configuration says.
    """
    call, tensors = "qnn.concatenate", [np.asarray(tensor) for tensor in data]
    if not len(tensors) == len(input_scales) == len(input_zero_points) > 0:
        raise InputError(
            f"data has {len(tensors)} fields, input_scales {len(input_scales)}, "
            f"input_zero_points {len(input_zero_points)}",
            where=f"{call}, operand data",
        )
    dtype = tensors[0].dtype.name
    if any(tensor.dtype.name != dtype for tensor in tensors):
        raise InputError("the tensors have several dtypes", where=f"{call}, operand data")
    out_scale = checks.scale(output_scale, call, "output_scale")
    out_zero = checks.zero_point(output_zero_point, call, "output_zero_point", dtype)
    parts = []
    for i, tensor in enumerate(tensors):
        scale = checks.scale(input_scales[i], call, f"input_scales.{i}")
        zero = checks.zero_point(input_zero_points[i], call, f"input_zero_points.{i}", dtype)
        if scale == out_scale and zero == out_zero:
            parts.append(tensor)
        else:
            parts.append(requantize(tensor, scale, zero, out_scale, out_zero, out_dtype=dtype))
    try:
        return np.concatenate(parts, axis)
    except ValueError as error:
        raise ShapeError(
            f"tensors of shapes {[part.shape for part in parts]} cannot be joined along {axis}",
            where=f"{call}, operand data",
        ) from error
