"""Figures with alt text.

Every figure is published together with a sentence that says what one sees. It is the alternative
text in the output's metadata, which some renderers honour, and a caption below the figure, because
JupyterLab and nbconvert's default page do not (jupyter/enhancement-proposals, issue 120).
Colours are those of Okabe and Ito (2008), which people with the common kinds of colour blindness
can tell apart, and markers and line styles differ as well.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "MARKERS", "bars", "figure", "pictures", "roofline", "samples", "show"]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def figure(width: float = 7.0, height: float = 3.6) -> tuple[Figure, Axes]:
    """Make an empty figure in the workbook's style.

    Parameters
    ----------
    width, height : float
        Size in inches.

    Returns
    -------
    (matplotlib.figure.Figure, matplotlib.axes.Axes)
        Not registered with pyplot: nothing is left open, and no backend is chosen.
    """
    made = need("matplotlib.figure", extra="plot")
    fig: Figure = made.Figure(figsize=(width, height), dpi=110, layout="constrained")
    axes = fig.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    return fig, axes


def show(fig: Figure, alt: str) -> None:
    """Publish a figure in a notebook, with its description as alternative text and caption.

    Parameters
    ----------
    fig : matplotlib.figure.Figure
        The figure; it is drawn to PNG and left unchanged.
    alt : str
        One or more full sentences that say what one sees. It must not contain measured times,
        for the text is compared when the notebook is tested.
    """
    display = need("IPython.display", extra="notebooks")
    png = io.BytesIO()
    fig.savefig(png, format="png", metadata={"Software": None})
    display.publish_display_data(
        {"image/png": base64.b64encode(png.getvalue()).decode("ascii"), "text/plain": alt},
        metadata={"image/png": {"alt": alt}},
    )
    display.publish_display_data({"text/markdown": f"*{alt}*", "text/plain": alt})


def bars(
    values: Mapping[str, float],
    *,
    unit: str,
    title: str = "",
    lines: Mapping[str, float] | None = None,
    log: bool = False,
) -> Figure:
    """Draw one horizontal bar a name, its value at the right, and reference lines.

    Parameters
    ----------
    values : mapping of str to float
        Bars from top to bottom.
    unit : str
        The unit of all values, the label of the axis.
    title : str
        The title, empty for none.
    lines : mapping of str to float, optional
        Reference lines, drawn across and labelled.
    log : bool
        Whether the axis is logarithmic.

    Returns
    -------
    matplotlib.figure.Figure
    """
    fig, axes = figure(height=1.1 + 0.42 * len(values))
    names = list(values)
    axes.barh(names, [values[name] for name in names], color=COLOURS[0], height=0.62)
    # A column of their own: at the end of a bar, a number may stand on a reference line.
    for row, name in enumerate(names):
        axes.annotate(
            _short(values[name]),
            (1, row),
            xycoords=axes.get_yaxis_transform(),
            # In points: a distance that grew with the axes would move with each new layout.
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
        )
    axes.invert_yaxis()
    if log:
        axes.set_xscale("log")
        # Labels at 1, 2 and 5: over less than a power of ten there would be none, or too many.
        ticker = need("matplotlib.ticker", extra="plot")
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5), numticks=8))
        axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
        axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    for index, (label, value) in enumerate((lines or {}).items()):
        style = ("--", ":", "-.")[index % 3]
        axes.axvline(value, color=COLOURS[3], linestyle=style, label=f"{label}: {_short(value)}")
    if lines:
        fig.legend(loc="outside lower center", ncols=2, frameon=False)
    axes.set_xlabel(unit)
    axes.set_title(title)
    axes.margins(x=0.12)
    return fig


def samples(runs: Mapping[str, Sequence[float]], *, unit: str, title: str = "") -> Figure:
    """Draw every measured sample as a dot, one row a name, and each row's median as a bar.

    Parameters
    ----------
    runs : mapping of str to sequence of float
        The samples of each name, in the order they were taken.
    unit : str
        The unit of all samples.
    title : str
        The title, empty for none.

    Returns
    -------
    matplotlib.figure.Figure
    """
    import numpy as np

    fig, axes = figure(height=1.1 + 0.5 * len(runs))
    for row, (name, values) in enumerate(runs.items()):
        # A fixed zigzag keeps equal samples apart without random numbers.
        offsets = 0.18 * np.sin(2.4 * np.arange(len(values)))
        axes.plot(
            values,
            row + offsets,
            MARKERS[row % len(MARKERS)],
            color=COLOURS[row % len(COLOURS)],
            markersize=4,
            alpha=0.7,
            label=name,
        )
        middle = float(np.median(values))
        axes.plot([middle, middle], [row - 0.34, row + 0.34], color="black", linewidth=2)
    axes.set_yticks(range(len(runs)), list(runs))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{unit} (black bar: median)")
    axes.set_title(title)
    return fig


def pictures(
    images: Sequence[Any],
    captions: Sequence[str],
    *,
    columns: int = 8,
    title: str = "",
    cmap: str = "gray_r",
) -> Figure:
    """Draw pictures in a grid, each with a caption.

    Parameters
    ----------
    images : sequence of array
        Grey ``[h, w]`` or colour ``[h, w, 3]`` pictures.
    captions : sequence of str
        One a picture.
    columns : int
        Pictures in a row.
    title : str
        The title, empty for none.
    cmap : str
        How grey pictures are drawn: ``"gray_r"`` draws high values dark, as ink on paper,
        ``"gray"`` draws them bright, as a photograph.

    Returns
    -------
    matplotlib.figure.Figure
    """
    made = need("matplotlib.figure", extra="plot")
    columns = max(1, min(columns, len(images)))
    rows = -(-len(images) // columns)
    side = min(1.6, 7.6 / columns)
    height = rows * (side + 0.25) + (0.3 if title else 0)
    fig: Figure = made.Figure(figsize=(side * columns, height), dpi=110, layout="constrained")
    grid = fig.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, image, caption in zip(grid.flat, images, captions, strict=False):
        axes.imshow(image, cmap=cmap, interpolation="nearest")
        axes.set_title(caption, fontsize=8)
    if title:
        fig.suptitle(title)
    return fig


def roofline(
    kernels: Mapping[str, Sequence[tuple[float, float]]],
    *,
    peak: float,
    bandwidth: float,
    title: str = "",
) -> Figure:
    """Draw kernels under the two limits of a machine, both axes logarithmic.

    The higher a kernel's arithmetic intensity, the less it waits for memory: it can run at
    bandwidth times intensity, up to the peak (Williams et al., "Roofline: an insightful visual
    performance model for multicore architectures", CACM 2009).

    Parameters
    ----------
    kernels : mapping of str to sequence of (float, float)
        Groups of kernels, each with a marker and a colour of its own: FLOP per byte and GFLOP/s of
        each kernel, all above zero.
    peak : float
        The most that the arithmetic units do, in GFLOP/s.
    bandwidth : float
        The most that memory delivers, in GB/s.
    title : str
        The title, empty for none.

    Returns
    -------
    matplotlib.figure.Figure
    """
    fig, axes = figure(height=4.2)
    ridge = peak / bandwidth
    reached = [intensity for points in kernels.values() for intensity, _ in points]
    low, high = min([ridge, *reached]) / 2, max([ridge, *reached]) * 2
    axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color="black")
    axes.axvline(ridge, color="black", linestyle=":", linewidth=0.8)
    for row, (name, points) in enumerate(kernels.items()):
        axes.plot(
            [intensity for intensity, _ in points],
            [speed for _, speed in points],
            MARKERS[row % len(MARKERS)],
            color=COLOURS[row % len(COLOURS)],
            markeredgecolor="black",
            markeredgewidth=0.5,
            label=name,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(y=0.15)
    limits = {f"peak {_short(peak)} GFLOP/s": high, f"memory {_short(bandwidth)} GB/s": ridge * 0.9}
    for label, right in limits.items():
        axes.annotate(label, (right, peak), (0, 4), textcoords="offset points", ha="right")
    axes.set_xlabel("arithmetic intensity: FLOP per byte of inputs, weights and outputs")
    axes.set_ylabel("GFLOP/s")
    axes.set_title(title)
    fig.legend(loc="outside right center", frameon=False)
    return fig


def _short(value: float) -> str:
    """Write a number with three significant digits and no exponent."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
