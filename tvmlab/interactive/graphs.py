"""Draw a small graph of operators as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..plot import COLOURS, Box, placed
from .canvas import Canvas

__all__ = ["graph"]

_COLUMN, _ROW, _WIDE, _HIGH = 124, 50, 108, 32
# Fill, edge, dashes and width of the line, one row for each kind, as in `tvmlab.plot.graphs`.
_LOOKS = (
    ("#CDE9DF", COLOURS[2], "", 1.2),
    ("#FBDDC9", COLOURS[3], "6 3", 2.4),
    ("white", "#707070", "2 2", 1.0),
)


def graph(boxes: Mapping[str, Box], kinds: Sequence[str]) -> str:
    """Draw boxes with lines down from each operand to its user.

    Parameters
    ----------
    boxes : mapping of str to tvmlab.plot.Box
        The boxes by name, operands before their users, the result last.
    kinds : sequence of str
        The kinds of boxes, at most three, in the legend's order. They differ in colour and in line.

    Returns
    -------
    str
        The text of the picture.
    """
    spots = placed(boxes)
    rows = 1 + max(row for _, row in spots.values())
    columns = 1 + max(column for column, _ in spots.values())
    looks = dict(zip(kinds, _LOOKS, strict=False))
    keys = [22 + 7 * len(kind) + 14 for kind in kinds]
    canvas = Canvas(max(columns * _COLUMN + 8, sum(keys) + 8), rows * _ROW + 34)
    corners = {
        name: (8 + column * _COLUMN, 4 + (rows - 1 - row) * _ROW)
        for name, (column, row) in spots.items()
    }
    for name, box in boxes.items():
        x, y = corners[name][0] + _WIDE / 2, corners[name][1]
        for left, top in (corners[operand] for operand in box.operands):
            begin = left + _WIDE / 2
            canvas.line([(begin, top + _HIGH), (x, y)], edge="black")
        if box.operands:
            canvas.path(f"M{x - 4:g} {y - 7:g}l4 7l4-7z", edge="black", fill="black")
    for name, box in boxes.items():
        (left, top), (fill, edge, dash, thick) = corners[name], looks[box.kind]
        canvas.rectangle(left, top, _WIDE, _HIGH, fill=fill, edge=edge, thick=thick, dash=dash)
        for number, line in enumerate(box.label.split("\n")):
            canvas.text(left + _WIDE / 2, top + 13 + 13 * number, line, size=11, anchor="middle")
    left = 8
    for kind, width in zip(kinds, keys, strict=True):
        fill, edge, dash, thick = looks[kind]
        top = rows * _ROW + 10
        canvas.rectangle(left, top, 18, 14, fill=fill, edge=edge, thick=thick, dash=dash)
        canvas.text(left + 24, top + 11, kind)
        left += width
    return canvas.svg()
