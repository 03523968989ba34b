"""Names of ``relay.op`` that no row of the operator table defines."""

from __future__ import annotations

from typing import Any

from tvm import relax

from ..errors import RelayError
from . import op
from .expr import as_expr
from .fake_quantization import register as register_fake_quantization_to_integer

__all__ = ["nn_depth_to_space", "register_fake_quantization_to_integer"]


def nn_depth_to_space(
    data: Any, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> relax.Expr:
    """Move groups of channels into blocks of the image.

    The number of a channel is ``place * outer + channel`` in mode ``"DCR"`` and ``channel * places
    + place`` in mode ``"CRD"``. As in Relay, channels beyond a whole number of groups are dropped.
    """
    data, size, last = as_expr(data), block_size, layout == "NHWC"
    if layout not in ("NCHW", "NHWC") or mode not in ("DCR", "CRD"):
        what = f"there is no layout {layout!r} with mode {mode!r}"
        raise RelayError(
            what, where="nn.depth_to_space", fix='use "NCHW" or "NHWC", "DCR" or "CRD"'
        )
    data = op.transpose(data, [0, 3, 1, 2]) if last else data
    n, channels, height, width = (int(one) for one in data.ty.shape)
    outer = channels // size**2
    data = op.strided_slice(data, [0], [outer * size**2], axes=[1])
    inner, order = [size, size, outer], [0, 3, 4, 1, 5, 2]
    if mode == "CRD" or not outer:  # a size of 0 keeps the size of its axis, which is 0
        inner, order = [outer, size, size], [0, 1, 4, 2, 5, 3]
    split = op.transpose(op.reshape(data, [n, *inner, height, width]), order)
    made = op.reshape(split, [n, outer, height * size, width * size])
    return op.transpose(made, [0, 2, 3, 1]) if last else made
