"""Rows for reductions: sums and the like over whole axes.

The sources are `src/relay/op/tensor/reduce.cc` and `topi/reduction.h` of TVM 0.18: no axis, or an
empty list of them, means all; ``exclude`` means all but those given. The mean of integers
truncates, that of float16 is summed in float32, and ``argmax`` returns int32. ``einsum`` is in
`src/relay/op/tensor/math.cc`; Relax calls its letters ``subscripts``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from .. import dialect
from ..table import native, stands_for
from ..types import result
from .common import Dims, Values, axes, dims, dtype, need_dims, need_dtype, need_rank, rank

_REDUCE = "axis:ints=None keepdims:bool=False exclude:bool=False"


def _reduced(a: Values, ndim: int, name: str) -> list[int]:
    """List the axes that a call reduces, counted from the front, in order."""
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


def _infer(name: str, kind: str = "", check: Callable[..., None] | None = None) -> dialect.Infer:
    """Make the type rule of a reduction, to a dtype or to that of the data."""

    def infer(types: Sequence[ir.Type], a: Values) -> ir.Type:
        shape, ndim, out = dims(types[0]), rank(types[0]), kind or dtype(types[0])
        if check is not None:
            check(types[0], a)
        if ndim is None:
            # All axes gone leave no axis, whatever there was.
            return result([] if not a["axis"] and not a["keepdims"] else None, out)
        over = _reduced(a, ndim, name)
        if shape is None:
            return result(None, out, ndim if a["keepdims"] else ndim - len(over))
        return result(_left(shape, over, a["keepdims"]), out)

    return infer


def _known(call: relax.Call) -> Values | None:
    if call.attrs.axis is None or len(call.attrs.axis) > 0:
        return {"exclude": False}
    # Relax reduces no axis at all; in Relay an empty list means all.
    ndim = rank(call.args[0].ty)
    return {"axis": list(range(ndim)), "exclude": True} if ndim else None


def _to_relax(name: str) -> Callable[..., relax.Expr]:
    def make(data: relax.Expr, **a: Any) -> relax.Expr:
        over = a["axis"] or None
        if a["exclude"]:
            over = _reduced(a, need_rank(data.ty, f"{name} data"), name)
        return getattr(op, name)(data, over, a["keepdims"])

    return make


for _name in ("sum", "max", "min", "prod"):
    native(_name, "data", _REDUCE, to_relax=_to_relax(_name), known=_known)


def _count(shape: Dims, over: Sequence[int], name: str) -> int:
    for axis in over:
        if not isinstance(shape[axis], int):
            raise RelayError(
                f"{name} needs to know the size of axis {axis}, which is {shape[axis]}",
                where=name,
                fix="give the data a static shape",
            )
    return math.prod(shape[axis] for axis in over)


def _mean(data: relax.Expr, **a: Any) -> relax.Expr:
    shape, kind = need_dims(data.ty, "mean data"), need_dtype(data.ty, "mean data")
    over = _reduced(a, len(shape), "mean")
    if kind == "float16":
        return op.astype(op.mean(op.astype(data, "float32"), over, a["keepdims"]), kind)
    count = relax.const(np.array(_count(shape, over, "mean")).astype(kind), kind)
    return op.divide(op.sum(data, over, a["keepdims"]), count)


def _has_own_mean(data: relax.Expr) -> bool:
    return dtype(data.ty) in ("", "float32", "float64")


native(
    "mean",
    "data",
    _REDUCE,
    to_relax=lambda data, **a: _to_relax("mean")(data, **a) if _has_own_mean(data) else None,
    known=lambda call: _known(call) if _has_own_mean(call.args[0]) else None,
    expand=_mean,
    infer=_infer("mean"),
)


@stands_for("variance", "data mean", f"{_REDUCE} unbiased:bool=False", infer=_infer("variance"))
def _variance(data: relax.Expr, mean: relax.Expr, **a: Any) -> relax.Expr:
    shape, kind = need_dims(data.ty, "variance data"), need_dtype(data.ty, "variance data")
    over = _reduced(a, len(shape), "variance")
    count = _count(shape, over, "variance") - int(a["unbiased"])
    away = op.subtract(data, mean)
    square = op.multiply(away, away)
    if kind != "float16":
        return op.divide(op.sum(square, over, a["keepdims"]), relax.const(count, kind))
    total = op.sum(op.astype(square, "float32"), over, a["keepdims"])
    return op.astype(op.divide(total, relax.const(count, "float32")), kind)


def _of_booleans(name: str, make: Callable[..., relax.Expr]) -> None:
    """Add ``all`` or ``any``: the least, or the greatest, of zeros and ones."""

    def check(ty: ir.Type, _: Values) -> None:
        if dtype(ty) not in ("", "bool"):
            what = f"{name} takes booleans, not {dtype(ty)}"
            raise RelayError(what, where=name, fix="cast the data")

    @stands_for(name, "data", _REDUCE, infer=_infer(name, "bool", check))
    def _(data: relax.Expr, **a: Any) -> relax.Expr:
        over = _reduced(a, need_rank(data.ty, f"{name} data"), name)
        return op.astype(make(op.astype(data, "uint8"), over, a["keepdims"]), "bool")


_of_booleans("all", op.min)
_of_booleans("any", op.max)


def _place(name: str, make: Callable[..., relax.Expr]) -> None:
    """Add ``argmax`` or ``argmin``: over several axes, the place in all of them."""

    def check(ty: ir.Type, a: Values) -> None:
        ndim = rank(ty)
        if ndim == 0:
            raise RelayError(f"{name} needs data of one axis or more", where=name)
        if ndim is not None and not _reduced(a, ndim, name):
            raise RelayError(f"{name} leaves no axis to look along", where=name)

    @stands_for(
        name,
        "data",
        "axis:ints=None keepdims:bool=False select_last_index:bool=False exclude:bool=False",
        infer=_infer(name, "int32", check),
        signature="data axis keepdims exclude select_last_index",
    )
    def _(data: Any, **a: Any) -> relax.Expr:
        shape = need_dims(data.ty, f"{name} data")
        over = _reduced(a, len(shape), name)
        if len(over) == 1:
            axis = over[0]
        else:
            others = [i for i in range(len(shape)) if i not in over]
            axis = len(others)
            data = op.permute_dims(data, [*others, *over])
            data = op.reshape(data, [*(shape[i] for i in others), _count(shape, over, name)])
        if a["select_last_index"]:
            last = relax.const(_count(shape, over, name) - 1, "int64")
            found = op.subtract(last, make(op.flip(data, axis), axis))
        else:
            found = make(data, axis)
        return op.reshape(op.astype(found, "int32"), _left(shape, over, a["keepdims"]))


_place("argmax", op.argmax)
_place("argmin", op.argmin)
native("cumsum", "data", "axis:int=None dtype:str= exclusive:bool=False")
native("cumprod", "data", "axis:int=None dtype:str= exclusive:bool=False")


def _einsum(data: relax.Expr, equation: str) -> relax.Expr:
    """Refuse what NumPy refuses, on arrays of the same shapes: some of it ends TVM's process."""
    terms, arrow, out = equation.replace(" ", "").partition("->")
    words = terms.split(",")
    types = data.ty.fields if isinstance(data.ty, relax.TupleType) else [None] * len(words)
    try:
        if len(words) != len(types):
            raise ValueError(f"it is about {len(words)} operands, and {len(types)} are given")
        if arrow and ("..." in terms) != ("..." in out):
            raise ValueError(f"only one side of {equation!r} has the axes of ...")
        shapes = []
        for word, ty in zip(words, types, strict=True):
            ndim = rank(ty, "einsum data")
            unknown = [1] * (len(word.replace("...", "")) if ndim is None else ndim)
            shape = dims(ty, "einsum data") or unknown
            shapes.append([size if isinstance(size, int) else 1 for size in shape])
        arrays = [np.broadcast_to(np.int8(0), shape) for shape in shapes]
        np.einsum_path(equation, *arrays, optimize=False)
    except (ValueError, IndexError) as error:
        what = f"einsum of {equation!r}: {error}"
        raise RelayError(what, where="einsum", fix='say it as in "ij,jk->ik"') from error
    return op.einsum(data, equation)


native("einsum", "data", "equation:str=", to_relax=_einsum, equation="subscripts")
