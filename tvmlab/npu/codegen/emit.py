"""The instructions of one layer: load, compute, requantize and store each tile."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from .. import isa, layers
from ..config import Config
from ..isa import INT32, Dtype
from ..layers import Array, Convolution, Layer, Pair
from .memory import LayerPlan, RingAllocator
from .tiling import ALIGNMENT, Kind, Residency

#: A part of an image: where it begins and its size, in rows, columns and channels.
Box = namedtuple("Box", "y x c rows cols channels")
#: An address in SRAM, and the bytes from a row and from a pixel to the next.
View = namedtuple("View", "address row pixel")
#: Where the tables of a group of channels are: offsets in their block, or addresses in SRAM.
Tables = namedtuple("Tables", "multipliers bias shifts weights")
#: The offset among the constants, and the size.
_Block = tuple[int, int]
#: The first row or column to read, how many, and the padding of the first window before them.
_Span = tuple[int, int, int]


def in_row(count: int) -> tuple[int, ...]:
    """Return the last fields of a Load or Store of bytes in a row."""
    return (1, 1, 1, 1, count, 0, 0, 0, 1, 0, 0, 0, 1)


@dataclass(frozen=True)
class Image:
    """A value as images of one size, in SRAM at `address`, in a tensor of DRAM, or in both."""

    height: int
    width: int
    channels: int
    dtype: Dtype
    address: int | None
    tensor: int | None
    order: Residency

    def view(self, image: int, box: Box) -> View:
        """Return the view of a part of the image that is in SRAM."""
        assert self.address is not None
        each, pixel = self.dtype.bytes, self.channels * self.dtype.bytes
        pixels = (image * self.height + box.y) * self.width + box.x
        return View(self.address + pixels * pixel + box.c * each, self.width * pixel, pixel)

    def packed(self, address: int, box: Box) -> View:
        """Return the view of a buffer that holds a part and nothing else."""
        pixel = box.channels * self.dtype.bytes
        return View(address, box.cols * pixel, pixel)

    def transfer(self, image: int, box: Box, view: View) -> tuple[int, ...]:
        """Return the fields of a Load or Store of a part."""
        assert self.tensor is not None
        each, axes = self.dtype.bytes, [0, 1, 2]
        rows, cols, channels = self.width * self.channels, self.channels, 1
        if self.order is Residency.NCHW:
            axes, rows, cols, channels = [2, 0, 1], self.width, 1, self.height * self.width
        dram = [each * stride for stride in (rows, cols, channels)]
        sram = view.row, view.pixel, each
        offset = image * each * self.height * self.width * self.channels
        offset += sum(first * stride for first, stride in zip(box[:3], dram, strict=True))
        counts, outside, inside = ([of[axis] for axis in axes] for of in (box[3:], dram, sram))
        return (self.tensor, offset, view.address, each, 1, *counts, 0, *outside, 0, *inside)


class Target(NamedTuple):
    """The program that all layers append to; the tensor of number `number` holds the constants."""

    instructions: list[isa.Instruction]
    constants: bytearray
    number: int
    config: Config
    sram: RingAllocator
    sums: RingAllocator

    def add_constants(self, data: bytes) -> _Block:
        """Append constants at an aligned offset."""
        self.constants.extend(bytes(-len(self.constants) % ALIGNMENT))
        self.constants.extend(data)
        return len(self.constants) - len(data), len(data)


class TileEmitter:
    """Emit the transfers of one layer, and locate its tiles."""

    def __init__(
        self, target: Target, number: int, layer: Any, plan: LayerPlan, images: list[Image]
    ) -> None:
        self.target, self.number, self.layer = target, number, layer
        self.shape, self.tiling = plan.shape, plan.tiling
        *self.images, self.out = images
        cut = self.tiling
        sizes = [(size, cut.image_slots) for size in cut.image_bytes]
        sizes += [(cut.table_bytes, cut.table_slots), (cut.weight_bytes, cut.slots)]
        sizes += [(cut.out_bytes, cut.out_slots)]
        pools = target.sram.lay_out(sizes, plan.limit)
        *self.image_buffers, self.tables, self.weights, self.results = pools
        (self.sums,) = target.sums.lay_out([(cut.sums, cut.sum_slots)], target.config.accumulators)
        whole = self.shape.in_channels
        depth = cut.depth if self.shape.kind is Kind.MATMUL else whole
        #: First and count of each part of the input channels.
        self.steps = [(at, min(depth, whole - at)) for at in range(0, whole, depth)]
        self.packed: dict[int, tuple[_Block, Tables]] = {}
        self.blocks: dict[tuple[object, ...], _Block] = {}

    def emit(self, kind: type[isa.Instruction], *fields: int) -> None:
        """Append an instruction."""
        self.target.instructions.append(kind(self.number, *fields))

    def load_block(self, block: _Block, address: int) -> None:
        """Load constants."""
        self.emit(isa.Load, self.target.number, block[0], address, *in_row(block[1]))

    def image(self, i: int, image: int, box: Box, pad_value: int = 0) -> View:
        """Return the view of a part of an input; load that part, and pad it beside the image."""
        source = self.images[i]
        if source.address is not None:
            return source.view(image, box)

        def fill(address: int) -> None:
            view, end = source.packed(address, box), box.x + box.cols
            low = min(max(box.x, 0), end)
            high = max(min(end, source.width), low)
            if high > low:
                at = view._replace(address=address + (low - box.x) * view.pixel)
                inside = box._replace(x=low, cols=high - low)
                self.emit(isa.Load, *source.transfer(image, inside, at))
            for first, cols in ((box.x, low - box.x), (high, end - high)):
                if cols:
                    size, to = cols * view.pixel, address + (first - box.x) * view.pixel
                    key = ("padding", box.rows, size)
                    start, _ = self.constant(key, mul, bytes([pad_value % 256]), box.rows * size)
                    last = (to, 1, 1, 1, box.rows, size, 0, 0, size, 1, 0, 0, view.row, 1)
                    self.emit(isa.Load, self.target.number, start, *last)

        return source.packed(self.image_buffers[i].get((image, box), fill), box)

    def write(self, kind: type[isa.Instruction], image: int, box: Box, *fields: int) -> None:
        """Append an instruction whose last fields are a part of the result, and store that part."""
        if self.out.address is None:
            view = self.out.packed(self.results.take(), box)
        else:
            view = self.out.view(image, box)
        self.emit(kind, *fields, *view, *[self.out.dtype] * (kind is not isa.Pool))
        if self.out.tensor is not None:
            self.emit(isa.Store, *self.out.transfer(image, box, view))

    def requantize(self, image: int, box: Box, sums: int, ends: Pair = INT32) -> None:
        """Rescale sums to the result's scale, and store them."""
        scale, tables = self.layer.rescale, self.lookup(box)
        how = tables.multipliers, tables.shifts, int(scale.multipliers.size > 1)
        clip = scale.zero_point, scale.low, scale.high
        fields = (sums, *box[3:], *ends, scale.rounding, *how, *clip)
        self.write(isa.Requantize, image, box, *fields)

    def tiles(self) -> Iterator[tuple[int, Box]]:
        """List the images and tiles of the tiled tensor: tiles by groups of output channels."""
        (height, width), cut = self.shape.tiled_size, self.tiling
        for c in range(0, self.shape.out_channels, cut.channels):
            channels = min(cut.channels, self.shape.out_channels - c)
            for image in range(self.shape.images):
                for y in range(0, height, cut.rows):
                    for x in range(0, width, cut.cols):
                        rows, cols = min(cut.rows, height - y), min(cut.cols, width - x)
                        yield image, Box(y, x, c, rows, cols, channels)

    def needed(self, box: Box) -> tuple[_Span, _Span]:
        """Return the input rows and columns that a tile reads."""
        shape = self.shape
        rows, cols = zip(shape.in_size, shape.reach, shape.strides, shape.pads, strict=True)
        return _span(box.y, box.rows, *rows), _span(box.x, box.cols, *cols)

    def constant(self, key: tuple[object, ...], make: Callable[..., bytes], *of: Any) -> _Block:
        """Return a block of constants, which is created on the first call with this key."""
        if key not in self.blocks:
            self.blocks[key] = self.target.add_constants(make(*of))
        return self.blocks[key]

    def lookup(self, box: Box) -> Tables:
        """Return the tables of a group of channels in SRAM, with weights unless depth is cut."""
        if box.c not in self.packed:
            bias, scale = getattr(self.layer, "bias", np.zeros(0, np.int32)), self.layer.rescale
            tables, mine = (scale.multipliers, bias, scale.shifts), _channels(box)
            parts = [_little(table[mine] if table.size > 1 else table) for table in tables]
            offsets = Tables(*accumulate(map(len, parts), initial=0))
            if isinstance(self.layer, Convolution) and len(self.steps) == 1:
                parts.append(self.packed_weights(0, box))
            self.packed[box.c] = self.target.add_constants(b"".join(parts)), offsets
        block, offsets = self.packed[box.c]
        address = self.tables.get(box.c, lambda at: self.load_block(block, at)) if block[1] else 0
        return Tables(*(address + offset for offset in offsets))

    def weights_at(self, i: int, box: Box, tables: Tables) -> int:
        """Return the address of the weights of a part of the input channels."""
        if len(self.steps) == 1:
            return int(tables.weights)
        key = ("weights", box.c, i)
        block = self.constant(key, self.packed_weights, i, box)
        return self.weights.get(key, lambda at: self.load_block(block, at))

    def packed_weights(self, i: int, box: Box) -> bytes:
        """Lay out the weights of a part of the input channels as `isa` describes."""
        weights, columns = self.layer.weights, self.target.config.columns
        if self.layer.depthwise:
            return _little(weights[:, :, _channels(box)])
        first, depth = self.steps[i]
        if self.shape.folded:
            weights = weights.reshape(self.shape.kernel[0], 1, -1, self.shape.out_channels)
            depth = weights.shape[2]
        part = weights[:, :, first : first + depth, _channels(box)]
        full = np.zeros((*part.shape[:3], -(-box.channels // columns) * columns), np.int8)
        full[..., : box.channels] = part
        return full.reshape(*part.shape[:3], -1, columns).transpose(3, 0, 1, 2, 4).tobytes()


def _channels(box: Box) -> slice:
    return slice(box.c, box.c + box.channels)


def _little(table: Array) -> bytes:
    return table.astype(table.dtype.newbyteorder("<")).tobytes()


def _span(first: int, count: int, length: int, reach: int, stride: int, pad: int) -> _Span:
    """Return the range of `length` rows or columns that adjacent windows read."""
    start = first * stride - pad
    end = start + (count - 1) * stride + reach
    low, high = max(start, 0), min(end, length)
    if low >= high:
        # All windows lie in the padding. The instruction must read something, so it reads the first
        # row, placed behind the last window.
        return 0, 1, end - start
    return low, high - low, low - start


def emit(target: Target, number: int, layer: Layer, plan: LayerPlan, images: list[Image]) -> None:
    """Append the instructions of any layer but a view; `images` are its inputs and its result."""
    steps: dict[type, Callable[..., None]]
    steps = {Convolution: _convolution, layers.Add: _add, layers.Pool: _pool, layers.Mean: _mean}
    steps[type(layer)](TileEmitter(target, number, layer, plan, images), layer)


def _convolution(tiles: TileEmitter, layer: Convolution) -> None:
    shape, dtype = tiles.shape, tiles.images[0].dtype
    for image, box in tiles.tiles():
        tables, sums = tiles.lookup(box), tiles.sums.take()
        (y, rows, top), (x, cols, left) = tiles.needed(box)
        window = (*shape.kernel, *shape.strides)
        parts = [Box(y, x, c, rows, cols, depth) for c, depth in tiles.steps]
        if layer.depthwise:
            parts = [Box(y, x, box.c, rows, cols, box.channels)]
        if shape.folded:
            # The taps of a window row become channels of one pixel.
            (height, taps), (down, stride), left = shape.kernel, shape.strides, 0
            window = height, 1, down, 1
            x, cols = box.x * stride - shape.pads[1], (box.cols - 1) * stride + taps
            parts = [Box(y, x, 0, rows, cols, shape.in_channels)]
        for i, part in enumerate(parts):
            view = tiles.image(0, image, part, layer.pad_value)
            if shape.folded:
                view = view._replace(pixel=stride * view.pixel)
                part = part._replace(cols=box.cols, channels=taps * shape.in_channels)
            weights = tiles.weights_at(i, box, tables)
            data = (*view, dtype, *part[3:], top, left, layer.pad_value, weights)
            fields = (*data, *window, *shape.dilation, *box[3:], sums, -1 if i else tables.bias)
            if layer.depthwise:
                tiles.emit(isa.Depthwise, *fields, Dtype[layer.weights.dtype.name])
            else:
                tiles.emit(isa.Matmul, *fields)
        tiles.requantize(image, box, sums, (layer.sum_low, layer.sum_high))


def _add(tiles: TileEmitter, layer: layers.Add) -> None:
    for image, box in tiles.tiles():
        sides: list[int] = []
        for i, (side, source) in enumerate(zip(layer.sides, tiles.images, strict=True)):
            sides += [*tiles.image(i, image, box), source.dtype, *side]
        zero, *scale = layer.out
        last = (layer.left_shift, *scale, zero, layer.low, layer.high)
        tiles.write(isa.Add, image, box, *box[3:], *sides, *last)


def _pool(tiles: TileEmitter, layer: layers.Pool) -> None:
    for image, box in tiles.tiles():
        (y, rows, top), (x, cols, left) = tiles.needed(box)
        part = Box(y, x, box.c, rows, cols, box.channels)
        source = tiles.image(0, image, part)
        below = tiles.shape.in_size[0] + layer.pads[2] - y - rows
        beside = tiles.shape.in_size[1] + layer.pads[3] - x - cols
        data = (*source, tiles.images[0].dtype, *part[3:])
        window = (*layer.kernel, *layer.strides, *layer.dilation)
        pads = top, left, below, beside, int(layer.count_pad)
        scale = layer.in_zero, layer.out_zero, layer.multiplier, layer.shift
        fields = (layer.kind, *data, *window, *pads, *scale, *box[3:5])
        tiles.write(isa.Pool, image, box, *fields)


def _mean(tiles: TileEmitter, layer: layers.Mean) -> None:
    sums, end = 0, tiles.shape.in_size
    for image, box in tiles.tiles():
        first = (box.y, box.x) == (0, 0)
        sums = tiles.sums.take() if first else sums
        data = (*tiles.image(0, image, box), tiles.images[0].dtype, *box[3:])
        tiles.emit(isa.Sum, *data, layer.low, layer.start, int(not first), sums)
        if (box.y + box.rows, box.x + box.cols) == end:
            tiles.requantize(image, Box(0, 0, box.c, 1, 1, box.channels), sums)
