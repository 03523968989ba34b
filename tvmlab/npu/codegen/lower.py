"""Lower a region to a program: tile each layer, then order the tiles by overlapping phases.

A forward walk puts each instruction in the earliest phase that hazards allow. A phase has at most
one step of the array and one of the vector unit, because a second step would fill both halves of a
double buffer and then wait. A backward walk moves transfers to phases in which the DMA is idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from .. import isa, simulator
from ..config import Config
from ..isa import Dtype, Instruction, Load, Rounding, Store, Sync, Unit
from ..layers import Region
from ..program import Dram, Kind, Program
from .emit import Image, Target, emit, in_row
from .memory import Plan, RingAllocator, home, plan_memory
from .tiling import granule

#: The most pieces of DRAM for which hazards are tracked.
_PIECES = 1 << 20
#: The first instruction of a step; the others follow in the same phase or in the next.
_STEPS = (isa.Matmul, isa.Depthwise, isa.Add, isa.Pool, isa.Sum)
#: How many phases the scheduler considers for a transfer.
_LOOK = 48
#: Numbers of memories; tensors in DRAM follow.
_SRAM, _SUMS, _DRAM = 0, 1, 2
#: The prefixes of the fields of a view's place, dtype and size, and whether it is written.
_VIEWS: dict[type, tuple[tuple[str, str, str, bool], ...]] = {
    isa.Matmul: (("", "in_", "in_", False),),
    isa.Depthwise: (("", "in_", "in_", False),),
    isa.Requantize: (("", "out_", "", True),),
    isa.Add: (("lhs_", "lhs_", "", False), ("rhs_", "rhs_", "", False), ("out_", "out_", "", True)),
    isa.Pool: (("", "", "in_", False), ("out_", "", "out_", True)),
    isa.Sum: (("", "", "", False),),
}

#: A memory, pieces of it, and whether they are written.
_Span = tuple[int, slice, bool]


def compile_region(region: Region, config: Config, plan: Plan | None = None) -> Program:
    """Compile a region whose layers all fit the machine; `plan` is `plan_memory`'s, if known."""
    plan = plan or plan_memory(region, config)
    sides = (Kind.INPUT, region.inputs), (Kind.OUTPUT, region.outputs)
    values = [(kind, region.values[name]) for kind, names in sides for name in names]
    tensors = [Dram(kind, value.dtype, value.shape) for kind, value in values]
    # The tensors in DRAM that hold values, and the scratch tensors by the layer that makes a value.
    numbers = {name: storage.tensor for name, storage in plan.storages.items()}
    scratch: dict[int, int] = {}
    for name, storage in plan.storages.items():
        if storage.tensor is None and storage.made not in plan.resident:
            numbers[name] = scratch.setdefault(storage.made, len(tensors))
            if numbers[name] == len(tensors):
                tensors.append(Dram(Kind.SCRATCH, storage.value.dtype, storage.value.shape))
    names = [layer.name for layer in region.layers]
    instructions: list[Instruction] = []
    rings = [RingAllocator(granule(size)) for size in (config.sram_bytes, config.accumulators)]
    target = Target(instructions, bytearray(), len(tensors), config, *rings)
    for i, (layer, cut) in enumerate(zip(region.layers, plan.layers, strict=True)):
        if cut is None:
            continue
        images = []
        for name in (*layer.inputs, layer.output):
            storage = plan.storages[name]
            place = plan.resident.get(storage.made), numbers[name], home(storage)
            height, width, channels = cut.shape.image(name == layer.output)
            images.append(Image(height, width, channels, storage.value.dtype, *place))
        emit(target, i, layer, cut, images)
    for to, name in enumerate(region.outputs, len(region.inputs)):
        source = numbers[name]
        # An output that is also an input, or another output.
        if source is not None and source != to:
            instructions += _copy(len(region.layers), source, to, tensors[to].nbytes, config)
            names[len(region.layers) :] = ["copy"]
    if target.constants:
        tensors.append(Dram(Kind.CONSTANTS, Dtype.uint8, (len(target.constants),)))
    data = bytes(target.constants)
    made = Program(config, tuple(tensors), tuple(names), tuple(instructions), data)
    return replace(made, instructions=tuple(schedule_phases(made)))


def _copy(layer: int, source: int, to: int, size: int, config: Config) -> list[Instruction]:
    half = config.sram_bytes // 2 // 8 * 8
    made: list[Instruction] = []
    for i, start in enumerate(range(0, size, half)):
        place = start, i % 2 * half, *in_row(min(half, size - start))
        made += [Load(layer, source, *place), Store(layer, to, *place)]
    return made


def schedule_phases(program: Program) -> Iterator[Instruction]:
    """Order executable instructions without `Sync` into phases, with a `Sync` between them."""
    pieces, config = _pieces(program), program.config
    spans = [list(_spans(one, pieces, config.columns)) for one in program.instructions]
    earliest = _earliest(program.instructions, spans, _Uses(pieces))
    phases = _balanced(program, spans, earliest, _Uses(pieces))
    for number, phase in enumerate(filter(None, phases)):
        if number:
            yield Sync(phase[0].layer)
        yield from phase


