"""Rows for elementwise operators, and for the two annotations of a compiler's region.

As in `topi/{broadcast,elemwise}.h` of TVM 0.18, ``divide`` and ``mod`` of integers truncate, and
``round`` takes halves away from zero. Relay's fast operators are the exact ones here.
"""

from __future__ import annotations

import math

from tvm import relax, tirx
from tvm.relax import op

from ..table import native, stands_for
from .common import Written, dtype, need_dtype

BEGIN = "relax.relay.annotation.compiler_begin"
END = "relax.relay.annotation.compiler_end"
_BINARY = (
    "add subtract multiply divide floor_divide mod floor_mod power maximum minimum left_shift "
    "right_shift atan2 bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor "
    "equal not_equal less less_equal greater greater_equal"
)
_UNARY = (
    "exp log sqrt rsqrt sigmoid erf sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh "
    "negative abs sign floor ceil trunc isnan isinf isfinite bitwise_not logical_not"
)
for _name in _BINARY.split():
    native(_name, "lhs rhs")
for _name in _UNARY.split():
    native(_name, "data")
for _name in ("exp", "erf", "tanh"):
    stands_for(f"fast_{_name}", "data")(getattr(op, _name))


@stands_for("copy", "data")
@stands_for("annotation.stop_fusion", "data")  # fusion runs after these operators are expanded
def _copy(data: relax.Expr) -> relax.Expr:
    return data


@stands_for("round", "data")
def _round(data: relax.Expr) -> relax.Expr:
    kind = need_dtype(data.ty, "round data")
    if "float" not in kind:
        return data
    whole = op.trunc(data)
    half = op.greater_equal(op.abs(op.subtract(data, whole)), relax.const(0.5, kind))
    return op.where(half, op.add(whole, op.sign(data)), whole)


def _logarithm(base: int) -> None:
    @stands_for(f"log{base}", "data")
    def _(data: relax.Expr) -> relax.Expr:
        # In float64, so that a power of the base gives an integer in float32.
        wide = op.log(op.astype(data, "float64"))
        scaled = op.divide(wide, relax.const(math.log(base), "float64"))
        return op.astype(scaled, need_dtype(data.ty, f"log{base} data"))


_logarithm(2)
_logarithm(10)


def _clip_back(call: relax.Call) -> Written | None:
    data, *limits = call.args
    for limit in limits:
        # These are the dtypes of Python's numbers; Relay cannot express others.
        whole = isinstance(limit, tirx.IntImm) and str(limit.ty) == "int64"
        if not whole and not (isinstance(limit, tirx.FloatImm) and str(limit.ty) == "float64"):
            return None
    return [data], {"a_min": limits[0].value, "a_max": limits[1].value}


native(
    "clip",
    "a",
    "a_min:number a_max:number",
    to_relax=lambda data, a_min, a_max: op.clip(data, a_min, a_max),
    from_relax=_clip_back,
)
native("cast", "data", "dtype:str", "astype")


@stands_for("cast_like", "data dtype_like")
def _cast_like(data: relax.Expr, other: relax.Expr) -> relax.Expr:
    return op.astype(data, need_dtype(other.ty, "cast_like dtype_like"))


def _where(condition: relax.Expr, x: relax.Expr, y: relax.Expr) -> relax.Expr | None:
    """Use Relax's `where` for a boolean condition; Relay also takes numbers, with 0 as false."""
    return op.where(condition, x, y) if dtype(condition.ty) in ("", "bool") else None


def _where_number(condition: relax.Expr, x: relax.Expr, y: relax.Expr) -> relax.Expr:
    return op.where(op.not_equal(condition, relax.const(0, dtype(condition.ty))), x, y)


native("where", "condition x y", to_relax=_where, expand=_where_number)


@stands_for("annotation.compiler_begin", "data", "compiler:str", infer=lambda types, _: types[0])
@stands_for("annotation.compiler_end", "data", "compiler:str", infer=lambda types, _: types[0])
def _unmarked(data: relax.Expr, compiler: str) -> relax.Expr:
    return data
