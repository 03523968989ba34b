"""Functions that rows of the operator table share: reading types and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tvm import ir, relax, sym, tirx

from ...errors import RelayError
from ..table import Operands as Operands
from ..table import Values as Values
from ..table import Written as Written
from ..types import result

T = TypeVar("T")
Dims = list[Any]
"""Sizes: integers where they are known, TIR expressions where they are symbols."""


def tensor(given: ir.Type, what: str) -> relax.TensorType | None:
    """Return a type as a tensor's, or None where nothing is known; `RelayError` for a tuple."""
    if given is None or type(given) is ir.Type or isinstance(given, relax.AnyType):
        return None
    if not isinstance(given, relax.TensorType):
        raise RelayError(f"{what} has to be a tensor, not {given}", where=what.split(" ")[0])
    return given


def dims(given: ir.Type, what: str = "the operand") -> Dims | None:
    """Return a tensor's sizes, `int` where one is known, or None where its shape is unknown."""
    found = tensor(given, what)
    if found is None or not isinstance(found.shape, relax.ShapeExpr):
        return None
    return [plain_dim(dim) for dim in found.shape.values]


def rank(given: ir.Type, what: str = "the operand") -> int | None:
    """Return how many axes a tensor has, or None where that is unknown."""
    found = tensor(given, what)
    return None if found is None or found.ndim < 0 else int(found.ndim)


def dtype(given: ir.Type, what: str = "the operand") -> str | None:
    """Return a tensor's dtype, or None where it is unknown."""
    found = tensor(given, what)
    return None if found is None or found.dtype is None else str(found.dtype)


def need_dims(given: ir.Type, what: str) -> Dims:
    """Return a tensor's sizes; `RelayError` where they are unknown."""
    return _need(dims(given, what), "shape", what)


def need_rank(given: ir.Type, what: str) -> int:
    """Return how many axes a tensor has; `RelayError` where that is unknown."""
    return _need(rank(given, what), "shape", what)


def need_dtype(given: ir.Type, what: str) -> str:
    """Return a tensor's dtype; `RelayError` where it is unknown."""
    return _need(dtype(given, what), "dtype", what)


def _need(found: T | None, noun: str, what: str) -> T:
    if found is None:
        raise RelayError(
            f"the {noun} of {what} must be known",
            where=what.split(" ")[0],
            fix="give the variable a type: relay.var(name, shape=..., dtype=...)",
        )
    return found


def plain_dim(dim: Any) -> Any:
    """Turn a size into an `int` where it is one."""
    return int(dim.value) if isinstance(dim, tirx.IntImm) else dim


def same(a: Any, b: Any) -> bool:
    """Return whether two sizes are equal for certain."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(sym.Analyzer().can_prove_equal(a, b))


def like(types: Sequence[ir.Type], _: Values, kind: str | None = None) -> ir.Type:
    """Infer the type of the first operand, or one of another dtype, for the result."""
    ndim = rank(types[0])
    return result(dims(types[0]), kind or dtype(types[0]) or "", -1 if ndim is None else ndim)


def axes(given: Sequence[int], ndim: int, what: str) -> list[int]:
    """Count axes from the front; `RelayError` where one is outside ``[-ndim, ndim)``."""
    for axis in given:
        if not -ndim <= axis < ndim:
            raise RelayError(
                f"axis {axis} of {what} is outside its {ndim} dimensions",
                where=what.split(" ")[0],
                fix=f"give an axis from {-ndim} to {ndim - 1}",
            )
    return [axis % ndim for axis in given]


def ints(given: Any) -> list[int] | None:
    """Return a shape as a list of integers, or None where one is a symbol."""
    if not isinstance(given, relax.ShapeExpr):
        return None
    found = [plain_dim(value) for value in given.values]
    return found if all(isinstance(v, int) for v in found) else None
