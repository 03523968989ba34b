"""Convolutions and matrix products as one loop nest over packed weights, in TE.

Both are the same sum: pixels (rows of a matrix) times output channels (columns), over taps and
input channels. The weights are packed as ``[group, blocks, *taps, inputs, channels of a tile]``, so
that the innermost loops read them in order, a vector at a time (Georganas et al., "Anatomy of
High-Performance Deep Learning Convolutions on SIMD Architectures", 2018). Sizes that the tile does
not divide are padded, and cropped when the result is written; only the rows of a matrix are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import sym, te, tirx

from .machine import Dot
from .tile_size import OPERATOR, Tile

#: Names of the blocks that the rules look for, and the annotation that says how to tile them.
CONTRACTION, DEPTHWISE, TILE = "contraction", "depthwise", "tvmlab.tile"
#: The annotation that names the TensorIntrin of a contraction's innermost loops.
DOT = "tvmlab.dot"
#: Names of the blocks that make a copy for the tiles to read: of the data, of the weights.
PAD, PACK = "pad", "pack"


def round_up(size: Any, step: int) -> Any:
    """Round a size, known or symbolic, up to a multiple of `step`."""
    if step == 1:
        return size
    return -(-size // step) * step if isinstance(size, int) else tirx.ceildiv(size, step) * step


def sizes(shape: Sequence[Any]) -> list[Any]:
    """Convert a shape: int for a known size, else its expression."""
    return [int(size) if isinstance(size, int | tirx.IntImm) else size for size in shape]


def by(shape: Sequence[Any]) -> str:
    """Format a shape for the name of an operator."""
    return "x".join(str(size) for size in sizes(shape))


def broadcast_index(
    index: Sequence[Any], shape: Sequence[Any], whole: Sequence[Any] | None = None
) -> list[Any]:
    """Index a tensor of this shape at a position of the shape that it is broadcast to."""
    start = len(index) - len(shape)
    alike = [None] * len(shape) if whole is None else whole[start:]
    return [
        0 if size == 1 and size != other else i
        for size, i, other in zip(shape, index[start:], alike, strict=True)
    ]


def raveled(index: Sequence[Any], shape: Sequence[Any]) -> Any:
    """Return the position of an index if all axes are joined to one."""
    place = index[0]
    for i, size in zip(index[1:], shape[1:], strict=False):
        place = place * size + i
    return place


def unraveled(place: Any, shape: Sequence[Any]) -> list[Any]:
    """Return the index of a position if all axes are joined to one."""
    index: list[Any] = []
    for size in reversed(shape[1:]):
        index, place = [place % size, *index], place // size
    return [place, *index]


class Window:
    """The access pattern of a convolution: taps, strides, dilation and padding before each axis."""

    def __init__(self, taps: Any, strides: Any, padding: Any, dilation: Any) -> None:
        self.taps, self.strides = sizes(taps), sizes(strides)
        self.before, self.dilation = sizes(padding)[: len(taps)], sizes(dilation)

    def __str__(self) -> str:
        """Format the window for the name of an operator."""
        return f"strides {by(self.strides)}, from {by(self.before)}, dilation {by(self.dilation)}"

    def pad(
        self, data: te.Tensor, pixels: Sequence[int], channels: Any, fill: int = 0
    ) -> te.Tensor:
        """Pad a tensor whose last axis is channels so that every tap of an output falls inside."""
        after = []
        for axis, many in enumerate(pixels):
            reach = (many - 1) * self.strides[axis] + (self.taps[axis] - 1) * self.dilation[axis]
            size = sizes(data.shape)[axis + 1]
            after.append(max(0, reach + 1 - size - self.before[axis]))
        extra = channels - sizes(data.shape)[-1]
        return padded(data, [0, *self.before, 0], [0, *after, extra], fill=fill)

    def gather(
        self, data: te.Tensor, pixels: Sequence[int], channels: Any = None, fill: int = 0
    ) -> te.Tensor:
        """Copy the pixels that a strided one-tap convolution reads into a contiguous tensor."""
        height, width = pixels
        (n, h, w, c), (sy, sx), (top, left) = sizes(data.shape), self.strides, self.before
        more = channels is not None and channels > c

        def value(b: Any, y: Any, x: Any, i: Any) -> Any:
            y, x = y * sy - top, x * sx - left
            inside = [index >= 0 for index, before in ((y, top), (x, left)) if before]
            inside += [y < h] if (height - 1) * sy - top >= h else []
            inside += [x < w] if (width - 1) * sx - left >= w else []
            inside += [i < c] if more else []
            if not inside:
                return data[b, y, x, i]
            other = tirx.const(fill, data.dtype)
            return tirx.if_then_else(tirx.all(*inside), data[b, y, x, i], other)

        return te.compute((n, height, width, channels if more else c), value, name="gather")

    def at(self, pixel: Sequence[Any], tap: Sequence[Any]) -> tuple[Any, ...]:
        """Return the padded pixel that a tap of an output pixel reads."""
        axes = zip(pixel, tap, self.strides, self.dilation, strict=True)
        return tuple(i * stride + k * dilation for i, k, stride, dilation in axes)


def padded(
    data: te.Tensor, before: Sequence[int], after: Sequence[Any], name: str = PAD, fill: int = 0
) -> te.Tensor:
    """Pad a tensor with one number; return the tensor itself if all widths are zero."""
    none = [not b and isinstance(a, int) and a == 0 for b, a in zip(before, after, strict=True)]
    if all(none):
        return data
    old = sizes(data.shape)
    new = [size if none[i] else before[i] + size + after[i] for i, size in enumerate(old)]

    def value(*index: Any) -> Any:
        inside = []
        for axis, i in enumerate(index):
            if before[axis]:
                inside.append(i >= before[axis])
            if not none[axis]:
                inside.append(i < before[axis] + old[axis])
        source = [i if none[axis] else i - before[axis] for axis, i in enumerate(index)]
        return tirx.if_then_else(tirx.all(*inside), data(*source), tirx.const(fill, data.dtype))

    return te.compute(new, value, name=name)


def packed_shape(weight: Sequence[int], groups: int, tile: int) -> tuple[int, ...]:
    """Return the shape of packed weights."""
    outputs, *taps, inputs = weight
    return (groups, -(-outputs // groups // tile), *taps, inputs, tile)


def contraction(
    data: te.Tensor,
    weight: Callable[..., Any],
    *,
    read: Callable[..., Any],
    pixels: Sequence[Any],
    taps: Sequence[int],
    inputs: int,
    channels: int,
    tile: Tile,
    dtype: str,
    operator: str,
    dot: Dot | None = None,
) -> te.Tensor:
    """Sum over taps and inputs, padded to whole tiles."""
    *outer, height, width = pixels
    shape = [*outer, round_up(height, tile.rows), round_up(width, tile.columns)]
    # The lines of a matrix, which is not padded; -1 if their number is known only at run time.
    lines = 0 if taps else height if isinstance(height, int) else -1
    if lines < 0:
        # `tails` reads the number from the data's shape.
        given = data.shape[-2] if outer else math.prod(data.shape[:-1])
        if not sym.Analyzer().can_prove_equal(given, height):
            raise ValueError(f"{given} lines of data for {height} lines of sums")
    k = [te.reduce_axis((0, tap), f"k{n}") for n, tap in enumerate(taps)]
    if dot is None:
        ki = [te.reduce_axis((0, inputs), "ki")]
        place: Any = ki[0]
    else:
        steps = -(-inputs // dot.depth)
        ki = [te.reduce_axis((0, steps), "ki"), te.reduce_axis((0, dot.depth), "kj")]
        place = ki[0] * dot.depth + ki[1]

    def value(*index: Any) -> Any:
        *o, y, x, c = index
        product = data(*read(o, y, x, *k, place)).astype(dtype)
        product *= weight(o, c, *k, *ki).astype(dtype)
        return te.sum(product, axis=[*k, *ki])

    attrs: dict[str, Any] = {
        TILE: [tile.rows, tile.columns, tile.channels, lines],
        OPERATOR: operator,
    }
    return te.compute(
        [*shape, round_up(channels, tile.channels)],
        value,
        name=CONTRACTION,
        attrs=attrs | ({DOT: dot.name} if dot else {}),
    )


def depthwise(
    data: te.Tensor,
    weight: te.Tensor,
    window: Window,
    shape: Sequence[Any],
    columns: int,
    step: int,
    dtype: str,
) -> te.Tensor:
    """Convolve each channel with its own filter."""
    n, height, width, channels = shape
    wide, deep = round_up(width, columns), round_up(channels, step)
    source = window.pad(data, (height, wide), deep)
    ky, kx = (te.reduce_axis((0, tap), name) for tap, name in zip(window.taps, "yx", strict=True))

    def value(b: Any, y: Any, x: Any, c: Any) -> Any:
        number = source(b, *window.at((y, x), (ky, kx)), c).astype(dtype)
        return te.sum(number * weight(ky, kx, c).astype(dtype), axis=[ky, kx])

    sums = te.compute(
        (n, height, wide, deep),
        value,
        name=DEPTHWISE,
        attrs={TILE: [1, columns, step]},
    )
    return te.compute(shape, lambda *index: sums(*index), name="crop")
