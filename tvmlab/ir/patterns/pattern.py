"""Relay's pattern language: one class per kind of pattern, matched recursively.

Two patterns are equal only if they are the same object. The source of all rules is TVM's
``src/relay/ir/dataflow_matcher.cc``. For example, a matched alternative is never reconsidered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, dataclass_transform

import tvm_ffi
from tvm import ir, relax

from ...errors import RelayError
from .. import dialect, graph, table
from ..graph import body_of, inline_bindings, key
from ..module import infer_type
from .view import DominatorTree, OperatorName, View, fusion_kind, names_of

__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern", "DataTypePattern",
    "DominatorPattern", "ExprPattern", "FunctionPattern", "IfPattern", "LetPattern",
    "ShapePattern", "TupleGetItemPattern", "TuplePattern", "TypePattern", "VarPattern",
    "WildcardPattern", "dominates", "has_attr", "has_dtype", "has_shape", "has_type",
    "is_constant", "is_expr", "is_if", "is_let", "is_op", "is_tuple", "is_tuple_get_item",
    "is_var", "match", "wildcard",
]  # fmt: skip

Node = Any
"""The object that a pattern is matched against: a Relax expression, or a call's `OperatorName`."""


class Matcher:
    """Matcher of patterns; `found` maps each part of the last pattern to its matches."""

    def __init__(self, tree: DominatorTree) -> None:
        self.tree, self.view = tree, tree.view
        self.found: Found = {}
        self.once = True  # whether a pattern that has matched must match the same expression again
        self.matched: list[DFPattern] = []

    def match(self, pattern: DFPattern, expr: relax.Expr) -> bool:
        """Return whether an expression of the graph matches."""
        self.found, self.matched, self.once = {}, [], True
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 1_000_000))  # since Python 3.11 frames are on the heap
        try:
            return self.visit(pattern, expr)
        finally:
            sys.setrecursionlimit(limit)

    def visit(self, pattern: DFPattern, expr: Node) -> bool:
        """Return whether a part of the pattern matches a part of the graph."""
        if type(expr) is ir.Op:
            expr = OperatorName(expr, names_of(expr))
        before = self.found.get(pattern) if self.once else None
        if before:
            if len(before) > 1:
                what = "A pattern that matched several expressions is used for a single expression."
                fix = "Use another pattern object there, made in the same way."
                raise RelayError(what, where=type(pattern).__name__, fix=fix)
            return bool(before[0].same_as(expr))
        mark = len(self.matched)
        if not pattern._matches(expr, self):
            self.forget(mark)
            return False
        self.found.setdefault(pattern, []).append(expr)
        self.matched.append(pattern)
        return True

    def visit_all(self, patterns: Patterns, exprs: Sequence[Node]) -> bool:
        """Return whether each pattern matches its expression; None matches any expressions."""
        if patterns is None or len(patterns) != len(exprs):
            return patterns is None
        for pattern, expr in zip(patterns, exprs, strict=True):  # noqa: SIM110 (`all` recurses in C)
            if not self.visit(pattern, expr):
                return False
        return True

    def forget(self, mark: int) -> None:
        """Forget all matches except the first `mark` ones."""
        for pattern in self.matched[mark:]:
            self.found.pop(pattern, None)
        del self.matched[mark:]


def _binary(name: str) -> Callable[[DFPattern, DFPattern], CallPattern]:
    return lambda one, other: is_op(name)(one, other)


