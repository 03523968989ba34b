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

from .._telling import telling
from ..errors import RelayError
from . import depth, graph, table
from .expr import Call, Function, as_expr, const, infer
from .flatten import flat, substitute

__all__ = ["IRModule", "bind", "bind_params_by_name", "flat", "from_expr", "normal", "normalize"]


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
    from .analysis import free_vars

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


def normalize(mod: ir.IRModule) -> ir.IRModule:
    """Turn the graphs in a module's functions into bindings, with all types inferred.

    ``main`` gets the symbol by which TVM knows what may be called from outside; Relay's attribute
    ``Compiler`` of a function gets Relax's ``Codegen`` beside it, and numbers in attributes become
    plain, as the reader of the text form has them.

    Parameters
    ----------
    mod : tvm.ir.IRModule
        It is left unchanged.

    Returns
    -------
    tvm.ir.IRModule
        The same module, where every Relax function in it is so already.

    Raises
    ------
    RelayError
        A type cannot be inferred, or a variable is free.
    """
    todo = {
        var: func
        for var, func in mod.functions.items()
        if isinstance(func, relax.Function) and (_missing(var, func) or not _is_normal(func))
    }
    if not todo:
        return mod
    made = mod.clone()
    callees = {var.name_hint: (var, func) for var, func in mod.functions.items()}
    for var, func in todo.items():
        new = func if _is_normal(func) else normal(func, callees)
        free = [free.name for free in relax.analysis.free_vars(new)]
        if free:
            raise RelayError(
                f"nothing binds {', '.join(map(repr, free))}",
                where=f"@{var.name_hint} of {', '.join(p.name for p in func.params) or 'nothing'}",
                fix=f"make {free[0]} a parameter of the function, or a constant",
            )
        missing = _missing(var, func)
        made.update_func(var, new.with_attrs(missing) if missing else new)
    return made


def _missing(var: ir.GlobalVar, func: relax.Function) -> dict[str, Any]:
    """Find the attributes that Relax wants, and code written for Relay sets otherwise or not."""
    attrs = dict(func.attrs.items()) if func.attrs else {}
    missing: dict[str, Any] = {
        name: int(value) for name, value in attrs.items() if isinstance(value, tirx.IntImm)
    }
    if "Compiler" in attrs and "Codegen" not in attrs:
        missing["Codegen"] = attrs["Compiler"]
    if var.name_hint == "main" and "global_symbol" not in attrs:
        missing["global_symbol"] = "main"
    return missing


def _is_normal(func: relax.Function) -> bool:
    """Say whether a function's calls take variables only, and have types."""
    result = func.body.body
    if not isinstance(result, relax.Var) and not (
        isinstance(result, relax.Tuple) and all(isinstance(one, relax.Var) for one in result)
    ):
        return False
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Function):
                if not _is_normal(value):
                    return False
            elif not graph.known(binding.var) or any(
                isinstance(child, (relax.Call, relax.TupleGetItem, relax.Function))
                for child in graph.children(value)
            ):
                return False
    return not any(param.ty.is_missing() for param in func.params)


def normal(
    func: relax.Function, callees: Mapping[str, tuple[Any, Any]] | None = None, scopes: int = 1
) -> Any:
    """Turn a function's graph into bindings, and the functions' in it.

    Parameters
    ----------
    func : tvm.relax.Function
        A function of a graph or of bindings.
    callees : mapping of str to (tvm.ir.GlobalVar, function), optional
        The module's functions, for the types of calls of them.
    scopes : int
        How many functions nest here, this one and those around it.

    Returns
    -------
    tvm.relax.Function

    Raises
    ------
    RelayError
        A type cannot be inferred, or tuples, functions or branches nest too deep (`depth`).
    """
    depth.check_scopes(scopes)

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(after, relax.Function) and not _vague(after):
            return after if _is_normal(after) else normal(after, callees, scopes + 1)
        if isinstance(after, ir.GlobalVar) and callees and after.name_hint in callees:
            var, callee = callees[after.name_hint]
            if var.ty.is_missing():
                relax.expr._update_type(var, callee.ty)
            return var
        vague = (
            isinstance(after, relax.Call)
            and isinstance(after.op, relax.Function)
            and _vague(after.op)
        )
        if vague and all(graph.known(arg) for arg in after.args):
            made = normal(_specialized(after.op, after.args), callees, scopes + 1)
            return Call(made, after.args)
        return infer(after)

    attrs = func.attrs
    try:
        func = _told(func, callees) if callees and _vague(func) else func
        body = flat(func.body)
        depth.check(graph.post_order(body))
        body = graph.transform(infer(body), change)
        made = graph.from_graph(list(func.params), body, attrs)
    except RelayError:
        raise
    except Exception as error:  # Relax's inference raises many classes
        raise RelayError(
            f"the types in a function cannot be inferred: {telling(error)}",
            where=f"the function of {', '.join(param.name for param in func.params) or 'nothing'}",
            fix="give shapes and dtypes to the parameters: relay.var(name, shape=..., dtype=...)",
        ) from error
    return made


def _told(func: relax.Function, callees: Mapping[str, tuple[Any, Any]]) -> relax.Function:
    """Give parameters without a type that of the callee's parameter which they are passed for."""
    wanted: dict[int, ir.Type] = {}
    for node in graph.post_order(flat(func.body)):
        if isinstance(node, relax.Call) and isinstance(node.op, ir.GlobalVar):
            _, callee = callees.get(node.op.name_hint, (None, None))
            params = callee.params if isinstance(callee, relax.Function) else []
            wanted |= {
                graph.key(arg): param.ty
                for arg, param in zip(node.args, params, strict=False)
                if not graph.known(arg) and graph.known(param)
            }
    if not any(graph.key(param) in wanted for param in func.params):
        return func
    params = [relax.Var(one.name, wanted.get(graph.key(one), one.ty)) for one in func.params]
    body = substitute(flat(func.body), dict(zip(func.params, params, strict=True)))
    return Function(params, body, attrs=func.attrs)


def _vague(func: relax.Function) -> bool:
    return any(not graph.known(param) for param in func.params)


def _specialized(func: relax.Function, args: Any) -> relax.Function:
    """Give a function's parameters the types of the arguments that it is called with."""
    params = [relax.Var(param.name, arg.ty) for param, arg in zip(func.params, args, strict=True)]
    body = substitute(flat(func.body), dict(zip(func.params, params, strict=True)))
    return Function(params, graph.transform(body, _read_again), attrs=func.attrs)


def _read_again(_: relax.Expr, after: relax.Expr) -> relax.Expr:
    """Make a call as it would have been made, had its operands' types been known."""
    if not isinstance(after, relax.Call) or not isinstance(after.op, ir.Op):
        return after
    found = table.written(after) if graph.known(after) else None
    if found is None or found[0].relax == after.op.name:
        return after
    row, operands, values = found
    return graph.typed(row.read(operands, values))


def specialize(mod: ir.IRModule) -> ir.IRModule:
    """Give parameters of nested functions that have no type that of what they are called with.

    Relay's type inference, which its reader ran, did so. A function whose parameters all have types
    stays the same object.
    """
    made = mod
    callees = {var.name_hint: (var, func) for var, func in mod.functions.items()}
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function) and any(
            isinstance(one.value, relax.Function) and _vague(one.value)
            for block in func.body.blocks
            for one in block.bindings
        ):
            made = mod.clone() if made is mod else made
            made.update_func(var, normal(func, callees))
    return made


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
    return normal(made) if _is_normal(expr) else made


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
