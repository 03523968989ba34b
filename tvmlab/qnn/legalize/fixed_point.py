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

from ..reference.fixed_point import BITS, fixed_point_multipliers
from .operands import Row

__all__ = ["Multiplication"]

Array = npt.NDArray[Any]
_HALF = 32


class Multiplication:
    """What multiplies integers by real numbers, one for each channel or one for all.

    Parameters
    ----------
    ratio : numpy.ndarray
        float64, shape () or (channels,): the numbers.
    rounding : str
        ``"UPWARD"``, ``"TONEAREST"`` or ``"TFLITE"``.
    reach : int
        No integer is larger in magnitude.

    Attributes
    ----------
    rows : list of Row
        What its kernel has to read.
    largest : int
        No result is larger in magnitude.
    """

    def __init__(self, ratio: Array, rounding: str, reach: int) -> None:
        multiplier, shift = fixed_point_multipliers(ratio)
        self.rounding, self.reach = rounding, reach
        self.largest = reach * int(np.ceil(np.max(ratio, initial=0.0))) + 1
        self.rows: list[Row] = []
        self._multiplier = self._row(multiplier, "int32")
        right = BITS - shift
        if rounding == "TFLITE":
            self.largest = 1 << BITS
            self._left = self._row(np.maximum(shift, 0), "int32")
            self._right = self._row(np.maximum(-shift, 0), "int32")
            self._mask = self._row((np.int64(1) << np.maximum(-shift, 0)) - 1, "int32")
            return
        room = np.maximum(_HALF + 1 - right, 0)
        self._high = reach << int(room.max(initial=0)) < 1 << BITS
        if self._high:
            self._room = self._row(room, "int32")
            self._half = self._row(np.int64(1) << (right + room - _HALF - 1), "int32")
            self._rest = self._row(right + room - _HALF, "int32")
        else:
            self._half = self._row(np.int64(1) << (right - 1), "int64")
            self._rest = self._row(right, "int64")

    def _row(self, values: Array, dtype: str) -> Row:
        row = Row(values, dtype=dtype)
        self.rows.append(row)
        return row

    def apply(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply an integer.

        Parameters
        ----------
        x : tvm.tirx.PrimExpr
            int32, or int64 where `reach` is more than int32 holds.
        channel : int or tvm.tirx.PrimExpr
            The channel that it belongs to.

        Returns
        -------
        tvm.tirx.PrimExpr
            int32 or int64: the reference's integer, whole.
        """
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
        return found.astype("int32") if self.largest < 1 << BITS else found

    def _twice(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Multiply as TFLite does; its high product cannot saturate, as no multiplier is 2**31."""
        if not self._left.is_all(0):
            x = x.astype("int64") << self._left.read(channel).astype("int64")
        product = _product(x.astype("int32"), self._multiplier.read(channel))
        half = tirx.const(1 << (BITS - 1), "int64")
        found = ((product + half) >> tirx.const(BITS, "int64")).astype("int32")
        if self._right.is_all(0):
            return found
        mask = self._mask.read(channel)
        least = (mask >> 1) + (found < 0).astype("int32")
        up = ((found & mask) > least).astype("int32")
        return (found >> self._right.read(channel)) + up


def _product(x: tirx.PrimExpr, multiplier: tirx.PrimExpr) -> tirx.PrimExpr:
    """Multiply to 64 bits; that both factors came from 32 is what the instructions need to see."""
    return x.astype("int64") * multiplier.astype("int64")
