"""Where a pattern matches in a graph, and what each match takes in.

Matches are looked for from the result backwards, so that the largest comes first; one that
overlaps an earlier one, or whose insides are used outside of it, does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import ir, relax

from .. import graph
from ..graph import key
from . import pattern as p
from .index import Index
from .matcher import Matcher, Node
from .view import Head


@dataclass(frozen=True)
class Group:
    """One match.

    Attributes
    ----------
    root : tvm.relax.Expr
        What the whole pattern matched.
    found : dict of DFPattern to list
        What each part of it matched.
    name : str
        The operators inside, in order: ``"nn.conv2d_nn.relu_"``.
    params : list of tvm.relax.Var
        A parameter for each input.
    args : list of tvm.relax.Expr
        The inputs.
    body : tvm.relax.Expr
        The match over the parameters.
    """

    root: relax.Expr
    found: dict[p.DFPattern, list[Node]]
    name: str
    params: list[relax.Var]
    args: list[relax.Expr]
    body: relax.Expr


def groups(pattern: p.DFPattern, root: relax.Expr) -> tuple[Index, dict[int, Group]]:
    """Find all matches in a graph, by the identity of their roots.

    Notes
    -----
    The source is PatternGrouper in TVM's ``src/relay/ir/dataflow_matcher.cc``. Insides of
    functions that a partition made are left alone, as there.
    """
    index = Index(root)
    finder = _Finder(pattern, index)
    done: set[int] = set()
    for expr in reversed(index.order):
        if key(expr) in finder.taken:
            continue
        if isinstance(expr, relax.Function) and "PartitionedFromPattern" in dict(
            expr.attrs.items()
        ):
            done.update(key(inner) for inner in index.view.order(expr))
        if key(expr) not in done and finder.matcher.match(pattern, expr):
            finder.add(expr)
    return index, finder.groups


class _Finder:
    def __init__(self, pattern: p.DFPattern, index: Index) -> None:
        self.parts = p.patterns(pattern)
        self.index = index
        self.matcher = Matcher(index)
        self.groups: dict[int, Group] = {}
        self.taken: set[int] = set()
        self.tried = 0

    def add(self, root: relax.Expr) -> None:
        """Take in the match that the matcher has just found, if it is a sound one."""
        found = dict(self.matcher.found)
        inputs = self._inputs(found)
        name = f"FunctionVar_{self.tried}_"
        params = [relax.Var(f"{name}{i}", _annotation(expr)) for i, expr in enumerate(inputs)]
        self.tried += 1
        ends = frozenset(key(expr) for expr in inputs)
        inside = [e for e in self.index.view.order(root, ends) if key(e) not in ends]
        # A root that is an input itself leaves nothing inside: Relay rewrites no such match.
        if inside and self._sound(root, inside):
            self.taken.update(key(expr) for expr in inside)
            name = "".join(self._name(expr) for expr in inside)
            new = {key(expr): param for expr, param in zip(inputs, params, strict=True)}
            for expr in inside:
                parts = [new[key(part)] for part in self.index.view.parts(expr)]
                new[key(expr)] = self.index.view.rebuild(expr, parts)
            for param in params:
                # Only now: Relay types nothing inside by a parameter that has no annotation.
                if not graph.known(param):
                    relax.expr._update_type(param, graph.UNKNOWN)
            self.groups[key(root)] = Group(root, found, name, params, inputs, new[key(root)])

    def _inputs(self, found: dict[p.DFPattern, list[Node]]) -> list[relax.Expr]:
        """List what the smallest parts of the pattern matched, in the pattern's order."""
        fuzzy = self._fuzzy(found)
        inputs: dict[int, relax.Expr] = {}
        for pattern in self.parts:
            for match in found.get(pattern, ()):
                for expr in self._leaves(pattern, match):
                    if isinstance(expr, (Head, ir.Op, relax.Function)) or key(expr) in fuzzy:
                        continue
                    if not _embedded(pattern, expr):
                        inputs.setdefault(key(expr), expr)
        return list(inputs.values())

    def _leaves(self, pattern: p.DFPattern, match: Node) -> list[Node]:
        if isinstance(pattern, p.TuplePattern) and pattern.fields is None:
            return list(match.fields)
        if isinstance(pattern, p.CallPattern) and pattern.args is None:
            return list(self.index.view.call(match).operands)
        return [] if pattern.parts() else [match]

    def _fuzzy(self, found: dict[p.DFPattern, list[Node]]) -> set[int]:
        """Collect what lies on a dominator's path or in a matched function: no inputs, those."""
        fuzzy: set[int] = set()
        for pattern in self.parts:
            if isinstance(pattern, p.DominatorPattern):
                for part in (pattern.parent, pattern.path):
                    fuzzy.update(key(expr) for expr in found.get(part, ()))
            if isinstance(pattern, p.FunctionPattern):
                for match in found.get(pattern, ()):
                    fuzzy.update(key(expr) for expr in self.index.view.order(match))
                    fuzzy.update(key(param) for param in match.params)
        return fuzzy

    def _sound(self, root: relax.Expr, inside: list[relax.Expr]) -> bool:
        keys = {key(expr) for expr in inside}
        for expr in inside:
            if isinstance(expr, (relax.Function, ir.GenericConst)):
                continue
            if key(expr) in self.taken:
                return False
            if not expr.same_as(root) and any(
                key(user) not in keys and not self.index.dominates(root, user)
                for user in self.index.users(expr)
            ):
                return False
        return True

    def _name(self, expr: relax.Expr) -> str:
        if isinstance(expr, relax.Call):
            head = self.index.view.call(expr).head
            return f"{min(head.names)}_" if isinstance(head, Head) else "Call_"
        if isinstance(expr, relax.TupleGetItem):
            return f"TupleGetItem{expr.index}_"
        for kind, name in _NAMES.items():
            if isinstance(expr, kind):
                return name
        return ""


_NAMES = {
    relax.Tuple: "Tuple_",
    relax.Function: "Function",
    relax.SeqExpr: "Let_",
    relax.If: "If_",
}


def _embedded(pattern: p.DFPattern, expr: relax.Expr) -> bool:
    """Say whether a constant stays inside: where the pattern asked for a constant."""
    return isinstance(expr, ir.GenericConst) and isinstance(
        pattern, (p.ConstantPattern, p.ExprPattern)
    )


def _annotation(expr: relax.Expr) -> ir.Type | None:
    """Give a parameter its input's type; what is known in part only is as good as unknown."""
    found = expr.ty
    if isinstance(found, relax.TensorType):
        whole = isinstance(found.shape, relax.ShapeExpr) and found.dtype is not None
        return found if whole else None
    return found if graph.known(expr) else None
