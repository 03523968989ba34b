"""Float values as integers, and reading them: quantizes, dequantizes, constants and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax

from ...ir import checks

Array = npt.NDArray[Any]

QUANTIZES = ("relax.quantize", "relax.qnn.quantize")
DEQUANTIZES = ("relax.dequantize", "relax.qnn.dequantize")
NARROW = ("int8", "uint8", "int16")
INFINITY = float("inf")
INT32 = checks.limits("int32")


class NotQuantizable(Exception):
    """An operator has no integer form; the message is the reason that the analysis reports."""


def require(condition: object, reason: str) -> None:
    """Leave an operator float, for a reason, unless a condition holds."""
    if not condition:
        raise NotQuantizable(reason)


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
        far = np.maximum(np.abs(self.least - self.zero), np.abs(self.most - self.zero))
        return float(np.max(far * self.scale.astype(np.float64)))

    def has(self, params: QuantParams) -> bool:
        """Whether the integers have these parameters."""
        return self.scalar and params == (float(self.scale), int(self.zero), self.dtype)

    def unclipped(self) -> QuantizedValue:
        """Return the value without the clip that is still to be applied."""
        return replace(self, low=-INFINITY, high=INFINITY)

    def real(self) -> Array:
        """Return the real values of constant integers, float64."""
        assert self.array is not None
        scale, zero = (spread(x, self.axis, self.array.ndim) for x in (self.scale, self.zero))
        values: Array = (self.array.astype(np.float64) - zero) * scale.astype(np.float64)
        return np.clip(values, self.low, self.high) if self.clipped else values


def check_sums(least: int, most: int, what: str = "") -> None:
    """Refuse int32 sums that could wrap."""
    inside = least >= INT32[0] and most <= INT32[1]
    require(inside, f"its sums may reach {max(-least, most)}{what}, beyond int32")


def spread(values: Array, axis: int, ndim: int) -> Array:
    """Reshape one value per channel so that it broadcasts along an axis."""
    if values.ndim == 0:
        return values
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


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


def channel_count(ty: Any, axis: int) -> int | None:
    """Return a tensor's size along an axis where it is a number."""
    found = sizes(ty)
    return found[axis] if found and isinstance(found[axis], int) else None


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
    if _bits(source) != _bits(dtype):
        return 0
    return checks.limits(dtype)[0] - checks.limits(source)[0]


def common_dtype(dtypes: Sequence[str], result: str) -> str:
    """Choose an operator's dtype: that of its operands if they agree and are wide enough."""
    widest = max([*dtypes, result], key=_bits)
    if len(set(dtypes)) == 1 and _bits(dtypes[0]) == _bits(widest):
        return dtypes[0]
    return result if _bits(result) == _bits(widest) else widest


# Reading a function


def operator(value: relax.Expr | None) -> str:
    """Return the name of the operator that an expression calls; empty where it calls none."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        return str(value.op.name)
    return ""


def calls(value: relax.Expr | None, name: str) -> TypeGuard[relax.Call]:
    """Whether an expression calls an operator."""
    return operator(value) == f"relax.{name}"


def leaves(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Yield what a tuple is made of, or the expression itself."""
    for item in expr.fields if isinstance(expr, relax.Tuple) else ():
        yield from leaves(item)
    if not isinstance(expr, relax.Tuple):
        yield expr


def bindings(body: relax.SeqExpr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Yield the bindings of a body, in order."""
    for block in body.blocks:
        for binding in block.bindings:
            yield binding.var, binding.value


def any_quantize(body: relax.SeqExpr) -> bool:
    """Whether a body quantizes anything."""
    return any(operator(value) in QUANTIZES for _, value in bindings(body))


def _attribute(call: relax.Call, name: str) -> Any:
    ours = call.op.name.startswith("relax.qnn.")
    return call.attrs[name] if ours else getattr(call.attrs, name)


def read_quantize(call: relax.Call) -> tuple[Array, Array, int, str]:
    """Return a quantize's scale, zero point, axis and dtype."""
    ty, dtype = call.args[0].ty, str(_attribute(call, "out_dtype"))
    require(dtype in (*NARROW, "int32"), f"it quantizes to {dtype}")
    require(str(ty.dtype) == "float32", f"it quantizes {ty.dtype}")
    return *_channel_params(call, ty, dtype), dtype


def read_dequantize(call: relax.Call, data: relax.Expr) -> QuantizedValue:
    """Return the integers that a dequantize reads from `data`, its operand as it is now."""
    dtype, out = str(data.ty.dtype), str(_attribute(call, "out_dtype"))
    require(dtype in (*NARROW, "int32"), f"it dequantizes {dtype}")
    require(out == "float32", f"it dequantizes to {out}")
    params, array = _channel_params(call, call.args[0].ty, dtype), array_of(data)
    ends = checks.limits(dtype)
    if array is not None and array.size:
        ends = int(array.min()), int(array.max())
    return QuantizedValue(data, dtype, *params, *ends, array=array)


def _channel_params(call: relax.Call, ty: relax.TensorType, dtype: str) -> tuple[Array, Array, int]:
    """Return scale, zero point (one value where all channels agree) and axis of a call."""
    name, ndim = call.op.name, int(ty.ndim)
    count: int | None = 1
    scales, zeros = array_of(call.args[1]), array_of(call.args[2])
    if scales is None or zeros is None:
        raise NotQuantizable("its scale or zero point is not a constant")
    axis = int(_attribute(call, "axis")) % max(ndim, 1)
    if scales.size > 1 or zeros.size > 1:
        require(ndim >= 0, "it is quantized by channel, and its rank is not known")
        count = channel_count(ty, axis)
    scales = _one(checks.scale(scales, name, "scale", count))
    return scales, _one(checks.zero_point(zeros, name, "zero_point", dtype, count)), axis


def _one(values: Array) -> Array:
    return values.ravel()[0].reshape(()) if np.all(values == values.flat[0]) else values
