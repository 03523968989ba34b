"""From a region to a program.

Layers are lowered one after the other, tile by tile, in the order in which one would do it by hand:
load, compute, requantize, store. `tvmlab.npu.codegen.phases` then moves instructions together so
that the units work at the same time.
"""

from __future__ import annotations

import math
from itertools import pairwise

from .. import isa
from ..config import Config
from ..isa import Dtype
from ..layers import Layer, Region, Value
from ..program import Dram, Kind, Program
from .buffers import Bench
from .copies import Strided, contiguous, copy
from .cuts import grain
from .emit import emit
from .images import Image
from .memory import Job, Plan, arrange, home
from .packing import Constants
from .phases import overlap
from .storage import copied, order
from .tiles import Target
from .work import Work

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
        What `tvmlab.npu.codegen.memory.arrange` gave, for those who look at it too.

    Returns
    -------
    Program
        Its instructions, tensors and constants.
    """
    return _Lowering(region, config, plan or arrange(region, config)).program()


class _Lowering:
    """A region on its way."""

    def __init__(self, region: Region, config: Config, plan: Plan) -> None:
        self.region, self.config, self.plan = region, config, plan
        self.tensors = [
            Dram(kind, region.values[name].dtype, region.values[name].shape)
            for kind, names in ((Kind.INPUT, region.inputs), (Kind.OUTPUT, region.outputs))
            for name in names
        ]
        self.scratch: dict[int, int] = {}
        for storage in self.plan.storages.values():
            if storage.made in self.scratch or storage.made in self.plan.shelf:
                continue
            if storage.source is None and not storage.results:
                self.scratch[storage.made] = self.add_scratch(storage.value)
        # A view whose two sides both lie in another order than the graph's goes through it.
        self.between = {
            number: self.add_scratch(region.values[layer.output])
            for number, layer in enumerate(region.layers)
            if not isinstance(self.plan.jobs[number], Job)
            and all(self.reordered(name) for name in (layer.inputs[0], layer.output))
            and copied(layer, region.values)
        }
        self.instructions: list[isa.Instruction] = []

    def add_scratch(self, value: Value) -> int:
        """Add a tensor to the table."""
        self.tensors.append(Dram(Kind.SCRATCH, value.dtype, value.shape))
        return len(self.tensors) - 1

    def program(self) -> Program:
        """Lower all layers."""
        names = [layer.name for layer in self.region.layers]
        constants, number = Constants(), len(self.tensors)
        config = self.config
        bench, sums = Bench(grain(config.sram_bytes)), Bench(grain(config.accumulators))
        target = Target(self.instructions, constants, number, config, bench, sums)
        for i, (layer, job) in enumerate(zip(self.region.layers, self.plan.jobs, strict=True)):
            if isinstance(job, Job):
                emit(target, i, layer, job, self.images(layer, job.work))
            else:
                self.view(i, layer, job)
        if self.hand_on(len(names)):
            names.append("copy")
        if constants.data:
            self.tensors.append(Dram(Kind.CONSTANTS, Dtype.uint8, (len(constants.data),)))
        return Program(
            self.config,
            tuple(self.tensors),
            tuple(names),
            tuple(overlap(self.instructions, self.tensors, self.config)),
            bytes(constants.data),
        )

    def tensor(self, name: str) -> int | None:
        """Give the number of the tensor in DRAM that a value lies in."""
        storage = self.plan.storages[name]
        if storage.source is not None:
            return storage.source
        if storage.results:
            return len(self.region.inputs) + storage.results[0]
        return self.scratch.get(storage.made)

    def images(self, layer: Layer, work: Work) -> list[Image]:
        """Say where a layer's inputs and its result lie."""
        found = []
        for name in (*layer.inputs, layer.output):
            storage, last = self.plan.storages[name], name == layer.output
            size = work.out_size if last else work.in_size
            channels = work.out_channels if last else work.in_channels
            address = self.plan.shelf.get(storage.made)
            place = self.tensor(name), home(storage)
            found.append(Image(*size, channels, storage.dtype, address, *place))
        return found

    def reordered(self, name: str) -> bool:
        """Say whether a value lies in another order than the graph's."""
        return home(self.plan.storages[name]) is not order(self.region.values[name])

    def seen(self, name: str) -> tuple[int, ...]:
        """Give the strides of a value along its dimensions."""
        value = self.region.values[name]
        if not self.reordered(name):
            return contiguous(value.shape, value.dtype.bytes)
        n, h, w, c = value.nhwc
        images, down, across, channels = contiguous((n, h, w, c), value.dtype.bytes)
        return images, channels, down, across

    def view(self, number: int, layer: Layer, room: int) -> None:
        """Copy what a view cannot share."""
        values, (source, out) = self.region.values, (layer.inputs[0], layer.output)
        if not copied(layer, values):
            return
        # In its own dimensions a side may lie in any order; in the other's, only in the graph's.
        stages = [(source, self.tensor(source)), (out, self.tensor(out))]
        if number in self.between:
            stages.insert(1, ("", self.between[number]))
        each = values[out].dtype.bytes
        for (first, here), (second, there) in pairwise(stages):
            assert here is not None
            assert there is not None
            name = first if first and (not second or self.reordered(first)) else second
            shape = values[name].shape
            graph = contiguous(shape, each)
            sides = [
                Strided(tensor, self.seen(name) if one == name else graph)
                for one, tensor in ((first, here), (second, there))
            ]
            self.instructions += copy(number, shape, each, sides[0], sides[1], room)

    def hand_on(self, number: int) -> bool:
        """Copy to outputs that are inputs, or other outputs, too."""
        before = len(self.instructions)
        for i, name in enumerate(self.region.outputs):
            source, to = self.tensor(name), len(self.region.inputs) + i
            assert source is not None
            if source != to:
                value, sides = self.region.values[name], (Strided(source, (1,)), Strided(to, (1,)))
                size = math.prod(value.shape) * value.dtype.bytes
                self.instructions += copy(number, (size,), 1, *sides, self.config.sram_bytes)
        return len(self.instructions) > before
