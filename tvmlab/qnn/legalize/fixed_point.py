"""Multiplication of integers by real numbers in TE: the reference's bits, in forms that vectorize.

`tvmlab.qnn.reference.fixed_point` says what is computed: ``(x * m + 2**(n - 1)) >> n`` with a
multiplier m of 31 bits and a shift n from 2 to 62, in int64. Processors multiply vectors of 32 bits
to 64 quickly, but many lack what follows: 64-bit shifts to the right that keep the sign, by another
amount in each lane, are missing before AVX-512. So where n is 33 or more, only the upper halves
``high = (x * m) >> 32`` of the products are kept:

    (x * m + 2**(n - 1)) >> n  ==  (high + 2**(n - 33)) >> (n - 32)

For ``x * m = 2**32 * high + low`` with ``0 <= low < 2**32``, and ``2**(n - 1)`` is a multiple of
2**32; so the left side is the floor of ``(high + 2**(n - 33) + low / 2**32) / 2**(n - 32)``, and
what is less than 1 changes no floor of a quotient of integers. Nothing leaves int32: high lies
between -2**30 and 2**30, and 2**(n - 33) is at most 2**29.

A smaller n becomes 33 or more by shifting x to the left first, which is exact where x has room: a
difference of int8 has. Then ``x * m``, and the rounding constant with it, is 2**k times what it
was, and n is n + k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import tirx

from ..checks import limits
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
        self._multiplier = self._row(multiplier, "int32")
        right = BITS - shift
        if rounding == "TFLITE":
            self.ends = INT32
            self._left = self._row(np.maximum(shift, 0), "int32")
            self._right = self._row(np.maximum(-shift, 0), "int32")
            self._mask = self._row((np.int64(1) << np.maximum(-shift, 0)) - 1, "int32")
            return
        room = np.maximum(_HALF + 1 - right, 0)
        self._high = fits(tuple(end << int(room.max(initial=0)) for end in ends))
        if not self._high:
            self._half = self._row(np.int64(1) << (right - 1), "int64")
            self._rest = self._row(right, "int64")
            return
        rest = right + room - _HALF
        half, shifted = np.int64(1) << (rest - 1), np.int64(plus) << rest
        if np.abs(half + shifted).max(initial=0) < 1 << (_HALF - 2):
            # The upper half of a product is no larger: their sum does not overflow.
            half = half + shifted
            self._add(plus)
        self._room, self._half, self._rest = (
            self._row(values, "int32") for values in (room, half, rest)
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
        if self.rounding == "TFLITE":
            return self._twice(x, channel)
        if not self._high:
            return self._wide(x, channel)
        if not self._room.is_all(0):
            x = x << self._room.read(channel)
        product = _product(x, self._multiplier.read(channel))
        if self.rounding == "TONEAREST":
            # One less for negative products, which have the sign of x. Shifted to the left, it is
            # less than that one, but no less than nothing: the floor is the same.
            product = product - (x < 0).astype("int64")
        high = (product >> tirx.const(_HALF, "int64")).astype("int32")
        return (high + self._half.read(channel)) >> self._rest.read(channel)

    def _wide(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply in int64 all through; cut to int32 at the end where everything fits."""
        product = _product(x, self._multiplier.read(channel)) + self._half.read(channel)
        if self.rounding == "TONEAREST":
            product = product - (x < 0).astype("int64")
        found = product >> self._rest.read(channel)
        return found.astype("int32") if fits(self.ends) else found

    def _twice(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply as TFLite does; its high product cannot saturate, as no multiplier is 2**31."""
        if not self._left.is_all(0):
            x = x.astype("int64") << self._left.read(channel).astype("int64")
        x = wrapped(x) if str(x.ty) == "int64" else x
        product = _product(x, self._multiplier.read(channel))
        half = tirx.const(1 << (BITS - 1), "int64")
        found = ((product + half) >> tirx.const(BITS, "int64")).astype("int32")
        if self._right.is_all(0):
            return found
        mask = self._mask.read(channel)
        least = (mask >> 1) + (found < 0).astype("int32")
        up = ((found & mask) > least).astype("int32")
        return (found >> self._right.read(channel)) + up


def _product(x: tirx.PrimExpr, multiplier: tirx.PrimExpr) -> tirx.PrimExpr:
    """Multiply to 64 bits; that both factors came from 32 is what the instructions need to see.

    A multiplier that is read is the same for many numbers, so LLVM would widen it once for all of
    them, far from the product, and multiply all 64 bits there: three times the work. Nobody but we
    knows that it has no sign, so it is given that of `x`, which changes nothing, where it is used.
    """
    if str(x.ty) == "int32" and not isinstance(multiplier, tirx.IntImm):
        multiplier = multiplier & (x | tirx.const((1 << BITS) - 1, "int32"))
    return x.astype("int64") * multiplier.astype("int64")
