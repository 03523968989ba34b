"""Time that the DMA engine has in each phase while the other units work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .. import isa
from ..config import Config
from ..isa import Unit
from .timing import moving

__all__ = ["Gaps"]

#: Phases that are looked at for a transfer.
LOOK = 48
#: A piece of a transfer takes at least so many times the latency.
WORTH = 4

Transfer = isa.Load | isa.Store


class Gaps:
    """What each unit has to do in each phase.

    Parameters
    ----------
    count : int
        How many phases there are.
    config : Config
        The machine.
    """

    def __init__(self, count: int, config: Config) -> None:
        self.config = config
        self.others = [[0] * count for _ in range(3)]
        self.dma = self.others[Unit.DMA]

    def work(self, phase: int, unit: Unit, cycles: int) -> None:
        """Note what another unit does."""
        self.others[unit][phase] += cycles

    def slack(self, phase: int) -> int:
        """Give the cycles that transfers may still take without making the phase longer."""
        busy = max(self.others[Unit.ARRAY][phase], self.others[Unit.VECTOR][phase])
        return busy - self.dma[phase]

    def place(self, one: Transfer, first: int, last: int) -> Iterator[tuple[int, Transfer]]:
        """Choose phases for a transfer.

        Parameters
        ----------
        one : Load or Store
            The transfer.
        first, last : int
            The phases that it may be in.

        Yields
        ------
        tuple
            Phases and pieces of the transfer, from the last piece to the first.
        """
        need = moving(one, self.config)
        begin = max(first, last - LOOK + 1)
        slacks = [self.slack(phase) for phase in range(last, begin - 1, -1)]
        fitting = next((i for i, slack in enumerate(slacks) if slack >= need), None)
        if fitting is not None:
            self.dma[last - fitting] += need
            yield last - fitting, one
            return
        rest: Transfer | None = one
        for i, slack in enumerate(slacks):
            if rest is None:
                return
            if slack < WORTH * self.config.dma_latency:
                continue
            rest, piece = _cut(rest, slack, self.config)
            if piece is not None:
                self.dma[last - i] += moving(piece, self.config)
                yield last - i, piece
        if rest is not None:
            most = max(range(len(slacks)), key=lambda i: self.slack(last - i))
            self.dma[last - most] += moving(rest, self.config)
            yield last - most, rest


def _cut(one: Transfer, time: int, config: Config) -> tuple[Transfer | None, Transfer | None]:
    """Cut as much from a transfer's end as takes so many cycles: what is left, and the piece."""
    whole = moving(one, config)
    if whole <= time:
        return None, one
    counts = [one.count0, one.count1, one.count2, one.count3]
    axis = next((i for i, count in enumerate(counts) if count > 1), 3)
    count = counts[axis]
    each = (whole - config.dma_latency) / count
    # A piece that takes as long as it may, in whole bursts where numbers are side by side.
    part = int((time - config.dma_latency) / each) - 1
    if axis == 3:
        part -= part % config.dma_burst_bytes
    if part < 1 or part >= count:
        return one, None
    kept = count - part
    names = f"count{axis}"
    dram, sram = getattr(one, f"dram{axis}"), getattr(one, f"sram{axis}")
    left = replace(one, **{names: kept})
    piece = replace(
        one,
        **{names: part, "offset": one.offset + kept * dram, "address": one.address + kept * sram},
    )
    return left, piece
