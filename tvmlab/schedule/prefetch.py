"""Fetch weights from memory while the sums before them are computed.

Late layers of a network have few pixels and many weights. The first tile of pixels waits while a
block of weights is read from memory; the other tiles read it from the cache, and the memory is
idle. Therefore the tiles prefetch the next block while they work on the current one, a little with
each step of the sum: the processor's own prefetcher cannot predict the next block. If a chunk of
the weights serves several rows of tiles from the L1 cache, the tiles prefetch the next chunk. A
single tile of pixels that does not prefetch every line leaves most lines to the processor's
prefetcher, and prefetches one page ahead, where that one stops. If it reads two blocks at the same
time, it prefetches for both.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from .compute import sizes
from .rebuild import loop_with, replaced

__all__ = ["LINE", "PART", "Ahead", "count_tiles", "fetch", "fetch_ahead", "two_streams"]

#: The annotation of the loop over the steps of a sum that prefetches.
AHEAD = "tvmlab.ahead"
#: Numbers of 4 bytes in a line of the cache.
LINE = 16
#: Steps of a chunk's sum between two prefetches, at most.
PART = 16
# Lines of the cache in a page of memory.
_PAGE = 64
# Arguments of LLVM's prefetch: read, second-level cache, data.
_READ, _LEVEL, _DATA = 0, 2, 1


@dataclass(frozen=True)
class Ahead:
    """The order in which a scheduled contraction reads its packed weights.

    Attributes
    ----------
    rows, columns : int
        Pixels of a tile.
    down, across : int
        Tiles that read the same weights. If the number of rows is known only at run time, `down` is
        zero until `count_tiles` sets it.
    step, many : int
        Weights of one step of a sum, and of all steps until the next block or chunk.
    lines : int
        Lines of the cache that an iteration of the marked loop fetches.
    streams : int
        Blocks that a tile reads at the same time.
    """

    rows: int
    columns: int
    down: Any  # int, or an expression of the number of rows
    across: int
    step: int
    many: int
    lines: int = 1
    streams: int = 1

    def by_chunks(self, rows: int, steps: int, part: int) -> Ahead:
        """Return the order for chunks of `steps`, which `rows` rows of tiles read.

        A tile prefetches once in `part` steps.
        """
        lines = math.ceil(part * self.step / (rows * self.across * LINE))
        return replace(self, down=rows, many=steps * self.step, lines=lines)

    def annotate(self, sch: s_tir.Schedule, loop: Any, blocks: Any) -> None:
        """Mark the loop over the steps of a sum, for `fetch_ahead`."""
        sch.annotate(loop, AHEAD, [*astuple(self), blocks])

    def _instructions(self, body: tirx.Stmt, blocks: int) -> list[tirx.Stmt]:
        """Return the statements that prefetch the next blocks in one iteration of a loop."""
        inner: list[tirx.For] = []
        found: list[s_tir.SBlockRealize] = []
        kinds = ((tirx.For, inner.append), (s_tir.SBlockRealize, found.append))
        tvm_ffi.structural_walk(body, kinds)
        update = max(found, key=lambda realize: len(realize.block.iter_vars))
        pairs = list(zip(update.block.iter_vars, update.iter_values, strict=True))
        zero = tirx.const(0, "int64")

        def outside(expr: tirx.PrimExpr) -> tirx.PrimExpr:
            """Rewrite a block's expression in terms of the loops around it, at iteration 0."""
            expr = replaced(expr, [(var.var, value) for var, value in pairs])
            return replaced(expr, [(loop.loop_var, zero) for loop in inner])

        y, x = [outside(v) for var, v in pairs if var.iter_type == tirx.IterVar.DataPar][-3:-1]
        weights = update.block.reads[-1]
        shape = sizes(weights.source.shape)
        place = sum(
            outside(axis.min) * math.prod(shape[i + 1 :]) for i, axis in enumerate(weights.region)
        )
        # Each tile fetches its share, evenly over its steps.
        row = tirx.floordiv(y, self.rows)
        row = tirx.floormod(row, self.down) if isinstance(self.down, int) else row
        tile = row * self.across + tirx.floordiv(x, self.columns)
        many = self.many * blocks
        done = tirx.floordiv(tirx.floormod(place, many), self.step)
        tiles = self.down * self.across
        share = tile * (many // tiles) + done * (self.step // tiles)
        ahead = zero + many
        line = LINE * 32 // int(tvm.DataType(str(weights.source.dtype)).bits)
        # A page would be too late for a tile that prefetches every line itself.
        if self.step > self.lines * line:
            ahead = tirx.Select(tiles == 1, zero + _PAGE * line, ahead)
        next_ = tirx.floordiv(place, many) * many + ahead + share
        first = [zero] * (len(shape) - 1)
        starts = (stream * self.many for stream in range(self.streams))
        places = ([*first, next_ + at + line * LINE] for at in starts for line in range(self.lines))
        loads = [tirx.BufferLoad(weights.source, place) for place in places]
        return [tirx.Evaluate(fetch(load)) for load in loads]


def fetch(number: Any) -> Any:
    """Return the instruction that fetches a number of a buffer.

    Only its address is used, so that the number can be outside the buffer.
    """
    flags = (tirx.const(flag, "int32") for flag in (_READ, _LEVEL, _DATA))
    return tirx.call_llvm_intrin("void", "llvm.prefetch", tirx.address_of(number), *flags)


def count_tiles(stmt: tirx.Stmt, rows: Any) -> tirx.Stmt:
    """Complete the marks of `Ahead.annotate` with a number of rows that is known at run time."""

    def rewrite(loop: tirx.For) -> tirx.For:
        if AHEAD not in loop.annotations:
            return loop
        size, columns, _, *rest = loop.annotations[AHEAD]
        tiles = tirx.ceildiv(rows, int(size))
        return loop_with(loop, loop.body, marks={AHEAD: [size, columns, tiles, *rest]})

    changed: tirx.Stmt = tvm_ffi.structural_map(stmt, (tirx.For, rewrite))
    return changed


def two_streams(loop: tirx.For) -> tirx.For:
    """Let a loop that `Ahead.annotate` marked prefetch two blocks of weights for a single tile."""
    *parts, blocks = loop.annotations[AHEAD]
    ahead = replace(Ahead(*parts), down=1, streams=2)
    return loop_with(loop, loop.body, marks={AHEAD: [*astuple(ahead), blocks]})


def fetch_ahead(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Add prefetches to every loop of a function that `Ahead.annotate` marked."""

    def rewrite(loop: tirx.For) -> tirx.For:
        if AHEAD not in loop.annotations:
            return loop
        *parts, blocks = sizes(loop.annotations[AHEAD])
        body = tirx.SeqStmt([*Ahead(*parts)._instructions(loop.body, blocks), loop.body])
        return loop_with(loop, body, without=(AHEAD,))

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, rewrite)))
