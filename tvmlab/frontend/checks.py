"""Checks for all importers: input shapes, and the scales and zero points of quantized models."""

from __future__ import annotations

import itertools
import keyword
import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
from tvm import tirx

from ..errors import ModelError, ShapeError

__all__ = ["Shapes", "check_scales", "resolve"]

Shapes = Mapping[str, Sequence[int | str]]


def resolve(
    declared: Mapping[str, Sequence[int | str | None] | None], shapes: Shapes | None, *, where: str
) -> dict[str, list[Any]]:
    """Determine every input's shape; an open size becomes a ``tirx.Var`` of int64, one per name.

    A `declared` shape of None has an unknown rank; a dimension that is a string or None is open.
    The user's `shapes` take precedence. Raises `ShapeError` if `shapes` does not match the model
    or has no size for an open dimension.
    """
    if not isinstance(shapes, (Mapping, type(None))):
        fix = f"pass a dictionary: shapes={{{next(iter(declared), 'x')!r}: (...)}}"
        what = f"shapes is a {type(shapes).__name__}, not a mapping"
        raise ShapeError(what, where=where, fix=fix)
    given = {name: shape for name, shape in (shapes or {}).items() if shape is not None}
    unknown = sorted(set(given) - set(declared))
    if unknown:
        what = f"the model has no input named {', '.join(map(repr, unknown))}"
        fix = f"its inputs are {', '.join(map(repr, declared))}"
        raise ShapeError(what, where=where, fix=fix)
    symbols: dict[str, tirx.Var] = {}
    resolved: dict[str, list[Any]] = {}
    for name, shape in declared.items():
        if name in given:
            sizes = given[name]
            ranked = hasattr(sizes, "__len__") and not isinstance(sizes, str)
            if not ranked or (shape is not None and len(sizes) != len(shape)):
                raise ShapeError(
                    f"`shapes` gives {sizes!r} for input {name!r}, but the model declares "
                    + (_text(shape) if shape is not None else "a tensor of any rank"),
                    where=where,
                    fix="pass a tuple with one size or name for each dimension of the input",
                )
            resolved[name] = [_dimension(value, symbols, name, where) for value in sizes]
        elif shape is not None and all(isinstance(size, int) for size in shape):
            resolved[name] = list(shape)
    if len(resolved) < len(declared):
        asked = {n: s for n, s in declared.items() if n in given or n not in resolved}
        raise _still_open(asked, given, where)
    return resolved


def _dimension(value: Any, symbols: dict[str, tirx.Var], name: str, where: str) -> Any:
    if _is_name(value):
        return symbols.setdefault(value, tirx.Var(value, "int64"))
    if hasattr(value, "__index__") and not isinstance(value, bool) and operator.index(value) >= 0:
        return operator.index(value)
    fix = "a dimension is an integer from 0 on, or a name for a size known at run time"
    raise ShapeError(f"input {name!r} has a dimension of {value!r}", where=where, fix=fix)


def _still_open(
    declared: Mapping[str, Sequence[int | str | None] | None], given: Shapes, where: str
) -> ShapeError:
    """Return an error that names all open inputs, and suggests `shapes` for all inputs."""
    kept = {n: tuple(d if isinstance(d, str) else int(d) for d in s) for n, s in given.items()}
    # Open sizes without a name get a different name each, because equal names mean equal sizes.
    taken = {size for shape in (*declared.values(), *kept.values()) for size in shape or ()}
    numbered = (f"n_{number}" if number else "n" for number in itertools.count())
    fresh = (name for name in numbered if name not in taken)
    problems: list[str] = []
    named: dict[str, tuple[int | str, ...]] = {}
    fixed: dict[str, tuple[int | str, ...]] = {}
    for name, shape in declared.items():
        if name in kept:
            named[name] = fixed[name] = kept[name]
        elif shape is None:
            problems.append(f"the rank of input {name!r} is not known")
        else:
            problems.append(f"input {name!r} has open dimensions: {_text(shape)}")
            fixed[name] = tuple(size if isinstance(size, int) else 1 for size in shape)
            named[name] = tuple(
                size if isinstance(size, int) or _is_name(size) else next(fresh) for size in shape
            )
    advice = f"fix them with shapes={fixed}, or keep them open by naming them: shapes={named}"
    known = len(named) == len(declared)
    fix = advice if known else "give the shape of every open input: shapes={'NAME': (...)}"
    error = ShapeError("; ".join(problems), where=where, fix=fix)
    error.shapes = named if known else None
    return error


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value.isidentifier() and not keyword.iskeyword(value)


def _text(shape: Sequence[int | str | None]) -> str:
    return "(" + ", ".join("?" if value is None else str(value) for value in shape) + ")"


def check_scales(
    scale: Any, zero: Any, dtype: str, shape: Sequence[int | None] | None, axis: int, *, where: str
) -> None:
    """Refuse invalid scales and zero points.

    There is one of each, or one for each index of `axis`; a size or the rank of `shape` is None
    if it is unknown before the model runs. `where` names the tensor or the operator.
    """
    bad = ~np.isfinite(scale) | (scale <= 0)
    if bad.any():
        raise _wrong(f"a scale of {scale[bad].ravel()[0]}, not positive and finite", where)
    info = np.iinfo(dtype)
    bad = (zero < info.min) | (zero > info.max)
    if bad.any():
        raise _wrong(f"a zero point of {zero[bad].ravel()[0]}, out of {dtype}'s range", where)
    for name, count in (("scale", scale.size), ("zero point", zero.size)):
        if count == 1 or shape is None:
            continue
        if not -len(shape) <= axis < len(shape):
            raise _wrong(f"axis {axis} of a tensor with {len(shape)} dimensions", where)
        if shape[axis] not in (None, count):
            raise _wrong(f"{count} {name}s for an axis of {shape[axis]}", where)
    if zero.size not in (1, scale.size):
        raise _wrong(f"{scale.size} scales and {zero.size} zero points", where)


def _wrong(why: str, where: str) -> ModelError:
    what = f"the quantization is wrong: {why}"
    return ModelError(what, where=where, fix="quantize the model again")
