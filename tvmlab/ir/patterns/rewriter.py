"""Rewriting and partitioning: what takes the place of the expressions that a pattern matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import graph
from ..graph import inline_bindings, key
from ..inference import infer_type
from .find_matches import Match, find_matches
from .matcher import Node
from .pattern import DFPattern, FunctionPattern
from .relay_call import OperatorName, in_form_of

__all__ = ["DFPatternCallback", "partition", "rewrite"]

_ROUNDS = 100


class DFPatternCallback:
    """A rule for rewriting: set `pattern` in the constructor and write `callback`.

    Parameters
    ----------
    require_type : bool
        Whether the callback needs types. Graphs of typed variables have them anyway; with this, a
        variable without a type is an error.
    rewrite_once : bool
        Whether the rule is done after the first round in which it changed something.
    """

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern: DFPattern | None = None
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: relax.Expr) -> Any:
        """Rewrite with this rule alone (see `rewrite`)."""
        return rewrite(self, expr)

    def callback(
        self, pre: relax.Expr, post: relax.Expr, node_map: dict[DFPattern, list[relax.Expr]]
    ) -> relax.Expr:
        """Return the replacement for a match.

        Parameters
        ----------
        pre : tvm.relax.Expr
            The match as it was.
        post : tvm.relax.Expr
            The same with its inputs rewritten already; returned, it changes nothing.
        node_map : dict of DFPattern to list of tvm.relax.Expr
            What each part of the pattern matched, rewritten already.
        """
        raise NotImplementedError("a DFPatternCallback has to have a callback")


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback],
    expr: relax.Expr,
    mod: tvm.IRModule | None = None,
) -> Any:
    """Rewrite a graph with one rule or several, alternately, until a round changes nothing.

    Parameters
    ----------
    callbacks : DFPatternCallback or sequence of DFPatternCallback
        The rules.
    expr : tvm.relax.Expr
        A graph, bindings or a function.
    mod : tvm.IRModule, optional
        The module that the expression belongs to. Its functions carry their types with them, so
        nothing is looked up in it.

    Returns
    -------
    tvm.relax.Expr
        The graph; a function with bindings comes back with bindings.

    Raises
    ------
    RelayError
        If a hundred rounds were not enough, a rule has no pattern, a callback returns no
        expression, or a rule that requires types meets an expression without.

    Notes
    -----
    The source is PatternRewriter in TVM's ``src/relay/ir/dataflow_matcher.cc``.
    """
    rules = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    names = ", ".join(type(rule).__name__ for rule in rules)
    first = root = inline_bindings(expr, functions=True)
    for _ in range(_ROUNDS):
        last = root
        for rule in list(rules):
            before, root = root, _rewrite_matches(rule, root)
            if rule.rewrite_once and not same_graph(before, root):
                rules.remove(rule)
        if same_graph(last, root):
            return in_form_of(expr, first, root)
    raise RelayError(
        f"After {_ROUNDS} rounds of rewriting the graph still changes.",
        where=names,
        fix="Look for rules that undo each other, or use rewrite_once=True.",
    )


def partition(
    pattern: DFPattern,
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
        Gets the matched expression (a graph); false leaves it as it is.

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
    root = inline_bindings(expr, functions=True)
    if isinstance(pattern, FunctionPattern):
        return expr  # Relay does not cut out a function that nobody calls.

    def change(pre: relax.Expr, post: relax.Expr, match: Match, done: _Done) -> relax.Expr:
        if not bool(check(pre)):
            return post
        named = {"PartitionedFromPattern": match.name, **(attrs or {})}
        made = graph.function(match.params, match.body, named)
        return graph.typed(relax.Call(made, [done[key(one)] for one in match.inputs]))

    return in_form_of(expr, root, _replace(pattern, root, change))


# As a method too, which Relay's patterns have.
DFPattern.partition = partition

_Done = dict[int, relax.Expr]
"""The new expression for each expression of the old graph, by its identity."""


def _replace(
    pattern: DFPattern,
    root: relax.Expr,
    change: Callable[[relax.Expr, relax.Expr, Match, _Done], relax.Expr],
) -> relax.Expr:
    """Rebuild a graph, with ``change(pre, post, match, done)`` in the place of each match."""
    tree, matches = find_matches(pattern, root)
    if not matches:
        return root
    done: _Done = {}
    for node in tree.order:
        parts = [done[key(part)] for part in tree.view.parts(node)]
        done[key(node)] = post = tree.view.rebuild(node, parts)
        if key(node) in matches:
            done[key(node)] = change(node, post, matches[key(node)], done)
    return done[key(root)]


def _rewrite_matches(rule: DFPatternCallback, root: relax.Expr) -> relax.Expr:
    """Rewrite each match of a rule once; the same object where no callback changed anything."""
    if rule.pattern is None:
        raise RelayError(
            "A callback has no pattern.",
            where=type(rule).__name__,
            fix="Set self.pattern in its constructor.",
        )
    if rule.require_type:
        _require_types(root)

    def change(pre: relax.Expr, post: relax.Expr, match: Match, done: _Done) -> relax.Expr:
        found = {
            part: [
                one if isinstance(one, OperatorName) else done.get(key(one), one) for one in matched
            ]
            for part, matched in match.found.items()
        }
        return apply_callback(rule, pre, post, found)

    return _replace(rule.pattern, root, change)


def apply_callback(
    rule: DFPatternCallback, pre: relax.Expr, post: relax.Expr, found: dict[DFPattern, list[Node]]
) -> relax.Expr:
    """Return what a rule makes of a match, `post` itself where that is the same graph."""
    node_map = {
        part: [one.op if isinstance(one, OperatorName) else one for one in matched]
        for part, matched in found.items()
    }
    made = infer_type(_expression(rule.callback(pre, post, node_map), rule))
    return post if same_graph(made, post) else made


def _expression(made: Any, rule: DFPatternCallback) -> relax.Expr:
    """Return a callback's result as an expression, or raise `RelayError`."""
    # Relay's operators with several results give a wrapper around the tuple.
    if not isinstance(made, ir.Expr) and hasattr(made, "__tvm_ffi_object__"):
        made = made.__tvm_ffi_object__()
    if not isinstance(made, ir.Expr):
        raise RelayError(
            f"A callback returned {made!r}, which is no expression.",
            where=f"{type(rule).__name__}.callback",
            fix="Return what takes the match's place; return post to change nothing.",
        )
    return made


