"""Put the channels of volumes last, and compute sequences as images with a single line."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from .compute import sizes

__all__ = ["with_channels_last"]

_LAYOUTS = {
    "relax.nn.conv1d": ("NCW", "OIW"),
    "relax.nn.conv1d_transpose": ("NCW", "IOW"),
    "relax.nn.conv3d": ("NCDHW", "OIDHW"),
}
# Channels of a group that do not fill a vector.
_FEW = 8


def with_channels_last(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
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
    if not all(isinstance(n, int) and n for n in (*shape, *result)):
        return call
    if name == "relax.nn.conv3d" and groups > 1 and result[1] // groups < _FEW:
        return call  # the vectors of channels would be mostly padding
    filters = weight.value.numpy()
    steps, dilation, pads = (sizes(x) for x in (attrs.strides, attrs.dilation, attrs.padding))
    x = builder.emit(op.permute_dims(data, [0, *range(2, rank), 1]))
    if name == "relax.nn.conv3d":
        last = np.ascontiguousarray(np.moveaxis(filters, 1, -1))
        made = op.nn.conv3d(
            x,
            relax.const(last, weight.ty.dtype),
            steps,
            pads,
            dilation,
            groups,
            data_layout="NDHWC",
            kernel_layout="ODHWI",
            out_dtype=attrs.out_dtype,
        )
    else:
        line = builder.emit(op.reshape(x, [shape[0], 1, *shape[2:], shape[1]]))
        before, after = pads
        window = [1, *steps], [0, before, 0, after]
        if name == "relax.nn.conv1d":
            last = np.ascontiguousarray(np.moveaxis(filters[:, :, None], 1, -1))
            made = op.nn.conv2d(
                line,
                relax.const(last, weight.ty.dtype),
                *window,
                [1, *dilation],
                groups,
                data_layout="NHWC",
                kernel_layout="OHWI",
                out_dtype=attrs.out_dtype,
            )
        else:
            made = op.nn.conv2d_transpose(
                line,
                relax.const(filters[:, :, None], weight.ty.dtype),
                *window,
                [0, *sizes(attrs.output_padding)],
                [1, *dilation],
                groups,
                data_layout="NHWC",
                kernel_layout="IOHW",
                out_dtype=attrs.out_dtype,
            )
        made = op.reshape(builder.emit(made), [result[0], *result[2:], result[1]])
    return op.permute_dims(builder.emit(made), [0, rank - 1, *range(1, rank - 1)])
