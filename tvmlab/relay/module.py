"""Modules: graphs become bindings here, which every pass of Relax's takes for granted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ..errors import RelayError
from ..ir import graph
from ..ir.graph import substitute
from ..ir.module import is_normal, normal, normalize
from .analysis import as_function
from .expr import Function, as_expr, const, kind, refuse


@kind(ir.IRModule)
def IRModule(functions: Mapping[Any, Any] | None = None, *_: Any, **__: Any) -> ir.IRModule:
    """Make a `tvm.IRModule` of functions by name, or an empty one."""
    return normalize(ir.IRModule(dict(functions or {})))


def from_expr(
    expr: Any, functions: Mapping[Any, Any] | None = None, type_defs: Any = None
) -> ir.IRModule:
    """Make a module of a function or expression, which becomes ``main`` or its ``global_symbol``.

    The free variables of an expression become parameters, in the order of their use. `functions`
    are further functions, by name or `tvm.ir.GlobalVar`. Raises `RelayError` where a type cannot be
    inferred, or there are type definitions.
    """
    refuse("IRModule.from_expr", "use tuples", type_defs=type_defs)
    main = as_function(expr)
    name = (main.attrs or {}).get("global_symbol", "main")
    return normalize(ir.IRModule({**(functions or {}), str(name): main}))


IRModule.from_expr = staticmethod(from_expr)


def bind(expr: Any, binds: Mapping[relax.Var, Any]) -> relax.Expr:
    """Put expressions in the place of variables, in a function or a graph.

    Bound parameters of a function go away. As in Relay, only the next pass refuses a value that
    does not fit.
    """
    values = {var: as_expr(value) for var, value in binds.items()}
    expr = as_expr(expr)
    if not isinstance(expr, relax.Function):
        return substitute(expr, values)
    bound = {graph.key(var) for var in values}
    params = [param for param in expr.params if graph.key(param) not in bound]
    body = substitute(expr.body, values, infer=False)
    try:
        made = Function(params, body, attrs=expr.attrs)
    except RelayError:  # the values do not fit: as in Relay, `InferType` says so
        return relax.Function(params, body, relax.AnyType(), attrs=expr.attrs)
    return normal(made) if is_normal(expr) else made


def bind_params_by_name(func: relax.Function, params: Mapping[str, Any]) -> relax.Function:
    """Make a function's parameters constants, by their names; other names are ignored."""
    values = {var: as_const(params[var.name]) for var in func.params if var.name in params}
    return bind(func, values)


def as_const(value: Any) -> Any:
    """Make a parameter's value a constant of its own dtype, without a copy of a tensor's."""
    if isinstance(value, ir.GenericConst):
        return value
    return const(tvm.runtime.tensor(value) if isinstance(value, np.ndarray) else value)
