"""Matching a pattern against the expressions of a graph."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm import ir, relax

from ...errors import RelayError
from ..graph import inline_bindings
from .dominators import DominatorTree
from .relay_call import OperatorName, names_of

if TYPE_CHECKING:
    from .pattern import DFPattern

Node = Any
"""What a pattern is matched against: an expression of Relax, or the `OperatorName` of a call."""

# As many of Python's frames as the deepest graph needs; since Python 3.11 they lie on the heap.
_FRAMES = 1_000_000


class Matcher:
    """The state of matching patterns against expressions of one graph.

    As in Relay, an alternative that matched is not taken back when the pattern around it fails.
    After a match, `found` has the expressions that each part of the pattern matched.
    """

    def __init__(self, tree: DominatorTree) -> None:
        self.tree = tree
        self.view = tree.view
        self.found: dict[DFPattern, list[Node]] = {}
        #: Whether a pattern that has matched matches the same expression only.
        self.once = True
        self._matched: list[DFPattern] = []

    def match(self, pattern: DFPattern, expr: relax.Expr) -> bool:
        """Return whether an expression of the graph matches."""
        self.found, self._matched, self.once = {}, [], True
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, _FRAMES))
        try:
            return self.visit(pattern, expr)
        finally:
            sys.setrecursionlimit(limit)

    def visit(self, pattern: DFPattern, expr: Node) -> bool:
        """Return whether a part of the pattern matches a part of the graph."""
        if isinstance(expr, ir.Op):
            expr = OperatorName(expr, names_of(expr))
        before = self.found.get(pattern) if self.once else None
        if before:
            if len(before) > 1:
                raise RelayError(
                    "A pattern that matched several expressions is used for a single one.",
                    where=type(pattern).__name__,
                    fix="Use another pattern object there, made in the same way.",
                )
            same = isinstance(expr, OperatorName) or isinstance(before[0], OperatorName)
            return bool(before[0] == expr if same else before[0].same_as(expr))
        mark = self.mark()
        if not pattern._matches(expr, self):
            self.forget(mark)
            return False
        self.found.setdefault(pattern, []).append(expr)
        self._matched.append(pattern)
        return True

    def visit_all(self, patterns: Sequence[DFPattern] | None, exprs: Sequence[Node]) -> bool:
        """Return whether each pattern matches its expression; None stands for any expressions."""
        if patterns is None:
            return True
        if len(patterns) != len(exprs):
            return False
        for pattern, expr in zip(patterns, exprs, strict=True):  # noqa: SIM110 (`all` recurses in C)
            if not self.visit(pattern, expr):
                return False
        return True

    def mark(self) -> int:
        """Return the place to which `forget` can go back."""
        return len(self._matched)

    def forget(self, mark: int) -> None:
        """Forget all matches since a mark."""
        for pattern in self._matched[mark:]:
            self.found.pop(pattern, None)
        del self._matched[mark:]

    def calls(self, expr: Node, name: str) -> bool:
        """Return whether an expression calls the operator of this name."""
        if not isinstance(expr, relax.Call):
            return False
        head = self.view.call(expr).head
        return isinstance(head, OperatorName) and name in head.names


def match(pattern: DFPattern, expr: relax.Expr) -> bool:
    """Return whether an expression matches a pattern.

    Parameters
    ----------
    pattern : DFPattern
        The pattern.
    expr : tvm.relax.Expr
        A graph, a body of bindings (its result is matched), a function or an operator.

    Returns
    -------
    bool

    Raises
    ------
    RelayError
        If the answer depends on the type of an expression without one, or on an attribute of
        operators that is not known here.
    """
    root = inline_bindings(expr, functions=True)
    return Matcher(DominatorTree(root)).match(pattern, root)
