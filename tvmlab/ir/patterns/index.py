"""A graph's expressions in order, who uses whom, and which use is the last of all."""

from __future__ import annotations

from functools import cached_property

from tvm import relax

from ..graph import key
from .view import View


class Index:
    """A graph, indexed.

    Parameters
    ----------
    root : tvm.relax.Expr
        A graph (`view.to_graph`).

    Attributes
    ----------
    view : View
        The graph as Relay sees it.
    order : list of tvm.relax.Expr
        Its expressions, parts before the whole.

    Notes
    -----
    The source is TVM's ``src/relay/ir/indexed_graph.{h,cc}``. Operators are no nodes here.
    """

    def __init__(self, root: relax.Expr) -> None:
        self.view = View()
        self.order = self.view.order(root)
        self._place = {key(expr): place for place, expr in enumerate(self.order)}

    def inputs(self, expr: relax.Expr) -> list[relax.Expr]:
        """List what an expression computes from: not the function that it calls."""
        if isinstance(expr, relax.Call):
            return self.view.call(expr).operands
        return self._flows(expr)

    def users(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the expressions that an expression is a part of."""
        return [self.order[place] for place in self._users[self._place[key(expr)]]]

    def dominates(self, expr: relax.Expr, other: relax.Expr) -> bool:
        """Say whether all that comes of another expression goes through this one."""
        parents, depths = self._dominators
        goal, place = self._place[key(expr)], self._place[key(other)]
        while place != goal and depths[place] > depths[goal]:
            place = parents[place]
        return place == goal and not expr.same_as(other)

    def dominated(self, expr: relax.Expr) -> list[relax.Expr]:
        """List the expressions whose last use this one is, in the order of their places."""
        return [self.order[place] for place in self._children[self._place[key(expr)]]]

    @cached_property
    def _users(self) -> list[list[int]]:
        users: list[list[int]] = [[] for _ in self.order]
        for place, expr in enumerate(self.order):
            for part in self._flows(expr):
                users[self._place[key(part)]].append(place)
            if isinstance(expr, relax.SeqExpr):
                value, var, _ = self.view.parts(expr)
                users[self._place[key(value)]].append(self._place[key(var)])
        return users

    def _flows(self, expr: relax.Expr) -> list[relax.Expr]:
        """List what flows into an expression; a bound variable's value flows into that."""
        parts = self.view.parts(expr)
        return parts[2:] if isinstance(expr, relax.SeqExpr) else parts

    @cached_property
    def _dominators(self) -> tuple[list[int], list[int]]:
        """Give each expression's dominating user (-1 for none) and how deep that tree is there."""
        parents = [-1] * len(self.order)
        depths = [1] * len(self.order)
        for place in reversed(range(len(self.order))):
            users = self._users[place]
            if users:
                parents[place] = self._common(users, parents, depths)
                if parents[place] >= 0:
                    depths[place] = depths[parents[place]] + 1
        return parents, depths

    def _common(self, places: list[int], parents: list[int], depths: list[int]) -> int:
        found = places[0]
        for place in places[1:]:
            while found != place and found >= 0 and place >= 0:
                if depths[found] >= depths[place]:
                    deeper = parents[found]
                    if depths[found] == depths[place]:
                        place = parents[place]
                    found = deeper
                else:
                    place = parents[place]
            if found != place:
                return -1
        return found

    @cached_property
    def _children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in self.order]
        parents, _ = self._dominators
        for place in reversed(range(len(self.order))):
            if parents[place] >= 0:
                children[parents[place]].append(place)
        return children
