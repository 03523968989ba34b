"""Problems that a decoder learns: add two numbers of up to three digits.

A problem is a text such as ``"58+767="``. The answer is written from its last digit to its first,
as one adds by hand, and ends with a full stop: ``"528."`` for 825.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError
from .weights import permutation

__all__ = ["CONFIG", "DIGITS", "WEIGHTS", "answer", "decode", "encode", "held_out", "is_held_out"]

#: The files of the trained decoder, for `tvmlab.lm.load`.
WEIGHTS = Path(__file__).parents[1] / "assets" / "adder.safetensors"
CONFIG = WEIGHTS.with_name("adder.json")
#: Digits of the largest operands.
DIGITS = 3
_ALPHABET = "0123456789+=."
_MOST = 10**DIGITS


def encode(text: str) -> list[int]:
    """Return the tokens of a text; `InputError` if it has a character without a token."""
    absent = [one for one in text if one not in _ALPHABET]
    if absent:
        fix = f"use the characters {_ALPHABET}"
        raise InputError(f"there is no token for {absent[0]!r}", where=repr(text), fix=fix)
    return [_ALPHABET.index(one) for one in text]


def decode(tokens: Sequence[int]) -> str:
    """Return the text of tokens; `InputError` if one is not a token."""
    unknown = [one for one in tokens if not 0 <= one < len(_ALPHABET)]
    if unknown:
        what, fix = f"{unknown[0]} is not a token", f"pass tokens from 0 to {len(_ALPHABET) - 1}"
        raise InputError(what, where="decode", fix=fix)
    return "".join(_ALPHABET[one] for one in tokens)


def answer(a: int, b: int) -> str:
    """Return the text that follows ``"a+b="``."""
    return str(a + b)[::-1] + "."


def is_held_out(a: int, b: int) -> bool:
    """Return whether a problem is left out of the training: one in 16, spread over all sums."""
    # Knuth's multiplicative hash: the highest bits of a product with an odd number.
    return bool(((a * _MOST + b) * 2654435761 % 2**32) >> 28 == 0)


def held_out(count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Return different problems that the training left out, in a seeded order."""
    order = permutation(np.random.PCG64(seed), _MOST * _MOST)
    pairs = (divmod(int(number), _MOST) for number in order)
    found = (pair for pair in pairs if is_held_out(*pair))
    return [pair for pair, _ in zip(found, range(count), strict=False)]
