"""Run an exercise's check: call the learner's functions, compare results, print the message."""

from __future__ import annotations

import difflib
import functools
import numbers
import re
import traceback
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import tvm

from ...errors import ToolchainError, TvmlabError
from ...ir.patterns import DFPattern
from ...support.wording import telling

T = TypeVar("T")
Function = Callable[..., Any]  # of a learner
LINES = 15  # of a difference; the last can say how many more there are
# Names that a printer numbers: one operator more or less changes all names after it.
NUMBERED = re.compile(r"%\d+|\b(?:lv|gv)\d*\b")


class Wrong(Exception):
    """An answer is not right yet; the message says why, and what to look at."""


def require(holds: object, why: str) -> None:
    """Raise `Wrong` if a condition does not hold."""
    if not holds:
        raise Wrong(why)


def exercise(check: Callable[..., str]) -> Callable[..., None]:
    """Turn a function that returns a success message, or raises `Wrong`, into a check.

    The check takes the same arguments, prints ``done: ...`` or ``not yet: ...``, and returns None.
    An error of this package is printed as a hint, because it says what is wrong with the answer.
    For any other error the check prints that it cannot judge the answer.
    """

    @functools.wraps(check)
    def judge(*args: Any, **kwargs: Any) -> None:
        try:
            said = f"done: {check(*args, **kwargs)}"
        except Wrong as hint:
            said = f"not yet: {hint}"
        except ToolchainError as error:
            said = f"not yet: the compiler reports an error: {complaint(error)}"
        except TvmlabError as error:
            said = f"not yet: {error.what}"
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {telling(error)}"
            said = f"not yet: the check cannot judge this answer: {what}"
        print(said)

    judge.__annotations__["return"] = "None"
    return judge


# The learner's functions.


def call(function: Function, *arguments: Any, returns: bool = True) -> Any:
    """Call a learner's function; if it raises, show the line that raised.

    A generator is converted to a list, because its code runs only when its items are read.
    `returns` says whether the function has to return something.
    """
    shown = (repr(one) if isinstance(one, (int, float)) else "..." for one in arguments)
    called = f"{getattr(function, '__name__', 'it')}({', '.join(shown)})"
    try:
        value = function(*arguments)
        value = list(value) if isinstance(value, Iterator) else value
    except (Exception, SystemExit) as error:
        what = f"{called} raises {type(error).__name__}: {telling(error)}"
        for frame in traceback.extract_tb(error.__traceback__)[1:2]:
            what += f"\n  in the line: {frame.line}"
        raise Wrong(what) from error
    require(value is not None or not returns, f"{called} returns None: is a `return` missing?")
    return value


def complaint(error: ToolchainError) -> str:
    """Return the text after "error: " in a tool's output, or the name of the failed tool."""
    lines = str(error).splitlines()
    return next((line.partition("error: ")[2] for line in lines if "error: " in line), lines[0])


# Values.


def of_type(value: object, kind: type[T], name: str, expected: str) -> T:
    """Return the learner's value `name` if it has this type; otherwise raise `Wrong`."""
    if not isinstance(value, kind):
        raise Wrong(f"{name} is of type {type(value).__name__}, expected {expected}")
    return value


def whole(value: object, name: str) -> int:
    """Return a Python or NumPy integer; raise `Wrong` for other values, including floats."""
    if not isinstance(value, numbers.Integral):
        raise Wrong(f"{name} is {value!r}, expected a whole number")
    return int(value)


def same_shape(found: object, wanted: tuple[int, ...], name: str) -> np.ndarray:
    """Return an array of this shape; raise `Wrong` with the difference for another shape."""
    array = of_type(found, np.ndarray, name, "a NumPy array")
    why = f"{name} has the shape {array.shape}, expected {wanted}"
    require(array.ndim == len(wanted), why)
    for axis, off in enumerate(np.subtract(array.shape, wanted)):
        too = f"{abs(off)} too {'long' if off > 0 else 'short'}"
        require(off == 0, f"{why}: axis {axis} is {too}")
    return array


def same_values(
    found: np.ndarray, wanted: np.ndarray, name: str, *, tolerance: float = 0.0
) -> None:
    """Compare arrays by value; report how many values are wrong, and the first wrong value."""
    same_shape(found, wanted.shape, name)
    off = np.abs(found.astype("float64") - wanted.astype("float64"))
    wrong = ~(off <= tolerance)  # NaN is wrong as well.
    if wrong.any():
        place = tuple(np.argwhere(wrong)[0].tolist())
        raise Wrong(
            f"{wrong.sum()} of {wrong.size} values of {name} are wrong; the first, at "
            f"{list(place)}, is {found[place]:.6g}, expected {wanted[place]:.6g}"
        )


# Modules.


def relay_pattern(make: Function, name: str) -> DFPattern:
    """Return the pattern of Relay's language that a learner's function makes."""
    made = isinstance(make, DFPattern)
    require(not made, f"{name} is a pattern, expected a function that returns one")
    expected = "a pattern of Relay's language, from tvmlab.relay.dataflow_pattern"
    return of_type(call(make), DFPattern, f"{name}()", expected)


def changed(change: Function, mod: tvm.IRModule, name: str) -> tvm.IRModule:
    """Apply a learner's pass to a copy of a module; the module itself stays unchanged."""
    kind = type(change).__name__
    require(callable(change), f"{name} is of type {kind}, expected a pass or a function")
    if isinstance(change, FunctionType) and change.__module__.startswith("tvm."):
        made = f"{change.__name__}()"
        raise Wrong(f"{name} creates a pass: call it, {made}, and use the pass that it returns")
    return of_type(call(change, mod.clone()), tvm.IRModule, f"{name}(mod)", "a module")


def assembly(mod: tvm.IRModule, processor: str) -> list[str]:
    """Compile functions of TIR for an x86-64 processor; return the lines of the assembly."""
    target = {"kind": "llvm", "mcpu": processor, "mtriple": "x86_64-unknown-linux-gnu"}
    text: str = tvm.compile(mod, tvm.target.Target(target)).mod.inspect_source("asm")
    return text.splitlines()


def difference(found: str, wanted: str) -> str:
    """Compare two printed modules: ``-`` marks a line of the learner's, ``+`` an expected one.

    Lines that differ only in the numbers of variables or in indentation count as equal, unless
    nothing else differs. There is one line of context, and there are at most `LINES` lines.
    """
    texts = [text.strip().splitlines() for text in (found, wanted)]
    keys = [[NUMBERED.sub("%", line.strip()) for line in lines] for lines in texts]
    if keys[0] == keys[1]:
        keys = texts
    lines = ["--- yours", "+++ expected"]
    matcher = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(1)):
        lines += ["..."] if number else []
        for tag, start, stop, first, last in group:
            mark = " " if tag == "equal" else "-"
            lines += [f"{mark} {line}" for line in texts[0][start:stop]]
            lines += [f"+ {line}" for line in texts[1][first:last] if tag != "equal"]
    if len(lines) > LINES:
        lines[LINES - 1 :] = [f"... and {len(lines) - LINES + 1} more lines"]
    return "\n".join(lines)