def _require_types(root: relax.Expr) -> None:
    for node in graph.post_order(root):
        if isinstance(node, relax.Var) and (node.ty is None or type(node.ty) is ir.Type):
            raise RelayError(
                f"The variable {node.name} has no type, and a callback requires types.",
                where="rewrite",
                fix="Give it one: relay.var(name, shape=..., dtype=...).",
            )


def same_graph(a: relax.Expr, b: relax.Expr) -> bool:
    """Return whether two graphs are structurally equal; free variables equal themselves only.

    TVM's own comparison recurses, and ends the process on graphs some thousand calls deep.
    """
    seen: set[tuple[int, int]] = set()
    stack = [(a, b)]
    while stack:
        one, other = stack.pop()
        if one.same_as(other) or (key(one), key(other)) in seen:
            continue
        seen.add((key(one), key(other)))
        (content, parts), (other_content, other_parts) = _taken_apart(one), _taken_apart(other)
        if type(one) is not type(other) or len(parts) != len(other_parts):
            return False
        if not tvm_ffi.structural_equal(content, other_content):
            return False
        stack += zip(parts, other_parts, strict=True)
    return True


def _taken_apart(expr: relax.Expr) -> tuple[Any, list[relax.Expr]]:
    """Return what an expression holds besides its parts, and the parts."""
    if isinstance(expr, relax.Call):
        return [expr.op if isinstance(expr.op, ir.Op) else None, expr.attrs], graph.children(expr)
    if isinstance(expr, relax.TupleGetItem):
        return int(expr.index), [expr.tuple_value]
    if isinstance(expr, relax.Function):
        return [*expr.params, expr.attrs], [graph.body_of(expr.body)]
    if isinstance(expr, (relax.Tuple, relax.If)):
        return None, graph.children(expr)
    if (let := graph.let_binding(expr)) is not None:
        return let.var, [let.value, expr.body]
    return expr, []
