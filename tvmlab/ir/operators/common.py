"""Functions that rows of the operator table share: reading types and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax, tirx

from ...errors import RelayError
from ..table import Operands as Operands
from ..table import Values as Values
from ..table import Written as Written
from ..types import Tensor, plain, view

Dims = list[Any]
"""Sizes: integers if they are known, TIR expressions if they are symbolic."""


def _view(given: ir.Type, what: str = "the operand") -> Tensor:
    call, name = what.split(" ", 1)
    return view(call, name, given)


def dims(given: ir.Type) -> Dims | None:
    """Return a tensor's sizes, or None if its shape is unknown."""
    return _view(given).shape


def rank(given: ir.Type) -> int | None:
    """Return a tensor's number of axes, or None if it is unknown."""
    ndim = _view(given).ndim
    return None if ndim < 0 else ndim


def dtype(given: ir.Type) -> str:
    """Return a tensor's dtype, or "" if it is unknown."""
    return _view(given).dtype


def need_dims(given: ir.Type, what: str) -> Dims:
    """Return a tensor's sizes; raise `RelayError` if they are unknown."""
    shape: Dims = _need(_view(given, what).shape, "shape", what)
    return shape


def need_rank(given: ir.Type, what: str) -> int:
    """Return a tensor's number of axes; raise `RelayError` if it is unknown."""
    ndim = _view(given, what).ndim
    return int(_need(None if ndim < 0 else ndim, "shape", what))


def need_dtype(given: ir.Type, what: str) -> str:
    """Return a tensor's dtype; raise `RelayError` if it is unknown."""
    return str(_need(_view(given, what).dtype or None, "dtype", what))


def _need(found: Any, noun: str, what: str) -> Any:
    if found is None:
        fix = "give the variable a type: relay.var(name, shape=..., dtype=...)"
        where = what.split(" ")[0]
        raise RelayError(f"the {noun} of {what} must be known", where=where, fix=fix)
    return found


def axes(given: Sequence[int], ndim: int, what: str) -> list[int]:
    """Count axes from the front; raise `RelayError` for one outside ``[-ndim, ndim)``."""
    for axis in given:
        if not -ndim <= axis < ndim:
            fix = f"give an axis from {-ndim} to {ndim - 1}"
            outside = f"axis {axis} of {what} is outside its {ndim} dimensions"
            raise RelayError(outside, where=what.split(" ")[0], fix=fix)
    return [axis % ndim for axis in given]


def ints(given: Any) -> list[int] | None:
    """Return a shape as a list of integers, or None if it contains a symbol."""
    if not isinstance(given, relax.ShapeExpr):
        return None
    known = all(isinstance(size, tirx.IntImm) for size in given.values)
    return [int(plain(size)) for size in given.values] if known else None
