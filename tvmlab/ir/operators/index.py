"""Rows for operators that pick elements by their places: slices, indices, sorted places.

The sources are `src/relay/op/tensor/transform.cc`, `relay/attrs/{transform,algorithm}.h` and
`topi/transform.h` of TVM 0.18.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, relax, tirx
from tvm.relax import op

from ...errors import RelayError
from ..table import native, stands_for
from ..types import result
from .common import (
    Dims,
    Values,
    Written,
    axes,
    dims,
    dtype,
    need_dims,
    need_dtype,
    need_rank,
    plain_dim,
    rank,
)

native("collapse_sum_like", "data collapse_type")


def _strided_slice(
    data: relax.Expr,
    begin: list[int] | None,
    end: list[int] | None,
    strides: list[int] | None,
    slice_mode: str,
    axes: list[int] | None,
) -> relax.Expr:
    if begin is None or end is None or len(begin) != len(end):
        raise RelayError(
            f"strided_slice needs a begin and an end of one length, not {begin} and {end}",
            where="strided_slice",
        )
    over = list(range(len(begin))) if axes is None else axes
    if len(over) != len(begin) or (strides is not None and len(strides) > len(begin) > 0):
        raise RelayError(
            f"strided_slice has {len(begin)} places to begin, {len(over)} axes and strides "
            f"{strides}",
            where="strided_slice",
        )
    if slice_mode == "size":
        shape, strides = need_dims(data.ty, "strided_slice data"), None
        whole = [shape[axis] for axis in over]
        if not all(isinstance(size, int) for size in whole):
            raise RelayError(
                f"strided_slice by size needs to know the sizes {whole}", where="strided_slice"
            )
        end = [
            length if size < 0 else (first + length if first < 0 else first) + size
            for length, first, size in zip(whole, begin, end, strict=True)
        ]
    elif slice_mode != "end":
        raise RelayError(
            f"strided_slice knows no mode {slice_mode!r}",
            where="strided_slice",
            fix='give slice_mode="end" or "size"',
        )
    # One stride of 1 is how Relay says that there are none, and Relax by leaving them out.
    if strides is None or (strides == [1] and len(begin) != 1):
        return op.strided_slice(data, over, begin, end)
    return op.strided_slice(data, over, begin, end, strides + [1] * (len(begin) - len(strides)))


def _strided_slice_back(call: relax.Call) -> Written | None:
    data, *lists = call.args
    found = [_numbers(given) for given in lists]
    if call.attrs.assume_inbound or any(numbers is None for numbers in found):
        return None
    over, begin, end = (list(numbers or ()) for numbers in found[:3])
    strides = found[3] if len(found) > 3 else (None if len(begin) == 1 else [1])
    if strides == [1] and len(found) > 3 and len(begin) != 1:
        return None
    values = {"begin": begin, "end": end, "strides": strides, "slice_mode": "end"}
    return [data], {**values, "axes": None if over == list(range(len(over))) else over}


def _numbers(given: relax.Expr) -> list[int] | None:
    """Take a Relax tuple of 64-bit integers apart; None where it is anything else."""
    if not isinstance(given, relax.Tuple):
        return None
    fields = list(given.fields)
    if not all(isinstance(f, tirx.IntImm) and str(f.ty) == "int64" for f in fields):
        return None
    return [int(plain_dim(field)) for field in fields]


native(
    "strided_slice",
    "data",
    "begin:ints end:ints strides:ints slice_mode:str=end axes:ints",
    to_relax=_strided_slice,
    from_relax=_strided_slice_back,
    signature="data begin end strides axes slice_mode",
    defaults={"strides": [1], "axes": None},
)


def _sliced_axes(sizes: Dims, wanted: Dims, over: list[int] | None) -> list[int]:
    if not over and len(sizes) < len(wanted):
        raise RelayError(
            f"data has {len(sizes)} dimensions, what it is to be like {len(wanted)}",
            where="slice_like",
            fix="name the axes",
        )
    over = axes(over or range(len(wanted)), len(sizes), "slice_like data")
    for axis in axes(over, len(wanted), "slice_like shape_like"):
        pair = sizes[axis], wanted[axis]
        if all(isinstance(size, int) for size in pair) and pair[0] < pair[1]:
            raise RelayError(
                f"axis {axis} of data has {pair[0]} elements, fewer than {pair[1]}",
                where="slice_like",
            )
    return over


def _sliced_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    sizes, wanted, kind = dims(types[0]), dims(types[1]), dtype(types[0]) or ""
    if sizes is None or wanted is None:
        ndim = rank(types[0])
        return result(None, kind, -1 if ndim is None else ndim)
    for axis in _sliced_axes(sizes, wanted, a["axes"]):
        sizes[axis] = wanted[axis]
    return result(sizes, kind)


@stands_for("slice_like", "data shape_like", "axes:ints=None", infer=_sliced_type)
def _slice_like(data: relax.Expr, other: relax.Expr, axes: list[int] | None) -> relax.Expr:
    sizes, wanted = (need_dims(x.ty, "slice_like operand") for x in (data, other))
    over = _sliced_axes(sizes, wanted, axes)
    ends = [wanted[axis] for axis in over]
    return op.strided_slice(data, over, [0] * len(over), ends) if over else data


def _take(
    data: relax.Expr, indices: relax.Expr, batch_dims: int, axis: int | None, mode: str
) -> relax.Expr | None:
    if batch_dims != 0:
        raise RelayError("take is carried over with batch_dims=0 only", where="take")
    if mode not in _MODES:
        raise RelayError(
            f"take knows no mode {mode!r}", where="take", fix="give clip, wrap or fast"
        )
    return None if axis is None and rank(data.ty) != 1 else op.take(data, indices, axis, mode)


_MODES = ("clip", "wrap", "fast")
native(
    "take",
    "data indices",
    "batch_dims:int=0 axis:int=None mode:str=clip",
    to_relax=_take,
    fixed={"batch_dims": 0},
    only=lambda call: call.attrs.mode in _MODES,
    expand=lambda data, indices, mode, **_: op.take(op.reshape(data, [-1]), indices, 0, mode),
    signature="data indices axis batch_dims mode",
)
native("gather", "data indices", "axis:int", "gather_elements", signature="data axis indices")


@stands_for("gather_nd", "data indices", "batch_dims:int=0 index_rank:int=None")
def _gather_nd(
    data: relax.Expr, indices: relax.Expr, batch_dims: int, index_rank: int | None
) -> relax.Expr:
    """Relay has the coordinates along the first axis of the indices, Relax along the last."""
    ndim = need_rank(indices.ty, "gather_nd indices")
    turned = op.permute_dims(indices, [*range(1, ndim), 0])
    if need_dtype(indices.ty, "gather_nd indices") != "int64":
        turned = op.astype(turned, "int64")
    return op.gather_nd(data, turned, batch_dims)


native("scatter_elements", "data indices updates", "axis:int=0 reduction:str=update")
native(
    "argsort",
    "data",
    "axis:int=-1 is_ascend:bool=True dtype:str=",
    is_ascend="!descending",
    defaults={"dtype": "int32"},
)
native(
    "topk",
    "data",
    "k:int=1 axis:int=-1 ret_type:str=both is_ascend:bool=False dtype:str=",
    is_ascend="!largest",
    defaults={"dtype": "int32"},
)
native(
    "sort",
    "data",
    "axis:int=-1 is_ascend:bool=True dtype:str=",
    is_ascend="!descending",
    fixed={"dtype": ""},
    signature="data axis is_ascend",
)
