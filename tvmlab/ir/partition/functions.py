"""What the passes share: going through a module's functions as graphs."""

from __future__ import annotations

from collections.abc import Callable

from tvm import ir, relax

from .. import graph
from ..graph import no_collection
from ..module import normalize


def attribute(function: relax.Function, name: str) -> str:
    """Return a function's attribute as a string, the empty one where it has none."""
    return str(function.attrs[name]) if function.attrs and name in function.attrs else ""


def change_bodies(mod: ir.IRModule, change: Callable[[relax.Expr], relax.Expr]) -> ir.IRModule:
    """Change the body of each Relax function as a graph, in a new module.

    A function whose graph ``change(graph)`` gives back stays the same object; functions of other
    compilers are passed over, as Relay's pass manager does.
    """
    with no_collection():
        mod = normalize(mod)
        made = mod.clone()
        for var, function in mod.functions_items():
            if not isinstance(function, relax.Function):
                continue
            if not (attribute(function, "Compiler") or attribute(function, "Codegen")):
                before = graph.inline_bindings(function.body)
                after = change(before)
                if not after.same_as(before):
                    made[var] = graph.to_anf(function.params, after, function.attrs)
    return made
