"""Rounding and saturation in TE, with the bits of `tvmlab.qnn.reference.scaling`."""

from __future__ import annotations

from tvm import te, tirx

from ...ir.checks import limits

__all__ = [
    "fenced",
    "half_away",
    "half_even",
    "offset",
    "saturate_float",
    "saturate_int",
    "wrapped",
]


_BEYOND = 2.0**33


def half_away(x: tirx.PrimExpr) -> tirx.PrimExpr:
    """Round a float to a whole one, half-way cases away from zero.

    The reference's steps. `te.round` is ties-to-even, and C's round is a call of a library, not an
    instruction, on most processors.
    """
    whole = te.trunc(x)
    one, zero = tirx.const(1, str(x.ty)), tirx.const(0, str(x.ty))
    up = tirx.Select(x - whole >= tirx.const(0.5, str(x.ty)), one, zero)
    down = tirx.Select(whole - x >= tirx.const(0.5, str(x.ty)), one, zero)
    return whole + up - down


def fenced(x: tirx.PrimExpr, beyond: float = _BEYOND) -> tirx.PrimExpr:
    """Keep LLVM from contracting a float product and the sum that follows into one FMA.

    The product is clamped to ±`beyond`, which changes no result: a number above 2**33 saturates,
    whatever zero point is added.
    """
    least, most = (tirx.const(end, str(x.ty)) for end in (-beyond, beyond))
    return tirx.Max(tirx.Min(x, most), least)


def half_even(x: tirx.PrimExpr) -> tirx.PrimExpr:
    """Round a float to a whole one, half-way cases to even: one instruction on most processors."""
    return te.nearbyint(x)


def saturate_float(x: tirx.PrimExpr, dtype: str) -> tirx.PrimExpr:
    """Cast a whole float to an integer dtype, cut at its ends; NaN becomes the largest value."""
    low, high = limits(dtype)
    kind = str(x.ty)
    if dtype != "int32":
        # A minimum gives its second operand where the first is NaN.
        cut = tirx.Max(tirx.Min(x, tirx.const(high, kind)), tirx.const(low, kind))
        return cut.astype("int32").astype(dtype)
    # float32 has no 2**31 - 1; 2**31 it has, and whatever is less can be cast.
    inside = tirx.Max(x, tirx.const(low, kind)).astype(dtype)
    return tirx.Select(x < tirx.const(high + 1, kind), inside, tirx.const(high, dtype))


def saturate_int(x: tirx.PrimExpr, dtype: str) -> tirx.PrimExpr:
    """Cast an integer to a dtype, cut at its ends."""
    low, high = limits(dtype)
    return tirx.Max(tirx.Min(x, tirx.const(high, str(x.ty))), tirx.const(low, str(x.ty))).astype(
        dtype
    )


def offset(x: tirx.PrimExpr, zero: int, dtype: str) -> tirx.PrimExpr:
    """Add a zero point to an integer and saturate: first cut, then added, so nothing overflows."""
    low, high = limits(dtype)
    least, most = (tirx.const(end - zero, str(x.ty)) for end in (low, high))
    return (tirx.Max(tirx.Min(x, most), least) + zero).astype(dtype)


def wrapped(x: tirx.PrimExpr) -> tirx.PrimExpr:
    """Keep the lower 32 bits of an int64, as int32.

    A cast does so too, but TVM's simplifier takes it for one that changes no value, and drops
    limits that lie beyond what it then thinks possible.
    """
    lower = x & tirx.const((1 << 32) - 1, "int64")
    return tirx.reinterpret("int32", lower.astype("uint32"))
