"""Rewriting and partitioning: what takes the place of the expressions that a pattern matches.

Matches are looked for from the result backwards, so that the largest comes first. A match that
overlaps an earlier one, or whose inner expressions are used outside of it, does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import graph
from ..graph import inline_bindings, key
from ..module import infer_type
from .pattern import (
    CallPattern,
    ConstantPattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    Matcher,
    Node,
    TuplePattern,
    patterns,
)
from .view import DominatorTree, OperatorName, in_form_of

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
    for node in graph.post_order(root) if rule.require_type else ():
        if isinstance(node, relax.Var) and (node.ty is None or type(node.ty) is ir.Type):
            raise RelayError(
                f"The variable {node.name} has no type, and a callback requires types.",
                where="rewrite",
                fix="Give it one: relay.var(name, shape=..., dtype=...).",
            )

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
    made: Any = rule.callback(pre, post, node_map)
    # Relay's operators with several results return a wrapper around the tuple.
    if not isinstance(made, ir.Expr) and hasattr(made, "__tvm_ffi_object__"):
        made = made.__tvm_ffi_object__()
    if not isinstance(made, ir.Expr):
        raise RelayError(
            f"A callback returned {made!r}, which is no expression.",
            where=f"{type(rule).__name__}.callback",
            fix="Return what takes the match's place; return post to change nothing.",
        )
    return post if same_graph(infer_type(made), post) else made


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


@dataclass(frozen=True)
class Match:
    """One match: what each part of the pattern matched, and the match as a function."""

    found: dict[DFPattern, list[Node]]
    name: str
    params: list[relax.Var]
    inputs: list[relax.Expr]
    body: relax.Expr


def find_matches(pattern: DFPattern, root: relax.Expr) -> tuple[DominatorTree, dict[int, Match]]:
    """Find all matches in a graph, by the identity of the expression that the pattern matches.

    As PatternGrouper in TVM's ``dataflow_matcher.cc`` does, this leaves the bodies of functions
    that a partition made alone.
    """
    tree = DominatorTree(root)
    finder = _Finder(pattern, tree)
    partitioned: set[int] = set()
    for expr in reversed(tree.order):
        if key(expr) in finder.taken:
            continue
        if isinstance(expr, relax.Function) and "PartitionedFromPattern" in expr.attrs:
            partitioned.update(key(inner) for inner in tree.view.order(expr))
        if key(expr) not in partitioned and finder.matcher.match(pattern, expr):
            finder.add(expr)
    return tree, finder.matches


class _Finder:
    def __init__(self, pattern: DFPattern, tree: DominatorTree) -> None:
        self.parts = patterns(pattern)
        self.tree, self.view = tree, tree.view
        self.matcher = Matcher(tree)
        self.matches: dict[int, Match] = {}
        self.taken: set[int] = set()
        self.tried = 0

    def add(self, root: relax.Expr) -> None:
        """Add the match that the matcher has just found, unless it has to be left alone."""
        found = self.matcher.found
        inputs = self._inputs(found)
        prefix = f"FunctionVar_{self.tried}_"
        params = [relax.Var(f"{prefix}{i}", _annotation(expr)) for i, expr in enumerate(inputs)]
        self.tried += 1
        ends = frozenset(key(expr) for expr in inputs)
        inside = [expr for expr in self.view.order(root, ends) if key(expr) not in ends]
        # A root that is an input itself leaves nothing inside: Relay rewrites no such match.
        if not inside or not self._is_separable(root, inside):
            return
        self.taken.update(key(expr) for expr in inside)
        new: dict[int, relax.Expr] = dict(zip(map(key, inputs), params, strict=True))
        for expr in inside:
            parts = [new[key(part)] for part in self.view.parts(expr)]
            new[key(expr)] = self.view.rebuild(expr, parts)
        for param in params:
            # Only now: Relay types nothing inside by a parameter that has no annotation.
            if not graph.has_type(param):
                relax.expr._update_type(param, graph.UNKNOWN)
        name = "".join(self._name(expr) for expr in inside)
        self.matches[key(root)] = Match(found, name, params, inputs, new[key(root)])

    def _inputs(self, found: dict[DFPattern, list[Node]]) -> list[relax.Expr]:
        """List what the smallest parts of the pattern matched, in the pattern's order."""
        inner = self._inner(found)
        inputs: dict[int, relax.Expr] = {}
        for pattern in self.parts:
            # A constant stays inside where the pattern asks for a constant.
            embeds = isinstance(pattern, (ConstantPattern, ExprPattern))
            for match in found.get(pattern, ()):
                for expr in self._leaves(pattern, match):
                    if isinstance(expr, (OperatorName, ir.Op, relax.Function)):
                        continue
                    if key(expr) not in inner and not (
                        embeds and isinstance(expr, ir.GenericConst)
                    ):
                        inputs.setdefault(key(expr), expr)
        return list(inputs.values())

    def _leaves(self, pattern: DFPattern, match: Node) -> list[Node]:
        if isinstance(pattern, TuplePattern) and pattern.fields is None:
            return list(match.fields)
        if isinstance(pattern, CallPattern) and pattern.args is None:
            return list(self.view.call(match).operands)
        return [] if pattern.parts() else [match]

    def _inner(self, found: dict[DFPattern, list[Node]]) -> set[int]:
        """Collect the expressions on a dominator's path and in a matched function: no inputs."""
        inner: set[int] = set()
        for pattern in self.parts:
            if isinstance(pattern, DominatorPattern):
                for part in (pattern.parent, pattern.path):
                    inner.update(key(expr) for expr in found.get(part, ()))
            if isinstance(pattern, FunctionPattern):
                for match in found.get(pattern, ()):
                    inner.update(key(expr) for expr in [*self.view.order(match), *match.params])
        return inner

    def _is_separable(self, root: relax.Expr, inside: list[relax.Expr]) -> bool:
        """Return whether no other match and no expression outside uses the inner expressions."""
        keys = {key(expr) for expr in inside}
        for expr in inside:
            if isinstance(expr, (relax.Function, ir.GenericConst)):
                continue
            if key(expr) in self.taken:
                return False
            if not expr.same_as(root) and any(
                key(user) not in keys and not self.tree.dominates(root, user)
                for user in self.tree.users(expr)
            ):
                return False
        return True

    def _name(self, expr: relax.Expr) -> str:
        if isinstance(expr, relax.Call):
            head = self.view.call(expr).head
            return f"{min(head.names)}_" if isinstance(head, OperatorName) else "Call_"
        if isinstance(expr, relax.TupleGetItem):
            return f"TupleGetItem{expr.index}_"
        return next((name for kind, name in _NAMES.items() if isinstance(expr, kind)), "")


_NAMES = {relax.Tuple: "Tuple_", relax.Function: "Function", relax.SeqExpr: "Let_",
          relax.If: "If_"}  # fmt: skip


def _annotation(expr: relax.Expr) -> ir.Type | None:
    """Return an input's type for its parameter, or None where a part of the type is unknown."""
    found = expr.ty
    if isinstance(found, relax.TensorType):
        whole = isinstance(found.shape, relax.ShapeExpr) and found.dtype is not None
        return found if whole else None
    return found if graph.has_type(expr) else None