@dataclass_transform(eq_default=False)
class DFPattern:
    """Base class of all patterns, which are dataclasses; its operators build larger patterns."""

    partition: Callable[..., Any]  #: the package's function `partition` as a method

    def __init_subclass__(cls) -> None:
        dataclass(eq=False)(cls)

    def __post_init__(self) -> None:
        """Refuse a part that is not a pattern when the pattern is built, not when it is matched."""
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.type == "DFPattern":
                checked(value)
            elif field.type == "Patterns" and value is not None:
                setattr(self, field.name, [checked(part) for part in value])

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        """Return whether an expression matches; `matcher` matches the parts."""
        raise NotImplementedError

    def parts(self) -> list[DFPattern]:
        """List the patterns that this pattern consists of, in Relay's order."""
        values = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        lists = [value if isinstance(value, list) else [value] for value in values]
        return [part for one in lists for part in one if isinstance(part, DFPattern)]

    def roots(self) -> frozenset[str] | None:
        """Return Relay's names of the operators that all matches call; None if others match."""
        return None

    def match(self, expr: relax.Expr) -> bool:
        """Return whether an expression matches (see the function `match`)."""
        return match(self, expr)

    def __call__(self, *args: DFPattern | None) -> CallPattern:
        """Match a call of what this matches; ``pattern(None)`` accepts any arguments."""
        return CallPattern(self, None if args == (None,) else args)  # type: ignore[arg-type]

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    __add__, __sub__ = _binary("add"), _binary("subtract")
    __mul__, __truediv__ = _binary("multiply"), _binary("divide")

    def has_attr(self, attrs: dict[str, Any]) -> AttrPattern:
        """Match if this matches and these attributes have these values (see `has_attr`)."""
        return AttrPattern(self, attrs)

    def has_type(self, ttype: ir.Type) -> TypePattern:
        """Match if this matches and the expression has this type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """Match if this matches and the elements have this dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """Match if this matches and the tensor has this shape."""
        return ShapePattern(self, shape)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Match if this matches and all its inputs come from `parent` along `path`."""
        return DominatorPattern(parent, path or wildcard(), self)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """Match this, or the pattern that the constructor builds around it."""
        return self | option_constructor(self)


Patterns: TypeAlias = Sequence[DFPattern] | None  # None matches any
Found: TypeAlias = dict[DFPattern, list[Node]]  # the matches of each part of a pattern


def checked(part: Any) -> DFPattern:
    """Return a part of a pattern, or raise an error if it is not a pattern."""
    if not isinstance(part, DFPattern):
        what = f"{part!r} ({type(part).__name__}) is not a pattern of Relay's language."
        fix = "Use wildcard() for anything. Patterns of tvm.relax.dpl do not work here."
        raise RelayError(what, where="dataflow_pattern", fix=fix)
    return part


class ExprPattern(DFPattern):
    """Pattern for one expression by its structure, or for an operator by its Relay `names`."""

    expr: relax.Expr

    def __post_init__(self) -> None:
        self.names = names_of(self.expr) if isinstance(self.expr, ir.Op) else frozenset()

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if isinstance(expr, OperatorName) or self.names:
            return isinstance(expr, OperatorName) and bool(self.names & expr.names)
        return bool(tvm_ffi.structural_equal(self.expr, expr))

    def roots(self) -> frozenset[str] | None:
        """Return the operator's names, so that a call pattern can use them."""
        return self.names or None


class VarPattern(DFPattern):
    """Pattern for a variable with this name, or with any name if the name is empty."""

    name: str = ""

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return isinstance(expr, relax.Var) and self.name in ("", str(expr.name))


class ConstantPattern(DFPattern):
    """Pattern for a constant."""

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return isinstance(expr, ir.GenericConst)


class WildcardPattern(DFPattern):
    """Pattern for anything, or for what another pattern matches (`redirect_to`)."""

    pattern: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Match what another pattern matches; for recursion, it can contain this pattern."""
        self.pattern = pattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return self.pattern is None or matcher.visit(self.pattern, expr)


class CallPattern(DFPattern):
    """Pattern for a call; `args` is None for any arguments."""

    op: DFPattern
    args: Patterns

    def is_call(self, *names: str) -> bool:
        """Return whether the pattern is for calls of an operator with one of these names."""
        return isinstance(self.op, ExprPattern) and not self.op.names.isdisjoint(names)

    def roots(self) -> frozenset[str] | None:
        """Return the called operators' names; for `_associated`, both of a product or quotient."""
        quotient = self.is_call("multiply", "divide")
        return frozenset(["multiply", "divide"]) if quotient else self.op.roots()

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if not isinstance(expr, relax.Call):
            return False
        call, mark = matcher.view.call(expr), len(matcher.matched)
        if matcher.visit(self.op, call.head):
            mark = len(matcher.matched)
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
        """Rewrite ``(a * b) / c`` as ``b * (a / c)``, or back, if the expression has this form."""
        args: Sequence[Any] = self.args or ()
        inner = {"divide": "multiply", "multiply": "divide"}
        name = next((name for name in inner if self.is_call(name)), None)
        operands = matcher.view.call(expr).operands
        if name is None or len(args) != 2 or inner[name] not in matcher.view.names(expr):
            return []
        if not any(name in matcher.view.names(one) for one in operands):
            return []
        for part, other in (args, args[::-1]):
            if isinstance(part, CallPattern) and part.is_call(inner[name]) and part.args:
                a, b = part.args
                if name == "multiply":
                    return [part.op(self.op(a, other), b)]
                return [part.op(b, self.op(a, other)), part.op(a, self.op(b, other))]
            if name == "divide":
                break  # a divisor cannot be swapped
        return []


class FunctionPattern(DFPattern):
    """Pattern for a function; `params` is None for any parameters."""

    params: Patterns
    body: DFPattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return (
            isinstance(expr, relax.Function)
            and matcher.visit_all(self.params, expr.params)
            and matcher.visit(self.body, body_of(expr.body))
        )


