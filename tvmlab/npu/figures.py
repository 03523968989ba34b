"""Figures of the accelerator and its schedule; marks differ in more than colour."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tvm import relax
from tvm.ir import IRModule

from ..plot import COLOURS, MARKERS, Box, figure
from .config import Config
from .coverage import operator
from .isa import Unit
from .reading import bindings
from .timeline import Phase

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Fill and hatch of each kind of instruction.
_KINDS = {
    "Load": (COLOURS[4], ""),
    "Store": (COLOURS[0], "////"),
    "Matmul": (COLOURS[1], ""),
    "Depthwise": (COLOURS[6], "..."),
    "Requantize": (COLOURS[2], ""),
    "Add": (COLOURS[5], "xxx"),
    "Pool": (COLOURS[3], "\\\\\\\\"),
    "Sum": ("white", "++"),
}
_UNITS = (Unit.DMA, Unit.ARRAY, Unit.VECTOR)
_LEGEND = {"loc": "outside lower center", "frameon": False}

#: The kinds of boxes that `devices` makes, in the order of `tvmlab.plot.graphs`.
DEVICES = ("accelerator", "CPU", "data")


def devices(mod: IRModule, on_cpu: Collection[str]) -> dict[str, Box]:
    """Make boxes of a small module's ``main`` for `tvmlab.plot.graphs`, by their device.

    The CPU computes the bindings named in `on_cpu`. Scales and zero points are left out.
    """
    names: dict[relax.Expr, str] = {}
    boxes: dict[str, Box] = {}

    def add(expr: relax.Expr, label: str, kind: str, operands: Sequence[str] = ()) -> None:
        names[expr] = str(len(names))
        boxes[names[expr]] = Box(f"{label}\n{expr.ty.dtype}", kind, operands)

    for param in mod["main"].params:
        add(param, param.name_hint, DEVICES[2])
    for var, call in bindings(mod["main"].body):
        for one in call.args:
            if one not in names and isinstance(one.ty, relax.TensorType) and one.ty.ndim > 0:
                add(one, "constant", DEVICES[2])
        known = [names[operand] for operand in call.args if operand in names]
        add(var, operator(call), DEVICES[var.name_hint in on_cpu], known)
    return boxes


def machine(config: Config) -> Figure:
    """Draw the machine: its memories and units, the data flow between them, and their sizes."""
    fig, axes = figure(7.4, 3.3)
    axes.set_xlim(0, 10.1)
    axes.set_ylim(0, 4.4)
    axes.set_axis_off()
    memory = {"boxstyle": "square,pad=0.6", "edgecolor": "black", "facecolor": "white"}
    unit = {"boxstyle": "round,pad=0.6", "edgecolor": "black", "facecolor": "#CDE9DF"}
    sram = f"SRAM\n{_size(config.sram_bytes)}\n\ndata, weights,\ntables"
    for text, x, y, look in (
        ("\n\n\n\nDRAM\n\ninputs, outputs,\nconstants\n\n\n\n", 0.95, 2.2, memory),
        (f"\n\n\n{sram}\n\n\n\n", 5.35, 2.2, memory),
        (f"accumulators\n{config.accumulators:,}\nint32", 9.2, 2.2, memory),
        (f"DMA\n{config.dma_bytes_per_cycle} bytes\nper cycle", 3.15, 2.2, unit),
        (f"array\n{config.rows} x {config.columns}\nint8", 7.4, 3.3, unit),
        (f"vector unit\n{config.lanes} lanes", 7.4, 1.1, unit),
    ):
        axes.text(x, y, text, bbox=look, ha="center", va="center", fontsize=8.5)
    ways = [((1.8, 2.2), (2.5, 2.2)), ((3.8, 2.2), (4.5, 2.2))]
    ways += [((6.1, 1.1), (6.7, 1.1)), ((8.0, 1.1), (9.0, 1.7))]
    one = [((6.1, 3.3), (6.8, 3.3)), ((7.9, 3.3), (9.0, 2.7))]
    for begin, end in ways + one:
        arrow = {"arrowstyle": "->" if (begin, end) in one else "<->", "linewidth": 1.4}
        axes.annotate("", end, begin, arrowprops=arrow)
    said = "square corners: memories; round corners: units, which work at once"
    axes.text(0.1, 0.05, said, fontsize=8)
    return fig


def gantt(phases: Sequence[Phase], *, title: str = "") -> Figure:
    """Draw the activity of each unit over the cycles of some phases, with lines at the syncs."""
    fig, axes = figure(7.4, 2.7)
    keys = {}
    for busy in (busy for phase in phases for busy in phase.work):
        fill, hatch = _KINDS[busy.kind]
        span, row = [(busy.start, busy.end - busy.start)], _UNITS.index(busy.unit)
        look = {"facecolor": fill, "hatch": hatch, "edgecolor": "black", "linewidth": 0.5}
        bars = axes.broken_barh(span, (row - 0.34, 0.68), label=busy.kind, **look)
        keys[busy.kind] = bars
    for phase in phases:
        axes.axvline(phase.end, color="black", linestyle=":", linewidth=1)
    axes.set_yticks(range(len(_UNITS)), [unit.name for unit in _UNITS])
    axes.invert_yaxis()
    axes.set_xlim(phases[0].start, phases[-1].end)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("cycles (dotted: a sync)")
    axes.set_title(title)
    shown = [keys[kind] for kind in _KINDS if kind in keys]
    fig.legend(handles=shown, ncols=len(shown), **_LEGEND)
    return fig


class LayerTime(NamedTuple):
    """Cycles of a layer: the total, and the busy cycles of each unit."""

    cycles: int
    dma: int
    array: int
    vector: int


def layer_times(layers: Sequence[tuple[str, LayerTime]], *, title: str = "") -> Figure:
    """Draw a bar for the cycles of each layer, by name, with a mark for each unit's busy cycles."""
    fig, axes = figure(7.4, 1.3 + 0.28 * len(layers))
    rows, (cycles, *units) = range(len(layers)), zip(*(time for _, time in layers), strict=True)
    axes.barh(rows, cycles, height=0.66, color="#DDDDDD", edgecolor="#707070", label="in all")
    names, colours = ("DMA engine", "array", "vector unit"), (COLOURS[0], COLOURS[3], COLOURS[2])
    for name, colour, marker, busy in zip(names, colours, MARKERS, units, strict=False):
        look = {"color": colour, "markeredgecolor": "black", "markeredgewidth": 0.5}
        axes.plot(busy, rows, marker, clip_on=False, label=f"{name} at work", **look)
    axes.set_yticks(rows, [name for name, _ in layers], fontsize=8)
    axes.set_ylim(len(layers) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("cycles")
    axes.set_title(title)
    fig.legend(ncols=4, **_LEGEND)
    return fig


def sweep(
    sizes: Sequence[int], lines: Mapping[str, Sequence[float]], *, bounds: Mapping[str, float]
) -> Figure:
    """Draw a panel for each of `lines` over the bytes of SRAM in `sizes`, with its lower bound."""
    fig, panels = figure(7.4, 2.9, columns=len(lines))
    for number, (axes, (label, values)) in enumerate(zip(panels, lines.items(), strict=True)):
        axes.plot(range(len(sizes)), values, marker=MARKERS[number], color=COLOURS[number])
        if label in bounds:
            axes.axhline(bounds[label], color=COLOURS[3], linestyle="--", label="lower bound")
            axes.legend(frameon=False)
        axes.set_xticks(range(len(sizes)), [_size(size) for size in sizes], fontsize=8, rotation=30)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_title(label, fontsize=10)
    fig.supxlabel("SRAM", fontsize=10)
    return fig


def _size(count: int) -> str:
    return f"{count >> 10} KiB" if count % 1024 == 0 else f"{count:,} bytes"
