"""Rows for operators that move elements without computing.

The sources are `src/relay/op/tensor/transform.cc` and `relay/attrs/transform.h` of TVM 0.18.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import relax, sym, tirx
from tvm.relax import op

from ...errors import RelayError
from ..graph import has_type
from ..table import native, stands_for
from ..types import plain
from .common import Dims, Values, axes, dims, ints, need_dims, need_rank


def _resolved(old: Dims, newshape: Sequence[int], allowzero: bool) -> Dims:
    """Return the shape that Relay's `InferNewShape` infers from a ``newshape``.

    0 copies a size (or is 0, with `allowzero`), -1 is the remaining size, -2 copies the rest of the
    sizes, -3 multiplies the next two, and -4 splits the next one into the two following numbers.
    """

    def error(why: str) -> RelayError:
        what = f"the newshape {list(newshape)} for data of shape {list(old)} {why}"
        return RelayError(what, where="reshape")

    def divided(size: Any, by: Sequence[int]) -> Any:
        for number in by:
            if number <= 0 or (isinstance(size, int) and size % number):
                raise error(f"does not divide {size} by {number}")
            size = plain(size // number)
        return plain(size)

    new: list[Any] = []
    # The product of the old sizes that the result uses, and of all others, to infer -1.
    taken: set[int] = set()
    given: list[Any] = []
    at, unknown = 0, None

    def take() -> Any:
        nonlocal at
        if at >= len(old):
            raise error("goes beyond the data's axes")
        taken.add(at)
        at += 1
        return old[at - 1]

    words = iter(newshape)
    for word in words:
        if word > 0 or (word == 0 and allowzero):
            new.append(word)
            given.append(word)
            at += 1
        elif word == 0:
            new.append(take())
        elif word == -1:
            if unknown is not None:
                raise error("has two unknown sizes")
            unknown = len(new)
            new.append(1)
            at += 1
        elif word == -2:
            new += [take() for _ in old[at:]]
        elif word == -3:
            new.append(plain(take() * take()))
        else:
            a, b = (next(words, 0), next(words, 0)) if word == -4 else (0, 0)
            if not a or not b:
                raise error(f"contains {word}, which is invalid there")
            if a == b == -1:
                raise error("has a split with two unknown sizes")
            size = take()
            new += [divided(size, [b]) if a == -1 else a, divided(size, [a]) if b == -1 else b]
    if unknown is not None:
        left = math.prod(size for axis, size in enumerate(old) if axis not in taken)
        new[unknown] = divided(left, given)
    if all(isinstance(size, int) for size in (*old, *new)) and math.prod(old) != math.prod(new):
        raise error(f"has {math.prod(new)} elements, the data {math.prod(old)}")
    return new


def _reshape(data: relax.Expr, newshape: list[int] | None, allowzero: bool) -> relax.Expr:
    if newshape is None:
        raise RelayError("reshape needs a shape", where="reshape", fix="give newshape=[...]")
    if all(size > 0 for size in newshape):
        return op.reshape(data, newshape)
    return op.reshape(data, _resolved(need_dims(data.ty, "reshape data"), newshape, allowzero))


def _reshape_known(call: relax.Call) -> Values | None:
    data, shape = call.args
    sizes, old = ints(shape), dims(data.ty)
    if sizes is not None:
        return {"newshape": sizes, "allowzero": 0 in sizes}
    if old is None or not isinstance(shape, relax.ShapeExpr):
        return None
    # Write a symbol as the size that it copies, or as the remaining size if it copies none.
    same = sym.Analyzer().can_prove_equal
    said = []
    for place, size in enumerate(shape.values):
        copied = place < len(old) and same(size, old[place])
        said.append(int(size.value) if isinstance(size, tirx.IntImm) else (0 if copied else -1))
    if said.count(-1) > 1 or any(isinstance(s, tirx.IntImm) and s == 0 for s in shape.values):
        return None
    again = op.reshape(data, _resolved(old, said, False))
    equal = tvm_ffi.structural_equal(again.args[1], shape)
    return {"newshape": said, "allowzero": False} if equal else None


native(
    "reshape",
    "data",
    "newshape:ints allowzero:bool=False",
    to_relax=_reshape,
    known=_reshape_known,
)


def _transpose(data: relax.Expr, axes: list[int] | None) -> relax.Expr:
    if has_type(data):
        need_rank(data.ty, "transpose data")
    return op.permute_dims(data, axes)


native(
    "transpose", "data", "axes:ints", "permute_dims", to_relax=_transpose, defaults={"axes": None}
)


def _expand_dims(data: relax.Expr, axis: int, num_newaxis: int) -> relax.Expr:
    if not 0 <= num_newaxis <= 64:
        what = f"num_newaxis is {num_newaxis}; it must be from 0 to 64"
        raise RelayError(what, where="expand_dims")
    if axis < 0 and num_newaxis != 1:
        # Relay counts from the end of the data, Relax from the end of the result.
        axis += need_rank(data.ty, "expand_dims data") + 1
    return op.expand_dims(data, list(range(axis, axis + num_newaxis)))


def _expand_dims_known(call: relax.Call) -> Values | None:
    given = [int(axis) for axis in call.attrs.axis]
    first = given[0] if given else 0
    in_a_row = given == list(range(first, first + len(given)))
    fits = in_a_row and (first >= 0 or len(given) == 1)
    return {"axis": first, "num_newaxis": len(given)} if fits else None


native(
    "expand_dims",
    "data",
    "axis:int num_newaxis:int=1",
    to_relax=_expand_dims,
    known=_expand_dims_known,
)


def _squeeze(data: relax.Expr, axis: list[int] | None) -> relax.Expr:
    shape = dims(data.ty)
    if axis is not None and shape is not None:
        for place in axes(axis, len(shape), "squeeze data"):
            if isinstance(shape[place], int) and shape[place] != 1:
                what = f"squeeze cannot remove axis {place}, which has size {shape[place]}"
                raise RelayError(what, where="squeeze")
    return op.squeeze(data, axis)


def _has_axis(call: relax.Call) -> Values | None:
    return None if call.attrs.axis is None else {}


native("squeeze", "data", "axis:ints=None", to_relax=_squeeze)
native("concatenate", "data", "axis:int=0", "concat", known=_has_axis)
native("stack", "data", "axis:int=0", known=_has_axis)
native("tile", "data", "reps:ints", reps="repeats")
native("repeat", "data", "repeats:int axis:int=None")


def _split(data: relax.Expr, indices_or_sections: Any, axis: int) -> relax.Expr | None:
    given, shape = indices_or_sections, dims(data.ty)
    parts = given if isinstance(given, int) else len(given) + 1
    if parts > 10_000:
        raise RelayError("split makes at most 10000 parts", where="split")
    if isinstance(given, int) and shape is not None:
        size = shape[axes([axis], len(shape), "split data")[0]]
        if given < 1 or (isinstance(size, int) and size % given):
            raise RelayError(f"split cannot cut {size} into {given} equal parts", where="split")
    # Relax's own split into one part returns no tuple when it is lowered to a function.
    return None if parts == 1 else op.split(data, given, axis)


def _split_known(call: relax.Call) -> Values | None:
    given, axis, shape = call.attrs.indices_or_sections, int(call.attrs.axis), dims(call.args[0].ty)
    if not isinstance(given, tirx.IntImm):
        where = [int(place) for place in given]
        return {"indices_or_sections": where, "axis": axis} if where else None
    even = shape is None or not isinstance(shape[axis], int) or shape[axis] % given.value == 0
    parts = int(given.value)
    return {"indices_or_sections": parts, "axis": axis} if even and parts != 1 else None


native(
    "split",
    "data",
    "indices_or_sections:any axis:int=0",
    to_relax=_split,
    known=_split_known,
    expand=lambda data, **_: relax.Tuple([data]),
)


def _shape_known(call: relax.Call) -> Values | None:
    sizes = ints(call.args[1])
    return None if sizes is None else {"shape": sizes, "dtype": ""}


native("reverse", "data", "axis:int", "flip")
native(
    "broadcast_to",
    "data",
    "shape:ints dtype:str=",
    to_relax=lambda data, shape, **_: op.broadcast_to(data, shape),
    known=_shape_known,
)


@stands_for("layout_transform", "data", "src_layout:str dst_layout:str")
def _layout_transform(data: relax.Expr, src_layout: str, dst_layout: str) -> relax.Expr:
    axes = [src_layout.find(axis) for axis in dst_layout]
    if sorted(axes) != list(range(need_rank(data.ty, "layout_transform data"))):
        what = f"layout_transform cannot convert {data.ty} from {src_layout} to {dst_layout}"
        fix = "use layouts of unsplit axes, such as NCHW; tvm.relax.op.layout_transform splits axes"
        raise RelayError(what, where="layout_transform", fix=fix)
    return op.permute_dims(data, axes)
