"""Ways to cut a layer, many at once in arrays, and the memory that each takes."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..config import Config
from .work import Kind, Place, Work

__all__ = ["ALIGNMENT", "Cuts", "grain", "padded", "up"]

Ints = npt.NDArray[np.int64]

#: Every buffer begins at a multiple of this many bytes: the largest number is a float64.
ALIGNMENT = 8


def grain(size: int) -> int:
    """Give the bytes, or accumulators, that are told apart in a memory of a size.

    What lies in different grains can be used at the same time. There are 2**17 of them at most.
    """
    return -(-size // (ALIGNMENT << 17)) * ALIGNMENT


def up(a: Ints, b: int) -> Ints:
    """Divide, rounding up."""
    return -(-a // b)


def padded(size: Ints) -> Ints:
    """Round sizes up to the alignment."""
    return up(size, ALIGNMENT) * ALIGNMENT


class Cuts:
    """Ways to cut a layer: arrays of one length, a place in them being one way.

    Attributes
    ----------
    rows, cols, channels, depth, image_whole, weights_whole, image_outer, slots : numpy.ndarray
        int64, as in `tvmlab.npu.codegen.tiling.Tiling`.
    image_bytes : list of numpy.ndarray
        Bytes of a buffer, for each input.
    table_bytes, weight_bytes, out_bytes, sums, sum_slots, room : numpy.ndarray
        As in `tvmlab.npu.codegen.tiling.Tiling`.
    """

    NAMES = (
        "rows", "cols", "channels", "depth", "image_whole", "weights_whole", "image_outer", "slots"
    )  # fmt: skip
    rows: Ints
    cols: Ints
    channels: Ints
    depth: Ints
    image_whole: Ints
    weights_whole: Ints
    image_outer: Ints
    slots: Ints

    def __init__(
        self, work: Work, places: tuple[Place, ...], config: Config, axes: dict[str, Ints]
    ) -> None:
        self.work, self.places, self.config = work, places, config
        for name in self.NAMES:
            setattr(self, name, axes[name])

    def only(self, kept: npt.NDArray[np.bool_]) -> Cuts:
        """Give those of a mask."""
        axes = {name: getattr(self, name)[kept] for name in self.NAMES}
        return Cuts(self.work, self.places, self.config, axes)

    @cached_property
    def in_rows(self) -> Ints:
        """Rows of the image that a tile needs, at most."""
        return self._seen(0, self.rows)

    @cached_property
    def in_cols(self) -> Ints:
        """Columns of the image that a tile needs, at most."""
        return self._seen(1, self.cols)

    def _seen(self, axis: int, size: Ints) -> Ints:
        work = self.work
        if work.kind is Kind.MEAN:
            return size
        needed: Ints = (size - 1) * work.strides[axis] + work.reach[axis]
        # Where taps are folded the padding to the left and right is there, too.
        return needed if work.folded and axis else np.minimum(needed, work.in_size[axis])

    @cached_property
    def in_channels(self) -> Ints:
        """Channels of a tile of the image."""
        if self.work.kind is not Kind.MATMUL:
            return self.channels
        return np.where(self.image_whole == 1, self.work.in_channels, self.depth)

    @cached_property
    def image_bytes(self) -> list[Ints]:
        """Bytes of a tile of each input."""
        count = self.in_rows * self.in_cols * self.in_channels
        return [
            padded(count * size) * (place is not Place.SRAM)
            for size, place in zip(self.work.in_bytes, self.places, strict=False)
        ]

    @cached_property
    def weights(self) -> tuple[Ints, Ints]:
        """Bytes of the weights of a tile with all its input channels, and with one part."""
        work = self.work
        if work.kind is Kind.MATMUL:
            each = up(self.channels, self.config.columns) * self.config.columns * work.taps
            return each * work.in_channels, each * self.depth
        whole = self.channels * work.taps * work.weight_bytes
        return whole, whole

    @cached_property
    def joined(self) -> npt.NDArray[np.bool_]:
        """Whether tables and weights of a tile come in one buffer.

        They do where they stay. Where they stream, the array is done with the weights of a tile
        while its sums still wait to be requantized with the tables.
        """
        if self.work.kind is not Kind.MATMUL:
            return self.slots > 0
        found: npt.NDArray[np.bool_] = (self.weights_whole == 1) & (self.parts[2] <= 2)
        return found

    @cached_property
    def table_bytes(self) -> Ints:
        """Bytes of the tables, and of the weights where they come with them."""
        tables = self.channels * self.work.table_bytes + self.work.fixed_bytes
        return padded(tables + self.weights[0] * self.joined)

    @cached_property
    def weight_bytes(self) -> Ints:
        """Bytes of the weights where they come alone."""
        alone = np.where(self.weights_whole == 1, *self.weights)
        return padded(alone * ~self.joined)

    @cached_property
    def out_bytes(self) -> Ints:
        """Bytes of a tile of the result."""
        pixels = 1 if self.work.kind is Kind.MEAN else self.rows * self.cols
        size = self.channels * pixels * self.work.out_bytes
        return padded(size) * (self.places[-1] is not Place.SRAM)

    @cached_property
    def sums(self) -> Ints:
        """Accumulators of a tile."""
        match self.work.kind:
            case Kind.MATMUL | Kind.DEPTHWISE:
                return self.rows * self.cols * self.channels
            case Kind.MEAN:
                return self.channels
        return self.channels * 0

    @cached_property
    def sum_slots(self) -> Ints:
        """Tiles' sums that are kept: two where the array goes on while sums are requantized."""
        return self.out_slots if self.work.kind is Kind.MATMUL else self.slots * 0 + 1

    @cached_property
    def parts(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Parts of the layer: down, across, of output channels and of input channels."""
        work = self.work
        size = work.in_size if work.kind is Kind.MEAN else work.out_size
        depth = -(-work.in_channels // self.depth)
        return (
            -(-size[0] // self.rows),
            -(-size[1] // self.cols),
            -(-work.out_channels // self.channels),
            depth if work.kind is Kind.MATMUL else depth * 0 + 1,
        )

    @cached_property
    def image_slots(self) -> Ints:
        """Buffers for tiles of an input: as many as there are tiles, at most `slots`."""
        down, across, groups, steps = self.parts
        steps = np.where(self.image_whole == 1, 1, steps)
        groups = steps if self.work.kind is Kind.MATMUL else groups
        found: Ints = np.minimum(self.slots, self.work.images * down * across * groups)
        return found

    @cached_property
    def table_slots(self) -> Ints:
        """Buffers for tables: one more where they stream, as they are needed for two steps."""
        found: Ints = np.minimum(np.where(self.slots == 2, 3, 1), self.parts[2])
        return found

    @cached_property
    def out_slots(self) -> Ints:
        """Buffers for tiles of the result."""
        down, across, groups, _ = self.parts
        spots = 1 if self.work.kind is Kind.MEAN else down * across
        found: Ints = np.minimum(self.slots, self.work.images * spots * groups)
        return found

    @cached_property
    def followed(self) -> npt.NDArray[np.bool_]:
        """Whether pixels are done with all their channels one after the other.

        Then the next layer can begin before this one ends, if it asks for few pixels at a time.
        """
        whole = self.channels == self.work.out_channels
        if self.work.kind is Kind.MATMUL:
            whole |= self.image_outer == 1
        found: npt.NDArray[np.bool_] = whole
        return found

    @cached_property
    def room(self) -> Ints:
        """Bytes of all buffers."""
        images: Ints = sum(self.image_bytes, self.rows * 0)
        found: Ints = (
            images * self.image_slots
            + self.table_bytes * self.table_slots
            + self.weight_bytes * self.slots
            + self.out_bytes * self.out_slots
        )
        return found
