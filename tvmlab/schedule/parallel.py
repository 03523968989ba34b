"""The plainest rule of all: spread the outer loops over the threads, and tile nothing."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops

__all__ = ["Parallel"]


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
