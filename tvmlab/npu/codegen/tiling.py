"""Tiling: cut a layer into tiles that fit the SRAM and the accumulators.

A tile is a block of rows, columns and channels of the result. A convolution can also cut its input
channels (`depth`): the sums stay in the accumulators while the parts are added. The weights of a
group of output channels stay in SRAM while the image streams past them. `plan` chooses the tiling
with a cost model that is exact for the array and the vector unit. With double buffering the units
overlap, so the estimate is the slowest unit's time, plus the time before and after the overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Config
from ..layers import Add, Convolution, Layer, Mean, Pair, Pool, Value, View

Ints = npt.NDArray[np.int64]

#: Every buffer begins at a multiple of this many bytes: the largest number is a float64.
ALIGNMENT = 8
#: Bytes of SRAM that a copy within DRAM needs.
COPY = 64
#: How much longer a tiling can take if it lets the next layer follow; measured on the digits model.
FOLLOWED = 0.02
#: Duration before and after the overlap, in tiles; measured on the digits model.
ENDS = 1.15


def granule(size: int) -> int:
    """Return the granularity, in bytes, of hazard tracking; a memory has at most 2**17 pieces."""
    return -(-size // (ALIGNMENT << 17)) * ALIGNMENT


#: The instruction that computes a layer.
Kind = Enum("Kind", "MATMUL DEPTHWISE ADD POOL MEAN")
#: Where a value is stored: all of it in SRAM, or in DRAM with its channels innermost or outermost.
Residency = Enum("Residency", "SRAM NHWC NCHW")
Places = tuple[Residency, ...]


@dataclass(frozen=True)
class LayerShape:
    """A layer's sizes; `table_bytes` is per channel, all channels share `fixed_bytes`.

    In a `folded` layer the taps of one window row count as channels of one tap, because adjacent
    pixels are adjacent bytes. This way, a layer with few channels fills more rows of the array.
    """

    kind: Kind
    images: int
    in_size: Pair
    out_size: Pair
    in_channels: int
    out_channels: int
    in_bytes: tuple[int, ...]
    out_bytes: int
    kernel: Pair = (1, 1)
    strides: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pads: Pair = (0, 0)
    weight_bytes: int = 0
    table_bytes: int = 0
    fixed_bytes: int = 0
    folded: bool = False

    def image(self, result: bool) -> tuple[int, int, int]:
        """Rows, columns and channels of the inputs, or of the result."""
        if result:
            return (*self.out_size, self.out_channels)
        return (*self.in_size, self.in_channels)

    @property
    def tiled_size(self) -> Pair:
        """Rows and columns of the tensor that is cut into tiles."""
        return self.in_size if self.kind is Kind.MEAN else self.out_size

    @property
    def reach(self) -> Pair:
        """Rows and columns from the first tap of a window to its last, inclusive."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return (kh - 1) * dh + 1, (kw - 1) * dw + 1

    def folds(self, rows: int, loaded: bool) -> bool:
        """Whether folding the taps needs fewer blocks of the array's rows."""
        (_, taps), channels = self.kernel, self.in_channels
        across = (self.out_size[1] - 1) * self.strides[1] + self.reach[1] - self.pads[1]
        if not loaded and (self.pads[1] > 0 or across > self.in_size[1]):
            return False  # padding exists in SRAM only if the image is loaded
        blocks = taps * -(-channels // rows), -(-taps * channels // rows)
        return self.kind is Kind.MATMUL and self.dilation[1] == 1 and blocks[1] < blocks[0]

    def flat(self) -> LayerShape:
        """Treat all pixels as one row, if each output pixel reads only the pixel at its place."""
        window, same = (self.kernel, self.strides, self.pads), self.in_size == self.out_size
        if self.kind is Kind.MEAN or not same or window != ((1, 1), (1, 1), (0, 0)):
            return self
        line = 1, self.images * math.prod(self.out_size)
        return replace(self, images=1, in_size=line, out_size=line)


def shape_of(layer: Layer, values: Mapping[str, Value]) -> LayerShape | None:
    """Return the sizes of a layer; None for a view."""
    if isinstance(layer, View):
        return None
    images, in_rows, in_cols, in_channels = values[layer.inputs[0]].nhwc
    _, out_rows, out_cols, out_channels = values[layer.output].nhwc
    kind = _KINDS[type(layer)]
    more: dict[str, Any] = {"table_bytes": 0}
    if isinstance(layer, (Convolution, Pool)):
        more |= {"strides": layer.strides, "dilation": layer.dilation, "pads": layer.pads[:2]}
    if isinstance(layer, Pool):
        more["kernel"] = layer.kernel
    if isinstance(layer, Mean):
        out_rows = out_cols = 1  # of each image, even if the result is a matrix
    if isinstance(layer, (Convolution, Mean)):
        tables = layer.rescale.multipliers, layer.rescale.shifts
        which = "table_bytes" if tables[0].size > 1 else "fixed_bytes"
        more[which] = sum(table.itemsize for table in tables if table.size)
    if isinstance(layer, Convolution):
        kind = Kind.DEPTHWISE if layer.depthwise else Kind.MATMUL
        more |= {"kernel": layer.weights.shape[:2], "weight_bytes": layer.weights.itemsize}
        more["table_bytes"] += 4
    each = tuple(values[name].dtype.bytes for name in (*layer.inputs, layer.output))
    sizes = (in_rows, in_cols), (out_rows, out_cols), in_channels, out_channels
    return LayerShape(kind, images, *sizes, each[:-1], each[-1], **more)


_KINDS = {Convolution: Kind.MATMUL, Add: Kind.ADD, Pool: Kind.POOL, Mean: Kind.MEAN}


class Tiling(SimpleNamespace):
    """The tiling of a layer, in integers; `_Candidates` has an array of each.

    A tile has `rows` x `cols` x `channels` of the result, less at the edges; `depth` input channels
    are summed at a time. With 2 `slots`, buffers are doubled, so that one fills while the other is
    read; `image_slots`, `table_slots`, `out_slots` and `sum_slots` are the buffers actually needed.
    `image_bytes` lists the buffer size of each input, 0 for an input that is in SRAM already;
    `table_bytes`, `weight_bytes` and `out_bytes` are the other buffers' sizes. Weights come with
    the tables unless the depth is cut. `sums` counts a tile's accumulators; `cycles` is estimated.
    """


def fits(layer: Layer, values: Mapping[str, Value], config: Config) -> str | None:
    """Return why a layer cannot be cut to fit the machine; None if it can."""
    size = max(values[name].nbytes for name in (*layer.inputs, layer.output))
    if size >= 1 << 31:
        return f"a tensor of {size:,} bytes cannot be addressed: offsets have 31 bits"
    shape, there = shape_of(layer, values), config.sram_bytes
    need = max(COPY, smallest(shape, config) if shape else 0)
    small = f"its smallest tile needs {need:,} bytes of SRAM; there are {there:,}"
    return small if need > there else None


@lru_cache(maxsize=4096)
def smallest(shape: LayerShape, config: Config) -> int:
    """Return the size of the smallest tile in bytes."""
    found = _Candidates(shape, (Residency.NHWC,) * (len(shape.in_bytes) + 1), config)
    return int(found.room[found.sums * found.sum_slots <= config.accumulators].min())


@lru_cache(maxsize=4096)
def plan(shape: LayerShape, places: Places, config: Config, room: int) -> Tiling | None:
    """Choose the fastest tiling in `room` bytes; `places` is the residency of inputs and result."""
    found = _Candidates(shape, places, config)
    kept = (found.room <= room) & (found.sums * found.sum_slots <= config.accumulators)
    if not kept.any():
        return None
    found.cycles = found.estimate()
    cost = np.where(found.channels == shape.out_channels, 1, 1 + FOLLOWED) * found.cycles
    at = int(np.argmin(np.where(kept, cost, np.inf)))
    arrays = {name: array for name, array in vars(found).items() if name != "given"}
    return Tiling(**{name: array[..., at].tolist() for name, array in arrays.items()})


class _Candidates(SimpleNamespace):
    """Candidate tilings, with the smallest among them: one array for each size."""

    def __init__(self, shape: LayerShape, places: Places, config: Config) -> None:
        self.given = shape, places, config
        matmul, size = shape.kind is Kind.MATMUL, shape.tiled_size
        channels = _blocks(shape.out_channels, config.columns if matmul else config.lanes, 8)
        if shape.kind in (Kind.MATMUL, Kind.DEPTHWISE, Kind.MEAN):
            channels = sorted({*channels, min(shape.out_channels, config.accumulators)})
        depth = [shape.in_channels] if shape.folded else [1]
        if matmul and not shape.folded:
            blocks = _blocks(shape.in_channels, config.rows, 6)
            depth = sorted({1, min(4, shape.in_channels), *blocks})
        across = _parts(size[1], 40 if size[0] == 1 else 5)
        axes = _parts(size[0], 14), across, channels, depth, [1, 2]
        grid = np.meshgrid(*(np.array(axis, np.int64) for axis in axes), indexing="ij")
        self.rows, self.cols, self.channels, self.depth, self.slots = map(np.ravel, grid)
        zero = 0 * self.rows
        self.spots = shape.images * _up(size[0], self.rows) * _up(size[1], self.cols)
        self.groups = _up(shape.out_channels, self.channels)
        self.steps = _up(shape.in_channels, self.depth) if matmul else zero + 1
        depth_or_all = self.depth if matmul else self.channels
        rows, cols = _needed(shape, 0, self.rows), _needed(shape, 1, self.cols)
        self.box = np.stack([rows, cols, depth_or_all])
        *sources, last = (place is not Residency.SRAM for place in places)
        pixels, buffers = self.box.prod(0), zip(shape.in_bytes, sources, strict=True)
        self.image_bytes = np.stack([_padded(pixels * each) * there for each, there in buffers])
        taps = math.prod(shape.kernel)
        weights = self.channels * taps * shape.weight_bytes
        if matmul:
            weights = _up(self.channels, config.columns) * config.columns * taps * self.depth
        tables = self.channels * shape.table_bytes + shape.fixed_bytes
        self.table_bytes = _padded(tables + weights * (self.steps == 1))
        self.weight_bytes = _padded(weights * (self.steps > 1))
        mean = shape.kind is Kind.MEAN
        results = self.channels if mean else self.rows * self.cols * self.channels
        self.out_bytes = _padded(results * shape.out_bytes) * last
        self.sums = results if matmul or mean or shape.kind is Kind.DEPTHWISE else zero
        loads = self.spots * (self.steps if matmul else self.groups)
        self.image_slots = np.minimum(self.slots, loads)
        # While the array uses one group's tables, the vector unit can still need the previous ones.
        self.table_slots = np.minimum(np.where(self.slots == 2, 3, 1), self.groups)
        self.stored = (shape.images if mean else self.spots) * self.groups
        self.out_slots = np.minimum(self.slots, self.stored)
        self.sum_slots = self.out_slots if matmul else zero + 1
        images = self.image_bytes.sum(0) * self.image_slots + self.out_bytes * self.out_slots
        tables = self.table_bytes * self.table_slots + self.weight_bytes * self.slots
        self.room = images + tables

    def estimate(self) -> Any:
        _, _, config = self.given
        tiles, (transfers, moved) = self.spots * self.groups, self._traffic()
        dma = transfers * config.dma_latency + moved / config.dma_bytes_per_cycle
        units = np.stack([self._array(), self._vector(), dma])
        total, slowest = units.sum(0), units.max(0)
        # The first load comes before the overlap, the last store comes after it.
        overlapped = slowest + ENDS * (total - slowest) / tiles
        return np.where(self.slots == 2, overlapped, total) + tiles

    def _array(self) -> Any:
        shape, _, config = self.given
        if shape.kind is not Kind.MATMUL:
            return self.rows * 0
        pixels = 0
        for rows, downs in _ends(shape.out_size[0], self.rows):
            for cols, acrosses in _ends(shape.out_size[1], self.cols):
                pixels = pixels + downs * acrosses * np.maximum(rows * cols, config.rows)
        outs = _in_blocks(shape.out_channels, self.channels, config.columns)
        blocks = math.prod(shape.kernel) * _in_blocks(shape.in_channels, self.depth, config.rows)
        if shape.folded:
            blocks = shape.kernel[0] * _up(shape.kernel[1] * shape.in_channels, config.rows)
        starts = self.spots * self.groups * self.steps * (config.rows + config.columns)
        return starts + shape.images * pixels * blocks * outs

    def _vector(self) -> Any:
        shape, _, config = self.given
        out, summed, taps = map(math.prod, (shape.out_size, shape.in_size, shape.kernel))
        instructions, passes = {
            Kind.MATMUL: (1, out),
            Kind.DEPTHWISE: (2, out * (taps + 1)),
            Kind.ADD: (1, out * len(shape.in_bytes)),
            Kind.POOL: (1, out * taps),
            Kind.MEAN: (2, summed + out),
        }[shape.kind]
        starts = instructions * self.spots * self.groups * config.vector_latency
        groups = _in_blocks(shape.out_channels, self.channels, config.lanes)
        return starts + shape.images * passes * groups

    def _traffic(self) -> tuple[Any, Any]:
        shape, places, config = self.given
        # Tables are loaded once, parts of the weights once per tile.
        parts = self.spots * self.groups * self.steps * (self.steps > 1)
        count = self.groups * (self.table_bytes > 0) + parts
        moved = self.groups * self.table_bytes + parts * self.weight_bytes
        again = self.groups
        if shape.kind is Kind.MATMUL:
            # Tiles are loaded again for each group of output channels, unless they are in SRAM.
            stay = (self.spots == shape.images) & (self.steps == 1)
            again = np.where(stay, 1, self.groups) * self.steps
        result = np.stack([self.rows, self.cols, self.channels])
        if shape.kind is Kind.MEAN:
            result[:2] = 1
        loads = [(self.box, each, again * self.spots) for each in shape.in_bytes]
        moves = [*loads, (result, shape.out_bytes, self.stored)]
        for (box, each, times), place in zip(moves, places, strict=True):
            if place is not Residency.SRAM:
                size = shape.image(box is result)
                count = count + times
                moved = moved + times * _bus(box, size, each, place, config)
        return count, moved


def _up(a: Any, b: Any) -> Any:
    return -(-a // b)


def _padded(size: Any) -> Any:
    return _up(size, ALIGNMENT) * ALIGNMENT


def _needed(shape: LayerShape, axis: int, size: Ints) -> Ints:
    if shape.kind is Kind.MEAN:
        return size
    needed: Ints = (size - 1) * shape.strides[axis] + shape.reach[axis]
    # Folded taps include the padding on the left and right.
    return needed if shape.folded and axis else np.minimum(needed, shape.in_size[axis])


def _parts(size: int, most: int) -> list[int]:
    """List sizes that cut `size` evenly: a subset of ceil(size / 1), ceil(size / 2) ... 1."""
    found = sorted({_up(size, parts) for parts in range(1, min(size, 4096) + 1)} | {1})
    if len(found) <= most:
        return found
    picked = np.unique(np.geomspace(1, len(found), most).round().astype(int))
    return [found[-i] for i in picked]


def _blocks(size: int, unit: int, most: int) -> list[int]:
    return [min(size, unit * part) for part in _parts(_up(size, unit), most)]


def _bus(box: Any, size: Any, each: int, place: Residency, config: Config) -> Any:
    """Bytes on the bus for a box; each contiguous run takes whole bursts."""
    burst = config.dma_burst_bytes
    run = np.full(box[0].shape, each)
    runs, joined = np.ones_like(run), np.ones(run.shape, bool)
    for axis in (1, 0, 2) if place is Residency.NCHW else (2, 1, 0):
        run = np.where(joined, run * box[axis], run)
        runs = np.where(joined, runs, runs * box[axis])
        joined &= box[axis] == size[axis]
    return runs * _up(run, burst) * burst


def _ends(size: int, part: Ints) -> tuple[tuple[Ints, Ints], tuple[Ints, Any]]:
    """Return the sizes of parts and how many there are: the full ones, then the remainder."""
    return (part, size // part), (size % part, (size % part > 0).astype(np.int64))


def _in_blocks(size: int, part: Ints, unit: int) -> Any:
    return sum(count * _up(one, unit) for one, count in _ends(size, part))
