"""The rule for Winograd's transforms: a square of pixels, a vector of channels, in registers."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .machine import Machine
from .winograd import INPUT, OUTPUT

__all__ = ["WinogradTransform"]


class WinogradTransform(CPUScheduleRule):
    """Schedule functions that hold a transform of `winograd.Squares`.

    The points of a square are written out, so that of a transform's matrix only additions and a few
    multiplications are left.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None where it holds no such transform."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        names = [sch.get(block).name_hint for block in blocks]
        machine = Machine.of(target)
        if INPUT[0] in names:
            _input(sch, blocks, names.index(INPUT[0]), machine)
        elif OUTPUT[0] in names:
            _output(sch, blocks, names.index(OUTPUT[0]), machine)
        else:
            return None
        return sch


def _input(sch: s_tir.Schedule, blocks: list[Any], place: int, machine: Machine) -> None:
    """Transform squares: for each row of them, the pixels are padded first."""
    lanes = machine.lanes("float32")
    half, block = blocks[place : place + 2]
    work = loops.work(sch, block)
    sources = loops.inline_producers(sch, blocks[:place], half)
    n, e, f, y, x, c = sch.get_loops(block)
    c, lane = sch.split(c, [None, lanes])
    sch.reorder(n, y, x, e, c, f, lane)
    together = sch.fuse(n, y)
    if work is None or work >= loops.PARALLEL:
        sch.parallel(together)
    sch.compute_at(half, c, preserve_unit_loops=True)
    for source in sources:
        sch.compute_at(source, together, preserve_unit_loops=True)
        loops.vectorize_last(sch, source, lanes)
    _write_out(sch, half)
    for loop in (e, f):
        sch.unroll(loop)
    sch.vectorize(lane)


def _output(sch: s_tir.Schedule, blocks: list[Any], place: int, machine: Machine) -> None:
    """Transform sums back; what fusion attached is computed in the square."""
    lanes = machine.lanes("float32")
    half, whole, *after = blocks[place:]
    work = loops.work(sch, whole)
    size = loops.extent(sch, sch.get_loops(half)[2])
    final, beyond = loops.epilogue(sch, after)
    n, y, x, o = sch.get_loops(final)
    (y, i), (x, j) = (sch.split(loop, [None, size]) for loop in (y, x))
    o, lane = sch.split(o, [None, lanes])
    sch.reorder(n, y, x, o, i, j, lane)
    together = sch.fuse(n, y)
    if work is None or work >= loops.PARALLEL:
        sch.parallel(together)
    for block in (whole, half):
        sch.compute_at(block, i, preserve_unit_loops=True)
        _write_out(sch, block)
    for loop in (i, j):
        sch.unroll(loop)
    sch.vectorize(lane)
    if beyond:
        loops.elementwise(sch, beyond, machine)


def _write_out(sch: s_tir.Schedule, block: Any) -> None:
    """Unroll the few loops of a block in a square, and make a vector of its channels."""
    *points, lane = sch.get_loops(block)[-4:]
    for loop in points:
        if loops.extent(sch, loop) > 1 and sch.get(loop).kind == tirx.ForKind.SERIAL:
            sch.unroll(loop)
    sch.vectorize(lane)
