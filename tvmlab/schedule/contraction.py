"""The rule for convolutions and matrix products: a tile of sums in registers.

This is the last step of the ladder in notebook 02, for any number of outer loops and taps. A tile
of pixels times a few vectors of channels stays in registers over the whole sum. The weights are
read in packed order. Fused operators (bias, residual, ReLU) are computed on the tile before it
is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .compute import CONTRACTION, DOT, TILE, raveled
from .machine import Machine
from .partial_sums import mark_steps
from .prefetch import PART, Ahead
from .tails import mark_few, mark_tail
from .tile_size import OPEN, OPERATOR

__all__ = ["Contraction"]

# Multiply-adds below which starting the threads costs more than they save.
_PARALLEL = 500_000
# Rows that are few.
_FEW = 16
# Most steps of a sum that a search unrolls, and the unlimited size of another loop.
_UNROLLED, _ALL = 8, 1 << 30
# From this many pixels per tile, reading the weights from the L2 cache costs no time.
_MANY = 10
# With more tiles per block of weights than this, the wait of the first tile does not matter.
_TILES = 64
# Loops over the sums of a product of two matrices: rows, one pixel, channels.
_ONE_MATRIX = 3


@dataclass
class Contraction(CPUScheduleRule):
    """Schedule functions with one block of `compute.contraction`.

    Parameters
    ----------
    epilogue : bool
        Whether the operators after the sum are computed in the tile; else in a pass of their own.
    """

    epilogue: bool = True

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | list[s_tir.Schedule] | None:
        """Schedule a function, or return None if it holds no contraction."""
        found = self._schedule(func, target, lambda plan: plan)
        if found is None or not tunable:
            return found[0] if found else None
        spaces = []
        for other in found[1].nests():
            made = self._schedule(func, target, lambda _, other=other: other)  # type: ignore[misc]
            spaces += [made[0]] if made else []
        return spaces

    def _schedule(
        self,
        func: tirx.PrimFunc,
        target: tvm.target.Target,
        change: Callable[[_Plan], _Plan],
    ) -> tuple[s_tir.Schedule, _Plan] | None:
        """Schedule a function by its plan, or by another one; return the schedule and the plan."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        place = loops.find(sch, blocks, CONTRACTION)
        if place is None:
            return None
        machine = Machine.of(target)
        final, beyond = loops.epilogue(sch, blocks[place + 1 :])
        sources = loops.inline_producers(sch, blocks[:place], blocks[place])
        weights = str(sch.get(blocks[place]).reads[-1].source.name)
        for source in [s for s in sources if loops.written(sch, s) == weights]:
            sources.remove(source)
            loops.elementwise(sch, source, machine)
        _join_rows(sch, blocks[place], sources, final)
        plan = change(_Plan.of(sch, blocks[place], bool(sources), machine))
        whole = loops.whole_groups(sch, blocks[place], final, plan.tile[2])
        store = final if self.epilogue and whole else None
        _tile(sch, blocks[place], sources, store, plan, machine)
        for rest in ([final] if store is None else []) + ([beyond] if beyond else []):
            loops.elementwise(sch, rest, machine)
        return sch, plan


