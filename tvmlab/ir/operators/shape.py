"""Rows for what moves elements and computes none.

The sources are `src/relay/op/tensor/transform.cc` and `relay/attrs/transform.h` of TVM 0.18.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import ir, relax, tirx
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, Operator, add, add_ours
from .common import (
    Dims,
    Operands,
    Values,
    Written,
    axes,
    dims,
    dtype,
    ints,
    like,
    made,
    need_dims,
    need_rank,
    plain_dim,
    same,
    tensor,
    two_forms,
)
from .reshape import resolved

DATA = ("data",)


def _reshape(operands: Operands, a: Values) -> relax.Expr:
    (data,) = operands
    if a["newshape"] is None:
        raise RelayError("reshape needs a shape", where="reshape", fix="give newshape=[...]")
    if all(size > 0 for size in a["newshape"]):
        return op.reshape(data, a["newshape"])
    shape = need_dims(data.ty, "reshape data")
    return op.reshape(data, resolved(shape, a["newshape"], a["allowzero"]))


def _reshape_back(call: relax.Call) -> Written | None:
    data, shape = call.args
    if not isinstance(shape, relax.ShapeExpr):
        return None
    sizes = ints(shape)
    if sizes is not None:
        return [data], {"newshape": sizes, "allowzero": 0 in sizes}
    # A symbol is said as the size it copies, and one that copies none as what is left over.
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
    return ([data], {"newshape": said, "allowzero": False}) if _equal(again, call) else None


def _equal(a: relax.Call, b: relax.Call) -> bool:
    return bool(tvm_ffi.structural_equal(a.args[1], b.args[1]))


add(
    Operator(
        "reshape",
        "relax.reshape",
        DATA,
        (Attribute("newshape", "ints"), Attribute("allowzero", "bool", False)),
        _reshape,
        _reshape_back,
    )
)


def _reshape_like_shape(types: Sequence[ir.Type], a: Values) -> Dims | None:
    data, other = dims(types[0]), dims(types[1])
    if data is None or other is None:
        return None

    def place(name: str, otherwise: int, ndim: int) -> int:
        given = otherwise if a[name] is None else int(a[name])
        return given + ndim if given < 0 else given

    left, right = len(data), len(other)
    middle = other[place("rhs_begin", 0, right) : place("rhs_end", right, right)]
    return [*data[: place("lhs_begin", 0, left)], *middle, *data[place("lhs_end", left, left) :]]


def _reshape_like_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    return made(_reshape_like_shape(types, a), dtype(types[0]))


def _reshape_like(operands: Operands, a: Values) -> relax.Expr:
    for operand in operands:
        need_dims(operand.ty, "reshape_like operand")
    shape = _reshape_like_shape([operand.ty for operand in operands], a)
    return op.reshape(operands[0], shape)


add_ours(
    "reshape_like",
    ("data", "shape_like"),
    (
        Attribute("lhs_begin", "int", 0),
        Attribute("lhs_end", "int", None),
        Attribute("rhs_begin", "int", 0),
        Attribute("rhs_end", "int", None),
    ),
    _reshape_like_type,
    _reshape_like,
)


def _transpose(operands: Operands, a: Values) -> relax.Expr:
    if tensor(operands[0].ty, "transpose data") is not None:
        need_rank(operands[0].ty, "transpose data")
    return op.permute_dims(operands[0], a["axes"])


def _transpose_back(call: relax.Call) -> Written:
    given = call.attrs.axes
    return list(call.args), {"axes": None if given is None else [int(axis) for axis in given]}


add(
    Operator(
        "transpose",
        "relax.permute_dims",
        DATA,
        (Attribute("axes", "ints"),),
        _transpose,
        _transpose_back,
        defaults={"axes": None},
    )
)


_MOST_AXES, _MOST_PARTS = 64, 10_000


def _expand_dims(operands: Operands, a: Values) -> relax.Expr:
    first, more = a["axis"], a["num_newaxis"]
    if not 0 <= more <= _MOST_AXES:
        raise RelayError(
            f"num_newaxis is {more}; it is between 0 and {_MOST_AXES}", where="expand_dims"
        )
    if first < 0 and more != 1:
        # Relay counts from the end of the data, Relax from that of the result.
        first += need_rank(operands[0].ty, "expand_dims data") + 1
    return op.expand_dims(operands[0], list(range(first, first + more)))


def _expand_dims_back(call: relax.Call) -> Written | None:
    given = [int(axis) for axis in call.attrs.axis]
    first = given[0] if given else 0
    in_a_row = given == list(range(first, first + len(given)))
    if not in_a_row or (first < 0 and len(given) != 1):
        return None
    return list(call.args), {"axis": first, "num_newaxis": len(given)}


add(
    Operator(
        "expand_dims",
        "relax.expand_dims",
        DATA,
        (Attribute("axis", "int"), Attribute("num_newaxis", "int", 1)),
        _expand_dims,
        _expand_dims_back,
    )
)


def _squeeze(operands: Operands, a: Values) -> relax.Expr:
    (data,) = operands
    shape = dims(data.ty)
    if a["axis"] is not None and shape is not None:
        for axis in axes(a["axis"], len(shape), "squeeze data"):
            if isinstance(shape[axis], int) and shape[axis] != 1:
                raise RelayError(
                    f"squeeze cannot take axis {axis} away, which has size {shape[axis]}",
                    where="squeeze",
                )
    return op.squeeze(data, a["axis"])


def _squeeze_back(call: relax.Call) -> Written:
    given = call.attrs.axis
    return list(call.args), {"axis": None if given is None else [int(axis) for axis in given]}


add(
    Operator(
        "squeeze",
        "relax.squeeze",
        DATA,
        (Attribute("axis", "ints", None),),
        _squeeze,
        _squeeze_back,
    )
)


def _concatenate(operands: Operands, a: Values) -> relax.Expr:
    return op.concat(operands[0], a["axis"])


def _stack(operands: Operands, a: Values) -> relax.Expr:
    return op.stack(operands[0], a["axis"])


def _joined_back(call: relax.Call) -> Written | None:
    axis = call.attrs.axis
    return None if axis is None else (list(call.args), {"axis": int(axis)})


_JOIN = (Attribute("axis", "int", 0),)
add(Operator("concatenate", "relax.concat", DATA, _JOIN, _concatenate, _joined_back))
add(Operator("stack", "relax.stack", DATA, _JOIN, _stack, _joined_back))


def _parts(a: Values) -> int:
    given = a["indices_or_sections"]
    return given if isinstance(given, int) else len(given) + 1


def _split(operands: Operands, a: Values) -> relax.Expr | None:
    (data,) = operands
    given, shape = a["indices_or_sections"], dims(data.ty)
    if _parts(a) > _MOST_PARTS:
        raise RelayError(f"split makes {_MOST_PARTS} parts at most", where="split")
    if isinstance(given, int) and shape is not None:
        (axis,) = axes([a["axis"]], len(shape), "split data")
        if given < 1 or (isinstance(shape[axis], int) and shape[axis] % given):
            raise RelayError(
                f"split cannot cut {shape[axis]} into {given} equal parts", where="split"
            )
    return None if _parts(a) == 1 else op.split(data, given, a["axis"])


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


def _whole_type(types: Sequence[ir.Type], _: Values) -> ir.Type:
    return relax.TupleType([like(types[0])])


def _whole(operands: Operands, _: Values) -> relax.Expr:
    """One part is the whole: Relax's own makes a function of it that gives no tuple."""
    return relax.Tuple([operands[0]])


