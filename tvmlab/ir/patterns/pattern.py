"""Relay's pattern language: one class for each kind of pattern, which matches by recursion.

Two patterns are the same only if they are one object, which is how a pattern in Relay says "the
same expression again". The source of every rule is TVM's ``src/relay/ir/dataflow_matcher.cc``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import dialect, graph, table
from ..graph import body_of, inline_bindings, key
from ..module import infer_type
from .fusion import fusion_kind
from .view import DominatorTree, OperatorName, names_of

__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DataTypePattern",
    "DominatorPattern", "ExprPattern", "FunctionPattern", "IfPattern", "LetPattern",
    "ShapePattern", "TupleGetItemPattern", "TuplePattern", "TypePattern", "VarPattern",
    "WildcardPattern", "dominates", "has_attr", "has_dtype", "has_shape", "has_type",
    "is_constant", "is_expr", "is_if", "is_let", "is_op", "is_tuple", "is_tuple_get_item",
    "is_var", "match", "wildcard",
]  # fmt: skip

Node = Any
"""What a pattern is matched against: an expression of Relax, or the `OperatorName` of a call."""


class Matcher:
    """The state of matching patterns against expressions of one graph.

    As in Relay, an alternative that matched is not taken back when the pattern around it fails.
    After a match, `found` has the expressions that each part of the pattern matched.
    """

    def __init__(self, tree: DominatorTree) -> None:
        self.tree, self.view = tree, tree.view
        self.found: dict[DFPattern, list[Node]] = {}
        self.once = True  # whether a pattern that has matched matches the same expression only
        self._matched: list[DFPattern] = []

    def match(self, pattern: DFPattern, expr: relax.Expr) -> bool:
        """Return whether an expression of the graph matches."""
        self.found, self._matched, self.once = {}, [], True
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 1_000_000))  # since Python 3.11 frames lie on the heap
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
        head = self.view.call(expr).head if isinstance(expr, relax.Call) else None
        return isinstance(head, OperatorName) and name in head.names


class DFPattern:
    """The base of all patterns; its operators build larger ones."""

    partition: Callable[..., Any]  #: the function `partition` of the package, as a method

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        """Return whether an expression matches, asking `matcher` about the parts."""
        raise NotImplementedError

    def parts(self) -> list[DFPattern]:
        """List the patterns that this one is made of, in Relay's order."""
        values = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        lists = [value if isinstance(value, list) else [value] for value in values]
        return [part for one in lists for part in one if isinstance(part, DFPattern)]

    def match(self, expr: relax.Expr) -> bool:
        """Return whether an expression matches (see the function `match`)."""
        return match(self, expr)

    def __call__(self, *args: DFPattern | None) -> CallPattern:
        """Match a call of what this matches; ``pattern(None)`` takes any arguments."""
        return CallPattern(self, None if args == (None,) else args)  # type: ignore[arg-type]

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> CallPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return is_op("divide")(self, other)

    def has_attr(self, attrs: dict[str, Any]) -> AttrPattern:
        """Match where this does and these attributes have these values (see `has_attr`)."""
        return AttrPattern(self, attrs)

    def has_type(self, ttype: ir.Type) -> TypePattern:
        """Match where this does and the type is this one."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """Match where this does and the elements have this dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """Match where this does and the shape is this one."""
        return ShapePattern(self, shape)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Match where this does and everything it uses comes from `parent` by way of `path`."""
        return DominatorPattern(parent, path or wildcard(), self)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """Match this, or what the constructor makes around it."""
        return self | option_constructor(self)


def _checked(part: Any) -> DFPattern:
    """Refuse a part that is no pattern where it is written, and not where it is matched."""
    if not isinstance(part, DFPattern):
        raise RelayError(
            f"A part of a pattern is {part!r}, of type {type(part).__module__}."
            f"{type(part).__name__}: no pattern of Relay's language.",
            where="dataflow_pattern",
            fix="Take wildcard() for anything; TVM's own tvm.relax.dpl is another language.",
        )
    return part


def _checked_list(parts: Sequence[Any] | None) -> list[DFPattern] | None:
    return None if parts is None else [_checked(part) for part in parts]


@dataclass(eq=False)
class ExprPattern(DFPattern):
    """Matches one expression by its structure, or an operator by Relay's `names` of it."""

    expr: relax.Expr

    def __post_init__(self) -> None:
        self.names = names_of(self.expr) if isinstance(self.expr, ir.Op) else frozenset()

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if isinstance(expr, OperatorName) or self.names:
            return isinstance(expr, OperatorName) and bool(self.names & expr.names)
        return bool(tvm_ffi.structural_equal(self.expr, expr))


