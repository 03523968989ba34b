"""The rules for depthwise convolutions, reductions, element-wise and all other functions."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline, try_inline_contiguous_spatial
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .compute import DEPTHWISE, TILE
from .machine import Machine

__all__ = ["Depthwise", "ElementWise", "Parallel", "Reduction"]

# Multiply-adds of a depthwise convolution below which starting the threads costs more than they
# save, and rows that a thread pads at once.
_DEPTHWISE_PARALLEL, _ROWS = 100_000, 8


class Depthwise(CPUScheduleRule):
    """Keep a row of pixels times one vector of channels in registers."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None if it holds no depthwise convolution."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        place = loops.find(sch, blocks, DEPTHWISE)
        if place is None:
            return None
        block = blocks[place]
        store, beyond = loops.epilogue(sch, blocks[place + 1 :])
        before = loops.inline_producers(sch, blocks[:place], block)
        _, columns, step = (int(size) for size in sch.get(block).annotations[TILE])
        sch.unannotate(block, TILE)
        work = loops.work(sch, block)
        n, y, x, c = loops.spatial(sch, block)
        ky, kx = loops.reduction(sch, block)
        height = loops.extent(sch, y)
        yo, yi = sch.split(y, [None, loops.divisor(height, _ROWS)])
        xt, xi = sch.split(x, [None, columns])
        cb, ci = sch.split(c, [None, step])
        sch.reorder(n, yo, yi, cb, xt, ky, kx, xi, ci)
        together = sch.fuse(n, yo)
        sch.reverse_compute_at(store, xt, preserve_unit_loops=True)
        for pad in before:
            sch.compute_at(pad, together)
            loops.vectorize_last(sch, pad, step)
        loops.parallel(sch, together, work, _DEPTHWISE_PARALLEL)
        for loop in (ky, kx, xi):
            sch.unroll(loop)
        sch.vectorize(ci)
        loops.vectorize_last(sch, store, step)
        if beyond:
            loops.elementwise(sch, beyond, Machine.of(target))
        sch.decompose_reduction(block, ky)
        return sch


class Reduction(CPUScheduleRule):
    """Schedule functions with one reduction, and element-wise blocks around it."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None if it has another structure."""
        sch = s_tir.Schedule(func)
        infos = try_inline_contiguous_spatial(sch, normalize_prim_func(sch))
        kinds = ["R" in info.dom_kind() for info in infos or []]
        if kinds not in ([True], [True, False]):
            return None
        machine = Machine.of(target)
        block = infos[0].block_rv
        lanes = machine.lanes(str(sch.get(block).writes[0].source.dtype))
        work = loops.work(sch, block)
        spatial, reduced = loops.spatial(sch, block), loops.reduction(sch, block)
        if not spatial:
            return None
        for info in infos[1:]:
            loops.elementwise(sch, info.block_rv, machine)
        if _innermost(sch, block):
            _rows(sch, block, lanes, work)
            return sch
        *outer, last = spatial
        size = loops.extent(sch, last)
        if isinstance(size, int) and size % lanes == 0:
            together = sch.fuse(*outer, loops.vector_sums(sch, last, reduced, lanes))
        else:
            sch.reorder(*outer, *reduced, last)
            together = sch.fuse(*outer) if outer else None
        if together is not None:
            loops.parallel(sch, together, work)
        sch.decompose_reduction(block, reduced[0])
        return sch


def _innermost(sch: s_tir.Schedule, block: Any) -> bool:
    """Return whether the reduction runs over contiguous elements."""
    found = sch.get(block)
    index = found.reads[0].region[-1].min
    reduced = [var.var for var in found.iter_vars if var.iter_type == tirx.IterVar.CommReduce]
    return any(var.same_as(index) for var in reduced)


def _rows(sch: s_tir.Schedule, block: Any, lanes: int, work: int | None) -> None:
    """Reduce row by row: each row to a few vectors first, if these divide it."""
    every = loops.reduction(sch, block)
    last, is_open = every[-1], any(not isinstance(loops.extent(sch, k), int) for k in every)
    size = loops.extent(sch, last)
    spatial = loops.spatial(sch, block)
    rank, sums = len(spatial), []
    # A single row offers no other rows to sum in parallel.
    many = any(loops.extent(sch, loop) != 1 for loop in spatial)
    if many and isinstance(size, int) and size % lanes == 0 and size > lanes:
        vectors = loops.divisor(size // lanes, loops.VECTORS)
        _, lane = sch.split(last, [None, vectors * lanes])
        with suppress(s_tir.ScheduleError):  # a reducer that TVM does not recognize keeps its order
            sums.append(sch.rfactor(lane, rank))
            if vectors > 1:
                _, lane = sch.split(sch.get_loops(block)[-1], [None, lanes])
                sums.append(sch.rfactor(lane, rank))
    together = sch.fuse(*sch.get_loops(block)[:rank])
    loops.parallel(sch, together, work)
    for partial in reversed(sums):
        sch.compute_at(partial, together, preserve_unit_loops=True)
        _, lane, *rest = sch.get_loops(partial)  # `rfactor` puts the lane first
        kinds = [var.iter_type for var in sch.get(partial).iter_vars[1:]]
        found = zip(rest, kinds, strict=True)
        reduced = [loop for loop, kind in found if kind == tirx.IterVar.CommReduce]
        vector, lane = sch.split(lane, [None, lanes])
        sch.reorder(*reduced, vector, lane)
        sch.unroll(vector)
        sch.vectorize(lane)
        sch.decompose_reduction(partial, reduced[0])
    if is_open:  # a sum of no numbers is initialized as well
        sch.decompose_reduction(block, every[0])


class ElementWise(CPUScheduleRule):
    """Schedule functions whose blocks compute each number from numbers at a few positions."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None if a block reduces."""
        sch = s_tir.Schedule(func)
        if func.attrs.get(loops.VIEW, False):
            return sch
        infos = normalize_prim_func(sch)
        if infos is None or not all(info.is_injective() for info in infos):
            return None
        # A sum over one number counts as injective. Blocks that are inlined into it would be
        # computed twice: in its initial value, and in its only update.
        if any(sch.get(info.block_rv).init is not None for info in infos):
            return None
        machine = Machine.of(target)
        for info in try_inline(sch, infos):
            loops.elementwise(sch, info.block_rv, machine)
        return sch


class Parallel(CPUScheduleRule):
    """Schedule any function: every block's spatial loops but the last run in parallel.

    This is the step ``parallel`` of the ladder, for functions that match no other rule.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function."""
        sch = s_tir.Schedule(func)
        loops.start_sums(sch)
        for block in loops.blocks(sch):
            if len(sch.get_loops(block)) != len(sch.get(block).iter_vars):
                continue  # no loop nest of its own
            spatial = loops.spatial(sch, block)
            reduced = loops.reduction(sch, block)
            work = loops.work(sch, block)
            if len(spatial) > 1 and (work is None or work >= loops.PARALLEL):
                sch.reorder(*spatial, *reduced)
                sch.parallel(sch.fuse(*spatial[:-1]))
        return sch
