"""The two kinds of numbers of quantized arithmetic: NumPy arrays, and expressions in a kernel.

`Arrays` computes with NumPy, in int64 for integers. `Kernel` makes TIR expressions: a `Number`
has bounds, so that 32 bits are used if they hold every value, and zero points are folded into
the rounding constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tvm import te, tirx

from .checks import Array, limits
from .fixed_point import (
    INT32,
    Bounds,
    FixedPointMultiplier,
    fits,
    fixed_point_multipliers,
    multiply,
    product_bounds,
    wrapped,
)
from .operands import ChannelParam

# A product is clamped to this before a float sum; any larger value saturates.
_BEYOND = 2.0**33


class Number:
    """A float in a kernel, or an integer with its bounds and a constant that is added later."""

    __array_ufunc__ = None  # an array must not take over this class's operators

    def __init__(self, expr: Any, bounds: Bounds | None = None, plus: int = 0) -> None:
        self.expr, self.bounds, self.plus = expr, bounds, plus

    def resolved(self) -> Number:
        """Return the number with its expression built."""
        return self

    def whole(self) -> tirx.PrimExpr:
        """Return the integer as int32, or as int64 if int32 is too narrow."""
        x = self.resolved()
        kind = "int32" if fits(x.range) else "int64"
        return x.expr.astype(kind) + tirx.const(x.plus, kind)

    @property
    def range(self) -> Bounds:
        """The bounds of an integer."""
        assert self.bounds is not None
        return self.bounds

    def __add__(self, other: Any) -> Number:
        if self.bounds is None:
            return Number(self.expr + _float(other, self))
        if isinstance(other, int):
            low, high = self.range
            return Number(self.expr, (low + other, high + other), self.plus + other)
        return self._sum(other, 1)

    def __sub__(self, other: Any) -> Number:
        if self.bounds is None:
            return Number(self.expr - _float(other, self))
        return self._sum(Number(tirx.const(other), (other, other)) if isinstance(other, int)
                         else other, -1)  # fmt: skip

    def _sum(self, other: Number, sign: int) -> Number:
        """Add or subtract, in int32 if it holds both sides and the results, else in int64."""
        x, y = self.resolved(), other.resolved()
        low, high = y.range if sign > 0 else (-y.range[1], -y.range[0])
        bounds, plus = (x.range[0] + low, x.range[1] + high), x.plus + sign * y.plus
        parts = (*((n.range[0] - n.plus, n.range[1] - n.plus) for n in (x, y)), bounds)
        whole = all(map(fits, (*parts, (bounds[0] - plus, bounds[1] - plus))))
        kind = "int32" if whole else "int64"
        left, right = x.expr.astype(kind), y.expr.astype(kind)
        return Number(left + right if sign > 0 else left - right, bounds, plus)

    def __mul__(self, other: Any) -> Number:
        if self.bounds is None:
            return Number(self.expr * _float(other, self))
        corners = [a * b for a in self.range for b in other.range]
        bounds = min(corners), max(corners)
        kind = "int32" if fits(bounds) else "int64"
        return Number(self.whole().astype(kind) * other.whole().astype(kind), bounds)

    def __truediv__(self, other: Any) -> Number:
        return Number(self.expr / _float(other, self))

    def __lshift__(self, bits: int) -> Number:
        bounds = self.range[0] << bits, self.range[1] << bits
        x = self.whole()
        return Number((x if fits(bounds) else x.astype("int64")) << bits, bounds)

    def __neg__(self) -> Number:
        bounds = -self.range[1], -self.range[0]
        kind = "int32" if fits(bounds) and fits(self.range) else "int64"
        return Number(tirx.const(0, kind) - self.whole().astype(kind), bounds)


class Product(Number):
    """An integer times a real number, built when the sum of the constants added to it is known."""

    def __init__(self, x: Number, ratio: Array, make: Callable[..., Number], rounding: str,
                 plus: int = 0) -> None:  # fmt: skip
        low, high = product_bounds(x.range, ratio, rounding)
        super().__init__(None, (low + plus, high + plus), plus)
        self._given = x, ratio, make, rounding
        self._made: Number | None = None

    def __add__(self, other: Any) -> Number:
        if isinstance(other, int):
            return Product(*self._given, self.plus + other)
        return super().__add__(other)

    def resolved(self) -> Number:
        """Build the expression, with the added constants in its rounding constant."""
        x, ratio, make, rounding = self._given
        self._made = self._made or make(x, ratio, rounding, self.plus)
        return self._made


def _float(value: Any, like: Number) -> Any:
    return value.expr if isinstance(value, Number) else tirx.const(value, str(like.expr.ty))


class Arrays:
    """The numbers of the reference: arrays of int64 or float."""

    def __init__(self, dtype: str, tensors: Mapping[str, Array], axes: Mapping[str, int]) -> None:
        self.dtype, self.tensors, self.axes = dtype, tensors, axes

    def along(self, name: str, values: Array, dtype: str | None = None) -> Any:
        """Reshape one value per channel of a tensor so that it broadcasts with the tensor."""
        values = values if dtype is None else values.astype(dtype)
        if values.ndim == 0:
            return values
        shape = [1] * self.tensors[name].ndim
        shape[self.axes[name]] = -1
        return values.reshape(shape)

    def same_axis(self, left: str, right: str) -> bool:
        """Return whether the channels of two tensors lie along one axis of their product."""
        ndims = {name: self.tensors[name].ndim for name in (left, right)}
        return len({self.axes[name] % ndim - ndim for name, ndim in ndims.items()}) == 1

    def times(self, x: Array, ratio: Array, rounding: str, name: str = "") -> Array:
        """Multiply integers by real numbers and round; one number, or one for each channel."""
        multiplier, shift = (self.along(name, part) for part in fixed_point_multipliers(ratio))
        return multiply(x, multiplier, shift, rounding)


class Kernel:
    """The numbers of a kernel, and the tables that it reads: one for each parameter per channel."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.channels = dtype, dict[str, Any]()
        self._made: list[Any] = []
        self._next = 0

    def again(self) -> None:
        """Restart the same arithmetic, which then reuses the tables and multipliers made before."""
        self._next = 0

    @property
    def rows(self) -> list[ChannelParam]:
        """The tables and parameters that the kernel reads besides its tensors."""
        rows = (one.rows if isinstance(one, FixedPointMultiplier) else [one] for one in self._made)
        return [row for each in rows for row in each]

    def _once(self, make: Callable[[], Any]) -> Any:
        if self._next == len(self._made):
            self._made.append(make())
        self._next += 1
        return self._made[self._next - 1]

    def along(self, name: str, values: Array | ChannelParam, dtype: str = "int32") -> Any:
        """Return a parameter at the channel of a tensor, as a `Number` or a Python int."""
        if isinstance(values, ChannelParam):
            row = self._once(lambda: values)
        else:
            with np.errstate(over="ignore"):
                row = self._once(lambda: ChannelParam(values.astype(dtype), dtype=dtype))
            if row.values.ndim == 0 and dtype == "int32":
                return int(row.values)
        whole = dtype == "int32"
        return Number(row.read(self.channels.get(name, 0)), row.bounds if whole else None)

    def same_axis(self, left: str, right: str) -> bool:
        """Return whether the channels of two tensors lie along one axis of their product."""
        return self.channels[left] is self.channels[right]

    def times(self, x: Number, ratio: Array, rounding: str, name: str = "") -> Number:
        """Multiply an integer by a real number and round, like `Arrays.times`."""

        def make(x: Number, ratio: Array, rounding: str, plus: int) -> Number:
            by = self._once(lambda: FixedPointMultiplier(ratio, rounding, x.range, plus))
            rest, (low, high) = plus - by.plus, by.bounds
            found = by.apply(x.whole(), self.channels.get(name, 0))
            return Number(found, (low + rest, high + rest), rest)

        return Product(x, ratio, make, rounding)


