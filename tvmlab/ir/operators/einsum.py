"""The row of ``einsum``: sums of products, said in letters.

The source is `src/relay/op/tensor/math.cc` of TVM 0.18. Relax calls the letters ``subscripts``.
"""

from __future__ import annotations

from string import ascii_letters
from typing import Any

from tvm import relax
from tvm.relax import op

from ...errors import RelayError
from ..table import native
from .common import Dims, dims, rank


def _error(equation: str, what: str) -> RelayError:
    return RelayError(
        f"einsum of {equation!r}: {what}", where="einsum", fix='say it as in "ij,jk->ik"'
    )


def _check(data: relax.Expr, equation: str) -> None:
    """Refuse what means nothing: some of it ends TVM's process."""
    terms, arrow, out = equation.replace(" ", "").partition("->")
    given = terms.split(",")
    for term in [*given, out]:
        if not set(_letters(term)) <= set(ascii_letters):
            raise _error(equation, f"{term!r} is no word of letters")
    if set(out) - set(terms) or len(set(_letters(out))) != len(_letters(out)):
        raise _error(equation, f"{out!r} has to take letters of the operands, each once")
    if arrow and "..." in terms and "..." not in out:
        raise _error(equation, f"{out!r} leaves out the axes of ...")
    if not isinstance(data.ty, relax.TupleType):
        return
    fields = data.ty.fields
    if len(fields) != len(given):
        raise _error(equation, f"it is about {len(given)} operands, and {len(fields)} are given")
    sizes: dict[str, int] = {}
    for place, (term, ty) in enumerate(zip(given, fields, strict=True)):
        ndim, count = rank(ty, f"einsum data.{place}"), len(_letters(term))
        if ndim is not None and (ndim < count or (ndim > count and "..." not in term)):
            raise _error(equation, f"operand {place} has {ndim} axes, which {term!r} does not say")
        for letter, size in _said(term, dims(ty) or []):
            other = sizes.get(letter, 1)
            if isinstance(size, int) and size != other != 1 != size:
                raise _error(equation, f"{letter} is {other} and {size}")
            if isinstance(size, int):
                sizes[letter] = max(size, other)


def _said(term: str, shape: Dims) -> list[tuple[str, Any]]:
    """Return the letters and their sizes, of the axes that are not behind ``...``."""
    first, _, last = term.partition("...")
    back = shape[len(shape) - len(last) :]
    return [*zip(first, shape, strict=False), *zip(last, back, strict=False)]


def _letters(term: str) -> str:
    return term.replace("...", "", 1)


def _einsum(data: relax.Expr, equation: str) -> relax.Expr:
    _check(data, equation)
    return op.einsum(data, equation)


native("einsum", "data", "equation:str=", to_relax=_einsum, equation="subscripts")
