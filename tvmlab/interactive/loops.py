"""A loop nest, and in which order it visits the elements of what it writes."""

from __future__ import annotations

from itertools import pairwise, product
from typing import NamedTuple

import tvm
from tvm import s_tir

from ..errors import InputError
from ..plot import COLOURS
from .canvas import Canvas
from .choices import State

__all__ = ["Visit", "loop_nest", "visits"]

MOST_STEPS = 128  # More rows than that cannot be told apart.
_CELL, _ROW, _LINE, _LEFT = 15, 10, 17, 46


class Visit(NamedTuple):
    """A step of a loop nest: which element it is at, and whether the guard lets it through."""

    element: int
    runs: bool


def visits(sch: s_tir.Schedule, block: str) -> list[Visit]:
    """Walk through the loops around a block and note where it is at each step.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule
        A schedule whose loops begin at 0 and are of constant length.
    block : str
        The name of a block with one axis.

    Returns
    -------
    list of Visit
        One for each step, in the order of the loops.

    Raises
    ------
    tvmlab.errors.InputError
        If the block has other loops or axes, or more than 128 steps.
    """
    where = f"interactive.visits, block {block!r}"
    loops = [sch.get(loop) for loop in sch.get_loops(sch.get_sblock(block))]
    if not all(isinstance(loop.extent, tvm.tirx.IntImm) for loop in loops):
        raise InputError(
            "a loop has no constant length", where=where, fix="describe a fixed shape, not a var"
        )
    steps = 1
    for loop in loops:
        steps *= int(loop.extent)
    realize = loops[-1].body if loops else None
    if not isinstance(realize, s_tir.SBlockRealize) or len(realize.iter_values) != 1:
        raise InputError("the block has not one axis in loops of its own", where=where)
    if steps > MOST_STEPS:
        raise InputError(
            f"the loops have {steps} steps", where=where, fix=f"draw {MOST_STEPS} at most"
        )
    found = []
    for place in product(*(range(int(loop.extent)) for loop in loops)):
        analyzer = tvm.sym.Analyzer()
        for loop, value in zip(loops, place, strict=True):
            analyzer.bind(loop.loop_var, tvm.tirx.IntImm(loop.loop_var.ty, value))
        element = int(analyzer.simplify(realize.iter_values[0]))
        found.append(Visit(element, bool(int(analyzer.simplify(realize.predicate)))))
    return found


def loop_nest(sch: s_tir.Schedule, block: str) -> State:
    """Draw a loop nest: its code, and a row for each step with a mark at its element.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule
        As of `visits`; it stays as it is.
    block : str
        As of `visits`.

    Returns
    -------
    State
        A dot is a step that writes, a cross one that the guard holds back. Grey columns are behind
        the end; a line ends each turn of the outermost loop.

    Raises
    ------
    tvmlab.errors.InputError
        As of `visits`.
    """
    steps = visits(sch, block)
    code = _code(sch)
    columns = 1 + max(step.element for step in steps)
    length = 1 + max(step.element for step in steps if step.runs)
    turns = int(sch.get(sch.get_loops(sch.get_sblock(block))[0]).extent)
    top = _LINE * len(code) + 44
    width = max(_LEFT + max(_CELL * columns, 220) + 10, 16 + 8 * max(map(len, code)))
    canvas = Canvas(width, top + _ROW * len(steps) + 34)
    for number, line in enumerate(code):
        canvas.text(8, _LINE * (number + 1), line, code=True)
    right, bottom = _LEFT + _CELL * columns, top + _ROW * len(steps)
    if columns > length:
        end = _LEFT + _CELL * length
        canvas.rectangle(end, top, right - end, bottom - top, fill="#E0E0E0")
    grid = "".join(f"M{_LEFT + _CELL * one} {top}V{bottom}" for one in range(columns + 1))
    canvas.path(grid, edge="#CCCCCC", thick=0.5)
    for turn in range(turns + 1):
        height = top + _ROW * len(steps) * turn / turns
        canvas.line([(_LEFT, height), (right, height)], edge="#707070")
    dots, crosses = "", ""
    for number, step in enumerate(steps):
        x, y = _LEFT + _CELL * step.element + 3, top + _ROW * number + 1
        if step.runs:
            dots += f"M{x + 0.5} {y + 4}a4 4 0 1 0 8 0a4 4 0 1 0-8 0"
        else:
            crosses += f"M{x + 1} {y + 1}l6 6m0-6l-6 6"
    canvas.path(dots, edge="none", fill=COLOURS[0])
    canvas.path(crosses, edge=COLOURS[3], thick=2)
    for column in range(0, columns, 4):
        canvas.text(_LEFT + _CELL * (column + 0.5), top - 5, str(column), size=10, anchor="middle")
    canvas.text(_LEFT, top - 20, "element", size=11)
    for number in range(0, len(steps), 4):
        base = top + _ROW * (number + 1) - 1
        canvas.text(_LEFT - 6, base, str(number), size=10, anchor="end")
    canvas.text(_LEFT - 6, top - 5, "step", size=11, anchor="end")
    canvas.path(
        f"M{_LEFT + 1} {bottom + 20}a4 4 0 1 0 8 0a4 4 0 1 0-8 0", edge="none", fill=COLOURS[0]
    )
    canvas.text(_LEFT + 16, bottom + 24, "writes", size=11)
    canvas.path(f"M{_LEFT + 73} {bottom + 17}l6 6m0-6l-6 6", edge=COLOURS[3], thick=2)
    canvas.text(_LEFT + 86, bottom + 24, "held back by the guard", size=11)
    return State(canvas.svg(), _told(steps, turns))


def _code(sch: s_tir.Schedule) -> list[str]:
    """Lower the schedule's function, and give the lines of its loops."""
    lower = tvm.transform.Sequential(
        [s_tir.transform.ConvertBlocksToOpaque(), s_tir.transform.LowerOpaqueBlock()]
    )
    lines = lower(sch.mod)["main"].script().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.lstrip().startswith("for "))
    indent = len(lines[begin]) - len(lines[begin].lstrip())
    return [line[indent:] for line in lines[begin:] if line.strip()]


def _told(steps: list[Visit], turns: int) -> str:
    """Say what one sees."""
    first = ", ".join(str(step.element) for step in steps[:6])
    visit = "1 step visits" if len(steps) == 1 else f"{len(steps)} steps visit"
    says = f"{visit} the elements {first}{' and so on' if len(steps) > 6 else ''}."
    turn = len(steps) // turns
    inside: set[int] = set()
    between: set[int] = set()
    for number, (one, other) in enumerate(pairwise(steps), start=1):
        (between if number % turn == 0 else inside).add(other.element - one.element)
    if len(inside | between) == 1:
        says += f" From each to the next it is {_way(*inside | between)}."
    elif len(inside) == len(between) == 1:
        says += f" In a turn of the outer loop, from each to the next it is {_way(*inside)}; "
        says += f"from one turn to the next, {_way(*between)}."
    held = [number for number, step in enumerate(steps) if not step.runs]
    if not held:
        return f"{says} No step needs a guard."
    count = f"{len(held)} step" + ("s" if len(held) > 1 else "")
    together = held == list(range(held[0], len(steps)))
    where = "at the end" if together else "in between, not only at the end"
    return f"{says} The guard holds back {count}, {where}."


def _way(apart: int) -> str:
    return f"{abs(apart)} {'back' if apart < 0 else 'on'}"
