"""Products of few integers by a real number: a shorter multiplier that rounds them all alike.

A multiplier of 31 bits is there for factors of 32. What is known to have a few hundred values, a
difference of two int8 say, can mostly be multiplied by 15 bits to the same results: it is tried
for all of them when the kernel is made. Such a product takes one instruction, and fits into int32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from tvm import tirx

from ..reference.fixed_point import multiply

__all__ = ["ShortMultiplication"]

Int64 = npt.NDArray[np.int64]
#: Integers that are tried at most, and bits of a multiplier.
_MOST, _BITS = 1 << 10, 15


@dataclass(frozen=True)
class ShortMultiplication:
    """``(x * factor + half) >> shift`` in int32.

    Attributes
    ----------
    factor, half, shift : int
        Constants.
    """

    factor: int
    half: int
    shift: int

    @classmethod
    def find(
        cls, multiplier: Int64, shift: Int64, rounding: str, ends: tuple[int, int], plus: int = 0
    ) -> ShortMultiplication | None:
        """Find constants that give what `reference.fixed_point.multiply` gives.

        Parameters
        ----------
        multiplier, shift : numpy.ndarray
            One multiplier of 31 bits, and its shift.
        rounding : str
            Any of the reference's.
        ends : tuple of (int, int)
            The least and the largest integer that is multiplied.
        plus : int
            What is to be added to the results.

        Returns
        -------
        ShortMultiplication or None
            None where there are too many integers, or no short multiplier rounds them all alike.
        """
        if multiplier.ndim or not 0 < ends[1] - ends[0] < _MOST:
            return None
        ratio = int(multiplier) * 2.0 ** (int(shift) - 31)
        x = np.arange(ends[0], ends[1] + 1, dtype=np.int64)
        wanted = multiply(x, multiplier, shift, rounding) + plus
        largest = int(np.floor(np.log2(((1 << _BITS) - 1) / ratio))) if ratio else 0
        for right in range(min(largest, 30), 0, -1):
            near = round(ratio * 2.0**right)
            for factor in (near, near - 1, near + 1):
                if not 0 < factor < 1 << _BITS:
                    continue
                # Between these, whatever is added brings each product to its result.
                least = int((wanted * (1 << right) - x * factor).max())
                most = int(((wanted + 1) * (1 << right) - x * factor).min()) - 1
                half = (least + most) // 2
                sums = x * factor + half
                if least <= most and -(1 << 31) <= sums.min() <= sums.max() < 1 << 31:
                    return cls(factor, half, right)
        return None

    def apply(self, x: tirx.PrimExpr) -> tirx.PrimExpr:
        """Multiply an int32 that lies between the ends."""
        product = x * tirx.const(self.factor, "int32")
        return (product + tirx.const(self.half, "int32")) >> tirx.const(self.shift, "int32")