Value = Any
"""An array of `Arrays`, or a `Number` of `Kernel`."""


def cast(x: Value, dtype: str) -> Value:
    """Cast numbers to another dtype; integers can become floats, or integers that hold them."""
    if isinstance(x, int):
        return float(x)
    if not isinstance(x, Number):
        return x.astype(dtype)
    made = x.resolved()
    return Number((x.whole() if made.plus else made.expr).astype(dtype))


def to_whole(x: Value, bounds: Bounds) -> Value:
    """Convert floats with integer values between two bounds to integers."""
    if isinstance(x, Number):
        return Number(x.expr.astype("int32"), bounds)
    return x.astype(np.int64)


def half_even(x: Value) -> Value:
    """Round floats to integers, half to even, which is one instruction on most processors."""
    # For LLVM, TVM's `round` rounds half to even like `nearbyint`, which it does not vectorize.
    return Number(te.round(x.expr)) if isinstance(x, Number) else np.rint(x)


def half_away(x: Value) -> Value:
    """Round floats to integers, half away from zero: C's round, Relay's `Round`."""
    if not isinstance(x, Number):
        part = np.trunc(x)  # exact like the rest; 0.5 + the float before 0.5 would be 1
        rest = np.abs(x - part) >= 0.5
        return part + np.copysign(rest.astype(x.dtype), x)
    whole, kind = te.trunc(x.expr), str(x.expr.ty)
    one, zero, half = (tirx.const(value, kind) for value in (1, 0, 0.5))
    up = tirx.Select(x.expr - whole >= half, one, zero)
    down = tirx.Select(whole - x.expr >= half, one, zero)
    return Number(whole + up - down)