@dataclass(eq=False)
class VarPattern(DFPattern):
    """Matches a variable of this name, or any if the name is empty."""

    name: str = ""

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return isinstance(expr, relax.Var) and self.name in ("", str(expr.name))


@dataclass(eq=False)
class ConstantPattern(DFPattern):
    """Matches a constant."""

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return isinstance(expr, ir.GenericConst)


@dataclass(eq=False)
class WildcardPattern(DFPattern):
    """Matches anything, or what another pattern matches (`redirect_to`)."""

    pattern: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Let another pattern stand here, even one that this is part of: recursion."""
        self.pattern = pattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return self.pattern is None or matcher.visit(self.pattern, expr)


@dataclass(eq=False)
class CallPattern(DFPattern):
    """Matches a call; `args` is None for any arguments."""

    op: DFPattern
    args: Sequence[DFPattern] | None

    def __post_init__(self) -> None:
        self.op, self.args = _checked(self.op), _checked_list(self.args)

    def is_call(self, *names: str) -> bool:
        """Return whether the pattern is for calls of an operator with one of these names."""
        return isinstance(self.op, ExprPattern) and not self.op.names.isdisjoint(names)

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if not isinstance(expr, relax.Call):
            return False
        call, mark = matcher.view.call(expr), matcher.mark()
        if matcher.visit(self.op, call.head):
            mark = matcher.mark()
            if matcher.visit_all(self.args, call.operands):
                return True
            matcher.forget(mark)
            if self.args is None or not self.is_call("add", "multiply"):
                return False
            return matcher.visit_all(self.args[::-1], call.operands)
        matcher.forget(mark)
        for other in self._associated(expr, matcher):
            if matcher.visit(other, expr):
                return True
            matcher.forget(mark)
        return False

    def _associated(self, expr: relax.Call, matcher: Matcher) -> list[CallPattern]:
        """Write ``(a * b) / c`` as ``b * (a / c)``, and back, where the expression is like that."""

        def made_of(outer: str, inner: str) -> bool:
            operands = matcher.view.call(expr).operands
            return matcher.calls(expr, outer) and any(matcher.calls(one, inner) for one in operands)

        def is_inner(part: Any, name: str) -> bool:
            return isinstance(part, CallPattern) and part.is_call(name)

        args: Sequence[Any] = self.args or []
        if self.is_call("divide") and len(args) == 2:
            inner, divisor = args
            if is_inner(inner, "multiply") and made_of("multiply", "divide"):
                pairs = (inner.args, inner.args[::-1])
                return [inner.op(b, self.op(a, divisor)) for a, b in pairs]
        if self.is_call("multiply"):
            for inner, factor in zip(args, args[::-1], strict=True):
                if is_inner(inner, "divide") and made_of("divide", "multiply"):
                    return [inner.op(self.op(inner.args[0], factor), inner.args[1])]
        return []


@dataclass(eq=False)
class FunctionPattern(DFPattern):
    """Matches a function; `params` is None for any parameters."""

    params: Sequence[DFPattern] | None
    body: DFPattern

    def __post_init__(self) -> None:
        self.params, self.body = _checked_list(self.params), _checked(self.body)

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return (
            isinstance(expr, relax.Function)
            and matcher.visit_all(self.params, expr.params)
            and matcher.visit(self.body, body_of(expr.body))
        )


@dataclass(eq=False)
class IfPattern(DFPattern):
    """Matches a branch."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        parts = matcher.view.parts(expr) if isinstance(expr, relax.If) else []
        return matcher.visit_all(self.parts(), parts)


