"""Reports and timelines: floors that hold, sums that add up, energy from its sources."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from tests.npu.machine_code import one_convolution
from tests.npu.regions import CONFIGS, Builder, networks, residual
from tests.short import examples
from tvmlab.errors import TvmlabError
from tvmlab.npu import energy
from tvmlab.npu.codegen.lower import compile_region
from tvmlab.npu.codegen.tiling import fits
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Dtype, Instruction, Load, Matmul, Requantize, Rounding, Store, Sync, Unit
from tvmlab.npu.partition import partition
from tvmlab.npu.program import Dram, Kind, Program
from tvmlab.npu.report import Row, Table, report
from tvmlab.npu.simulator import count
from tvmlab.npu.timeline import phases


@settings(max_examples=examples(60), deadline=None)
@given(case=networks(), config=CONFIGS)
def test_cycles_are_never_below_a_floor(case: tuple[Builder, list[str]], config: Config) -> None:
    builder, outputs = case
    region = builder.region(*outputs)
    if any(fits(layer, region.values, config) for layer in region.layers):
        return
    found = report(compile_region(region, config))
    assert found.cycles >= max(found.floors.values())
    assert found.cycles == sum(row.cycles for row in found.layers)
    total = found.regions[0].total
    assert total.counters["bus_bytes"] >= total.moved
    assert 0 <= total.utilisation <= 1


def test_a_table() -> None:
    builder, out = residual(16)
    program = compile_region(builder.region(out), Config(sram_bytes=32 << 10))
    found = report(program)
    (table,) = found.regions
    assert [row.name for row in table.layers] == list(program.layers)
    macs = 16 * 16 * 9 * 16 * 16
    assert [row.counters["array_macs"] for row in table.layers] == [macs, macs, 0]
    assert found.floors["array"] == 2 * macs / 256
    tensors = [one for one in program.tensors if one.kind != Kind.SCRATCH]
    assert table.needed == sum(one.nbytes for one in tensors)
    assert found.floors["dma"] == table.needed / 16
    assert table.needed < table.total.moved, "this SRAM is too small for the values in between"
    assert table.total.milliseconds == found.cycles / 1e6
    text = str(found)
    assert text == str(table)
    numbers = f"{found.cycles:,}", f"{found.floors['array']:,.0f}"
    words = "16x16 array, 32 KiB SRAM", "array floor", "DMA pace", "microjoule", "ISSCC 2014"
    for piece in (*numbers, *words, "ms at 1000 MHz"):
        assert piece in text
    assert len(text.splitlines()) == 2 + len(table.layers) + 3


def test_a_layer_that_works_in_another_ones_cycles_has_a_note() -> None:
    config = Config()
    products = 512 * config.rows * config.columns
    rows = [
        Row(f"of {cycles}", config, Counter(array_macs=products, cycles=cycles))
        for cycles in (600, 400)
    ]
    for layers, noted in ((rows[:1], False), (rows, True)):
        text = str(Table("region", config, tuple(layers), rows[0], 16))
        assert ("array above 100%" in text) is noted


def test_energy_by_part() -> None:
    counters = {
        "array_macs": 900, "vector_macs": 100, "sram_read_bytes": 700, "sram_written_bytes": 100,
        "bus_bytes": 64,
    }  # fmt: skip
    found = energy.picojoules(counters, Config(sram_bytes=32 << 10))
    assert found == pytest.approx({"arithmetic": 300.0, "sram": 2000.0, "dram": 10400.0})
    between = energy.picojoules(counters, Config(sram_bytes=256 << 10))["sram"]
    assert between == pytest.approx(100 * (20 + 80 * 3 / 5))
    least, most = (
        energy.picojoules(counters, Config(sram_bytes=size))["sram"] for size in (1 << 10, 8 << 20)
    )
    assert (least, most) == (1000.0, 10000.0)


def test_a_module() -> None:
    config = Config(sram_bytes=16 << 10)
    found = report(partition(one_convolution(), config))
    (table,) = found.regions
    assert table.config == config
    (row,) = table.layers
    assert row.counters["array_macs"] == 8 * 8 * 9 * 16 * 16
    assert row.tiling is not None
    assert row.tiling.channels == 16
    assert sum(found.energy.values()) == pytest.approx(sum(row.energy.values()))


def test_a_module_with_nothing_for_the_machine() -> None:
    found = report(one_convolution())
    assert found.cycles == 0
    assert found.layers == ()
    assert str(found) == "nothing runs on the accelerator"


LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1


def move(kind: type[Load] | type[Store], tensor: int, address: int, size: int) -> Instruction:
    return kind(1, tensor, 0, address, 1, 1, 1, 1, size, 0, 0, 0, 1, 0, 0, 0, 1)


def program(*, last_sync: bool = True) -> Program:
    """One pixel of 16 channels times 16 x 16 weights, the next weights loaded meanwhile."""
    product = Matmul(
        0, 0, 16, 16, Dtype.int8, 1, 1, 16, 0, 0, 0, 64, 1, 1, 1, 1, 1, 1, 1, 1, 16, 0, 320
    )
    scale = (LOWEST, HIGHEST, Rounding.NONE, 0, 0, 0, 0, LOWEST, HIGHEST)
    ready = Requantize(0, 0, 1, 1, 16, *scale, 0, 64, 64, Dtype.int32)
    steps = [
        *(move(Load, 0, 0, 16), move(Load, 1, 64, 320), Sync(0)),
        *(product, move(Load, 1, 512, 320), Sync(0)),
        *(ready, Sync(0)),
        move(Store, 2, 0, 64),
        *([Sync(0)] * last_sync),
    ]
    tensors = (
        Dram(Kind.INPUT, Dtype.int8, (1, 16)),
        Dram(Kind.CONSTANTS, Dtype.uint8, (320,)),
        Dram(Kind.OUTPUT, Dtype.int32, (1, 16)),
    )
    return Program(Config(), tensors, ("product", "moves"), tuple(steps), bytes(320))


def test_every_instruction_has_its_place() -> None:
    found = phases(program())
    assert [len(phase.work) for phase in found] == [2, 2, 1, 1]
    work = [busy for phase in found for busy in phase.work]
    instructions = program().instructions
    assert [busy.index for busy in work] == [0, 1, 3, 4, 6, 8]
    assert all(busy.kind == type(instructions[busy.index]).__name__ for busy in work)
    assert all(busy.unit == instructions[busy.index].unit for busy in work)
    # Two loads in a row: latency and bytes of 32 a burst; then one load during the product.
    assert [(busy.start, busy.end) for busy in work[:2]] == [(0, 66), (66, 66 + 64 + 20)]
    start = found[0].end
    assert start == 150 + 1
    assert (work[2].start, work[3].start) == (start, start)
    assert found[1].end == start + max(found[1].cycles(Unit.ARRAY), found[1].cycles(Unit.DMA)) + 1


@pytest.mark.parametrize("last_sync", [True, False])
def test_it_is_as_long_as_the_simulator_says(last_sync: bool) -> None:
    made = program(last_sync=last_sync)
    found, counted = phases(made), count(made.to_bytes())
    assert found[-1].end == sum(layer["cycles"] for layer in counted)
    for unit in (Unit.DMA, Unit.ARRAY, Unit.VECTOR):
        cycles = sum(phase.cycles(unit) for phase in found)
        assert cycles == sum(layer[f"{unit.name.lower()}_cycles"] for layer in counted) > 0


def test_a_program_that_the_machine_refuses_has_no_timeline() -> None:
    made = program()
    outside = Program(
        made.config, made.tensors, made.layers, (move(Load, 0, 1 << 20, 16),), made.constants
    )
    with pytest.raises(TvmlabError):
        phases(outside)
