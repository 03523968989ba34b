"""Relay's expressions and types: classes that make Relax objects and recognize them.

An object has a type if its operands have types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx

from ..errors import RelayError
from ..ir import gone, graph
from ..ir.dialect import Attributes
from ..ir.module import infer_type

__path__: list[str] = []  # see gone.ImportFinder
Expr = ir.Expr
GlobalVar = ir.GlobalVar
Op = ir.Op
Type = ir.Type


class _Kind(type):
    """A class whose instances are TVM objects."""

    instances: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]

    def __eq__(cls, other: object) -> bool:  # ``type(expr) == relay.Call``
        return cls is other or cls.instances is other

    def __hash__(cls) -> int:
        return hash(cls.instances)

    def __instancecheck__(cls, value: object) -> bool:
        # In Relax bindings, a function's body means the expression that it computes last.
        if isinstance(value, relax.SeqExpr) and cls.instances is not relax.SeqExpr:
            value = graph.result(value)
        return isinstance(value, cls.instances)


def kind(instances: type) -> Callable[[Callable[..., Any]], Any]:
    """Make a class that calls a function, and whose `isinstance` accepts TVM's `instances`."""

    def decorate(make: Callable[..., Any]) -> Any:
        own = {"instances": instances, "__wrapped__": staticmethod(make), "__doc__": make.__doc__}
        return _Kind(make.__name__, (), {**own, "__module__": make.__module__})

    return decorate


def refuse(function: str, fix: str = "leave it out", **given: Any) -> None:
    """Raise `RelayError` for an argument of Relay that is passed and has no effect here."""
    for name in (name for name, value in given.items() if value):
        raise RelayError(f"{function} does not carry {name}", where=f"relay.{function}", fix=fix)


@kind(relax.TensorType)
def TensorType(shape: Iterable[Any], dtype: str = "float32") -> relax.TensorType:
    """Make a tensor's type; dimensions are integers, TVM expressions or `Any`."""
    return relax.TensorType([_dimension(size) for size in shape], str(dtype))


@kind(ir.TupleType)
def TupleType(fields: Iterable[ir.Type], span: Any = None) -> ir.TupleType:
    """Make a tuple's type."""
    return relax.TupleType(list(fields))


@kind(relax.FuncType)
def FuncType(
    arg_types: Any, ret_type: ir.Type, type_params: Any = None, type_constraints: Any = None
) -> relax.FuncType:
    """Make a function's type; Relax has neither type parameters nor constraints."""
    refuse("FuncType", type_params=type_params, type_constraints=type_constraints)
    return relax.FuncType(list(arg_types), ret_type)


@kind(tirx.Var)
def Any_() -> tirx.Var:
    """Make a dimension of unknown size, Relay's ``?``; each call makes a new one."""
    return tirx.Var("any_dim", "int64")


def scalar_type(dtype: str) -> relax.TensorType:
    """Make the type of a tensor without dimensions."""
    return relax.TensorType((), dtype)


def _dimension(size: Any) -> Any:
    """Return a dimension for Relax, whose sizes are int64; Relay's variables are usually int32."""
    if hasattr(size, "__index__"):
        return int(size)
    if isinstance(size, tirx.Var) and str(size.ty) != "int64":
        # One int64 variable per variable; the old one is kept, so that its address is not reused.
        return _WIDE.setdefault(graph.key(size), (size, tirx.Var(size.name, "int64")))[1]
    if isinstance(size, ir.Expr):
        return size
    fix = "give an integer, a tvm.tirx.Var or relay.Any()"
    raise RelayError(f"a dimension is a {type(size).__name__}", where=repr(size), fix=fix)


_WIDE: dict[int, tuple[Any, Any]] = {}


@kind(relax.Var)
def Var(name_hint: str, type_annotation: ir.Type | None = None) -> relax.Var:
    """Make a variable; without a type, expressions that use it have no type either."""
    return relax.Var(name_hint, type_annotation)


@kind(ir.GenericConst)
def Constant(data: Any) -> ir.GenericConst:
    """Make a constant of a `tvm.runtime.Tensor` or an array, with the dtype of the data."""
    is_tensor = isinstance(data, tvm.runtime.Tensor)
    return relax.const(data if is_tensor else tvm.runtime.tensor(np.asarray(data)))


@kind(relax.Tuple)
def Tuple(fields: Iterable[Any], span: Any = None) -> relax.Tuple:
    """Make a tuple; fields can be Relay or Python tuples."""
    made = relax.Tuple([as_expr(field) for field in fields])
    graph.check_size(made, {})
    return made


@kind(relax.TupleGetItem)
def TupleGetItem(tuple_value: Any, index: int, span: Any = None) -> relax.TupleGetItem:
    """Make the expression that reads a field of a tuple."""
    return relax.TupleGetItem(as_expr(tuple_value), index)