def _pieces(program: Program) -> list[tuple[int, int]]:
    """List the size of each memory, and of its pieces, in bytes; 0 for read-only memory."""
    written, config = (Kind.OUTPUT, Kind.SCRATCH), program.config
    sizes = [one.nbytes if one.kind in written else 0 for one in program.tensors]
    piece = max(8, -(-sum(sizes) // _PIECES))
    sums = 4 * config.accumulators, 4 * granule(config.accumulators)
    sram = config.sram_bytes, granule(config.sram_bytes)
    return [sram, sums, *((size, piece) for size in sizes)]


def _spans(one: Instruction, pieces: Sequence[tuple[int, int]], columns: int) -> Iterator[_Span]:
    for memory, start, count, writes in _effects(one, columns):
        size, piece = pieces[memory]
        if size and start >= 0 and count:
            yield memory, slice(start // piece, (start + count - 1) // piece + 1), writes


def _effects(one: Instruction, columns: int) -> Iterator[tuple[int, int, int, bool]]:
    """List memories, first bytes, counts up to the last byte, and whether each is written."""
    if isinstance(one, (isa.Load, isa.Store)):
        store = isinstance(one, isa.Store)
        for memory, start, name in (
            (_DRAM + one.tensor, one.offset, "dram"),
            (_SRAM, one.address, "sram"),
        ):
            steps = ((getattr(one, f"count{i}"), getattr(one, f"{name}{i}")) for i in range(4))
            size = one.element + sum((count - 1) * stride for count, stride in steps)
            yield memory, start, size, store == (memory != _SRAM)
    for place, dtype, size, writes in _VIEWS.get(type(one), ()):
        last = (getattr(one, f"{size}rows") - 1) * getattr(one, f"{place}row_stride")
        last += (getattr(one, f"{size}cols") - 1) * getattr(one, f"{place}pixel_stride")
        pixel = one.channels * Dtype(getattr(one, f"{dtype}dtype")).bytes
        yield _SRAM, getattr(one, f"{place}address"), last + pixel, writes
    if isinstance(one, (isa.Matmul, isa.Depthwise)):
        each = -(-one.out_channels // columns) * columns
        if isinstance(one, isa.Depthwise):
            each = Dtype(one.weight_dtype).bytes
        yield _SRAM, one.weights, one.kernel_h * one.kernel_w * one.channels * each, False
        yield _SRAM, one.bias, 4 * one.out_channels, False
        yield _SUMS, 4 * one.sums, 4 * one.out_rows * one.out_cols * one.out_channels, True
    elif isinstance(one, isa.Requantize):
        tables = 4 * (one.channels if one.per_channel else 1)
        if one.rounding != Rounding.NONE:
            double = one.rounding == Rounding.TFLITE_FLOAT64
            yield _SRAM, one.multipliers, tables * (1 + double), False
            yield _SRAM, one.shifts, tables * (one.rounding < Rounding.ONNX), False
        yield _SUMS, 4 * one.sums, 4 * one.rows * one.cols * one.channels, False
    elif isinstance(one, isa.Sum):
        yield _SUMS, 4 * one.sums, 4 * one.channels, True


class _Uses:
    """The phase of the last use of each piece: [written or read, unit, piece] by memory."""

    def __init__(self, pieces: Sequence[tuple[int, int]]) -> None:
        sizes = (-(-size // piece) for size, piece in pieces)
        self.table = [np.full((2, 3, size), -1, np.int32) for size in sizes]

    def next(self, touched: Sequence[_Span], unit: Unit) -> int:
        """Return the first phase in which a unit can access pieces; writes also wait for reads."""
        phase = 0
        for memory, span, writes in touched:
            used = self.table[memory][: 1 + writes, :, span].max((0, 2)).tolist()
            for other, last in enumerate(used):
                phase = max(phase, last if other == unit else last + 1)
        return phase

    def mark(self, touched: Sequence[_Span], unit: Unit, phase: int) -> None:
        for memory, span, writes in touched:
            part = self.table[memory][0 if writes else 1, unit, span]
            np.maximum(part, phase, out=part)


def _earliest(
    instructions: Sequence[Instruction], spans: Sequence[Sequence[_Span]], uses: _Uses
) -> list[int]:
    found = []
    taken: dict[Unit, set[int]] = {Unit.ARRAY: set(), Unit.VECTOR: set()}
    for one, touched in zip(instructions, spans, strict=True):
        phase = uses.next(touched, one.unit)
        if isinstance(one, _STEPS):
            while phase in taken[one.unit]:
                phase += 1
            taken[one.unit].add(phase)
        uses.mark(touched, one.unit, phase)
        found.append(phase)
    return found


def _balanced(
    program: Program, spans: Sequence[Sequence[_Span]], earliest: Sequence[int], uses: _Uses
) -> list[list[Instruction]]:
    """Keep the steps' phases; move transfers to phases with spare time (`uses` is reversed)."""
    cycles, last = simulator.cycles(program), max(earliest, default=-1)
    busy = np.zeros((3, last + 1), np.int64)
    for one, phase, length in zip(program.instructions, earliest, cycles, strict=True):
        if one.unit is not Unit.DMA:
            busy[one.unit, phase] += length
    # Cycles of transfers that fit in a phase without making it longer.
    slack = busy.max(0, initial=0)
    phases: list[list[Instruction]] = [[] for _ in range(last + 1)]
    for at, one in reversed(list(enumerate(program.instructions))):
        phase = earliest[at]
        if one.unit is Unit.DMA:
            latest = last - uses.next(spans[at], one.unit)
            found = slack[max(phase, latest - _LOOK + 1) : latest + 1][::-1]
            # The latest phase with enough time, or else the phase with the most time.
            enough = found >= cycles[at]
            phase = latest - int(np.argmax(enough) if enough.any() else found.argmax())
            slack[phase] -= cycles[at]
        phases[phase].append(one)
        uses.mark(spans[at], one.unit, last - phase)
    return [placed[::-1] for placed in phases]
