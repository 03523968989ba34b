"""How a layer is cut into tiles that fit the SRAM and the accumulators.

A tile is a block of rows, columns and channels of the result. A convolution may also cut its input
channels (`depth`): the sums stay in the accumulators while the parts are added. Two loops run over
the tiles: either the weights of some output channels stay and the image streams past them, or a
part of the image stays and the weights stream. Of all cuts that fit, the one is taken that the cost
model (`tvmlab.npu.codegen.cost`) finds the fastest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..config import Config
from ..layers import Layer, Value, View
from . import cost
from .cuts import Cuts
from .work import Kind, Place, Work, of

__all__ = ["COPY", "Tiling", "candidates", "fits", "plan", "smallest"]

#: Bytes of SRAM that a copy from one order to another needs.
COPY = 64

#: What a cut may cost more if the next layer can follow it; found by trying on ResNet-50.
FOLLOWED = 0.01


@dataclass(frozen=True)
class Tiling:
    """How a layer is cut.

    Attributes
    ----------
    rows, cols, channels : int
        The size of a tile of the result; tiles at the edges are smaller.
    depth : int
        Input channels that are added up at a time.
    image_whole, weights_whole : bool
        Whether a tile of the image, or of the weights, is loaded with all its input channels at
        once. Both are true where the depth is not cut.
    image_outer : bool
        Whether a part of the image stays while the weights stream, not the other way around.
    slots : int
        2: buffers are doubled, so that one fills while the other is read. 1: the SRAM is too small.
    image_slots, table_slots, out_slots, sum_slots : int
        How many buffers of each kind there are: no more than there are tiles.
    image_bytes : tuple of int
        Size of a buffer for a tile of each input; 0 where the input lies in SRAM.
    joined : bool
        Whether the weights of a tile come in one buffer with its tables.
    table_bytes, weight_bytes, out_bytes : int
        Sizes of the other buffers: tables, with the weights where they are joined; the weights
        where they are not; the result, 0 where it lies in SRAM.
    sums : int
        Accumulators of a tile.
    cycles : int
        What the cost model says.
    """

    rows: int
    cols: int
    channels: int
    depth: int
    image_whole: bool
    weights_whole: bool
    image_outer: bool
    slots: int
    image_slots: int
    table_slots: int
    out_slots: int
    sum_slots: int
    joined: bool
    image_bytes: tuple[int, ...]
    table_bytes: int
    weight_bytes: int
    out_bytes: int
    sums: int
    cycles: int


def ceil_div(a: int, b: int) -> int:
    """Divide, rounding up."""
    return -(-a // b)


def fits(layer: Layer, values: Mapping[str, Value], config: Config) -> str | None:
    """Say why a layer cannot be cut to fit the machine.

    Parameters
    ----------
    layer : Layer
        Any.
    values : mapping of str to Value
        The values that it reads and makes.
    config : Config
        The machine.

    Returns
    -------
    str or None
        The reason; None if there is a tile that fits.
    """
    for name in (*layer.inputs, layer.output):
        value = values[name]
        size = int(np.prod(value.shape, dtype=object)) * value.dtype.bytes
        if size >= 1 << 31:
            return f"a tensor of {size:,} bytes cannot be addressed: offsets have 31 bits"
    if config.sram_bytes < COPY:
        return f"{config.sram_bytes} bytes of SRAM are too few for any layer"
    if isinstance(layer, View):
        return None
    work = of(layer, values)
    need, window = smallest(work, config)
    if need > config.sram_bytes:
        return (
            f"its smallest tile needs {need:,} bytes of SRAM (a window of "
            f"{work.reach[0]}x{work.reach[1]} over {window:,} channels); there are "
            f"{config.sram_bytes:,}"
        )
    return None


@lru_cache(maxsize=4096)
def smallest(work: Work, config: Config) -> tuple[int, int]:
    """Give the bytes that the smallest tile needs, and the input channels that it takes."""
    cuts = candidates(work, (Place.NHWC,) * (len(work.in_bytes) + 1), config)
    cuts = cuts.only(cuts.sums * cuts.sum_slots <= config.accumulators)
    at = int(np.argmin(cuts.room))
    return int(cuts.room[at]), int(cuts.in_channels[at])


@lru_cache(maxsize=4096)
def plan(work: Work, places: tuple[Place, ...], config: Config, room: int) -> Tiling | None:
    """Choose how to cut a layer.

    Parameters
    ----------
    work : Work
        The layer's sizes.
    places : tuple of Place
        Where its inputs and, last, its result lie.
    config : Config
        The machine.
    room : int
        Bytes of SRAM for the buffers.

    Returns
    -------
    Tiling or None
        The fastest that fits; None if there is none.
    """
    cuts = candidates(work, places, config)
    kept = (cuts.room <= room) & (cuts.sums * cuts.sum_slots <= config.accumulators)
    if not kept.any():
        return None
    cuts = cuts.only(kept)
    cycles = cost.estimate(cuts)
    at = int(np.argmin(np.where(cuts.followed, 1, 1 + FOLLOWED) * cycles))
    return Tiling(
        rows=int(cuts.rows[at]),
        cols=int(cuts.cols[at]),
        channels=int(cuts.channels[at]),
        depth=int(cuts.depth[at]),
        image_whole=bool(cuts.image_whole[at]),
        weights_whole=bool(cuts.weights_whole[at]),
        image_outer=bool(cuts.image_outer[at]),
        slots=int(cuts.slots[at]),
        image_slots=int(cuts.image_slots[at]),
        table_slots=int(cuts.table_slots[at]),
        out_slots=int(cuts.out_slots[at]),
        sum_slots=int(cuts.sum_slots[at]),
        joined=bool(cuts.joined[at]),
        image_bytes=tuple(int(size[at]) for size in cuts.image_bytes),
        table_bytes=int(cuts.table_bytes[at]),
        weight_bytes=int(cuts.weight_bytes[at]),
        out_bytes=int(cuts.out_bytes[at]),
        sums=int(cuts.sums[at]),
        cycles=int(cycles[at]),
    )


def candidates(work: Work, places: tuple[Place, ...], config: Config) -> Cuts:
    """Give all cuts worth a thought, the smallest among them."""
    matmul = work.kind is Kind.MATMUL
    size = work.in_size if work.kind is Kind.MEAN else work.out_size
    channels = _blocks(work.out_channels, config.columns if matmul else config.lanes, 8)
    if work.kind in (Kind.MATMUL, Kind.DEPTHWISE, Kind.MEAN):
        channels = sorted({*channels, min(work.out_channels, config.accumulators)})
    depth = both = [1]
    if work.folded:
        depth = [work.in_channels]
    elif matmul:
        both = [0, 1]
        depth = sorted({1, min(4, work.in_channels), *_blocks(work.in_channels, config.rows, 6)})
    axes = {
        "rows": _parts(size[0], 14),
        "cols": _parts(size[1], 40 if size[0] == 1 else 5),
        "channels": channels,
        "depth": depth,
        "image_whole": both,
        "weights_whole": both,
        "image_outer": [0, 1],
        "slots": [1, 2],
    }
    grid = np.meshgrid(*(np.array(axis, np.int64) for axis in axes.values()), indexing="ij")
    cuts = Cuts(work, places, config, dict(zip(axes, (a.ravel() for a in grid), strict=True)))
    if not matmul:
        return cuts
    # Where the depth is cut, one side at least comes in parts; where it is not, none does.
    whole = cuts.image_whole + cuts.weights_whole
    return cuts.only(np.where(cuts.depth < work.in_channels, whole < 2, whole == 2))


def _parts(size: int, most: int) -> list[int]:
    """Give sizes of parts that cut a size evenly: some of ceil(size / 1), ceil(size / 2) ... 1."""
    found = sorted({ceil_div(size, parts) for parts in range(1, min(size, 4096) + 1)} | {1})
    if len(found) <= most:
        return found
    picked = np.unique(np.geomspace(1, len(found), most).round().astype(int))
    return [found[-i] for i in picked]


def _blocks(size: int, unit: int, most: int) -> list[int]:
    """Give sizes of parts that are whole blocks of the machine."""
    return [min(size, unit * part) for part in _parts(ceil_div(size, unit), most)]
