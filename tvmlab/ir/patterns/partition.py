"""Partitioning: each match of a pattern becomes a function of its own, and a call of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from .. import graph
from ..graph import key
from . import pattern as p
from .groups import groups
from .view import function, in_form_of, to_graph


def partition(
    pattern: p.DFPattern,
    expr: relax.Expr,
    attrs: dict[str, Any] | None = None,
    check: Callable[[relax.Expr], Any] = lambda x: True,
) -> Any:
    """Put each match of a pattern into a function of its own.

    Parameters
    ----------
    pattern : DFPattern
        What to look for.
    expr : tvm.relax.Expr
        Where: a graph, bindings or a function.
    attrs : dict, optional
        Attributes for the functions, besides ``PartitionedFromPattern``.
    check : callable
        Gets what a match stands for (a graph); false leaves it as it is.

    Returns
    -------
    tvm.relax.Expr
        The graph with calls of the functions; a function with bindings comes back with bindings.
        Parameters are named ``FunctionVar_i_j``; constants become arguments unless the pattern
        asked for a constant.

    Notes
    -----
    The source is PatternPartitioner in TVM's ``src/relay/ir/dataflow_matcher.cc``.
    """
    root = to_graph(expr)
    if isinstance(pattern, p.FunctionPattern):
        return expr  # Relay does not cut out a function that nobody calls.
    index, found = groups(pattern, root)
    done: dict[int, relax.Expr] = {}
    for node in index.order:
        parts = [done[key(part)] for part in index.view.parts(node)]
        done[key(node)] = index.view.rebuild(node, parts)
        group = found.get(key(node))
        if group is not None and bool(check(node)):
            named = {"PartitionedFromPattern": group.name, **(attrs or {})}
            made = function(group.params, group.body, named)
            call = relax.Call(made, [done[key(arg)] for arg in group.args])
            done[key(node)] = graph.typed(call)
    return in_form_of(expr, root, done[key(root)])
