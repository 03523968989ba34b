"""Conversion of functions from graphs to bindings, the form that all Relax passes expect."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tvm import ir, relax, tirx

from ..errors import RelayError
from ..support.wording import telling
from . import graph, table
from .graph import inline_bindings

__all__ = ["explain", "infer_type", "is_normal", "normal", "normalize"]

_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)', re.DOTALL)
_NUMBER = re.compile(r"T\.int64\((-?\d+)\)")


def infer_type(expr: relax.Expr) -> relax.Expr:
    """Infer the types of a graph's calls in place, up to a variable without a type."""
    seen: set[int] = set()
    stack = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            _infer_node(node)
        elif isinstance(node, ir.Op) or graph.has_type(node) or graph.key(node) in seen:
            continue
        elif isinstance(node, relax.Var):
            break
        else:
            seen.add(graph.key(node))
            stack.append((node, True))
            stack.extend((child, False) for child in graph.children(node))
    return expr


def _infer_node(expr: relax.Expr) -> None:
    """Infer the type of one node; an error of Relax gets the name of the call."""
    try:
        graph.typed(expr)
    except RelayError:
        raise
    except Exception as error:  # upstream's inference raises many classes
        where = f"{_operator_name(expr.op)} of {', '.join(str(arg.ty) for arg in expr.args)}"
        what = f"the operands do not fit the operator: {explain(error)}"
        fix = "check the operands' shapes and dtypes"
        raise RelayError(what, where=where, fix=fix) from error


def explain(problem: Exception) -> str:
    """Return the line of TVM's message that names the problem, with operators by their names."""
    return _NUMBER.sub(r"\1", _OPERATOR.sub(r"\1", telling(problem)))[:300]


def _operator_name(op: Any) -> str:
    """Return Relay's name of an operator or function, or Relax's if Relay has none."""
    if not isinstance(op, ir.Op):
        return getattr(op, "name_hint", None) or "a function"
    row = next((row for row in table.rows() if op.name in (row.relax, *row.also)), None)
    return row.name if row else str(op.name)


def normalize(mod: ir.IRModule) -> ir.IRModule:
    """Turn the graphs in a module's functions into bindings, with all types inferred.

    Functions get the attributes that Relax needs (`_missing`). A normal module is returned as it
    is. Raises `RelayError` if a type cannot be inferred, or a variable is free.
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
            what, where = f"nothing binds {', '.join(map(repr, free))}", f"@{var.name_hint}"
            fix = f"make {free[0]} a parameter of the function, or a constant"
            raise RelayError(what, where=f"{where} of {_parameters(func)}", fix=fix)
        missing = _missing(var, func)
        made.update_func(var, new.with_attrs(missing) if missing else new)
    return made


def _missing(var: ir.GlobalVar, func: relax.Function) -> dict[str, Any]:
    """Return attributes that Relax needs, and that code for Relay omits or sets differently."""
    attrs = dict(func.attrs.items()) if func.attrs else {}
    missing = _integers(attrs)
    if "Compiler" in attrs and "Codegen" not in attrs:
        missing["Codegen"] = attrs["Compiler"]
    if var.name_hint == "main" and "global_symbol" not in attrs:
        missing["global_symbol"] = "main"
    return missing


def _integers(attrs: Any) -> dict[str, Any]:
    return {name: int(value) for name, value in attrs.items() if isinstance(value, tirx.IntImm)}


def is_normal(func: relax.Function) -> bool:
    """Return whether a function's calls have types and only variables as arguments."""
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


def _wanted_types(
    func: relax.Function, callees: Mapping[str, tuple[Any, Any]]
) -> dict[int, ir.Type]:
    """Return types for parameters without one, from the callees that they are passed to."""
    untyped = {graph.key(param) for param in func.params if not graph.has_type(param)}
    wanted: dict[int, ir.Type] = {}
    for node in graph.post_order(inline_bindings(func.body)) if untyped and callees else ():
        if isinstance(node, relax.Call) and isinstance(node.op, ir.GlobalVar):
            _, callee = callees.get(node.op.name_hint, (None, None))
            passed = zip(map(graph.key, node.args), getattr(callee, "params", ()), strict=False)
            wanted |= {key: param.ty for key, param in passed if key in untyped}
    return wanted


def _with_types(func: relax.Function, types: Mapping[int, ir.Type]) -> relax.Function:
    """Set the types of parameters, as Relay's inference did, and rebuild calls that use them."""

    def again(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        is_operator = isinstance(after, relax.Call) and isinstance(after.op, ir.Op)
        found = table.written(after) if is_operator and graph.has_type(after) else None
        if found is None or found[0].relax == after.op.name:
            return after
        row, operands, values = found
        return graph.typed(row.to_relax(operands, values))

    params = [relax.Var(one.name, types.get(graph.key(one), one.ty)) for one in func.params]
    body = graph.substitute(func.body, dict(zip(func.params, params, strict=True)))
    return graph.function(params, infer_type(graph.transform(body, again)), func.attrs)


def _is_untyped(func: relax.Expr) -> bool:
    return isinstance(func, relax.Function) and not all(map(graph.has_type, func.params))


def normal(
    func: relax.Function, callees: Mapping[str, tuple[Any, Any]] | None = None, scopes: int = 1
) -> Any:
    """Turn a function's graph into bindings, and also the graphs of nested functions.

    The `callees` are the module's functions, whose types calls get; `scopes` counts the enclosing
    functions. Raises `RelayError` if a type cannot be inferred, or functions nest too deep.
    """
    graph.check_scopes(scopes)

    def change(_: relax.Expr, after: relax.Expr) -> relax.Expr:
        if isinstance(after, relax.Function):
            known = is_normal(after) or _is_untyped(after)
            return after if known else normal(after, callees, scopes + 1)
        if isinstance(after, relax.Call) and _is_untyped(after.op):
            types = (arg.ty for arg in after.args)
            wanted = dict(zip(map(graph.key, after.op.params), types, strict=True))
            made = normal(_with_types(after.op, wanted), callees, scopes + 1)
            return infer_type(relax.Call(made, list(after.args)))
        if isinstance(after, ir.GlobalVar) and callees and after.name_hint in callees:
            var, callee = callees[after.name_hint]
            if var.ty.is_missing():
                relax.expr._update_type(var, callee.ty)
            return var
        return infer_type(after)

    try:
        wanted = _wanted_types(func, callees or {})
        func = _with_types(func, wanted) if wanted else func
        body = inline_bindings(func.body)
        sizes: graph.Sizes = {}
        for node in graph.post_order(body):
            graph.check_size(node, sizes)
        body = graph.transform(infer_type(body), change)
        plain = _integers(func.attrs) if func.attrs else {}
        attrs = ir.make_node("ir.DictAttrs", **{**func.attrs, **plain}) if plain else func.attrs
        return graph.to_anf(list(func.params), body, attrs)
    except RelayError:
        raise
    except Exception as error:  # the inference of Relax raises many classes
        what = f"the types in a function cannot be inferred: {telling(error)}"
        fix = "give shapes and dtypes to the parameters: relay.var(name, shape=..., dtype=...)"
        where = f"the function of {_parameters(func)}"
        raise RelayError(what, where=where, fix=fix) from error


def _parameters(func: relax.Function) -> str:
    return ", ".join(param.name for param in func.params) or "nothing"
