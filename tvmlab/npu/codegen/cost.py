"""About how many cycles a layer takes, for many ways to cut it at once.

The cycles of each unit follow the machine's formulas; only how tiles at the edges are loaded is
averaged. Where buffers are doubled the units overlap and the slowest counts, plus what comes before
it starts and after it ends; where they are not, all wait for each other.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .cuts import Cuts, Ints, up
from .work import Kind, Place

__all__ = ["estimate"]

Reals = npt.NDArray[np.floating]


def estimate(cuts: Cuts) -> Reals:
    """Estimate a layer's cycles.

    Parameters
    ----------
    cuts : Cuts
        The ways.

    Returns
    -------
    numpy.ndarray
        Cycles, float64, one for each way.
    """
    work, config = cuts.work, cuts.config
    size = work.in_size if work.kind is Kind.MEAN else work.out_size
    down, across, groups, steps = cuts.parts
    spots = work.images * down * across
    tiles = spots * groups
    array = _array(cuts, size, tiles * steps)
    vector = _vector(cuts, tiles)
    loads, moved = _images(cuts, down * work.images, across, groups, steps)
    params, weighed = _weights(cuts, spots, groups, steps)
    stores, stored = _results(cuts, down * work.images, across, groups)
    transfers = loads + params + stores
    rate = config.dma_bytes_per_cycle
    dma = transfers * config.dma_latency + (moved + weighed + stored) / rate
    units = np.stack([np.broadcast_to(unit, tiles.shape) for unit in (array, vector, dma)])
    total, slowest = units.sum(0), units.max(0)
    # The first tile is loaded before, and the last is stored after, all the overlap.
    ends = (total - slowest) / tiles
    found: Reals = np.where(cuts.slots == 2, slowest + ends, total) + tiles
    return found


def _array(cuts: Cuts, size: tuple[int, int], count: Ints) -> Ints:
    """Cycles of the array: exact."""
    work, config = cuts.work, cuts.config
    if work.kind is not Kind.MATMUL:
        return count * 0
    pixels = 0 * count
    for rows, downs in _ends(size[0], cuts.rows):
        for cols, acrosses in _ends(size[1], cuts.cols):
            pixels = pixels + downs * acrosses * np.maximum(rows * cols, config.rows)
    outs = sum(n * up(c, config.columns) for c, n in _ends(work.out_channels, cuts.channels))
    if work.folded:
        blocks = work.kernel[0] * outs * -(-work.kernel[1] * work.in_channels // config.rows)
    else:
        ins = sum(n * up(c, config.rows) for c, n in _ends(work.in_channels, cuts.depth))
        blocks = work.taps * outs * ins
    return count * (config.rows + config.columns) + work.images * pixels * blocks


def _vector(cuts: Cuts, tiles: Ints) -> Ints:
    """Cycles of the vector unit: exact."""
    work, config = cuts.work, cuts.config
    groups = sum(n * up(c, config.lanes) for c, n in _ends(work.out_channels, cuts.channels))
    pixels = work.images * math.prod(work.out_size)
    match work.kind:
        case Kind.MATMUL:
            count, passes = tiles, pixels
        case Kind.DEPTHWISE:
            count, passes = 2 * tiles, pixels * (work.taps + 1)
        case Kind.ADD:
            count, passes = tiles, pixels * len(work.in_bytes)
        case Kind.POOL:
            count, passes = tiles, pixels * work.taps
        case Kind.MEAN:
            count, passes = 2 * tiles, work.images * math.prod(work.in_size) + pixels
    return count * config.vector_latency + passes * groups


def _images(cuts: Cuts, down: Ints, across: Ints, groups: Ints, steps: Ints) -> tuple[Ints, Reals]:
    """Transfers of the inputs, and their bytes on the bus."""
    work = cuts.work
    count, moved = cuts.rows * 0, np.zeros(cuts.rows.shape)
    if work.kind is Kind.MATMUL:
        # Tiles of the image are loaded again for each group of output channels, unless they stay.
        stays = (cuts.image_outer == 1) | (down * across == 1)
        again = np.where(stays & (cuts.image_whole == 1), 1, groups)
        parts = np.where(cuts.image_whole == 1, 1, steps)
        whole = work.in_channels
    else:
        again, parts, whole = groups * 0 + 1, groups, work.in_channels
    rows, cols = cuts.in_rows, cuts.in_cols
    for size, place in zip(work.in_bytes, cuts.places, strict=False):
        if place is Place.SRAM:
            continue
        bus = _bus(cuts, place, (rows, cols, cuts.in_channels), (*work.in_size, whole), size)
        each = again * down * across * parts
        count, moved = count + each, moved + each * bus
    return count, moved


def _weights(cuts: Cuts, spots: Ints, groups: Ints, steps: Ints) -> tuple[Ints, Ints]:
    """Transfers of tables and weights, and their bytes."""
    stays = (cuts.image_outer == 0) | (groups <= cuts.table_slots)
    times = np.where(stays, 1, spots) * groups
    alone = np.where(cuts.image_outer == 0, 1, spots) * groups
    parts = np.where(cuts.weights_whole == 1, alone, spots * groups * steps) * (
        1 - cuts.joined.astype(np.int64)
    )
    count = times * (cuts.table_bytes > 0) + parts
    return count, times * cuts.table_bytes + parts * cuts.weight_bytes


def _results(cuts: Cuts, down: Ints, across: Ints, groups: Ints) -> tuple[Ints, Reals]:
    """Transfers of the result, and their bytes on the bus."""
    work, place = cuts.work, cuts.places[-1]
    if place is Place.SRAM:
        return groups * 0, groups * 0.0
    size = (*work.out_size, work.out_channels)
    if work.kind is Kind.MEAN:
        count, box = work.images * groups, (groups * 0 + 1, groups * 0 + 1, cuts.channels)
    else:
        count, box = down * across * groups, (cuts.rows, cuts.cols, cuts.channels)
    moved: Reals = count * _bus(cuts, place, box, size, work.out_bytes)
    return count, moved


def _bus(
    cuts: Cuts, place: Place, box: tuple[Ints, Ints, Ints], size: tuple[int, int, int], each: int
) -> Reals:
    """Bytes on the bus of a box: runs, each of whole bursts."""
    burst = cuts.config.dma_burst_bytes
    dims = (2, 0, 1) if place is Place.NCHW else (0, 1, 2)
    run = np.full(box[0].shape, each)
    runs, joined = np.ones_like(run), np.ones(run.shape, bool)
    for axis in reversed(dims):
        run = np.where(joined, run * box[axis], run)
        runs = np.where(joined, runs, runs * box[axis])
        joined &= box[axis] == size[axis]
    found: Reals = runs * (up(run, burst) * burst).astype(np.float64)
    return found


def _ends(size: int, part: Ints) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Give the sizes of parts and how many there are: the full ones, and what is left."""
    return (part, size // part), (size % part, (size % part > 0).astype(np.int64))
