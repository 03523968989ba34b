"""Bring integers from one scale and zero point to another, inside of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import te, tirx

from .. import config
from ..checks import limits
from ..reference.scaling import multiplier
from .casts import half_away, offset, saturate_float, saturate_int
from .fixed_point import Multiplication
from .operands import Row

__all__ = ["Scaling"]

Array = npt.NDArray[Any]

# Products of floats that lie beyond int32 by this much saturate, whatever zero point is added.
_BEYOND = 2.0**33


class Scaling:
    """What `tvmlab.qnn.arithmetic.requantize` does to one number, as an expression.

    Parameters
    ----------
    scale : numpy.ndarray
        Checked: shape () or (channels,), float32 or float64.
    zero : Row
        int32: the zero points that the integers have.
    out_scale : numpy.ndarray
        Checked, one value.
    out_zero : Row
        int32, one value: the zero point that they get.
    kind, out_dtype : str
        Dtypes before (int32 at most) and after.
    way : config.Requantization
        The rounding, and in what it is computed.

    Attributes
    ----------
    rows : list of Row
        What its kernel has to read.
    """

    def __init__(
        self,
        scale: Array,
        zero: Row,
        out_scale: Array,
        out_zero: Row,
        kind: str,
        out_dtype: str,
        way: config.Requantization,
    ) -> None:
        self.zero, self.out_zero = zero, out_zero
        self.kind, self.out_dtype, self.way = kind, out_dtype, way
        self.rows = [zero, out_zero]
        self._ratio = self._multiplication = None
        ratio, reach = multiplier(scale, out_scale), _reach(kind, zero)
        # int32 less a zero point may need one bit more.
        self._wide = reach > 1 << 31
        self._largest = reach
        if ratio is None:
            return
        if way.compute_dtype == "int64":
            self._multiplication = Multiplication(ratio, way.rounding, reach)
            self._largest = self._multiplication.largest
            self.rows += self._multiplication.rows
        else:
            with np.errstate(over="ignore"):
                self._ratio = Row(ratio.astype(way.compute_dtype), dtype=way.compute_dtype)
            self.rows.append(self._ratio)

    def apply(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Scale an integer of dtype `kind`, of some channel; the result is of `out_dtype`."""
        if self.way.compute_dtype != "int64":
            return self._in_floats(x, channel)
        x = x.astype("int64" if self._wide else "int32")
        if not self.zero.is_all(0):
            x = x - self.zero.read(channel).astype(str(x.ty))
        if self._multiplication is not None:
            x = self._multiplication.apply(x, channel)
        return self._finish(x, channel)

    def _finish(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Add the zero point; saturate, or wrap in int32 as Relay does."""
        if self.out_dtype != "int32" and self.out_zero.values is not None:
            return offset(x, int(self.out_zero.values), self.out_dtype)
        if not self.out_zero.is_all(0):
            x = x.astype("int64") + self.out_zero.read(channel).astype("int64")
        return x.astype("int32") if self.out_dtype == "int32" else saturate_int(x, self.out_dtype)

    def _in_floats(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Scale in floats, each operation rounded on its own."""
        kind = self.way.compute_dtype
        found = x.astype(kind)
        if not self.zero.is_all(0):
            found = found - self.zero.read(channel).astype(kind)
        if self._ratio is not None:
            found = found * self._ratio.read(channel)
            # A limit that changes no result: it stands between the product and the sum, which a
            # processor would else be given as one operation that rounds once.
            least, most = tirx.const(-_BEYOND, kind), tirx.const(_BEYOND, kind)
            found = tirx.Max(tirx.Min(found, most), least)
        if not self.out_zero.is_all(0):
            found = found + self.out_zero.read(channel).astype(kind)
        if self.way.rounding == "UPWARD":
            return saturate_float(te.floor(found + tirx.const(0.5, kind)), self.out_dtype)
        return saturate_float(half_away(found), self.out_dtype)

    @property
    def largest(self) -> int:
        """No result is larger in magnitude."""
        ends = max(abs(end) for end in limits(self.out_dtype))
        if self.way.compute_dtype != "int64" or self.out_zero.values is None:
            return ends
        return min(ends, self._largest + abs(int(self.out_zero.values)))


def _reach(kind: str, zero: Row) -> int:
    """Say how large the magnitude of a value less its zero point can be."""
    low, high = limits(kind)
    if zero.values is None:
        return high - low
    if not np.size(zero.values):
        return 0
    return max(high - int(np.min(zero.values)), int(np.max(zero.values)) - low)
