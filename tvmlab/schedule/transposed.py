"""Transposed convolutions as convolutions of fewer taps, whose results are interleaved.

With a stride of s, output pixels whose places are equal modulo s, a phase, are an ordinary
convolution of the input with every s-th tap of the filter. One convolution computes all phases as
its channels. Shi et al., "Is the deconvolution layer the same as a convolutional layer?" (2016),
call it the sub-pixel convolution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from .compute import sizes

__all__ = ["by_phases"]


def by_phases(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr | None:
    """Rewrite ``nn.conv2d_transpose`` in NHWC with constant weights; None for another call."""
    attrs, (data, weight) = call.attrs, call.args
    steps, dilation, padding = (sizes(x) for x in (attrs.strides, attrs.dilation, attrs.padding))
    shape, made = sizes(data.ty.shape), sizes(call.ty.shape)
    constant = isinstance(weight, tvm.ir.GenericConst) and str(attrs.kernel_layout) == "IOHW"
    if not constant or {*dilation} != {1} or not all(isinstance(n, int) for n in shape[1:]):
        return None
    filters, groups = weight.value.numpy(), int(attrs.groups)
    taps = [-(-size // step) for size, step in zip(filters.shape[2:], steps, strict=True)]
    # The convolution computes no rows that would be cropped, and as many as are needed.
    skipped = [min(p // s, t - 1) for p, s, t in zip(padding, steps, taps, strict=False)]
    cropped = [p - k * s for p, k, s in zip(padding, skipped, steps, strict=False)]
    whole = [-(-(n + p) // s) for n, p, s in zip(made[1:3], padding, steps, strict=False)]
    before = [t - 1 - k for t, k in zip(taps, skipped, strict=True)]
    after = [max(0, n - size) for n, size in zip(whole, shape[1:3], strict=True)]
    phases = relax.const(_phases(filters, steps, taps, groups), str(weight.ty.dtype))
    how = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": attrs.out_dtype}
    emit = builder.emit
    y = emit(op.nn.conv2d(data, phases, (1, 1), [*before, *after], (1, 1), groups, **how))
    batch, rows, columns, _ = sizes(y.ty.shape)
    if {*steps} != {1}:
        y = emit(op.reshape(y, [batch, rows, columns, groups, *steps, -1]))
        y = emit(op.permute_dims(y, [0, 1, 4, 2, 5, 3, 6]))
        y = emit(op.reshape(y, [batch, rows * steps[0], columns * steps[1], made[3]]))
    if [*sizes(y.ty.shape)] == [*made]:
        return y
    ends = [start + size for start, size in zip(cropped, made[1:3], strict=True)]
    return op.strided_slice(y, [1, 2], cropped, ends)


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
