"""Which values stay in SRAM from one layer to the next, and where.

The SRAM is cut in two: below, a bench where each layer lays out the buffers of its tiles; above, a
shelf where values stay from the layer that makes them to the last that reads them. The shelf is
filled from the top in one walk over the layers, each value in the first gap that holds it; what
finds none goes to a tensor in DRAM. A layer's bench reaches up to the lowest value on the shelf
while it works. Several sizes of the shelf are tried, and the cost model says which is the fastest.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from ..config import Config
from ..layers import Region
from ..layers import View as ViewLayer
from .cuts import grain
from .storage import Storage, order, storages
from .tiling import COPY, Tiling, plan, smallest
from .work import Place, Work, of

__all__ = ["Job", "Plan", "arrange"]

#: Sizes of the shelf that are tried, in eighths of the SRAM.
EIGHTHS = (0, 2, 3, 4, 5, 6, 7)


@dataclass(frozen=True)
class Job:
    """A layer as it is to be done.

    Attributes
    ----------
    work : Work
        Its sizes; all pixels in one line where that makes no difference.
    tiling : Tiling
        How it is cut.
    bench : int
        Bytes of SRAM for its buffers, from address 0.
    """

    work: Work
    tiling: Tiling
    bench: int


@dataclass(frozen=True)
class Plan:
    """What stays where, and how each layer is cut.

    Attributes
    ----------
    storages : dict of str to Storage
        The bytes of each value.
    shelf : dict of int to int
        Addresses in SRAM, by the number of the layer that makes the value.
    jobs : list of Job or int
        For each layer; for a view, the bytes of SRAM below the shelf.
    cycles : int
        What the cost model says.
    """

    storages: dict[str, Storage]
    shelf: dict[int, int]
    jobs: list[Job | int]
    cycles: int


def arrange(region: Region, config: Config) -> Plan:
    """Decide what stays in SRAM.

    Parameters
    ----------
    region : Region
        Layers that all fit (`tvmlab.npu.codegen.tiling.fits`).
    config : Config
        The machine.

    Returns
    -------
    Plan
        The fastest of several.
    """
    known = storages(region)
    works = [
        None if isinstance(layer, ViewLayer) else of(layer, region.values)
        for layer in region.layers
    ]
    need = max((smallest(work, config)[0] for work in works if work), default=0)
    need = max(need, COPY)
    tried = {}
    for eighths in EIGHTHS:
        size = min(
            config.sram_bytes * eighths // 8, config.sram_bytes - need - grain(config.sram_bytes)
        )
        size = max(0, size - size % grain(config.sram_bytes))
        if size not in tried:
            tried[size] = _arrange(region, config, known, works, size)
    return min(tried.values(), key=lambda one: one.cycles)


def _arrange(
    region: Region,
    config: Config,
    known: dict[str, Storage],
    works: list[Work | None],
    size: int,
) -> Plan:
    shelf = _Shelf(config.sram_bytes, size)
    ending: dict[int, list[int]] = {}
    jobs: list[Job | int] = []
    cycles = 0
    for number, (layer, work) in enumerate(zip(region.layers, works, strict=True)):
        if work is None:
            jobs.append(shelf.lowest)
            continue
        out = known[layer.output]
        if out.read and not out.copied and shelf.put(number, out.nbytes):
            ending.setdefault(out.read[-1], []).append(number)
        places = tuple(
            Place.SRAM if known[name].made in shelf.kept else home(known[name])
            for name in (*layer.inputs, layer.output)
        )
        # A result that stays may be stored too.
        work = flattened(work, (*places, home(out) if out.results else places[-1]))
        bench = shelf.lowest
        work, tiling = _fastest(work, places, config, bench)
        jobs.append(Job(work, tiling, bench))
        cycles += tiling.cycles
        for done in ending.pop(number, []):
            shelf.remove(done)
    return Plan(known, shelf.addresses, jobs, cycles)


def _fastest(
    work: Work, places: tuple[Place, ...], config: Config, bench: int
) -> tuple[Work, Tiling]:
    """Choose how a layer is cut, and whether the taps of its lines are folded."""
    tiling = plan(work, places, config, bench)
    assert tiling is not None, "a layer that fits alone fits below the shelf"
    # Padding is only laid out where the image is loaded.
    laid_out = places[0] is not Place.SRAM or not work.padded_across
    if laid_out and work.folds(config.rows):
        folded = plan(work.fold(), places, config, bench)
        if folded is not None and folded.cycles < tiling.cycles:
            return work.fold(), folded
    return work, tiling


def home(storage: Storage) -> Place:
    """Give the order in which a value lies in DRAM."""
    if storage.source is not None or storage.results:
        return order(storage.value)
    return Place.NHWC


def flattened(work: Work, places: tuple[Place, ...]) -> Work:
    """Take all pixels as one line, where each is by itself and they lie one after the other."""
    if work.pointwise and (work.images == 1 or Place.NCHW not in places):
        return work.flat()
    return work


class _Shelf:
    """Gaps at the top of the SRAM.

    Attributes
    ----------
    kept : dict of int to tuple
        Start and end of what lies there now, by the number of the layer that made it.
    addresses : dict of int to int
        Of all that ever lay there.
    """

    def __init__(self, memory: int, size: int) -> None:
        self.memory, self.grain = memory, grain(memory)
        self.top = memory - memory % self.grain
        self.bottom = self.top - size
        self.kept: dict[int, tuple[int, int]] = {}
        self.addresses: dict[int, int] = {}
        self._spans: list[tuple[int, int]] = []

    @property
    def lowest(self) -> int:
        """Where the shelf begins now."""
        return self._spans[0][0] if self._spans else self.memory

    def put(self, number: int, size: int) -> bool:
        """Find the highest gap for a value; say whether there is one."""
        size = -(-size // self.grain) * self.grain
        end = self.top
        for start, stop in reversed(self._spans):
            if end - stop >= size:
                break
            end = start
        if end - size < self.bottom:
            return False
        span = end - size, end
        insort(self._spans, span)
        self.kept[number], self.addresses[number] = span, span[0]
        return True

    def remove(self, number: int) -> None:
        """Take a value away."""
        self._spans.remove(self.kept.pop(number))
