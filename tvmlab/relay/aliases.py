"""Old names of what TVM's objects still have: ``constant.data``, ``var.name_hint``.

Code written for Relay reads them all over, and what it reads them of is TVM's own. So importing
`tvmlab.relay` adds them to TVM's Python classes: names that today's have not, as properties that
give what is there under today's name. Nothing that is there changes, and without that import
nothing is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import ir, relax

from ..errors import RelayError
from ..ir import graph

__all__ = ["install"]


def install() -> None:
    """Add the names, but for those that TVM has."""
    for kind, name, get in ALIASES:
        if not hasattr(kind, name):
            setattr(kind, name, property(get))
    for kind in (ir.IRModule, ir.Expr):
        if not hasattr(kind, "astext"):
            kind.astext = _astext
    if not hasattr(tvm.runtime.Tensor, "asnumpy"):
        tvm.runtime.Tensor.asnumpy = tvm.runtime.Tensor.numpy


def _checked_type(expr: Any) -> ir.Type:
    """Give a type as Relay did: an expression that nobody inferred has none."""
    if not graph.known(expr):
        raise ValueError("The type checker has not populated the checked_type for this node")
    return expr.ty


def _concrete_shape(type_: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in type_.shape)


def _astext(
    self: Any, show_meta_data: bool = True, annotate: Any = None, show_info: bool = True
) -> str:
    """Print as Relay text; what Relay could not have held, as TVMScript."""
    from ..ir.text.printer import astext

    try:
        return astext(self, show_meta_data)
    except RelayError:
        if isinstance(self, ir.IRModule) and not all(
            isinstance(func, relax.Function) for func in self.functions.values()
        ):
            return str(self.script())
        raise


def _of_graph(name: str) -> Callable[[Any], Any]:
    """Read a name of what bindings compute: Relay's ``function.body`` is a graph."""
    return lambda body: getattr(graph.inline(body), name)


OF_GRAPHS = (
    *("op", "args", "attrs", "type_args", "fields", "tuple_value", "index", "data"),
    *("cond", "true_branch", "false_branch", "name_hint"),
)
"""What code reads of ``function.body``, which in Relax are bindings."""

ALIASES: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (ir.Expr, "checked_type", _checked_type),
    (ir.Var, "name_hint", lambda var: var.name),
    (ir.Var, "type_annotation", lambda var: var.ty if graph.known(var) else None),
    (ir.GenericConst, "data", lambda const: const.value),
    (ir.Call, "type_args", lambda call: call.ty_args),
    (relax.Function, "ret_type", lambda func: func.ret_ty),
    (relax.Function, "type_params", lambda func: []),
    (relax.TensorType, "concrete_shape", _concrete_shape),
    (relax.FuncType, "arg_types", lambda type_: type_.params),
    (relax.FuncType, "ret_type", lambda type_: type_.ret),
    (relax.FuncType, "type_params", lambda type_: []),
    *((relax.SeqExpr, name, _of_graph(name)) for name in OF_GRAPHS),
]
"""The class, the old name, and how to get what it names."""
