"""Rewriting and partitioning: replacing the expressions that a pattern matches.

The search for matches runs backwards from the result, so that the largest match comes first. A
match that overlaps an earlier one, or whose inner expressions are used outside it, is skipped.
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
    """A rewrite rule: set `pattern` in the constructor and write `callback`.

    Parameters
    ----------
    require_type : bool
        An argument of Relay without effect, because graphs have types.
    rewrite_once : bool
        Whether the rule stops after the first round in which it changed something.
    """

    def __init__(self, require_type: bool = False, rewrite_once: bool = False) -> None:
        self.pattern: DFPattern | None = None
        self.require_type = require_type
        self.rewrite_once = rewrite_once

    def rewrite(self, expr: relax.Expr) -> Any:
        """Rewrite with this rule only (see `rewrite`)."""
        return rewrite(self, expr)

    def callback(
        self, pre: relax.Expr, post: relax.Expr, node_map: dict[DFPattern, list[relax.Expr]]
    ) -> relax.Expr:
        """Return the replacement for a match.

        Parameters
        ----------
        pre : tvm.relax.Expr
            The match before the rewriting.
        post : tvm.relax.Expr
            The match with its inputs already rewritten; return it to change nothing.
        node_map : dict of DFPattern to list of tvm.relax.Expr
            The expressions that each part of the pattern matched, already rewritten.
        """
        raise NotImplementedError("a subclass of DFPatternCallback must define callback")


def rewrite(
    callbacks: DFPatternCallback | Sequence[DFPatternCallback],
    expr: relax.Expr,
    mod: tvm.IRModule | None = None,
) -> Any:
    """Rewrite a graph with one or several rules, alternately, until a round changes nothing.

    Parameters
    ----------
    callbacks : DFPatternCallback or sequence of DFPatternCallback
        The rules.
    expr : tvm.relax.Expr
        A graph, bindings or a function.
    mod : tvm.IRModule, optional
        An argument of Relay without effect.

    Returns
    -------
    tvm.relax.Expr
        The graph; a function with bindings is returned with bindings.

    Raises
    ------
    RelayError
        If the graph still changes after a hundred rounds, a rule has no pattern, or a callback
        returns something other than an expression.
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
    what = f"The graph still changes after {_ROUNDS} rounds of rewriting."
    raise RelayError(what, where=where, fix=fix)


def partition(
    pattern: DFPattern,
    expr: relax.Expr,
    attrs: dict[str, Any] | None = None,
    check: Callable[[relax.Expr], Any] = lambda x: True,
) -> Any:
    """Replace each match of a pattern by a call of a new function.

    Parameters
    ----------
    pattern : DFPattern
        The pattern to match.
    expr : tvm.relax.Expr
        The graph, bindings or function to search.
    attrs : dict, optional
        Attributes for the functions, in addition to ``PartitionedFromPattern``.
    check : callable
        Gets the matched expression (a graph), and returns whether to replace it.

    Returns
    -------
    tvm.relax.Expr
        The graph with calls of the functions; a function with bindings is returned with bindings.
        Parameters are named ``FunctionVar_i_j``; a constant becomes an argument unless the pattern
        contains a constant pattern for it.
    """
    root = inline_bindings(expr, functions=True)
    return in_form_of(expr, root, cut_graph([(attrs or {}, pattern, check)], root))


Cut = tuple[dict[str, Any], DFPattern, Callable[[relax.Expr], Any]]
"""The attributes of the new functions, the pattern and the check of a call of `partition`."""


def cut_graph(cuts: Sequence[Cut], root: relax.Expr) -> relax.Expr:
    """Replace matches of patterns by functions in a graph without bindings (see `partition`)."""
    tree = DominatorTree(root, View())
    for cut in cuts:
        # Relay does not partition a function that nothing calls.
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


DFPattern.partition = partition  # a method of Relay's patterns too

_Done = dict[int, relax.Expr]  # the new expressions, by the keys of the old ones


