"""The rule for pooling, means and other sums over what is not innermost: vectors of channels."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline_contiguous_spatial
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .machine import Machine

__all__ = ["Reduction"]

_PARALLEL = 16_384


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
        *outer, last = spatial
        size = loops.extent(sch, last)
        if isinstance(size, int) and size % lanes == 0:
            vectors = loops.divisor(size // lanes, 4)
            co, ci = sch.split(last, [None, vectors * lanes])
            cv, cl = sch.split(ci, [None, lanes])
            sch.reorder(*outer, co, *reduced, cv, cl)
            sch.unroll(cv)
            sch.vectorize(cl)
            together = sch.fuse(*outer, co)
        else:
            sch.reorder(*outer, *reduced, last)
            together = sch.fuse(*outer) if outer else None
        if together is not None and (work is None or work >= _PARALLEL):
            sch.parallel(together)
        for info in infos[1:]:
            loops.elementwise(sch, info.block_rv, machine)
        sch.decompose_reduction(block, reduced[0])
        return sch
