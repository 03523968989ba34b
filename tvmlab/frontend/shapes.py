"""Input shapes: checked against the model, names turned into symbolic sizes."""

from __future__ import annotations

import itertools
import keyword
import operator
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

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
        told = _told(name, shape, given.get(name), where)
        if told is not None:
            resolved[name] = [_dimension(value, symbols, name, where) for value in told]
    if len(resolved) < len(declared):
        raise _still_open(declared, given, set(resolved), where)
    return resolved


def _told(
    name: str,
    shape: Sequence[int | str | None] | None,
    given: Sequence[int | str] | None,
    where: str,
) -> Sequence[int | str] | None:
    """Choose between the declared and the given shape of one input; None where it is open."""
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
    fixed = [value for value in shape or () if isinstance(value, int)]
    return None if shape is None or len(fixed) != len(shape) else fixed


def _still_open(
    declared: Mapping[str, Sequence[int | str | None] | None],
    given: Mapping[str, Sequence[int | str]],
    known: Container[str],
    where: str,
) -> ShapeError:
    """Name all inputs that are open, and advise their shapes beside those that were given."""
    says: list[str] = []
    sizes: dict[str, tuple[int | str, ...] | None] = {}
    names: dict[str, tuple[int | str, ...]] = {}
    kept = {name: _plain(shape) for name, shape in given.items() if shape is not None}
    fresh = _fresh([*(shape for shape in declared.values() if shape), *kept.values()])
    for name, shape in declared.items():
        if name in kept:
            sizes[name] = names[name] = kept[name]
        elif name in known:
            continue
        elif shape is None:
            says.append(f"the rank of input {name!r} is not known")
            sizes[name] = None
        else:
            says.append(f"input {name!r} has open dimensions: {_text(shape)}")
            sizes[name] = tuple(value if isinstance(value, int) else 1 for value in shape)
            names[name] = tuple(
                value if isinstance(value, int) or _is_name(value) else next(fresh)
                for value in shape
            )
    unranked = None in sizes.values()
    error = ShapeError(
        "; ".join(says),
        where=where,
        fix=f"give what is open: {_spelled(sizes)}"
        if unranked
        else f"fix them with {_spelled(sizes)}, or keep them open by naming them: "
        f"{_spelled(names)}",
    )
    error.shapes = None if unranked else names
    return error


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value.isidentifier() and not keyword.iskeyword(value)


def _fresh(shapes: Iterable[Sequence[int | str | None]]) -> Iterator[str]:
    """Give names that no shape has: sizes without a name need not be equal."""
    taken = {value for shape in shapes for value in shape}
    names = (f"n_{number}" if number else "n" for number in itertools.count())
    return (name for name in names if name not in taken)


def _plain(shape: Sequence[int | str]) -> tuple[int | str, ...]:
    """Turn NumPy's integers into Python's."""
    return tuple(size if isinstance(size, str) else int(size) for size in shape)


def _spelled(shapes: Mapping[str, tuple[int | str, ...] | None]) -> str:
    """Write shapes as the argument of `tvmlab.load`; an unknown one is for the reader to write."""
    written = (f"{name!r}: {'(...)' if shape is None else shape}" for name, shape in shapes.items())
    return f"shapes={{{', '.join(written)}}}"


def _dimension(value: Any, symbols: dict[str, tirx.Var], name: str, where: str) -> Any:
    if _is_name(value):
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
