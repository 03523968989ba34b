"""Transposed convolutions as convolutions of fewer taps, whose results are interleaved.

With a stride of s, output pixels whose places are equal modulo s, a phase, are an ordinary
convolution of the input with every s-th tap of the filter. One convolution computes all phases as
its channels. Shi et al., "Is the deconvolution layer the same as a convolutional layer?" (2016),
call it the sub-pixel convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from .compute import sizes

__all__ = ["Phases", "by_phases"]


@dataclass(frozen=True)
class Phases:
    """A transposed convolution of an NHWC image as a convolution, and how its results are placed.

    `before` and `after` are its padding; `cropped` are rows and columns that are left out.
    """

    filters: NDArray[Any]
    before: list[int]
    after: list[int]
    size: list[int]  # of the convolution's result
    steps: list[int]
    cropped: list[int]
    made: list[Any]
    groups: int

    @classmethod
    def of(
        cls, filters: NDArray[Any], attrs: Any, shape: list[Any], made: list[Any]
    ) -> Phases | None:
        """Plan for weights in IOHW; None if there is dilation, or a size is not known."""
        steps, dilation = sizes(attrs.strides), sizes(attrs.dilation)
        if {*dilation} != {1} or not all(isinstance(n, int) for n in shape[1:]):
            return None
        padding, groups = sizes(attrs.padding), int(attrs.groups)
        taps = [-(-size // step) for size, step in zip(filters.shape[2:], steps, strict=True)]
        # The convolution computes no rows that would be cropped, and as many as are needed.
        skipped = [min(p // s, t - 1) for p, s, t in zip(padding, steps, taps, strict=False)]
        cropped = [p - k * s for p, k, s in zip(padding, skipped, steps, strict=False)]
        whole = [-(-(n + p) // s) for n, p, s in zip(made[1:3], padding, steps, strict=False)]
        before = [t - 1 - k for t, k in zip(taps, skipped, strict=True)]
        after = [max(0, n - size) for n, size in zip(whole, shape[1:3], strict=True)]
        phases = _phases(filters, steps, taps, groups)
        sums = zip(shape[1:3], before, after, taps, strict=True)
        size = [n + first + last - t + 1 for n, first, last, t in sums]
        return cls(phases, before, after, size, steps, cropped, made, groups)

    def placed(self, y: relax.Expr, emit: Callable[[relax.Expr], relax.Expr]) -> relax.Expr:
        """Interleave the phases in the channels of the convolution's result."""
        batch, (rows, columns) = self.made[0], self.size
        whole = [rows * self.steps[0], columns * self.steps[1]]
        if {*self.steps} != {1}:
            apart = [batch, rows, columns, self.groups, *self.steps, self.made[3] // self.groups]
            # With a `ShapeExpr`, `reshape` does not need the type of `y`.
            y = emit(op.reshape(y, relax.ShapeExpr(apart)))
            y = emit(op.permute_dims(y, [0, 1, 4, 2, 5, 3, 6]))
            y = emit(op.reshape(y, relax.ShapeExpr([batch, *whole, self.made[3]])))
        if whole == [*self.made[1:3]]:
            return y
        pairs = zip(self.cropped, self.made[1:3], strict=True)
        ends = [start + size for start, size in pairs]
        return op.strided_slice(y, [1, 2], self.cropped, ends)


def by_phases(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr | None:
    """Rewrite ``nn.conv2d_transpose`` in NHWC with constant weights; None for another call."""
    attrs, (data, weight) = call.attrs, call.args
    if not isinstance(weight, tvm.ir.GenericConst) or str(attrs.kernel_layout) != "IOHW":
        return None
    shape, made = sizes(data.ty.shape), sizes(call.ty.shape)
    plan = Phases.of(weight.value.numpy(), attrs, shape, made)
    if plan is None:
        return None
    phases = relax.const(plan.filters, str(weight.ty.dtype))
    how = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": attrs.out_dtype}
    pads, emit = [*plan.before, *plan.after], builder.emit
    y = emit(op.nn.conv2d(data, phases, (1, 1), pads, (1, 1), plan.groups, **how))
    return plan.placed(y, emit)


def _phases(filters: NDArray[Any], steps: list[int], taps: list[int], groups: int) -> NDArray[Any]:
    """Return the filters of all phases in OHWI; the last taps of some are zero."""
    inputs, outputs, *size = filters.shape
    extra = [(0, n * step - k) for n, step, k in zip(taps, steps, size, strict=True)]
    wide = np.pad(filters, [(0, 0), (0, 0), *extra])
    (down, across), (tall, long) = steps, taps
    parts = wide.reshape(groups, inputs // groups, outputs, tall, down, long, across)
    # A later tap belongs to an earlier input.
    parts = parts[:, :, :, ::-1, :, ::-1].transpose(0, 4, 6, 2, 3, 5, 1)
    return np.ascontiguousarray(parts.reshape(-1, tall, long, inputs // groups))
