"""A learner's module: whether it has a function `main`, and where its IR differs from another's."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from types import FunctionType

import tvm

from ..ir.patterns import DFPattern
from .verdict import NotYet, call, of_type

__all__ = ["LINES", "changed", "difference", "relay_pattern", "with_main"]

LINES = 15  # of a difference, the last of which may say how many are left out
# Names that a printer counts up. One operator more or less shifts all that come after it.
COUNTED = re.compile(r"%\d+|\b(?:lv|gv)\d*\b")


def with_main(value: object, name: str) -> tvm.IRModule:
    """Take a module with a function ``main`` from a learner, who calls it `name`.

    Raises
    ------
    NotYet
        It is no module, or has no such function.
    """
    mod = of_type(value, tvm.IRModule, name, "a module")
    if "main" not in (variable.name_hint for variable in mod.functions):
        raise NotYet(f"{name} has no function main")
    return mod


def relay_pattern(make: Callable[[], DFPattern], name: str) -> DFPattern:
    """Take a pattern of Relay's from a learner's function, called `name`.

    Raises
    ------
    NotYet
        It is the pattern itself, it fails, or it gives something else.
    """
    if isinstance(make, DFPattern):
        raise NotYet(f"{name} is a pattern, expected a function that returns one")
    expected = "a pattern of Relay's language, from tvmlab.relay.dataflow_pattern"
    return of_type(call(make), DFPattern, f"{name}()", expected)


def changed(
    change: Callable[[tvm.IRModule], tvm.IRModule], mod: tvm.IRModule, name: str
) -> tvm.IRModule:
    """Have a learner's pass, called `name`, change a copy of a module.

    The module stays as it is, also where the pass writes into what it is given: the next answer is
    judged by the same module as this one.

    Raises
    ------
    NotYet
        As `call` and `with_main` do.
    """
    if not callable(change):
        raise NotYet(f"{name} is of type {type(change).__name__}, expected a pass or a function")
    if isinstance(change, FunctionType) and change.__module__.startswith("tvm."):
        made = f"{change.__name__}()"
        raise NotYet(f"{name} is what makes a pass: call it, {made}, and take what it returns")
    return with_main(call(change, mod.clone()), f"{name}(mod)")


def difference(found: str, wanted: str) -> str:
    """Compare two printed modules.

    Parameters
    ----------
    found : str
        The IR that the learner made.
    wanted : str
        The IR that was asked for, printed in the same way.

    Returns
    -------
    str
        A unified difference with a line of context, `LINES` lines at most: ``-`` stands before what
        is yours, ``+`` before what is expected. Lines that only count their variables differently,
        or stand in one loop more, are not shown, unless nothing else differs. Empty where the texts
        are equal.
    """
    yours, expected = found.strip().splitlines(), wanted.strip().splitlines()
    if yours == expected:
        return ""
    masked = [[COUNTED.sub("%", line.strip()) for line in lines] for lines in (yours, expected)]
    same = masked[0] == masked[1]
    keys = (yours, expected) if same else (masked[0], masked[1])
    lines = ["--- yours", "+++ expected", *_hunks(yours, expected, *keys)]
    if len(lines) > LINES:
        left = len(lines) - LINES + 1
        lines = [*lines[: LINES - 1], f"... and {left} more lines"]
    return "\n".join(lines)


def _hunks(
    yours: Sequence[str], expected: Sequence[str], key: Sequence[str], other: Sequence[str]
) -> list[str]:
    """List the changed lines, with one unchanged line around them, as the keys align them."""
    lines: list[str] = []
    for group in difflib.SequenceMatcher(None, key, other, autojunk=False).get_grouped_opcodes(1):
        lines.append("...")
        for tag, start, stop, first, last in group:
            if tag == "equal":
                lines += [f"  {line}" for line in yours[start:stop]]
            else:
                lines += [f"- {line}" for line in yours[start:stop]]
                lines += [f"+ {line}" for line in expected[first:last]]
    return lines[1:]
