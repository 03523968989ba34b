"""Move instructions together so that the units work at the same time.

The program comes as one list in which each instruction follows what it needs. Two walks place it in
phases. Forward, each instruction gets the earliest phase that hazards allow: after every other
unit's instruction that wrote what it reads, or that used what it writes, and not before its own
unit's. A phase has one step of the array and one of the vector unit at most, as two would fill both
halves of a double buffer and then wait for them to be emptied. Backward, transfers move to where
the other units leave them time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .. import isa, simulator
from ..isa import Dtype, Instruction, Rounding, Sync, Unit
from ..program import Kind, Program
from .tiling import granule

#: Pieces of DRAM that are told apart, at most: only the DMA engine is concerned.
_PIECES = 1 << 20
#: The first instruction of a step: the others follow in the same phase or in the next.
_STEPS = (isa.Matmul, isa.Depthwise, isa.Add, isa.Pool, isa.Sum)
_NEVER = (1 << 31) - 1
#: Phases that are looked at for a transfer.
_LOOK = 48
#: Numbers of memories; tensors in DRAM follow.
_SRAM, _SUMS, _DRAM = 0, 1, 2
#: The prefixes of the fields of a view's place, dtype and size, and whether it is written.
_VIEWS: dict[type, tuple[tuple[str, str, str, bool], ...]] = {
    isa.Matmul: (("", "in_", "in_", False),),
    isa.Depthwise: (("", "in_", "in_", False),),
    isa.Requantize: (("", "out_", "", True),),
    isa.Add: (("lhs_", "lhs_", "", False), ("rhs_", "rhs_", "", False), ("out_", "out_", "", True)),
    isa.Pool: (("", "", "in_", False), ("out_", "", "out_", True)),
    isa.Sum: (("", "", "", False),),
}

#: A memory, pieces of it, and whether they are written.
_Span = tuple[int, slice, bool]


def schedule_phases(program: Program) -> Iterator[Instruction]:
    """Order a program's instructions by phases, with a `Sync` between two.

    They come in an order in which they can be executed, without `Sync`.
    """
    pieces, config = _pieces(program), program.config
    spans = [list(_spans(one, pieces, config.columns)) for one in program.instructions]
    earliest = _earliest(program.instructions, spans, _Table(pieces, -1))
    before = False
    for phase in _balanced(program, spans, earliest, _Table(pieces, _NEVER)):
        if phase and before:
            yield Sync(phase[0].layer)
        before |= bool(phase)
        yield from phase


def _pieces(program: Program) -> list[tuple[int, int]]:
    """List the size of each memory, and of its pieces, in bytes; 0 for what is never written."""
    written, config = (Kind.OUTPUT, Kind.SCRATCH), program.config
    sizes = [one.nbytes if one.kind in written else 0 for one in program.tensors]
    piece = max(8, -(-sum(sizes) // _PIECES))
    sums = 4 * config.accumulators, 4 * granule(config.accumulators)
    sram = config.sram_bytes, granule(config.sram_bytes)
    return [sram, sums, *((size, piece) for size in sizes)]


def _spans(one: Instruction, pieces: Sequence[tuple[int, int]], columns: int) -> Iterator[_Span]:
    for memory, start, count, writes in _effects(one, columns):
        size, piece = pieces[memory]
        if size and start >= 0 and count:
            yield memory, slice(start // piece, (start + count - 1) // piece + 1), writes


def _effects(one: Instruction, columns: int) -> Iterator[tuple[int, int, int, bool]]:
    """List what is read and written: memory, first byte, bytes, and whether it is written.

    Between the first and the last byte of a view, all bytes count.
    """
    if isinstance(one, (isa.Load, isa.Store)):
        store = isinstance(one, isa.Store)
        for memory, start, name in (
            (_DRAM + one.tensor, one.offset, "dram"),
            (_SRAM, one.address, "sram"),
        ):
            steps = ((getattr(one, f"count{i}"), getattr(one, f"{name}{i}")) for i in range(4))
            size = one.element + sum((count - 1) * stride for count, stride in steps)
            yield memory, start, size, store == (memory != _SRAM)
    for place, dtype, size, writes in _VIEWS.get(type(one), ()):
        last = (getattr(one, f"{size}rows") - 1) * getattr(one, f"{place}row_stride")
        last += (getattr(one, f"{size}cols") - 1) * getattr(one, f"{place}pixel_stride")
        pixel = one.channels * Dtype(getattr(one, f"{dtype}dtype")).bytes
        yield _SRAM, getattr(one, f"{place}address"), last + pixel, writes
    if isinstance(one, (isa.Matmul, isa.Depthwise)):
        each = -(-one.out_channels // columns) * columns
        if isinstance(one, isa.Depthwise):
            each = Dtype(one.weight_dtype).bytes
        yield _SRAM, one.weights, one.kernel_h * one.kernel_w * one.channels * each, False
        yield _SRAM, one.bias, 4 * one.out_channels, False
        yield _SUMS, 4 * one.sums, 4 * one.out_rows * one.out_cols * one.out_channels, True
    elif isinstance(one, isa.Requantize):
        tables = 4 * (one.channels if one.per_channel else 1)
        if one.rounding != Rounding.NONE:
            double = one.rounding == Rounding.TFLITE_FLOAT64
            yield _SRAM, one.multipliers, tables * (1 + double), False
            yield _SRAM, one.shifts, tables * (one.rounding < Rounding.ONNX), False
        yield _SUMS, 4 * one.sums, 4 * one.rows * one.cols * one.channels, False
    elif isinstance(one, isa.Sum):
        yield _SUMS, 4 * one.sums, 4 * one.channels, True


class _Table:
    """In which phase each piece of each memory is used: the last so far, or the next from here."""

    def __init__(self, pieces: Sequence[tuple[int, int]], start: int) -> None:
        # By memory: written and read, by unit, by piece.
        self.used = [np.full((2, 3, -(-size // piece)), start, np.int32) for size, piece in pieces]


def _earliest(
    instructions: Sequence[Instruction], spans: Sequence[Sequence[_Span]], table: _Table
) -> list[int]:
    """Return the earliest phase of each instruction."""
    found = []
    taken: dict[Unit, dict[int, int]] = {Unit.ARRAY: {}, Unit.VECTOR: {}}
    for one, touched in zip(instructions, spans, strict=True):
        phase, unit = 0, int(one.unit)
        for memory, span, writes in touched:
            # A write waits for reads as well.
            used = table.used[memory][: 1 + writes, :, span].max((0, 2)).tolist()
            for other, last in enumerate(used):
                phase = max(phase, last if other == unit else last + 1)
        if isinstance(one, _STEPS):
            phase = _free(taken[one.unit], phase)
        for memory, span, writes in touched:
            part = table.used[memory][0 if writes else 1, unit, span]
            np.maximum(part, phase, out=part)
        found.append(phase)
    return found


def _free(following: dict[int, int], phase: int) -> int:
    """Take the first free phase from a given one on; `following` leads on from those taken."""
    at = phase
    while at in following:
        at = following[at]
    # A later search starts at the end of the row.
    while phase < at:
        following[phase], phase = at + 1, following[phase]
    following[at] = at + 1
    return at


def _balanced(
    program: Program, spans: Sequence[Sequence[_Span]], earliest: Sequence[int], table: _Table
) -> list[list[Instruction]]:
    """Place everything: steps where they are, transfers where there is time for them."""
    cycles, count = simulator.cycles(program), max(earliest, default=-1) + 1
    busy = np.zeros((3, count), np.int64)
    for one, phase, length in zip(program.instructions, earliest, cycles, strict=True):
        if one.unit is not Unit.DMA:
            busy[one.unit, phase] += length
    # Cycles of transfers that do not make a phase longer.
    slack = busy.max(0, initial=0)
    phases: list[list[Instruction]] = [[] for _ in range(count)]
    for at, one in reversed(list(enumerate(program.instructions))):
        phase = earliest[at]
        if one.unit is Unit.DMA:
            last = count - 1
            for memory, span, writes in spans[at]:
                used = table.used[memory][: 1 + writes, :, span].min((0, 2)).tolist()
                for other, then in enumerate(used):
                    last = min(last, then if other == Unit.DMA else then - 1)
            first = max(phase, last - _LOOK + 1)
            found = slack[first : last + 1][::-1]
            # The latest phase that has the time, else the one that has the most.
            enough = found >= cycles[at]
            phase = last - int(np.argmax(enough) if enough.any() else found.argmax())
            slack[phase] -= cycles[at]
        phases[phase].append(one)
        for memory, span, writes in spans[at]:
            part = table.used[memory][0 if writes else 1, int(one.unit), span]
            np.minimum(part, phase, out=part)
    return [placed[::-1] for placed in phases]
