"""Input shapes: checked against the model, names turned into symbolic sizes."""

from __future__ import annotations

import keyword
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx

from ..errors import ShapeError

__all__ = ["Shapes", "resolve"]

Shapes = Mapping[str, Sequence[int | str]]


def resolve(
    declared: Mapping[str, Sequence[int | str | None] | None], shapes: Shapes | None, *, where: str
) -> dict[str, list[Any]]:
    """Decide every input's shape.

    Parameters
    ----------
    declared : mapping of str to shape or None
        What the model says: None is an unknown rank, a dimension that is a string or None is open.
    shapes : mapping of str to shape, optional
        What the user says; it wins. Equal names are equal sizes.
    where : str
        The model, for errors.

    Returns
    -------
    dict of str to list
        Dimensions are int or ``tirx.Var`` of int64.

    Raises
    ------
    ShapeError
        An unknown input, another rank, a size below 1, or an open dimension that is not given.
    """
    if not isinstance(shapes, (Mapping, type(None))):
        raise ShapeError(
            f"shapes is a {type(shapes).__name__}, not a mapping",
            where=where,
            fix=f"give a dictionary: shapes={{{next(iter(declared), 'x')!r}: (...)}}",
        )
    given = dict(shapes or {})
    unknown = sorted(set(given) - set(declared))
    if unknown:
        raise ShapeError(
            f"the model has no input named {', '.join(map(repr, unknown))}",
            where=where,
            fix=f"its inputs are {', '.join(map(repr, declared))}",
        )
    symbols: dict[str, tirx.Var] = {}
    resolved = {}
    for name, shape in declared.items():
        resolved[name] = [
            _dimension(value, symbols, name, where)
            for value in _one(name, shape, given.get(name), where)
        ]
    return resolved


def _one(
    name: str,
    shape: Sequence[int | str | None] | None,
    given: Sequence[int | str] | None,
    where: str,
) -> Sequence[int | str]:
    """Choose between the declared and the given shape of one input."""
    if given is not None:
        if isinstance(given, str) or not hasattr(given, "__len__"):
            raise ShapeError(
                f"the shape given for input {name!r} is {given!r}",
                where=where,
                fix="give a tuple of sizes and names",
            )
        if shape is not None and len(given) != len(shape):
            raise ShapeError(
                f"input {name!r} has {len(shape)} dimensions, the shape given has {len(given)}",
                where=where,
                fix=f"the model declares {_text(shape)}",
            )
        return given
    if shape is None:
        raise ShapeError(
            f"the rank of input {name!r} is not known",
            where=where,
            fix=f"give its shape: shapes={{{name!r}: (...)}}",
        )
    fixed = [value for value in shape if isinstance(value, int)]
    if len(fixed) != len(shape):
        example = tuple(value if isinstance(value, int) else 1 for value in shape)
        names = tuple(value if isinstance(value, int) else str(value or "n") for value in shape)
        raise ShapeError(
            f"input {name!r} has open dimensions: {_text(shape)}",
            where=where,
            fix=f"fix them with shapes={{{name!r}: {example}}}, or keep them open by naming them: "
            f"shapes={{{name!r}: {names}}}",
        )
    return fixed


def _dimension(value: Any, symbols: dict[str, tirx.Var], name: str, where: str) -> Any:
    if isinstance(value, str) and value.isidentifier() and not keyword.iskeyword(value):
        return symbols.setdefault(value, tirx.Var(value, "int64"))
    # NumPy's integers are sizes as well.
    if hasattr(value, "__index__") and not isinstance(value, bool) and operator.index(value) > 0:
        return operator.index(value)
    raise ShapeError(
        f"input {name!r} has a dimension of {value!r}",
        where=where,
        fix="a dimension is a positive integer, or a name for a size known at run time",
    )


def _text(shape: Sequence[int | str | None]) -> str:
    return "(" + ", ".join("?" if value is None else str(value) for value in shape) + ")"
