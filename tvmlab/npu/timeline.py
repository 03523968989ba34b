"""When each instruction of a program begins and ends, by the simulator's own clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .isa import Sync, Unit
from .program import Program
from .simulator import count

__all__ = ["Busy", "Phase", "phases"]


@dataclass(frozen=True)
class Busy:
    """A unit at work on one instruction.

    Attributes
    ----------
    unit : Unit
        The unit.
    kind : str
        The name of the instruction, as ``"Load"``.
    index : int
        Its place in the program.
    start, end : int
        In cycles from the program's start.
    """

    unit: Unit
    kind: str
    index: int
    start: int
    end: int


@dataclass(frozen=True)
class Phase:
    """What stands between two syncs: the units work at once, each in its own order.

    Attributes
    ----------
    start, end : int
        In cycles from the program's start; a sync takes the last cycle.
    work : tuple of Busy
        In the order of the program.
    """

    start: int
    end: int
    work: tuple[Busy, ...]

    def cycles(self, unit: Unit) -> int:
        """Count the cycles in which a unit works."""
        return sum(busy.end - busy.start for busy in self.work if busy.unit == unit)


def phases(program: Program) -> tuple[Phase, ...]:
    """Give a program's phases, with every instruction's cycles.

    Parameters
    ----------
    program : Program
        The program; it is not executed, for time does not depend on data.

    Returns
    -------
    tuple of Phase

    Raises
    ------
    tvmlab.errors.SimulationError
        If the machine refuses the program.
    """
    # An instruction that is a layer of its own is counted by itself.
    alone = [replace(one, layer=index) for index, one in enumerate(program.instructions)]
    names = tuple(map(str, range(len(alone))))
    counted = count(replace(program, layers=names, instructions=tuple(alone)).to_bytes())
    found: list[Phase] = []
    work: list[Busy] = []
    start = 0
    now = dict.fromkeys(Unit, 0)
    for index, (instruction, cycles) in enumerate(zip(program.instructions, counted, strict=True)):
        unit = instruction.unit
        if not isinstance(instruction, Sync):
            length = cycles[f"{unit.name.lower()}_cycles"]
            begin = start + now[unit]
            work.append(Busy(unit, type(instruction).__name__, index, begin, begin + length))
            now[unit] += length
        synced = isinstance(instruction, Sync)
        if synced or index == len(alone) - 1:
            end = start + max(now.values()) + synced
            found.append(Phase(start, end, tuple(work)))
            start, work, now = end, [], dict.fromkeys(Unit, 0)
    return tuple(found)
