"""Modules: graphs become bindings here, parameters constants.

Relay put graphs into modules as they are. A Relax module holds bindings, which every pass of
Relax's takes for granted; so what comes in through Relay's names is normalized on the way, and
every pass in `tvmlab.relay.transform` begins with `normalize`, for modules filled by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax, tirx

from ..errors import RelayError
from ..ir import graph
from ..ir.graph import substitute
from ..ir.module import is_normal, normal, normalize
from .expr import Function, as_expr, const
from .variables import free_vars

__all__ = ["IRModule", "bind", "bind_params_by_name", "from_expr"]


class _ModuleKind(type):
    def __instancecheck__(cls, value: object) -> bool:
        """Say whether something is a module of TVM's."""
        return isinstance(value, ir.IRModule)


class IRModule(metaclass=_ModuleKind):
    """A module: ``IRModule(functions)`` and ``IRModule.from_expr(expr)`` make a `tvm.IRModule`."""

    def __new__(cls, functions: Mapping[Any, Any] | None = None, *_: Any, **__: Any) -> ir.IRModule:
        """Make a module of functions by name, or an empty one."""
        return normalize(ir.IRModule(dict(functions or {})))

    @staticmethod
    def from_expr(expr: Any, functions: Mapping[Any, Any] | None = None) -> ir.IRModule:
        """Make a module of one expression; see `from_expr`."""
        return from_expr(expr, functions)


def from_expr(
    expr: Any, functions: Mapping[Any, Any] | None = None, type_defs: Any = None
) -> ir.IRModule:
    """Make a module of one expression.

    Parameters
    ----------
    expr : tvm.relax.Function or expression
        What becomes ``main`` (or the name in its attribute ``global_symbol``). The free variables
        of an expression that is no function become parameters, in the order of their use.
    functions : mapping, optional
        Further functions, by name or `tvm.ir.GlobalVar`.
    type_defs : mapping, optional
        Relay's type definitions, which Relax has not.

    Returns
    -------
    tvm.ir.IRModule
        Its functions hold bindings.

    Raises
    ------
    RelayError
        A type cannot be inferred, or there are type definitions.
    """
    if type_defs:
        raise RelayError(
            "a Relax module has no type definitions",
            where="IRModule.from_expr(type_defs=...)",
            fix="use tuples",
        )
    expr = as_expr(expr)
    if not isinstance(expr, relax.Function):
        expr = Function(free_vars(expr), expr)
    name = (expr.attrs or {}).get("global_symbol", "main")
    return normalize(ir.IRModule({**(functions or {}), str(name): expr}))


def bind(expr: Any, binds: Mapping[relax.Var, Any]) -> relax.Expr:
    """Put expressions in the place of variables.

    Parameters
    ----------
    expr : tvm.relax.Expr
        A function, of which parameters that are bound go away, or a graph.
    binds : mapping of tvm.relax.Var to expression
        What takes their place.

    Returns
    -------
    tvm.relax.Expr
        A function that held bindings holds bindings again, unless the values are not of the
        variables' types: then it is a graph without types, and the error is that of `InferType`.
    """
    values = {var: as_expr(value) for var, value in binds.items()}
    expr = as_expr(expr)
    if not isinstance(expr, relax.Function):
        return substitute(expr, values)
    bound = {graph.key(var) for var in values}
    params = [param for param in expr.params if graph.key(param) not in bound]
    if not all(_fits(value, var) for var, value in values.items()):
        body = substitute(expr.body, values, infer=False)
        return relax.Function(params, body, relax.AnyType(), attrs=expr.attrs)
    made = Function(params, substitute(expr.body, values), attrs=expr.attrs)
    return normal(made) if is_normal(expr) else made


def _fits(value: relax.Expr, var: relax.Var) -> bool:
    """Say whether a value may have a variable's type: its dtype, and sizes that are known."""
    kinds = [one.ty for one in (value, var) if isinstance(one.ty, relax.TensorType)]
    said = [kind for kind in kinds if kind.dtype is not None and kind.ndim >= 0]
    if len(said) < 2:
        return True
    one, two = said
    if (str(one.dtype), one.ndim) != (str(two.dtype), two.ndim):
        return False
    sizes = zip(one.shape or (), two.shape or (), strict=False)
    return all(
        int(a) == int(b)
        for a, b in sizes
        if isinstance(a, tirx.IntImm) and isinstance(b, tirx.IntImm)
    )


def bind_params_by_name(func: relax.Function, params: Mapping[str, Any]) -> relax.Function:
    """Make a function's parameters constants.

    Parameters
    ----------
    func : tvm.relax.Function
        The function.
    params : mapping of str to tvm.runtime.Tensor or numpy.ndarray
        Values by the parameters' names; other names are left aside, as Relay does.

    Returns
    -------
    tvm.relax.Function

    Raises
    ------
    RelayError
        Two parameters have a name that is to be bound.
    """
    named: dict[str, relax.Var] = {}
    for param in func.params:
        if param.name in named and param.name in params:
            raise RelayError(
                f"two parameters are named {param.name!r}",
                where="bind_params_by_name",
                fix="give them different names, or bind by variable with relay.bind",
            )
        named[param.name] = param
    return bind(
        func, {var: as_const(params[name]) for name, var in named.items() if name in params}
    )


def as_const(value: Any) -> Any:
    """Make a parameter's value a constant of its own dtype, without a copy of a tensor's."""
    if isinstance(value, ir.GenericConst):
        return value
    if isinstance(value, np.ndarray):
        value = tvm.runtime.tensor(value)
    return const(value)
