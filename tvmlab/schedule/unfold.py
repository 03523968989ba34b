"""Convolutions of volumes, and transposed ones of sequences, as convolutions of images.

A convolution of sequences is one of images with a single line. In a convolution of volumes, each
slice of the result is a convolution of as many slices of the data as the filter is deep: their
channels, side by side, are the channels of an image.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from .compute import sizes

__all__ = ["as_conv2d"]

_LAYOUTS = {
    "relax.nn.conv1d_transpose": ("NCW", "IOW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}


def as_conv2d(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    """Rewrite a convolution of `_LAYOUTS` with constant weights; return other calls."""
    name = getattr(call.op, "name", "")
    if name not in _LAYOUTS or not isinstance(call.args[1], tvm.ir.GenericConst):
        return call
    attrs, (data, weight) = call.attrs, call.args
    layouts = str(attrs.data_layout), str(attrs.kernel_layout)
    if layouts != _LAYOUTS[name] or str(attrs.out_layout) not in ("", layouts[0]):
        return call
    shape, result = sizes(data.ty.shape), sizes(call.ty.shape)
    rank, groups = len(shape), int(attrs.groups)
    if not all(isinstance(n, int) and n for n in (*shape, *result)) or (rank == 5 and groups > 1):
        return call
    filters = weight.value.numpy()
    steps, dilation, pads = (sizes(x) for x in (attrs.strides, attrs.dilation, attrs.padding))
    x = builder.emit(op.permute_dims(data, [0, *range(2, rank), 1]))
    if rank == 3:
        (before, after), filters = pads, filters[:, :, None]
        steps, dilation, pads = [1, *steps], [1, *dilation], [0, before, 0, after]
        x = builder.emit(op.reshape(x, [shape[0], 1, *shape[2:], shape[1]]))
    else:
        x = _slices(builder, x, filters.shape[2], result[2], steps[0], dilation[0], pads[::3])
        steps, dilation, pads = steps[1:], dilation[1:], [*pads[1:3], *pads[4:]]
        outputs, inputs, depth, *taps = filters.shape
        filters = np.moveaxis(filters, 1, 2).reshape(outputs, depth * inputs, *taps)
    if name == "relax.nn.conv1d_transpose":
        made = op.nn.conv2d_transpose(
            x,
            relax.const(filters, weight.ty.dtype),
            steps,
            pads,
            [0, *sizes(attrs.output_padding)],
            dilation,
            groups,
            data_layout="NHWC",
            kernel_layout="IOHW",
            out_dtype=attrs.out_dtype,
        )
    else:
        last = np.ascontiguousarray(np.moveaxis(filters, 1, -1))
        made = op.nn.conv2d(
            x,
            relax.const(last, weight.ty.dtype),
            steps,
            pads,
            dilation,
            groups,
            data_layout="NHWC",
            kernel_layout="OHWI",
            out_dtype=attrs.out_dtype,
        )
    made = builder.emit(op.reshape(builder.emit(made), [result[0], *result[2:], result[1]]))
    return op.permute_dims(made, [0, rank - 1, *range(1, rank - 1)])


def _slices(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    depth: int,
    many: int,
    step: int,
    dilation: int,
    pads: list[int],
) -> relax.Expr:
    """Return the slices that each slice of the result needs, as channels of images."""
    if any(pads):
        x = builder.emit(op.nn.pad(x, [0, 0, *pads, *[0] * 6], "constant", 0.0))
    parts: list[Any] = []
    for tap in range(depth):
        first = tap * dilation
        last = first + (many - 1) * step + 1
        parts.append(builder.emit(op.strided_slice(x, [1], [first], [last], [step])))
    batch, _, *pixels, channels = sizes(x.ty.shape)
    wide = builder.emit(op.concat(parts, 4)) if depth > 1 else parts[0]
    return builder.emit(op.reshape(wide, [batch * many, *pixels, depth * channels]))
