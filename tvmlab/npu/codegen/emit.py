"""The instructions of one layer: load, compute, requantize and store each tile."""

from __future__ import annotations

from .. import isa, layers
from ..layers import Layer
from .memory import LayerPlan
from .tiles import Box, Image, Span, Tables, Target, TileEmitter, View

__all__ = ["emit"]

_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1


def emit(target: Target, number: int, layer: Layer, plan: LayerPlan, images: list[Image]) -> None:
    """Append the instructions of any layer but a view; `images` are its inputs and its result."""
    tiles = TileEmitter(target, number, layer, plan, images)
    match layer:
        case layers.Convolution():
            _convolution(tiles, layer)
        case layers.Add():
            _add(tiles, layer)
        case layers.Pool():
            _pool(tiles, layer)
        case layers.Mean():
            _mean(tiles, layer)


def _convolution(tiles: TileEmitter, layer: layers.Convolution) -> None:
    """Convolve on the array, or each channel by itself on the vector unit."""
    shape = tiles.shape
    for image, box in tiles.tiles():
        tables = tiles.lookup(layer.rescale, layer.bias, box)
        sums = tiles.sums.take()
        down, across = tiles.needed(box)
        rows = Box(down.first, across.first, box.c, down.size, across.size, box.channels)
        if layer.depthwise:
            view = tiles.image(0, image, rows)
            fields = _window(tiles, layer, view, rows, (down, across), tables.weights, box, sums)
            kind = isa.Dtype[layer.weights.dtype.name]
            tiles.emit(isa.Depthwise, *fields, tables.bias, kind)
        elif shape.folded:
            # A pixel is what a line of the window sees: its taps are channels.
            stride, taps = shape.strides[1], shape.kernel[1]
            first, cols = box.x * stride - shape.pads[1], (box.cols - 1) * stride + taps
            seen = Box(down.first, first, 0, down.size, cols, shape.in_channels)
            view = tiles.folded(image, seen, layer.pad_value)
            view = view._replace(pixel=stride * view.pixel)
            part = seen._replace(cols=box.cols, channels=taps * shape.in_channels)
            spans = down, Span(0, box.cols, 0)
            fields = _window(tiles, layer, view, part, spans, tables.weights, box, sums)
            tiles.emit(isa.Matmul, *fields, tables.bias)
        else:
            for i, (first, depth) in enumerate(tiles.steps):
                part = rows._replace(c=first, channels=depth)
                view, weights = tiles.image(0, image, part), tiles.weights_at(i, box, tables)
                fields = _window(tiles, layer, view, part, (down, across), weights, box, sums)
                tiles.emit(isa.Matmul, *fields, -1 if i else tables.bias)
        ends = layer.sum_low, layer.sum_high
        _requantize(tiles, layer.rescale, image, box, sums, tables, ends)


def _window(
    tiles: TileEmitter,
    layer: layers.Convolution,
    view: View,
    part: Box,
    spans: tuple[Span, Span],
    weights: int,
    box: Box,
    sums: int,
) -> tuple[int, ...]:
    """Return the fields of a convolution, all but the bias."""
    shape = tiles.shape
    kernel, strides = shape.kernel, shape.strides
    if shape.folded:
        kernel, strides = (kernel[0], 1), (strides[0], 1)
    data = (*view, tiles.images[0].dtype, part.rows, part.cols, part.channels)
    pads = spans[0].pad, spans[1].pad, layer.pad_value
    window = (*kernel, *strides, *shape.dilation)
    return (*data, *pads, weights, *window, box.rows, box.cols, box.channels, sums)


def _requantize(
    tiles: TileEmitter,
    rescale: layers.Rescale,
    image: int,
    box: Box,
    sums: int,
    tables: Tables,
    ends: tuple[int, int] = (_LOWEST, _HIGHEST),
) -> None:
    """Bring sums to the result's scale, and store them."""
    view, shared = tiles.result(image, box), rescale.multipliers.size <= 1
    how = rescale.rounding, tables.multipliers, tables.shifts, int(not shared)
    clip = rescale.zero_point, rescale.low, rescale.high
    size = box.rows, box.cols, box.channels
    tiles.emit(isa.Requantize, sums, *size, *ends, *how, *clip, *view, tiles.out.dtype)
    tiles.store(image, box, view)


def _add(tiles: TileEmitter, layer: layers.Add) -> None:
    """Add two values, or rescale one."""
    for image, box in tiles.tiles():
        sides: list[int] = []
        for i, (side, source) in enumerate(zip(layer.sides, tiles.images, strict=True)):
            sides += [*tiles.image(i, image, box), source.dtype, *side]
        if len(layer.sides) == 1:
            sides += [-1, 0, 0, *sides[3:]]
        view = tiles.result(image, box)
        scale = layer.out.rounding, layer.out.multiplier, layer.out.shift, layer.out.zero
        clip, size = (layer.low, layer.high), (box.rows, box.cols, box.channels)
        last = (layer.left_shift, *scale, *clip, *view, tiles.out.dtype)
        tiles.emit(isa.Add, *size, *sides, *last)
        tiles.store(image, box, view)


def _pool(tiles: TileEmitter, layer: layers.Pool) -> None:
    """Pool windows."""
    for image, box in tiles.tiles():
        down, across = tiles.needed(box)
        part = Box(down.first, across.first, box.c, down.size, across.size, box.channels)
        source, view = tiles.image(0, image, part), tiles.result(image, box)
        below = tiles.shape.in_size[0] + layer.pads[2] - part.y - part.rows
        beside = tiles.shape.in_size[1] + layer.pads[3] - part.x - part.cols
        data = (*source, tiles.images[0].dtype, part.rows, part.cols, part.channels)
        window = (*layer.kernel, *layer.strides, *layer.dilation)
        pads = down.pad, across.pad, below, beside, int(layer.count_pad)
        scale = layer.in_zero, layer.out_zero, layer.multiplier, layer.shift
        out = (box.rows, box.cols, *view)
        tiles.emit(isa.Pool, layer.kind, *data, *window, *pads, *scale, *out)
        tiles.store(image, box, view)


def _mean(tiles: TileEmitter, layer: layers.Mean) -> None:
    """Sum each channel of each image, and rescale the sums."""
    sums, end = 0, (tiles.shape.in_size[0], tiles.shape.in_size[1])
    for image, box in tiles.tiles():
        first = (box.y, box.x) == (0, 0)
        sums = tiles.sums.take() if first else sums
        data = (*tiles.image(0, image, box), tiles.images[0].dtype, *box[3:])
        tiles.emit(isa.Sum, *data, layer.low, layer.start, int(not first), sums)
        if (box.y + box.rows, box.x + box.cols) == end:
            pixel = Box(0, 0, box.c, 1, 1, box.channels)
            tables = tiles.lookup(layer.rescale, None, pixel)
            _requantize(tiles, layer.rescale, image, pixel, sums, tables)