@dataclass(eq=False)
class LetPattern(DFPattern):
    """Matches a binding that was built as an expression, and what follows it."""

    var: DFPattern
    value: DFPattern
    body: DFPattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if not isinstance(expr, relax.SeqExpr):
            return False
        value, var, body = matcher.view.parts(expr)
        return matcher.visit_all(self.parts(), [var, value, body])


@dataclass(eq=False)
class TuplePattern(DFPattern):
    """Matches a tuple; `fields` is None for any number of anything."""

    fields: Sequence[DFPattern] | None

    def __post_init__(self) -> None:
        self.fields = _checked_list(self.fields)

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return isinstance(expr, relax.Tuple) and matcher.visit_all(self.fields, expr.fields)

    def __getitem__(self, index: int) -> DFPattern:
        return (self.fields or [])[index]

    def __len__(self) -> int:
        return len(self.fields or [])


@dataclass(eq=False)
class TupleGetItemPattern(DFPattern):
    """Matches a field of a tuple; `index` is -1 for any."""

    tuple: DFPattern
    index: int | None = None

    def __post_init__(self) -> None:
        self.index = -1 if self.index is None else self.index

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if not isinstance(expr, relax.TupleGetItem) or self.index not in (-1, expr.index):
            return False
        return matcher.visit(self.tuple, expr.tuple_value)


@dataclass(eq=False)
class AltPattern(DFPattern):
    """Matches what one of two patterns matches, the left one first."""

    left: DFPattern
    right: DFPattern

    def __post_init__(self) -> None:
        self.left, self.right = _checked(self.left), _checked(self.right)

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return matcher.visit(self.left, expr) or matcher.visit(self.right, expr)


@dataclass(eq=False)
class TypePattern(DFPattern):
    """Matches by the whole type."""

    pattern: DFPattern
    type: ir.Type

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return matcher.visit(self.pattern, expr) and _alike(self.type, _type_of(expr))


@dataclass(eq=False)
class DataTypePattern(DFPattern):
    """Matches by the dtype of a tensor."""

    pattern: DFPattern
    dtype: str

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        found = _type_of(expr) if matcher.visit(self.pattern, expr) else None
        return isinstance(found, relax.TensorType) and str(found.dtype) == self.dtype


@dataclass(eq=False)
class ShapePattern(DFPattern):
    """Matches by the shape of a tensor."""

    pattern: DFPattern
    shape: Sequence[Any]

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        found = _type_of(expr) if matcher.visit(self.pattern, expr) else None
        shape = found.shape if isinstance(found, relax.TensorType) else None
        wanted = relax.ShapeExpr(list(self.shape))
        return isinstance(shape, relax.ShapeExpr) and _alike(wanted, shape)


@dataclass(eq=False)
class AttrPattern(DFPattern):
    """Matches by attributes of an operator, a call or a function."""

    pattern: DFPattern
    attrs: dict[str, Any]

    def __post_init__(self) -> None:
        self.attrs = dict(self.attrs.items())

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if not matcher.visit(self.pattern, expr):
            return False
        if isinstance(expr, OperatorName):
            return all(fusion_kind(expr.names, name) == value for name, value in self.attrs.items())
        if not isinstance(expr, (relax.Call, relax.Function)):
            return False
        called = isinstance(expr, relax.Call)
        has = matcher.view.call(expr).attributes if called else dict(expr.attrs.items())
        return all(
            name in has and _equal(dialect.plain(value), dialect.plain(has[name]))
            for name, value in self.attrs.items()
        )


