"""What a float value is in integers: the form that the rules of this package make and read.

A *goal* is what a quantize asks for. A *form* is an integer expression that stands for a float
value, ``scale * (expr - zero)``, cut to ``low`` and ``high`` where a clip is still to be applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from ...ir import checks

__all__ = [
    "INFINITY",
    "NARROW",
    "Form",
    "Goal",
    "NoForm",
    "array_of",
    "at",
    "bits",
    "common",
    "fixed",
    "parameters",
    "same_shape",
    "sizes",
    "spread",
    "with_dtype",
]

Array = npt.NDArray[Any]

NARROW = ("int8", "uint8", "int16")
INFINITY = float("inf")


class NoForm(Exception):
    """An operator has no integer form here; the words say why. It never leaves this package."""


class Goal(NamedTuple):
    """What a quantize asks for: one scale and zero point, and a dtype.

    Attributes
    ----------
    scale : float
        A float32 number.
    zero : int
    dtype : str
        int8, uint8, int16 or int32.
    """

    scale: float
    zero: int
    dtype: str


@dataclass(frozen=True, eq=False)
class Form:
    """An integer expression that stands for a float value.

    Attributes
    ----------
    expr : tvm.relax.Expr
        A variable or a constant, of `dtype`; a tuple of such tensors after a split.
    dtype : str
        int8, uint8, int16 or int32.
    scale : numpy.ndarray
        float32 or float64; shape (), or (channels,).
    zero : numpy.ndarray
        int64; shape (), or (channels,).
    axis : int
        The channels' axis, from the front.
    least, most : int
        Bounds of the integers of `expr`.
    low, high : float
        Where the real value is still to be cut.
    error : float
        How far the real value of `expr` may be from the float one by the roundings made on the way
        that no quantize asked for.
    array : numpy.ndarray or None
        The integers, where they are constant.
    compute : str
        The ``compute_dtype`` of the requantize that these integers are to have.
    """

    expr: relax.Expr
    dtype: str
    scale: Array
    zero: Array
    axis: int
    least: int
    most: int
    low: float = -INFINITY
    high: float = INFINITY
    error: float = 0.0
    array: Array | None = None
    compute: str = "None"

    @property
    def narrow(self) -> bool:
        """Whether these are stored integers, and not sums."""
        return self.dtype in NARROW

    @property
    def scalar(self) -> bool:
        """Whether all channels have one scale and zero point."""
        return self.scale.ndim == 0 and self.zero.ndim == 0

    @property
    def cut(self) -> bool:
        """Whether a clip is still to be applied."""
        return self.low != -INFINITY or self.high != INFINITY

    @property
    def reach(self) -> float:
        """The largest real value, or minus the smallest: whichever is larger."""
        zero = self.zero.astype(np.float64)
        far = np.maximum(np.abs(self.least - zero), np.abs(self.most - zero))
        return float(np.max(far * self.scale.astype(np.float64)))

    def real(self, ndim: int) -> Array:
        """Give the real values of constant integers, float64."""
        assert self.array is not None
        scale, zero = (spread(x, self.axis, ndim) for x in (self.scale, self.zero))
        values: Array = (self.array.astype(np.float64) - zero) * scale.astype(np.float64)
        return np.clip(values, self.low, self.high) if self.cut else values


def spread(values: Array, axis: int, ndim: int) -> Array:
    """Shape one value a channel so that it broadcasts along an axis."""
    if values.ndim == 0:
        return values
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


def parameters(
    scale: Any, zero: Any, axis: int, ty: relax.TensorType, dtype: str, call: str
) -> tuple[Array, Array, int]:
    """Read the constant scale and zero point of a quantize or dequantize.

    Parameters
    ----------
    scale, zero : tvm.relax.Expr
        The operands.
    axis : int
        The attribute.
    ty : tvm.relax.TensorType
        The quantized or float tensor's type.
    dtype : str
        The dtype of the integers.
    call : str
        The operator, for errors.

    Returns
    -------
    tuple of (numpy.ndarray, numpy.ndarray, int)
        float32 and int64, of shape () where all channels agree; the axis from the front.

    Raises
    ------
    NoForm
        If one is no constant, or the axis cannot be counted.
    tvmlab.errors.InputError
        If a scale is zero, negative or not finite, a zero point is out of the dtype's range, or
        there are too many or too few.
    """
    scales, zeros = array_of(scale), array_of(zero)
    if scales is None or zeros is None:
        raise NoForm("its scale or zero point is not a constant")
    count: int | None = 1
    if scales.size > 1 or zeros.size > 1:
        ndim = max(int(ty.ndim), 1)
        if int(ty.ndim) < 0:
            raise NoForm("it is quantized by channel, and its rank is not known")
        checked_axis(axis, ndim, call)
        axis %= ndim
        shape = sizes(ty)
        size = shape[axis] if shape else None
        count = size if isinstance(size, int) else None
    scales = one(checks.scale(scales, call, "scale", count))
    zeros = one(checks.zero_point(zeros, call, "zero_point", dtype, count))
    if scales.ndim == 0 and zeros.ndim == 0:
        axis = axis % ty.ndim if ty.ndim > 0 and -ty.ndim <= axis < ty.ndim else 0
    return scales, zeros, int(axis)


def checked_axis(axis: int, ndim: int, call: str) -> None:
    """Insist that there is such an axis.

    Raises
    ------
    tvmlab.errors.ShapeError
        If there is none.
    """
    from ...errors import ShapeError

    if not -ndim <= axis < ndim:
        raise ShapeError(
            f"axis {axis} is out of range: the data has {ndim} dimensions",
            where=f"{call}, attribute axis",
        )


def one(values: Array) -> Array:
    """Give one value where all are the same."""
    return values.ravel()[0].reshape(()) if np.all(values == values.flat[0]) else values


def array_of(expr: Any) -> Array | None:
    """Give a constant's value; None for anything else."""
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def sizes(ty: Any) -> list[Any] | None:
    """Give a tensor's sizes, numbers as int; None where the shape is unknown."""
    shape = getattr(ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(n.value) if isinstance(n, tvm.tirx.IntImm) else n for n in shape.values]


