"""What can be refused of the files that a command is to write, before it does anything."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from .._files import NO_FILE
from ..errors import InputError
from . import arguments

__all__ = ["expect_outputs"]


def expect_outputs(outputs: Iterable[str | None], inputs: Iterable[str | None]) -> None:
    """Refuse outputs that cannot be written, or would replace an input or each other.

    Parameters
    ----------
    outputs, inputs : iterable of str or None
        Paths; None for an option that was left out. Inputs that are no files, but networks of the
        workbook, are in nobody's way.

    Raises
    ------
    InputError
        Two of them are one file, under one name or several; a folder is not there, or not to be
        written; an output is itself a folder, a device or a pipe.
    """
    read = [path for path in inputs if path and not arguments.is_network(path)]
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
        if why := _refusal(path):
            raise arguments.unwritten(path, why)
        written.append(path)


def _refusal(path: str) -> OSError | None:
    """Find the error that writing a file would end in, if there is one to be seen."""
    folder = os.path.dirname(path) or os.curdir
    why = 0
    if os.path.isdir(path):
        why = errno.EISDIR
    elif os.path.exists(path) and not os.path.isfile(path):
        return OSError(errno.EINVAL, NO_FILE)
    elif not os.path.isdir(folder):
        why = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
    elif not os.access(folder, os.W_OK | os.X_OK):
        why = errno.EACCES
    return OSError(why, os.strerror(why)) if why else None


def _same(one: str, other: str) -> bool:
    """Say whether two paths lead to one file, which need not be there yet."""
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # ValueError: no path has a null character
        return os.path.abspath(one) == os.path.abspath(other)
