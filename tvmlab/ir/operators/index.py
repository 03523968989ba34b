"""Rows for operators that select elements by index, or make tensors from values and shapes.

The sources are `src/relay/op/tensor/transform.cc` and `topi/transform.h` of TVM 0.18.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, relax, tirx
from tvm.relax import op

from ...errors import RelayError
from ..table import native, stands_for
from .common import Values, Written, ints, need_dims, need_dtype, need_rank, rank
from .common import axes as counted


def _strided_slice(
    data: relax.Expr,
    begin: list[int] | None,
    end: list[int] | None,
    strides: list[int] | None,
    slice_mode: str,
    axes: list[int] | None,
) -> relax.Expr:
    over = list(range(len(begin or ()))) if axes is None else axes
    if begin is None or end is None or not len(begin) == len(end) == len(over):
        what = f"begin, end and axes of one length, not {begin}, {end}, {over}"
        raise RelayError(f"strided_slice needs {what}", where="strided_slice")
    if strides is not None and len(strides) > len(begin) > 0:
        what = f"strided_slice has {len(begin)} begins and the strides {strides}"
        raise RelayError(what, where="strided_slice")
    if slice_mode == "size":
        shape, strides = need_dims(data.ty, "strided_slice data"), None
        whole = [shape[axis] for axis in over]
        if not all(isinstance(size, int) for size in whole):
            what = f"strided_slice by size needs to know the sizes {whole}"
            raise RelayError(what, where="strided_slice")
        end = [
            length if size < 0 else (first + length if first < 0 else first) + size
            for length, first, size in zip(whole, begin, end, strict=True)
        ]
    elif slice_mode != "end":
        what, fix = f"strided_slice has no mode {slice_mode!r}", 'give slice_mode="end" or "size"'
        raise RelayError(what, where="strided_slice", fix=fix)
    # In Relay a single stride of 1 means no strides, which Relax omits.
    if strides is None or (strides == [1] and len(begin) != 1):
        return op.strided_slice(data, over, begin, end)
    return op.strided_slice(data, over, begin, end, strides + [1] * (len(begin) - len(strides)))


def _slice_known(call: relax.Call) -> Values | None:
    found = [_numbers(given) for given in call.args[1:]]
    if call.attrs.assume_inbound or any(numbers is None for numbers in found):
        return None
    over, begin, end = (list(numbers or ()) for numbers in found[:3])
    strides = found[3] if len(found) > 3 else (None if len(begin) == 1 else [1])
    if strides == [1] and len(found) > 3 and len(begin) != 1:
        return None
    values: Values = {"begin": begin, "end": end, "strides": strides, "slice_mode": "end"}
    return {**values, "axes": None if over == list(range(len(over))) else over}


def _numbers(given: relax.Expr) -> list[int] | None:
    """Return the integers of a Relax tuple of 64-bit integers; None for anything else."""
    fields: list[Any] = list(given.fields) if isinstance(given, relax.Tuple) else [None]
    if not all(isinstance(f, tirx.IntImm) and str(f.ty) == "int64" for f in fields):
        return None
    return [int(field.value) for field in fields]


native(
    "strided_slice",
    "data",
    "begin:ints end:ints strides:ints slice_mode:str=end axes:ints",
    to_relax=_strided_slice,
    known=_slice_known,
    signature="data begin end strides axes slice_mode",
    defaults={"strides": [1], "axes": None},
)


_MODES = ("clip", "wrap", "fast")


def _take(
    data: relax.Expr, indices: relax.Expr, batch_dims: int, axis: int | None, mode: str
) -> relax.Expr | None:
    if batch_dims != 0:
        raise RelayError("take supports batch_dims=0 only", where="take")
    if mode not in _MODES:
        what = f"take has no mode {mode!r}"
        raise RelayError(what, where="take", fix="give clip, wrap or fast")
    return None if axis is None and rank(data.ty) != 1 else op.take(data, indices, axis, mode)


native(
    "take",
    "data indices",
    "batch_dims:int=0 axis:int=None mode:str=clip",
    to_relax=_take,
    known=lambda call: {"batch_dims": 0} if call.attrs.mode in _MODES else None,
    expand=lambda data, indices, mode, **_: op.take(op.reshape(data, [-1]), indices, 0, mode),
    signature="data indices axis batch_dims mode",
)
native("gather", "data indices", "axis:int", "gather_elements", signature="data axis indices")


@stands_for("gather_nd", "data indices", "batch_dims:int=0 index_rank:int=None")
def _gather_nd(
    data: relax.Expr, indices: relax.Expr, batch_dims: int, index_rank: int | None
) -> relax.Expr:
    """Move the coordinates from the first axis of the indices, as in Relay, to the last."""
    ndim = need_rank(indices.ty, "gather_nd indices")
    turned = op.permute_dims(indices, [*range(1, ndim), 0])
    if need_dtype(indices.ty, "gather_nd indices") != "int64":
        turned = op.astype(turned, "int64")
    return op.gather_nd(data, turned, batch_dims)


native("scatter_elements", "data indices updates", "axis:int=0 reduction:str=update")
_INT32: Values = {"dtype": "int32"}
_SORTED = "axis:int=-1 is_ascend:bool=True dtype:str="
native("argsort", "data", _SORTED, is_ascend="!descending", defaults=_INT32)
native(
    "sort",
    "data",
    _SORTED,
    is_ascend="!descending",
    known={"dtype": ""},
    signature="data axis is_ascend",
)
native(
    "topk",
    "data",
    "k:int=1 axis:int=-1 ret_type:str=both is_ascend:bool=False dtype:str=",
    is_ascend="!largest",
    defaults=_INT32,
)

# Tensors made from a value and a shape, and the shapes and sizes of tensors

for _name, _operands in (
    ("zeros_like", "data"), ("ones_like", "data"), ("full_like", "data fill_value")
):  # fmt: skip
    native(_name, _operands, known=lambda call: None if call.attrs.dtype is not None else {})


def _filled(name: str, operands: str = "", defaults: Values | None = None) -> None:
    def to_relax(*given: relax.Expr, shape: list[int] | None, dtype: str) -> relax.Expr:
        if shape is None or not (dtype or given):
            missing = "shape" if shape is None else "dtype"
            fix = f"give {missing}={'[...]' if shape is None else repr('float32')}"
            raise RelayError(f"{name} needs a {missing}", where=name, fix=fix)
        return getattr(op, name)(shape, *given, dtype or None)

    def from_relax(call: relax.Call) -> Written | None:
        shape, *given = call.args
        found = ints(shape)
        values = {"shape": found, "dtype": str(call.attrs.dtype or "")}
        return None if found is None else (given, values)

    spec = "shape:ints dtype:str="
    native(name, operands, spec, to_relax=to_relax, from_relax=from_relax, defaults=defaults)


_filled("zeros")
_filled("ones")
_filled("full", "fill_value", {"shape": []})


def _immediate(bound: relax.Expr) -> Any:
    if not isinstance(bound, ir.GenericConst) or rank(bound.ty) != 0:
        what = "start, stop and step of arange must be constants of one number each"
        fix = "give them with relay.const, or bind the parameters first"
        raise RelayError(what, where="arange", fix=fix)
    kind, value = need_dtype(bound.ty, "arange's bound"), bound.value.numpy()[()]
    if "float" in kind:
        return tirx.FloatImm(kind, float(value))
    return tirx.IntImm(kind, int(value))


def _arange_back(call: relax.Call) -> Written | None:
    kind = str(call.attrs.dtype)
    # Relay's type relation requires bounds with the dtype of the result.
    if not all(isinstance(b, tirx.IntImm | tirx.FloatImm) and str(b.ty) == kind for b in call.args):
        return None
    bounds = [relax.const(bound.value, kind) for bound in call.args]
    return bounds, {"start": None, "stop": None, "step": None, "dtype": kind}


native(
    "arange",
    "start stop step",
    # Relay prints the operands again, as attributes.
    "start:any=None stop:any=None step:any=None dtype:str",
    to_relax=lambda *bounds, dtype, **_: op.arange(*map(_immediate, bounds), dtype=dtype),
    from_relax=_arange_back,
    signature="start stop step dtype",
    defaults={"dtype": "float32"},
)


@stands_for("one_hot", "indices on_value off_value", "depth:int=1 axis:int=-1 dtype:str=")
def _one_hot(
    indices: relax.Expr, on_value: relax.Expr, off_value: relax.Expr, **a: Any
) -> relax.Expr:
    if not a["dtype"]:
        raise RelayError("one_hot needs a dtype", where="one_hot", fix='give dtype="float32", say')
    ndim = need_rank(indices.ty, "one_hot indices")
    (axis,) = counted([a["axis"]], ndim + 1, "one_hot result")
    kind = need_dtype(indices.ty, "one_hot indices")
    depths = np.arange(a["depth"], dtype=kind).reshape([-1] + [1] * (ndim - axis))
    hit = op.equal(op.expand_dims(indices, axis), relax.const(depths, kind))
    return op.where(hit, op.astype(on_value, a["dtype"]), op.astype(off_value, a["dtype"]))


@stands_for("shape_of", "data", "dtype:str=", defaults=_INT32)
def _shape_of(data: relax.Expr, dtype: str) -> relax.Expr:
    shape, kind = need_dims(data.ty, "shape_of data"), dtype or "int32"
    if all(isinstance(size, int) for size in shape):
        return relax.const(np.array(shape, kind), kind)
    return op.astype(op.shape_to_tensor(op.shape_of(data)), kind)
