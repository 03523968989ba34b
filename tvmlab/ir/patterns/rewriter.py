"""Rewriting and partitioning: what takes the place of the expressions that a pattern matches.

Matches are looked for from the result backwards, so that the largest comes first. A match that
overlaps an earlier one, or whose inner expressions are used outside of it, does not count.
"""

from __future__ import annotations

import functools
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
from .view import DominatorTree, OperatorName, View, in_form_of, is_partitioned

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
    return in_form_of(expr, root, cut_graph([(attrs or {}, pattern, check)], root))


Cut = tuple[dict[str, Any], DFPattern, Callable[[relax.Expr], Any]]
"""The attributes of the functions, the pattern and the check of one call of `partition`."""


def cut_graph(cuts: Sequence[Cut], root: relax.Expr) -> relax.Expr:
    """Put the matches of patterns in a graph without bindings into functions (`partition`)."""
    tree = DominatorTree(root, View())
    for cut in cuts:
        # Relay does not cut out a function that nothing calls.
        if not isinstance(cut[1], p.FunctionPattern):
            made = _replace(cut[1], tree, functools.partial(_cut_out, cut, tree.view))
            tree = tree if made.same_as(tree.root) else DominatorTree(made, tree.view)
    return tree.root


def _cut_out(
    cut: Cut, view: View, pre: relax.Expr, post: relax.Expr, match: Match, done: _Done
) -> relax.Expr:
    attrs, _, check = cut
    if not bool(check(pre)):
        return post
    made = match.as_function(view, attrs)
    return graph.typed(relax.Call(made, [done[key(one)] for one in match.inputs]))


DFPattern.partition = partition  # as a method too, which Relay's patterns have

_Done = dict[int, relax.Expr]  # the new expressions, by the keys of the old ones


def _replace(
    pattern: DFPattern,
    tree: DominatorTree,
    change: Callable[[relax.Expr, relax.Expr, Match, _Done], relax.Expr],
) -> relax.Expr:
    """Rebuild a graph, with ``change(pre, post, match, done)`` in the place of each match."""
    matches, view = _Finder(pattern, tree).matches(), tree.view
    if not matches:
        return tree.root
    done, new = _Done(), list(tree.order)
    for place, (node, parts) in enumerate(zip(tree.order, tree.parts, strict=True)):
        if any(new[part] is not tree.order[part] for part in parts):
            new[place] = view.rebuild(node, [new[part] for part in parts])
        if (match := matches.get(key(node))) is not None:
            new[place] = change(node, new[place], match, done)
        done[key(node)] = new[place]
    return new[-1]


def _rewrite_once(rule: DFPatternCallback, root: relax.Expr) -> relax.Expr:
    def change(pre: relax.Expr, post: relax.Expr, match: Match, done: _Done) -> relax.Expr:
        return _apply(rule, pre, post, match.found, done)

    return _replace(p.checked(rule.pattern), DominatorTree(root, View()), change)


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
    mod: tvm.IRModule,
    change: Callable[[relax.Expr, str], relax.Expr],
    casts: bool = True,
    functions: bool = False,
) -> tvm.IRModule:
    """Replace the body of each Relax function, a graph, by ``change(body, name of the function)``.

    Functions of other compilers stay, and without `casts` those with a `match_cast`. With
    `functions` the bodies of functions inside are graphs too.
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
            before = inline_bindings(function.body, functions)
            if isinstance(before, relax.SeqExpr):  # a body of one binding is no `let`
                before = inline_bindings(inline_bindings(function.body), functions)
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


def _is_leaf(pattern: DFPattern) -> bool:
    """Return whether a pattern has no parts, or any operands or fields match it."""
    if isinstance(pattern, p.TuplePattern):
        return pattern.fields is None
    return pattern.args is None if isinstance(pattern, p.CallPattern) else not pattern.parts()


class _Finder:
    """Finds all matches in a graph, as PatternGrouper in TVM's ``dataflow_matcher.cc`` does."""

    def __init__(self, pattern: DFPattern, tree: DominatorTree) -> None:
        self.parts = p.patterns(pattern)
        # The parts that match what a match reads, and those whose matches lie inside of one.
        self.leaves = [part for part in self.parts if _is_leaf(part)]
        self.inner = [
            part for part in self.parts if isinstance(part, (p.DominatorPattern, p.FunctionPattern))
        ]
        self.tree, self.view = tree, tree.view
        self.taken: set[int] = set()
        self.tried = 0

    def matches(self) -> dict[int, Match]:
        matcher, matches, pattern = Matcher(self.tree), {}, self.parts[-1]
        roots = pattern.roots()
        for expr in reversed(self.tree.order if roots is None else self.tree.calls(roots)):
            if key(expr) in self.taken or is_partitioned(expr):
                continue
            if not matcher.match(pattern, expr):
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
        for whole in self.inner:
            if isinstance(whole, p.DominatorPattern):
                for part in (whole.parent, whole.path):
                    inner.update(map(key, found.get(part, ())))
            else:
                for match in found.get(whole, ()):
                    inner.update(map(key, [*self.view.order(match), *match.params]))
        inputs: dict[int, relax.Expr] = {}
        for pattern in self.leaves:
            # A constant stays inside where the pattern asks for a constant.
            inlined: tuple[Any, ...] = (OperatorName, ir.Op, relax.Function)
            if isinstance(pattern, (p.ConstantPattern, p.ExprPattern)):
                inlined += (ir.GenericConst,)
            for match in found.get(pattern, ()):
                for expr in self._read_by(pattern, match):
                    if type(expr) not in inlined and key(expr) not in inner:
                        inputs.setdefault(key(expr), expr)
        return list(inputs.values())

    def _read_by(self, pattern: DFPattern, match: p.Node) -> list[p.Node]:
        if isinstance(pattern, p.TuplePattern):
            return list(match.fields)
        return (
            list(self.view.call(match).operands) if isinstance(pattern, p.CallPattern) else [match]
        )

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
