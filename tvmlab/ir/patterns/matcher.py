"""Matching a pattern on a graph, with Relay's rules and without recursion.

Each rule is a generator: it yields the pattern and expression that it needs an answer for, and
gets the answer back. One loop runs them all, so neither a pattern that contains itself nor a
path of ten thousand calls is limited by Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import dialect, graph
from ..graph import key
from ..inference import infer
from . import pattern as p
from .index import Index
from .kinds import kind_of
from .view import Head, body_of, names_of, to_graph

Node = Any
"""What a pattern is matched on: an expression of Relax, or the `Head` of a call."""
Steps = Generator[Any, bool, bool]


def match(pattern: p.DFPattern, expr: relax.Expr) -> bool:
    """Say whether an expression matches a pattern.

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
        If the answer depends on what cannot be known here: the type of an untyped expression, an
        attribute of operators that is not carried.
    """
    root = to_graph(expr)
    return Matcher(Index(root)).match(pattern, root)


class Matcher:
    """Matches patterns on expressions of one graph.

    Parameters
    ----------
    index : Index
        The graph.

    Attributes
    ----------
    found : dict of DFPattern to list of tvm.relax.Expr
        After a match: what each part of the pattern matched.

    Notes
    -----
    The source of every rule is TVM's ``src/relay/ir/dataflow_matcher.cc``. As there, an
    alternative that matched is not taken back when what stands around it fails.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.found: dict[p.DFPattern, list[Node]] = {}
        self._matched: list[p.DFPattern] = []
        self._once = True

    def match(self, pattern: p.DFPattern, expr: relax.Expr) -> bool:
        """Say whether an expression of the graph matches."""
        self.found = {}
        self._matched = []
        self._once = True
        stack: list[Steps] = [self._visit(pattern, expr)]
        answer: Any = None
        while stack:
            try:
                asked = stack[-1].send(answer)
            except StopIteration as end:
                stack.pop()
                answer = end.value
            else:
                stack.append(self._visit(*asked) if isinstance(asked, tuple) else asked)
                answer = None
        return bool(answer)

    def _forget(self, mark: int) -> None:
        for pattern in self._matched[mark:]:
            self.found.pop(pattern, None)
        del self._matched[mark:]

    def _visit(self, pattern: p.DFPattern, expr: Node) -> Steps:
        if isinstance(expr, ir.Op):
            expr = Head(expr, names_of(expr))
        before = self.found.get(pattern) if self._once else None
        if before:
            if len(before) > 1:
                raise RelayError(
                    "A pattern that stands for several expressions is asked for the one it is.",
                    where=type(pattern).__name__,
                    fix="Use another pattern object there, made in the same way.",
                )
            return _same(before[0], expr)
        mark = len(self._matched)
        rule = _RULES.get(type(pattern))
        if rule is None:
            raise RelayError(f"{type(pattern).__name__} is no pattern.", where="match")
        done = yield from rule(self, pattern, expr)
        if done:
            self.found.setdefault(pattern, []).append(expr)
            self._matched.append(pattern)
        else:
            self._forget(mark)
        return done

    def _all(self, patterns: Sequence[p.DFPattern] | None, exprs: Sequence[Node]) -> Steps:
        if patterns is None:
            return True
        if len(patterns) != len(exprs):
            return False
        for pattern, expr in zip(patterns, exprs, strict=True):
            if not (yield pattern, expr):
                return False
        return True

    def _wildcard(self, pattern: p.WildcardPattern, expr: Node) -> Steps:
        return True if pattern.pattern is None else (yield pattern.pattern, expr)

    def _var(self, pattern: p.VarPattern, expr: Node) -> Steps:
        return isinstance(expr, relax.Var) and pattern.name in ("", str(expr.name))
        yield

    def _constant(self, _: p.ConstantPattern, expr: Node) -> Steps:
        return isinstance(expr, ir.GenericConst)
        yield

    def _expr(self, pattern: p.ExprPattern, expr: Node) -> Steps:
        if isinstance(expr, Head) or pattern.names:
            return isinstance(expr, Head) and bool(pattern.names & expr.names)
        return bool(tvm_ffi.structural_equal(pattern.expr, expr))
        yield

    def _alt(self, pattern: p.AltPattern, expr: Node) -> Steps:
        return (yield pattern.left, expr) or (yield pattern.right, expr)

    def _tuple(self, pattern: p.TuplePattern, expr: Node) -> Steps:
        return isinstance(expr, relax.Tuple) and (yield from self._all(pattern.fields, expr.fields))

    def _field(self, pattern: p.TupleGetItemPattern, expr: Node) -> Steps:
        if not isinstance(expr, relax.TupleGetItem) or pattern.index not in (-1, expr.index):
            return False
        return (yield pattern.tuple, expr.tuple_value)

    def _if(self, pattern: p.IfPattern, expr: Node) -> Steps:
        if not isinstance(expr, relax.If):
            return False
        return (yield from self._all(pattern.parts(), self.index.view.parts(expr)))

    def _let(self, pattern: p.LetPattern, expr: Node) -> Steps:
        if not isinstance(expr, relax.SeqExpr):
            return False
        value, var, body = self.index.view.parts(expr)
        return (yield from self._all(pattern.parts(), [var, value, body]))

    def _function(self, pattern: p.FunctionPattern, expr: Node) -> Steps:
        if not isinstance(expr, relax.Function):
            return False
        if not (yield from self._all(pattern.params, expr.params)):
            return False
        return (yield pattern.body, body_of(expr.body))

    def _call(self, pattern: p.CallPattern, expr: Node) -> Steps:
        if not isinstance(expr, relax.Call):
            return False
        call = self.index.view.call(expr)
        mark = len(self._matched)
        if (yield pattern.op, call.head):
            mark = len(self._matched)
            if (yield from self._all(pattern.args, call.operands)):
                return True
            self._forget(mark)
            if pattern.args is None or not _is_call(pattern, "add", "multiply"):
                return False
            if (yield from self._all(pattern.args[::-1], call.operands)):
                return True
            self._forget(mark)
            return False
        self._forget(mark)
        for other in self._associated(pattern, expr):
            if (yield other, expr):
                return True
            self._forget(mark)
        return False

    def _associated(self, pattern: p.CallPattern, expr: relax.Call) -> list[p.CallPattern]:
        """Say ``(a * b) / c`` as ``b * (a / c)``, and back, where the expression is like that."""
        args = pattern.args or []
        if _is_call(pattern, "divide") and len(args) == 2:
            inner: Any = args[0]
            if _is_call(inner, "multiply") and self._made_of(expr, "multiply", "divide"):
                return [
                    inner.op(b, pattern.op(a, args[1])) for a, b in (inner.args, inner.args[::-1])
                ]
        if _is_call(pattern, "multiply"):
            for inner, other in zip(args, args[::-1], strict=True):
                if _is_call(inner, "divide") and self._made_of(expr, "divide", "multiply"):
                    return [inner.op(pattern.op(inner.args[0], other), inner.args[1])]
        return []

    def _made_of(self, expr: relax.Expr, outer: str, inner: str) -> bool:
        return self._calls(expr, outer) and any(
            self._calls(operand, inner) for operand in self.index.view.call(expr).operands
        )

    def _calls(self, expr: relax.Expr, name: str) -> bool:
        if not isinstance(expr, relax.Call):
            return False
        head = self.index.view.call(expr).head
        return isinstance(head, Head) and name in head.names

    def _type(self, pattern: p.TypePattern, expr: Node) -> Steps:
        return (yield pattern.pattern, expr) and tvm_ffi.structural_equal(
            pattern.type, _type_of(expr), map_free_vars=True
        )

    def _dtype(self, pattern: p.DataTypePattern, expr: Node) -> Steps:
        if not (yield pattern.pattern, expr):
            return False
        found = _type_of(expr)
        return isinstance(found, relax.TensorType) and str(found.dtype) == pattern.dtype

    def _shape(self, pattern: p.ShapePattern, expr: Node) -> Steps:
        if not (yield pattern.pattern, expr):
            return False
        found = _type_of(expr)
        if not isinstance(found, relax.TensorType) or not isinstance(found.shape, relax.ShapeExpr):
            return False
        wanted = relax.ShapeExpr(pattern.shape)
        return bool(tvm_ffi.structural_equal(wanted, found.shape, map_free_vars=True))

    def _attr(self, pattern: p.AttrPattern, expr: Node) -> Steps:
        if not (yield pattern.pattern, expr):
            return False
        if isinstance(expr, Head):
            return all(kind_of(expr.names, name) == value for name, value in pattern.attrs.items())
        if isinstance(expr, relax.Call):
            has = self.index.view.call(expr).attributes
        elif isinstance(expr, relax.Function):
            has = dict(expr.attrs.items())
        else:
            return False
        return all(
            name in has and _equal(dialect.plain(value), dialect.plain(has[name]))
            for name, value in pattern.attrs.items()
        )

    def _dominator(self, pattern: p.DominatorPattern, expr: Node) -> Steps:
        if not (yield pattern.child, expr):
            return False
        followed = yield self._path(pattern, expr, set())
        self._once = True
        if not followed:
            return False
        stack, seen = [expr], set()
        while stack:
            for node in self.index.dominated(stack.pop()):
                if key(node) not in seen:
                    if (yield pattern.parent, node):
                        return True
                    stack.append(node)
                    seen.add(key(node))
        return False

    def _path(self, pattern: p.DominatorPattern, expr: Node, followed: set[int]) -> Steps:
        """Follow all inputs up to the parent; what was followed to its end once is not again."""
        inputs = self.index.inputs(expr)
        for node in inputs:
            if key(node) in followed:
                continue
            self._once = True
            if not (yield pattern.parent, node):
                self._once = False
                if not (yield pattern.path, node):
                    return False
                if not (yield self._path(pattern, node, followed)):
                    return False
            followed.add(key(node))
        return bool(inputs)


