"""From a region to a program.

Layers are lowered one after the other, tile by tile, in the order in which one would do it by hand:
load, compute, requantize, store. `tvmlab.npu.codegen.phases` then moves instructions together so
that the units work at the same time.
"""

from __future__ import annotations

from dataclasses import replace

from .. import isa
from ..config import Config
from ..isa import Dtype, Load, Store
from ..layers import Region
from ..program import Dram, Kind, Program
from .emit import Image, Target, emit
from .memory import Plan, RingAllocator, home, plan_memory
from .phases import schedule_phases
from .tiling import LayerShape, granule


def compile_region(region: Region, config: Config, plan: Plan | None = None) -> Program:
    """Compile a region whose layers all fit the machine; `plan` is `plan_memory`'s, if known."""
    plan = plan or plan_memory(region, config)
    tensors = [
        Dram(kind, region.values[name].dtype, region.values[name].shape)
        for kind, names in ((Kind.INPUT, region.inputs), (Kind.OUTPUT, region.outputs))
        for name in names
    ]
    #: Numbers of tensors in DRAM by the layer that makes a value.
    scratch: dict[int, int] = {}
    for storage in plan.storages.values():
        outside = storage.source is not None or storage.results
        if not outside and storage.made not in {*scratch, *plan.resident}:
            scratch[storage.made] = len(tensors)
            tensors.append(Dram(Kind.SCRATCH, storage.value.dtype, storage.value.shape))

    def tensor(name: str) -> int | None:
        """Return the number of the tensor in DRAM that a value lies in."""
        storage = plan.storages[name]
        if storage.source is not None:
            return storage.source
        return (
            len(region.inputs) + storage.results[0]
            if storage.results
            else scratch.get(storage.made)
        )

    def image(name: str, shape: LayerShape, last: bool) -> Image:
        """Describe where a layer's input or its result lies."""
        storage = plan.storages[name]
        size = (
            (*shape.out_size, shape.out_channels) if last else (*shape.in_size, shape.in_channels)
        )
        place = plan.resident.get(storage.made), tensor(name), home(storage)
        return Image(*size, storage.value.dtype, *place)

    names = [layer.name for layer in region.layers]
    instructions: list[isa.Instruction] = []
    rings = [RingAllocator(granule(size)) for size in (config.sram_bytes, config.accumulators)]
    target = Target(instructions, bytearray(), len(tensors), config, *rings)
    for i, (layer, cut) in enumerate(zip(region.layers, plan.layers, strict=True)):
        if cut:
            images = [image(name, cut.shape, last=False) for name in layer.inputs]
            images.append(image(layer.output, cut.shape, last=True))
            emit(target, i, layer, cut, images)
    before = len(instructions)
    for i, name in enumerate(region.outputs):
        source, to = tensor(name), len(region.inputs) + i
        # An output that is an input, or another output, too.
        if source is not None and source != to:
            instructions += _copy(len(names), source, to, tensors[to].nbytes, config)
    if len(instructions) > before:
        names.append("copy")
    if target.constants:
        tensors.append(Dram(Kind.CONSTANTS, Dtype.uint8, (len(target.constants),)))
    parts = tuple(tensors), tuple(names), tuple(instructions), bytes(target.constants)
    made = Program(config, *parts)
    return replace(made, instructions=tuple(schedule_phases(made)))


def _copy(layer: int, source: int, to: int, size: int, config: Config) -> list[isa.Instruction]:
    """Copy a tensor within DRAM, in pieces that take turns in two halves of the SRAM."""
    half = config.sram_bytes // 2 // 8 * 8
    made: list[isa.Instruction] = []
    for i, start in enumerate(range(0, size, half)):
        counts = (1, 1, 1, min(half, size - start), 0, 0, 0, 1, 0, 0, 0, 1)
        for kind, tensor in ((Load, source), (Store, to)):
            made.append(kind(layer, tensor, start, i % 2 * half, 1, *counts))
    return made
