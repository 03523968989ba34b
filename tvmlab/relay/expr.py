"""Relay's expressions: names of Relay's that make Relax objects, and know them.

`Var`, `Call` and the others are classes to call and to give to `isinstance`, as in Relay; what
they make are Relax's own objects, typed where their operands are. Nothing here is a wrapper that
would have to be unwrapped, but for `TupleWrapper`, which Relay has too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ..errors import RelayError
from ..ir import dialect, graph, table
from ..ir.dialect import Attributes
from ..ir.graph import result_type
from ..ir.module import infer_type
from .kinds import kind, refuse
from .ty import TensorType

Expr = ir.Expr
GlobalVar = ir.GlobalVar
Op = ir.Op


@kind(relax.Var)
def Var(name_hint: str, type_annotation: ir.Type | None = None) -> relax.Var:
    """Make a variable; without a type, what is computed from it has none either."""
    return relax.Var(name_hint, type_annotation)


@kind(ir.GenericConst)
def Constant(data: Any) -> ir.GenericConst:
    """Make a constant of a `tvm.runtime.Tensor` or an array, of the data's own dtype."""
    return relax.const(
        data if isinstance(data, tvm.runtime.Tensor) else tvm.runtime.tensor(np.asarray(data))
    )


@kind(relax.Tuple)
def Tuple(fields: Iterable[Any], span: Any = None) -> relax.Tuple:
    """Make a tuple; fields may be tuples of Relay's or of Python's."""
    made = relax.Tuple([as_expr(field) for field in fields])
    graph.check_size(made, {})
    return made


@kind(relax.TupleGetItem)
def TupleGetItem(tuple_value: Any, index: int, span: Any = None) -> relax.TupleGetItem:
    """Make the expression of a tuple's field."""
    return relax.TupleGetItem(as_expr(tuple_value), index)


@kind(relax.Call)
def Call(
    op: Any,
    args: Iterable[Any],
    attrs: Any = None,
    type_args: Any = None,
    span: Any = None,
) -> relax.Call:
    """Make a call, typed where its arguments are.

    Parameters
    ----------
    op : tvm.ir.Op, tvm.relax.Function, tvm.ir.GlobalVar or expression
        What to call.
    args : iterable of expression
        The arguments.
    attrs : tvm.ir.Attrs, optional
        Relax's attributes. Left out, an operator of ours gets the table's defaults.
    type_args : list, optional
        Types that the call is given besides.
    """
    operands = [infer_type(as_expr(arg)) for arg in args]
    if isinstance(attrs, Attributes) and isinstance(op, ir.Op):
        return infer_type(attrs.row.to_relax(operands, attrs.values))
    if attrs is None and isinstance(op, ir.Op) and op.attrs_type_key == "ir.DictAttrs":
        # An operator of ours keeps all attributes in a dictionary, the defaults too.
        row = next((row for row in table.rows() if row.relax == op.name), None)
        values = {item.name: item.default for item in row.attributes} if row else {}
        if not any(value is table.REQUIRED for value in values.values()):
            return infer_type(dialect.call(op.name, operands, values))
    return infer_type(relax.Call(op, operands, attrs, type_args or []))


@kind(relax.If)
def If(cond: Any, true_branch: Any, false_branch: Any, span: Any = None) -> relax.If:
    """Make a branch."""
    return infer_type(
        relax.If(*(infer_type(as_expr(part)) for part in (cond, true_branch, false_branch)))
    )


@kind(relax.SeqExpr)
def Let(variable: relax.Var, value: Any, body: Any, span: Any = None) -> relax.SeqExpr:
    """Bind a variable in a body; a variable without a type takes the value's."""
    value = infer_type(as_expr(value))
    if graph.has_type(value) and not graph.has_type(variable):
        relax.expr._update_type(variable, value.ty)
    block = relax.BindingBlock([relax.VarBinding(variable, value)])
    return relax.SeqExpr([block], infer_type(as_expr(body)))


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
    """Make a function; its body stays a graph until it becomes part of a module.

    Parameters
    ----------
    params : iterable of tvm.relax.Var
        Its parameters. Relax has no parameter without a type: one without becomes a tensor of
        unknown shape and dtype.
    body : expression
        The result.
    ret_type : tvm.ir.Type, optional
        Its type; found from the body where it is left out.
    type_params : sequence, optional
        Relay's type parameters, which Relax has not: none, or empty.
    attrs : mapping, optional
        The function's attributes.

    Raises
    ------
    RelayError
        A parameter is no variable, or there are type parameters.
    """
    refuse("Function", "write it once for each type", type_params=type_params)
    params = list(params)
    for param in params:
        if not isinstance(param, relax.Var):
            raise RelayError(
                f"a parameter of a function is a {type(param).__name__}",
                where=f"relay.Function({', '.join(map(str, params))})",
                fix="make it with relay.var",
            )
        if param.ty.is_missing():
            relax.expr._update_type(param, graph.UNKNOWN)
    made = infer_type(as_expr(body))
    result = ret_type if ret_type is not None else result_type(made)
    given = attrs if isinstance(attrs, ir.DictAttrs) else tvm.ir.DictAttrs(dict(attrs or {}))
    return relax.Function(params, made, result, attrs=given)


