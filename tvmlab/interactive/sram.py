"""The size of the accelerator's memory against the cycles that a network takes."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import InputError
from ..npu import Report
from ..plot import COLOURS
from .canvas import Canvas
from .choices import State

__all__ = ["memory"]

_LEFT, _CURVE, _BARS, _ROW = 124, 100, 330, 18
_DARK, _LIGHT, _EDGE = "#B0B0B0", "white", "#606060"


def memory(reports: Mapping[int, Report], size: int) -> State:
    """Draw what a network costs with one size of the SRAM, among others.

    Parameters
    ----------
    reports : mapping of int to tvmlab.npu.Report
        For each size of the SRAM in bytes, rising, what `tvmlab.npu.report` gave for one network.
    size : int
        The size to draw, one of them.

    Returns
    -------
    State
        Above, the cycles of all sizes, this one marked; below, its layers: a bar for the cycles of
        each, dark as far as they are needed with the largest memory too, a line where the array
        would be done, a diamond where the DMA engine would be.

    Raises
    ------
    tvmlab.errors.InputError
        If there is no report for that size, or if the reports are not of the same layers.
    """
    if size not in reports:
        raise InputError(
            f"there is no report for {size:,} bytes",
            where="interactive.memory",
            fix=f"there are some for {', '.join(f'{one:,}' for one in reports)}"
            if reports
            else "there is none at all: give what tvmlab.npu.report makes, for each size",
        )
    largest = max(reports)
    if len({tuple(row.name for row in report.layers) for report in reports.values()}) > 1:
        raise InputError(
            "the reports are of different layers",
            where="interactive.memory",
            fix="report on one network, with memories in which it is cut alike",
        )
    report = reports[size]
    top = 44 + _CURVE + 34
    canvas = Canvas(_LEFT + _BARS + 56, top + 30 + _ROW * len(report.layers) + 48)
    _curve(canvas, reports, size)
    _layers(canvas, report, reports[largest], top, max(map(_longest, reports.values())))
    return State(canvas.svg(), _told(reports, size))


def _told(reports: Mapping[int, Report], size: int) -> str:
    """Say what the memory costs or spares, and the layer that pays most for it."""
    largest = max(reports)
    report, best = reports[size], reports[largest]
    moved = sum(row.moved for row in report.layers)
    says = (
        f"With {_size(size)} the network takes {report.cycles:,} cycles and moves {moved:,} bytes"
    )
    if size == largest:
        return f"{says}. It is the largest memory here."
    more = report.cycles - best.cycles
    if more <= 0:
        return f"{says}. With {_size(largest)} it takes no fewer cycles."
    pairs = list(zip(report.layers, best.layers, strict=True))
    row, other = max(pairs, key=lambda pair: pair[0].cycles - pair[1].cycles)
    return (
        f"{says}. That is {more:,} cycles more than with {_size(largest)}. The layer that "
        f"pays most is {row.name}: {row.cycles:,} cycles for {other.cycles:,}."
    )


def _curve(canvas: Canvas, reports: Mapping[int, Report], size: int) -> None:
    """Draw the cycles of all sizes."""
    most = max(report.cycles for report in reports.values())
    canvas.text(8, 18, "cycles of the network, by SRAM", bold=True)
    step = _BARS / max(1, len(reports) - 1)
    points = []
    for number, (one, report) in enumerate(reports.items()):
        x, y = _LEFT + number * step, 40 + _CURVE * (1 - report.cycles / most)
        points.append((x, y))
        canvas.text(x, 60 + _CURVE, _size(one), size=10, anchor="middle", bold=one == size)
        if one == size:
            canvas.line([(x, 40), (x, 44 + _CURVE)], edge=COLOURS[3])
            canvas.rectangle(x - 6, y - 6, 12, 12, fill="white", edge=COLOURS[3], thick=2.5)
            canvas.text(x + 10, y - 6, f"{report.cycles:,}", bold=True)
    canvas.line(points, edge=COLOURS[0], thick=1.5)
    for x, y in points:
        canvas.rectangle(x - 2.5, y - 2.5, 5, 5, fill=COLOURS[0])
    canvas.line([(_LEFT, 40 + _CURVE), (_LEFT + _BARS, 40 + _CURVE)], edge="black")
    canvas.text(_LEFT - 12, 44 + _CURVE, "0", size=10, anchor="end")


def _layers(canvas: Canvas, report: Report, best: Report, top: int, most: float) -> None:
    """Draw the layers of one size; `most` is the longest bar of all sizes, so they compare."""
    canvas.text(8, top, "cycles of each layer", bold=True)
    scale = _BARS / most
    for number, (row, other) in enumerate(zip(report.layers, best.layers, strict=True)):
        y = top + 14 + _ROW * number
        canvas.text(_LEFT - 8, y + 11, row.name, size=11, anchor="end")
        width, kept = row.cycles * scale, min(row.cycles, other.cycles) * scale
        canvas.rectangle(_LEFT, y, width, 12, fill=_LIGHT, edge=_EDGE)
        canvas.rectangle(_LEFT, y, kept, 12, fill=_DARK, edge=_EDGE)
        floor, pace = _LEFT + row.array_floor * scale, _LEFT + row.dma_pace * scale
        canvas.line([(floor, y - 2), (floor, y + 14)], edge=COLOURS[3], thick=3)
        canvas.path(_diamond(pace, y + 6), edge="black", fill=COLOURS[4], thick=0.5)
        right = _LEFT + max(width, pace - _LEFT, floor - _LEFT)
        canvas.text(right + 8, y + 10, f"{row.cycles:,}", size=10)
    base = top + 14 + _ROW * len(report.layers) + 20
    canvas.rectangle(_LEFT, base - 10, 24, 12, fill=_DARK, edge=_EDGE)
    canvas.text(_LEFT + 30, base, "with the most memory", size=11)
    canvas.rectangle(_LEFT + 170, base - 10, 24, 12, fill=_LIGHT, edge=_EDGE)
    canvas.text(_LEFT + 200, base, "more, with this one", size=11)
    base += 20
    canvas.line([(_LEFT + 12, base - 12), (_LEFT + 12, base + 4)], edge=COLOURS[3], thick=3)
    canvas.text(_LEFT + 30, base, "the array alone", size=11)
    canvas.path(_diamond(_LEFT + 182, base - 4), edge="black", fill=COLOURS[4], thick=0.5)
    canvas.text(_LEFT + 200, base, "the DMA engine alone", size=11)


def _longest(report: Report) -> float:
    return max(max(row.cycles, row.array_floor, row.dma_pace) for row in report.layers)


def _diamond(x: float, y: float) -> str:
    return f"M{x - 5:.1f} {y:.1f}l5-5l5 5l-5 5z"


def _size(count: int) -> str:
    return f"{count >> 10} KiB" if count % 1024 == 0 else f"{count:,} bytes"