def fixed(ty: Any) -> list[int] | None:
    """Give a tensor's sizes where all of them are numbers."""
    found = sizes(ty)
    return found if found is not None and all(isinstance(n, int) for n in found) else None


def with_dtype(ty: Any, dtype: str) -> Any:
    """Give a tensor's type, or a tuple's of tensors, with another dtype."""
    if isinstance(ty, relax.TensorType):
        if ty.shape is None:
            return relax.TensorType(dtype=dtype, ndim=ty.ndim, vdevice=ty.vdevice)
        return relax.TensorType(ty.shape, dtype, ty.vdevice)
    return relax.TupleType([with_dtype(field, dtype) for field in ty.fields])


def same_shape(a: Any, b: Any) -> bool:
    """Say whether two tensors have the same sizes, known or symbolic."""
    return bool(tvm_ffi.structural_equal(a, with_dtype(b, str(a.dtype))))


def bits(dtype: str) -> int:
    """Give an integer dtype's width."""
    return np.dtype(dtype).itemsize * 8


def at(expr: relax.Expr, goal: Goal, zero: int, dtype: str) -> Form:
    """Make the form of integers that have a goal's scale, in a dtype and about its zero point."""
    scale, point = np.asarray(goal.scale, np.float32), np.asarray(zero, np.int64)
    return Form(expr, dtype, scale, point, 0, *checks.limits(dtype))


def common(dtypes: Sequence[str], goal: str) -> str:
    """Choose the dtype of an operator: the operands' where they agree and are as wide as needed."""
    widest = max([*dtypes, goal], key=bits)
    agreed = dtypes[0] if len(set(dtypes)) == 1 and bits(dtypes[0]) == bits(widest) else None
    if agreed:
        return agreed
    return goal if bits(goal) == bits(widest) else widest
