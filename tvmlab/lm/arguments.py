"""Check the integers and the lists of tokens that a caller passes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

__all__ = ["integer", "token_array"]


def integer(value: Any, name: str, where: str, least: int, most: int | None = None) -> int:
    """Return an integer from `least` to `most`; `InputError` for anything else."""
    try:
        number = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        what = f"{name} is {value!r}"
        bounds = f"from {least} on" if most is None else f"from {least} to {most}"
        raise InputError(what, where=where, fix=f"pass an integer {bounds}")
    return number


def token_array(given: Any, name: str, where: str, vocabulary: int) -> NDArray[np.int32]:
    """Return tokens as an array; `InputError` if it is empty or has an unknown token."""
    try:
        array = np.asarray(given)
    except ValueError:  # lists of different lengths
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        what = f"{name} is not a list of integers"
        raise InputError(what, where=where, fix="pass one list of tokens for each sequence")
    if not array.size:
        fix = "begin with a token that starts a text"
        raise InputError(f"{name} is empty", where=where, fix=fix)
    wrong = np.flatnonzero((array < 0) | (array >= vocabulary))
    if wrong.size:
        what = f"token {array[wrong[0]]} at place {wrong[0]} of {name} is unknown"
        raise InputError(what, where=where, fix=f"pass tokens from 0 to {vocabulary - 1}")
    return array.astype(np.int32)
