"""Reports, timelines, programs as text and figures: bounds that hold, sums that add up."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.npu import graphs
from tests.npu.cases import small_network
from tests.npu.machine_code import convolution
from tests.short import examples, fresh
from tvmlab import plot, relay
from tvmlab.npu import energy
from tvmlab.npu.codegen import program as program_of
from tvmlab.npu.codegen import regions
from tvmlab.npu.config import Config
from tvmlab.npu.figures import DEVICES, LayerTime, devices, gantt, layer_times, machine, sweep
from tvmlab.npu.isa import INSTRUCTIONS, Sync, Unit
from tvmlab.npu.partition import partition
from tvmlab.npu.program import Kind, disassemble
from tvmlab.npu.report import report
from tvmlab.npu.simulator import count
from tvmlab.npu.timeline import Busy, Phase, phases

UNITS = (Unit.DMA, Unit.ARRAY, Unit.VECTOR)


def test_cycles_are_never_below_a_bound() -> None:
    for number in range(examples(60)):
        choose = random.Random(fresh(number))
        drawn, config = graphs.Drawn(choose), graphs.config(choose)
        found = report(partition(drawn.mod, config))
        assert found.cycles == sum(row.cycles for row in found.layers)
        for table in found.regions:
            assert table.total.cycles >= max(table.bounds.values())
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
    assert table.bounds["array"] == 2 * macs / 256
    tensors = [one for one in made.tensors if one.kind != Kind.SCRATCH]
    assert table.needed == sum(one.nbytes for one in tensors)
    assert table.bounds["dma"] == table.needed / 16
    assert table.needed < table.total.moved, "this SRAM is too small for the values in between"
    assert sum(found.energy.values()) == pytest.approx(sum(table.total.energy.values()))
    text = str(found)
    assert text == str(table)
    words = "16x16 array, 2 KiB SRAM", "DMA bound", f"{found.cycles / 1e6:.3f} ms at 1000 MHz"
    assert all(piece in text for piece in (f"{found.cycles:,}", "ISSCC 2014", *words))
    assert len(text.splitlines()) == 2 + len(table.layers) + 3
    assert str(report(convolution())) == "nothing runs on the accelerator"


def test_energy_by_part() -> None:
    counters = dict.fromkeys(("array_macs", "vector_macs", "sram_read_bytes"), 500)
    counters |= {"sram_written_bytes": 300, "bus_bytes": 64}
    found = energy.picojoules(counters, Config(sram_bytes=32 << 10))
    assert found == pytest.approx({"arithmetic": 300.0, "sram": 2000.0, "dram": 10400.0})
    for size, sram in ((1 << 10, 1000), (256 << 10, 100 * (20 + 80 * 3 / 5)), (8 << 20, 10000)):
        found = energy.picojoules(counters, Config(sram_bytes=size))
        assert found["sram"] == pytest.approx(sram)


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


def drawn(fig: Any) -> None:
    fig.savefig(io.BytesIO(), format="png")


def legend(fig: Any) -> list[str]:
    return [text.get_text() for text in fig.legends[0].get_texts()]


def test_the_machine_shows_its_sizes() -> None:
    fig = machine(Config(rows=8, columns=4, sram_bytes=3000, accumulators=5000, lanes=7))
    said = "\n".join(text.get_text() for text in fig.axes[0].texts)
    for size in ("8 x 4", "3,000 bytes", "5,000", "7 lanes", "16 bytes"):
        assert size in said
    assert "256 KiB" in "\n".join(text.get_text() for text in machine(Config()).axes[0].texts)


def test_a_gantt_has_a_row_a_unit_and_a_line_a_sync() -> None:
    kinds = [kind for kind in INSTRUCTIONS.values() if kind is not Sync]
    work = [Busy(one.unit, one.__name__, i, 10 * i, 10 * i + 8) for i, one in enumerate(kinds)]
    fig = gantt([Phase(0, 41, tuple(work[:4])), Phase(41, 90, tuple(work[4:]))], title="two phases")
    (axes,) = fig.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["DMA", "ARRAY", "VECTOR"]
    assert [line.get_xdata()[0] for line in axes.lines] == [41, 90]
    rows = {Unit.DMA: 0, Unit.ARRAY: 1, Unit.VECTOR: 2}
    boxes = [bar.get_paths()[0].get_extents() for bar in axes.collections]
    spans = [(round(box.x0), round(box.x1), round((box.y0 + box.y1) / 2)) for box in boxes]
    assert spans == [(busy.start, busy.end, rows[busy.unit]) for busy in work]
    assert set(legend(fig)) == {busy.kind for busy in work}
    drawn(fig)


def test_layers_have_a_bar_each_and_a_mark_for_each_unit() -> None:
    layers = [("conv2d", LayerTime(1000, 200, 900, 300)), ("add", LayerTime(400, 390, 0, 100))]
    fig = layer_times(layers, title="layers")
    (axes,) = fig.axes
    assert [bar.get_width() for bar in axes.patches] == [1000, 400]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["conv2d", "add"]
    assert [list(line.get_xdata()) for line in axes.lines] == [[200, 390], [900, 0], [300, 100]]
    names = ("DMA engine", "array", "vector unit")
    assert legend(fig) == [*(f"{name} at work" for name in names), "in all"]
    drawn(fig)


def test_a_sweep_has_a_panel_a_figure_and_its_bound() -> None:
    lines = {"cycles": [9, 7, 6], "bytes moved": [100.0, 60.0, 40.0]}
    fig = sweep([1000, 2048, 4096], lines, bounds={"cycles": 5})
    left, right = fig.axes
    assert [axes.get_title() for axes in (left, right)] == list(lines)
    assert [list(axes.lines[0].get_ydata()) for axes in (left, right)] == list(lines.values())
    sizes = ["1,000 bytes", "2 KiB", "4 KiB"]
    assert [label.get_text() for label in left.get_xticklabels()] == sizes
    assert list(left.lines[1].get_ydata()) == [5, 5]
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["lower bound"]
    drawn(fig)


SMALL = """def @main(%x: Tensor[(1, 4), float32], %c: Tensor[(1, 4), int8]) {
  %0 = qnn.quantize(%x, 0.5f, 3, out_dtype="int8");
  %1 = qnn.add(%0, %c, 0.5f, 3, 0.5f, 3, 0.5f, 3);
  qnn.dequantize(%1, 0.5f, 3)
}
"""


def test_a_graph_says_which_device_computes_what() -> None:
    mod = relay.fromtext(SMALL, {"c": np.ones((1, 4), "int8")})
    names = [one.var.name_hint for one in mod["main"].body.blocks[0].bindings]
    boxes = devices(mod, {names[0], names[2]})
    assert [(box.label.split("\n")[0], box.kind) for box in boxes.values()] == [
        ("x", "data"),
        ("qnn.quantize", "CPU"),
        ("constant", "data"),
        ("qnn.add", "accelerator"),
        ("qnn.dequantize", "CPU"),
    ]
    order = list(boxes)
    assert list(boxes[order[3]].operands) == [order[1], order[2]]
    drawn(plot.graphs({"small": boxes}, kinds=DEVICES))
