"""Bindings to one graph, wherever they stand, and other expressions in the place of variables."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax

from ..errors import RelayError
from . import graph

__all__ = ["flat", "substitute"]


def flat(expr: relax.Expr) -> relax.Expr:
    """Turn bindings, wherever they stand, into one graph over what they leave free.

    Parameters
    ----------
    expr : tvm.relax.Expr
        A function's body, a `Let`, or a graph with such in it.

    Returns
    -------
    tvm.relax.Expr
        The same graph where there are no bindings. Functions in it are left as they are.

    Raises
    ------
    RelayError
        A variable is bound to what is computed from it.
    """
    values: dict[int, relax.Expr] = {}
    done: dict[int, relax.Expr] = {}
    open_: set[int] = set()
    stack: list[tuple[relax.Expr, bool]] = [(expr, False)]

    def inner(node: relax.Expr) -> list[relax.Expr]:
        if isinstance(node, relax.SeqExpr):
            return [node.body]
        if isinstance(node, relax.Var) and graph.key(node) in values:
            return [values[graph.key(node)]]
        return graph.children(node)

    while stack:
        node, ready = stack.pop()
        key = graph.key(node)
        if ready:
            made = [done[graph.key(child)] for child in inner(node)]
            alias = isinstance(node, relax.SeqExpr) or key in values
            done[key] = made[0] if alias else graph.rebuild(node, made)
            open_.discard(key)
        elif key in open_:
            raise RelayError(
                f"the variable {node} is computed from itself",
                where="a binding",
                fix="bind it to an expression that does not contain it",
            )
        elif key not in done:
            if isinstance(node, relax.SeqExpr):
                for block in node.blocks:
                    values |= {graph.key(one.var): one.value for one in block.bindings}
            if isinstance(node, relax.Var):
                open_.add(key)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(inner(node)))
    return done[graph.key(expr)]


def substitute(
    expr: relax.Expr, values: Mapping[relax.Var, relax.Expr], infer: bool = True
) -> relax.Expr:
    """Put expressions in the place of a graph's variables."""
    by_key = {graph.key(var): value for var, value in values.items()}
    return graph.transform(flat(expr), lambda _, after: by_key.get(graph.key(after), after), infer)
