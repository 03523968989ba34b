"""Phases: the same instructions, what overlaps, and what must not."""

from __future__ import annotations

from collections import Counter

from tests.npu.regions import Builder
from tests.npu.test_lower import check, residual
from tvmlab.npu import isa, simulator
from tvmlab.npu.codegen import timing
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.codegen.phases import overlap
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Instruction, Load, Matmul, Requantize, Store, Sync, Unit
from tvmlab.npu.layers import Region
from tvmlab.npu.program import Dram, Kind, Program


def phases(program: Program) -> list[list[Instruction]]:
    found: list[list[Instruction]] = [[]]
    for one in program.instructions:
        if isinstance(one, Sync):
            found.append([])
        else:
            found[-1].append(one)
    return found


def convolution(side: int = 32, channels: int = 32) -> Region:
    builder = Builder(2)
    source = builder.input(1, side, side, channels)
    return builder.region(builder.conv(source, 64, (3, 3), pads=(1, 1, 1, 1)))


def test_units_work_on_three_tiles_at_once() -> None:
    program = compile_region(convolution(), Config(sram_bytes=32 << 10))
    inside = phases(program)
    busy = [{type(one) for one in phase} for phase in inside]
    middle = busy[3:-4]
    assert len(middle) > 3
    assert all({Matmul, Requantize} <= kinds for kinds in middle)
    assert sum(Load in kinds for kinds in middle) > len(middle) / 2
    assert sum(Store in kinds for kinds in middle) > len(middle) / 2


def test_a_phase_has_one_step_of_a_unit() -> None:
    for phase in phases(compile_region(convolution(), Config(sram_bytes=32 << 10))):
        assert sum(isinstance(one, Matmul) for one in phase) <= 1


def test_no_phase_is_empty() -> None:
    builder, out = residual(16)
    assert all(phases(compile_region(builder.region(out), Config(sram_bytes=8 << 10))))


def test_overlapping_is_faster_than_taking_turns() -> None:
    program = compile_region(convolution(), Config(sram_bytes=32 << 10))
    counted = simulator.count(program.to_bytes())[0]
    alone = counted["dma_cycles"] + counted["array_cycles"] + counted["vector_cycles"]
    slowest = max(counted["dma_cycles"], counted["array_cycles"], counted["vector_cycles"])
    assert counted["cycles"] < slowest + 0.3 * (alone - slowest)


def test_the_next_layers_weights_load_while_a_layer_computes() -> None:
    builder = Builder(3)
    value = builder.input(1, 16, 16, 16)
    for _ in range(2):
        value = builder.conv(value, 16, (3, 3), pads=(1, 1, 1, 1))
    program = check(builder, value, config=Config())
    number = next(i for i, one in enumerate(program.tensors) if one.kind is Kind.CONSTANTS)
    together = [
        phase
        for phase in phases(program)
        if any(isinstance(one, Load) and one.layer == 1 and one.tensor == number for one in phase)
        and any(isinstance(one, Matmul) and one.layer == 0 for one in phase)
    ]
    assert together


def test_nothing_is_lost_and_nothing_is_made_up() -> None:
    """Transfers may be cut; their bytes are the same, and so is everything else."""
    config = Config(sram_bytes=64 << 10)
    tensors = (
        Dram(Kind.INPUT, isa.Dtype.uint8, (40_000,)),
        Dram(Kind.OUTPUT, isa.Dtype.uint8, (40_000,)),
    )
    pooled = {
        "kind": 0, "address": 0, "row_stride": 16, "pixel_stride": 16, "dtype": 1, "in_rows": 1,
        "in_cols": 1, "channels": 16, "kernel_h": 1, "kernel_w": 1, "stride_h": 1, "stride_w": 1,
        "dilation_h": 1, "dilation_w": 1, "pad_top": 0, "pad_left": 0, "pad_bottom": 0,
        "pad_right": 0, "count_pad": 0, "in_zero": 0, "out_zero": 0, "multiplier": 0, "shift": 0,
        "out_rows": 1, "out_cols": 1, "out_address": 16, "out_row_stride": 16,
        "out_pixel_stride": 16,
    }  # fmt: skip
    long = {**pooled, "kernel_h": 2000}
    plain = (1, 1, 1, 40_000, 0, 0, 0, 1, 0, 0, 0, 1)
    given: list[Instruction] = [
        Load(0, 0, 0, 0, 1, 1, 1, 1, 16, 0, 0, 0, 1, 0, 0, 0, 1),
        *(isa.Pool(0, **long) for _ in range(30)),
        Load(0, 0, 0, 64, 1, *plain),
        Store(0, 1, 0, 64, 1, *plain),
    ]
    found = [one for one in overlap(given, tensors, config) if not isinstance(one, Sync)]
    moved = Counter(type(one) for one in found)
    assert moved[isa.Pool] == 30
    for kind in (Load, Store):
        parts = [one for one in found if isinstance(one, kind) and one.address >= 64]
        assert len(parts) > 1
        assert sorted(
            byte for one in parts for byte in range(one.offset, one.offset + one.count3)
        ) == list(range(40_000))
        assert all(one.address - 64 == one.offset for one in parts)
        assert max(timing.cycles(one, config) for one in parts) <= 8 + 2000


def test_an_empty_program_has_no_phases() -> None:
    assert list(overlap([], (), Config())) == []


def test_the_cycles_of_an_instruction_are_the_machines() -> None:
    """Added up by unit they are what the simulator counts."""
    builder = Builder(5, layout="NCHW")
    source = builder.input(2, 9, 11, 5)
    value = builder.conv(source, 20, (3, 3), (2, 1), pads=(1, 1, 1, 1))
    value = builder.conv(value, 0, (3, 3), depthwise=True)
    value = builder.add(builder.pool(value, isa.PoolKind.MAX, (2, 2)), way=isa.Rounding.UPWARD)
    program = check(builder, builder.mean(builder.add(value, value)), config=Config())
    counted = simulator.count(program.to_bytes())
    for unit in (Unit.DMA, Unit.ARRAY, Unit.VECTOR):
        total = sum(
            timing.cycles(one, program.config) for one in program.instructions if one.unit is unit
        )
        assert total == sum(row[f"{unit.name.lower()}_cycles"] for row in counted)
