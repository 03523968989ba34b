"""Rewriting: callbacks that replace what their patterns match, until nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from ..graph import key
from .groups import Group, groups
from .pattern import DFPattern
from .view import Head, View, in_form_of, to_graph, typed

_ROUNDS = 100


class DFPatternCallback:
    """A rule for rewriting: set `pattern` in the constructor and write `callback`.

    Parameters
    ----------
    require_type : bool
        Whether the callback needs types. Graphs of typed variables have them anyway; this makes
        one without an error.
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
        """Give what takes a match's place.

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
    """Rewrite a graph with one rule or several, in turn, until a round changes nothing.

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
    first = root = to_graph(expr)
    finished: set[DFPatternCallback] = set()
    rounds = 0
    while True:
        last = root
        for rule in rules:
            if rule not in finished:
                before = root
                root = _once(rule, root)
                rounds += 1
                if rule.rewrite_once and not same_graph(before, root):
                    finished.add(rule)
        if same_graph(last, root):
            return in_form_of(expr, first, root)
        if rounds >= _ROUNDS:
            raise RelayError(
                f"After {rounds} rounds of rewriting the graph still changes.",
                where=", ".join(type(rule).__name__ for rule in rules),
                fix="Look for rules that undo each other, or use rewrite_once=True.",
            )


def _once(rule: DFPatternCallback, root: relax.Expr) -> relax.Expr:
    if rule.pattern is None:
        raise RelayError(
            "A callback has no pattern.",
            where=type(rule).__name__,
            fix="Set self.pattern in its constructor.",
        )
    if rule.require_type:
        _require_types(root)
    index, found = groups(rule.pattern, root)
    done: dict[int, relax.Expr] = {}
    for node in index.order:
        parts = [done[key(part)] for part in index.view.parts(node)]
        done[key(node)] = post = index.view.rebuild(node, parts)
        group = found.get(key(node))
        if group is not None:
            made = rule.callback(node, post, _rewritten(group, done))
            done[key(node)] = typed(_expression(made, rule))
    return done[key(root)]


def _expression(made: Any, rule: DFPatternCallback) -> relax.Expr:
    """Take what a callback gave, or raise `RelayError`."""
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


def _rewritten(group: Group, done: dict[int, relax.Expr]) -> dict[DFPattern, list[relax.Expr]]:
    """Say what each part of a pattern matched, as it is now."""
    return {
        pattern: [m.op if isinstance(m, Head) else done.get(key(m), m) for m in matches]
        for pattern, matches in group.found.items()
    }


def _require_types(root: relax.Expr) -> None:
    for node in View().order(root):
        if isinstance(node, relax.Var) and (node.ty is None or type(node.ty) is ir.Type):
            raise RelayError(
                f"The variable {node.name} has no type, and a callback requires types.",
                where="rewrite",
                fix="Give it one: relay.var(name, shape=..., dtype=...).",
            )


def same_graph(a: relax.Expr, b: relax.Expr) -> bool:
    """Say whether two graphs are structurally equal, however deep they are.

    Notes
    -----
    TVM's own comparison recurses into what an expression is made of, and ends the process where
    that is some thousand calls deep. Here each expression is compared by its own content and the
    classes of its parts; free variables are equal to themselves only.
    """
    if a.same_as(b):
        return True
    view = View()
    classes: dict[Any, int] = {}
    of: dict[int, int] = {}
    for root in (a, b):
        for node in view.order(root):
            parts = tuple(of[key(part)] for part in view.parts(node))
            content = (*_content(node, view), parts)
            of[key(node)] = classes.setdefault(content, len(classes))
    return of[key(a)] == of[key(b)]


def _content(node: relax.Expr, view: View) -> tuple[Any, ...]:
    """Give what an expression is besides its parts, as something to hash."""
    if isinstance(node, relax.Call):
        op = str(node.op.name) if isinstance(node.op, ir.Op) else ""
        shown = {key(part) for part in view.parts(node)}
        # What Relax has as operands and Relay does not: a shape, the bounds of a clip.
        more = tuple(tvm_ffi.StructuralKey(arg) for arg in node.args if key(arg) not in shown)
        return "call", op, tvm_ffi.StructuralKey(node.attrs) if node.attrs else None, more
    if isinstance(node, relax.TupleGetItem):
        return "field", int(node.index)
    if isinstance(node, (relax.Tuple, relax.If)):
        return (type(node).__name__,)
    if isinstance(node, relax.Function):
        attrs = tvm_ffi.StructuralKey(node.attrs) if node.attrs else None
        return "function", tuple(key(param) for param in node.params), attrs
    if isinstance(node, relax.SeqExpr):
        return ("let",)
    return (key(node),) if isinstance(node, relax.Var) else (tvm_ffi.StructuralKey(node),)
