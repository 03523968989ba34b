"""Rows for what picks elements by their places: slices, indices, sorted places.

The sources are `src/relay/op/tensor/transform.cc`, `relay/attrs/{transform,algorithm}.h` and
`topi/transform.h` of TVM 0.18.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax, tirx
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, Operator, add, add_ours
from .common import (
    Operands,
    Values,
    Written,
    dims,
    dtype,
    made,
    need_dims,
    need_dtype,
    need_rank,
    plain_dim,
    rank,
    same_as_relax,
    two_forms,
)

same_as_relax("collapse_sum_like", op.collapse_sum_like, ("data", "collapse_type"))


def _strided_slice(operands: Operands, a: Values) -> relax.Expr:
    (data,) = operands
    begin, end, strides, over = a["begin"], a["end"], a["strides"], a["axes"]
    if begin is None or end is None or len(begin) != len(end):
        raise RelayError(
            f"strided_slice needs a begin and an end of one length, not {begin} and {end}",
            where="strided_slice",
        )
    if over is None:
        over = list(range(len(begin)))
    if len(over) != len(begin) or (strides is not None and len(strides) > len(begin) > 0):
        raise RelayError(
            f"strided_slice has {len(begin)} places to begin, {len(over)} axes and strides "
            f"{strides}",
            where="strided_slice",
        )
    if a["slice_mode"] == "size":
        end = _ends(need_dims(data.ty, "strided_slice data"), over, begin, end)
        strides = None
    elif a["slice_mode"] != "end":
        raise RelayError(
            f"strided_slice knows no mode {a['slice_mode']!r}",
            where="strided_slice",
            fix='give slice_mode="end" or "size"',
        )
    # One stride of 1 is how Relay says that there are none, and Relax by leaving them out.
    if strides is None or (strides == [1] and len(begin) != 1):
        return op.strided_slice(data, over, begin, end)
    return op.strided_slice(data, over, begin, end, strides + [1] * (len(begin) - len(strides)))


def _ends(shape: Any, over: Sequence[int], begin: Sequence[int], sizes: Sequence[int]) -> list[Any]:
    ends = []
    for axis, first, size in zip(over, begin, sizes, strict=True):
        whole = shape[axis]
        if not isinstance(whole, int):
            raise RelayError(
                f"strided_slice by size needs to know the size of axis {axis}",
                where="strided_slice",
            )
        ends.append(whole if size < 0 else (first + whole if first < 0 else first) + size)
    return ends


def _strided_slice_back(call: relax.Call) -> Written | None:
    data, *lists = call.args
    found = [_numbers(given) for given in lists]
    if call.attrs.assume_inbound or any(numbers is None for numbers in found):
        return None
    over, begin, end = (list(numbers or ()) for numbers in found[:3])
    strides = found[3] if len(found) > 3 else (None if len(begin) == 1 else [1])
    if strides == [1] and len(found) > 3 and len(begin) != 1:
        return None
    return [data], {
        "begin": begin,
        "end": end,
        "strides": strides,
        "slice_mode": "end",
        "axes": None if over == list(range(len(over))) else over,
    }


def _numbers(given: relax.Expr) -> list[int] | None:
    """Take a Relax tuple of 64-bit integers apart; None where it is anything else."""
    if not isinstance(given, relax.Tuple):
        return None
    fields = list(given.fields)
    if not all(isinstance(f, tirx.IntImm) and str(f.ty) == "int64" for f in fields):
        return None
    return [int(plain_dim(field)) for field in fields]


add(
    Operator(
        "strided_slice",
        "relax.strided_slice",
        ("data",),
        (
            Attribute("begin", "ints"),
            Attribute("end", "ints"),
            Attribute("strides", "ints"),
            Attribute("slice_mode", "str", "end"),
            Attribute("axes", "ints"),
        ),
        _strided_slice,
        _strided_slice_back,
        signature=("data", "begin", "end", "strides", "axes", "slice_mode"),
        defaults={"strides": [1], "axes": None},
    )
)


def _take(operands: Operands, a: Values) -> relax.Expr | None:
    if a["batch_dims"] != 0:
        raise RelayError("take is carried over with batch_dims=0 only", where="take")
    if a["mode"] not in ("clip", "wrap", "fast"):
        raise RelayError(
            f"take knows no mode {a['mode']!r}", where="take", fix="give clip, wrap or fast"
        )
    if a["axis"] is None and rank(operands[0].ty) != 1:
        return None
    return op.take(*operands, a["axis"], a["mode"])


def _take_back(call: relax.Call) -> Written | None:
    axis, mode = call.attrs.axis, str(call.attrs.mode)
    if mode not in ("clip", "wrap", "fast"):
        return None
    return list(call.args), {
        "batch_dims": 0,
        "axis": None if axis is None else int(axis),
        "mode": mode,
    }


def _take_flat_type(types: Sequence[ir.Type], _: Values) -> ir.Type:
    ndim = rank(types[1])
    return made(dims(types[1]), dtype(types[0]), -1 if ndim is None else ndim)


def _take_flat(operands: Operands, a: Values) -> relax.Expr:
    data, indices = operands
    return op.take(op.reshape(data, [-1]), indices, 0, a["mode"])


two_forms(
    "take",
    ("data", "indices"),
    (
        Attribute("batch_dims", "int", 0),
        Attribute("axis", "int", None),
        Attribute("mode", "str", "clip"),
    ),
    "relax.take",
    _take,
    _take_back,
    _take_flat_type,
    _take_flat,
    signature=("data", "indices", "axis", "batch_dims", "mode"),
)


def _gather(operands: Operands, a: Values) -> relax.Expr:
    return op.gather_elements(*operands, a["axis"])


def _gather_back(call: relax.Call) -> Written:
    return list(call.args), {"axis": int(call.attrs.axis)}


add(
    Operator(
        "gather",
        "relax.gather_elements",
        ("data", "indices"),
        (Attribute("axis", "int"),),
        _gather,
        _gather_back,
        signature=("data", "axis", "indices"),
    )
)


def _gather_nd_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    shape, where, kind = dims(types[0]), dims(types[1]), dtype(types[0])
    if shape is None or where is None:
        return made(None, kind)
    if not where or not isinstance(where[0], int):
        raise RelayError(
            "gather_nd indices must have a first axis of known size", where="gather_nd"
        )
    picked = where[0] + a["batch_dims"]
    if picked > len(shape):
        raise RelayError(
            f"gather_nd picks by {picked} axes of data that has {len(shape)}", where="gather_nd"
        )
    return made([*where[1:], *shape[picked:]], kind)


def _gather_nd(operands: Operands, a: Values) -> relax.Expr:
    """Relay has the coordinates along the first axis of the indices, Relax along the last."""
    data, indices = operands
    ndim = need_rank(indices.ty, "gather_nd indices")
    turned = op.permute_dims(indices, [*range(1, ndim), 0])
    if need_dtype(indices.ty, "gather_nd indices") != "int64":
        turned = op.astype(turned, "int64")
    return op.gather_nd(data, turned, a["batch_dims"])


add_ours(
    "gather_nd",
    ("data", "indices"),
    (Attribute("batch_dims", "int", 0), Attribute("index_rank", "int", None)),
    _gather_nd_type,
    _gather_nd,
)


def _scatter_elements(operands: Operands, a: Values) -> relax.Expr:
    return op.scatter_elements(*operands, a["axis"], a["reduction"])


def _scatter_elements_back(call: relax.Call) -> Written:
    return list(call.args), {
        "axis": int(call.attrs.axis),
        "reduction": str(call.attrs.reduction),
    }


add(
    Operator(
        "scatter_elements",
        "relax.scatter_elements",
        ("data", "indices", "updates"),
        (Attribute("axis", "int", 0), Attribute("reduction", "str", "update")),
        _scatter_elements,
        _scatter_elements_back,
    )
)


def _argsort(operands: Operands, a: Values) -> relax.Expr:
    return op.argsort(operands[0], a["axis"], not a["is_ascend"], a["dtype"] or "int32")


def _argsort_back(call: relax.Call) -> Written:
    a = call.attrs
    return list(call.args), {
        "axis": int(a.axis),
        "is_ascend": not a.descending,
        "dtype": str(a.dtype),
    }


add(
    Operator(
        "argsort",
        "relax.argsort",
        ("data",),
        (
            Attribute("axis", "int", -1),
            Attribute("is_ascend", "bool", True),
            Attribute("dtype", "str", ""),
        ),
        _argsort,
        _argsort_back,
        defaults={"dtype": "int32"},
    )
)


def _topk(operands: Operands, a: Values) -> relax.Expr:
    largest, kind = not a["is_ascend"], a["dtype"] or "int32"
    return op.topk(operands[0], a["k"], a["axis"], a["ret_type"], largest, kind)


def _topk_back(call: relax.Call) -> Written:
    a = call.attrs
    return list(call.args), {
        "k": int(a.k),
        "axis": int(a.axis),
        "ret_type": str(a.ret_type),
        "is_ascend": not a.largest,
        "dtype": str(a.dtype),
    }


add(
    Operator(
        "topk",
        "relax.topk",
        ("data",),
        (
            Attribute("k", "int", 1),
            Attribute("axis", "int", -1),
            Attribute("ret_type", "str", "both"),
            Attribute("is_ascend", "bool", False),
            Attribute("dtype", "str", ""),
        ),
        _topk,
        _topk_back,
        defaults={"dtype": "int32"},
    )
)
