"""Rows for what goes over whole axes.

The sources are `src/relay/op/tensor/reduce.cc` and `topi/reduction.h` of TVM 0.18: no axis, or an
empty list of them, means all; ``exclude`` means all but those given. The mean of integers
truncates, that of float16 is summed in float32, and ``argmax`` gives int32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, Operator, add, add_ours
from .common import (
    Dims,
    Operands,
    Values,
    Written,
    axes,
    cumulative,
    dims,
    dtype,
    made,
    need_dims,
    need_dtype,
    need_rank,
    rank,
    two_forms,
)

_AXIS = Attribute("axis", "ints", None)
_KEEPDIMS = Attribute("keepdims", "bool", False)
_EXCLUDE = Attribute("exclude", "bool", False)
_REDUCE = (_AXIS, _KEEPDIMS, _EXCLUDE)


def _reduced(a: Values, ndim: int, name: str) -> list[int]:
    """List the axes that a call goes over, counted from the front, in order."""
    if a["exclude"] and a["axis"] is None:
        raise RelayError(
            f"{name} cannot exclude axes when none are given", where=name, fix="give axis=[...]"
        )
    given = axes(a["axis"] or range(ndim), ndim, f"{name} data")
    if a["exclude"] and a["axis"]:
        return [axis for axis in range(ndim) if axis not in given]
    return sorted(given)


def _left(shape: Dims, over: Sequence[int], keepdims: bool) -> Dims:
    if keepdims:
        return [1 if axis in over else size for axis, size in enumerate(shape)]
    return [size for axis, size in enumerate(shape) if axis not in over]


def _type(given: ir.Type, a: Values, kind: str | None, name: str) -> ir.Type:
    shape, ndim = dims(given), rank(given)
    if ndim is None:
        # All axes gone leave no axis, whatever there was.
        return made([] if not a["axis"] and not a["keepdims"] else None, kind)
    over = _reduced(a, ndim, name)
    if shape is None:
        return made(None, kind, ndim if a["keepdims"] else ndim - len(over))
    return made(_left(shape, over, a["keepdims"]), kind)


def _native(name: str) -> tuple[Callable[..., relax.Expr], Callable[..., Written | None]]:
    """Make the two ways between Relay's reduction and Relax's own of the same name."""
    make = getattr(op, name)

    def read(operands: Operands, a: Values) -> relax.Expr:
        over = a["axis"] or None
        if a["exclude"]:
            over = _reduced(a, need_rank(operands[0].ty, f"{name} data"), name)
        return make(operands[0], over, a["keepdims"])

    def write(call: relax.Call) -> Written | None:
        over = None if call.attrs.axis is None else [int(axis) for axis in call.attrs.axis]
        exclude = over == []
        if exclude:  # Relax goes over no axis at all; in Relay an empty list means all of them
            ndim = rank(call.args[0].ty)
            if not ndim:
                return None
            over = list(range(ndim))
        keepdims = bool(call.attrs.keepdims)
        return list(call.args), {"axis": over, "keepdims": keepdims, "exclude": exclude}

    return read, write


for _name in ("sum", "max", "min", "prod"):
    add(Operator(_name, f"relax.{_name}", ("data",), _REDUCE, *_native(_name)))


def _count(shape: Dims, over: Sequence[int], name: str) -> int:
    count = 1
    for axis in over:
        if not isinstance(shape[axis], int):
            raise RelayError(
                f"{name} needs to know the size of axis {axis}, which is {shape[axis]}",
                where=name,
                fix="give the data a static shape",
            )
        count *= shape[axis]
    return count


def _mean_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    return _type(types[0], a, dtype(types[0]), "mean")


def _mean(operands: Operands, a: Values) -> relax.Expr:
    (data,) = operands
    shape, kind = need_dims(data.ty, "mean data"), need_dtype(data.ty, "mean data")
    over = _reduced(a, len(shape), "mean")
    if kind == "float16":
        return op.astype(op.mean(op.astype(data, "float32"), over, a["keepdims"]), kind)
    count = relax.const(np.array(_count(shape, over, "mean")).astype(kind), kind)
    return op.divide(op.sum(data, over, a["keepdims"]), count)


_read_mean, _write_mean = _native("mean")


def _mean_of_floats(operands: Operands, a: Values) -> relax.Expr | None:
    kind = dtype(operands[0].ty)
    return _read_mean(operands, a) if kind in (None, "float32", "float64") else None


def _mean_of_floats_back(call: relax.Call) -> Written | None:
    return _write_mean(call) if dtype(call.args[0].ty) in (None, "float32", "float64") else None


two_forms(
    "mean",
    ("data",),
    _REDUCE,
    "relax.mean",
    _mean_of_floats,
    _mean_of_floats_back,
    _mean_type,
    _mean,
)


def _variance_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    return _type(types[0], a, dtype(types[0]), "variance")


def _variance(operands: Operands, a: Values) -> relax.Expr:
    data, mean = operands
    shape, kind = need_dims(data.ty, "variance data"), need_dtype(data.ty, "variance data")
    over = _reduced(a, len(shape), "variance")
    count = _count(shape, over, "variance") - int(a["unbiased"])
    away = op.subtract(data, mean)
    square = op.multiply(away, away)
    wide = "float32" if kind == "float16" else kind
    total = op.sum(op.astype(square, wide) if wide != kind else square, over, a["keepdims"])
    found = op.divide(total, relax.const(count, wide))
    return op.astype(found, kind) if wide != kind else found


add_ours(
    "variance",
    ("data", "mean"),
    (*_REDUCE, Attribute("unbiased", "bool", False)),
    _variance_type,
    _variance,
)


def _of_booleans(name: str, make: Callable[..., relax.Expr]) -> None:
    """Put ``all`` or ``any`` into the table: the least, or the greatest, of zeros and ones."""

    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        if dtype(types[0]) not in (None, "bool"):
            raise RelayError(
                f"{name} takes booleans, not {dtype(types[0])}", where=name, fix="cast the data"
            )
        return _type(types[0], a, "bool", name)

    def expand(operands: Operands, a: Values) -> relax.Expr:
        over = _reduced(a, need_rank(operands[0].ty, f"{name} data"), name)
        return op.astype(make(op.astype(operands[0], "uint8"), over, a["keepdims"]), "bool")

    add_ours(name, ("data",), _REDUCE, infer, expand)


_of_booleans("all", op.min)
_of_booleans("any", op.max)


def _place(name: str, make: Callable[..., relax.Expr]) -> None:
    """Put ``argmax`` or ``argmin`` into the table: over several axes, the place in all of them."""

    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        if rank(types[0]) == 0:
            raise RelayError(f"{name} needs data of one axis or more", where=name)
        ndim = rank(types[0])
        if ndim is not None and not _reduced(a, ndim, name):
            raise RelayError(f"{name} leaves no axis to look along", where=name)
        return _type(types[0], a, "int32", name)

    def expand(operands: Operands, a: Values) -> relax.Expr:
        data: Any = operands[0]
        shape = need_dims(data.ty, f"{name} data")
        over = _reduced(a, len(shape), name)
        if len(over) == 1:
            axis = over[0]
        else:
            others = [i for i in range(len(shape)) if i not in over]
            axis = len(others)
            data = op.permute_dims(data, [*others, *over])
            flat = _count(shape, over, name)
            data = op.reshape(data, [*(shape[i] for i in others), flat])
        if a["select_last_index"]:
            last = relax.const(_count(shape, over, name) - 1, "int64")
            found = op.subtract(last, make(op.flip(data, axis), axis))
        else:
            found = make(data, axis)
        return op.reshape(op.astype(found, "int32"), _left(shape, over, a["keepdims"]))

    add_ours(
        name,
        ("data",),
        (_AXIS, _KEEPDIMS, Attribute("select_last_index", "bool", False), _EXCLUDE),
        infer,
        expand,
        signature=("data", "axis", "keepdims", "exclude", "select_last_index"),
    )


_place("argmax", op.argmax)
_place("argmin", op.argmin)


cumulative("cumsum", op.cumsum)
