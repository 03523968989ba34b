"""The rule for depthwise convolutions: a row of pixels and one vector of channels in registers."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .compute import DEPTHWISE, TILE
from .machine import Machine

__all__ = ["Depthwise"]

# Multiply-adds below which starting the threads costs more than they save.
_PARALLEL = 100_000
# Rows that a thread pads at once.
_ROWS = 8


class Depthwise(CPUScheduleRule):
    """Schedule functions with one block of `compute.depthwise`."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None where it holds no depthwise convolution."""
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
        if work is None or work >= _PARALLEL:
            sch.parallel(together)
        for loop in (ky, kx, xi):
            sch.unroll(loop)
        sch.vectorize(ci)
        loops.vectorize_last(sch, store, step)
        if beyond:
            loops.elementwise(sch, beyond, Machine.of(target))
        sch.decompose_reduction(block, ky)
        return sch
