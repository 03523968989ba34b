"""Relay's types, which make Relax's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import ir, relax, tirx

from ..errors import RelayError
from .kinds import kind, refuse

Type = ir.Type


@kind(relax.TensorType)
def TensorType(shape: Iterable[Any], dtype: str = "float32") -> relax.TensorType:
    """Make a tensor's type; dimensions are integers, expressions of TVM's or `Any`."""
    return relax.TensorType([_dimension(size) for size in shape], str(dtype))


@kind(ir.TupleType)
def TupleType(fields: Iterable[ir.Type], span: Any = None) -> ir.TupleType:
    """Make a tuple's type."""
    return relax.TupleType(list(fields))


@kind(relax.FuncType)
def FuncType(
    arg_types: Iterable[ir.Type],
    ret_type: ir.Type,
    type_params: Any = None,
    type_constraints: Any = None,
) -> relax.FuncType:
    """Make a function's type; Relax has neither type parameters nor constraints."""
    refuse(
        "FuncType",
        "write the type once for each case",
        type_params=type_params,
        type_constraints=type_constraints,
    )
    return relax.FuncType(list(arg_types), ret_type)


@kind(tirx.Var)
def Any_() -> tirx.Var:
    """Make a dimension that is not known, Relay's ``?``: a new one each time."""
    return tirx.Var("any_dim", "int64")


def scalar_type(dtype: str) -> relax.TensorType:
    """Make the type of a tensor without dimensions."""
    return relax.TensorType((), dtype)


def is_dynamic(tensor_type: ir.Type) -> bool:
    """Return whether a type has a dimension that is not a number."""
    if isinstance(tensor_type, ir.TupleType):
        return any(is_dynamic(field) for field in tensor_type.fields)
    shape = getattr(tensor_type, "shape", None)
    return shape is None or not all(isinstance(size, tirx.IntImm) for size in shape)


def _dimension(size: Any) -> Any:
    """Return a dimension for Relax, whose sizes are int64; Relay's variables are usually int32."""
    if hasattr(size, "__index__"):
        return int(size)
    if isinstance(size, tirx.Var) and str(size.ty) != "int64":
        # One name for one variable: the old one is kept, so that its address is not used again.
        old, new = _WIDE.setdefault(int(size.__chandle__()), (size, tirx.Var(size.name, "int64")))
        del old
        return new
    if isinstance(size, tvm.ir.Expr):
        return size
    raise RelayError(
        f"a dimension is a {type(size).__name__}",
        where=repr(size),
        fix="give an integer, a tvm.tirx.Var or relay.Any()",
    )


_WIDE: dict[int, tuple[Any, Any]] = {}
