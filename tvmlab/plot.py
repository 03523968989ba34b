"""Figures with alternative text.

The alternative text is stored in the output's metadata; the conclusion is a visible
caption, because JupyterLab ignores the metadata (jupyter/enhancement-proposals, issue 120).
Colours are those of Okabe and Ito (2008); markers and line styles differ as well.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from itertools import accumulate, count, cycle
from typing import TYPE_CHECKING, Any, NamedTuple

from .support.extras import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "MARKERS", "Box", "bars", "figure", "graphs", "pictures"]
__all__ += ["roofline", "show"]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

# The style of each group of dots, without lines between them.
_LOOKS = [
    {"marker": marker, "color": colour, "linestyle": ""}
    for marker, colour in zip(MARKERS, COLOURS, strict=True)
]


def figure(
    width: float = 7.0, height: float = 3.6, *, rows: int = 1, columns: int = 0
) -> tuple[Figure, Any]:
    """Make an empty figure in the workbook's style.

    The figure is not registered with pyplot: it needs no closing and no backend.

    Parameters
    ----------
    width, height : float
        Size in inches.
    rows, columns : int
        The grid of panels; without `columns` there is one panel.

    Returns
    -------
    (matplotlib.figure.Figure, matplotlib.axes.Axes)
        With `columns`, an array of all panels instead of the axes.
    """
    made = need("matplotlib.figure", extra="plot")
    fig: Figure = made.Figure(figsize=(width, height), dpi=110, layout="constrained")
    panels = fig.subplots(rows, columns or 1, squeeze=False).ravel()
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return fig, panels if columns else panels[0]


def show(fig: Figure, alt: str, caption: str = "") -> None:
    """Publish a figure in a notebook, with a description as its alternative text.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure; it is drawn to PNG and left unchanged.
    alt, caption : str
        A description of the figure, and its conclusion, in full sentences. Neither contains
        measured times, because the text is compared when the notebook is tested. An empty caption
        is not shown.
    """
    png = io.BytesIO()
    fig.savefig(png, format="png", metadata={"Software": None})
    data = {"image/png": base64.b64encode(png.getvalue()).decode("ascii"), "text/plain": alt}
    display = need("IPython.display", extra="notebooks")
    display.publish_display_data(data, metadata={"image/png": {"alt": alt}})
    if caption:
        display.publish_display_data({"text/markdown": f"*{caption}*", "text/plain": caption})


def bars(
    values: Mapping[str, float],
    *,
    unit: str,
    title: str = "",
    lines: Mapping[str, float] | None = None,
    log: bool = False,
    newest: str = "",
) -> Figure:
    """Draw one horizontal bar per name, its value at the right, and reference lines.

    Parameters
    ----------
    values : mapping of str to float
        Bars from top to bottom.
    unit, title : str
        The unit of all values, which is the label of the axis; the title, empty for no title.
    lines : mapping of str to float, optional
        Reference lines, drawn across and labelled.
    log : bool
        Whether the axis is logarithmic. Dots then replace the bars, because the length of a bar on
        a logarithmic axis depends on where the axis starts.
    newest : str
        The name to highlight: with a diamond instead of the dot, or a bar of another shade.
    """
    fig, axes = figure(height=1.1 + 0.42 * len(values))
    for name, value in values.items():
        if log:
            size = {"marker": "D", "s": 70} if name == newest else {"marker": "o", "s": 40}
            axes.scatter(value, name, color=COLOURS[0], zorder=3, **size)
        else:
            axes.barh(name, value, color=COLOURS[name == newest], height=0.62)
    # The values have a column of their own, so that no value covers a reference line. It is in
    # points, because a distance that grew with the axes would move with each new layout.
    place = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "va": "center"}
    for row, value in enumerate(values.values()):
        axes.annotate(_short(value), (1, row), (6, 0), **place)
    axes.invert_yaxis()
    if log:
        axes.set_xscale("log")
        # Labels at 1, 2 and 5: below a power of ten the default has no labels, or too many.
        ticker = need("matplotlib.ticker", extra="plot")
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=8))
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    for style, (label, value) in zip(cycle(("--", ":", "-.")), (lines or {}).items(), strict=False):
        axes.axvline(value, color=COLOURS[3], linestyle=style, label=f"{label}: {_short(value)}")
    if lines:
        fig.legend(loc="outside lower center", ncols=2, frameon=False)
    axes.set_xlabel(unit)
    axes.set_title(title)
    axes.margins(x=0.12)
    return fig


def pictures(
    images: Sequence[Any], captions: Sequence[str], *, columns: int = 8, cmap: str = "gray_r"
) -> Figure:
    """Draw images in a grid, each with a caption.

    Parameters
    ----------
    images : sequence of array
        Grey ``[h, w]`` or colour ``[h, w, 3]`` images.
    captions : sequence of str
        One per image.
    columns : int
        Images per row.
    cmap : str
        ``"gray_r"`` draws high values of grey images dark, like ink; ``"gray"`` draws them bright.
    """
    columns = max(1, min(columns, len(images)))
    rows = -(-len(images) // columns)
    side = min(1.6, 7.6 / columns)
    fig, grid = figure(side * columns, rows * (side + 0.25), rows=rows, columns=columns)
    for axes in grid:
        axes.set_axis_off()
    for axes, image, caption in zip(grid, images, captions, strict=False):
        axes.imshow(image, cmap=cmap, interpolation="nearest")
        axes.set_title(caption, fontsize=8)
    return fig


def roofline(
    kernels: Mapping[str, Sequence[tuple[float, float]]],
    *,
    peak: float,
    bandwidth: float,
    title: str = "",
    units: tuple[str, str, str] = ("FLOP", "GFLOP/s", "GB/s"),
) -> Figure:
    """Draw kernels under the two limits of a machine, both axes logarithmic.

    A kernel can run at bandwidth times arithmetic intensity, up to the peak (Williams et al.,
    "Roofline: an insightful visual performance model for multicore architectures", CACM 2009).

    Parameters
    ----------
    kernels : mapping of str to sequence of (float, float)
        Groups of kernels, each with a marker and a colour of its own: FLOP per byte and GFLOP/s of
        each kernel, all above zero.
    peak, bandwidth : float
        The peak of the arithmetic units in GFLOP/s, and the memory bandwidth in GB/s.
    title : str
        The title, empty for no title.
    units : (str, str, str)
        The units of work, speed and bandwidth, if they differ from the default.
    """
    fig, axes = figure(height=4.2)
    ridge = peak / bandwidth
    reached = [intensity for points in kernels.values() for intensity, _ in points]
    # Both labels fit on their sides of the ridge.
    low, high = min([ridge / 4, *reached]) / 2, max([4 * ridge, *reached]) * 2
    axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color="black")
    axes.axvline(ridge, color="black", linestyle=":", linewidth=0.8)
    for (name, points), look in zip(kernels.items(), cycle(_LOOKS), strict=False):
        edge = {"markeredgecolor": "black", "markeredgewidth": 0.5}
        x, y = ([point[i] for point in points] for i in range(2))
        axes.plot(x, y, label=name, **look, **edge)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(y=0.15)
    work, speed, traffic = units
    place = {"xytext": (0, 4), "textcoords": "offset points", "ha": "right"}
    axes.annotate(f"peak {_short(peak)} {speed}", (high, peak), **place)
    axes.annotate(f"memory {_short(bandwidth)} {traffic}", (ridge * 0.9, peak), **place)
    axes.set_xlabel(f"arithmetic intensity: {work} per byte of inputs, weights and outputs")
    axes.set_ylabel(speed)
    axes.set_title(title)
    fig.legend(loc="outside right center", frameon=False)
    return fig


class Box(NamedTuple):
    """A node of a small graph: its label, its kind, and the names of its operands."""

    label: str
    kind: str
    operands: Sequence[str] = ()


# Fill, edge, style and width of the line: one row for each kind of box.
_LINES = (
    ("#CDE9DF", COLOURS[2], "-", 1.2),
    ("#FBDDC9", COLOURS[3], "--", 2.4),
    ("white", "#707070", ":", 1.0),
)


def graphs(drawn: Mapping[str, Mapping[str, Box]], *, kinds: Sequence[str]) -> Figure:
    """Draw small graphs side by side, with arrows down from each operand to its user.

    Parameters
    ----------
    drawn : mapping of str to mapping of str to Box
        For each graph its title, and its boxes by name, the result last. A first operand is drawn
        above its user, the others to the right of it.
    kinds : sequence of str
        The kinds of boxes, at most three, in the legend's order. They differ in colour and in line.
    """
    patches = need("matplotlib.patches", extra="plot")
    places = {title: _placed(boxes) for title, boxes in drawn.items()}
    rows = 1 + max(row for where in places.values() for _, row in where.values())
    widths = [1.25 + max(column for column, _ in where.values()) for where in places.values()]
    fig, axes = figure(1.2 * sum(widths), 0.62 * rows + 1)
    styles = {kind: _LINES[index] for index, kind in enumerate(kinds)}
    for (title, boxes), left in zip(drawn.items(), accumulate([0, *widths]), strict=False):
        spots = {name: (left + column, row) for name, (column, row) in places[title].items()}
        axes.text(left - 0.5, rows - 0.4, title, weight="bold")
        for name, box in boxes.items():
            fill, edge, line, width = styles[box.kind]
            look = {"facecolor": fill, "edgecolor": edge, "linestyle": line, "linewidth": width}
            frame = {"boxstyle": "round,pad=0.35", **look}
            axes.text(*spots[name], box.label, bbox=frame, ha="center", va="center", fontsize=8)
            for x, y in (spots[operand] for operand in box.operands):
                end = spots[name][0], spots[name][1] + 0.31
                axes.annotate("", end, (x, y - 0.31), arrowprops={"arrowstyle": "->"})
    axes.set_xlim(-0.6, sum(widths) - 0.6)
    axes.set_ylim(-0.5, rows)
    axes.set_axis_off()
    keys = [
        patches.Patch(facecolor=fill, edgecolor=edge, linestyle=line, linewidth=width, label=kind)
        for kind, (fill, edge, line, width) in styles.items()
    ]
    fig.legend(handles=keys, loc="outside lower center", ncols=len(keys), frameon=False)
    return fig


def _placed(boxes: Mapping[str, Box]) -> dict[str, tuple[int, int]]:
    """Assign each box a column and a row; rows count up from the result, over the longest path."""
    rows = dict.fromkeys(boxes, 0)
    for name in reversed(list(boxes)):  # users come before their operands
        for operand in boxes[name].operands:
            rows[operand] = max(rows[operand], rows[name] + 1)
    columns: dict[str, int] = {}
    todo = [(name, 0) for name in boxes]  # the result comes first
    while todo:
        name, wanted = todo.pop()
        if name not in columns:
            taken = {columns[other] for other in columns if rows[other] == rows[name]}
            columns[name] = next(c for c in count(wanted) if c not in taken)
            operands = enumerate(boxes[name].operands)
            todo += reversed([(operand, columns[name] + (i > 0)) for i, operand in operands])
    return {name: (columns[name], rows[name]) for name in columns}


def _short(value: float) -> str:
    """Format a number with three significant digits and no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
