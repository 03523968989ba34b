"""The tiles of one layer: where they lie, what they need, and how they and their tables move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .. import isa
from ..config import Config
from ..isa import Dtype, Rounding
from ..layers import Array, Convolution, Layer, Rescale
from .memory import LayerPlan, RingAllocator
from .shape import Kind, Residency
from .tiling import ALIGNMENT

__all__ = ["Box", "Image", "Span", "Tables", "Target", "TileEmitter", "View"]


class Box(NamedTuple):
    """A part of an image: where it begins and its size, in rows, columns and channels."""

    y: int
    x: int
    c: int
    rows: int
    cols: int
    channels: int


class View(NamedTuple):
    """An address in SRAM, and the bytes from a row and from a pixel to the next."""

    address: int
    row: int
    pixel: int


class Span(NamedTuple):
    """Rows or columns to read of an image; the first window begins `pad` places before them."""

    first: int
    size: int
    pad: int


class Tables(NamedTuple):
    """Places of the tables of a group of channels: in their block, or in SRAM."""

    multipliers: int
    bias: int
    shifts: int
    weights: int


class _Block(NamedTuple):
    """A place among the constants."""

    offset: int
    size: int


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
        """Return the view of a part of the image that lies in SRAM."""
        assert self.address is not None
        pixel = self.channels * self.dtype.bytes
        row = self.width * pixel
        start = (image * self.height + box.y) * row + box.x * pixel + box.c * self.dtype.bytes
        return View(self.address + start, row, pixel)

    def packed(self, address: int, box: Box) -> View:
        """Return the view of a buffer that holds a part and nothing else."""
        pixel = box.channels * self.dtype.bytes
        return View(address, box.cols * pixel, pixel)

    def transfer(self, image: int, box: Box, view: View) -> tuple[int, ...]:
        """Return the fields of a Load or Store of a part."""
        assert self.tensor is not None
        each = self.dtype.bytes
        axes = (2, 0, 1) if self.order is Residency.NCHW else (0, 1, 2)
        size, first, count = (self.height, self.width, self.channels), box[:3], box[3:]
        sram, dram, stride = (view.row, view.pixel, each), {}, each
        for axis in reversed(axes):
            dram[axis] = stride
            stride *= size[axis]
        offset = image * stride + sum(first[axis] * dram[axis] for axis in axes)
        counts, outside, inside = ([of[axis] for axis in axes] for of in (count, dram, sram))
        return (self.tensor, offset, view.address, each, 1, *counts, 0, *outside, 0, *inside)


class Target(NamedTuple):
    """What all layers of a program write to.

    `number` is that of the tensor of the constants; `sram` and `sums` place buffers in SRAM and
    among the accumulators.
    """

    instructions: list[isa.Instruction]
    constants: bytearray
    number: int
    config: Config
    sram: RingAllocator
    sums: RingAllocator

    def add_constants(self, data: bytes) -> _Block:
        """Append constants, aligned."""
        self.constants.extend(bytes(-len(self.constants) % ALIGNMENT))
        block = _Block(len(self.constants), len(data))
        self.constants.extend(data)
        return block


class TileEmitter:
    """Emits the transfers of one layer, and says where its tiles lie."""

    def __init__(
        self, target: Target, number: int, layer: Layer, plan: LayerPlan, images: list[Image]
    ) -> None:
        self.target, self.number, self.layer = target, number, layer
        self.shape, self.tiling = plan.shape, plan.tiling
        *self.images, self.out = images
        cut = self.tiling
        sizes = [(size, cut.image_slots) for size in cut.image_bytes]
        sizes += [
            (cut.table_bytes, cut.table_slots),
            (cut.weight_bytes, cut.slots),
            (cut.out_bytes, cut.out_slots),
        ]
        pools = target.sram.lay_out(sizes, plan.limit)
        *self.image_buffers, self.tables, self.weights, self.results = pools
        (self.sums,) = target.sums.lay_out([(cut.sums, cut.sum_slots)], target.config.accumulators)
        whole, depth = self.shape.in_channels, cut.depth
        if self.shape.kind is not Kind.MATMUL:
            depth = whole
        #: First and count of each part of the input channels.
        self.steps = [(at, min(depth, whole - at)) for at in range(0, whole, depth)]
        self.packed: dict[int, tuple[_Block, Tables]] = {}
        self.blocks: dict[tuple[object, ...], _Block] = {}

    def emit(self, kind: type[isa.Instruction], *fields: int) -> None:
        """Append an instruction."""
        self.target.instructions.append(kind(self.number, *fields))

    def block(self, key: tuple[object, ...], data: bytes) -> _Block:
        """Add constants, unless that was done before."""
        if key not in self.blocks:
            self.blocks[key] = self.target.add_constants(data)
        return self.blocks[key]

    def load_block(self, block: _Block, address: int) -> None:
        """Load constants."""
        counts = (1, 1, 1, block.size, 0, 0, 0, 1, 0, 0, 0, 1)
        self.emit(isa.Load, self.target.number, block.offset, address, 1, *counts)

    def image(self, i: int, image: int, box: Box) -> View:
        """Return the view of a part of an input; load the part if it is not in SRAM."""
        source = self.images[i]
        if source.address is not None:
            return source.view(image, box)

        def fill(address: int) -> None:
            self.emit(isa.Load, *source.transfer(image, box, source.packed(address, box)))

        return source.packed(self.image_buffers[i].get((image, box), fill), box)

    def folded(self, image: int, box: Box, pad_value: int) -> View:
        """Return the view of columns that reach over the edges, with padding laid out there."""
        source = self.images[0]
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
                    data = bytes([pad_value % 256]) * (box.rows * size)
                    start = self.block(("padding", box.rows, size), data).offset
                    counts = (1, 1, box.rows, size, 0, 0, size, 1, 0, 0, view.row, 1)
                    self.emit(isa.Load, self.target.number, start, to, 1, *counts)

        return source.packed(self.image_buffers[0].get((image, box), fill), box)

    def result(self, image: int, box: Box) -> View:
        """Return the view of a part of the result."""
        if self.out.address is not None:
            return self.out.view(image, box)
        return self.out.packed(self.results.take(), box)

    def store(self, image: int, box: Box, view: View) -> None:
        """Store a part of the result, if it has a place in DRAM."""
        if self.out.tensor is not None:
            self.emit(isa.Store, *self.out.transfer(image, box, view))

    def tiles(self) -> Iterator[tuple[int, Box]]:
        """List the images and tiles of what is cut: spots by groups of output channels."""
        (height, width), cut = self.shape.tiled_size, self.tiling
        for c in range(0, self.shape.out_channels, cut.channels):
            channels = min(cut.channels, self.shape.out_channels - c)
            for image in range(self.shape.images):
                for y in range(0, height, cut.rows):
                    for x in range(0, width, cut.cols):
                        rows, cols = min(cut.rows, height - y), min(cut.cols, width - x)
                        yield image, Box(y, x, c, rows, cols, channels)

    def needed(self, box: Box) -> tuple[Span, Span]:
        """Return the rows and the columns of the image that a tile needs."""
        shape = self.shape
        down, across = (
            _span(first, count, shape.in_size[i], shape.reach[i], shape.strides[i], shape.pads[i])
            for i, (first, count) in enumerate(((box.y, box.rows), (box.x, box.cols)))
        )
        return down, across

    def lookup(self, rescale: Rescale, bias: Array | None, box: Box) -> Tables:
        """Return the tables of a group of channels in SRAM; load them if they are not there."""
        if box.c not in self.packed:
            self.packed[box.c] = self.pack(rescale, bias, box)
        block, offsets = self.packed[box.c]
        address = 0
        if block.size:
            address = self.tables.get(box.c, lambda at: self.load_block(block, at))
        return Tables(*(address + offset for offset in offsets))

    def pack(self, rescale: Rescale, bias: Array | None, box: Box) -> tuple[_Block, Tables]:
        """Add multipliers, bias and shifts to the constants, and weights that are not in parts."""

        def part(table: Array) -> bytes:
            cut = table[box.c : box.c + box.channels] if table.size > 1 else table
            return cut.astype(cut.dtype.newbyteorder("<")).tobytes()

        none = rescale.rounding is Rounding.NONE
        multipliers = b"" if none else part(rescale.multipliers)
        shifts = b"" if none else part(rescale.shifts)
        biases = b"" if bias is None else part(bias)
        at, data = len(multipliers), multipliers + biases + shifts
        offsets = Tables(0, at, at + len(biases), len(data))
        if isinstance(self.layer, Convolution) and len(self.steps) == 1:
            data += self.packed_weights(0, box)
        return self.target.add_constants(data), offsets

    def weights_at(self, i: int, box: Box, tables: Tables) -> int:
        """Return the address of the weights of a part of the input channels."""
        if len(self.steps) == 1:
            return tables.weights
        key = ("weights", box.c, i)
        if key not in self.blocks:
            self.block(key, self.packed_weights(i, box))
        return self.weights.get(key, lambda at: self.load_block(self.blocks[key], at))

    def packed_weights(self, i: int, box: Box) -> bytes:
        """Lay out the weights of a part of the input channels as the units take them.

        For the vector unit [kernel_h, kernel_w, channels], for the array int8 [blocks, kernel_h,
        kernel_w, inputs, columns], with zeros where a block is not full.
        """
        assert isinstance(self.layer, Convolution)
        weights, columns = self.layer.weights, self.target.config.columns
        if self.layer.depthwise:
            part = weights[:, :, box.c : box.c + box.channels]
            return part.astype(part.dtype.newbyteorder("<")).tobytes()
        first, depth = self.steps[i]
        if self.shape.folded:
            weights = weights.reshape(self.shape.kernel[0], 1, -1, self.shape.out_channels)
            depth = weights.shape[2]
        part = weights[:, :, first : first + depth, box.c : box.c + box.channels]
        full = np.zeros((*part.shape[:3], -(-box.channels // columns) * columns), np.int8)
        full[..., : box.channels] = part
        return full.reshape(*part.shape[:3], -1, columns).transpose(3, 0, 1, 2, 4).tobytes()


def _span(first: int, count: int, length: int, reach: int, stride: int, pad: int) -> Span:
    """Return what some windows side by side need of `length` rows or columns."""
    start = first * stride - pad
    end = start + (count - 1) * stride + reach
    low, high = max(start, 0), min(end, length)
    if low >= high:
        # All windows lie in the padding. An instruction reads something all the same: the first
        # row, put behind the last window.
        return Span(0, 1, end - start)
    return Span(low, high - low, low - start)
