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
from ..module import infer_type, normalize
from . import pattern as p
from .pattern import DFPattern, Found, Matcher
from .view import DominatorTree, OperatorName, View, in_form_of

__all__ = ["DFPatternCallback", "partition", "rewrite", "rewrite_functions"]

_ROUNDS = 100


class DFPatternCallback:
    """A rule for rewriting: set `pattern` in the constructor and write `callback`.

    Parameters
    ----------
    require_type : bool
        Relay's; without effect, because graphs have their types.
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
        Relay's; nothing is looked up in it.

    Returns
    -------
    tvm.relax.Expr
        The graph; a function with bindings comes back with bindings.

    Raises
    ------
    RelayError
        After a hundred rounds, for a rule without a pattern, or a callback's result that is no
        expression.
    """
    rules = [callbacks] if isinstance(callbacks, DFPatternCallback) else list(callbacks)
    first = root = inline_bindings(expr, functions=True)
    for _ in range(_ROUNDS):
        last = root
        for rule in list(rules):
            before, root = root, _rewrite_once(rule, root)
            if rule.rewrite_once and not same_graph(before, root):
                rules.remove(rule)
        if same_graph(last, root):
            return in_form_of(expr, first, root)
    where = ", ".join(type(rule).__name__ for rule in rules)
    fix = "Look for rules that undo each other, or use rewrite_once=True."
    what = f"After {_ROUNDS} rounds of rewriting the graph still changes."
    raise RelayError(what, where=where, fix=fix)


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
    return in_form_of(expr, root, cut_graph(pattern, root, attrs or {}, check))


def cut_graph(
    pattern: DFPattern, root: relax.Expr, attrs: dict[str, Any], check: Callable[[relax.Expr], Any]
) -> relax.Expr:
    """Put each match of a pattern in a graph without bindings into a function (`partition`)."""
    if isinstance(pattern, p.FunctionPattern):
        return root  # Relay does not cut out a function that nobody calls.

    def change(pre: relax.Expr, post: relax.Expr, match: Match, done: _Done) -> relax.Expr:
        if not bool(check(pre)):
            return post
        made = match.as_function(view, attrs)
        return graph.typed(relax.Call(made, [done[key(one)] for one in match.inputs]))

    view = View()
    return _replace(pattern, root, change, view)


DFPattern.partition = partition  # as a method too, which Relay's patterns have

_Done = dict[int, relax.Expr]  # the new expressions, by the keys of the old ones


def _replace(
    pattern: DFPattern,
    root: relax.Expr,
    change: Callable[[relax.Expr, relax.Expr, Match, _Done], relax.Expr],
    view: View,
) -> relax.Expr:
    """Rebuild a graph, with ``change(pre, post, match, done)`` in the place of each match."""
    tree = DominatorTree(root, view)
    matches = _Finder(pattern, tree).matches()
    if not matches:
        return root
    done: _Done = {}
    for node in tree.order:
        done[key(node)] = post = view.rebuild(node, [done[key(part)] for part in view.parts(node)])
        if key(node) in matches:
            done[key(node)] = change(node, post, matches[key(node)], done)
    return done[key(root)]


def _rewrite_once(rule: DFPatternCallback, root: relax.Expr) -> relax.Expr:
    def change(pre: relax.Expr, post: relax.Expr, match: Match, done: _Done) -> relax.Expr:
        return _apply(rule, pre, post, match.found, done)

    return _replace(p.checked(rule.pattern), root, change, View())


def rewrite_functions(mod: tvm.IRModule, rule: DFPatternCallback) -> tvm.IRModule:
    """Rewrite the body of every Relax function of a module with a rule, operands first.

    Unlike in `rewrite`, a match can use expressions that are used elsewhere. Functions with a
    `match_cast` and those of other compilers stay as they are.
    """
    pattern, view = p.checked(rule.pattern), View()

    def change(_: relax.Expr, expr: relax.Expr) -> relax.Expr:
        while isinstance(expr, relax.Call):
            matcher = Matcher(DominatorTree(expr, view))
            if not matcher.match(pattern, expr):
                break
            before, expr = expr, _apply(rule, expr, expr, matcher.found, {})
            if expr.same_as(before):
                break
        return expr

    return change_bodies(mod, lambda body, _: graph.transform(body, change), casts=False)