@dataclass(frozen=True)
class _Plan:
    """The loops around the register tile."""

    tile: tuple[int, int, int]
    group: int  # blocks of channels whose weights stay in the L2 cache together; 0 for all
    rows: int  # rows of tiles that a thread takes at a time
    chunk: int  # inputs that these rows sum at a time: their weights stay in the L1 cache
    whole: bool  # whether a tile sums all inputs at once, else one chunk for all these rows
    reuse: bool  # whether weights stay in cache for all images, or an image for all weights
    unroll: int  # unrolled steps of a sum
    local: bool  # whether a thread prepares its own part of the input
    ahead: Ahead | None  # how weights are prefetched, or None
    prepared: bool  # whether the input is copied first
    work: int | None  # multiply-adds, from `_PARALLEL` on shared by threads; None: at run time
    lines: int  # lines of a matrix, of which the last tile has fewer; 0 if padded, -1 if open
    sample: bool = False  # whether a search samples the sizes, starting with these

    @classmethod
    def of(cls, sch: s_tir.Schedule, block: Any, prepared: bool, machine: Machine) -> _Plan:
        rows, columns, channels, left = map(int, sch.get(block).annotations[TILE])
        *outer, y, x, o = (loops.extent(sch, loop) for loop in loops.spatial(sch, block))
        *taps, inputs = (loops.extent(sch, k) for k in loops.reduction(sch, block))
        depth = 1
        if DOT in sch.get(block).annotations:
            *taps, inputs, depth = *taps, inputs
        dtype = str(sch.get(block).writes[0].source.dtype)
        size, each = (
            _bytes(region.source) for region in (sch.get(block).reads[-1], sch.get(block).reads[0])
        )
        size *= depth  # of the weights that one step of a sum reads
        steps, wide = (n if isinstance(n, int) else OPEN for n in (inputs, o))
        weights = math.prod(taps) * steps * channels * size
        blocks = wide // channels
        lines = y // rows
        work = loops.work(sch, block)
        if work is None:
            # If a few rows are enough, the long code of all tiles is not written for one thread.
            counts = [loops.extent(sch, loop) for loop in sch.get_loops(block)]
            least = math.prod(n for n in counts if isinstance(n, int)) * _FEW
            work = least if least >= _PARALLEL else None
        elif blocks * weights >= machine.l2:
            # A product with a vector has few operations, and takes as long as its weights are read.
            work = max(work, _PARALLEL)
        known = math.prod(size for size in outer if isinstance(size, int))
        # A thread prepares its own part, if there is one for every thread.
        many = not all(isinstance(n, int) for n in (*outer, y))
        many = many or lines * known >= machine.threads or (work is not None and work < _PARALLEL)
        local = prepared and blocks * weights <= machine.l2 and many
        group = blocks if local else loops.divisor(blocks, machine.l2 // 4 // weights)
        group = group if isinstance(o, int) else 0
        # Either the images are read again for every group, or the weights for every image.
        inside = [*sch.get(block).reads[0].source.shape[1:], *outer[1:]]
        reuse = not outer or not all(isinstance(n, int | tirx.IntImm) for n in inside)
        if not reuse:
            picture = math.prod(int(n) for n in inside) * each // math.prod(outer[1:]) ** 2
            reuse = picture * (blocks // group - 1) <= blocks * weights
        sums = rows * columns * channels // machine.lanes(dtype)
        # LLVM spills large tiles if two steps are unrolled.
        even = steps is inputs and inputs % 2 == 0 and sums <= machine.registers // 2
        unroll = steps if steps <= 4 else 2 if even else 1
        tile = (rows, columns, channels)
        # Packed weights are read once, in their order.
        stored = sch.get(block).reads[-1].source.shape
        once = all(isinstance(n, int | tirx.IntImm) for n in stored)
        once = once and int(stored[-1 if depth == 1 else -2]) == channels
        # An open batch is often 1; more images fetch the same weights again.
        once = once and reuse and (not outer or not isinstance(outer[0], int) or outer[0] == 1)
        ahead = None
        down = lines if isinstance(lines, int) else 0
        # `tails` counts the tiles of an open number of rows, if a tile has several.
        counted = isinstance(x, int) and (isinstance(lines, int) or rows > 1)
        if once and counted and blocks * weights > machine.l1 and down * x // columns <= _TILES:
            step = channels * depth
            many = math.prod(taps) * steps * step
            ahead = Ahead(rows, columns, down, x // columns, step, many)
        if rows * columns < _MANY and math.prod(taps) > 1 and weights > machine.l1:
            # With few pixels at a time, the weights are read often: keep them as near as possible.
            chunk = loops.divisor(steps, machine.l1 // (channels * size))
            few = loops.divisor(lines, 8)
            whole = chunk == steps
            return cls(
                *(tile, group, few, chunk, whole, reuse, unroll),
                *(False, ahead, prepared, work, left),
            )
        together = _share(lines, known, machine.threads) if local and isinstance(y, int) else 1
        return cls(
            *(tile, group, together, steps, True, reuse, unroll),
            *(local, ahead, prepared, work, left),
        )

    def nests(self) -> list[_Plan]:
        """List plans for the same tile: this one, and those with another nesting of the loops."""
        first = replace(self, sample=True)
        others = [replace(first, whole=whole, local=False) for whole in (True, False)]
        if self.prepared:
            others.append(replace(first, whole=True, local=True))
        others += [replace(plan, reuse=not plan.reuse) for plan in [first, *others]]
        if self.ahead:
            others.append(replace(first, ahead=None))
        return list(dict.fromkeys([first, *others]))

    def cut(self, sch: s_tir.Schedule, loop: Any, size: int, most: int) -> tuple[Any, Any, Any]:
        """Split a loop: the inner loop has this size, or a sampled size of at most `most`."""
        whole = loops.extent(sch, loop)
        if not self.sample or not isinstance(whole, int):
            return size, *sch.split(loop, [None, size])
        sizes = sch.sample_perfect_tile(loop, 2, max(most, size), decision=[whole // size, size])
        return sizes[1], *sch.split(loop, sizes)

    def few(self, vectors: int, channels: Any, registers: int, threads: int, batches: bool) -> int:
        """Return the most rows, if their number is open, that take tiles of twice the vectors.

        0 if none do. A search does not try such tiles.
        """
        rows, columns, wide = self.tile
        if not isinstance(channels, int) or self.lines >= 0 or self.local or self.sample:
            return 0
        # A small product is also written for one thread (`work` is None), so that there would be
        # four versions. The tiles of a batch cannot be divided in pairs if its group is odd.
        odd = batches and self.reuse and self.group % 2 > 0
        if not self.whole or self.work is None or columns > 1 or vectors < 2 or odd:
            return 0
        blocks = channels // wide
        # Some threads would wait for the others.
        if blocks % 2 > 0 or 2 * math.ceil(blocks / 2 / threads) > math.ceil(blocks / threads):
            return 0
        return min(rows - 1, (registers - 2 * vectors - 2) // (2 * vectors))


def _join_rows(sch: s_tir.Schedule, block: Any, sources: list[Any], final: Any) -> None:
    """Join the loops over the rows of several matrices that are multiplied as one."""
    if len(loops.spatial(sch, block)) != _ONE_MATRIX:
        return
    for each in (*sources, final):
        *rows, _ = (loops.extent(sch, loop) for loop in loops.spatial(sch, each))
        if len(rows) > 1:
            joined = _as_matrix(rows)
            sch.transform_block_layout(each, joined)
            if each in sources:
                sch.transform_layout(each, ("write", 0), joined)


def _as_matrix(rows: list[Any]) -> tirx.IndexMap:
    """Return the map from the axes of several matrices to those of one."""
    return tirx.IndexMap.from_func(lambda *i: [raveled(i[:-1], rows), i[-1]], ndim=len(rows) + 1)


def _bytes(buffer: Any) -> int:
    """Return the size of a buffer's element in bytes."""
    return int(tvm.DataType(str(buffer.dtype)).bits) // 8


def _share(lines: int, others: int, threads: int) -> int:
    """Choose how many lines to take at a time: many, to repeat little padding, but evenly."""

    def cost(size: int) -> float:
        pieces = lines // size * others
        uneven = math.ceil(pieces / threads) * threads / pieces
        return uneven * (1 + 0.2 / size)

    return min((size for size in range(1, 9) if lines % size == 0), key=cost)


def _tile(
    sch: s_tir.Schedule, block: Any, sources: list[Any], store: Any, plan: _Plan, machine: Machine
) -> None:
    """Tile the sum; compute the sources and the store at the loops that the plan chooses."""
    *outer, y, x, o = loops.spatial(sch, block)
    *taps, k = loops.reduction(sch, block)
    dot, inner = sch.get(block).annotations.get(DOT), []
    if dot is not None:
        *taps, k, depth = *taps, k
        inner = [depth]
        sch.unannotate(block, DOT)
    lanes = machine.lanes(str(sch.get(block).writes[0].source.dtype))
    sch.unannotate(block, TILE)
    sch.unannotate(block, OPERATOR)
    final = store is not None
    if store is None:
        store = sch.cache_write(block, 0, "global")

    rows, columns, channels = plan.tile
    registers = machine.registers - (dot is not None)
    few = plan.few(channels // lanes, loops.extent(sch, o), registers, machine.threads, bool(outer))
    yt, yi = sch.split(y, [None, rows])
    xt, xi = sch.split(x, [None, columns])
    ob, oi = sch.split(o, [None, channels])
    if plan.group:
        blocks, og, ob = plan.cut(sch, ob, plan.group, _ALL)
    else:
        blocks, (og, ob) = 1, sch.split(ob, [1, None])
    ov, ol = sch.split(oi, [None, lanes])
    _, yb, yt = plan.cut(sch, yt, plan.rows, _ALL)
    if plan.whole:
        kc, k = sch.split(k, [1, None])
    else:
        _, kc, k = plan.cut(sch, k, plan.chunk, _ALL)
    sums = [yt, xt, *taps, kc] if plan.whole else [*taps, kc, yt, xt]
    first = [*outer[1:], og, *outer[:1]] if plan.reuse else [*outer, og]
    sch.reorder(*first, yb, ob, *sums, k, yi, xi, ov, ol, *inner)
    together = sch.fuse(*first, yb, *([] if plan.local else [ob]))
    loops.parallel(sch, together, plan.work, _PARALLEL)

    final_rows = -2 if final else -3
    sch.reverse_compute_at(store, xt if plan.whole else together, preserve_unit_loops=True)
    own = loops.written(sch, block) if plan.whole else ""
    within = [yi, sch.get_loops(store)[final_rows]] if plan.whole else [yi]
    loops.vectorize_last(sch, store, lanes)
    for source in sources:
        if plan.local:
            sch.compute_at(source, together, preserve_unit_loops=True)
        loops.prepare(sch, source, machine, parallel=not plan.local)

    for loop in (yi, xi, ov):
        sch.unroll(loop)
    if plan.unroll > 1 or plan.sample:
        _, k, written = plan.cut(sch, k, plan.unroll, _UNROLLED)
        sch.unroll(written)
    if plan.ahead and plan.whole:
        plan.ahead.annotate(sch, k, blocks)
    elif plan.ahead and plan.rows * plan.ahead.across > 1:
        # LLVM keeps the sums of a chunk in registers only in a loop that does not prefetch. A chunk
        # that divides into short parts only is not prefetched: the sums would be stored too often.
        each = loops.divisor(loops.extent(sch, k), PART // plan.unroll)
        steps = each * plan.unroll
        if 2 * steps >= PART:
            part, _ = sch.split(k, [None, each])
            plan.ahead.by_chunks(plan.rows, plan.chunk, steps).annotate(sch, part, 1)
    if plan.lines and mark_tail(sch, yt, within, plan.lines, rows, own) and own and dot is None:
        mark_steps(sch, k, xi, channels // lanes)
    if few > 0:
        mark_few(sch, together, [ov, sch.get_loops(store)[-2]], few)
    if dot is None:
        sch.vectorize(ol)
        sch.decompose_reduction(block, taps[0] if taps else kc)
        return
    whole_block = sch.blockize(ol)
    begin = sch.decompose_reduction(whole_block, taps[0] if taps else kc)
    sch.vectorize(sch.get_loops(sch.get_child_blocks(begin)[0])[-1])
    sch.tensorize(ol, str(dot))
