"""Convolutions and matrix products as one loop nest over packed weights, in TE.

Both are the same sum: pixels (rows of a matrix) times channels (columns) over taps and input
channels. The weights are packed as ``[group, channels / tile, *taps, inputs, tile]``, so that the
innermost loop reads them in order and one vector at a time: once, at compile time, where they are
constant. Sizes that the tile does not divide are padded, and cropped when the result is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax import BlockBuilder

from .machine import Machine
from .tile import Tile

__all__ = ["legalize_conv2d", "legalize_matmul"]


def _ceil(size: Any, tile: int) -> Any:
    """Round up to a multiple."""
    if tile == 1:
        return size
    if isinstance(size, int):
        return -(-size // tile) * tile
    return tirx.ceildiv(size, tile) * tile


def _ints(values: Any) -> list[Any]:
    """Read a shape: int where it is known, else the symbolic size."""
    return [int(v) if isinstance(v, int | tirx.IntImm) else v for v in values]


def _padded(data: te.Tensor, before: Sequence[int], after: Sequence[Any], name: str) -> te.Tensor:
    """Add zeros around; the tensor itself where there are none to add."""
    if not any(before) and all(isinstance(a, int) and a == 0 for a in after):
        return data
    shape = [b + s + a for b, s, a in zip(before, _ints(data.shape), after, strict=True)]

    def value(*index: Any) -> Any:
        inside = []
        for i, b, s, a in zip(index, before, _ints(data.shape), after, strict=True):
            if b:
                inside.append(i >= b)
            if b or not (isinstance(a, int) and a == 0):
                inside.append(i < b + s)
        moved = [i - b if b else i for i, b in zip(index, before, strict=True)]
        if not inside:
            return data(*moved)
        zero = tirx.const(0, data.dtype)
        return tirx.if_then_else(tirx.all(*inside), data(*moved), zero)

    return te.compute(shape, value, name=name)


def legalize_conv2d(machine: Machine, pack: bool) -> Any:
    """Make a legalization of ``relax.nn.conv2d`` in NHWC with OHWI weights.

    Parameters
    ----------
    machine : Machine
        What to tile for.
    pack : bool
        Whether constant weights are packed now; else they are read as they are.

    Returns
    -------
    callable
        For `LegalizeOps`: it takes a block builder and a call, and returns the new call, or the
        old one where the layout is another.
    """

    def legalize(builder: BlockBuilder, call: relax.Call) -> relax.Expr:
        attrs = call.attrs
        data, weight = call.args
        layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
        if layouts[:2] != ("NHWC", "OHWI") or layouts[2] not in ("", "NHWC"):
            return tvm.ir.Op.get("relax.nn.conv2d").get_attr("FLegalize")(builder, call)
        groups = int(attrs.groups)
        out, taps, inputs = _ints(weight.ty.shape)[0], _ints(weight.ty.shape)[1:3], None
        inputs = _ints(weight.ty.shape)[3]
        if inputs == 1 and out == groups and groups > 1:
            return depthwise(builder, call, machine)
        size = _ints(call.ty.shape)
        dtype = str(call.ty.dtype)
        tile = Tile.choose(size[1], size[2], out // groups, dtype, machine)
        weight = _pack(builder, weight, groups, tile.channels) if pack else weight

        def conv2d(x: te.Tensor, w: te.Tensor) -> te.Tensor:
            return _conv2d(x, w, size, taps, inputs, groups, attrs, tile, dtype)

        return builder.call_te(conv2d, data, weight, primfunc_name_hint="conv2d")

    return legalize


def _conv2d(x, w, size, taps, inputs, groups, attrs, tile, dtype):  # type: ignore[no-untyped-def]
    n, height, width, out = size
    top, left, bottom, right = _ints(attrs.padding)
    (sy, sx), (dy, dx) = _ints(attrs.strides), _ints(attrs.dilation)
    rows, columns = _ceil(height, tile.rows), _ceil(width, tile.columns)
    per_group = out // groups
    channels = _ceil(per_group, tile.channels)
    _, h, wd, _ = _ints(x.shape)
    need_h = (rows - 1) * sy + (taps[0] - 1) * dy + 1
    need_w = (columns - 1) * sx + (taps[1] - 1) * dx + 1
    after_h, after_w = max(0, need_h - h - top), max(0, need_w - wd - left)
    p = _padded(x, [0, top, left, 0], [0, after_h, after_w, 0], "pad")
    ky, kx = te.reduce_axis((0, taps[0]), "ky"), te.reduce_axis((0, taps[1]), "kx")
    ki = te.reduce_axis((0, inputs), "ki")

    def weights(g, o):  # type: ignore[no-untyped-def]
        if len(w.shape) == 6:
            return w[g, o // tile.channels, ky, kx, ki, o % tile.channels]
        if channels == per_group:
            return w[g * per_group + o, ky, kx, ki]
        return tirx.if_then_else(o < per_group, w[g * per_group + o, ky, kx, ki], tirx.const(0, w.dtype))

    conv = te.compute(
        (n, groups, rows, columns, channels),
        lambda b, g, y, c, o: te.sum(
            p[b, y * sy + ky * dy, c * sx + kx * dx, g * inputs + ki].astype(dtype)
            * weights(g, o).astype(dtype),
            axis=[ky, kx, ki],
        ),
        name="contraction",
        attrs={"tvmlab.tile": [tile.rows, tile.columns, tile.channels]},
    )
    return te.compute(
        (n, height, width, out),
        lambda b, y, c, o: conv[b, o // per_group, y, c, o % per_group],
        name="crop",
    )


def _pack(builder: BlockBuilder, weight: relax.Expr, groups: int, tile: int) -> relax.Expr:
    """Pack OHWI weights to [group, channels / tile, ky, kx, inputs, tile], zeros at the end."""
    if not isinstance(weight, tvm.ir.GenericConst):
        raise NotImplementedError
    array = weight.value.numpy()
    out, kh, kw, inputs = array.shape
    per_group = out // groups
    blocks = -(-per_group // tile)
    packed = np.zeros((groups, blocks * tile, kh, kw, inputs), array.dtype)
    packed[:, :per_group] = array.reshape(groups, per_group, kh, kw, inputs)
    packed = packed.reshape(groups, blocks, tile, kh, kw, inputs).transpose(0, 1, 3, 4, 5, 2)
    return relax.const(np.ascontiguousarray(packed), str(weight.ty.dtype))


def depthwise(builder, call, machine):
    return tvm.ir.Op.get("relax.nn.conv2d").get_attr("FLegalize")(builder, call)


def legalize_matmul(machine: Machine, pack: bool) -> Any:
    return None