class TupleWrapper:
    """A tuple of known length that unpacks, iterates and indexes, as `relay.split` gives it.

    Parameters
    ----------
    tuple_value : tvm.relax.Expr
        The tuple.
    size : int
        Its length.
    """

    def __init__(self, tuple_value: relax.Expr, size: int) -> None:
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> relax.Expr:
        """Return the tuple itself."""
        return self.tuple_value

    def __tvm_ffi_object__(self) -> relax.Expr:
        """Stand for the tuple wherever TVM takes an expression."""
        return self.tuple_value

    def __getitem__(self, index: int) -> relax.Expr:
        """Return a field."""
        if not -self.size <= index < self.size:
            raise IndexError("Tuple index out of range")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"TupleWrapper({self.tuple_value!r}, {self.size})"

    def astype(self, _: str) -> relax.Expr:
        """Refuse, as Relay does."""
        raise TypeError("astype cannot be used on tuple")


def var(
    name_hint: str,
    type_annotation: ir.Type | str | None = None,
    shape: Sequence[Any] | None = None,
    dtype: str = "float32",
    span: Any = None,
) -> relax.Var:
    """Make a variable.

    Parameters
    ----------
    name_hint : str
        Its name.
    type_annotation : tvm.ir.Type or str, optional
        Its type; a dtype for a scalar.
    shape : sequence, optional
        Its shape, in place of a type; `relay.Any` is a dimension that is not known.
    dtype : str
        Its dtype, with `shape`.

    Returns
    -------
    tvm.relax.Var

    Raises
    ------
    RelayError
        Both a type and a shape are given.

    Notes
    -----
    The source is Relay's ``python/tvm/relay/expr.py``.
    """
    if type_annotation is not None and shape is not None:
        raise RelayError(
            "a variable is given by its type or by its shape",
            where=f"relay.var({name_hint!r}, ...)",
            fix="leave type_annotation or shape out",
        )
    if shape is not None:
        return relax.Var(name_hint, TensorType(shape, dtype))
    if isinstance(type_annotation, str):
        return relax.Var(name_hint, TensorType((), type_annotation))
    return relax.Var(name_hint, type_annotation)


def const(value: Any, dtype: str | None = None, span: Any = None) -> ir.GenericConst:
    """Make a constant.

    Parameters
    ----------
    value : bool, int, float, list, numpy.ndarray or tvm.runtime.Tensor
        Its value.
    dtype : str, optional
        Its dtype. Left out, int64 becomes int32 and float64 becomes float32, arrays of NumPy's
        included; a tensor of TVM's keeps its own.

    Returns
    -------
    tvm.ir.GenericConst

    Raises
    ------
    RelayError
        The value is no number and no array.
    """
    try:
        return relax.const(value, dtype)
    except (ValueError, TypeError, AttributeError) as error:
        raise RelayError(
            f"a {type(value).__name__} makes no constant: {error}",
            where=f"relay.const({value!r}, {dtype!r})",
            fix="give a number, a list of numbers, a NumPy array or a tvm.runtime.Tensor",
        ) from error


def as_expr(value: Any) -> relax.Expr:
    """Return an expression; wrappers and Python's sequences become tuples."""
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, (list, tuple)):
        return Tuple(value)
    if isinstance(value, ir.Expr):
        return value
    raise RelayError(
        f"a {type(value).__name__} is no expression",
        where=repr(value),
        fix="convert numbers and arrays with relay.const",
    )


def __getattr__(name: str) -> Any:
    if name == "bind":  # `module` is made of what is here
        return importlib.import_module(".module", __package__).bind
    raise AttributeError(f"tvmlab.relay.expr has no {name}")
