"""Walks over an expression of Relay's kind, and the variables in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm import relax

from ..ir import graph
from ..ir.graph import inline_bindings
from .expr import as_expr

__all__ = ["all_vars", "bound_vars", "free_vars", "nodes", "post_order_visit"]


def post_order_visit(expr: Any, fvisit: Callable[[relax.Expr], Any]) -> None:
    """Visit each node of a graph once, after what it is made of.

    Parameters
    ----------
    expr : tvm.relax.Expr
        A graph, or a function, whose parameters come before its body.
    fvisit : callable
        Gets each node; operators too, and the nodes of the functions in the graph.
    """
    for node in nodes(as_expr(expr)):
        fvisit(node)


def nodes(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Yield each node below an expression once, parts before the whole, functions too."""
    graphs: list[relax.Expr] = []  # kept, because a freed node's identity can come again

    def parts(node: relax.Expr) -> list[relax.Expr]:
        if isinstance(node, relax.SeqExpr):
            graphs.append(inline_bindings(node))
            return graphs[-1:]
        return inside(node)

    return (node for node in graph.post_order(expr, parts) if not isinstance(node, relax.SeqExpr))


def inside(node: relax.Expr) -> list[relax.Expr]:
    """List the parts of a node that Relay's visitor goes through."""
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
    """List the variables that an expression uses and does not bind, in the order of their use."""
    bound = {graph.key(var) for var in bound_vars(expr)}
    return [var for var in all_vars(expr) if graph.key(var) not in bound]
