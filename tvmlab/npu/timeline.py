"""When each instruction of a program begins and ends, by the simulator's clock."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from . import simulator
from .isa import Sync, Unit
from .program import Program


@dataclass(frozen=True)
class Busy:
    """A unit that executes the instruction of number `index`, from cycle `start` to `end`."""

    unit: Unit
    kind: str
    index: int
    start: int
    end: int


@dataclass(frozen=True)
class Phase:
    """The work between two syncs, from cycle `start` to `end`; a sync takes the last cycle."""

    start: int
    end: int
    work: tuple[Busy, ...]

    def cycles(self, unit: Unit) -> int:
        """Count the cycles in which a unit works."""
        return sum(busy.end - busy.start for busy in self.work if busy.unit == unit)


def phases(program: Program) -> tuple[Phase, ...]:
    """Return a program's phases; `SimulationError` if the program is invalid."""
    simulator.count(program.to_bytes())  # raises for an invalid program
    found: list[Phase] = []
    work: list[Busy] = []
    start, now = 0, Counter(dict.fromkeys(Unit, 0))
    last = len(program.instructions) - 1
    cycles = simulator.cycles(program)
    for index, (one, length) in enumerate(zip(program.instructions, cycles, strict=True)):
        synced = isinstance(one, Sync)
        if not synced:
            begin = start + now[one.unit]
            work.append(Busy(one.unit, type(one).__name__, index, begin, begin + length))
            now[one.unit] += length
        if synced or index == last:
            end = start + max(now.values()) + synced
            found.append(Phase(start, end, tuple(work)))
            start, work, now = end, [], Counter(dict.fromkeys(Unit, 0))
    return tuple(found)
