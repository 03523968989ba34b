"""The instructions of one layer: what is computed of each tile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .. import isa, layers
from ..layers import Layer
from .images import Box, Image, View
from .memory import Job
from .packing import Tables
from .tiles import Target, Tiles
from .windows import Span

__all__ = ["emit"]


def emit(target: Target, number: int, layer: Layer, job: Job, images: list[Image]) -> None:
    """Append the instructions of a layer.

    Parameters
    ----------
    target : Target
        Where they go.
    number : int
        The layer's number.
    layer : Layer
        Any but a view.
    job : Job
        How it is cut.
    images : list of Image
        Where its inputs and, last, its result lie.
    """
    tiles = Tiles(target, number, layer, job, images)
    match layer:
        case layers.Convolution():
            _convolution(tiles, layer)
        case layers.Add():
            _add(tiles, layer)
        case layers.Pool():
            _pool(tiles, layer)
        case layers.Mean():
            _mean(tiles, layer)


def _convolution(tiles: Tiles, layer: layers.Convolution) -> None:
    """Convolve: on the array, or each channel by itself on the vector unit."""
    for image, box in tiles.each():
        table, at = tiles.lookup(layer.rescale, layer.bias, box)
        sums = tiles.sums.turn()
        if layer.depthwise:
            down, across = tiles.spans(box)
            part = Box(down.first, across.first, box.c, down.size, across.size, box.channels)
            view = tiles.image(0, image, part)
            window = _window(
                tiles, layer, (down, across), part, view, at + table.weights, box, sums
            )
            weight = isa.Dtype[layer.weights.dtype.name]
            one = isa.Depthwise(tiles.number, bias=at + table.bias, weight_dtype=weight, **window)
            tiles.add_instruction(one)
        elif tiles.work.folded:
            _multiply_lines(tiles, layer, image, box, (table, at), sums)
        else:
            _multiply(tiles, layer, image, box, (table, at), sums)
        tiles.requantize(layer.rescale, image, box, sums, table, at, layer)


def _multiply(
    tiles: Tiles,
    layer: layers.Convolution,
    image: int,
    box: Box,
    found: tuple[Tables, int],
    sums: int,
) -> None:
    """Add up the products of all parts of the input channels."""
    (table, at), (down, across) = found, tiles.spans(box)
    each = tiles.images[0].dtype.bytes
    for i, (first, depth) in enumerate(tiles.steps):
        part = Box(down.first, across.first, first, down.size, across.size, depth)
        if tiles.cut.image_whole:
            whole = Box(part.y, part.x, 0, part.rows, part.cols, tiles.work.in_channels)
            view = tiles.image(0, image, whole)
            view = View(view.address + first * each, view.row, view.pixel)
        else:
            view = tiles.image(0, image, part)
        weights = tiles.weights_at(i, box, at + table.weights)
        window = _window(tiles, layer, (down, across), part, view, weights, box, sums)
        bias = -1 if i else at + table.bias
        tiles.add_instruction(isa.Matmul(tiles.number, bias=bias, **window))


def _multiply_lines(
    tiles: Tiles,
    layer: layers.Convolution,
    image: int,
    box: Box,
    found: tuple[Tables, int],
    sums: int,
) -> None:
    """Multiply with the taps of a line as channels: a pixel is what a line of the window sees."""
    (table, at), work, (down, _) = found, tiles.work, tiles.spans(box)
    stride, taps = work.strides[1], work.kernel[1]
    first, cols = box.x * stride - work.pads[1], (box.cols - 1) * stride + taps
    seen = Box(down.first, first, 0, down.size, cols, work.in_channels)
    view = tiles.folded(image, seen, layer.pad_value)
    part = replace(seen, x=0, cols=box.cols, channels=taps * work.in_channels)
    view = replace(view, pixel=stride * view.pixel)
    weights = tiles.weights_at(0, box, at + table.weights)
    window = _window(tiles, layer, (down, Span(0, box.cols, 0)), part, view, weights, box, sums)
    window |= {"kernel_w": 1, "stride_w": 1}
    tiles.add_instruction(isa.Matmul(tiles.number, bias=at + table.bias, **window))


def _window(
    tiles: Tiles,
    layer: layers.Convolution,
    spans: tuple[Span, Span],
    part: Box,
    view: View,
    weights: int,
    box: Box,
    sums: int,
) -> dict[str, int]:
    """Give the fields of a convolution, all but the bias."""
    work = tiles.work
    return {
        "address": view.address,
        "row_stride": view.row,
        "pixel_stride": view.pixel,
        "in_dtype": tiles.images[0].dtype,
        "in_rows": part.rows,
        "in_cols": part.cols,
        "channels": part.channels,
        "pad_top": spans[0].pad,
        "pad_left": spans[1].pad,
        "pad_value": layer.pad_value,
        "weights": weights,
        "kernel_h": work.kernel[0],
        "kernel_w": work.kernel[1],
        "stride_h": work.strides[0],
        "stride_w": work.strides[1],
        "dilation_h": work.dilation[0],
        "dilation_w": work.dilation[1],
        "out_rows": box.rows,
        "out_cols": box.cols,
        "out_channels": box.channels,
        "sums": sums,
    }


def _add(tiles: Tiles, layer: layers.Add) -> None:
    """Add two values, or rescale one."""
    for image, box in tiles.each():
        sides: dict[str, int] = {}
        for i, name in enumerate(("lhs", "rhs")):
            side = layer.sides[min(i, len(layer.sides) - 1)]
            view = View(-1, 0, 0) if i == len(layer.sides) else tiles.image(i, image, box)
            sides |= {
                f"{name}_address": view.address,
                f"{name}_row_stride": view.row,
                f"{name}_pixel_stride": view.pixel,
                f"{name}_dtype": tiles.images[min(i, len(tiles.images) - 1)].dtype,
                f"{name}_zero": side.zero,
                f"{name}_rounding": side.rounding,
                f"{name}_multiplier": side.multiplier,
                f"{name}_shift": side.shift,
            }
        view, out = tiles.result(image, box), layer.out
        tiles.add_instruction(
            isa.Add(
                tiles.number,
                rows=box.rows,
                cols=box.cols,
                channels=box.channels,
                left_shift=layer.left_shift,
                out_rounding=out.rounding,
                out_multiplier=out.multiplier,
                out_shift=out.shift,
                out_zero=out.zero,
                low=layer.low,
                high=layer.high,
                out_address=view.address,
                out_row_stride=view.row,
                out_pixel_stride=view.pixel,
                out_dtype=tiles.out.dtype,
                **sides,
            )
        )
        tiles.store(image, box, view)


def _pool(tiles: Tiles, layer: layers.Pool) -> None:
    """Pool windows."""
    for image, box in tiles.each():
        down, across = tiles.spans(box)
        part = Box(down.first, across.first, box.c, down.size, across.size, box.channels)
        source, view = tiles.image(0, image, part), tiles.result(image, box)
        below = tiles.work.in_size[0] + layer.pads[2] - part.y - part.rows
        beside = tiles.work.in_size[1] + layer.pads[3] - part.x - part.cols
        tiles.add_instruction(
            isa.Pool(
                tiles.number,
                layer.kind,
                source.address,
                source.row,
                source.pixel,
                tiles.images[0].dtype,
                part.rows,
                part.cols,
                part.channels,
                *layer.kernel,
                *layer.strides,
                *layer.dilation,
                down.pad,
                across.pad,
                below,
                beside,
                int(layer.count_pad),
                layer.in_zero,
                layer.out_zero,
                layer.multiplier,
                layer.shift,
                box.rows,
                box.cols,
                view.address,
                view.row,
                view.pixel,
            )
        )
        tiles.store(image, box, view)


def _mean(tiles: Tiles, layer: layers.Mean) -> None:
    """Sum each channel of each image, and rescale the sums."""
    spots = list(_spans_of_one(tiles))
    for image in range(tiles.work.images):
        for first, count in tiles.groups():
            sums = tiles.sums.turn()
            for i, (y, x, rows, cols) in enumerate(spots):
                box = Box(y, x, first, rows, cols, count)
                view = tiles.image(0, image, box)
                tiles.add_instruction(
                    isa.Sum(
                        tiles.number,
                        view.address,
                        view.row,
                        view.pixel,
                        tiles.images[0].dtype,
                        rows,
                        cols,
                        count,
                        layer.low,
                        layer.start,
                        int(i > 0),
                        sums,
                    )
                )
            box = Box(0, 0, first, 1, 1, count)
            table, at = tiles.lookup(layer.rescale, None, box)
            tiles.requantize(layer.rescale, image, box, sums, table, at, None)


def _spans_of_one(tiles: Tiles) -> Iterator[tuple[int, int, int, int]]:
    """Give the tiles of one image that is summed."""
    (height, width), cut = tiles.work.in_size, tiles.cut
    for y in range(0, height, cut.rows):
        for x in range(0, width, cut.cols):
            yield y, x, min(cut.rows, height - y), min(cut.cols, width - x)
