"""Attributes that TVM's objects had in Relay's time.

Old names of what is there `tvmlab.relay.aliases` gives; a few more stand here. Others are there and
mean another thing today: the name of an operator, the attributes of a call, the body of a function.
Those say what Relay said to a script, and what they say today to TVM's code and tvmlab's: it
depends on the module that asks.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tvm import ir, relax

from ...errors import RelayError
from ...ir import graph, table
from ...ir.attributes import Attributes
from ...ir.flatten import flat
from ...ir.text import types
from ...ir.text.printer import astext
from .. import module

__all__ = ["install"]

_OURS = {"tvm", "tvm_ffi", "tvmlab"}


def install() -> None:
    """Give TVM's classes the attributes that they had."""
    for kind, name, get in _OLD:
        setattr(kind, name, property(get))
    for kind, name, old in _TWO_SIDED:
        setattr(kind, name, _sided(getattr(kind, name), old))
    for kind in (ir.IRModule, relax.Function, relax.Call, relax.Tuple, relax.TupleGetItem):
        kind.__str__ = _sided_text(kind.__str__)
    for kind in (relax.TensorType, relax.TupleType, relax.FuncType):
        kind.__str__ = _sided_type(kind.__str__)
    ir.IRModule.from_expr = staticmethod(_from_expr(ir.IRModule.from_expr))


def _let(name: str) -> Callable[[Any], Any]:
    def get(body: Any) -> Any:
        return getattr(body.blocks[0].bindings[0], name)

    return get


_OLD: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (ir.Expr, "_checked_type_", lambda expr: expr.ty if graph.known(expr) else None),
    (relax.SeqExpr, "var", _let("var")),
    (relax.SeqExpr, "value", _let("value")),
    (ir.IRModule, "type_definitions", lambda mod: {}),
]


def _asked_by_script() -> bool:
    """Say whether what asks for an attribute is no code of TVM's and none of ours."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    return str(name).partition(".")[0] not in _OURS


def _sided(today: Any, old: Callable[[Any, Any], Any]) -> property:
    """Make a property of two sides: `old` gets the object and what is there today."""

    def get(self: Any) -> Any:
        found = today.__get__(self)
        return old(self, found) if _asked_by_script() else found

    return property(get)


def _sided_text(today: Callable[[Any], str]) -> Callable[[Any], str]:
    def text(self: Any) -> str:
        if not _asked_by_script():
            return today(self)
        try:
            return astext(self, show_meta_data=False).removeprefix('#[version = "0.0.5"]\n')
        except RelayError:  # a module that Relay could not have held
            return today(self)

    return text


def _sided_type(today: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda self: (types.text(self) if _asked_by_script() else None) or today(self)


def _name(op: Any, today: str) -> str:
    row = next((row for row in table.rows() if today in (row.relax, *row.also)), None)
    return row.name if row else today


def _attributes(call: Any, today: Any) -> Any:
    if not isinstance(call.op, ir.Op) or not graph.known(call):
        return today
    found = table.written(call)
    if found is None:
        return today
    row, _, values = found
    return Attributes(row, values, today)


def _arguments(call: Any, today: Any) -> Any:
    if not isinstance(call.op, ir.Op) or not graph.known(call):
        return today
    found = table.written(call)
    return today if found is None else list(found[1])


# The graphs of the functions that were asked last, so that a body asked twice is one object. The
# function is held too: an address that is free may become another's.
_BODIES: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
_MOST = 64


def _body(func: Any, today: Any) -> Any:
    key = graph.key(func)
    if key not in _BODIES:
        _BODIES[key] = (func, flat(today))
        if len(_BODIES) > _MOST:
            _BODIES.popitem(last=False)
    return _BODIES[key][1]


def _branch(_: Any, today: Any) -> Any:
    return flat(today)


def _dtype(_: Any, today: Any) -> Any:
    return today if today is None else str(today)


_TWO_SIDED: list[tuple[Any, str, Callable[[Any, Any], Any]]] = [
    (relax.TensorType, "dtype", _dtype),
    (ir.Op, "name", _name),
    (ir.Call, "attrs", _attributes),
    (ir.Call, "args", _arguments),
    (relax.Function, "body", _body),
    (relax.If, "true_branch", _branch),
    (relax.If, "false_branch", _branch),
]


def _from_expr(today: Callable[..., ir.IRModule]) -> Callable[..., ir.IRModule]:
    def from_expr(expr: Any, functions: Any = None, type_defs: Any = None) -> ir.IRModule:
        if isinstance(expr, ir.BaseFunc) and not isinstance(expr, relax.Function):
            return today(expr, functions)
        return module.from_expr(expr, functions, type_defs)

    return from_expr
