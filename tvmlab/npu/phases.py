"""Move instructions together so that the units work at the same time.

The program comes as one list in which each instruction follows what it needs. Each is given the
earliest phase that hazards allow: after every other unit's instruction that wrote what it reads, or
that used what it writes, and not before its own unit's. So the loads of a tile move to where the
tile before is computed, and a layer's first loads to where the layer before is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from .config import Config
from .effects import effects
from .isa import Instruction, Sync
from .program import Dram

__all__ = ["overlap"]

Ints = npt.NDArray[np.int32]

#: Pieces of a memory that are told apart, at most.
PIECES = 1 << 15


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
        The same instructions and the `Sync`s.
    """
    times = _Times(tensors, config)
    phases: list[list[Instruction]] = []
    for one in instructions:
        at = times.place(one)
        while len(phases) <= at:
            phases.append([])
        phases[at].append(one)
    for i, phase in enumerate(phases):
        if i:
            yield Sync(phase[0].layer)
        yield from phase


class _Memory:
    """When each piece of a memory was last written and read, by unit."""

    def __init__(self, size: int) -> None:
        self.piece = max(8, -(-size // PIECES))
        count = -(-size // self.piece)
        self.written = np.full((3, count), -1, np.int32)
        self.read = np.full((3, count), -1, np.int32)


class _Times:
    """All memories."""

    def __init__(self, tensors: Sequence[Dram], config: Config) -> None:
        sizes = [config.sram_bytes, config.accumulators * 4, *(one.nbytes for one in tensors)]
        self.columns = config.columns
        self.memories = [_Memory(size) for size in sizes]

    def place(self, one: Instruction) -> int:
        """Give the earliest phase of an instruction, and take note of it."""
        unit, phase = one.unit, 0
        found: list[tuple[_Memory, slice, bool]] = []
        for effect in effects(one, self.columns):
            memory = self.memories[effect.memory]
            span = slice(effect.start // memory.piece, (effect.end - 1) // memory.piece + 1)
            found.append((memory, span, effect.writes))
            for other in range(3):
                last = int(memory.written[other, span].max())
                if effect.writes:
                    last = max(last, int(memory.read[other, span].max()))
                # One unit's instructions stay in order within a phase.
                phase = max(phase, last if other == unit else last + 1)
        for memory, span, writes in found:
            table = memory.written if writes else memory.read
            np.maximum(table[unit, span], phase, out=table[unit, span])
        return phase
