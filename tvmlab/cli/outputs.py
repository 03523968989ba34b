"""What can be refused of the files that a command is to write, before it does anything."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..errors import InputError

__all__ = ["expect_apart"]


def expect_apart(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Refuse outputs that would replace an input, or each other.

    Parameters
    ----------
    outputs, inputs : iterable of str or None
        Paths; None for an option that was left out. Inputs that are no files are in nobody's way.

    Raises
    ------
    InputError
        Two of them are one file, under one name or several.
    """
    read = [path for path in inputs if path]
    written: list[str] = []
    for path in filter(None, outputs):
        for others, what in ((read, "it is read, too"), (written, "two outputs go there")):
            other = next((other for other in others if _same(path, other)), None)
            if other is not None:
                raise InputError(
                    f"this file would be replaced: {what}",
                    where=path if path == other else f"{path}, which is {other}",
                    fix="write to another file",
                )
        written.append(path)


def _same(one: str, other: str) -> bool:
    """Say whether two paths lead to one file, which need not be there yet."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # ValueError: no path has a null character
        return os.path.abspath(one) == os.path.abspath(other)