def half_up(x: Value) -> Value:
    """Round floats to integers, half upward."""
    if isinstance(x, Number):
        return Number(te.floor((x + 0.5).expr))
    return np.floor(x + x.dtype.type(0.5))


def clip(x: Value, low: float, high: float) -> Value:
    """Clip floats to two limits."""
    if not isinstance(x, Number):
        return np.clip(x, low, high)
    least, most = (tirx.const(float(end), str(x.expr.ty)) for end in (low, high))
    return Number(tirx.Max(tirx.Min(x.expr, most), least))


def prevent_contraction(x: Value, limit: float | None = None) -> Value:
    """Keep LLVM from contracting a float product and the following sum into one FMA.

    The product is clamped, because numbers above 2**33 saturate. A `limit` also applies to arrays.
    """
    if not isinstance(x, Number) and limit is None:
        return x
    limit = _BEYOND if limit is None else limit
    return clip(x, -limit, limit)


def wrap(x: Value) -> Value:
    """Return the lower 32 bits of integers, as int32 wraps."""
    if not isinstance(x, Number):
        return x.astype(np.int32).astype(np.int64)
    return x if fits(x.range) else Number(wrapped(x.whole()), INT32)


def saturate(x: Value, dtype: str) -> Value:
    """Convert integers, stored as ints or floats, to an integer dtype, clipped to its range.

    This is Relay's `ConvertDtype` (src/relay/qnn/op/op_common.h); NaN becomes the largest value.
    """
    if isinstance(x, Number):
        cut = _saturate_float if x.bounds is None else _saturate_int
        return Number(cut(x, dtype), limits(dtype))
    low, high = limits(dtype)
    if x.dtype.kind == "f":
        # In float32 the largest int32 rounds up, out of the range of int32, so clip in float64.
        x = np.where(np.isnan(x), high, x.astype(np.float64))
    return np.clip(x, low, high).astype(dtype)


def _saturate_int(number: Number, dtype: str) -> tirx.PrimExpr:
    """Cast an integer; clip wide values before adding the constant, so that nothing overflows."""
    number, (low, high) = number.resolved(), limits(dtype)
    plus = 0 if fits(number.range) else number.plus
    x = number.expr if plus else number.whole()
    x = x if fits((low - plus, high - plus)) else x.astype("int64")
    least, most = (tirx.const(end - plus, str(x.ty)) for end in (low, high))
    return (tirx.Max(tirx.Min(x, most), least) + plus).astype(dtype)


def _saturate_float(number: Number, dtype: str) -> tirx.PrimExpr:
    x, (low, high) = number.expr, limits(dtype)
    kind = str(x.ty)
    if dtype != "int32":
        # `min` returns its second operand if the first one is NaN.
        cut = tirx.Max(tirx.Min(x, tirx.const(high, kind)), tirx.const(low, kind))
        return cut.astype("int32").astype(dtype)
    # float32 does not hold 2**31 - 1, but 2**31, and all smaller numbers can be cast.
    inside = tirx.Max(x, tirx.const(low, kind)).astype(dtype)
    return tirx.Select(x < tirx.const(high + 1, kind), inside, tirx.const(high, dtype))


def saturate_or_wrap(x: Value, dtype: str) -> Value:
    """Saturate, except to int32, which wraps as in Relay, because Relay does not clip there."""
    return wrap(x) if dtype == "int32" else saturate(x, dtype)
