"""Comparisons that are right for NaN.

TVM simplifies ``x == x`` to true and ``not (a < b)`` to ``b <= a``, and compiles ``a != b`` to a
comparison that is false for NaN. These functions return other expressions of the same meaning.
"""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

__all__ = ["equal", "inverse", "not_equal"]


def equal(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Compare two tensors of one dtype; NaN differs from every number and from itself."""
    same = a.same_as(b) and "float" in str(a.ty.dtype)
    return inverse(op.isnan(a)) if same else op.equal(a, b)


def not_equal(a: relax.Expr, b: relax.Expr) -> relax.Expr:
    """Compare two tensors of one dtype; the inverse of `equal`."""
    return inverse(equal(a, b))


def inverse(x: relax.Expr) -> relax.Expr:
    """Invert a tensor of bools."""
    return op.bitwise_not(x)
