"""Where a pattern matches in a graph, and which expressions each match takes in.

Matches are looked for from the result backwards, so that the largest comes first. A match that
overlaps an earlier one, or whose inner expressions are used outside of it, does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir, relax

from .. import graph
from ..graph import key
from .dominators import DominatorTree
from .matcher import Matcher, Node
from .pattern import (
    CallPattern,
    ConstantPattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    TuplePattern,
    patterns,
)
from .relay_call import OperatorName


@dataclass(frozen=True)
class Match:
    """One match: what each part of the pattern matched, and the match as a function.

    The name is made of the operators inside, such as ``"nn.conv2d_nn.relu_"``; the body is over
    the parameters, of which there is one for each input.
    """

    found: dict[DFPattern, list[Node]]
    name: str
    params: list[relax.Var]
    inputs: list[relax.Expr]
    body: relax.Expr


def find_matches(pattern: DFPattern, root: relax.Expr) -> tuple[DominatorTree, dict[int, Match]]:
    """Find all matches in a graph, by the identity of the expression that the pattern matches.

    The source is PatternGrouper in TVM's ``src/relay/ir/dataflow_matcher.cc``. The bodies of
    functions that a partition made are left alone, as there.
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


_NAMES = {
    relax.Tuple: "Tuple_",
    relax.Function: "Function",
    relax.SeqExpr: "Let_",
    relax.If: "If_",
}


def _annotation(expr: relax.Expr) -> ir.Type | None:
    """Return an input's type for its parameter, or None where a part of the type is unknown."""
    found = expr.ty
    if isinstance(found, relax.TensorType):
        whole = isinstance(found.shape, relax.ShapeExpr) and found.dtype is not None
        return found if whole else None
    return found if graph.has_type(expr) else None