two_forms(
    "split",
    DATA,
    (Attribute("indices_or_sections", "any"), Attribute("axis", "int", 0)),
    "relax.split",
    _split,
    _split_back,
    _whole_type,
    _whole,
)


def _tile(operands: Operands, a: Values) -> relax.Expr:
    return op.tile(operands[0], a["reps"])


def _tile_back(call: relax.Call) -> Written:
    return list(call.args), {"reps": [int(times) for times in call.attrs.repeats]}


add(Operator("tile", "relax.tile", DATA, (Attribute("reps", "ints"),), _tile, _tile_back))


def _repeat(operands: Operands, a: Values) -> relax.Expr:
    return op.repeat(operands[0], a["repeats"], a["axis"])


def _repeat_back(call: relax.Call) -> Written:
    axis = call.attrs.axis
    return list(call.args), {
        "repeats": int(call.attrs.repeats),
        "axis": None if axis is None else int(axis),
    }


add(
    Operator(
        "repeat",
        "relax.repeat",
        DATA,
        (Attribute("repeats", "int"), Attribute("axis", "int", None)),
        _repeat,
        _repeat_back,
    )
)


def _reverse(operands: Operands, a: Values) -> relax.Expr:
    if a["axis"] is None:
        raise RelayError("reverse needs an axis", where="reverse", fix="give axis=...")
    return op.flip(operands[0], a["axis"])


def _reverse_back(call: relax.Call) -> Written:
    return list(call.args), {"axis": int(call.attrs.axis)}


add(
    Operator(
        "reverse", "relax.flip", DATA, (Attribute("axis", "int", None),), _reverse, _reverse_back
    )
)


def _broadcast_to(operands: Operands, a: Values) -> relax.Expr:
    if a["shape"] is None:
        raise RelayError("broadcast_to needs a shape", where="broadcast_to")
    return op.broadcast_to(operands[0], a["shape"])


def _broadcast_to_back(call: relax.Call) -> Written | None:
    data, shape = call.args
    sizes = ints(shape) if isinstance(shape, relax.ShapeExpr) else None
    return None if sizes is None else ([data], {"shape": sizes, "dtype": ""})


add(
    Operator(
        "broadcast_to",
        "relax.broadcast_to",
        DATA,
        (Attribute("shape", "ints"), Attribute("dtype", "str", "")),
        _broadcast_to,
        _broadcast_to_back,
    )
)


def _broadcast_to_like_type(types: Sequence[ir.Type], _: Values) -> ir.Type:
    return like(types[1], dtype(types[0]))


def _broadcast_to_like(operands: Operands, _: Values) -> relax.Expr:
    data, other = operands
    return op.broadcast_to(data, need_dims(other.ty, "broadcast_to_like broadcast_type"))


add_ours(
    "broadcast_to_like",
    ("data", "broadcast_type"),
    (),
    _broadcast_to_like_type,
    _broadcast_to_like,
)
