"""Sums of two 8-bit tensors on a new scale, in int32, with the reference's results.

TFLite's addition multiplies three times by 31 bits and rounds each time; but as the first two
roundings are fine, what comes out mostly is ``(x * f + y * g + half) >> shift`` with factors of 22
bits, saturated. There are 65,536 pairs of numbers: it is tried for all of them when the kernel is
made. Where it fails, it does so for one or two pairs, those closest to a half-way case: these are
told apart. The factors are taken apart into two of 11 bits, as processors multiply by 15 bits in
one instruction, and most by 32 in two or more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
from tvm import tirx

from ..ir.checks import limits
from .fixed_point import INT32
from .numbers import Number, saturate

__all__ = ["ShortAdd"]

Int64 = npt.NDArray[np.int64]
#: Bits of a factor's halves; shifts that are tried; pairs that may be told apart.
_HALF, _SHIFTS, _APART = 11, 3, 2
_NEAR = (0, 1, -1)


@dataclass(frozen=True)
class ShortAdd:
    """``(x * factors[0] + y * factors[1] + half) >> shift`` in int32, saturated.

    Attributes
    ----------
    factors : tuple of (int, int)
        Constants.
    half, shift : int
        Constants.
    dtype : str
        Of x, y and the result: int8 or uint8.
    apart : tuple of (int, int, int)
        Pairs x and y, and what is to be added to their results.
    """

    factors: tuple[int, int]
    half: int
    shift: int
    dtype: str
    apart: tuple[tuple[int, int, int], ...] = ()

    @classmethod
    def find(cls, ratios: tuple[float, float], wanted: Int64, dtype: str) -> ShortAdd | None:
        """Find constants for a table of results.

        Parameters
        ----------
        ratios : tuple of (float, float)
            By what x and y are multiplied, about; negative where they are subtracted.
        wanted : numpy.ndarray
            Shape (256, 256): the result for each x and y, both from the least number of `dtype` up.
        dtype : str
            int8 or uint8.

        Returns
        -------
        ShortAdd or None
            None where no such constants give the table.
        """
        largest = int(np.floor(np.log2((1 << (2 * _HALF)) / max(map(abs, ratios)))))
        best: ShortAdd | None = None
        for shift in range(min(largest, 30), max(0, largest - _SHIFTS), -1):
            for more in product(_NEAR, _NEAR):
                factors = [round(r * (1 << shift)) + m for r, m in zip(ratios, more, strict=True)]
                if max(map(abs, factors)) >= 1 << (2 * _HALF):
                    continue
                found = cls._fit((factors[0], factors[1]), shift, wanted, dtype)
                if found and not found.apart:
                    return found
                if found and (best is None or len(found.apart) < len(best.apart)):
                    best = found
        return best

    @classmethod
    def _fit(
        cls, factors: tuple[int, int], shift: int, wanted: Int64, dtype: str
    ) -> ShortAdd | None:
        """Find what is to be added so that the fewest pairs are wrong."""
        low, high = limits(dtype)
        x = np.arange(low, high + 1, dtype=np.int64)
        sums = x[:, None] * factors[0] + x * factors[1]
        # Between these; what saturates may lie anywhere beyond.
        least = ((wanted << shift) - sums)[wanted > low]
        most = (((wanted + 1) << shift) - 1 - sums)[wanted < high]
        if not least.size or not most.size:
            return None
        last = min(_APART + 1, least.size)
        tried = np.sort(np.partition(least, -last)[-last:])
        half = int(tried[np.argmin([(least > h).sum() + (most < h).sum() for h in tried])])
        if half == least.max() <= most.min():
            half = int(least.max() + most.min()) // 2
        made = np.clip((sums + half) >> shift, low, high)
        where = np.argwhere(made != wanted)
        ends = sums.min() + half, sums.max() + half
        if len(where) > _APART or ends[0] < -(1 << 31) or ends[1] >= 1 << 31:
            return None
        apart = tuple((int(x[i]), int(x[j]), int((wanted - made)[i, j])) for i, j in where)
        return cls(factors, half, shift, dtype, apart)

    def apply(self, x: tirx.PrimExpr, y: tirx.PrimExpr) -> tirx.PrimExpr:
        """Add two numbers of `dtype`."""
        first, second = x.astype("int32"), y.astype("int32")
        (a, b), (c, d) = (divmod(factor, 1 << _HALF) for factor in self.factors)
        upper, lower = first * a + second * c, first * b + second * d
        found = ((upper << _HALF) + (lower + self.half)) >> self.shift
        zero = tirx.const(0, "int32")
        for left, right, more in self.apart:
            pair = (first << 8) + second
            found += tirx.Select(pair.equal((left << 8) + right), tirx.const(more, "int32"), zero)
        return saturate(Number(found, INT32), self.dtype).expr
