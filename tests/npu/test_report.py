"""Reports, timelines and programs as text: floors that hold, sums that add up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.npu import graphs
from tests.npu.cases import move
from tests.npu.machine_code import convolution
from tests.npu.program import small_network
from tests.short import examples, fresh
from tvmlab.errors import TvmlabError
from tvmlab.npu import energy
from tvmlab.npu.codegen import program as program_of
from tvmlab.npu.codegen import regions
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Load, Sync, Unit
from tvmlab.npu.partition import partition
from tvmlab.npu.program import Kind, disassemble
from tvmlab.npu.report import report
from tvmlab.npu.simulator import count
from tvmlab.npu.timeline import phases

UNITS = (Unit.DMA, Unit.ARRAY, Unit.VECTOR)


def test_cycles_are_never_below_a_floor() -> None:
    for number in range(examples(60)):
        choose = random.Random(fresh(number))
        drawn, config = graphs.Drawn(choose), graphs.config(choose)
        found = report(partition(drawn.mod, config))
        assert found.cycles == sum(row.cycles for row in found.layers)
        for table in found.regions:
            assert table.total.cycles >= max(table.floors.values())
            assert table.total.counters["bus_bytes"] >= table.total.moved
            assert 0 <= table.total.utilisation <= 1


def test_a_table() -> None:
    config = Config(sram_bytes=2 << 10)
    (function,) = regions(partition(graphs.chain(6), config)).values()
    made = program_of(function)
    found = report(made)
    (table,) = found.regions
    assert [row.name for row in table.layers] == list(made.layers)
    macs = 8 * 8 * 16 * 16
    assert [row.counters["array_macs"] for row in table.layers] == [macs, 0, macs, 0]
    assert table.floors["array"] == 2 * macs / 256
    tensors = [one for one in made.tensors if one.kind != Kind.SCRATCH]
    assert table.needed == sum(one.nbytes for one in tensors)
    assert table.floors["dma"] == table.needed / 16
    assert table.needed < table.total.moved, "this SRAM is too small for the values in between"
    assert sum(found.energy.values()) == pytest.approx(sum(table.total.energy.values()))
    text = str(found)
    assert text == str(table)
    words = "16x16 array, 2 KiB SRAM", "DMA pace", f"{found.cycles / 1e6:.3f} ms at 1000 MHz"
    assert all(piece in text for piece in (f"{found.cycles:,}", "ISSCC 2014", *words))
    assert len(text.splitlines()) == 2 + len(table.layers) + 3


def test_energy_by_part() -> None:
    counters = dict.fromkeys(("array_macs", "vector_macs", "sram_read_bytes"), 500)
    counters |= {"sram_written_bytes": 300, "bus_bytes": 64}
    found = energy.picojoules(counters, Config(sram_bytes=32 << 10))
    assert found == pytest.approx({"arithmetic": 300.0, "sram": 2000.0, "dram": 10400.0})
    for size, sram in ((1 << 10, 1000), (256 << 10, 100 * (20 + 80 * 3 / 5)), (8 << 20, 10000)):
        found = energy.picojoules(counters, Config(sram_bytes=size))
        assert found["sram"] == pytest.approx(sram)


def test_a_module_with_nothing_for_the_machine() -> None:
    found = report(convolution())
    assert found.cycles == 0
    assert found.layers == ()
    assert str(found) == "nothing runs on the accelerator"


@pytest.mark.parametrize("last_sync", [True, False])
def test_phases_have_every_instruction_and_the_cycles_of_the_simulator(last_sync: bool) -> None:
    instructions = (*small_network().instructions, *[Sync(4)] * last_sync)
    program = replace(small_network(), instructions=instructions)
    found, counted = phases(program), count(program.to_bytes())
    work = [busy for phase in found for busy in phase.work]
    places = [at for at, one in enumerate(instructions) if not isinstance(one, Sync)]
    assert [busy.index for busy in work] == places
    assert [busy.kind for busy in work] == [type(instructions[at]).__name__ for at in places]
    assert all(busy.unit == instructions[busy.index].unit for busy in work)
    # Two loads in a row: latency, and bytes in bursts of 32.
    assert [(busy.start, busy.end) for busy in work[:2]] == [(0, 64 + 10), (74, 74 + 64 + 46)]
    for phase in found:
        longest = max(phase.cycles(unit) for unit in UNITS)
        assert phase.end == phase.start + longest + (phase is not found[-1] or last_sync)
    assert found[-1].end == sum(layer["cycles"] for layer in counted)
    for unit in UNITS:
        cycles = sum(phase.cycles(unit) for phase in found)
        assert cycles == sum(layer[f"{unit.name.lower()}_cycles"] for layer in counted) > 0


def test_a_program_that_the_machine_refuses_has_no_timeline() -> None:
    outside = replace(small_network(), instructions=(move(Load, 0, 1 << 20, 16),))
    with pytest.raises(TvmlabError):
        phases(outside)


TEXT = """\
machine: 16x16 array, 16 lanes, 8,192 bytes of SRAM, 512 accumulators
tensor input0: uint8 6x6x4
tensor constants: uint8 732
phase 0
    dma    load input0+0x0 -> 0x0, 6x6 of 4 bytes
phase 1
    array  matmul 0x0 6x6x4 uint8, window 3x3 pad 1x1, weights 0x400, bias 0x640 -> sums 0 6x6x4
  depthwise
phase 2
    vector requantize sums 0 6x6x4 -> 0x1000 uint8, UPWARD by channel at 0x6a4 + 3, clip 0..255
    vector sum address 4496, row_stride 12, pixel_stride 4, dtype 1, rows 3, cols 3, channels 4, \
low 0, start -27, accumulate 0, sums 400
phase 3
    dma    store 0x1190 -> scratch0+0x0, 36 of 1 byte
"""


def test_a_program_as_text() -> None:
    lines = iter(disassemble(small_network()).splitlines())
    assert all(line in lines for line in TEXT.splitlines())  # in this order
