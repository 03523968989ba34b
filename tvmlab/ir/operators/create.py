"""Rows for tensors made of nothing but a value and a shape, and for shapes and sizes.

The sources are `InitOpAttrs`, `ArangeAttrs` and `OneHotAttrs` in `relay/attrs/transform.h` and the
relations in `src/relay/op/tensor/transform.cc` of TVM 0.18.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir, relax, tirx
from tvm.relax import op

from ...errors import RelayError
from ..table import native, stands_for
from ..types import result
from .common import Written, ints, need_dims, need_dtype, need_rank, rank

for _name, _operands in (
    ("zeros_like", "data"), ("ones_like", "data"), ("full_like", "data fill_value")
):  # fmt: skip
    native(_name, _operands, only=lambda call: call.attrs.dtype is None)


def _filled(name: str, *operands: relax.Expr, shape: list[int] | None, dtype: str) -> relax.Expr:
    if shape is None:
        raise RelayError(f"{name} needs a shape", where=name, fix="give shape=[...]")
    if not dtype and not operands:
        raise RelayError(f"{name} needs a dtype", where=name, fix='give dtype="float32", say')
    return getattr(op, name)(list(shape), *operands, dtype or None)


def _filled_row(name: str, operands: str = "", defaults: dict[str, Any] | None = None) -> None:
    native(
        name,
        operands,
        "shape:ints dtype:str=",
        to_relax=lambda *given, **a: _filled(name, *given, **a),
        from_relax=lambda call: (
            list(call.args[1:]),
            {"shape": ints(call.args[0]), "dtype": str(call.attrs.dtype or "")},
        ),
        only=lambda call: ints(call.args[0]) is not None,
        defaults=defaults,
    )


_filled_row("zeros")
_filled_row("ones")
_filled_row("full", "fill_value", {"shape": []})


def _immediate(bound: relax.Expr) -> Any:
    if not isinstance(bound, ir.GenericConst) or rank(bound.ty) != 0:
        raise RelayError(
            "start, stop and step of arange must be constants of one number each",
            where="arange",
            fix="give them with relay.const, or bind the parameters first",
        )
    kind, value = need_dtype(bound.ty, "arange's bound"), bound.value.numpy()[()]
    if "float" in kind:
        return tirx.FloatImm(kind, float(value))
    return tirx.IntImm(kind, int(value))


def _arange_back(call: relax.Call) -> Written | None:
    kind = str(call.attrs.dtype)
    # Relay's type relation asks for bounds of the dtype of the result.
    if not all(isinstance(b, tirx.IntImm | tirx.FloatImm) and str(b.ty) == kind for b in call.args):
        return None
    bounds = [relax.const(bound.value, kind) for bound in call.args]
    return bounds, {"start": None, "stop": None, "step": None, "dtype": kind}


native(
    "arange",
    "start stop step",
    # Relay prints the operands a second time, as attributes.
    "start:any=None stop:any=None step:any=None dtype:str",
    to_relax=lambda *bounds, dtype, **_: op.arange(*map(_immediate, bounds), dtype=dtype),
    from_relax=_arange_back,
    signature="start stop step dtype",
    defaults={"dtype": "float32"},
)


@stands_for("one_hot", "indices on_value off_value", "depth:int=1 axis:int=-1 dtype:str=")
def _one_hot(
    indices: relax.Expr, on_value: relax.Expr, off_value: relax.Expr,
    depth: int, axis: int, dtype: str,
) -> relax.Expr:  # fmt: skip
    if not dtype:
        raise RelayError("one_hot needs a dtype", where="one_hot", fix='give dtype="float32", say')
    ndim = need_rank(indices.ty, "one_hot indices")
    axis = ndim if axis == -1 else axis
    if not 0 <= axis <= ndim:
        raise RelayError(
            f"axis {axis} of one_hot is outside its {ndim + 1} dimensions", where="one_hot"
        )
    kind = need_dtype(indices.ty, "one_hot indices")
    places = relax.const(np.arange(depth, dtype=kind).reshape([-1] + [1] * (ndim - axis)), kind)
    hit = op.equal(op.expand_dims(indices, axis), places)
    return op.where(hit, op.astype(on_value, dtype), op.astype(off_value, dtype))


@stands_for("shape_of", "data", "dtype:str=", defaults={"dtype": "int32"})
def _shape_of(data: relax.Expr, dtype: str) -> relax.Expr:
    shape, kind = need_dims(data.ty, "shape_of data"), dtype or "int32"
    if all(isinstance(size, int) for size in shape):
        return relax.const(np.array(shape, kind), kind)
    return op.astype(op.shape_to_tensor(op.shape_of(data)), kind)


@stands_for(
    "ndarray_size",
    "data",
    "dtype:str=",
    infer=lambda _, a: result([], a["dtype"] or "int32"),
    defaults={"dtype": "int32"},
)
def _size(data: relax.Expr, dtype: str) -> relax.Expr:
    shape = need_dims(data.ty, "ndarray_size data")
    if not all(isinstance(size, int) for size in shape):
        raise RelayError(
            "the size is known at run time only", where="ndarray_size", fix="bind the shape"
        )
    return relax.const(math.prod(shape), dtype or "int32")
