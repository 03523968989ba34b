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

from .. import isa
from ..config import Config
from ..isa import Instruction, Sync, Unit, cycles, effects
from ..program import Dram, Kind
from .tiling import granule

__all__ = ["schedule_phases"]

#: Pieces of DRAM that are told apart, at most: only the DMA engine is concerned.
_PIECES = 1 << 20
#: The first instruction of a step: the others follow in the same phase or in the next.
_STEPS = (isa.Matmul, isa.Depthwise, isa.Add, isa.Pool, isa.Sum)
_NEVER = (1 << 31) - 1
#: Phases that are looked at for a transfer.
_LOOK = 48


def schedule_phases(
    instructions: Sequence[Instruction], tensors: Sequence[Dram], config: Config
) -> Iterator[Instruction]:
    """Order instructions by phases, with a `Sync` between two.

    `instructions` come in an order in which they can be executed, without `Sync`.
    """
    pieces = _pieces(tensors, config)
    spans = [list(_spans(one, pieces, config.columns)) for one in instructions]
    earliest = _earliest(instructions, spans, _Table(pieces, -1))
    phases = _balanced(instructions, spans, earliest, _Table(pieces, _NEVER), config)
    before = False
    for phase in phases:
        if phase and before:
            yield Sync(phase[0].layer)
        before |= bool(phase)
        yield from phase


_Span = tuple[int, slice, bool]


def _pieces(tensors: Sequence[Dram], config: Config) -> list[tuple[int, int]]:
    """List the size of each memory, and of its pieces, in bytes; 0 for what is never written."""
    sizes = [one.nbytes if one.kind in (Kind.OUTPUT, Kind.SCRATCH) else 0 for one in tensors]
    piece = max(8, -(-sum(sizes) // _PIECES))
    sums = 4 * config.accumulators, 4 * granule(config.accumulators)
    sram = config.sram_bytes, granule(config.sram_bytes)
    return [sram, sums, *((size, piece) for size in sizes)]


def _spans(one: Instruction, pieces: Sequence[tuple[int, int]], columns: int) -> Iterator[_Span]:
    """List the memories, their pieces, and whether they are written."""
    for effect in effects(one, columns):
        size, piece = pieces[effect.memory]
        if size:
            span = slice(effect.start // piece, (effect.end - 1) // piece + 1)
            yield effect.memory, span, effect.writes


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
    free = {Unit.ARRAY: _Free(), Unit.VECTOR: _Free()}
    for one, touched in zip(instructions, spans, strict=True):
        phase, unit = 0, int(one.unit)
        for memory, span, writes in touched:
            # A write waits for reads as well.
            used = table.used[memory][: 1 + writes, :, span].max((0, 2)).tolist()
            for other, last in enumerate(used):
                phase = max(phase, last if other == unit else last + 1)
        if isinstance(one, _STEPS):
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
    spans: Sequence[Sequence[_Span]],
    earliest: Sequence[int],
    table: _Table,
    config: Config,
) -> list[list[Instruction]]:
    """Place everything: steps where they are, transfers where there is time for them."""
    count = max(earliest, default=-1) + 1
    busy = np.zeros((3, count), np.int64)
    for one, phase in zip(instructions, earliest, strict=True):
        if one.unit is not Unit.DMA:
            busy[one.unit, phase] += cycles(one, config)
    # Cycles of transfers that do not make a phase longer.
    slack = busy.max(0, initial=0)
    phases: list[list[Instruction]] = [[] for _ in range(count)]
    for at in range(len(instructions) - 1, -1, -1):
        one, phase = instructions[at], earliest[at]
        if one.unit is Unit.DMA:
            last = count - 1
            for memory, span, writes in spans[at]:
                used = table.used[memory][: 1 + writes, :, span].min((0, 2)).tolist()
                for other, then in enumerate(used):
                    last = min(last, then if other == Unit.DMA else then - 1)
            need, first = cycles(one, config), max(phase, last - _LOOK + 1)
            found = slack[first : last + 1][::-1]
            # The latest phase that has the time, else the one that has the most.
            phase = last - int(np.argmax(found >= need) if found.max() >= need else found.argmax())
            slack[phase] -= need
        phases[phase].append(one)
        for memory, span, writes in spans[at]:
            part = table.used[memory][0 if writes else 1, int(one.unit), span]
            np.minimum(part, phase, out=part)
    return [placed[::-1] for placed in phases]
