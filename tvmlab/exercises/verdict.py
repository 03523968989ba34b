"""What a check says, and how it calls what a learner wrote."""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ..support.wording import telling

__all__ = [
    "NotYet",
    "asking",
    "call",
    "exercise",
    "listed",
    "number",
    "of_type",
    "whole",
    "written",
]

P = ParamSpec("P")
T = TypeVar("T")
PLAIN = (bool, int, float, str, tuple, list)
LONGEST = 40  # characters of an argument that is shown


class NotYet(Exception):
    """An answer is not right yet; the message says why, and what to look at."""


def exercise(check: Callable[P, str]) -> Callable[P, None]:
    """Make a check of a function that returns what holds, or raises `NotYet`.

    Parameters
    ----------
    check : callable
        Returns what is to be said of a right answer, in one line, without a full stop.

    Returns
    -------
    callable
        Takes the same, prints ``done: ...`` or ``not yet: ...``, and returns None. An answer that
        nobody thought of, and at which the check itself fails, is one that it cannot judge: it
        says so, and where it failed. Only a call with other arguments raises.
    """
    asked = inspect.signature(check)

    @functools.wraps(check)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        asked.bind(*args, **kwargs)
        try:
            praise = check(*args, **kwargs)
        except NotYet as hint:
            print(_printable(f"not yet: {hint}"))
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {telling(error)}"
            place = f"{Path(at.filename).name}, line {at.lineno}"
            print(_printable(f"not yet: the check cannot judge this answer: {what} ({place})"))
        else:
            print(_printable(f"done: {praise}"))

    told.__annotations__["return"] = "None"
    return told


def _printable(words: str) -> str:
    """Escape halves of characters, which a learner's words may hold and no output takes."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def call(function: Callable[..., Any], *arguments: Any, returns: bool = True) -> Any:
    """Call what a learner wrote.

    Parameters
    ----------
    function : callable
        The learner's.
    arguments
        What it is given; numbers and other short values are shown where it fails.
    returns : bool, optional
        Whether it has to return something.

    Returns
    -------
    object
        What it returned.

    Raises
    ------
    NotYet
        It is no function. It raised: says what, and in which line of the function's cell. Or it
        returned None.
    """
    if not callable(function):
        raise NotYet(f"{_short(function)} is no function")
    called = _called(function, arguments)
    with _blaming(function, called):
        value = function(*arguments)
    if value is None and returns:
        raise NotYet(f"{called} returns None: is a `return` missing?")
    return value


def listed(
    function: Callable[..., Iterable[Any]], *arguments: Any, expected: str = "a list"
) -> list[Any]:
    """Call what a learner wrote, and list what it gives: a generator's items, too.

    Parameters
    ----------
    function : callable
        The learner's.
    arguments
        What it is given.
    expected : str, optional
        What a learner calls what it should give.

    Raises
    ------
    NotYet
        As `call` does, or it gives no items.
    """
    items = call(function, *arguments)
    called = _called(function, arguments)
    try:
        iterator = iter(items)
    except TypeError:
        iterator = None
    if iterator is None or isinstance(items, str):
        raise NotYet(f"{called} gives {_short(items)}, expected {expected}")
    with _blaming(function, called):
        return list(iterator)


@contextlib.contextmanager
def asking(what: str, kind: type[Exception] = Exception) -> Iterator[None]:
    """Ask what a learner made for something that it may not have.

    Parameters
    ----------
    what : str
        What is wrong with it if an error comes, before the error's own words.
    kind : type, optional
        Of the errors that are the learner's; others are the check's own.

    Raises
    ------
    NotYet
        Such an error came.
    """
    try:
        yield
    except NotYet:
        raise
    except kind as error:
        raise NotYet(f"{what}: {telling(error)}") from error


def _called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    """Write the call as the learner would, long arguments left out."""
    shown = [repr(one) if isinstance(one, PLAIN) else "..." for one in arguments]
    shown = [one if len(one) <= LONGEST else "..." for one in shown]
    return f"{getattr(function, '__name__', 'it')}({', '.join(shown)})"


@contextlib.contextmanager
def _blaming(function: Callable[..., Any], called: str) -> Iterator[None]:
    """Say of an error that this call raised it."""
    try:
        yield
    except (Exception, SystemExit) as error:
        what = f"{called} raises {type(error).__name__}: {telling(error)}"
        raise NotYet(what + _where(function, error)) from error


def _where(function: Callable[..., Any], error: BaseException) -> str:
    """Say which of the function's own lines the error came from."""
    code = getattr(function, "__code__", None)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if code is not None and frame.filename == code.co_filename and frame.line:
            return f"\n  in the line: {frame.line}"
    return ""


def _short(value: object) -> str:
    """Write a value, or what it is where that would be long or cannot be."""
    try:
        text = repr(value)
    except Exception:
        text = ""
    return text if 0 < len(text) <= LONGEST else f"something of type {type(value).__name__}"


def of_type(value: object, kind: type[T], name: str, expected: str) -> T:
    """Take a value of a certain type from a learner.

    Parameters
    ----------
    value : object
        What the learner made.
    kind : type
        What it should be.
    name : str
        What the learner calls it.
    expected : str
        What a learner calls the type, with what to do where that helps.

    Returns
    -------
    object
        The value.

    Raises
    ------
    NotYet
        It is of another type.
    """
    if not isinstance(value, kind):
        raise NotYet(f"{name} is of type {type(value).__name__}, expected {expected}")
    return value


def written(value: object, name: str) -> str:
    """Take a text from a learner that a file, a shell or a parser is to read.

    Raises
    ------
    NotYet
        It is none, or holds what these do not take: a half of a character, or a zero byte.
    """
    words = of_type(value, str, name, "a text")
    for place, one in enumerate(words):
        if one == "\0" or "\ud800" <= one <= "\udfff":
            raise NotYet(f"{name} holds {one!r} at {place}, which does not belong in a text")
    return words


def number(value: object, name: str) -> float:
    """Take a number from a learner: Python's, NumPy's, or a fraction.

    Raises
    ------
    NotYet
        It is none.
    """
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise NotYet(f"{name} is {_short(value)}, expected a number")
    try:
        return float(value)
    except OverflowError:
        raise NotYet(f"{name} is larger than any float") from None


def whole(value: object, name: str, *, least: int | None = 1) -> int:
    """Take a whole number from a learner: Python's or NumPy's, but no float.

    Raises
    ------
    NotYet
        It is none, or is below `least`.
    """
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise NotYet(f"{name} is {_short(value)}, expected a whole number")
    if least is not None and value < least:
        raise NotYet(f"{name} is {_short(value)}, expected at least {least}")
    return int(value)