def _same(a: Node, b: Node) -> bool:
    if isinstance(a, Head) or isinstance(b, Head):
        return bool(a == b)
    return bool(a.same_as(b))


def _is_call(pattern: Any, *names: str) -> bool:
    return (
        isinstance(pattern, p.CallPattern)
        and isinstance(pattern.op, p.ExprPattern)
        and not pattern.op.names.isdisjoint(names)
    )


def _type_of(expr: Node) -> ir.Type:
    if isinstance(expr, Head):
        return expr.op.ty
    if not graph.known(infer(expr)):
        raise RelayError(
            "A pattern asks for the type of an expression that has none.",
            where=str(expr),
            fix="Give the variables types: relay.var(name, shape=..., dtype=...).",
        )
    return expr.ty


def _equal(wanted: Any, has: Any) -> bool:
    """Compare an attribute; as in Relay, 1 is not 1.0."""
    if isinstance(wanted, float) != isinstance(has, float):
        return False
    if isinstance(wanted, list) and isinstance(has, list):
        return len(wanted) == len(has) and all(map(_equal, wanted, has))
    return bool(wanted == has)


_RULES: dict[type, Callable[[Matcher, Any, Any], Steps]] = {
    p.AltPattern: Matcher._alt,
    p.AttrPattern: Matcher._attr,
    p.CallPattern: Matcher._call,
    p.ConstantPattern: Matcher._constant,
    p.DataTypePattern: Matcher._dtype,
    p.DominatorPattern: Matcher._dominator,
    p.ExprPattern: Matcher._expr,
    p.FunctionPattern: Matcher._function,
    p.IfPattern: Matcher._if,
    p.LetPattern: Matcher._let,
    p.ShapePattern: Matcher._shape,
    p.TupleGetItemPattern: Matcher._field,
    p.TuplePattern: Matcher._tuple,
    p.TypePattern: Matcher._type,
    p.VarPattern: Matcher._var,
    p.WildcardPattern: Matcher._wildcard,
}
