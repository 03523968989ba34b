"""Rows for what is computed element by element.

The sources are `src/relay/op/tensor/{binary,unary}.cc` and `topi/{broadcast,elemwise}.h` of TVM
0.18: ``divide`` and ``mod`` of integers truncate, ``round`` takes halves away from zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import ir, relax, tirx
from tvm.relax import op

from ..table import Attribute, Operator, add, add_ours
from .common import (
    Operands,
    Values,
    Written,
    broadcast,
    dims,
    dtype,
    like,
    made,
    same_as_relax,
    two_forms,
)

_BINARY = (
    *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power"),
    *("maximum", "minimum", "left_shift", "right_shift"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
)
_UNARY = (
    *("exp", "log", "sqrt", "rsqrt", "sigmoid", "erf"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
    *("negative", "abs", "sign", "floor", "ceil", "trunc"),
    *("isnan", "isinf", "isfinite", "bitwise_not", "logical_not"),
)
for _name in _BINARY:
    same_as_relax(_name, getattr(op, _name), ("lhs", "rhs"))
for _name in _UNARY:
    same_as_relax(_name, getattr(op, _name), ("data",))


def _like(types: Sequence[ir.Type], _: Values) -> ir.Type:
    return like(types[0])


def _copy(operands: Operands, _: Values) -> relax.Expr:
    return operands[0]


def _round(operands: Operands, _: Values) -> relax.Expr:
    (data,) = operands
    if not _is_float(data):
        return data
    whole = op.trunc(data)
    half = op.greater_equal(op.abs(op.subtract(data, whole)), relax.const(0.5, dtype(data.ty)))
    return op.where(half, op.add(whole, op.sign(data)), whole)


def _is_float(data: relax.Expr) -> bool:
    return "float" in (dtype(data.ty) or "float")


def _logarithm(base: int) -> None:
    """Put a logarithm into the table that Relax lacks.

    It is computed in float64, so that a power of the base gives an integer in float32.
    """

    def expand(operands: Operands, _: Values) -> relax.Expr:
        (data,) = operands
        wide = op.log(op.astype(data, "float64"))
        scaled = op.divide(wide, relax.const(math.log(base), "float64"))
        return op.astype(scaled, dtype(data.ty))

    add_ours(f"log{base}", ("data",), (), _like, expand)


add_ours("copy", ("data",), (), _like, _copy)
add_ours("round", ("data",), (), _like, _round)
_logarithm(2)
_logarithm(10)


def _clip(operands: Operands, a: Values) -> relax.Expr:
    return op.clip(operands[0], a["a_min"], a["a_max"])


def _clip_back(call: relax.Call) -> Written | None:
    data, *limits = call.args
    for limit in limits:
        # What `_clip` makes of Python's numbers; Relay has no way to say other dtypes.
        whole = isinstance(limit, tirx.IntImm) and str(limit.ty) == "int64"
        if not whole and not (isinstance(limit, tirx.FloatImm) and str(limit.ty) == "float64"):
            return None
    return [data], {"a_min": limits[0].value, "a_max": limits[1].value}


add(
    Operator(
        "clip",
        "relax.clip",
        ("a",),
        (Attribute("a_min", "number"), Attribute("a_max", "number")),
        _clip,
        _clip_back,
    )
)


def _cast(operands: Operands, a: Values) -> relax.Expr:
    return op.astype(operands[0], a["dtype"])


def _cast_back(call: relax.Call) -> Written:
    return list(call.args), {"dtype": str(call.attrs.dtype)}


add(Operator("cast", "relax.astype", ("data",), (Attribute("dtype", "str"),), _cast, _cast_back))


def _where_type(types: Sequence[ir.Type], _: Values) -> ir.Type:
    shapes = [dims(given) for given in types]
    known = [shape for shape in shapes if shape is not None]
    kind = dtype(types[1]) or dtype(types[2])
    if len(known) < 3:
        return made(None, kind)
    return made(broadcast(broadcast(known[0], known[1], "where"), known[2], "where"), kind)


def _where_any(operands: Operands, _: Values) -> relax.Expr:
    condition, x, y = operands
    return op.where(op.not_equal(condition, relax.const(0, dtype(condition.ty))), x, y)


def _where(operands: Operands, _: Values) -> relax.Expr | None:
    """Relax asks for a condition of booleans; Relay takes numbers, of which 0 is false."""
    return op.where(*operands) if dtype(operands[0].ty) in (None, "bool") else None


def _where_back(call: relax.Call) -> Written:
    return list(call.args), {}


two_forms(
    "where",
    ("condition", "x", "y"),
    (),
    "relax.where",
    _where,
    _where_back,
    _where_type,
    _where_any,
)
