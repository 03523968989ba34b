"""Relay's analyses of graphs, in the order of Relay's ``relay/analysis/analysis.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tvm import ir, relax

from ..ir import gone, graph, table
from ..ir.graph import inline_bindings
from .expr import Function, as_expr

__path__: list[str] = []  # see gone.ImportFinder


def post_order_visit(expr: Any, fvisit: Callable[[relax.Expr], Any]) -> None:
    """Visit each node of a graph once, after its parts; operators and inner functions too."""
    for node in nodes(as_expr(expr)):
        fvisit(node)


def nodes(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Yield each node below an expression once, operands before users, functions too."""
    graphs: list[relax.Expr] = []  # kept alive, because a new node can get a freed node's identity

    def within(node: relax.Expr) -> list[relax.Expr]:
        if isinstance(node, relax.SeqExpr):
            graphs.append(inline_bindings(node))
            return graphs[-1:]
        return parts(node)

    return (node for node in graph.post_order(expr, within) if not isinstance(node, relax.SeqExpr))


def parts(node: relax.Expr) -> list[relax.Expr]:
    """List the operands of a node that Relay's visitor visits."""
    if isinstance(node, relax.Function):
        return [*node.params, node.body]
    if isinstance(node, relax.If):
        return [node.cond, node.true_branch, node.false_branch]
    if isinstance(node, relax.Call):
        return [node.op, *node.args]
    return graph.children(node)


def all_vars(expr: Any) -> list[relax.Var]:
    """List the variables of an expression, in the order of their use."""
    return [node for node in nodes(as_expr(expr)) if isinstance(node, relax.Var)]


def bound_vars(expr: Any) -> list[relax.Var]:
    """List the parameters of the functions in an expression."""
    functions = (node for node in nodes(as_expr(expr)) if isinstance(node, relax.Function))
    return [param for function in functions for param in function.params]


def free_vars(expr: Any) -> list[relax.Var]:
    """List the variables that an expression uses but does not bind, in the order of their use."""
    bound = {graph.key(var) for var in bound_vars(expr)}
    return [var for var in all_vars(expr) if graph.key(var) not in bound]


def as_function(expr: Any) -> relax.Function:
    """Make a function of an expression; its parameters are the expression's free variables."""
    expr = as_expr(expr)
    return expr if isinstance(expr, relax.Function) else Function(free_vars(expr), expr)


def list_op_freqs(mod: ir.IRModule) -> dict[str, int]:
    """Count the calls of each operator in a module's functions, by Relay's names."""
    found: Counter[str] = Counter()
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            for node in nodes(func):
                if isinstance(node, relax.Call) and isinstance(node.op, ir.Op):
                    row = table.written(node)
                    found[row[0].name if row else node.op.name] += 1
    return dict(found)


def __getattr__(name: str) -> Any:
    raise gone.missing("analysis", name, globals())
