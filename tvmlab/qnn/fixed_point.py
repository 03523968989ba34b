"""Multiplication of integers by a real number in integer arithmetic: in NumPy, and in TE.

A positive real number is ``multiplier / 2**31 * 2**shift`` with a multiplier of 31 bits. An integer
times this number is a product of 64 bits, rounded while it is shifted right. The three roundings
differ only in half-way cases, and in rounding once or twice. `multiply` defines the results;
`FixedPointMultiplier` computes the same bits in forms that vectorize. For a right shift n of the
product, from 2 to 62, all three roundings are one shift of the product and two constants:

    (x * m + half - (down if x < 0 else 0)) >> n

========= ====================== =====================================================
UPWARD    half = 2**(n - 1)      down = 0
TONEAREST half = 2**(n - 1)      down = 1: ``x * m`` has the sign of x
TFLITE    half = 2**30 + 2**(n - 1), down = 2**31 where there is a second rounding
========= ====================== =====================================================

TFLITE rounds to 31 bits, ``h = (x * m + 2**30) >> 31``, and then away from zero by e = n - 31 bits,
``(h + 2**(e - 1) - (h < 0)) >> e``. This is a floor of a quotient of a floor, which equals one
floor. The condition h < 0 can be replaced by x < 0: if h is 0 for a negative x, subtracting one
does not matter, as ``2**(e - 1) - 1`` is not negative. (e = 0 rounds once: half = 2**30, down = 0.)

Many processors have no arithmetic right shift of 64-bit vectors (before AVX-512). Therefore, if n
is 33 or more, the kernel keeps only the upper halves of sums. With ``half = 2**32 * h + l``,

    high = (x * m + l - down) >> 32
    (x * m + half - down) >> n  ==  (high + h) >> (n - 32)

which is again a floor of a quotient of a floor. All values fit int32: high lies between -2**30 and
2**30, and h is at most 2**29.

A smaller n becomes 33 or more if x can first be shifted left without overflow. Integers of a few
hundred values, such as a difference of two int8, can mostly be multiplied by 15 bits in one
instruction with the same results; `ShortMultiplier.find` tries this when the kernel is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from ..errors import InputError
from .checks import Array, limits
from .operands import ChannelParam

Int64 = npt.NDArray[np.int64]
Bounds = tuple[int, int]
INT32: Bounds = limits("int32")

BITS = 31
_HALF = 32
# The largest number of integers to try, and the bits of a short multiplier.
_MOST, _SHORT_BITS = 1 << 10, 15
LARGEST_SHIFT = 30
"""Larger real numbers, from 2**30, are refused, because no int32 result would be right."""
LEAST_SHIFT = -31
"""Smaller real numbers, below 2**-32, count as 0, because an int32 times them rounds to 0."""


def fixed_point_multiplier(scale: float) -> tuple[int, int]:
    """Split a real number below 2**30 into a 31-bit multiplier and a shift.

    ``scale`` is about ``multiplier * 2.0**(shift - 31)``. The multiplier lies in 2**30 to
    2**31 - 1, or both are 0 where `scale` is 0 or below 2**-32.

    Raises
    ------
    tvmlab.errors.InputError
        If `scale` is negative, NaN, or at least 2**30.

    Notes
    -----
    This is Relay's `GetFixedPointMultiplierShift` (src/relay/qnn/utils.cc) and TFLite's
    `QuantizeMultiplier` (kernels/internal/quantization_util.cc), which flushes small numbers to 0;
    Relay's results for them are 0 too. The significand is rounded half away from zero.
    """
    significand, shift = math.frexp(scale) if 0 <= scale < math.inf else (0.0, LARGEST_SHIFT + 1)
    multiplier = math.floor(significand * 2.0**BITS + 0.5)
    if multiplier == 1 << BITS:
        multiplier, shift = multiplier // 2, shift + 1
    if shift > LARGEST_SHIFT:
        raise InputError(
            f"the input's scale is {scale} times the output's; the ratio must be below 2**30",
            where="requantize, operands input_scale and output_scale",
        )
    return (0, 0) if shift < LEAST_SHIFT else (multiplier, shift)


def fixed_point_multipliers(scales: npt.ArrayLike) -> tuple[Int64, Int64]:
    """Return the multipliers and shifts of several real numbers; see `fixed_point_multiplier`."""
    given = np.asarray(scales, np.float64)
    pairs = [fixed_point_multiplier(float(scale)) for scale in given.ravel()]
    multipliers, shifts = np.array(pairs, np.int64).reshape(-1, 2).T
    return multipliers.reshape(given.shape), shifts.reshape(given.shape)


def multiply(x: Int64, multiplier: Int64, shift: Int64, rounding: str) -> Int64:
    """Multiply int32 values, as int64, by multipliers and shifts, and round to up to 61 bits.

    UPWARD is Relay's `fixed_point_multiply` (`tir.q_multiply_shift`, src/target/intrin_rule.cc),
    which shifts `x` to the left first if `shift` is positive, and then divides numbers that are
    2**shift times larger. TONEAREST is `FixedPointMultiplyToNearest` (src/relay/qnn/utils.cc),
    which adds one less to negative products. TFLITE is `MultiplyByQuantizedMultiplier`
    (kernels/internal/common.h) in its form with two roundings: a left shift in int32, gemmlowp's
    `SaturatingRoundingDoublingHighMul`, then its `RoundingDivideByPOT` (fixedpoint/fixedpoint.h).
    """
    one, down = np.int64(1), np.asarray(0)
    if rounding != "TFLITE":
        right, product = BITS - shift, x * multiplier
        if rounding == "TONEAREST":
            down = product < 0
        found: Int64 = (product + (one << (right - 1)) - down) >> right
        return found
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    shifted = (x << left).astype(np.int32).astype(np.int64)
    # Only the square of the smallest int32 does not fit; it becomes the largest value.
    product = (shifted * multiplier + (one << np.int64(BITS - 1))) >> np.int64(BITS)
    high: Int64 = np.minimum(product, np.int64((1 << BITS) - 1))
    mask = (one << right) - 1
    rounded: Int64 = (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))
    return rounded


def fits(bounds: Bounds) -> bool:
    """Return whether int32 holds all integers between two bounds."""
    return INT32[0] <= bounds[0] and bounds[1] <= INT32[1]


def _scaled(bounds: Bounds, ratio: Array) -> Bounds:
    most = float(np.max(ratio, initial=0.0))
    low, high = int(np.floor(bounds[0] * most)), int(np.ceil(bounds[1] * most))
    return min(low, 0) - 1, max(high, 0) + 1


def product_bounds(bounds: Bounds, ratio: Array, rounding: str) -> Bounds:
    """Bound the products of integers with real numbers; TFLITE's left shift can wrap."""
    wraps = not fits(bounds) or (fixed_point_multipliers(ratio)[1] > 0).any()
    return INT32 if rounding == "TFLITE" and wraps else _scaled(bounds, ratio)