@kind(relax.Call)
def Call(
    op: Any, args: Iterable[Any], attrs: Any = None, type_args: Any = None, span: Any = None
) -> relax.Call:
    """Make a call, with a type if its arguments have types."""
    operands = [infer_type(as_expr(arg)) for arg in args]
    if isinstance(attrs, Attributes) and isinstance(op, ir.Op):
        return infer_type(attrs.row.to_relax(operands, dict(attrs)))
    if attrs is None and isinstance(op, ir.Op) and op.attrs_type_key:
        what = f"the operator {op.name} has attributes, and none are given"
        raise RelayError(what, fix="call its function, such as relay.nn.softmax")
    return infer_type(relax.Call(op, operands, attrs, type_args or []))


@kind(relax.If)
def If(cond: Any, true_branch: Any, false_branch: Any, span: Any = None) -> relax.If:
    """Make an `if` expression."""
    parts = [infer_type(as_expr(part)) for part in (cond, true_branch, false_branch)]
    return infer_type(relax.If(*parts))


@kind(relax.SeqExpr)
def Let(variable: relax.Var, value: Any, body: Any, span: Any = None) -> relax.SeqExpr:
    """Bind a variable in a body; a variable without a type gets the value's type."""
    value, body = infer_type(as_expr(value)), as_expr(body)
    if graph.has_type(value) and not graph.has_type(variable):
        # The script's variable stays as it is, because other expressions can have it too.
        typed = relax.Var(variable.name, value.ty)
        variable, body = typed, graph.substitute(body, {variable: typed})
    return graph.let(variable, value, infer_type(body))


@kind(relax.Function)
def Function(
    params: Iterable[relax.Var],
    body: Any,
    ret_type: ir.Type | None = None,
    type_params: Any = None,
    attrs: Mapping[str, Any] | ir.DictAttrs | None = None,
    virtual_device_: Any = None,
    span: Any = None,
) -> relax.Function:
    """Make a function; its body stays a graph until the function becomes part of a module.

    A parameter without a type becomes a tensor of unknown shape and dtype; without `ret_type` the
    result has the type of the body. Raises `RelayError` if a parameter is not a variable, or if
    there are type parameters.
    """
    refuse("Function", "write it once for each type", type_params=type_params)
    params = list(params)
    for param in params:
        if not isinstance(param, relax.Var):
            what = f"a parameter of a function is a {type(param).__name__}"
            raise RelayError(what, where=str(param), fix="make it with relay.var")
        if param.ty.is_missing():
            relax.expr._update_type(param, graph.UNKNOWN)
    made = infer_type(as_expr(body))
    result = ret_type if ret_type is not None else graph.result_type(made)
    given = attrs if isinstance(attrs, ir.DictAttrs) else ir.DictAttrs(dict(attrs or {}))
    return relax.Function(params, made, result, attrs=given)


class TupleWrapper:
    """A tuple of known length that unpacks, iterates and indexes, as `relay.split` returns it."""

    def __init__(self, tuple_value: relax.Expr, size: int) -> None:
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> relax.Expr:
        """Return the tuple itself."""
        return self.tuple_value

    __tvm_ffi_object__ = astuple  # so that TVM takes the wrapper as an expression

    def __getitem__(self, index: int) -> relax.Expr:
        if not -self.size <= index < self.size:
            raise IndexError("Tuple index out of range")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size


def var(
    name_hint: str,
    type_annotation: ir.Type | str | None = None,
    shape: Sequence[Any] | None = None,
    dtype: str = "float32",
    span: Any = None,
) -> relax.Var:
    """Make a variable of a type, of a scalar's dtype, or of a shape and a dtype.

    In a shape, `relay.Any` is a dimension of unknown size. Raises `RelayError` for both a type and
    a shape.
    """
    if type_annotation is not None and shape is not None:
        what = "a variable has either a type or a shape, not both"
        raise RelayError(what, where=name_hint, fix="leave out type_annotation or shape")
    if shape is not None:
        type_annotation = TensorType(shape, dtype)
    elif isinstance(type_annotation, str):
        type_annotation = scalar_type(type_annotation)
    return relax.Var(name_hint, type_annotation)


def const(value: Any, dtype: str | None = None, span: Any = None) -> ir.GenericConst:
    """Make a constant from a number, a list, or a NumPy or TVM array.

    Without a `dtype`, int64 becomes int32 and float64 becomes float32, also for NumPy arrays; a TVM
    tensor keeps its own dtype. Raises `RelayError` for anything else.
    """
    try:
        return relax.const(value, dtype)
    except (ValueError, TypeError, AttributeError) as error:
        what = f"a {type(value).__name__} cannot become a constant: {error}"
        fix = "give a number, a list of numbers, a NumPy array or a tvm.runtime.Tensor"
        raise RelayError(what, where=repr(value), fix=fix) from error


def as_expr(value: Any) -> relax.Expr:
    """Return an expression; wrappers and Python sequences become tuples."""
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, (list, tuple)):
        return Tuple(value)
    if isinstance(value, ir.Expr):
        return value
    fix = "convert numbers and arrays with relay.const"
    raise RelayError(f"a {type(value).__name__} is not an expression", where=repr(value), fix=fix)


def __getattr__(name: str) -> Any:
    """Raise the error for a missing name of Relay's modules `expr`, `function` and `ty`."""
    for module in ("", "function"):
        gone.raise_gone(module, name)
    raise gone.missing("expr", name, globals())