@dataclass(eq=False)
class DominatorPattern(DFPattern):
    """Matches a child all of whose inputs come from one parent along a path."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if not matcher.visit(self.child, expr):
            return False
        followed = self._follow(expr, matcher, set())
        matcher.once = True
        if not followed:
            return False
        stack, seen = [expr], set()
        while stack:
            for node in matcher.tree.dominated(stack.pop()):
                if key(node) not in seen:
                    if matcher.visit(self.parent, node):
                        return True
                    stack.append(node)
                    seen.add(key(node))
        return False

    def _follow(self, expr: Node, matcher: Matcher, followed: set[int]) -> bool:
        """Follow all inputs up to the parent; an input that was followed once is not again."""
        inputs = matcher.tree.inputs(expr)
        for node in inputs:
            if key(node) in followed:
                continue
            matcher.once = True
            if not matcher.visit(self.parent, node):
                matcher.once = False
                if not matcher.visit(self.path, node) or not self._follow(node, matcher, followed):
                    return False
            followed.add(key(node))
        return bool(inputs)


def match(pattern: DFPattern, expr: relax.Expr) -> bool:
    """Return whether an expression matches a pattern.

    Parameters
    ----------
    pattern : DFPattern
        The pattern.
    expr : tvm.relax.Expr
        A graph, a body of bindings (its result is matched), a function or an operator.

    Raises
    ------
    RelayError
        If the answer depends on the type of an expression without one, or on an attribute of
        operators that is not known here.
    """
    root = inline_bindings(expr, functions=True)
    return Matcher(DominatorTree(root)).match(pattern, root)


def _type_of(expr: Node) -> ir.Type:
    if isinstance(expr, OperatorName):
        return expr.op.ty
    if not graph.has_type(infer_type(expr)):
        raise RelayError(
            "A pattern asks for the type of an expression that has none.",
            where=str(expr),
            fix="Give the variables types: relay.var(name, shape=..., dtype=...).",
        )
    return expr.ty


def _alike(wanted: Any, has: Any) -> bool:
    return bool(tvm_ffi.structural_equal(wanted, has, map_free_vars=True))


def _equal(wanted: Any, has: Any) -> bool:
    """Compare an attribute; as in Relay, 1 is not 1.0."""
    if isinstance(wanted, float) != isinstance(has, float):
        return False
    if isinstance(wanted, list) and isinstance(has, list):
        return len(wanted) == len(has) and all(map(_equal, wanted, has))
    return bool(wanted == has)


def is_op(op_name: str) -> ExprPattern:
    """Match a Relay operator by its name, such as ``"nn.conv2d"``.

    Raises
    ------
    RelayError
        If no operator has that name; the closest one is named.
    """
    row = table.find(op_name)
    if row is None:
        near = table.closest(op_name)
        raise RelayError(
            f"No Relay operator is named {op_name!r}.",
            where="is_op",
            fix=f"The closest known name is {near!r}." if near else None,
        )
    pattern = ExprPattern(ir.Op.get(row.relax))
    pattern.names = frozenset([op_name])
    return pattern


def has_type(ttype: ir.Type, pattern: DFPattern | None = None) -> TypePattern:
    """Match what the pattern does (anything, if none is given) if it has this type."""
    return TypePattern(pattern or wildcard(), ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Match what the pattern does if it is a tensor of this dtype."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """Match what the pattern does if it is a tensor of this shape."""
    return ShapePattern(pattern or wildcard(), shape)


def has_attr(attrs: dict[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Match what the pattern does if these attributes have these values.

    A call has Relay's attributes, with defaults filled in, a function its own, and an operator
    ``"TOpPattern"``, which says how it can be fused.
    """
    return AttrPattern(pattern or wildcard(), attrs)


# Relay's functions of the same meaning.
is_var = VarPattern
is_constant = ConstantPattern
is_expr = ExprPattern
is_tuple = TuplePattern
is_tuple_get_item = TupleGetItemPattern
is_if = IfPattern
is_let = LetPattern
wildcard = WildcardPattern
dominates = DominatorPattern


def patterns(root: DFPattern) -> list[DFPattern]:
    """List all patterns that a pattern is made of, each once, parts before the whole."""
    order: list[DFPattern] = []
    stack, seen = [(root, False)], set[DFPattern]()
    while stack:
        pattern, ready = stack.pop()
        if ready:
            order.append(pattern)
        elif pattern not in seen:
            seen.add(pattern)
            stack.append((pattern, True))
            stack.extend((part, False) for part in reversed(pattern.parts()))
    return order
