"""Tiling: how a layer is cut into tiles that fit the SRAM and the accumulators.

A tile is a block of rows, columns and channels of the result. A convolution can also cut its input
channels (`depth`): the sums stay in the accumulators while the parts are added. The weights of a
group of output channels stay in SRAM while the image streams past them. `plan` chooses the tiling
by a cost model, which evaluates all candidates at once in arrays. The cycles of the array and the
vector unit are exact; loads of tiles at the edges are averaged. With doubled buffers the units
overlap, so the slowest unit counts, and the time before and after the overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
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
#: How much longer a tiling may take if the next layer can follow it; measured on the digits.
FOLLOWED = 0.02
#: Tiles' worth of time before and after the overlap; measured on the digits.
ENDS = 1.15


def granule(size: int) -> int:
    """Return the bytes that hazards of a memory are tracked by; a memory has at most 2**17."""
    return -(-size // (ALIGNMENT << 17)) * ALIGNMENT


#: Which instructions a layer is made of.
Kind = Enum("Kind", "MATMUL DEPTHWISE ADD POOL MEAN")
#: Where a value lies: whole in SRAM, or in DRAM with its channels innermost or outermost.
Residency = Enum("Residency", "SRAM NHWC NCHW")


@dataclass(frozen=True)
class LayerShape:
    """A layer's sizes; layers of equal sizes are tiled alike.

    `table_bytes` counts bias, multiplier and shift of one channel, `fixed_bytes` those that all
    channels share. In a `folded` layer the taps of a line of the window count as channels of one
    tap, because pixels side by side are bytes side by side: few channels fill more array rows.
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
        """Rows and columns of what is cut into tiles."""
        return self.in_size if self.kind is Kind.MEAN else self.out_size

    @property
    def reach(self) -> Pair:
        """Rows and columns from the first tap of a window to its last, both counted."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return (kh - 1) * dh + 1, (kw - 1) * dw + 1

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return math.prod(self.kernel)

    def folds(self, rows: int, loaded: bool) -> bool:
        """Whether folded taps take fewer blocks of the array's rows."""
        (_, taps), channels = self.kernel, self.in_channels
        across = (self.out_size[1] - 1) * self.strides[1] + self.reach[1] - self.pads[1]
        if not loaded and (self.pads[1] > 0 or across > self.in_size[1]):
            return False  # padding is only laid out where the image is loaded
        blocks = taps * -(-channels // rows), -(-taps * channels // rows)
        return self.kind is Kind.MATMUL and self.dilation[1] == 1 and blocks[1] < blocks[0]

    def flat(self) -> LayerShape:
        """Take all pixels as one line, if each needs only the pixel at its own place."""
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
        out_rows = out_cols = 1  # of each image, also where the result is a matrix
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


@dataclass(frozen=True)
class Tiling:
    """How a layer is cut into tiles.

    A tile has `rows` x `cols` x `channels` of the result, less at the edges; `depth` input channels
    are added up at a time. With 2 `slots` buffers are doubled, so that one fills while the other is
    read. `image_bytes` has the size of a buffer for each input, 0 where the input lies in SRAM.
    Weights come with the tables unless the depth is cut. `sums` are accumulators of a tile.
    """

    rows: int
    cols: int
    channels: int
    depth: int
    slots: int
    image_slots: int
    table_slots: int
    out_slots: int
    sum_slots: int
    table_bytes: int
    weight_bytes: int
    out_bytes: int
    sums: int
    cycles: int
    image_bytes: tuple[int, ...]


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
    """Return the bytes that the smallest tile needs."""
    found = _candidates(shape, (Residency.NHWC,) * (len(shape.in_bytes) + 1), config)
    return int(found.room[found.sums * found.sum_slots <= config.accumulators].min())


@lru_cache(maxsize=4096)
def plan(
    shape: LayerShape, places: tuple[Residency, ...], config: Config, room: int
) -> Tiling | None:
    """Choose the fastest tiling in `room` bytes; `places` are the inputs' and the result's."""
    found = _candidates(shape, places, config)
    kept = (found.room <= room) & (found.sums * found.sum_slots <= config.accumulators)
    if not kept.any():
        return None
    found = SimpleNamespace(**{name: array[..., kept] for name, array in vars(found).items()})
    found.cycles = _cycles(found, shape, places, config)
    followed = found.channels == shape.out_channels
    at = int(np.argmin(np.where(followed, 1, 1 + FOLLOWED) * found.cycles))
    names = [field.name for field in fields(Tiling)[:-1]]
    sizes: dict[str, Any] = {name: int(getattr(found, name)[at]) for name in names}
    return Tiling(**sizes, image_bytes=tuple(found.image_bytes[:, at].tolist()))


def _up(a: Any, b: Any) -> Any:
    return -(-a // b)


def _padded(size: Any) -> Any:
    return _up(size, ALIGNMENT) * ALIGNMENT


def _candidates(
    shape: LayerShape, places: tuple[Residency, ...], config: Config
) -> SimpleNamespace:
    """List tilings worth evaluating, the smallest among them: one array for each size."""
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
    names = ("rows", "cols", "channels", "depth", "slots")
    t = SimpleNamespace(**dict(zip(names, (axis.ravel() for axis in grid), strict=True)))
    zero = 0 * t.rows
    t.down, t.across = _up(size[0], t.rows), _up(size[1], t.cols)
    t.groups = _up(shape.out_channels, t.channels)
    t.steps = _up(shape.in_channels, t.depth) if matmul else zero + 1
    t.in_channels = t.depth if matmul else t.channels
    t.in_rows, t.in_cols = _needed(shape, 0, t.rows), _needed(shape, 1, t.cols)
    pixels = t.in_rows * t.in_cols * t.in_channels
    *sources, last = (place is not Residency.SRAM for place in places)
    buffers = zip(shape.in_bytes, sources, strict=True)
    t.image_bytes = np.stack([_padded(pixels * each) * there for each, there in buffers])
    if matmul:
        weights = _up(t.channels, config.columns) * config.columns * shape.taps * t.depth
    else:
        weights = t.channels * shape.taps * shape.weight_bytes
    tables = t.channels * shape.table_bytes + shape.fixed_bytes
    t.table_bytes = _padded(tables + weights * (t.steps == 1))
    t.weight_bytes = _padded(weights * (t.steps > 1))
    mean = shape.kind is Kind.MEAN
    results = t.channels if mean else t.rows * t.cols * t.channels
    t.out_bytes = _padded(results * shape.out_bytes) * last
    t.sums = results if matmul or mean or shape.kind is Kind.DEPTHWISE else zero
    spots = shape.images * t.down * t.across
    t.image_slots = np.minimum(t.slots, spots * (t.steps if matmul else t.groups))
    # While the array works with one group's tables, the vector unit may need those before them.
    t.table_slots = np.minimum(np.where(t.slots == 2, 3, 1), t.groups)
    t.out_slots = np.minimum(t.slots, (shape.images if mean else spots) * t.groups)
    t.sum_slots = t.out_slots if matmul else zero + 1
    t.room = (
        t.image_bytes.sum(0) * t.image_slots
        + t.table_bytes * t.table_slots
        + t.weight_bytes * t.slots
        + t.out_bytes * t.out_slots
    )
    return t


def _needed(shape: LayerShape, axis: int, size: Ints) -> Ints:
    """Return the rows or columns of the image that a tile needs, at most."""
    if shape.kind is Kind.MEAN:
        return size
    needed: Ints = (size - 1) * shape.strides[axis] + shape.reach[axis]
    # Where taps are folded the padding to the left and right is there, too.
    return needed if shape.folded and axis else np.minimum(needed, shape.in_size[axis])


def _parts(size: int, most: int) -> list[int]:
    """List sizes of parts that cut a size evenly: some of ceil(size / 1), ceil(size / 2) ... 1."""
    found = sorted({_up(size, parts) for parts in range(1, min(size, 4096) + 1)} | {1})
    if len(found) <= most:
        return found
    picked = np.unique(np.geomspace(1, len(found), most).round().astype(int))
    return [found[-i] for i in picked]


def _blocks(size: int, unit: int, most: int) -> list[int]:
    """List sizes of parts that are whole blocks of the machine."""
    return [min(size, unit * part) for part in _parts(_up(size, unit), most)]


def _cycles(
    t: SimpleNamespace, shape: LayerShape, places: tuple[Residency, ...], config: Config
) -> Any:
    spots = shape.images * t.down * t.across
    tiles = spots * t.groups
    transfers, moved = _traffic(t, shape, places, config)
    array, vector = _array(t, shape, config, tiles * t.steps), _vector(t, shape, config, tiles)
    dma = transfers * config.dma_latency + moved / config.dma_bytes_per_cycle
    units = np.stack([array, vector, dma])
    total, slowest = units.sum(0), units.max(0)
    # The first tile is loaded before, and the last is stored after, all the overlap.
    return np.where(t.slots == 2, slowest + ENDS * (total - slowest) / tiles, total) + tiles


def _array(t: SimpleNamespace, shape: LayerShape, config: Config, count: Ints) -> Any:
    if shape.kind is not Kind.MATMUL:
        return count * 0
    pixels = 0
    for rows, downs in _ends(shape.out_size[0], t.rows):
        for cols, acrosses in _ends(shape.out_size[1], t.cols):
            pixels = pixels + downs * acrosses * np.maximum(rows * cols, config.rows)
    outs = sum(n * _up(c, config.columns) for c, n in _ends(shape.out_channels, t.channels))
    if shape.folded:
        blocks = shape.kernel[0] * _up(shape.kernel[1] * shape.in_channels, config.rows)
    else:
        ins = sum(n * _up(c, config.rows) for c, n in _ends(shape.in_channels, t.depth))
        blocks = shape.taps * ins
    return count * (config.rows + config.columns) + shape.images * pixels * blocks * outs


def _vector(t: SimpleNamespace, shape: LayerShape, config: Config, tiles: Ints) -> Any:
    groups = sum(n * _up(c, config.lanes) for c, n in _ends(shape.out_channels, t.channels))
    out, summed = math.prod(shape.out_size), math.prod(shape.in_size)
    instructions, passes = {
        Kind.MATMUL: (1, out),
        Kind.DEPTHWISE: (2, out * (shape.taps + 1)),
        Kind.ADD: (1, out * len(shape.in_bytes)),
        Kind.POOL: (1, out * shape.taps),
        Kind.MEAN: (2, summed + out),
    }[shape.kind]
    return instructions * tiles * config.vector_latency + shape.images * passes * groups


def _traffic(
    t: SimpleNamespace, shape: LayerShape, places: tuple[Residency, ...], config: Config
) -> tuple[Any, Any]:
    """Transfers, and their bytes on the bus: images, tables and weights, results."""
    spots = shape.images * t.down * t.across
    # Tables are loaded once, parts of the weights for each tile.
    parts = spots * t.groups * t.steps * (t.steps > 1)
    count = t.groups * (t.table_bytes > 0) + parts
    moved = t.groups * t.table_bytes + parts * t.weight_bytes
    again = t.groups
    if shape.kind is Kind.MATMUL:
        # Tiles of the image are loaded again for each group of output channels, unless they stay.
        again = np.where((t.down * t.across == 1) & (t.steps == 1), 1, t.groups) * t.steps
    box, size = (t.in_rows, t.in_cols, t.in_channels), shape.image(False)
    for each, place in zip(shape.in_bytes, places[:-1], strict=True):
        if place is not Residency.SRAM:
            count = count + again * spots
            moved = moved + again * spots * _bus(box, size, each, place, config)
    if places[-1] is not Residency.SRAM:
        box, stored = (t.rows, t.cols, t.channels), spots * t.groups
        if shape.kind is Kind.MEAN:
            box, stored = (t.rows * 0 + 1, t.rows * 0 + 1, t.channels), shape.images * t.groups
        size = shape.image(True)
        count = count + stored
        moved = moved + stored * _bus(box, size, shape.out_bytes, places[-1], config)
    return count, moved


def _bus(box: Any, size: Any, each: int, place: Residency, config: Config) -> Any:
    """Bytes on the bus of a box: runs, each of whole bursts."""
    burst = config.dma_burst_bytes
    run = np.full(box[0].shape, each)
    runs, joined = np.ones_like(run), np.ones(run.shape, bool)
    for axis in (1, 0, 2) if place is Residency.NCHW else (2, 1, 0):
        run = np.where(joined, run * box[axis], run)
        runs = np.where(joined, runs, runs * box[axis])
        joined &= box[axis] == size[axis]
    return runs * _up(run, burst) * burst


def _ends(size: int, part: Ints) -> tuple[tuple[Ints, Ints], tuple[Ints, Any]]:
    """Return the sizes of parts and how many there are: the full ones, and what is left."""
    return (part, size // part), (size % part, (size % part > 0).astype(np.int64))
