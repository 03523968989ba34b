"""A graph's expressions in order, who uses whom, and which use is the last of all."""

from __future__ import annotations

from functools import cached_property

from tvm import relax

from ..graph import key
from .relay_call import View


class DominatorTree:
    """The users of each expression of a graph, and the one user that all its uses lead to.

    The source is TVM's ``src/relay/ir/indexed_graph.{h,cc}``. Operators are no nodes here.

    Most patterns need no dominators, so everything is computed at its first use.
    """

    def __init__(self, root: relax.Expr, view: View | None = None) -> None:
        self.root = root
        self.view = view or View()

    @cached_property
    def order(self) -> list[relax.Expr]:
        """The graph's expressions, parts before the whole."""
        return self.view.order(self.root)

    @cached_property
    def _place(self) -> dict[int, int]:
        return {key(expr): place for place, expr in enumerate(self.order)}

    def inputs(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the expressions whose values an expression computes from: not the function called.

        The value of a `let` flows into the variable, and only the rest into the `let`.
        """
        if isinstance(expr, relax.Call):
            return self.view.call(expr).operands
        parts = self.view.parts(expr)
        return parts[2:] if isinstance(expr, relax.SeqExpr) else parts

    def users(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the expressions that an expression is a part of."""
        return [self.order[place] for place in self._users[self._place[key(expr)]]]

    def dominates(self, expr: relax.Expr, other: relax.Expr) -> bool:
        """Return whether all uses of another expression lead to this one."""
        parents, depths = self._parents
        goal, place = self._place[key(expr)], self._place[key(other)]
        while place != goal and depths[place] > depths[goal]:
            place = parents[place]
        return place == goal and not expr.same_as(other)

    def dominated(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the expressions whose nearest dominator this one is, the last in order first."""
        return [self.order[place] for place in self._children[self._place[key(expr)]]]

    @cached_property
    def _users(self) -> list[list[int]]:
        users: list[list[int]] = [[] for _ in self.order]
        for place, expr in enumerate(self.order):
            parts = self.view.parts(expr)
            if isinstance(expr, relax.SeqExpr) and len(parts) == 3:
                value, var, body = parts
                users[self._place[key(value)]].append(self._place[key(var)])
                parts = [body]
            for part in parts:
                users[self._place[key(part)]].append(place)
        return users

    @cached_property
    def _parents(self) -> tuple[list[int], list[int]]:
        """Return each expression's nearest dominator (-1 for none), and its depth in the tree."""
        parents, depths = [-1] * len(self.order), [1] * len(self.order)
        for place in reversed(range(len(self.order))):
            if users := self._users[place]:
                common = users[0]
                for user in users[1:]:
                    common = _common(common, user, parents, depths)
                if common >= 0:
                    parents[place], depths[place] = common, depths[common] + 1
        return parents, depths

    @cached_property
    def _children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in self.order]
        for place in reversed(range(len(self.order))):
            if (parent := self._parents[0][place]) >= 0:
                children[parent].append(place)
        return children


def _common(a: int, b: int, parents: list[int], depths: list[int]) -> int:
    """Return the nearest common ancestor of two places, -1 if there is none."""
    while a != b and a >= 0 and b >= 0:
        if depths[a] == depths[b]:
            a, b = parents[a], parents[b]
        elif depths[a] > depths[b]:
            a = parents[a]
        else:
            b = parents[b]
    return a if a == b else -1