def attribute(function: relax.Function, name: str) -> str:
    """Return a function's attribute as a string, the empty one where it has none."""
    return str(function.attrs[name]) if function.attrs and name in function.attrs else ""


def change_bodies(
    mod: tvm.IRModule, change: Callable[[relax.Expr, str], relax.Expr], casts: bool = True
) -> tvm.IRModule:
    """Replace the body of each Relax function, a graph, by ``change(body, name of the function)``.

    Functions of other compilers stay, and without `casts` those with a `match_cast`.
    """
    made = {}
    with graph.no_collection():
        mod = normalize(mod)
        for var, function in mod.functions_items():
            if not isinstance(function, relax.Function):
                continue
            compiled = attribute(function, "Compiler") or attribute(function, "Codegen")
            bindings = (one for block in function.body.blocks for one in block.bindings)
            has_cast = any(isinstance(one, relax.MatchCast) for one in bindings)
            if compiled or (has_cast and not casts):
                continue
            before = inline_bindings(function.body)
            after = change(before, str(var.name_hint))
            if not after.same_as(before):
                made[var] = graph.to_anf(function.params, after, function.attrs)
        if made:
            mod = mod.clone()
            mod.update(tvm.IRModule(made))
    return mod


def _apply(
    rule: DFPatternCallback, pre: relax.Expr, post: relax.Expr, found: Found, done: _Done
) -> relax.Expr:
    """Return what a rule makes of a match, `post` itself where that is the same graph."""
    node_map = {
        part: [one.op if isinstance(one, OperatorName) else done.get(key(one), one) for one in all_]
        for part, all_ in found.items()
    }
    made: Any = rule.callback(pre, post, node_map)
    # Relay's operators with several results return a wrapper around the tuple.
    if not isinstance(made, ir.Expr) and hasattr(made, "__tvm_ffi_object__"):
        made = made.__tvm_ffi_object__()
    if not isinstance(made, ir.Expr):
        what = f"A callback returned {made!r}, which is no expression."
        fix = "Return what takes the match's place; return post to change nothing."
        raise RelayError(what, where=f"{type(rule).__name__}.callback", fix=fix)
    return post if same_graph(infer_type(made), post) else made


def same_graph(a: relax.Expr, b: relax.Expr) -> bool:
    """Return whether two graphs are structurally equal; TVM's own comparison cannot go deep."""
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
    if isinstance(expr, relax.Function):
        return [*expr.params, expr.attrs], [graph.body_of(expr.body)]
    if (let := graph.let_binding(expr)) is not None:
        return let.var, [let.value, expr.body]
    parts = graph.children(expr)
    if isinstance(expr, relax.Call):
        return [expr.op if isinstance(expr.op, ir.Op) else None, expr.attrs], parts
    return (getattr(expr, "index", 0) if parts else expr), parts


@dataclass(frozen=True)
class Match:
    """One match: what each part of the pattern matched, what it reads, and what is in between."""

    found: Found
    number: int
    inputs: list[relax.Expr]
    inside: list[relax.Expr]

    def as_function(self, view: View, attrs: dict[str, Any]) -> relax.Function:
        """Return the match as a function of what it reads."""
        prefix = f"FunctionVar_{self.number}_"
        params = [relax.Var(f"{prefix}{i}", _annotation(one)) for i, one in enumerate(self.inputs)]
        new: dict[int, relax.Expr] = dict(zip(map(key, self.inputs), params, strict=True))
        for expr in self.inside:
            new[key(expr)] = view.rebuild(expr, [new[key(part)] for part in view.parts(expr)])
        for param in params:
            # Only now: Relay types nothing inside by a parameter that has no annotation.
            if not graph.has_type(param):
                relax.expr._update_type(param, graph.UNKNOWN)
        name = "".join(_name(expr, view) for expr in self.inside)
        named = {"PartitionedFromPattern": name, **attrs}
        return graph.function(params, new[key(self.inside[-1])], named)


