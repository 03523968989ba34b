"""Rows for reductions: sums and similar operators over axes.

In `src/relay/op/tensor/reduce.cc` of TVM 0.18, no axis or an empty list means all axes, a mean of
integers truncates, a mean of float16 is summed in float32, and ``argmax`` returns int32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ...errors import RelayError
from ..table import native, stands_for
from .common import Dims, Values, axes, dims, dtype, need_dims, need_dtype, need_rank, rank

_REDUCE = "axis:ints=None keepdims:bool=False exclude:bool=False"


def _reduced(a: Values, ndim: int, name: str) -> list[int]:
    """List the axes that a call reduces, counted from the front, in order."""
    if a["exclude"] and a["axis"] is None:
        what = f"{name} cannot exclude axes when none are given"
        raise RelayError(what, where=name, fix="give axis=[...]")
    given = axes(a["axis"] or range(ndim), ndim, f"{name} data")
    if a["exclude"] and a["axis"]:
        return [axis for axis in range(ndim) if axis not in given]
    return sorted(given)


def _left(shape: Dims, over: Sequence[int], keepdims: bool) -> Dims:
    if keepdims:
        return [1 if axis in over else size for axis, size in enumerate(shape)]
    return [size for axis, size in enumerate(shape) if axis not in over]


def _known(call: relax.Call) -> Values | None:
    if call.attrs.axis is None or len(call.attrs.axis) > 0:
        return {"exclude": False}
    # An empty list means no axis in Relax, and all axes in Relay.
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
            what = f"{name} needs to know the size of axis {axis}, which is {shape[axis]}"
            raise RelayError(what, where=name, fix="give the data a static shape")
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
)


def _of_booleans(name: str, make: Callable[..., relax.Expr]) -> None:
    """Add ``all`` or ``any``: the minimum, or the maximum, of zeros and ones."""

    @stands_for(name, "data", _REDUCE)
    def _(data: relax.Expr, **a: Any) -> relax.Expr:
        if dtype(data.ty) not in ("", "bool"):
            what = f"{name} takes booleans, not {dtype(data.ty)}"
            raise RelayError(what, where=name, fix="cast the data to bool")
        over = _reduced(a, need_rank(data.ty, f"{name} data"), name)
        return op.astype(make(op.astype(data, "uint8"), over, a["keepdims"]), "bool")


_of_booleans("all", op.min)
_of_booleans("any", op.max)


def _place(name: str, make: Callable[..., relax.Expr]) -> None:
    """Add ``argmax`` or ``argmin``; over several axes, the result is the index in all of them."""

    @stands_for(
        name,
        "data",
        "axis:ints=None keepdims:bool=False select_last_index:bool=False exclude:bool=False",
        signature="data axis keepdims exclude select_last_index",
    )
    def _(data: Any, **a: Any) -> relax.Expr:
        shape = need_dims(data.ty, f"{name} data")
        over = _reduced(a, len(shape), name)
        if not over:
            raise RelayError(f"{name} has no axis to reduce", where=name)
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
    """Refuse what NumPy refuses for the same shapes, because some of it ends TVM's process."""
    terms, arrow, out = equation.replace(" ", "").partition("->")
    words = terms.split(",")
    types = data.ty.fields if isinstance(data.ty, relax.TupleType) else [None] * len(words)
    try:
        if len(words) != len(types):
            raise ValueError(f"it has {len(words)} operands, but the call has {len(types)}")
        if arrow and ("..." in terms) != ("..." in out):
            raise ValueError(f"only one side of {equation!r} has the axes of ...")
        shapes = []
        for word, ty in zip(words, types, strict=True):
            ndim = rank(ty)
            unknown = [1] * (len(word.replace("...", "")) if ndim is None else ndim)
            shape = dims(ty) or unknown
            shapes.append([size if isinstance(size, int) else 1 for size in shape])
        arrays = [np.broadcast_to(np.int8(0), shape) for shape in shapes]
        np.einsum_path(equation, *arrays, optimize=False)
    except (ValueError, IndexError) as error:
        what = f"einsum of {equation!r}: {error}"
        raise RelayError(what, where="einsum", fix='write it as in "ij,jk->ik"') from error
    return op.einsum(data, equation)


native("einsum", "data", "equation:str=", to_relax=_einsum, equation="subscripts")
