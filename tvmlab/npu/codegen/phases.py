"""Move instructions together so that the units work at the same time.

The program comes as one list in which each instruction follows what it needs. Two walks place it in
phases. Forward, each instruction gets the earliest phase that hazards allow: after every other
unit's instruction that wrote what it reads, or that used what it writes, and not before its own
unit's. A phase has one step of the array and one of the vector unit at most, as two would fill both
halves of a double buffer and then wait for them to be emptied. Backward, transfers move to where
the other units leave them time, and are cut in pieces where no single phase does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .. import isa
from ..config import Config
from ..isa import Instruction, Sync, Unit
from ..program import Dram, Kind
from .cuts import grain
from .effects import effects
from .gaps import Gaps
from .timing import cycles

__all__ = ["overlap"]

#: Pieces of DRAM that are told apart, at most: only the DMA engine is concerned.
PIECES = 1 << 20
#: What begins a step: the others follow in the same phase or in the next.
STEPS = (isa.Matmul, isa.Depthwise, isa.Add, isa.Pool, isa.Sum)
NEVER = (1 << 31) - 1


def overlap(
    instructions: Sequence[Instruction], tensors: Sequence[Dram], config: Config
) -> Iterator[Instruction]:
    """Order instructions by phases, with a `Sync` between two.

    Parameters
    ----------
    instructions : sequence of Instruction
        In an order in which they can be executed, without `Sync`.
    tensors : sequence of Dram
        The program's.
    config : Config
        The machine.

    Yields
    ------
    Instruction
        The same instructions, transfers perhaps in pieces, and the `Sync`s.
    """
    pieces = _pieces(tensors, config)
    spans = [list(_spans(one, pieces, config.columns)) for one in instructions]
    earliest = _earliest(instructions, spans, _Table(pieces, -1))
    phases = _balanced(instructions, spans, earliest, _Table(pieces, NEVER), config)
    before = False
    for phase in phases:
        if phase and before:
            yield Sync(phase[0].layer)
        before |= bool(phase)
        yield from phase


Span = tuple[int, slice, bool]


def _pieces(tensors: Sequence[Dram], config: Config) -> list[tuple[int, int]]:
    """Give the size of each memory, and of its pieces, in bytes; 0 for what is never written."""
    sizes = [one.nbytes if one.kind in (Kind.OUTPUT, Kind.SCRATCH) else 0 for one in tensors]
    piece = max(8, -(-sum(sizes) // PIECES))
    sums = 4 * config.accumulators, 4 * grain(config.accumulators)
    return [(config.sram_bytes, grain(config.sram_bytes)), sums, *((size, piece) for size in sizes)]


def _spans(one: Instruction, pieces: Sequence[tuple[int, int]], columns: int) -> Iterator[Span]:
    """Give the memories, their pieces, and whether they are written."""
    for effect in effects(one, columns):
        size, piece = pieces[effect.memory]
        if not size:
            continue
        span = slice(effect.start // piece, (effect.end - 1) // piece + 1)
        yield effect.memory, span, effect.writes


class _Table:
    """In which phase each piece of each memory is used: the last so far, or the next from here."""

    def __init__(self, pieces: Sequence[tuple[int, int]], start: int) -> None:
        # By memory: written and read, by unit, by piece.
        self.used = [np.full((2, 3, -(-size // piece)), start, np.int32) for size, piece in pieces]


def _earliest(
    instructions: Sequence[Instruction], spans: Sequence[Sequence[Span]], table: _Table
) -> list[int]:
    """Give the earliest phase of each instruction."""
    found = []
    free = {Unit.ARRAY: _Free(), Unit.VECTOR: _Free()}
    for one, touched in zip(instructions, spans, strict=True):
        phase, unit = 0, int(one.unit)
        for memory, span, writes in touched:
            # What is written must wait for those who read as well.
            used = table.used[memory][: 1 + writes, :, span].max((0, 2)).tolist()
            for other, last in enumerate(used):
                phase = max(phase, last if other == unit else last + 1)
        if isinstance(one, STEPS):
            phase = free[one.unit].take(phase)
        for memory, span, writes in touched:
            part = table.used[memory][0 if writes else 1, unit, span]
            np.maximum(part, phase, out=part)
        found.append(phase)
    return found


class _Free:
    """Phases without a step of a unit."""

    def __init__(self) -> None:
        self._next: list[int] = []

    def take(self, phase: int) -> int:
        """Take the first free phase from a given one on."""
        while len(self._next) <= phase:
            self._next.append(len(self._next))
        at = phase
        while at < len(self._next) and self._next[at] != at:
            at = self._next[at]
        while len(self._next) <= at:
            self._next.append(len(self._next))
        self._next[at] = at + 1
        # A later search starts at the end of the row.
        while phase < at:
            self._next[phase], phase = at + 1, self._next[phase]
        return at


def _balanced(
    instructions: Sequence[Instruction],
    spans: Sequence[Sequence[Span]],
    earliest: Sequence[int],
    table: _Table,
    config: Config,
) -> list[list[Instruction]]:
    """Place everything: steps where they are, transfers where there is time for them."""
    count = max(earliest, default=-1) + 1
    gaps = Gaps(count, config)
    for one, phase in zip(instructions, earliest, strict=True):
        if one.unit is not Unit.DMA:
            gaps.work(phase, one.unit, cycles(one, config))
    phases: list[list[Instruction]] = [[] for _ in range(count)]
    for at in range(len(instructions) - 1, -1, -1):
        one, first = instructions[at], earliest[at]
        if not isinstance(one, isa.Load | isa.Store):
            phases[first].append(one)
            _note(table, spans[at], int(one.unit), first)
            continue
        last = count - 1
        for memory, span, writes in spans[at]:
            used = table.used[memory][: 1 + writes, :, span].min((0, 2)).tolist()
            for other, then in enumerate(used):
                last = min(last, then if other == Unit.DMA else then - 1)
        for phase, part in gaps.place(one, first, last):
            phases[phase].append(part)
            _note(table, spans[at], int(Unit.DMA), phase)
    return [placed[::-1] for placed in phases]


def _note(table: _Table, touched: Sequence[Span], unit: int, phase: int) -> None:
    for memory, span, writes in touched:
        part = table.used[memory][0 if writes else 1, unit, span]
        np.minimum(part, phase, out=part)
