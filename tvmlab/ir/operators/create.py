"""Rows for tensors made of nothing but a value and a shape.

The sources are `InitOpAttrs`, `ArangeAttrs` and `OneHotAttrs` in `relay/attrs/transform.h` and the
relations in `src/relay/op/tensor/transform.cc` of TVM 0.18.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, tirx
from tvm.relax import op

from ...errors import RelayError
from ..table import Attribute, Operator, add, add_ours
from .common import (
    Operands,
    Values,
    Written,
    dims,
    ints,
    made,
    need_dims,
    need_dtype,
    need_rank,
    rank,
)

_SHAPE = Attribute("shape", "ints")
_DTYPE = Attribute("dtype", "str", "")


def _filled_like(name: str, make: Callable[..., relax.Expr], *more: str) -> None:
    """Put an operator into the table that fills a tensor of another's shape and dtype."""

    def read(operands: Operands, _: Values) -> relax.Expr:
        return make(*operands)

    def write(call: relax.Call) -> Written | None:
        return (list(call.args), {}) if call.attrs.dtype is None else None

    add(Operator(name, f"relax.{name}", ("data", *more), (), read, write))


_filled_like("zeros_like", op.zeros_like)
_filled_like("ones_like", op.ones_like)
_filled_like("full_like", op.full_like, "fill_value")


def _filled(name: str, make: Callable[..., relax.Expr]) -> None:
    """Put ``zeros`` or ``ones`` into the table."""

    def read(_: Operands, a: Values) -> relax.Expr:
        if not a["dtype"]:
            raise RelayError(f"{name} needs a dtype", where=name, fix='give dtype="float32", say')
        return make(_shape(a, name), a["dtype"])

    def write(call: relax.Call) -> Written | None:
        shape = _sizes(call.args[0])
        return None if shape is None else ([], {"shape": shape, "dtype": str(call.attrs.dtype)})

    add(Operator(name, f"relax.{name}", (), (_SHAPE, _DTYPE), read, write))


_filled("zeros", op.zeros)
_filled("ones", op.ones)


def _shape(a: Values, name: str) -> list[int]:
    if a["shape"] is None:
        raise RelayError(f"{name} needs a shape", where=name, fix="give shape=[...]")
    return list(a["shape"])


def _sizes(shape: relax.Expr) -> list[int] | None:
    return ints(shape) if isinstance(shape, relax.ShapeExpr) else None


def _full(operands: Operands, a: Values) -> relax.Expr:
    return op.full(_shape(a, "full"), operands[0], a["dtype"] or None)


def _full_back(call: relax.Call) -> Written | None:
    shape = _sizes(call.args[0])
    if shape is None:
        return None
    return [call.args[1]], {"shape": shape, "dtype": str(call.attrs.dtype or "")}


add(
    Operator(
        "full",
        "relax.full",
        ("fill_value",),
        (_SHAPE, _DTYPE),
        _full,
        _full_back,
        defaults={"shape": []},
    )
)


def _arange(operands: Operands, a: Values) -> relax.Expr:
    return op.arange(*(_immediate(bound) for bound in operands), dtype=a["dtype"])


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


add(
    Operator(
        "arange",
        "relax.arange",
        ("start", "stop", "step"),
        (
            # Relay prints the operands a second time, as attributes.
            *(Attribute(name, "any", None) for name in ("start", "stop", "step")),
            Attribute("dtype", "str"),
        ),
        _arange,
        _arange_back,
        signature=("start", "stop", "step", "dtype"),
        defaults={"dtype": "float32"},
    )
)


def _one_hot_axis(a: Values, ndim: int) -> int:
    axis = ndim if a["axis"] == -1 else int(a["axis"])
    if not 0 <= axis <= ndim:
        raise RelayError(
            f"axis {axis} of one_hot is outside its {ndim + 1} dimensions", where="one_hot"
        )
    return axis


def _one_hot_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    if not a["dtype"]:
        raise RelayError("one_hot needs a dtype", where="one_hot", fix='give dtype="float32", say')
    shape, ndim = dims(types[0]), rank(types[0])
    if ndim is None:
        return made(None, a["dtype"])
    axis = _one_hot_axis(a, ndim)
    if shape is None:
        return made(None, a["dtype"], ndim + 1)
    return made([*shape[:axis], a["depth"], *shape[axis:]], a["dtype"])


def _one_hot(operands: Operands, a: Values) -> relax.Expr:
    indices, on_value, off_value = operands
    ndim = need_rank(indices.ty, "one_hot indices")
    axis = _one_hot_axis(a, ndim)
    kind = need_dtype(indices.ty, "one_hot indices")
    grid = np.arange(a["depth"], dtype=kind).reshape([-1] + [1] * (ndim - axis))
    places = relax.const(grid, kind)
    hit = op.equal(op.expand_dims(indices, axis), places)
    return op.where(hit, op.astype(on_value, a["dtype"]), op.astype(off_value, a["dtype"]))


add_ours(
    "one_hot",
    ("indices", "on_value", "off_value"),
    (Attribute("depth", "int", 1), Attribute("axis", "int", -1), _DTYPE),
    _one_hot_type,
    _one_hot,
)


def _shape_of_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    ndim = rank(types[0])
    kind = a["dtype"] or "int32"
    return made(None, kind, 1) if ndim is None else made([ndim], kind)


def _shape_of(operands: Operands, a: Values) -> relax.Expr:
    kind = a["dtype"] or "int32"
    shape = need_dims(operands[0].ty, "shape_of data")
    if all(isinstance(size, int) for size in shape):
        return relax.const(np.array(shape, kind), kind)
    return op.astype(op.shape_to_tensor(op.shape_of(operands[0])), kind)


add_ours("shape_of", ("data",), (_DTYPE,), _shape_of_type, _shape_of, defaults={"dtype": "int32"})
