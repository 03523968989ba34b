"""Split the sums of a few rows into partial sums, which a processor adds at the same time.

An addition takes several cycles, and waits for the one before it in the same sum. A tile of many
rows has enough sums to fill these cycles. The last tile of a matrix can have a single row. Then
each sum is split: of four partial sums, each adds every fourth product. So the order of a sum, and
with it the last bits of a float, depend on how many rows the last tile has.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from . import loops
from .prefetch import AHEAD
from .rebuild import block_with, loop_with, replaced

__all__ = ["PIXEL_LOOP", "STEP_LOOP", "mark_steps", "split_sums"]

# The annotations of the loop over the steps of a sum, with the number of a tile's vectors in a row;
# and of the loop over the single pixel of each row: the partial sums are stored as its pixels.
STEP_LOOP, PIXEL_LOOP = "tvmlab.steps", "tvmlab.pixel"
# Vectors that a core adds at the same time: two in each of four cycles.
_CHAINS = 8


def mark_steps(sch: s_tir.Schedule, steps: Any, pixel: Any, vectors: int) -> None:
    """Mark the loops along which `split_sums` splits."""
    sch.annotate(steps, STEP_LOOP, vectors)
    sch.annotate(pixel, PIXEL_LOOP, 1)


def split_sums(stmt: tirx.Stmt, sums: tirx.Buffer, rows: int) -> tuple[tirx.Stmt, tirx.Buffer]:
    """Compute a tile of `rows` rows with partial sums, if it is marked and has few rows.

    Return the statement and the buffer to use in place of `sums`, which is of a tile alone.
    """
    *outer, pixels, channels = sums.shape
    many = _parts(stmt, rows)
    shape = [*outer, tirx.const(many, "int64") if many > 1 else pixels, channels]
    own = tirx.decl_buffer(shape, sums.dtype, f"{sums.name}_tail", scope=sums.scope())
    if many > 1:
        spread = tvm_ffi.structural_map(stmt, (tirx.For, lambda loop: _spread(loop, many)))
        stmt = tvm_ffi.structural_map(spread, (s_tir.SBlock, lambda b: _added(b, sums, many)))
    return replaced(stmt, [(sums, own)]), own


def _parts(stmt: tirx.Stmt, rows: int) -> int:
    """Return how many partial sums each sum of this many rows should have."""
    every = _loops(stmt)
    steps = [loop for loop in every if STEP_LOOP in loop.annotations]
    pixels = [loop for loop in every if PIXEL_LOOP in loop.annotations]
    if len(steps) != 1 or not isinstance(steps[0].extent, tirx.IntImm):
        return 1
    if any(not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) != 1 for loop in pixels):
        return 1
    wanted = _CHAINS // (rows * int(steps[0].annotations[STEP_LOOP]))
    return loops.divisor(int(steps[0].extent), max(1, wanted))


def _loops(stmt: tirx.Stmt) -> list[tirx.For]:
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(stmt, (tirx.For, found.append))
    return found


def _spread(loop: tirx.For, many: int) -> tirx.For:
    """Make the loop over a pixel one over partial sums, and each step one of each of them."""
    if PIXEL_LOOP in loop.annotations:
        return loop_with(loop, loop.body, extent=tirx.IntImm(str(loop.extent.ty.dtype), many))
    if STEP_LOOP not in loop.annotations:
        return loop
    (part,) = (one.loop_var for one in _loops(loop.body) if PIXEL_LOOP in one.annotations)
    step = loop.loop_var
    body = replaced(loop.body, [(step, step * many + part)])
    # The weights of few rows are read in their order, which the processor's prefetcher predicts.
    extent = tirx.IntImm(str(loop.extent.ty.dtype), int(loop.extent) // many)
    return loop_with(loop, body, without=(AHEAD,), extent=extent)


def _up_to(size: int) -> tvm.ir.Range:
    return tvm.ir.Range(tirx.const(0, "int64"), tirx.const(size, "int64"))


def _added(block: s_tir.SBlock, sums: tirx.Buffer, many: int) -> s_tir.SBlock:
    """Let a block compute partial sums, or read them and add them."""
    if any(region.source.same_as(sums) for region in block.writes):
        return _partial(block, many)
    return _whole(block, sums, many)


def _partial(block: s_tir.SBlock, many: int) -> s_tir.SBlock:
    """Let a block that computes sums have as many pixels as there are partial sums."""
    old = [var for var in block.iter_vars if var.iter_type == tirx.IterVar.DataPar][-2]
    new = tirx.IterVar(_up_to(many), old.var, tirx.IterVar.DataPar)
    axes = [new if var.same_as(old) else var for var in block.iter_vars]
    return block_with(block, block.body, axes=axes)


def _whole(block: s_tir.SBlock, sums: tirx.Buffer, many: int) -> s_tir.SBlock:
    """Let a block that reads sums add the partial ones."""

    def added(load: tvm.ir.TensorLoad) -> Any:
        if not load.source.same_as(sums):
            return load
        *row, _, channel = load.indices
        places = (tirx.const(n, "int64") for n in range(many))
        return reduce(add, (tirx.BufferLoad(sums, [*row, n, channel]) for n in places))

    def region(read: tirx.BufferRegion) -> tirx.BufferRegion:
        if not read.source.same_as(sums):
            return read
        *row, _, channel = read.region
        return tirx.BufferRegion(sums, [*row, _up_to(many), channel])

    body = tvm_ffi.structural_map(block.body, (tvm.ir.TensorLoad, added))
    return block_with(block, body, reads=[region(read) for read in block.reads])