def _replace(
    pattern: DFPattern,
    tree: DominatorTree,
    change: Callable[[relax.Expr, relax.Expr, Match, _Done], relax.Expr],
) -> relax.Expr:
    """Rebuild a graph, replacing each match by ``change(pre, post, match, done)``."""
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

    Unlike in `rewrite`, expressions of a match can be used elsewhere. Functions with a `match_cast`
    and functions of other compilers are kept.
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
    """Return a function's attribute as a string, empty if it has no such attribute."""
    return str(function.attrs[name]) if function.attrs and name in function.attrs else ""


def change_bodies(
    mod: tvm.IRModule,
    change: Callable[[relax.Expr, str], relax.Expr],
    casts: bool = True,
    functions: bool = False,
) -> tvm.IRModule:
    """Replace the body of each Relax function, as a graph, by ``change(body, function name)``.

    Functions of other compilers are kept, and without `casts` also those with a `match_cast`. With
    `functions` the bodies of nested functions are graphs too.
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
            if isinstance(before, relax.SeqExpr):  # a body of one binding is not a `let`
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
    """Return a rule's replacement for a match, or `post` itself if it is the same graph."""
    node_map = {
        part: [one.op if isinstance(one, OperatorName) else done.get(key(one), one) for one in all_]
        for part, all_ in found.items()
    }
    made: Any = rule.callback(pre, post, node_map)
    # Relay's operators with several results return a wrapper of the tuple.
    if not isinstance(made, ir.Expr) and hasattr(made, "__tvm_ffi_object__"):
        made = made.__tvm_ffi_object__()
    if not isinstance(made, ir.Expr):
        what = f"A callback returned {made!r}, which is not an expression."
        fix = "Return the replacement of the match; return post to change nothing."
        raise RelayError(what, where=f"{type(rule).__name__}.callback", fix=fix)
    return post if same_graph(infer_type(made), post) else made


def same_graph(a: relax.Expr, b: relax.Expr) -> bool:
    """Return whether two graphs are structurally equal; TVM's comparison cannot recurse deeply."""
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
    """One match: the matches of the pattern's parts, its inputs, and the expressions inside."""

    found: Found
    number: int
    inputs: list[relax.Expr]
    inside: list[relax.Expr]

    def as_function(self, view: View, attrs: dict[str, Any]) -> relax.Function:
        """Return the match as a function of its inputs."""
        prefix = f"FunctionVar_{self.number}_"
        params = [relax.Var(f"{prefix}{i}", _annotation(one)) for i, one in enumerate(self.inputs)]
        new: dict[int, relax.Expr] = dict(zip(map(key, self.inputs), params, strict=True))
        for expr in self.inside:
            new[key(expr)] = view.rebuild(expr, [new[key(part)] for part in view.parts(expr)])
        for param in params:
            # Set this type last, because in Relay expressions inside do not get types from it.
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
    """Return the type of an input's parameter, or None if a part of the type is unknown."""
    found = expr.ty
    if isinstance(found, relax.TensorType):
        whole = isinstance(found.shape, relax.ShapeExpr) and found.dtype is not None
        return found if whole else None
    return found if graph.has_type(expr) else None


def _is_leaf(pattern: DFPattern) -> bool:
    """Return whether a pattern has no parts, or accepts any operands or fields."""
    if isinstance(pattern, p.TuplePattern):
        return pattern.fields is None
    return pattern.args is None if isinstance(pattern, p.CallPattern) else not pattern.parts()


class _Finder:
    """Finder of all matches in a graph, like PatternGrouper in TVM's ``dataflow_matcher.cc``."""

    def __init__(self, pattern: DFPattern, tree: DominatorTree) -> None:
        self.parts = p.patterns(pattern)
        # The parts that match inputs, and the parts whose matches are inside.
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
            # If the root is an input, nothing is inside, and Relay does not rewrite the match.
            if inside and self._is_separable(expr, inside):
                self.taken.update(map(key, inside))
                matches[key(expr)] = Match(matcher.found, self.tried, inputs, inside)
            self.tried += 1
        return matches

    def _inputs(self, found: Found) -> list[relax.Expr]:
        """List the matches of the smallest parts of the pattern, in the pattern's order."""
        # Expressions on a dominator's path or in a matched function are not inputs.
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
            # A constant stays inside if the pattern has a constant pattern.
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
        """Return whether neither another match nor an outside expression uses inner expressions."""
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
