"""Multiplication of integers by real numbers in TE: the reference's bits, in forms that vectorize.

`tvmlab.qnn.reference.fixed_point` says what is computed, with a multiplier m of 31 bits and a shift
n from 2 to 62. All three roundings are one shift of a product of 64 bits and two constants:

    (x * m + half - (down if x < 0 else 0)) >> n

========= ====================== =====================================================
UPWARD    half = 2**(n - 1)      down = 0
TONEAREST half = 2**(n - 1)      down = 1: ``x * m`` has the sign of x
TFLITE    half = 2**30 + 2**(n - 1), down = 2**31 where there is a second rounding
========= ====================== =====================================================

For TFLITE rounds to 31 bits, ``h = (x * m + 2**30) >> 31``, and then away from zero by e = n - 31
bits, ``(h + 2**(e - 1) - (h < 0)) >> e``: a floor of a quotient of a floor, which is the floor of
the whole. That h < 0 can be read as x < 0: where h is 0 for a negative x, one less changes nothing,
as ``2**(e - 1) - 1`` is not negative. (e = 0 rounds once: half = 2**30, down = 0.)

Processors have an instruction that multiplies vectors of 32 bits to 64, but many lack what follows:
64-bit shifts to the right that keep the sign, by another amount in each lane, are missing before
AVX-512. So where n is 33 or more, only the upper halves of sums are kept. With
``half = 2**32 * h + l``,

    high = (x * m + l - down) >> 32
    (x * m + half - down) >> n  ==  (high + h) >> (n - 32)

which is a floor of a quotient of a floor again. Nothing leaves int32: high lies between -2**30 and
2**30, and h is at most 2**29.

A smaller n becomes 33 or more by shifting x to the left first, which is exact where x has room: a
difference of int8 has. Then all else is 2**k times what it was, and n is n + k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from ...ir.checks import limits
from ..reference.fixed_point import BITS, fixed_point_multipliers
from .casts import wrapped
from .operands import Row
from .small import ShortMultiplication

__all__ = ["INT32", "Ends", "Multiplication", "fits"]

Array = npt.NDArray[Any]
Ends = tuple[int, int]
INT32: Ends = limits("int32")
_HALF = 32


def fits(ends: Ends) -> bool:
    """Say whether int32 holds all integers between these two."""
    return INT32[0] <= ends[0] and ends[1] <= INT32[1]


class Multiplication:
    """What multiplies integers by real numbers, one for each channel or one for all.

    Parameters
    ----------
    ratio : numpy.ndarray
        float64, shape () or (channels,): the numbers.
    rounding : str
        ``"UPWARD"``, ``"TONEAREST"`` or ``"TFLITE"``.
    ends : tuple of (int, int)
        The least and the largest of the integers.
    plus : int
        What may be added to the results, if that costs nothing: a zero point.

    Attributes
    ----------
    rows : list of Row
        What its kernel has to read.
    plus : int
        What is added to the results: that number, or 0.
    ends : tuple of (int, int)
        Bounds of the results.
    """

    def __init__(self, ratio: Array, rounding: str, ends: Ends, plus: int = 0) -> None:
        multiplier, shift = fixed_point_multipliers(ratio)
        self.rounding, self.plus = rounding, 0
        most = float(np.max(ratio, initial=0.0))
        low, high = int(np.floor(ends[0] * most)), int(np.ceil(ends[1] * most))
        self.ends = min(low, 0) - 1, max(high, 0) + 1
        self.rows: list[Row] = []
        self._short = ShortMultiplication.find(multiplier, shift, rounding, ends, plus)
        if self._short is not None:
            self._add(plus)
            return
        left, right, half, down = _constants(shift, rounding)
        if left.any() or (rounding == "TFLITE" and not fits(ends)):
            self.ends = INT32  # what is shifted to the left wraps
        room = np.maximum(_HALF + 1 - right, 0)
        self._multiplier = self._row(multiplier, "int32")
        self._left = self._row(left, "int64")
        most_room = int(room.max(initial=0))
        self._high = not left.any() and fits((ends[0] << most_room, ends[1] << most_room))
        if not self._high:
            self._low, self._down = self._row(half, "int64"), self._row(down, "int64")
            self._rest = self._row(right, "int64")
            return
        half, down, rest = half << room, down << room, right + room - _HALF
        upper, shifted = half >> _HALF, np.int64(plus) << rest
        if np.abs(upper + shifted).max(initial=0) < 1 << (_HALF - 2):
            # The upper half of a product is no larger: their sum does not overflow.
            upper = upper + shifted
            self._add(plus)
        self._low = self._row(half & ((1 << _HALF) - 1), "int64")
        self._down = self._row(down, "int64")
        self._room, self._half, self._rest = (
            self._row(values, "int32") for values in (room, upper, rest)
        )

    def _add(self, plus: int) -> None:
        """Note that a number is added to the results."""
        self.plus, self.ends = plus, (self.ends[0] + plus, self.ends[1] + plus)

    def _row(self, values: Array, dtype: str) -> Row:
        row = Row(values, dtype=dtype)
        self.rows.append(row)
        return row

    def apply(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply an integer.

        Parameters
        ----------
        x : tvm.tirx.PrimExpr
            int32, or int64 where that does not hold all of them.
        channel : int or tvm.tirx.PrimExpr
            The channel that it belongs to.

        Returns
        -------
        tvm.tirx.PrimExpr
            int32 or int64: the reference's integer, whole, and `plus`.
        """
        if self._short is not None:
            return self._short.apply(x)
        if not self._high:
            return self._wide(x, channel)
        if not self._room.is_all(0):
            x = x << self._room.read(channel)
        high = (self._sum(x, channel) >> tirx.const(_HALF, "int64")).astype("int32")
        return (high + self._half.read(channel)) >> self._rest.read(channel)

    def _sum(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply to 64 bits and add what rounds."""
        product = _product(x, self._multiplier.read(channel))
        if not self._low.is_all(0):
            product = product + self._low.read(channel)
        if not self._down.is_all(0):
            sign = x >> tirx.const(int(str(x.ty)[3:]) - 1, str(x.ty))  # -1 or 0
            product = product - (sign.astype("int64") & self._down.read(channel))
        return product

    def _wide(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply in int64 all through; cut to int32 at the end where everything fits."""
        if not self._left.is_all(0):
            x = x.astype("int64") << self._left.read(channel)
        if self.rounding == "TFLITE" and str(x.ty) == "int64":
            x = wrapped(x)
        found = self._sum(x, channel) >> self._rest.read(channel)
        return found.astype("int32") if fits(self.ends) else found


def _constants(shift: Array, rounding: str) -> tuple[Array, Array, Array, Array]:
    """Give, of each multiplier: a shift to the left first, n, half and down."""
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
    """Multiply to 64 bits; that both factors came from 32 is what the instructions need to see.

    A multiplier that is read is the same for many numbers, so LLVM would widen it once for all of
    them, far from the product, and multiply all 64 bits there: three times the work. Nobody but we
    knows that it has no sign, so it is given that of `x`, which changes nothing, where it is used.
    """
    if str(x.ty) == "int32" and not isinstance(multiplier, tirx.IntImm):
        multiplier = multiplier & (x | tirx.const((1 << BITS) - 1, "int32"))
    return x.astype("int64") * multiplier.astype("int64")
