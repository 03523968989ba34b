"""The rules for element-wise arithmetic and data movement, and for what no other rule takes."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import try_inline
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .machine import Machine

__all__ = ["ElementWise", "Parallel"]


class ElementWise(CPUScheduleRule):
    """Schedule functions whose blocks each compute a number from the numbers at a few places."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None where a block reduces."""
        sch = s_tir.Schedule(func)
        infos = normalize_prim_func(sch)
        if infos is None or not all(info.is_injective() for info in infos):
            return None
        # A sum over one number passes for injective; what follows, inlined into it, would be
        # computed twice: with its initial value, and with its only update.
        if any(sch.get(info.block_rv).init is not None for info in infos):
            return None
        machine = Machine.of(target)
        for info in try_inline(sch, infos):
            loops.elementwise(sch, info.block_rv, machine)
        return sch


class Parallel(CPUScheduleRule):
    """Schedule any function: every block's spatial loops but the last run in parallel.

    It is the step ``parallel`` of the ladder, and takes what no other rule is made for.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function."""
        sch = s_tir.Schedule(func)
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
