"""Bring integers from one scale and zero point to another, inside of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from ...ir.checks import limits
from .. import config
from ..reference.scaling import multiplier
from .casts import (
    fenced,
    half_away,
    half_even,
    offset,
    saturate_float,
    saturate_int,
    wrapped,
)
from .fixed_point import Ends, Multiplication, fits
from .operands import Row, call_te, known_shape

__all__ = ["Scaling", "requantized", "shifted"]

Array = npt.NDArray[Any]


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
    ends : tuple of (int, int), optional
        The least and the largest integer; the ends of `kind` where they are left out.

    Attributes
    ----------
    rows : list of Row
        What its kernel has to read.
    ends : tuple of (int, int)
        Bounds of the results.
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
        ends: Ends | None = None,
    ) -> None:
        ratio = multiplier(scale, out_scale)
        if ratio is None and way.rounding == "ONNX":
            way = config.Requantization()  # where nothing is multiplied, nothing is rounded
        self.zero, self.out_zero = zero, out_zero
        self.kind, self.out_dtype, self.way = kind, out_dtype, way
        self.rows = [zero, out_zero]
        self._ratio: Row | None = None
        self._multiplication: Multiplication | None = None
        ends = shifted(ends or limits(kind), zero)
        # int32 less a zero point may need one bit more.
        self._wide = not fits(ends)
        plus = 0 if out_zero.values is None else int(out_zero.values)
        self._plus = plus  # what is still to be added
        if ratio is not None and way.compute_dtype == "int64":
            self._multiplication = Multiplication(ratio, way.rounding, ends, plus)
            self._plus -= self._multiplication.plus
            ends = self._multiplication.ends
            self.rows += self._multiplication.rows
        elif ratio is not None:
            with np.errstate(over="ignore"):
                self._ratio = Row(ratio.astype(way.compute_dtype), dtype=way.compute_dtype)
            self.rows.append(self._ratio)
        self.ends, self._wraps = limits(out_dtype), True
        if way.compute_dtype == "int64" and out_zero.values is not None:
            moved = ends[0] + self._plus, ends[1] + self._plus
            if fits(moved):
                self._wraps = False
                self.ends = max(moved[0], self.ends[0]), min(moved[1], self.ends[1])

    def apply(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Scale an integer of dtype `kind`, of some channel; the result is of `out_dtype`."""
        if self.way.rounding == "ONNX":
            return self._to_even(x, channel)
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
        if not self._wraps:
            x = x.astype("int32") + tirx.const(self._plus, "int32")
            return x if self.out_dtype == "int32" else saturate_int(x, self.out_dtype)
        if self.out_dtype != "int32" and self.out_zero.values is not None:
            return offset(x, self._plus, self.out_dtype)
        if self.out_zero.values is not None:
            x = x.astype("int64") + tirx.const(self._plus, "int64")
        elif not self.out_zero.is_all(0):
            x = x.astype("int64") + self.out_zero.read(channel).astype("int64")
        if self.out_dtype != "int32":
            return saturate_int(x, self.out_dtype)
        return wrapped(x) if str(x.ty) == "int64" else x

    def _to_even(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Scale in float32 and round half to even, then add the zero point."""
        assert self._ratio is not None
        if not self.zero.is_all(0):
            x = x.astype("int64" if self._wide else "int32")
            x = x - self.zero.read(channel).astype(str(x.ty))
        found = x.astype("float32") * self._ratio.read(channel)
        if self.out_dtype != "int32" and self.out_zero.values is not None:
            # Cut before the rounding, which then has to reach no further than a cast does.
            low, high = (float(end - self._plus) for end in limits(self.out_dtype))
            cut = tirx.Max(tirx.Min(found, tirx.const(high, "float32")), tirx.const(low, "float32"))
            whole = half_even(cut).astype("int32") + tirx.const(self._plus, "int32")
            return whole.astype(self.out_dtype)
        whole = half_even(found).astype("float64") + self.out_zero.read(channel).astype("float64")
        return saturate_float(whole, self.out_dtype)

    def _in_floats(self, x: tirx.PrimExpr, channel: Any) -> tirx.PrimExpr:
        """Scale in floats, each operation rounded on its own."""
        kind = self.way.compute_dtype
        found = x.astype(kind)
        if not self.zero.is_all(0):
            found = found - self.zero.read(channel).astype(kind)
        if self._ratio is not None:
            found = fenced(found * self._ratio.read(channel))
        if self.way.rounding == "TFLITE":  # rounds before it adds the zero point
            found = half_away(found)
        if not self.out_zero.is_all(0):
            found = found + self.out_zero.read(channel).astype(kind)
        if self.way.rounding == "TFLITE":
            return saturate_float(found, self.out_dtype)
        if self.way.rounding == "UPWARD":
            return saturate_float(te.floor(found + tirx.const(0.5, kind)), self.out_dtype)
        return saturate_float(half_away(found), self.out_dtype)


def shifted(ends: Ends, zero: Row) -> Ends:
    """Bound integers between two ends less their zero points."""
    low, high = ends
    if zero.values is None:
        return low - high, high - low
    if not np.size(zero.values):
        return 0, 0
    return low - int(np.max(zero.values)), high - int(np.min(zero.values))


def requantized(
    builder: relax.BlockBuilder, data: relax.Expr, scaling: Scaling, call: str, axis: int = 0
) -> relax.Call:
    """Call the kernel that brings a tensor to another scale.

    Parameters
    ----------
    builder : tvm.relax.BlockBuilder
        Of the function.
    data : tvm.relax.Expr
        The tensor.
    scaling : Scaling
        What is done to each number.
    call : str
        The operator, for errors.
    axis : int
        The channels' axis, from the front.
    """
    shape = known_shape(call, "data", data)

    def compute(x: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> tirx.PrimExpr:
            return scaling.apply(x(*index).astype(scaling.kind), index[axis] if index else 0)

        return te.compute(shape, value, name="requantize")

    return call_te(builder, compute, [data], scaling.rows, "requantize")
