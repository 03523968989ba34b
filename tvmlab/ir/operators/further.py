"""Rows that one or two operators of Relax make: sorting, likeness, mirrors, fast approximations.

The sources are `src/relay/op/{algorithm,tensor,nn,annotation}` of TVM 0.18. Relay's fast operators
approximate on the CPU; here they are the exact ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, Operator, add, add_ours
from .common import (
    Operands,
    Values,
    Written,
    axes,
    cumulative,
    dims,
    dtype,
    like,
    made,
    need_dims,
    need_dtype,
    need_rank,
    same_as_relax,
)

_DATA = ("data",)


# Sorting and products along an axis: Relax's own


def _sort(operands: Operands, a: Values) -> relax.Expr:
    return op.sort(operands[0], a["axis"], not a["is_ascend"])


def _sort_back(call: relax.Call) -> Written:
    a = call.attrs
    ascends = not a.descending
    return list(call.args), {"axis": int(a.axis), "is_ascend": ascends, "dtype": ""}


add(
    Operator(
        "sort",
        "relax.sort",
        _DATA,
        (
            Attribute("axis", "int", -1),
            Attribute("is_ascend", "bool", True),
            Attribute("dtype", "str", ""),
        ),
        _sort,
        _sort_back,
        signature=("data", "axis", "is_ascend"),
    )
)


cumulative("cumprod", op.cumprod)
same_as_relax("atan2", op.atan2, ("lhs", "rhs"))


# Shape and dtype of another tensor


def _slice_axes(types: Sequence[ir.Type], a: Values) -> list[int]:
    ranks = [need_rank(one, "slice_like operand") for one in types]
    if not a["axes"]:
        if ranks[0] < ranks[1]:
            raise RelayError(
                f"data has {ranks[0]} dimensions, what it is to be like {ranks[1]}",
                where="slice_like",
                fix="name the axes",
            )
        return list(range(ranks[1]))
    return axes(axes(a["axes"], ranks[0], "slice_like data"), ranks[1], "slice_like shape_like")


def _slice_sizes(types: Sequence[ir.Type], a: Values) -> list[Any] | None:
    data, other = dims(types[0]), dims(types[1])
    if data is None or other is None:
        return None
    for axis in _slice_axes(types, a):
        pair = data[axis], other[axis]
        if all(isinstance(size, int) for size in pair) and pair[0] < pair[1]:
            raise RelayError(
                f"axis {axis} of data has {pair[0]} elements, fewer than {pair[1]}",
                where="slice_like",
            )
        data[axis] = other[axis]
    return data


def _slice_like(operands: Operands, a: Values) -> relax.Expr:
    types = [operand.ty for operand in operands]
    sizes = need_dims(types[1], "slice_like shape_like")
    over = _slice_axes(types, a)
    ends = [sizes[axis] for axis in over]
    return op.strided_slice(operands[0], over, [0] * len(over), ends) if over else operands[0]


add_ours(
    "slice_like",
    ("data", "shape_like"),
    (Attribute("axes", "ints", None),),
    lambda types, a: made(_slice_sizes(types, a), dtype(types[0])),
    _slice_like,
)
add_ours(
    "cast_like",
    ("data", "dtype_like"),
    (),
    lambda types, _: like(types[0], need_dtype(types[1], "cast_like dtype_like")),
    lambda operands, _: op.astype(operands[0], need_dtype(operands[1].ty, "cast_like dtype_like")),
)


def _size(operands: Operands, a: Values) -> relax.Expr:
    kind, total = a["dtype"] or "int32", 1
    for size in need_dims(operands[0].ty, "ndarray_size data"):
        if not isinstance(size, int):
            raise RelayError(
                "the size is known at run time only", where="ndarray_size", fix="bind the shape"
            )
        total *= size
    return relax.const(total, kind)


add_ours(
    "ndarray_size",
    _DATA,
    (Attribute("dtype", "str", ""),),
    lambda types, a: made([], a["dtype"] or "int32"),
    _size,
    defaults={"dtype": "int32"},
)


# Mirrors at the borders


def _mirror_widths(data: ir.Type, a: Values) -> list[tuple[int, int]]:
    sizes, widths = need_dims(data, "nn.mirror_pad data"), a["pad_width"]
    if a["mode"] not in ("SYMMETRIC", "REFLECT"):
        raise RelayError(
            f"nn.mirror_pad knows no mode {a['mode']!r}",
            where="nn.mirror_pad",
            fix='give mode="SYMMETRIC" or "REFLECT"',
        )
    pairs = [tuple(pair) if isinstance(pair, list) else () for pair in widths]
    inner = a["mode"] == "REFLECT"
    fits = len(pairs) == len(sizes) and all(
        len(pair) == 2 and all(width >= 0 for width in pair)
        and (not isinstance(size, int) or max(pair) <= size - inner)
        for pair, size in zip(pairs, sizes, strict=True)
    )  # fmt: skip
    if not fits:
        raise RelayError(
            f"the widths {widths} do not fit a tensor of {sizes}",
            where="nn.mirror_pad, attribute pad_width",
            fix="give two for each axis, no more than there is to mirror",
        )
    return [(pair[0], pair[1]) for pair in pairs]


def _mirror_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    widths = _mirror_widths(types[0], a)
    sizes = need_dims(types[0], "nn.mirror_pad data")
    return made(
        [size + sum(pair) for size, pair in zip(sizes, widths, strict=True)], dtype(types[0])
    )


def _mirror_pad(operands: Operands, a: Values) -> relax.Expr:
    (data,) = operands
    sizes, inner = need_dims(data.ty, "nn.mirror_pad data"), int(a["mode"] == "REFLECT")
    for axis, (before, after) in enumerate(_mirror_widths(data.ty, a)):
        parts, size = [data], sizes[axis]
        if before:
            first = op.strided_slice(data, [axis], [inner], [inner + before])
            parts.insert(0, op.flip(first, axis))
        if after:
            last = op.strided_slice(data, [axis], [size - inner - after], [size - inner])
            parts.append(op.flip(last, axis))
        data = op.concat(parts, axis) if len(parts) > 1 else data
    return data


add_ours(
    "nn.mirror_pad",
    _DATA,
    (Attribute("mode", "str", "SYMMETRIC"), Attribute("pad_width", "ints")),
    _mirror_type,
    _mirror_pad,
    signature=("data", "pad_width", "mode"),
)


# Fast forms of functions, and marks


def _like(types: Sequence[ir.Type], _: Values) -> ir.Type:
    return like(types[0])


def _fast(name: str, exact: Callable[[relax.Expr], relax.Expr]) -> None:
    add_ours(name, _DATA, (), _like, lambda operands, _: exact(operands[0]))


_fast("fast_exp", op.exp)
_fast("fast_erf", op.erf)
_fast("fast_tanh", op.tanh)
_fast("annotation.stop_fusion", lambda data: data)  # fusion happens below Relay's operators
add_ours(
    "nn.fast_softmax",
    _DATA,
    (Attribute("axis", "int", -1),),
    _like,
    lambda operands, a: op.nn.softmax(operands[0], a["axis"]),
)
