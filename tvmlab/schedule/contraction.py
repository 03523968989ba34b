"""The rule for convolutions and matrix products: a tile of sums in registers.

It is the last rung of notebook 02's ladder, for any number of outer loops and taps: a tile of
pixels times a few vectors of channels stays in registers over the whole sum, the weights are read
in packed order, and what fusion attached (bias, residual, ReLU) is computed on the tile before it
is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .compute import CONTRACTION, TILE
from .machine import Machine

__all__ = ["Contraction"]

# Multiply-adds below which starting the threads costs more than they save.
_PARALLEL = 500_000


@dataclass
class Contraction(CPUScheduleRule):
    """Schedule functions with one block of `compute.contraction`.

    Parameters
    ----------
    epilogue : bool
        Whether what follows the sum is computed in the tile; else in a pass of its own.
    """

    epilogue: bool = True

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None where it holds no contraction."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        names = [sch.get(block).name_hint for block in blocks]
        if CONTRACTION not in names:
            return None
        machine = Machine.of(target)
        place = names.index(CONTRACTION)
        final = loops.inline_all(sch, blocks[place + 1 :])
        before = loops.inline_producers(sch, blocks[:place])
        plan = _Plan.of(sch, blocks[place], machine)
        whole = loops.whole_groups(sch, blocks[place], final, plan.tile[2])
        store = final if self.epilogue and whole else None
        _tile(sch, blocks[place], store, plan, machine)
        for block in before:
            loops.elementwise(sch, block, machine)
        if store is None:
            loops.elementwise(sch, final, machine)
        return sch


@dataclass(frozen=True)
class _Plan:
    """The loops around the register tile."""

    tile: tuple[int, int, int]
    group: int  # blocks of channels whose weights stay in the L2 cache together
    chunk: int  # inputs summed before the next tile's turn
    rows: int  # rows of tiles that share a chunk of weights; 0: a tile sums everything at once
    unroll: int

    @classmethod
    def of(cls, sch: s_tir.Schedule, block: Any, machine: Machine) -> _Plan:
        rows, columns, channels = (int(size) for size in sch.get(block).annotations[TILE])
        tile = rows, columns, channels
        *_, y, x, o = loops.spatial(sch, block)
        *taps, inputs = [loops.extent(sch, k) for k in loops.reduction(sch, block)]
        dtype = sch.get(block).writes[0].source.dtype
        size = tvm.DataType(str(dtype)).bits // 8
        weights = math.prod(taps) * inputs * channels * size  # of one block of channels
        blocks = loops.extent(sch, o) // channels
        group = loops.divisor(blocks, machine.l2 // weights)
        sums = rows * columns * channels // machine.lanes(str(dtype))
        if (
            rows * columns >= 10
            or weights <= machine.l1 // 2
            or not isinstance(loops.extent(sch, y), int)
        ):
            return cls(tile, group, inputs, 0, 2 if inputs % 2 == 0 else 1)
        # A small tile reads its weights often: keep a part of them in the L1 cache, and let
        # several tiles use it in turn.
        chunk = loops.divisor(inputs, machine.l1 // 4 // (channels * size))
        line = loops.extent(sch, x) * rows * channels * size
        together = loops.divisor(loops.extent(sch, y) // rows, machine.l1 // 2 // line)
        even = chunk % 2 == 0 and sums <= machine.registers // 2
        return cls(tile, group, chunk, together, 2 if even else 1)


def _tile(sch: s_tir.Schedule, block: Any, store: Any, plan: _Plan, machine: Machine) -> None:
    *outer, y, x, o = loops.spatial(sch, block)
    *taps, k = loops.reduction(sch, block)
    work = loops.work(sch, block)
    rows, columns, channels = plan.tile
    lanes = machine.lanes(str(sch.get(block).writes[0].source.dtype))
    sch.unannotate(block, TILE)

    yt, yi = sch.split(y, [None, rows])
    xt, xi = sch.split(x, [None, columns])
    ob, oi = sch.split(o, [None, channels])
    og, ob = sch.split(ob, [None, plan.group])
    ov, ol = sch.split(oi, [None, lanes])
    kc, ki = sch.split(k, [None, plan.chunk])
    tile = [yi, xi, ov, ol]
    if plan.rows:
        yb, yt = sch.split(yt, [None, plan.rows])
        sch.reorder(og, *outer, yb, ob, *taps, kc, yt, xt, ki, *tile)
        together = here = sch.fuse(og, *outer, yb, ob)
    else:
        sch.reorder(og, *outer, yt, ob, xt, *taps, kc, ki, *tile)
        together, here = sch.fuse(og, *outer, yt, ob), xt
    if store is None:
        store = sch.cache_write(block, 0, "global")
    sch.reverse_compute_at(store, here, preserve_unit_loops=True)
    if work is None or work >= _PARALLEL:
        sch.parallel(together)
    for loop in (yi, xi, ov):
        sch.unroll(loop)
    sch.vectorize(ol)
    loops.vectorize_last(sch, store, lanes)
    first = taps[0] if taps else kc
    if plan.unroll > 1:
        _, ki = sch.split(ki, [None, plan.unroll])
        sch.unroll(ki)
    sch.decompose_reduction(block, first)