def wrapped(x: tirx.PrimExpr) -> tirx.PrimExpr:
    """Return the lower 32 bits of an int64; TVM's simplifier assumes that casts keep values."""
    lower = x & tirx.const((1 << 32) - 1, "int64")
    return tirx.reinterpret("int32", lower.astype("uint32"))


class FixedPointMultiplier:
    """Multiplier of integers by real numbers, one for each channel or one for all."""

    def __init__(self, ratio: Array, rounding: str, bounds: Bounds, plus: int = 0) -> None:
        multiplier, shift = fixed_point_multipliers(ratio)
        self.rounding, self.plus = rounding, 0
        self.bounds = _scaled(bounds, ratio)
        self.rows: list[ChannelParam] = []
        self._short = ShortMultiplier.find(multiplier, shift, rounding, bounds, plus)
        if self._short is not None:
            self._add(plus)
            return
        left, right, half, down = _constants(shift, rounding)
        self.bounds = product_bounds(bounds, ratio, rounding)
        room = np.maximum(_HALF + 1 - right, 0)
        self._multiplier = self._row(multiplier, "int32")
        self._left = self._row(left, "int64")
        most_room = int(room.max(initial=0))
        self._high = not left.any() and fits((bounds[0] << most_room, bounds[1] << most_room))
        if not self._high:
            self._low, self._down = self._row(half, "int64"), self._row(down, "int64")
            self._rest = self._row(right, "int64")
            return
        half, down, rest = half << room, down << room, right + room - _HALF
        upper, shifted = half >> _HALF, np.int64(plus) << rest
        if np.abs(upper + shifted).max(initial=0) < 1 << (_HALF - 2):
            # The upper half of a product has at most this size, so the sum does not overflow.
            upper = upper + shifted
            self._add(plus)
        self._low = self._row(half & ((1 << _HALF) - 1), "int64")
        self._down = self._row(down, "int64")
        self._room, self._half, self._rest = (
            self._row(values, "int32") for values in (room, upper, rest)
        )

    def _add(self, plus: int) -> None:
        self.plus, self.bounds = plus, (self.bounds[0] + plus, self.bounds[1] + plus)

    def _row(self, values: Array, dtype: str) -> ChannelParam:
        row = ChannelParam(values, dtype=dtype)
        self.rows.append(row)
        return row

    def apply(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply an int32 of a channel (or an int64 if the products need it)."""
        if self._short is not None:
            return self._short.apply(x)
        if not self._high:
            return self._wide(x, channel)
        if not self._room.is_all(0):
            x = x << self._room.read(channel)
        high = (self._sum(x, channel) >> tirx.const(_HALF, "int64")).astype("int32")
        return (high + self._half.read(channel)) >> self._rest.read(channel)

    def _sum(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply to 64 bits and add the rounding constants."""
        product = _product(x, self._multiplier.read(channel))
        if not self._low.is_all(0):
            product = product + self._low.read(channel)
        if not self._down.is_all(0):
            sign = x >> tirx.const(int(str(x.ty)[3:]) - 1, str(x.ty))  # -1 or 0
            product = product - (sign.astype("int64") & self._down.read(channel))
        return product

    def _wide(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply in int64 throughout; cast to int32 at the end if the results fit."""
        if not self._left.is_all(0):
            x = x.astype("int64") << self._left.read(channel)
        if self.rounding == "TFLITE" and str(x.ty) == "int64":
            x = wrapped(x)
        found = self._sum(x, channel) >> self._rest.read(channel)
        return found.astype("int32") if fits(self.bounds) else found


def _constants(shift: Array, rounding: str) -> tuple[Array, Array, Array, Array]:
    """Return the left shift, n, half and down of each multiplier."""
    one = np.int64(1)
    if rounding != "TFLITE":
        right = BITS - shift
        down = np.full_like(shift, rounding == "TONEAREST")
        return np.zeros_like(shift), right, one << (right - 1), down
    rest = np.maximum(-shift, 0)
    again = rest > 0
    half = (one << (BITS - 1)) + again * (one << (rest + BITS - 1))
    return np.maximum(shift, 0), BITS + rest, half, again * (one << BITS)


def _product(x: tirx.PrimExpr, multiplier: tirx.PrimExpr) -> tirx.PrimExpr:
    """Multiply 32 bits to 64 bits.

    LLVM would widen a multiplier that is loaded once, far from the product, and then multiply all
    64 bits, which takes three times as long. Therefore the multiplier, which is not negative, is
    combined with the sign bit of `x` at the product, which does not change its value.
    """
    if str(x.ty) == "int32" and not isinstance(multiplier, tirx.IntImm):
        multiplier = multiplier & (x | tirx.const((1 << BITS) - 1, "int32"))
    return x.astype("int64") * multiplier.astype("int64")


@dataclass(frozen=True)
class ShortMultiplier:
    """``(x * factor + half) >> shift`` in int32."""

    factor: int
    half: int
    shift: int

    @classmethod
    def find(
        cls, multiplier: Int64, shift: Int64, rounding: str, bounds: tuple[int, int], plus: int = 0
    ) -> ShortMultiplier | None:
        """Return constants with the results of `multiply` between the bounds, plus `plus`."""
        if multiplier.ndim or not 0 < bounds[1] - bounds[0] < _MOST:
            return None
        ratio = int(multiplier) * 2.0 ** (int(shift) - 31)
        x = np.arange(bounds[0], bounds[1] + 1, dtype=np.int64)
        wanted = multiply(x, multiplier, shift, rounding) + plus
        largest = int(np.floor(np.log2(((1 << _SHORT_BITS) - 1) / ratio))) if ratio else 0
        for right in range(min(largest, 30), 0, -1):
            near = round(ratio * 2.0**right)
            for factor in (near, near - 1, near + 1):
                if not 0 < factor < 1 << _SHORT_BITS:
                    continue
                # With any `half` between these two, each product is rounded to its result.
                least = int((wanted * (1 << right) - x * factor).max())
                most = int(((wanted + 1) * (1 << right) - x * factor).min()) - 1
                half = (least + most) // 2
                sums = x * factor + half
                if least <= most and -(1 << 31) <= sums.min() <= sums.max() < 1 << 31:
                    return cls(factor, half, right)
        return None

    def apply(self, x: tirx.PrimExpr) -> tirx.PrimExpr:
        """Multiply an int32 that lies between the bounds."""
        product = x * tirx.const(self.factor, "int32")
        return (product + tirx.const(self.half, "int32")) >> tirx.const(self.shift, "int32")
