"""Memory planning: which values stay in SRAM from one layer to the next, and where.

The lower part of the SRAM holds the buffers of a layer's tiles. The upper part is the resident
region: it keeps a value from the layer that makes it to the last layer that reads it. Values that
do not fit go to DRAM.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace

from ..config import Config
from ..layers import Region, Value, View
from .tiling import COPY, LayerShape, Places, Residency, granule, plan, shape_of, smallest

_Shapes = list[LayerShape | None]
#: Candidate sizes of the resident region, in eighths of the SRAM.
EIGHTHS = (0, 2, 3, 4, 5, 6, 7)


@dataclass
class Storage:
    """A value: the layers that make it (-1: none) and read it; its number as input or output."""

    value: Value
    made: int
    read: list[int] = field(default_factory=list)
    tensor: int | None = None


#: How one layer is computed, with `limit` bytes of SRAM for its buffers, from address 0.
LayerPlan = namedtuple("LayerPlan", "shape tiling limit")
#: The storages of values by name, addresses in SRAM by the number of the layer that makes a value,
#: how each layer is computed (None for a view), and the estimate of cycles.
Plan = namedtuple("Plan", "storages resident layers cycles")


def plan_memory(region: Region, config: Config) -> Plan:
    """Decide what stays in SRAM, and tile each layer; all layers must fit (`tiling.fits`)."""
    shapes = [shape_of(layer, region.values) for layer in region.layers]
    need = max((smallest(shape, config) for shape in shapes if shape), default=0)
    each, most = granule(config.sram_bytes), config.sram_bytes - max(need, COPY)
    sizes = [min(config.sram_bytes * eighths // 8, most - each) for eighths in EIGHTHS]
    tried = dict.fromkeys(max(0, size - size % each) for size in sizes)
    storages = _storages(region)
    plans = [_planned(region, config, storages, shapes, size) for size in tried]
    return min(plans, key=lambda one: one.cycles)


def _storages(region: Region) -> dict[str, Storage]:
    values = region.values
    found = {name: Storage(values[name], -1, tensor=i) for i, name in enumerate(region.inputs)}
    for number, layer in enumerate(region.layers):
        if isinstance(layer, View):
            found[layer.output] = found[layer.inputs[0]]
            continue
        for name in layer.inputs:
            found[name].read.append(number)
        found[layer.output] = Storage(values[layer.output], number)
    for i, name in enumerate(region.outputs, len(region.inputs)):
        if found[name].tensor is None:
            found[name].tensor = i
    return found


def home(storage: Storage) -> Residency:
    """Return the memory order of a value in DRAM: inputs and outputs keep the graph's order."""
    _, h, w, c = storage.value.nhwc
    # With one channel or one pixel, both orders are the same.
    nchw = storage.value.layout == "NCHW" and c > 1 and h * w > 1
    return Residency.NCHW if nchw and storage.tensor is not None else Residency.NHWC


def _planned(
    region: Region, config: Config, storages: dict[str, Storage], shapes: _Shapes, size: int
) -> Plan:
    resident = _Resident(config.sram_bytes, size)
    ending: dict[int, list[int]] = {}
    plans: list[LayerPlan | None] = []
    for number, (layer, shape) in enumerate(zip(region.layers, shapes, strict=True)):
        if shape is None:
            plans.append(None)
            continue
        out = storages[layer.output]
        if out.read and resident.put(number, out.value.nbytes):
            ending.setdefault(out.read[-1], []).append(number)
        values = [storages[name] for name in (*layer.inputs, layer.output)]
        kept, sram = resident.kept, Residency.SRAM
        places = tuple(sram if value.made in kept else home(value) for value in values)
        # A resident result can also be stored.
        stored = places[-1] if out.tensor is None else home(out)
        if shape.images == 1 or Residency.NCHW not in (*places, stored):
            shape = shape.flat()
        plans.append(_fastest(shape, places, config, resident.lowest()))
        for done in ending.pop(number, []):
            del kept[done]
    cycles = sum(one.tiling.cycles for one in plans if one)
    return Plan(storages, resident.addresses, plans, cycles)


def _fastest(shape: LayerShape, places: Places, config: Config, limit: int) -> LayerPlan:
    tiling = plan(shape, places, config, limit)
    assert tiling is not None, "a layer that fits alone fits below the resident region"
    if shape.folds(config.rows, loaded=places[0] is not Residency.SRAM):
        fold = replace(shape, folded=True)
        folded = plan(fold, places, config, limit)
        if folded is not None and folded.cycles < tiling.cycles:
            return LayerPlan(fold, folded, limit)
    return LayerPlan(shape, tiling, limit)


class _Resident:
    """The resident region: its current contents, by the number of the layer that made them."""

    def __init__(self, memory: int, size: int) -> None:
        self.memory, self.granule = memory, granule(memory)
        self.top = memory - memory % self.granule
        self.bottom = self.top - size
        self.kept: dict[int, tuple[int, int]] = {}
        self.addresses: dict[int, int] = {}

    def lowest(self) -> int:
        return min((start for start, _ in self.kept.values()), default=self.memory)

    def put(self, number: int, size: int) -> bool:
        size, end = -(-size // self.granule) * self.granule, self.top
        for start, stop in sorted(self.kept.values(), reverse=True):
            if end - stop >= size:
                break
            end = start
        if end - size < self.bottom:
            return False
        self.kept[number], self.addresses[number] = (end - size, end), end - size
        return True


class BufferPool:
    """Equal buffers used alternately; the pool tracks the contents of each buffer."""

    def __init__(self, addresses: list[int]) -> None:
        self.addresses = addresses
        self._held: list[Hashable] = [None] * len(addresses)
        self._next = 0

    def get(self, key: Hashable, fill: Callable[[int], None]) -> int:
        """Return the buffer that holds the item `key`, or fill the next buffer with it."""
        if key not in self._held:
            fill(self.take())
            self._held[self._next - 1] = key
        return self.addresses[self._held.index(key)]

    def take(self) -> int:
        """Return the next buffer."""
        at = self._next % len(self.addresses)
        self._next = at + 1
        self._held[at] = None
        return self.addresses[at]


class RingAllocator:
    """Place each layer's buffers behind the previous ones, so that its first loads don't wait."""

    def __init__(self, granule: int) -> None:
        self._end, self._granule = 0, granule

    def lay_out(self, sizes: list[tuple[int, int]], limit: int) -> list[BufferPool]:
        """Place groups of buffers, each described by size and number, below a limit."""
        apart = [(-(-size // self._granule) * self._granule, count) for size, count in sizes]
        if sum(size * count for size, count in apart) <= limit:
            sizes = apart
        room = sum(size * count for size, count in sizes)
        at = self._end if self._end + room <= limit else 0
        found = []
        for size, count in sizes:
            found.append(BufferPool([at + size * i for i in range(count)]))
            at += size * count
        self._end = -(-at // self._granule) * self._granule
        return found
