"""The accelerator's figures say the right things, and not by colour alone."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from tvmlab import plot, relay
from tvmlab.npu.config import Config
from tvmlab.npu.figures import DEVICES, LayerTime, devices, gantt, layer_times, machine, sweep
from tvmlab.npu.isa import INSTRUCTIONS, Sync, Unit
from tvmlab.npu.timeline import Busy, Phase


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


def test_a_sweep_has_a_panel_a_figure_and_its_floor() -> None:
    lines = {"cycles": [9, 7, 6], "bytes moved": [100.0, 60.0, 40.0]}
    fig = sweep([1000, 2048, 4096], lines, floors={"cycles": 5})
    left, right = fig.axes
    assert [axes.get_title() for axes in (left, right)] == list(lines)
    assert [list(axes.lines[0].get_ydata()) for axes in (left, right)] == list(lines.values())
    sizes = ["1,000 bytes", "2 KiB", "4 KiB"]
    assert [label.get_text() for label in left.get_xticklabels()] == sizes
    assert list(left.lines[1].get_ydata()) == [5, 5]
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
