"""The tiles of one layer: which there are, and how they and their tables come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from .. import isa, layers
from ..config import Config
from ..layers import Layer, Rescale
from .buffers import Bench, Buffers
from .images import Box, Image, View
from .memory import Job
from .packing import Block, Constants, Tables, depthwise_weights, matmul_weights, tables
from .windows import Span, span
from .work import Kind

__all__ = ["Target", "Tiles"]


@dataclass(frozen=True)
class Target:
    """What all layers of a program write to.

    Attributes
    ----------
    instructions : list of Instruction
        They are appended to it.
    constants : Constants
        They are added to it.
    number : int
        The number of the constants' tensor.
    config : Config
        The machine.
    bench, sums : Bench
        The SRAM below the shelf, and the accumulators.
    """

    instructions: list[isa.Instruction]
    constants: Constants
    number: int
    config: Config
    bench: Bench
    sums: Bench


@dataclass(frozen=True)
class Parameters:
    """Tables of a group of channels, and where they lie among the constants."""

    tables: Tables
    block: Block


class Tiles:
    """A layer on its way."""

    def __init__(
        self, target: Target, number: int, layer: Layer, job: Job, images: list[Image]
    ) -> None:
        self.target, self.number, self.config = target, number, target.config
        self.work, self.cut = job.work, job.tiling
        self.layer, (*self.images, self.out) = layer, images
        cut = self.cut
        sizes = [(size, cut.image_slots) for size in cut.image_bytes]
        sizes += [
            (cut.table_bytes, cut.table_slots),
            (cut.weight_bytes, cut.slots),
            (cut.out_bytes, cut.out_slots),
        ]
        found = [Buffers(addresses) for addresses in target.bench.lay_out(sizes, job.bench)]
        *self.image_buffers, self.tables, self.weights, self.results = found
        limit = self.config.accumulators
        self.sums = Buffers(target.sums.lay_out([(cut.sums, cut.sum_slots)], limit)[0])
        self.parameters: dict[int, Parameters] = {}
        self.parts: dict[tuple[int, int], Block] = {}
        self.paddings: dict[tuple[int, int], Block] = {}

    def add_instruction(self, one: isa.Instruction) -> None:
        """Append an instruction."""
        self.target.instructions.append(one)

    def load_block(self, block: Block, address: int) -> None:
        """Load constants."""
        ones = (1, 1, 1, block.size, 0, 0, 0, 1, 0, 0, 0, 1)
        self.add_instruction(
            isa.Load(self.number, self.target.number, block.offset, address, 1, *ones)
        )

    def image(self, i: int, image: int, box: Box) -> View:
        """Address a part of an input; load it if it is not in SRAM."""
        source = self.images[i]
        if source.address is not None:
            return source.view(image, box)

        def fill(address: int) -> None:
            view = source.packed(address, box)
            self.add_instruction(source.load(self.number, image, box, view))

        return source.packed(self.image_buffers[i].get((image, box), fill), box)

    def folded(self, image: int, box: Box, pad_value: int) -> View:
        """Address columns of the input that reach over its edges; lay out the padding there."""
        source = self.images[0]
        if source.address is not None:
            return source.view(image, box)

        def fill(address: int) -> None:
            view = source.packed(address, box)
            low = min(max(box.x, 0), box.x + box.cols)
            high = max(min(box.x + box.cols, source.width), low)
            if high > low:
                inside = replace(box, x=low, cols=high - low)
                at = replace(view, address=address + (low - box.x) * view.pixel)
                self.add_instruction(source.load(self.number, image, inside, at))
            for first, cols in ((box.x, low - box.x), (high, box.x + box.cols - high)):
                if cols:
                    at = replace(view, address=address + (first - box.x) * view.pixel)
                    self.load_padding(box.rows, cols * view.pixel, at, pad_value)

        return source.packed(self.image_buffers[0].get((image, box), fill), box)

    def load_padding(self, rows: int, size: int, view: View, pad_value: int) -> None:
        """Load so many bytes of padding into each row."""
        if (rows, size) not in self.paddings:
            data = bytes([pad_value % 256]) * (rows * size)
            self.paddings[rows, size] = self.target.constants.add(data)
        block = self.paddings[rows, size]
        boxes = (1, 1, rows, size, 0, 0, size, 1, 0, 0, view.row, 1)
        number, start = self.target.number, block.offset
        self.add_instruction(isa.Load(self.number, number, start, view.address, 1, *boxes))

    def result(self, image: int, box: Box) -> View:
        """Address the place of a part of the result."""
        if self.out.address is not None:
            return self.out.view(image, box)
        return self.out.packed(self.results.turn(), box)

    def store(self, image: int, box: Box, view: View) -> None:
        """Store a part of the result, if it has a place in DRAM."""
        if self.out.tensor is not None:
            self.add_instruction(self.out.store(self.number, image, box, view))

    def spots(self, size: tuple[int, int]) -> Iterator[tuple[int, Box]]:
        """Give the tiles of all images, without channels."""
        for image in range(self.work.images):
            for y in range(0, size[0], self.cut.rows):
                for x in range(0, size[1], self.cut.cols):
                    rows, cols = min(self.cut.rows, size[0] - y), min(self.cut.cols, size[1] - x)
                    yield image, Box(y, x, 0, rows, cols, 0)

    def groups(self) -> Iterator[tuple[int, int]]:
        """Give first and count of each group of output channels."""
        for first in range(0, self.work.out_channels, self.cut.channels):
            yield first, min(self.cut.channels, self.work.out_channels - first)

    def each(self) -> Iterator[tuple[int, Box]]:
        """Give the tiles of the result, in the order of the loops."""
        size = self.work.out_size
        if self.cut.image_outer:
            pairs = ((spot, group) for spot in self.spots(size) for group in self.groups())
        else:
            pairs = ((spot, group) for group in self.groups() for spot in self.spots(size))
        for (image, box), (first, count) in pairs:
            yield image, Box(box.y, box.x, first, box.rows, box.cols, count)

    def spans(self, box: Box) -> tuple[Span, Span]:
        """Give the rows and the columns of the image that a tile needs."""
        work = self.work
        first, count = (box.y, box.x), (box.rows, box.cols)
        down, across = (
            span(
                first[i],
                count[i],
                work.in_size[i],
                work.reach[i],
                work.strides[i],
                work.pads[i],
            )
            for i in (0, 1)
        )
        return down, across

    def lookup(self, rescale: Rescale, bias: layers.Array | None, box: Box) -> tuple[Tables, int]:
        """Give the tables of a group of channels, and where they are in SRAM."""
        if box.c not in self.parameters:
            self.parameters[box.c] = self.pack(rescale, bias, box)
        found = self.parameters[box.c]
        if not found.block.size:
            return found.tables, 0
        return found.tables, self.tables.get(box.c, lambda at: self.load_block(found.block, at))

    def pack(self, rescale: Rescale, bias: layers.Array | None, box: Box) -> Parameters:
        """Add the tables of a group of channels, and its weights if joined, to the constants."""
        found, data = tables(rescale, bias, box.c, box.channels), b""
        if isinstance(self.layer, layers.Convolution) and self.cut.joined:
            if self.work.kind is Kind.DEPTHWISE:
                data = depthwise_weights(self.layer, box.c, box.channels)
            else:
                data = self.pack_whole(box)
        return Parameters(found, self.target.constants.add(found.data + data))

    def pack_whole(self, box: Box) -> bytes:
        """Lay out the weights of all parts of the input channels, one after the other."""
        return b"".join(self.pack_weights(step, box) for step in self.steps)

    def weights_at(self, i: int, box: Box, joined: int) -> int:
        """Give the address of the weights of a part of the input channels.

        Parameters
        ----------
        i : int
            Which part.
        box : Box
            The tile of the result.
        joined : int
            Where weights begin that come with the tables.
        """
        whole, step = self.cut.weights_whole, self.steps[i]
        columns = self.config.columns
        # Parts lie one after the other: each has so many bytes for an input channel.
        each = -(-box.channels // columns) * columns * self.work.taps
        if self.cut.joined:
            return joined + each * step[0]
        key = box.c, -1 if whole else step[0]
        if key not in self.parts:
            data = self.pack_whole(box) if whole else self.pack_weights(step, box)
            self.parts[key] = self.target.constants.add(data)
        address = self.weights.get(key, lambda at: self.load_block(self.parts[key], at))
        return address + (each * step[0] if whole else 0)

    def pack_weights(self, step: tuple[int, int], box: Box) -> bytes:
        """Lay out the weights of one part of the input channels."""
        assert isinstance(self.layer, layers.Convolution)
        weights, group = self.layer.weights, (box.c, box.channels)
        if self.work.folded:
            weights = weights.reshape(self.work.kernel[0], 1, -1, self.work.out_channels)
            step = 0, weights.shape[2]
        return matmul_weights(weights, step, group, self.config.columns)

    @cached_property
    def steps(self) -> list[tuple[int, int]]:
        """First and count of each part of the input channels."""
        whole, depth = self.work.in_channels, self.cut.depth
        return [(first, min(depth, whole - first)) for first in range(0, whole, depth)]

    def requantize(
        self,
        rescale: Rescale,
        image: int,
        box: Box,
        sums: int,
        table: Tables,
        at: int,
        clip: layers.Convolution | None,
    ) -> None:
        """Bring sums to the result's scale, and store them."""
        view = self.result(image, box)
        self.add_instruction(
            isa.Requantize(
                self.number,
                sums,
                box.rows,
                box.cols,
                box.channels,
                -(1 << 31) if clip is None else clip.sum_low,
                (1 << 31) - 1 if clip is None else clip.sum_high,
                rescale.rounding,
                at + table.multipliers,
                at + table.shifts,
                int(rescale.multipliers.size > 1),
                rescale.zero_point,
                rescale.low,
                rescale.high,
                view.address,
                view.row,
                view.pixel,
                self.out.dtype,
            )
        )
        self.store(image, box, view)
