"""Rows for operators that move elements and compute none.

The sources are `src/relay/op/tensor/transform.cc` and `relay/attrs/transform.h` of TVM 0.18.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax import op

from ...errors import RelayError
from ..table import native, stands_for
from ..types import result
from .common import (
    Values,
    Written,
    axes,
    dims,
    dtype,
    ints,
    need_dims,
    need_rank,
    plain_dim,
    same,
    tensor,
)
from .reshape import resolved


def _reshape(data: relax.Expr, newshape: list[int] | None, allowzero: bool) -> relax.Expr:
    if newshape is None:
        raise RelayError("reshape needs a shape", where="reshape", fix="give newshape=[...]")
    if all(size > 0 for size in newshape):
        return op.reshape(data, newshape)
    return op.reshape(data, resolved(need_dims(data.ty, "reshape data"), newshape, allowzero))


def _reshape_back(call: relax.Call) -> Written | None:
    data, shape = call.args
    if not isinstance(shape, relax.ShapeExpr):
        return None
    sizes = ints(shape)
    if sizes is not None:
        return [data], {"newshape": sizes, "allowzero": 0 in sizes}
    # A symbol is written as the size it copies, and one that copies none as what is left over.
    old = dims(data.ty)
    if old is None:
        return None
    said = []
    for place, size in enumerate(shape.values):
        copied = place < len(old) and same(plain_dim(size), old[place])
        said.append(int(size.value) if isinstance(size, tirx.IntImm) else (0 if copied else -1))
    if said.count(-1) > 1 or any(isinstance(s, tirx.IntImm) and s == 0 for s in shape.values):
        return None
    again = op.reshape(data, resolved(old, said, False))
    equal = tvm_ffi.structural_equal(again.args[1], shape)
    return ([data], {"newshape": said, "allowzero": False}) if equal else None


native(
    "reshape",
    "data",
    "newshape:ints allowzero:bool=False",
    to_relax=_reshape,
    from_relax=_reshape_back,
)


@stands_for(
    "reshape_like",
    "data shape_like",
    "lhs_begin:int=0 lhs_end:int=None rhs_begin:int=0 rhs_end:int=None",
)
def _reshape_like(data: relax.Expr, other: relax.Expr, **a: int | None) -> relax.Expr:
    left, right = (need_dims(x.ty, "reshape_like operand") for x in (data, other))
    behind = [] if a["lhs_end"] is None else left[a["lhs_end"] :]
    middle = right[a["rhs_begin"] or 0 : a["rhs_end"]]
    return op.reshape(data, [*left[: a["lhs_begin"] or 0], *middle, *behind])


def _transpose(data: relax.Expr, axes: list[int] | None) -> relax.Expr:
    if tensor(data.ty, "transpose data") is not None:
        need_rank(data.ty, "transpose data")
    return op.permute_dims(data, axes)


native(
    "transpose", "data", "axes:ints", "permute_dims", to_relax=_transpose, defaults={"axes": None}
)


def _expand_dims(data: relax.Expr, axis: int, num_newaxis: int) -> relax.Expr:
    if not 0 <= num_newaxis <= 64:
        raise RelayError(
            f"num_newaxis is {num_newaxis}; it is between 0 and 64", where="expand_dims"
        )
    if axis < 0 and num_newaxis != 1:
        # Relay counts from the end of the data, Relax from that of the result.
        axis += need_rank(data.ty, "expand_dims data") + 1
    return op.expand_dims(data, list(range(axis, axis + num_newaxis)))


def _expand_dims_back(call: relax.Call) -> Written | None:
    given = [int(axis) for axis in call.attrs.axis]
    first = given[0] if given else 0
    in_a_row = given == list(range(first, first + len(given)))
    if not in_a_row or (first < 0 and len(given) != 1):
        return None
    return list(call.args), {"axis": first, "num_newaxis": len(given)}


native(
    "expand_dims",
    "data",
    "axis:int num_newaxis:int=1",
    to_relax=_expand_dims,
    from_relax=_expand_dims_back,
)


def _squeeze(data: relax.Expr, axis: list[int] | None) -> relax.Expr:
    shape = dims(data.ty)
    if axis is not None and shape is not None:
        for place in axes(axis, len(shape), "squeeze data"):
            if isinstance(shape[place], int) and shape[place] != 1:
                raise RelayError(
                    f"squeeze cannot take axis {place} away, which has size {shape[place]}",
                    where="squeeze",
                )
    return op.squeeze(data, axis)


native("squeeze", "data", "axis:ints=None", to_relax=_squeeze)
native("concatenate", "data", "axis:int=0", "concat", only=lambda call: call.attrs.axis is not None)
native("stack", "data", "axis:int=0", only=lambda call: call.attrs.axis is not None)
native("tile", "data", "reps:ints", reps="repeats")
native("repeat", "data", "repeats:int axis:int=None")


def _split(data: relax.Expr, indices_or_sections: Any, axis: int) -> relax.Expr | None:
    given, shape = indices_or_sections, dims(data.ty)
    parts = given if isinstance(given, int) else len(given) + 1
    if parts > 10_000:
        raise RelayError("split makes 10000 parts at most", where="split")
    if isinstance(given, int) and shape is not None:
        (axis_,) = axes([axis], len(shape), "split data")
        if given < 1 or (isinstance(shape[axis_], int) and shape[axis_] % given):
            raise RelayError(
                f"split cannot cut {shape[axis_]} into {given} equal parts", where="split"
            )
    # Relax's own makes a function of one part that returns no tuple.
    return None if parts == 1 else op.split(data, given, axis)


def _split_back(call: relax.Call) -> Written | None:
    given, axis = call.attrs.indices_or_sections, int(call.attrs.axis)
    if not isinstance(given, tirx.IntImm):
        where = [int(place) for place in given]
        return (list(call.args), {"indices_or_sections": where, "axis": axis}) if where else None
    shape = dims(call.args[0].ty)
    even = shape is None or not isinstance(shape[axis], int) or shape[axis] % given.value == 0
    if not even or given.value == 1:
        return None
    return list(call.args), {"indices_or_sections": int(given.value), "axis": axis}


native(
    "split",
    "data",
    "indices_or_sections:any axis:int=0",
    to_relax=_split,
    from_relax=_split_back,
    expand=lambda data, **_: relax.Tuple([data]),
)


def _reverse(data: relax.Expr, axis: int | None) -> relax.Expr:
    if axis is None:
        raise RelayError("reverse needs an axis", where="reverse", fix="give axis=...")
    return op.flip(data, axis)


native("reverse", "data", "axis:int=None", "flip", to_relax=_reverse)


def _broadcast_to(data: relax.Expr, shape: list[int] | None, **_: str) -> relax.Expr:
    if shape is None:
        raise RelayError("broadcast_to needs a shape", where="broadcast_to")
    return op.broadcast_to(data, shape)


native(
    "broadcast_to",
    "data",
    "shape:ints dtype:str=",
    to_relax=_broadcast_to,
    from_relax=lambda call: ([call.args[0]], {"shape": ints(call.args[1]), "dtype": ""}),
    only=lambda call: ints(call.args[1]) is not None,
)


@stands_for("broadcast_to_like", "data broadcast_type")
def _broadcast_to_like(data: relax.Expr, other: relax.Expr) -> relax.Expr:
    return op.broadcast_to(data, need_dims(other.ty, "broadcast_to_like broadcast_type"))


def _check_mirror(sizes: list[Any], mode: str, pad_width: list[Any]) -> None:
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise RelayError(
            f"nn.mirror_pad knows no mode {mode!r}",
            where="nn.mirror_pad",
            fix='give mode="SYMMETRIC" or "REFLECT"',
        )
    inner = mode == "REFLECT"
    fits = len(pad_width) == len(sizes) and all(
        isinstance(pair, list) and len(pair) == 2 and min(pair) >= 0
        and (not isinstance(size, int) or max(pair) <= size - inner)
        for pair, size in zip(pad_width, sizes, strict=True)
    )  # fmt: skip
    if not fits:
        raise RelayError(
            f"the widths {pad_width} do not fit a tensor of {sizes}",
            where="nn.mirror_pad, attribute pad_width",
            fix="give two for each axis, no more than there is to mirror",
        )


def _mirror_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    sizes = need_dims(types[0], "nn.mirror_pad data")
    _check_mirror(sizes, **a)
    padded = [size + sum(pair) for size, pair in zip(sizes, a["pad_width"], strict=True)]
    return result(padded, dtype(types[0]) or "")


@stands_for(
    "nn.mirror_pad",
    "data",
    "mode:str=SYMMETRIC pad_width:ints",
    infer=_mirror_type,
    signature="data pad_width mode",
)
def _mirror_pad(data: Any, mode: str, pad_width: list[Any]) -> relax.Expr:
    sizes, inner = need_dims(data.ty, "nn.mirror_pad data"), int(mode == "REFLECT")
    for axis, (before, after) in enumerate(pad_width):
        parts, size = [data], sizes[axis]
        if before:
            first = op.strided_slice(data, [axis], [inner], [inner + before])
            parts.insert(0, op.flip(first, axis))
        if after:
            last = op.strided_slice(data, [axis], [size - inner - after], [size - inner])
            parts.append(op.flip(last, axis))
        data = op.concat(parts, axis) if len(parts) > 1 else data
    return data
