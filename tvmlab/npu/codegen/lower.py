"""From a region to a program.

Layers are lowered one after the other, tile by tile, in the order in which one would do it by hand:
load, compute, requantize, store. `tvmlab.npu.codegen.phases` then moves instructions together so
that the units work at the same time.
"""

from __future__ import annotations

from .. import isa
from ..config import Config
from ..isa import Dtype, Load, Store
from ..layers import Layer, Region
from ..program import Dram, Kind, Program
from .emit import emit
from .memory import LayerPlan, Plan, RingAllocator, home, plan_memory
from .phases import schedule_phases
from .tiles import Image, Target
from .tiling import granule

__all__ = ["compile_region"]


def compile_region(region: Region, config: Config, plan: Plan | None = None) -> Program:
    """Compile a region.

    Parameters
    ----------
    region : Region
        Layers that all fit the machine (`tvmlab.npu.codegen.tiling.fits`).
    config : Config
        The machine.
    plan : Plan, optional
        The result of `tvmlab.npu.codegen.memory.plan_memory`, if the caller has it already.

    Returns
    -------
    Program
        Its instructions, tensors and constants.
    """
    return _Lowering(region, config, plan or plan_memory(region, config)).program()


class _Lowering:
    """The work on one region."""

    def __init__(self, region: Region, config: Config, plan: Plan) -> None:
        self.region, self.config, self.plan = region, config, plan
        self.tensors = [
            Dram(kind, region.values[name].dtype, region.values[name].shape)
            for kind, names in ((Kind.INPUT, region.inputs), (Kind.OUTPUT, region.outputs))
            for name in names
        ]
        #: Numbers of tensors in DRAM by the layer that makes a value.
        self.scratch: dict[int, int] = {}
        for storage in plan.storages.values():
            made, value = storage.made, storage.value
            outside = storage.source is not None or storage.results
            if not outside and made not in self.scratch and made not in plan.resident:
                self.scratch[made] = len(self.tensors)
                self.tensors.append(Dram(Kind.SCRATCH, value.dtype, value.shape))

    def program(self) -> Program:
        """Lower all layers."""
        names, config = [layer.name for layer in self.region.layers], self.config
        instructions: list[isa.Instruction] = []
        constants, number = bytearray(), len(self.tensors)
        sram, sums = (
            RingAllocator(granule(size)) for size in (config.sram_bytes, config.accumulators)
        )
        target = Target(instructions, constants, number, config, sram, sums)
        for i, (layer, plan) in enumerate(zip(self.region.layers, self.plan.layers, strict=True)):
            if plan:
                emit(target, i, layer, plan, self.images(layer, plan))
        before = len(instructions)
        for i, name in enumerate(self.region.outputs):
            source, to = self.tensor(name), len(self.region.inputs) + i
            # An output that is an input, or another output, too.
            if source is not None and source != to:
                instructions += _copy(len(names), source, to, self.tensors[to].nbytes, config)
        if len(instructions) > before:
            names.append("copy")
        if constants:
            self.tensors.append(Dram(Kind.CONSTANTS, Dtype.uint8, (len(constants),)))
        ordered = tuple(schedule_phases(instructions, self.tensors, config))
        return Program(config, tuple(self.tensors), tuple(names), ordered, bytes(constants))

    def tensor(self, name: str) -> int | None:
        """Return the number of the tensor in DRAM that a value lies in."""
        storage = self.plan.storages[name]
        if storage.source is not None:
            return storage.source
        if storage.results:
            return len(self.region.inputs) + storage.results[0]
        return self.scratch.get(storage.made)

    def images(self, layer: Layer, plan: LayerPlan) -> list[Image]:
        """Describe where a layer's inputs and its result lie."""
        found, shape = [], plan.shape
        for name in (*layer.inputs, layer.output):
            storage, last = self.plan.storages[name], name == layer.output
            size = shape.out_size if last else shape.in_size
            channels = shape.out_channels if last else shape.in_channels
            address = self.plan.resident.get(storage.made)
            place = self.tensor(name), home(storage)
            found.append(Image(*size, channels, storage.value.dtype, address, *place))
        return found


def _copy(layer: int, source: int, to: int, size: int, config: Config) -> list[isa.Instruction]:
    """Copy a tensor within DRAM, in pieces that take turns in two halves of the SRAM."""
    half = config.sram_bytes // 2 // 8 * 8
    made: list[isa.Instruction] = []
    for i, start in enumerate(range(0, size, half)):
        counts = (1, 1, 1, min(half, size - start), 0, 0, 0, 1, 0, 0, 0, 1)
        for kind, tensor in ((Load, source), (Store, to)):
            made.append(kind(layer, tensor, start, i % 2 * half, 1, *counts))
    return made
