"""Operators that TVM computes wrongly for some numbers, as other expressions of the same meaning.

TVM simplifies ``x == x`` to true and ``not (a < b)`` to ``b <= a``, and compiles ``a != b`` to a
comparison that is false for NaN. It takes the remainder of floats from a rounded quotient, and
starts maxima and minima from the largest finite numbers. Inside a loop nest it computes bfloat16 in
float32 and does not round. It computes ``log1p`` as the logarithm of the rounded sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

__all__ = [
    "by_libm",
    "converted",
    "equal",
    "extreme",
    "inverse",
    "not_equal",
    "place_of_extreme",
    "remainder",
]


def equal(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Compare two tensors of one dtype; NaN differs from every number and from itself."""
    if str(getattr(a.ty, "dtype", "")) == "bool":  # LLVM refuses TVM's comparison of bools
        return inverse(op.bitwise_xor(a, b))
    same = a.same_as(b) and "float" in str(a.ty.dtype)
    return inverse(op.isnan(a)) if same else op.equal(a, b)


def not_equal(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Compare two tensors of one dtype; the inverse of `equal`."""
    return inverse(equal(a, b))


def inverse(x: relax.Expr) -> relax.Expr:
    """Invert a tensor of bools."""
    return op.bitwise_not(x)


def by_libm(bb: relax.BlockBuilder, name: str, x: relax.Expr) -> relax.Expr:
    """Apply a function of C's math library to the elements of a float32 or float64 tensor."""
    function = name if str(x.ty.dtype) == "float64" else f"{name}f"

    def body(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: tirx.call_pure_extern(x.dtype, function, x(*at)))

    return bb.emit_te(body, x, primfunc_name_hint=name)


def converted(bb: relax.BlockBuilder, x: relax.Expr, dtype: str) -> relax.Expr:
    """Convert a tensor to a dtype; a float is rounded to bfloat16 before it becomes one."""
    given = str(x.ty.dtype)
    if dtype != "bfloat16" or given == dtype:
        return x if given == dtype else op.astype(x, dtype)

    def body(x: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            bits = tirx.reinterpret("uint32", x(*at))
            half, one, high = (tirx.const(n, "uint32") for n in (0x7FFF, 1, 0xFFFF0000))
            even = (bits + half + ((bits >> tirx.const(16, "uint32")) & one)) & high
            number = tirx.reinterpret("float32", even)
            return tirx.Select(tirx.isnan(x(*at)), x(*at), number)

        return te.compute(x.shape, element)

    wide = x if given == "float32" else bb.emit(op.astype(x, "float32"))
    return op.astype(bb.emit_te(body, wide, primfunc_name_hint="round_to_bfloat16"), dtype)


def remainder(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Return the remainder of two tensors of one dtype, with the divisor's sign."""
    if "float" not in str(a.ty.dtype):
        return op.floor_mod(a, b)
    rest, zero = op.mod(a, b), relax.const(0, str(a.ty.dtype))
    other = op.bitwise_xor(op.less(b, zero), op.less(rest, zero))
    wrong = op.logical_and(op.not_equal(rest, zero), other)
    return op.where(wrong, op.add(rest, b), rest)


def extreme(
    bb: relax.BlockBuilder,
    reduce: Callable[..., relax.Expr],
    x: relax.Expr,
    axes: Sequence[int] | None,
    keepdims: bool,
) -> relax.Expr:
    """Reduce by `relax.op.max` or `relax.op.min`; the result can be infinite or NaN."""
    dtype = str(x.ty.dtype)
    bound = bb.lookup_binding(x) if isinstance(x, relax.Var) else None
    # A dequantized tensor is finite, and its operator has an integer form.
    finite = getattr(getattr(bound, "op", None), "name", "") == "relax.dequantize"
    if finite or "float" not in dtype:
        return reduce(x, axes, keepdims)
    sign, rank = (1 if reduce is op.max else -1), x.ty.ndim
    reduced = {axis % rank for axis in (range(rank) if axes is None else axes)}

    def combine(a: Any, b: Any) -> Any:
        # A comparison with NaN is false, so `b` is taken if it is NaN.
        missing = tirx.isnan(a.astype("float32") if dtype == "bfloat16" else a)
        return tirx.Select(tirx.any(a > b if sign > 0 else a < b, missing), a, b)

    def body(x: te.Tensor) -> te.Tensor:
        steps = {axis: te.reduce_axis((0, x.shape[axis])) for axis in sorted(reduced)}
        reducer = te.comm_reducer(combine, lambda kind: tirx.const(-sign * np.inf, kind))
        kept = [axis for axis in range(rank) if keepdims or axis not in reduced]

        def element(*at: Any) -> Any:
            index = {**dict(zip(kept, at, strict=True)), **steps}
            return reducer(x(*(index[axis] for axis in range(rank))), list(steps.values()))

        return te.compute([1 if axis in reduced else x.shape[axis] for axis in kept], element)

    return bb.emit_te(body, x, primfunc_name_hint="max" if reduce is op.max else "min")


def place_of_extreme(
    reduce: Callable[..., relax.Expr], x: relax.Expr, axis: int | None, keepdims: bool
) -> relax.Expr:
    """Return `argmax` or `argmin`; 0, not -1, if every element is the end of the dtype's range."""
    return op.maximum(reduce(x, axis, keepdims), relax.const(0, "int64"))
