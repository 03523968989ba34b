"""What a convolution or a matrix product of quantized numbers needs to know.

    sum((a - za) * (w - zw)) == sum(a * v) - za * sum(v)   with v = w - zw, and padding being za

Where the weights are constant, v and ``sum(v)`` are computed now. The loops then multiply integers
as narrow as they were, and what the zero points add is one number for each output channel. In
integers that wrap, both sides are the same; in kernels, sums that wrap are warned of.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ..ir import windows
from ..ir.checks import Array, limits
from .operands import CallOperands, ChannelParam

_DTYPES = ("int8", "int16", "int32")
_EXACT = ((np.float32, 24), (np.float64, 53))


def exact(a: Array, b: Array, terms: int) -> tuple[Array, Array]:
    """Bring integers to the fastest dtype in which sums of so many of their products are exact.

    A float with a significand of p bits holds every integer up to 2**p, so a sum of k products of
    which each is at most ``2**p / k`` is exact, in any order of adding. Sums in int64 wrap.
    """
    largest = terms
    for x in (a, b):  # as Python ints, which cannot overflow
        largest *= max(int(x.max()), -int(x.min())) if x.size else 0
    kind = next((kind for kind, bits in _EXACT if largest <= 1 << bits), np.int64)
    return a.astype(kind), b.astype(kind)


def sum_parts(rows: Array) -> tuple[Array, Array]:
    """Sum the positive and the negative weights of each row (less their zero points), int64."""
    above = np.maximum(rows, 0).sum(1)
    return above, rows.sum(1) - above


def sum_range(parts: tuple[Array, Array], low: int, high: int) -> tuple[Array, Array]:
    """Bound sums of products with data that lie between two integers: least and largest."""
    above, below = parts
    return above * low + below * high, above * high + below * low


@dataclass(frozen=True)
class ZeroPointCorrection:
    """The factors of a product with constant weights, less their zero points."""

    weight: Array
    zero: int
    extra: Array

    @classmethod
    def of(cls, given: CallOperands, kernel: Array | None) -> ZeroPointCorrection | None:
        """Take a call's constants apart; None where not all of them are constants."""
        data, weight, zero_name, kernel_zero_name = given.names[:4]
        channels = None if kernel is None else len(kernel)
        given.check_scales(kernel_scale=channels)
        names = zero_name, kernel_zero_name
        if kernel is None or any(given.array(name) is None for name in names):
            return None
        dtype, kind = given.dtype(data), given.attributes["out_dtype"]
        zero = given.zero_point(zero_name, dtype)
        kernel_zero = given.zero_point(kernel_zero_name, given.dtype(weight), channels)
        whole = kernel.astype(np.int64) - kernel_zero.reshape(-1, *[1] * (kernel.ndim - 1))
        parts = sum_parts(whole.reshape(len(kernel), -1))
        least, most = limits(kind)
        low, high = sum_range(parts, *(end - int(zero) for end in limits(dtype)))
        if low.min(initial=0) < least or high.max(initial=0) > most:
            largest = max(-int(low.min()), int(high.max()))
            warnings.warn(
                f"{given.name} with weights of shape {kernel.shape} can overflow: {dtype} data "
                f"with zero point {int(zero)} make sums of up to {largest}, and {kind} "
                f"holds {most}",
                stacklevel=2,
            )
        least, most = int(whole.min(initial=0)), int(whole.max(initial=0))
        narrow = next(d for d in _DTYPES if limits(d)[0] <= least and most <= limits(d)[1])
        kind = "int64" if kind == "int64" else "int32"
        return cls(whole.astype(narrow), int(zero), (-zero * sum(parts)).astype(kind))

    def row(self) -> ChannelParam:
        """Return `extra` as what a kernel reads."""
        return ChannelParam(self.extra, dtype=str(self.extra.dtype))


class ConvWeights:
    """Weights in any layout, of any groups, less their zero points, as a kernel reads them."""

    def __init__(self, given: CallOperands, inputs: Any, made: int) -> None:
        a, weight = given.attributes, given.names[1]
        self._layout, self._turned = a["kernel_layout"], given.name.endswith("transpose")
        sizes = dict(zip(self._layout, given.shape(weight), strict=True))
        self._sizes, self._groups = sizes, a["groups"]
        self._deep = not self._turned and windows.depthwise(inputs, sizes["O"], self._groups)
        self.kind = "int64" if a["out_dtype"] == "int64" else "int32"
        self.each, self.taps = made // self._groups, [sizes["H"], sizes["W"]]
        self.inner = 1 if self._deep else sizes["I"]
        if self._turned:
            self.inner = sizes["I"] // self._groups
        kernel = given.array(weight)
        plain = None if kernel is None else self._plain(kernel)
        self.correction = ZeroPointCorrection.of(given, plain)
        if self.correction is None:
            self.operand = given[weight]
            self._zero = given.zero_row("kernel_zero_point", given.dtype(weight), made)
            self.rows = [self._zero]
            return
        # The inputs go last where those of the data do.
        self._layout = "OHWI" if a["data_layout"].endswith("C") else "OIHW"
        order = ["OIHW".index(letter) for letter in self._layout]
        kept = np.ascontiguousarray(self.correction.weight.transpose(order))
        self.operand, self.rows = relax.const(kept, str(kept.dtype)), []

    def _plain(self, kernel: Array) -> Array:
        """Bring constant weights to ``[outputs, inputs of a group, kh, kw]``."""
        plain = kernel.transpose([self._layout.index(letter) for letter in "OIHW"])
        if self._turned:
            whole = plain.reshape(len(plain), self._groups, self.inner, *plain.shape[2:])
            return whole.swapaxes(0, 1).reshape(-1, self.inner, *plain.shape[2:])
        return plain.reshape(-1, 1, *plain.shape[2:]) if self._deep else plain

    def read(self, weight: te.Tensor, o: Any, i: Any, y: Any, x: Any) -> tirx.PrimExpr:
        """Return the weight of an output channel, an input of its group and a place."""
        at = {"O": o, "I": i, "H": y, "W": x}
        if self.correction is None and self._turned:
            at |= {"O": o % self.each, "I": o // self.each * self.inner + i}
        elif self.correction is None and self._deep:
            at |= {"O": o // self._sizes["I"], "I": o % self._sizes["I"]}
        found = weight(*(at[letter] for letter in self._layout)).astype(self.kind)
        if self.correction is not None:
            return found
        return found - self._zero.read(o).astype(self.kind)