def _name(expr: relax.Expr, view: View) -> str:
    if isinstance(expr, relax.Call):
        return f"{min(view.names(expr), default='Call')}_"
    if isinstance(expr, relax.TupleGetItem):
        return f"TupleGetItem{expr.index}_"
    names = {relax.Tuple: "Tuple_", relax.Function: "Function", relax.SeqExpr: "Let_"}
    return "If_" if isinstance(expr, relax.If) else names.get(type(expr), "")


def _annotation(expr: relax.Expr) -> ir.Type | None:
    """Return an input's type for its parameter, or None where a part of the type is unknown."""
    found = expr.ty
    if isinstance(found, relax.TensorType):
        whole = isinstance(found.shape, relax.ShapeExpr) and found.dtype is not None
        return found if whole else None
    return found if graph.has_type(expr) else None


class _Finder:
    """Finds all matches in a graph, as PatternGrouper in TVM's ``dataflow_matcher.cc`` does."""

    def __init__(self, pattern: DFPattern, tree: DominatorTree) -> None:
        self.parts = p.patterns(pattern)
        self.tree, self.view = tree, tree.view
        self.taken: set[int] = set()
        self.tried = 0

    def matches(self) -> dict[int, Match]:
        matcher, matches = Matcher(self.tree), {}
        partitioned: set[int] = set()
        for expr in reversed(self.tree.order):
            if key(expr) in self.taken:
                continue
            if isinstance(expr, relax.Function) and "PartitionedFromPattern" in expr.attrs:
                partitioned.update(key(inner) for inner in self.view.order(expr))
            if key(expr) in partitioned or not matcher.match(self.parts[-1], expr):
                continue
            inputs = self._inputs(matcher.found)
            ends = frozenset(map(key, inputs))
            inside = [one for one in self.view.order(expr, ends) if key(one) not in ends]
            # A root that is an input itself leaves nothing inside: Relay rewrites no such match.
            if inside and self._is_separable(expr, inside):
                self.taken.update(map(key, inside))
                matches[key(expr)] = Match(matcher.found, self.tried, inputs, inside)
            self.tried += 1
        return matches

    def _inputs(self, found: Found) -> list[relax.Expr]:
        """List what the smallest parts of the pattern matched, in the pattern's order."""
        # What is on a dominator's path or in a matched function is no input.
        inner: set[int] = set()
        for pattern in self.parts:
            if isinstance(pattern, p.DominatorPattern):
                for part in (pattern.parent, pattern.path):
                    inner.update(map(key, found.get(part, ())))
            if isinstance(pattern, p.FunctionPattern):
                for match in found.get(pattern, ()):
                    inner.update(map(key, [*self.view.order(match), *match.params]))
        inputs: dict[int, relax.Expr] = {}
        for pattern in self.parts:
            # A constant stays inside where the pattern asks for a constant.
            inlined: tuple[Any, ...] = (OperatorName, ir.Op, relax.Function)
            if isinstance(pattern, (p.ConstantPattern, p.ExprPattern)):
                inlined += (ir.GenericConst,)
            for match in found.get(pattern, ()):
                for expr in self._leaves(pattern, match):
                    if not isinstance(expr, inlined) and key(expr) not in inner:
                        inputs.setdefault(key(expr), expr)
        return list(inputs.values())

    def _leaves(self, pattern: DFPattern, match: p.Node) -> list[p.Node]:
        if isinstance(pattern, p.TuplePattern) and pattern.fields is None:
            return list(match.fields)
        if isinstance(pattern, p.CallPattern) and pattern.args is None:
            return list(self.view.call(match).operands)
        return [] if pattern.parts() else [match]

    def _is_separable(self, root: relax.Expr, inside: list[relax.Expr]) -> bool:
        """Return whether no other match and no expression outside uses the inner expressions."""
        keys = set(map(key, inside))
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
