"""Attributes that TVM's objects had in Relay's time.

Importing `tvmlab.relay` adds old names of what is still there, such as ``constant.data``, which
code written for Relay reads all over (`ALIASES`). Nothing that is there changes.

`install`, for scripts that run unchanged, also changes attributes that mean another thing today:
the name of an operator, the attributes of a call, the body of a function. A script gets what Relay
had, and the code of TVM and tvmlab gets what is there today.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import tvm
from tvm import ir, relax

from ...errors import RelayError
from ...ir import graph, table
from ...ir.dialect import Attributes
from ...ir.graph import inline_bindings
from ...ir.text.literals import write_type
from ...ir.text.printer import astext

__all__ = ["ALIASES", "add_aliases", "install"]

Get = Callable[[Any], Any]


def _checked_type(expr: Any) -> ir.Type:
    if not graph.has_type(expr):
        raise ValueError("The type checker has not populated the checked_type for this node")
    return expr.ty


def _of_graph(name: str) -> Get:
    """Read a name of what bindings compute: Relay's ``function.body`` is a graph."""
    return lambda body: getattr(graph.inline_bindings(body), name)


ALIASES: list[tuple[Any, str, Get]] = [
    (ir.Expr, "checked_type", _checked_type),
    (ir.Var, "name_hint", lambda var: var.name),
    (ir.Var, "type_annotation", lambda var: var.ty if graph.has_type(var) else None),
    (ir.GenericConst, "data", lambda const: const.value),
    (ir.Call, "type_args", lambda call: call.ty_args),
    (relax.Function, "ret_type", lambda func: func.ret_ty),
    (relax.Function, "type_params", lambda func: []),
    (relax.TensorType, "concrete_shape", lambda type_: tuple(int(size) for size in type_.shape)),
    (relax.FuncType, "arg_types", lambda type_: type_.params),
    (relax.FuncType, "ret_type", lambda type_: type_.ret),
    (relax.FuncType, "type_params", lambda type_: []),
    *(
        (relax.SeqExpr, name, _of_graph(name))
        for name in ("op", "args", "attrs", "type_args", "fields", "tuple_value", "index", "data",
                     "cond", "true_branch", "false_branch", "name_hint")
    ),
]  # fmt: skip
"""The class, the old name, and how to get what it names."""


def add_aliases() -> None:
    """Add the old names, except where TVM has them."""
    for kind, name, get in ALIASES:
        if not hasattr(kind, name):
            setattr(kind, name, property(get))
    for kind in (ir.IRModule, ir.Expr):
        if not hasattr(kind, "astext"):
            kind.astext = _astext
    if not hasattr(tvm.runtime.Tensor, "asnumpy"):
        tvm.runtime.Tensor.asnumpy = tvm.runtime.Tensor.numpy


def _astext(
    self: Any, show_meta_data: bool = True, annotate: Any = None, show_info: bool = True
) -> str:
    """Print as Relay text; what Relay could not have held, as TVMScript."""
    try:
        return astext(self, show_meta_data)
    except RelayError:
        if isinstance(self, ir.IRModule) and not all(
            isinstance(func, relax.Function) for func in self.functions.values()
        ):
            return str(self.script())
        raise


def install() -> None:
    """Give TVM's classes the attributes that they had."""
    from .. import module

    def from_expr(expr: Any, functions: Any = None, type_defs: Any = None) -> ir.IRModule:
        if isinstance(expr, ir.BaseFunc) and not isinstance(expr, relax.Function):
            return today(expr, functions)
        return module.from_expr(expr, functions, type_defs)

    for kind, name, get in _OLD:
        setattr(kind, name, property(get))
    for kind, name, old in _TWO_SIDED:
        setattr(kind, name, _sided(getattr(kind, name), old))
    for kind in (ir.IRModule, relax.Function, relax.Call, relax.Tuple, relax.TupleGetItem):
        kind.__str__ = _sided_text(kind.__str__, _text)
    for kind in (relax.TensorType, relax.TupleType, relax.FuncType):
        kind.__str__ = _sided_text(kind.__str__, write_type)
    today = ir.IRModule.from_expr
    ir.IRModule.from_expr = staticmethod(from_expr)


_OLD: list[tuple[Any, str, Get]] = [
    (ir.Expr, "_checked_type_", lambda expr: expr.ty if graph.has_type(expr) else None),
    (relax.SeqExpr, "var", lambda body: body.blocks[0].bindings[0].var),
    (relax.SeqExpr, "value", lambda body: body.blocks[0].bindings[0].value),
    (ir.IRModule, "type_definitions", lambda mod: {}),
]


def _asked_by_script() -> bool:
    """Return whether what asks for an attribute is neither TVM's code nor tvmlab's.

    Both sides read the same attribute of the same object, so only the caller's module tells them
    apart.
    """
    name = str(sys._getframe(2).f_globals.get("__name__", ""))
    return name.partition(".")[0] not in ("tvm", "tvm_ffi", "tvmlab")


def _sided(today: Any, old: Callable[[Any, Any], Any]) -> property:
    """Make a property of two sides: `old` gets the object and what is there today."""

    def get(self: Any) -> Any:
        found = today.__get__(self)
        return old(self, found) if _asked_by_script() else found

    return property(get)


def _sided_text(
    today: Callable[[Any], str], old: Callable[[Any], str | None]
) -> Callable[[Any], str]:
    return lambda self: (old(self) if _asked_by_script() else None) or today(self)


def _text(value: Any) -> str | None:
    try:
        return astext(value, show_meta_data=False).removeprefix('#[version = "0.0.5"]\n')
    except RelayError:  # a module that Relay could not have held
        return None


def _name(_: Any, today: str) -> str:
    row = next((row for row in table.rows() if today in (row.relax, *row.also)), None)
    return row.name if row else today


def _attributes(call: Any, today: Any) -> Any:
    found = _written(call)
    return Attributes(found[0], found[2], today) if found else today


def _arguments(call: Any, today: Any) -> Any:
    found = _written(call)
    return list(found[1]) if found else today


def _written(call: Any) -> Any:
    """Return how Relay writes a call of an operator; None where it has no way."""
    return table.written(call) if isinstance(call.op, ir.Op) and graph.has_type(call) else None


# The graphs of the functions that were asked last, so that a body asked twice is one object. The
# function is held too, because a freed address can become another's.
_BODIES: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
_MOST = 64


def _body(func: Any, today: Any) -> Any:
    key = graph.key(func)
    if key not in _BODIES:
        _BODIES[key] = (func, inline_bindings(today))
        if len(_BODIES) > _MOST:
            _BODIES.popitem(last=False)
    return _BODIES[key][1]


_TWO_SIDED: list[tuple[Any, str, Callable[[Any, Any], Any]]] = [
    (relax.TensorType, "dtype", lambda _, today: today if today is None else str(today)),
    (ir.Op, "name", _name),
    (ir.Call, "attrs", _attributes),
    (ir.Call, "args", _arguments),
    (relax.Function, "body", _body),
    (relax.If, "true_branch", lambda _, today: inline_bindings(today)),
    (relax.If, "false_branch", lambda _, today: inline_bindings(today)),
]
