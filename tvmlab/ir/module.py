"""Functions of graphs as functions of bindings, which every pass of Relax's takes for granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import ir, relax, tirx

from ..errors import RelayError
from ..support.wording import telling
from . import depth, graph, table
from .graph import inline_bindings, substitute
from .inference import infer_type, result_type

__all__ = ["function", "is_normal", "normal", "normalize", "specialize"]


def function(params: Sequence[relax.Var], body: relax.Expr, attrs: Any = None) -> relax.Function:
    """Make a function of a graph, with the type of its result where that is known."""
    made = infer_type(body)
    return relax.Function(list(params), made, result_type(made), attrs=attrs)


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
        if isinstance(func, relax.Function) and (_missing(var, func) or not is_normal(func))
    }
    if not todo:
        return mod
    made = mod.clone()
    callees = {var.name_hint: (var, func) for var, func in mod.functions.items()}
    for var, func in todo.items():
        new = func if is_normal(func) else normal(func, callees)
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


def is_normal(func: relax.Function) -> bool:
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
                if not is_normal(value):
                    return False
            elif not graph.has_type(binding.var) or any(
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
    graph.check_scopes(scopes)

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(after, relax.Function) and not _has_untyped_params(after):
            return after if is_normal(after) else normal(after, callees, scopes + 1)
        if isinstance(after, ir.GlobalVar) and callees and after.name_hint in callees:
            var, callee = callees[after.name_hint]
            if var.ty.is_missing():
                relax.expr._update_type(var, callee.ty)
            return var
        vague = (
            isinstance(after, relax.Call)
            and isinstance(after.op, relax.Function)
            and _has_untyped_params(after.op)
        )
        if vague and all(graph.has_type(arg) for arg in after.args):
            made = normal(_specialized(after.op, after.args), callees, scopes + 1)
            return infer_type(relax.Call(made, list(after.args)))
        return infer_type(after)

    attrs = func.attrs
    try:
        func = _with_callee_types(func, callees) if callees and _has_untyped_params(func) else func
        body = inline_bindings(func.body)
        depth.check(graph.post_order(body))
        body = graph.transform(infer_type(body), change)
        made = graph.to_anf(list(func.params), body, attrs)
    except RelayError:
        raise
    except Exception as error:  # Relax's inference raises many classes
        raise RelayError(
            f"the types in a function cannot be inferred: {telling(error)}",
            where=f"the function of {', '.join(param.name for param in func.params) or 'nothing'}",
            fix="give shapes and dtypes to the parameters: relay.var(name, shape=..., dtype=...)",
        ) from error
    return made


def _with_callee_types(
    func: relax.Function, callees: Mapping[str, tuple[Any, Any]]
) -> relax.Function:
    """Give parameters without a type that of the callee's parameter which they are passed for."""
    wanted: dict[int, ir.Type] = {}
    for node in graph.post_order(inline_bindings(func.body)):
        if isinstance(node, relax.Call) and isinstance(node.op, ir.GlobalVar):
            _, callee = callees.get(node.op.name_hint, (None, None))
            params = callee.params if isinstance(callee, relax.Function) else []
            wanted |= {
                graph.key(arg): param.ty
                for arg, param in zip(node.args, params, strict=False)
                if not graph.has_type(arg) and graph.has_type(param)
            }
    if not any(graph.key(param) in wanted for param in func.params):
        return func
    params = [relax.Var(one.name, wanted.get(graph.key(one), one.ty)) for one in func.params]
    body = substitute(func.body, dict(zip(func.params, params, strict=True)))
    return function(params, body, func.attrs)


def _has_untyped_params(func: relax.Function) -> bool:
    return any(not graph.has_type(param) for param in func.params)


def _specialized(func: relax.Function, args: Any) -> relax.Function:
    """Give a function's parameters the types of the arguments that it is called with."""
    params = [relax.Var(param.name, arg.ty) for param, arg in zip(func.params, args, strict=True)]
    body = substitute(func.body, dict(zip(func.params, params, strict=True)))
    return function(params, graph.transform(body, _reread), func.attrs)


def _reread(_: relax.Expr, after: relax.Expr) -> relax.Expr:
    """Make a call as it would have been made, had its operands' types been known."""
    if not isinstance(after, relax.Call) or not isinstance(after.op, ir.Op):
        return after
    found = table.written(after) if graph.has_type(after) else None
    if found is None or found[0].relax == after.op.name:
        return after
    row, operands, values = found
    return graph.typed(row.to_relax(operands, values))


def specialize(mod: ir.IRModule) -> ir.IRModule:
    """Give parameters of nested functions that have no type that of what they are called with.

    Relay's type inference, which its reader ran, did so. A function whose parameters all have types
    stays the same object.
    """
    made = mod
    callees = {var.name_hint: (var, func) for var, func in mod.functions.items()}
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function) and any(
            isinstance(one.value, relax.Function) and _has_untyped_params(one.value)
            for block in func.body.blocks
            for one in block.bindings
        ):
            made = mod.clone() if made is mod else made
            made.update_func(var, normal(func, callees))
    return made
