"""Relay's types, which make Relax's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import tvm
from tvm import ir, relax, tirx

from ..errors import RelayError

Type = ir.Type


class TypeKind(type):
    """A class whose instances are Relax's types."""

    instances: ClassVar[Any]

    def __instancecheck__(cls, value: object) -> bool:
        """Say whether a Relax type is what Relay calls by this name."""
        return isinstance(value, cls.instances)


class TensorType(metaclass=TypeKind):
    """A tensor's type: ``TensorType(shape, dtype="float32")``."""

    instances = relax.TensorType

    def __new__(cls, shape: Iterable[Any], dtype: str = "float32") -> relax.TensorType:
        """Make the type; dimensions are integers, expressions of TVM's or `Any`."""
        return relax.TensorType([_dimension(size) for size in shape], str(dtype))


class TupleType(metaclass=TypeKind):
    """A tuple's type: ``TupleType(fields)``."""

    instances = ir.TupleType

    def __new__(cls, fields: Iterable[ir.Type], span: Any = None) -> ir.TupleType:
        """Make the type."""
        return relax.TupleType(list(fields))


class FuncType(metaclass=TypeKind):
    """A function's type: ``FuncType(arg_types, ret_type, type_params=None, ...)``."""

    instances = relax.FuncType

    def __new__(
        cls,
        arg_types: Iterable[ir.Type],
        ret_type: ir.Type,
        type_params: Any = None,
        type_constraints: Any = None,
    ) -> relax.FuncType:
        """Make the type; Relax has neither type parameters nor constraints."""
        if type_params or type_constraints:
            raise RelayError(
                "a Relax function has no type parameters and no constraints",
                where="relay.FuncType",
                fix="write the type once for each case",
            )
        return relax.FuncType(list(arg_types), ret_type)


class Any_(metaclass=TypeKind):
    """A dimension that is not known, Relay's ``?``: ``Any_()`` makes a new one each time."""

    instances = tirx.Var

    def __new__(cls) -> tirx.Var:
        """Make the dimension."""
        return tirx.Var("any_dim", "int64")


def scalar_type(dtype: str) -> relax.TensorType:
    """Make the type of a tensor without dimensions."""
    return relax.TensorType((), dtype)


def is_dynamic(tensor_type: ir.Type) -> bool:
    """Say whether a type has a dimension that is not a number."""
    if isinstance(tensor_type, ir.TupleType):
        return any(is_dynamic(field) for field in tensor_type.fields)
    shape = getattr(tensor_type, "shape", None)
    return shape is None or not all(isinstance(size, tirx.IntImm) for size in shape)


def _dimension(size: Any) -> Any:
    """Take a dimension: Relax's are of int64, Relay's variables usually of int32."""
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
