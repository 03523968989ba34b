"""Readers of Relax types and expressions: sizes, dtypes, constants, calls and bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

import tvm
import tvm_ffi
from tvm import relax

from ...ir.types import plain
from ..checks import Array

QUANTIZES = ("relax.quantize", "relax.qnn.quantize")
DEQUANTIZES = ("relax.dequantize", "relax.qnn.dequantize")


def spread(values: Array, axis: int, ndim: int) -> Array:
    """Reshape one value per channel so that it broadcasts along an axis."""
    if values.ndim == 0:
        return values
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


def array_of(expr: Any) -> Array | None:
    """Return a constant's value, or None for anything else."""
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def sizes(ty: Any) -> list[Any] | None:
    """Return a tensor's sizes, with constants as int; None for an unknown shape."""
    shape = getattr(ty, "shape", None)
    return [*map(plain, shape.values)] if isinstance(shape, relax.ShapeExpr) else None


def fixed_sizes(ty: Any) -> list[int] | None:
    """Return a tensor's sizes if all of them are constant."""
    found = sizes(ty)
    return found if found is not None and all(isinstance(n, int) for n in found) else None


def channel_count(ty: Any, axis: int) -> int | None:
    """Return a tensor's size along an axis if it is constant."""
    found = sizes(ty)
    return found[axis] if found and isinstance(found[axis], int) else None


def with_dtype(ty: Any, dtype: str) -> Any:
    """Return the type of a tensor, or of a tuple of tensors, with another dtype."""
    if isinstance(ty, relax.TensorType):
        if ty.shape is None:
            return relax.TensorType(dtype=dtype, ndim=ty.ndim, vdevice=ty.vdevice)
        return relax.TensorType(ty.shape, dtype, ty.vdevice)
    return relax.TupleType([with_dtype(field, dtype) for field in ty.fields])


def same_shape(a: Any, b: Any) -> bool:
    """Return whether two tensors have the same sizes, constant or symbolic."""
    return bool(tvm_ffi.structural_equal(a, with_dtype(b, str(a.dtype))))


def operator(value: relax.Expr | None) -> str:
    """Return the name of the operator that an expression calls, or an empty string."""
    if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
        return str(value.op.name)
    return ""


def calls(value: relax.Expr | None, name: str) -> TypeGuard[relax.Call]:
    """Return whether an expression calls an operator."""
    return operator(value) == f"relax.{name}"


def leaves(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Yield the nested fields of a tuple, or the expression itself."""
    for item in expr.fields if isinstance(expr, relax.Tuple) else ():
        yield from leaves(item)
    if not isinstance(expr, relax.Tuple):
        yield expr


def bindings(body: relax.SeqExpr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Yield the bindings of a body, in order."""
    for block in body.blocks:
        for binding in block.bindings:
            yield binding.var, binding.value


def typed(value: relax.Expr, ty: Any) -> relax.Expr:
    """Set the type of an expression that has none yet, and return it."""
    if type(value.ty) is tvm.ir.Type:
        relax.expr._update_type(value, ty)
    return value
