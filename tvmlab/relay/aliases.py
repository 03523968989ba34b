"""Attributes that TVM's objects had in the Relay era.

Importing `tvmlab.relay` adds removed attributes such as ``constant.data`` (`ALIASES`), and changes
no others. `install`, for scripts that run unchanged, also changes attributes whose meaning is
different today, such as a function's body: a script gets Relay's value, while the code of TVM and
tvmlab gets today's value.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import tvm
from tvm import ir, relax

from ..errors import RelayError
from ..ir import gone, graph, table
from ..ir.dialect import Attributes
from ..ir.graph import inline_bindings
from ..ir.text.literals import write_type
from ..ir.text.printer import astext

Get = Callable[[Any], Any]


def _checked_type(expr: Any) -> ir.Type:
    if not graph.has_type(expr):
        raise ValueError("The type checker has not populated the checked_type for this node")
    return expr.ty


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
    # Relay's ``function.body`` is the graph that the bindings compute.
    *(
        (relax.SeqExpr, name, lambda body, name=name: getattr(inline_bindings(body), name))
        for name in ("op", "args", "attrs", "type_args", "fields", "tuple_value", "index", "data",
                     "cond", "true_branch", "false_branch", "name_hint")
    ),
]  # fmt: skip
"""The class, the old name, and a function that computes the value."""


def add_aliases() -> None:
    """Add the old names, except names that TVM's classes have."""
    for kind, name, get in ALIASES:
        if not hasattr(kind, name):
            setattr(kind, name, property(get))
    for kind in (ir.IRModule, ir.Expr):
        if not hasattr(kind, "astext"):
            kind.astext = lambda self, show_meta_data=True, *_, **__: astext(self, show_meta_data)
    ir.Op.astext = lambda self, *_, **__: f'#[version = "0.0.5"]\n{_name(self, self.name)}'
    if not hasattr(tvm.runtime.Tensor, "asnumpy"):
        tvm.runtime.Tensor.asnumpy = tvm.runtime.Tensor.numpy


def install() -> None:
    """Restore the attributes that TVM's classes had."""
    from .module import from_expr as of_graph

    def from_expr(expr: Any, *more: Any) -> ir.IRModule:
        is_tir = isinstance(expr, ir.BaseFunc) and not isinstance(expr, relax.Function)
        return (today if is_tir else of_graph)(expr, *more)

    ir.IRModule.type_definitions = {}
    ir.IRModule.import_from_std = lambda self, path: _refuse_types(path)
    for kind, name, old in _TWO_SIDED:
        setattr(kind, name, _sided(getattr(kind, name), old))
    for kind in (ir.IRModule, relax.Function, relax.Call, relax.Tuple, relax.TupleGetItem):
        kind.__str__ = _sided_text(kind.__str__, _text)
    for kind in (relax.TensorType, relax.TupleType, relax.FuncType):
        kind.__str__ = _sided_text(kind.__str__, write_type)
    today = ir.IRModule.from_expr
    ir.IRModule.from_expr = staticmethod(from_expr)


def _refuse_types(path: str) -> None:
    raise gone.error(f"IRModule.import_from_std({path!r})", None, gone.ROWS["relay.prelude"].remark)


def _asked_by_script() -> bool:
    """Return whether the code that reads an attribute is neither TVM's nor tvmlab's."""
    name = str(sys._getframe(2).f_globals.get("__name__", ""))
    return name.partition(".")[0] not in ("tvm", "tvm_ffi", "tvmlab")


def _sided(today: Any, old: Callable[[Any, Any], Any]) -> property:
    """Make a property with two values: `old` computes the script's from the object and today's."""

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
    except RelayError:  # a module that Relay could not express
        return None


def _name(_: Any, today: str) -> str:
    row = next((row for row in table.rows() if today in (row.relax, *row.also)), None)
    return row.name if row else today


def _of_call(read: Callable[[tuple[Any, ...], Any], Any]) -> Callable[[Any, Any], Any]:
    """Read a part of Relay's call of an operator, or return today's if Relay has no such call."""

    def old(call: Any, today: Any) -> Any:
        known = isinstance(call.op, ir.Op) and graph.has_type(call)
        found = table.written(call) if known else None
        return read(found, today) if found else today

    return old


@functools.lru_cache(64)
def _graph_of(func: Any) -> Any:
    """Return a body's graph, the same object each time the body is read."""
    return inline_bindings(func.body)


_TWO_SIDED: list[tuple[Any, str, Callable[[Any, Any], Any]]] = [
    (relax.TensorType, "dtype", lambda _, today: today if today is None else str(today)),
    (ir.Op, "name", _name),
    (ir.Call, "attrs", _of_call(lambda found, today: Attributes(found[0], found[2], today))),
    (ir.Call, "args", _of_call(lambda found, _: list(found[1]))),
    (relax.Function, "body", lambda func, _: _graph_of(func)),
    (relax.If, "true_branch", lambda _, today: inline_bindings(today)),
    (relax.If, "false_branch", lambda _, today: inline_bindings(today)),
]