class IfPattern(DFPattern):
    """Pattern for an `if`."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        parts = matcher.view.parts(expr) if isinstance(expr, relax.If) else []
        return matcher.visit_all(self.parts(), parts)


class LetPattern(DFPattern):
    """Pattern for a `let`: a binding built as an expression, and its body."""

    var: DFPattern
    value: DFPattern
    body: DFPattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        if graph.let_binding(expr) is None:
            return False
        value, var, body = matcher.view.parts(expr)
        return matcher.visit_all(self.parts(), [var, value, body])


class TuplePattern(DFPattern):
    """Pattern for a tuple; `fields` is None for any number of any fields."""

    fields: Patterns

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return isinstance(expr, relax.Tuple) and matcher.visit_all(self.fields, expr.fields)

    def __getitem__(self, index: int) -> DFPattern:
        return (self.fields or [])[index]

    def __len__(self) -> int:
        return len(self.fields or [])


class TupleGetItemPattern(DFPattern):
    """Pattern for a field of a tuple; `index` is None or -1 for any field."""

    tuple: DFPattern
    index: int | None = None

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        found = isinstance(expr, relax.TupleGetItem) and self.index in (None, -1, expr.index)
        return found and matcher.visit(self.tuple, expr.tuple_value)


class AltPattern(DFPattern):
    """Pattern for what either of two patterns matches; the left one is tried first."""

    left: DFPattern
    right: DFPattern

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return matcher.visit(self.left, expr) or matcher.visit(self.right, expr)

    def roots(self) -> frozenset[str] | None:
        """Return the names of both alternatives."""
        left, right = self.left.roots(), self.right.roots()
        return None if left is None or right is None else left | right


class TypePattern(DFPattern):
    """Pattern for an expression with a given type."""

    pattern: DFPattern
    type: ir.Type

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        return matcher.visit(self.pattern, expr) and _alike(self.type, _type_of(expr))


class DataTypePattern(DFPattern):
    """Pattern for a tensor with a given dtype."""

    pattern: DFPattern
    dtype: str

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        found = _type_of(expr) if matcher.visit(self.pattern, expr) else None
        return isinstance(found, relax.TensorType) and str(found.dtype) == self.dtype


class ShapePattern(DFPattern):
    """Pattern for a tensor with a given shape."""

    pattern: DFPattern
    shape: Sequence[Any]

    def _matches(self, expr: Node, matcher: Matcher) -> bool:
        found = _type_of(expr) if matcher.visit(self.pattern, expr) else None
        shape = found.shape if isinstance(found, relax.TensorType) else None
        wanted = relax.ShapeExpr(list(self.shape))
        return isinstance(shape, relax.ShapeExpr) and _alike(wanted, shape)


class AttrPattern(DFPattern):
    """Pattern for an operator, a call or a function with given attributes."""

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


class DominatorPattern(DFPattern):
    """Pattern for a child all of whose inputs come from one parent along a path."""

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
        stack = [expr]
        while stack:
            for node in matcher.tree.dominated(stack.pop()):
                if matcher.visit(self.parent, node):
                    return True
                stack.append(node)
        return False

    def _follow(self, expr: Node, matcher: Matcher, followed: set[int]) -> bool:
        """Follow all inputs up to the parent, each input only once."""
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
        operators that tvmlab does not have.
    """
    root = inline_bindings(expr, functions=True)
    return Matcher(DominatorTree(root, View())).match(pattern, root)


def _type_of(expr: Node) -> ir.Type:
    if isinstance(expr, OperatorName):
        return expr.op.ty
    if not graph.has_type(infer_type(expr)):
        what = "A pattern needs the type of an expression without a type."
        fix = "Give the variables types: relay.var(name, shape=..., dtype=...)."
        raise RelayError(what, where=str(expr), fix=fix)
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
    """Match a Relay operator by name, such as ``"nn.conv2d"``; `RelayError` for an unknown name."""
    row = table.find(op_name)
    if row is None:
        near = table.closest(op_name)
        fix = f"The closest known name is {near!r}." if near else None
        raise RelayError(f"No Relay operator is named {op_name!r}.", where="is_op", fix=fix)
    pattern = ExprPattern(ir.Op.get(row.relax))
    pattern.names = frozenset([op_name])
    return pattern


def has_type(ttype: ir.Type, pattern: DFPattern | None = None) -> TypePattern:
    """Match what the pattern matches (anything, by default) if it has this type."""
    return TypePattern(pattern or wildcard(), ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Match what the pattern matches if it is a tensor with this dtype."""
    return DataTypePattern(pattern or wildcard(), dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """Match what the pattern matches if it is a tensor with this shape."""
    return ShapePattern(pattern or wildcard(), shape)


def has_attr(attrs: dict[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Match what the pattern matches if these attributes have these values.

    An operator has the attribute ``"TOpPattern"``, which determines how it can be fused.
    """
    return AttrPattern(pattern or wildcard(), attrs)


# Relay's functions with the same meaning.
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
    """List all patterns in a pattern, each once, parts before the patterns that contain them."""
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
