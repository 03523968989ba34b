"""Float values as integers: the types that the rules read and return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from ...errors import ShapeError
from ...ir import checks

Array = npt.NDArray[Any]

NARROW = ("int8", "uint8", "int16")
INFINITY = float("inf")
INT32 = checks.limits("int32")


class NotQuantizable(Exception):
    """An operator has no integer form; the message is the reason that the analysis reports."""


class QuantParams(NamedTuple):
    """The parameters of a quantize: one float32 scale, one zero point, and a dtype."""

    scale: float
    zero: int
    dtype: str


@dataclass(frozen=True, eq=False)
class QuantizedValue:
    """An integer expression for a float value, ``clip(scale * (expr - zero), low, high)``."""

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

    @classmethod
    def of(cls, expr: relax.Expr, params: QuantParams) -> QuantizedValue:
        """Return the value of integers that have these parameters."""
        scale, zero = np.asarray(params.scale, np.float32), np.asarray(params.zero, np.int64)
        return cls(expr, params.dtype, scale, zero, 0, *checks.limits(params.dtype))

    @classmethod
    def sums(
        cls, expr: relax.Expr, scale: Array, axis: int, least: int, most: int
    ) -> QuantizedValue:
        """Return the value of int32 sums, whose zero point is 0."""
        return cls(expr, "int32", scale, np.zeros((), np.int64), axis, least, most)

    @property
    def narrow(self) -> bool:
        """Whether these are stored integers, and not int32 sums."""
        return self.dtype in NARROW

    @property
    def scalar(self) -> bool:
        """Whether all channels have one scale and zero point."""
        return self.scale.ndim == 0 and self.zero.ndim == 0

    @property
    def clipped(self) -> bool:
        """Whether a clip is still to be applied."""
        return self.low != -INFINITY or self.high != INFINITY

    @property
    def far(self) -> int:
        """The largest distance of an integer from the zero point."""
        return int(max(np.max(np.abs(end - self.zero)) for end in (self.least, self.most)))

    @property
    def reach(self) -> float:
        """The largest absolute real value."""
        zero = self.zero.astype(np.float64)
        far = np.maximum(np.abs(self.least - zero), np.abs(self.most - zero))
        return float(np.max(far * self.scale.astype(np.float64)))

    def has(self, params: QuantParams) -> bool:
        """Whether the integers have these parameters."""
        return self.scalar and params == (float(self.scale), int(self.zero), self.dtype)

    def unclipped(self) -> QuantizedValue:
        """Return the value without the clip that is still to be applied."""
        return replace(self, low=-INFINITY, high=INFINITY)

    def real(self, ndim: int) -> Array:
        """Return the real values of constant integers, float64."""
        assert self.array is not None
        scale, zero = (spread(x, self.axis, ndim) for x in (self.scale, self.zero))
        values: Array = (self.array.astype(np.float64) - zero) * scale.astype(np.float64)
        return np.clip(values, self.low, self.high) if self.clipped else values


def check_sums(least: int, most: int, what: str = "") -> None:
    """Refuse int32 sums that could wrap."""
    if least < INT32[0] or most > INT32[1]:
        raise NotQuantizable(f"its sums may reach {max(-least, most)}{what}, beyond int32")


def spread(values: Array, axis: int, ndim: int) -> Array:
    """Reshape one value per channel so that it broadcasts along an axis."""
    if values.ndim == 0:
        return values
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


def channel_params(
    call: relax.Call, axis: int, ty: relax.TensorType, dtype: str
) -> tuple[Array, Array, int]:
    """Return scale, zero point (one value where all channels agree) and axis of a call."""
    name = call.op.name
    scales, zeros = array_of(call.args[1]), array_of(call.args[2])
    if scales is None or zeros is None:
        raise NotQuantizable("its scale or zero point is not a constant")
    ndim = int(ty.ndim)
    count: int | None = 1
    if scales.size > 1 or zeros.size > 1:
        if ndim < 0:
            raise NotQuantizable("it is quantized by channel, and its rank is not known")
        if not -max(ndim, 1) <= axis < max(ndim, 1):
            raise ShapeError(
                f"axis {axis} is out of range: the data has {max(ndim, 1)} dimensions",
                where=f"{name}, attribute axis",
            )
        axis %= max(ndim, 1)
        shape = sizes(ty)
        size = shape[axis] if shape else None
        count = size if isinstance(size, int) else None
    scales = _one(checks.scale(scales, name, "scale", count))
    zeros = _one(checks.zero_point(zeros, name, "zero_point", dtype, count))
    if scales.ndim == 0 and zeros.ndim == 0:
        axis = axis % ndim if ndim > 0 and -ndim <= axis < ndim else 0
    return scales, zeros, axis


def _one(values: Array) -> Array:
    return values.ravel()[0].reshape(()) if np.all(values == values.flat[0]) else values


def array_of(expr: Any) -> Array | None:
    """Return a constant's value, None for anything else."""
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def sizes(ty: Any) -> list[Any] | None:
    """Return a tensor's sizes, numbers as int; None where the shape is unknown."""
    shape = getattr(ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    return [int(n.value) if isinstance(n, tvm.tirx.IntImm) else n for n in shape.values]


def fixed_sizes(ty: Any) -> list[int] | None:
    """Return a tensor's sizes where all of them are numbers."""
    found = sizes(ty)
    return found if found is not None and all(isinstance(n, int) for n in found) else None


def with_dtype(ty: Any, dtype: str) -> Any:
    """Return a tensor's type, or a tuple's of tensors, with another dtype."""
    if isinstance(ty, relax.TensorType):
        if ty.shape is None:
            return relax.TensorType(dtype=dtype, ndim=ty.ndim, vdevice=ty.vdevice)
        return relax.TensorType(ty.shape, dtype, ty.vdevice)
    return relax.TupleType([with_dtype(field, dtype) for field in ty.fields])


def same_shape(a: Any, b: Any) -> bool:
    """Whether two tensors have the same sizes, known or symbolic."""
    return bool(tvm_ffi.structural_equal(a, with_dtype(b, str(a.dtype))))


def _bits(dtype: str) -> int:
    return np.dtype(dtype).itemsize * 8


def shift(source: str, dtype: str) -> int:
    """Return what is added to integers to keep their order in another dtype of the same width."""
    if _bits(source) != _bits(dtype) or source == dtype:
        return 0
    return checks.limits(dtype)[0] - checks.limits(source)[0]


def common_dtype(dtypes: Sequence[str], result: str) -> str:
    """Choose an operator's dtype: that of its operands if they agree and are wide enough."""
    widest = max([*dtypes, result], key=_bits)
    if len(set(dtypes)) == 1 and _bits(dtypes[0]) == _bits(widest):
        return dtypes[0]
    return result if _bits(result) == _bits(widest) else widest
