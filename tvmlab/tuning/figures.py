"""Figures of tuning; what they show differs in more than colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..plot import COLOURS, MARKERS, figure
from ..support.extras import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["curves", "learned", "scaling", "space_map"]

_LINES = ("-", "--", "-.", ":")


def space_map(
    values: Mapping[tuple[int, int], float], *, rows: str, columns: str, unit: str
) -> Figure:
    """Draw a space of two decisions as cells with values; the highest one has a frame.

    Parameters
    ----------
    values : mapping of (int, int) to float
        What each candidate reached, by its two decisions, above zero. A pair that is missing leaves
        its cell empty.
    rows, columns : str
        The names of the first and of the second decision.
    unit : str
        The unit of the values.

    Returns
    -------
    matplotlib.figure.Figure
        Light is low and dark is high, and the numbers say the same.
    """
    import numpy as np

    down, across = (sorted({pair[place] for pair in values}) for place in (0, 1))
    grid = np.full((len(down), len(across)), np.nan)
    fig, axes = figure(1.6 + 0.66 * len(across), 1.3 + 0.42 * len(down))
    highest = max(values.values())
    for (first, second), value in values.items():
        row, column = down.index(first), across.index(second)
        grid[row, column] = value
        best = value == highest
        axes.text(
            column,
            row,
            f"{value:.0f}" if value >= 10 else f"{value:.1f}",
            ha="center",
            va="center",
            color="white" if value > highest / 2 else "black",
            fontsize=8,
            bbox={"fill": False, "edgecolor": COLOURS[3], "linewidth": 3} if best else None,
        )
    image = axes.imshow(grid, cmap="cividis_r", aspect="auto", vmin=0)
    axes.set_xticks(range(len(across)), [str(value) for value in across])
    axes.set_yticks(range(len(down)), [str(value) for value in down])
    axes.set(xlabel=columns, ylabel=rows)
    axes.spines[["left", "bottom"]].set_visible(False)
    fig.colorbar(image, label=unit)
    return fig


def curves(
    runs: Mapping[str, Sequence[float]], *, unit: str, lines: Mapping[str, float] | None = None
) -> Figure:
    """Draw searches as steps: the best value after each trial.

    Parameters
    ----------
    runs : mapping of str to sequence of float
        For each search, the best value known after its first, second, third trial.
    unit : str
        The unit of the values.
    lines : mapping of str to float, optional
        Values to compare with, drawn across in thick lines; at most four.

    Returns
    -------
    matplotlib.figure.Figure
        A style of line and a marker for each search.
    """
    fig, axes = figure(height=3.8)
    for row, (name, values) in enumerate(runs.items()):
        axes.step(
            range(1, len(values) + 1),
            values,
            where="post",
            # Not all at the same trials: where two searches know as much, both are to be seen.
            markevery=(row % 4, 4),
            markersize=5,
            label=name,
            **_style(row),
        )
    for style, (label, value) in zip(_LINES, (lines or {}).items(), strict=False):
        axes.axhline(value, color="black", linestyle=style, linewidth=2.4, alpha=0.6, label=label)
    return _finished(fig, axes, "trials", unit)


def learned(panels: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> Figure:
    """Draw what a cost model predicted over what was measured, a panel for each state of it.

    Parameters
    ----------
    panels : mapping of str to (sequence of float, sequence of float)
        Title of a panel; measured and predicted throughputs, relative to the best.

    Returns
    -------
    matplotlib.figure.Figure
    """
    made = need("matplotlib.figure", extra="plot")
    fig: Figure = made.Figure(figsize=(0.4 + 2.5 * len(panels), 3.0), dpi=110, layout="constrained")
    grid = fig.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)
    for place, (axes, (title, pair)) in enumerate(zip(grid.flat, panels.items(), strict=True)):
        axes.spines[["top", "right"]].set_visible(False)
        axes.plot([0, 1], [0, 1], color="black", linestyle=":", linewidth=0.8)
        axes.plot(*pair, markersize=5, **{**_style(place), "linestyle": ""})
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("measured")
    grid.flat[0].set_ylabel("predicted")
    return fig


def scaling(
    measured: Mapping[int, float], paper: Mapping[int, float], *, ceiling: float, unit: str
) -> Figure:
    """Draw a throughput over the number of machines: what was measured, and what a model predicts.

    Parameters
    ----------
    measured : mapping of int to float
        The throughput with a number of machines.
    paper : mapping of int to float
        What a model predicts for some numbers, in rising order.
    ceiling : float
        What no number of machines exceeds.
    unit : str
        The unit of all of them.

    Returns
    -------
    matplotlib.figure.Figure
    """
    fig, axes = figure()
    axes.plot(list(paper), list(paper.values()), color=COLOURS[0], label="on paper")
    dots = {**_style(3), "linestyle": "", "markersize": 8}
    axes.plot(list(measured), list(measured.values()), label="measured", **dots)
    axes.axhline(ceiling, color="black", linestyle="--", linewidth=1, label="the compiler's pace")
    axes.set_xlim(left=0)
    return _finished(fig, axes, "servers", unit)


def _style(row: int) -> dict[str, Any]:
    places = {"color": COLOURS, "linestyle": _LINES, "marker": MARKERS}
    return {name: values[row % len(values)] for name, values in places.items()}


def _finished(fig: Figure, axes: Any, xlabel: str, ylabel: str) -> Figure:
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(need("matplotlib.ticker", extra="plot").MaxNLocator(integer=True))
    axes.set(xlabel=xlabel, ylabel=ylabel)
    fig.legend(loc="outside right center", frameon=False)
    return fig
