"""Pictures of tuning; they differ in more than colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..plot import COLOURS, MARKERS, figure
from ..support.extras import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["curves", "learned", "scaling", "space_map"]

_LINES = ("-", "--", "-.", ":")


def space_map(
    values: Mapping[tuple[int, int], float], *, rows: str, columns: str, unit: str, title: str = ""
) -> Figure:
    """Draw a space of two decisions: a cell a candidate, with its value, the highest one framed.

    Parameters
    ----------
    values : mapping of (int, int) to float
        What each candidate reached, by its two decisions, above zero. A pair that is missing leaves
        its cell empty.
    rows, columns : str
        What the first and what the second decision is.
    unit : str
        The unit of the values.
    title : str
        The title, empty for none.

    Returns
    -------
    matplotlib.figure.Figure
        Light is low and dark is high, and the numbers say the same.
    """
    import numpy as np

    patches = need("matplotlib.patches", extra="plot")
    down, across = (sorted({pair[place] for pair in values}) for place in (0, 1))
    grid = np.full((len(down), len(across)), np.nan)
    for (first, second), value in values.items():
        grid[down.index(first), across.index(second)] = value
    fig, axes = figure(1.6 + 0.66 * len(across), 1.3 + 0.42 * len(down))
    image = axes.imshow(grid, cmap="cividis_r", aspect="auto", vmin=0)
    middle = np.nanmax(grid) / 2
    for row, column in zip(*np.nonzero(~np.isnan(grid)), strict=True):
        value = grid[row, column]
        colour = "white" if value > middle else "black"
        text = f"{value:.0f}" if value >= 10 else f"{value:.1f}"
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=8)
    best_row, best_column = np.unravel_index(np.nanargmax(grid), grid.shape)
    corner = (best_column - 0.5, best_row - 0.5)
    axes.add_patch(patches.Rectangle(corner, 1, 1, fill=False, edgecolor=COLOURS[3], linewidth=3))
    axes.set_xticks(range(len(across)), [str(value) for value in across])
    axes.set_yticks(range(len(down)), [str(value) for value in down])
    axes.set_xlabel(columns)
    axes.set_ylabel(rows)
    axes.set_title(title)
    axes.spines[["left", "bottom"]].set_visible(False)
    fig.colorbar(image, label=unit)
    return fig


def curves(
    runs: Mapping[str, Sequence[float]],
    *,
    unit: str,
    lines: Mapping[str, float] | None = None,
    title: str = "",
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
    title : str
        The title, empty for none.

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
            color=COLOURS[row % len(COLOURS)],
            linestyle=_LINES[row % len(_LINES)],
            marker=MARKERS[row % len(MARKERS)],
            # Not all at the same trials: where two searches know as much, both are to be seen.
            markevery=(row % 4, 4),
            markersize=5,
            label=name,
        )
    for row, (label, value) in enumerate((lines or {}).items()):
        style = _LINES[row % len(_LINES)]
        axes.axhline(value, color="black", linestyle=style, linewidth=2.4, alpha=0.6, label=label)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(need("matplotlib.ticker", extra="plot").MaxNLocator(integer=True))
    axes.set_xlabel("trials")
    axes.set_ylabel(unit)
    axes.set_title(title)
    fig.legend(loc="outside right center", frameon=False)
    return fig


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
    for place, (axes, (title, (measured, predicted))) in enumerate(
        zip(grid.flat, panels.items(), strict=True)
    ):
        axes.spines[["top", "right"]].set_visible(False)
        axes.plot([0, 1], [0, 1], color="black", linestyle=":", linewidth=0.8)
        axes.plot(
            measured,
            predicted,
            MARKERS[place % len(MARKERS)],
            color=COLOURS[place % len(COLOURS)],
            markeredgecolor="black",
            markeredgewidth=0.4,
            markersize=5,
        )
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("measured")
    grid.flat[0].set_ylabel("predicted")
    return fig


def scaling(
    measured: Mapping[int, float], paper: Mapping[int, float], *, ceiling: float, unit: str
) -> Figure:
    """Draw a throughput over the number of machines: what was measured, and what paper says.

    Parameters
    ----------
    measured : mapping of int to float
        The throughput with a number of machines.
    paper : mapping of int to float
        What a model says for some numbers, in rising order.
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
    axes.plot(
        list(measured),
        list(measured.values()),
        MARKERS[3],
        color=COLOURS[3],
        markersize=8,
        markeredgecolor="black",
        label="measured",
    )
    axes.axhline(ceiling, color="black", linestyle="--", linewidth=1, label="the compiler's pace")
    axes.xaxis.set_major_locator(need("matplotlib.ticker", extra="plot").MaxNLocator(integer=True))
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("servers")
    axes.set_ylabel(unit)
    fig.legend(loc="outside right center", frameon=False)
    return fig
