"""The rule for pooling, means and other reductions: vectors of what is innermost."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline_contiguous_spatial
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .machine import Machine

__all__ = ["Reduction"]


# Vectors that are summed at once, so that a sum need not wait for the one before it.
_VECTORS = 4


class Reduction(CPUScheduleRule):
    """Schedule functions with one reduction, and element-wise blocks around it."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None where it has another form."""
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
            vectors = loops.divisor(size // lanes, _VECTORS)
            co, ci = sch.split(last, [None, vectors * lanes])
            cv, cl = sch.split(ci, [None, lanes])
            sch.reorder(*outer, co, *reduced, cv, cl)
            sch.unroll(cv)
            sch.vectorize(cl)
            together = sch.fuse(*outer, co)
        else:
            sch.reorder(*outer, *reduced, last)
            together = sch.fuse(*outer) if outer else None
        if together is not None and (work is None or work >= loops.PARALLEL):
            sch.parallel(together)
        sch.decompose_reduction(block, reduced[0])
        return sch


def _innermost(sch: s_tir.Schedule, block: Any) -> bool:
    """Tell whether neighbours in memory are reduced to one number."""
    found = sch.get(block)
    index = found.reads[0].region[-1].min
    reduced = [var.var for var in found.iter_vars if var.iter_type == tirx.IterVar.CommReduce]
    return any(var.same_as(index) for var in reduced)


def _rows(sch: s_tir.Schedule, block: Any, lanes: int, work: int | None) -> None:
    """Reduce row by row: each to a few vectors first, where these divide it."""
    *_, last = loops.reduction(sch, block)
    size = loops.extent(sch, last)
    spatial = loops.spatial(sch, block)
    rank, partial = len(spatial), None
    # For a single row there is nothing that the vectors could be summed beside of.
    many = any(loops.extent(sch, loop) != 1 for loop in spatial)
    if many and isinstance(size, int) and size % lanes == 0 and size > lanes:
        _, lane = sch.split(last, [None, lanes * loops.divisor(size // lanes, _VECTORS)])
        with suppress(s_tir.ScheduleError):  # a reducer that TVM does not know keeps its order
            partial = sch.rfactor(lane, rank)
    together = sch.fuse(*sch.get_loops(block)[:rank])
    if work is None or work >= loops.PARALLEL:
        sch.parallel(together)
    if partial is None:
        return
    sch.compute_at(partial, together, preserve_unit_loops=True)
    lane, *reduced = sch.get_loops(partial)[1 + rank :]
    vectors, lane = sch.split(lane, [None, lanes])
    sch.reorder(*reduced, vectors, lane)
    sch.unroll(vectors)
    sch.vectorize(lane)
    sch.decompose_reduction(partial, reduced[0])
