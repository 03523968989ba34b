"""The little language of Relay's ``newshape``.

The source is `InferNewShape` in `src/relay/op/tensor/transform.cc` of TVM 0.18.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...errors import RelayError
from ..types import plain
from .common import Dims


def resolved(old: Dims, newshape: Sequence[int], allowzero: bool) -> Dims:
    """Work out a shape.

    Parameters
    ----------
    old : list
        The sizes of the data.
    newshape : sequence of int
        A size; 0, the size at this place (or none at all with `allowzero`); -1, what is left over;
        -2, all sizes from this place on; -3, the product of the next two; -4, the next size split
        into the two numbers that follow, of which one may be -1.
    allowzero : bool
        Whether 0 is a size.

    Returns
    -------
    list
        The sizes of the result.

    Raises
    ------
    RelayError
        A number means nothing, goes beyond the data's axes, or the numbers of elements differ.
    """
    words = list(newshape)
    new: list[Any] = []
    # What the result has to be divided by, and what it has of the old, to find the size left over.
    taken: set[int] = set()
    given: list[Any] = []
    at, unknown, place = 0, None, 0

    def take() -> Any:
        nonlocal at
        if at >= len(old):
            raise _error(old, newshape, "goes beyond the data's axes")
        taken.add(at)
        at += 1
        return old[at - 1]

    while place < len(words):
        word = words[place]
        if word > 0 or (word == 0 and allowzero):
            new.append(word)
            given.append(word)
            at += 1
        elif word == 0:
            new.append(take())
        elif word == -1:
            if unknown is not None:
                raise _error(old, newshape, "leaves two sizes open")
            unknown = len(new)
            new.append(1)
            at += 1
        elif word == -2:
            while at < len(old):
                new.append(take())
        elif word == -3:
            new.append(plain(take() * take()))
        elif word == -4 and len(words) > place + 2:
            new.extend(_halves(take(), words[place + 1], words[place + 2], old, newshape))
            place += 2
        else:
            raise _error(old, newshape, f"holds {word}, which means nothing there")
        place += 1
    if unknown is not None:
        left: Any = 1
        for axis, size in enumerate(old):
            if axis not in taken:
                left = left * size
        new[unknown] = _divided(left, given, old, newshape)
    _check(old, new, newshape)
    return new


def _halves(size: Any, a: int, b: int, old: Dims, newshape: Sequence[int]) -> Dims:
    if a == -1 and b == -1:
        raise _error(old, newshape, "leaves both halves of a split open")
    if a == -1:
        return [_divided(size, [b], old, newshape), b]
    return [a, _divided(size, [a], old, newshape) if b == -1 else b]


def _divided(size: Any, by: Sequence[int], old: Dims, newshape: Sequence[int]) -> Any:
    for number in by:
        if number <= 0 or (isinstance(size, int) and size % number):
            raise _error(old, newshape, f"does not divide {size} by {number}")
        size = plain(size // number)
    return plain(size)


def _check(old: Dims, new: Dims, newshape: Sequence[int]) -> None:
    if all(isinstance(size, int) for size in (*old, *new)):
        before, after = math.prod(old), math.prod(new)
        if before != after:
            raise _error(old, newshape, f"holds {after} elements, the data {before}")


def _error(old: Dims, newshape: Sequence[int], why: str) -> RelayError:
    return RelayError(
        f"the newshape {list(newshape)} for data of shape {list(old)} {why}",
        where="reshape",
    )
