"""What a pattern is made of: one class for each kind, with Relay's names and fields.

A pattern is a value: it knows its parts and nothing of matching (`matcher`). Two patterns are the
same only if they are one object, which is how Relay lets a pattern say "the same expression again".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax

from ...errors import RelayError
from .. import table
from .view import names_of


class DFPattern:
    """The base of all patterns; its operators build larger ones."""

    #: The functions `match` and `partition` of the package, which know every class of patterns.
    match: Callable[..., bool]
    partition: Callable[..., Any]

    def parts(self) -> list[DFPattern]:
        """List the patterns that this one is made of, in Relay's order."""
        return []

    def __call__(self, *args: DFPattern | None) -> CallPattern:
        """Match a call of what this matches; ``pattern(None)`` takes any arguments."""
        return CallPattern(self, None if len(args) == 1 and args[0] is None else args)  # type: ignore[arg-type]

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


def _checked(part: DFPattern) -> DFPattern:
    """Refuse a part that is no pattern, where it is written and not where it is matched."""
    if not isinstance(part, DFPattern):
        raise RelayError(
            f"A part of a pattern is {part!r}, of type {type(part).__module__}."
            f"{type(part).__name__}: no pattern of Relay's language.",
            where="dataflow_pattern",
            fix="Take wildcard() for anything; TVM's own tvm.relax.dpl is another language.",
        )
    return part


class ExprPattern(DFPattern):
    """Matches one expression by its structure, or an operator.

    Parameters
    ----------
    expr : tvm.relax.Expr
        The expression; for an operator, one that Relay knows.

    Attributes
    ----------
    names : frozenset of str
        Relay's names of the operator; empty for any other expression.
    """

    def __init__(self, expr: relax.Expr) -> None:
        self.expr = expr
        self.names = names_of(expr) if isinstance(expr, ir.Op) else frozenset()


class VarPattern(DFPattern):
    """Matches a variable of this name, or any if the name is empty."""

    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint


class ConstantPattern(DFPattern):
    """Matches a constant."""


class WildcardPattern(DFPattern):
    """Matches anything, or what it was redirected to."""

    def __init__(self) -> None:
        self.pattern: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Let another pattern stand here, even one that this is part of: recursion."""
        self.pattern = pattern

    def parts(self) -> list[DFPattern]:
        """Give what it was redirected to."""
        return [] if self.pattern is None else [self.pattern]


class CallPattern(DFPattern):
    """Matches a call; `args` is None for any arguments."""

    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op = _checked(op)
        self.args = None if args is None else [_checked(one) for one in args]

    def parts(self) -> list[DFPattern]:
        """Give the operator's pattern, then the arguments'."""
        return [self.op, *(self.args or [])]


class FunctionPattern(DFPattern):
    """Matches a function; `params` is None for any parameters."""

    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self.params = None if params is None else list(params)
        self.body = body

    def parts(self) -> list[DFPattern]:
        """Give the parameters' patterns, then the body's."""
        return [*(self.params or []), self.body]


class IfPattern(DFPattern):
    """Matches a branch."""

    def __init__(self, cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> None:
        self.cond = cond
        self.true_branch = true_branch
        self.false_branch = false_branch

    def parts(self) -> list[DFPattern]:
        """Give the condition's pattern, then the two branches'."""
        return [self.cond, self.true_branch, self.false_branch]


class LetPattern(DFPattern):
    """Matches a binding that was built as an expression, and what follows it."""

    def __init__(self, var: DFPattern, value: DFPattern, body: DFPattern) -> None:
        self.var = var
        self.value = value
        self.body = body

    def parts(self) -> list[DFPattern]:
        """Give the variable's pattern, then the value's and the rest's."""
        return [self.var, self.value, self.body]


class TuplePattern(DFPattern):
    """Matches a tuple; `fields` is None for any number of anything."""

    def __init__(self, fields: Sequence[DFPattern] | None) -> None:
        self.fields = None if fields is None else [_checked(one) for one in fields]

    def parts(self) -> list[DFPattern]:
        """Give the fields' patterns."""
        return list(self.fields or [])

    def __getitem__(self, index: int) -> DFPattern:
        if self.fields is None or index >= len(self.fields):
            raise IndexError("TuplePattern index out of range")
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields or [])


class TupleGetItemPattern(DFPattern):
    """Matches a field of a tuple; `index` is -1 for any."""

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self.tuple = tuple_value
        self.index = -1 if index is None else index

    def parts(self) -> list[DFPattern]:
        """Give the tuple's pattern."""
        return [self.tuple]


class AltPattern(DFPattern):
    """Matches what one of two patterns matches, the left one first."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left = _checked(left)
        self.right = _checked(right)

    def parts(self) -> list[DFPattern]:
        """Give the two patterns."""
        return [self.left, self.right]


class _Constraint(DFPattern):
    """A pattern, and a condition on what it matches."""

    def __init__(self, pattern: DFPattern) -> None:
        self.pattern = pattern

    def parts(self) -> list[DFPattern]:
        """Give the pattern that the condition is on."""
        return [self.pattern]


class TypePattern(_Constraint):
    """Matches by the whole type."""

    def __init__(self, pattern: DFPattern, ttype: ir.Type) -> None:
        super().__init__(pattern)
        self.type = ttype


class DataTypePattern(_Constraint):
    """Matches by the dtype of a tensor."""

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        super().__init__(pattern)
        self.dtype = dtype


class ShapePattern(_Constraint):
    """Matches by the shape of a tensor."""

    def __init__(self, pattern: DFPattern, shape: Sequence[Any]) -> None:
        super().__init__(pattern)
        self.shape = list(shape)


class AttrPattern(_Constraint):
    """Matches by attributes of an operator, a call or a function."""

    def __init__(self, pattern: DFPattern, attrs: dict[str, Any] | ir.DictAttrs) -> None:
        super().__init__(pattern)
        self.attrs = dict(attrs.items())


class DominatorPattern(DFPattern):
    """Matches a child all of whose inputs come from one parent along a path."""

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern) -> None:
        self.parent = parent
        self.path = path
        self.child = child

    def parts(self) -> list[DFPattern]:
        """Give the parent's pattern, then the path's and the child's."""
        return [self.parent, self.path, self.child]


def is_var(name: str = "") -> VarPattern:
    """Match a variable of this name, or any variable."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """Match a constant."""
    return ConstantPattern()


def is_expr(expr: relax.Expr) -> ExprPattern:
    """Match an expression of this structure; variables match themselves only."""
    return ExprPattern(expr)


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


def is_tuple(fields: Sequence[DFPattern] | None) -> TuplePattern:
    """Match a tuple of these fields, or any tuple for None."""
    return TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Match the field of this index of a tuple, or any field."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """Match a branch."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """Match a let."""
    return LetPattern(var, value, body)


def wildcard() -> WildcardPattern:
    """Match anything."""
    return WildcardPattern()


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

    For a call they are Relay's attributes, by Relay's names, with defaults filled in; for a
    function its own; for an operator ``"TOpPattern"``, what fusion thinks of it.
    """
    return AttrPattern(pattern or wildcard(), attrs)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """Match a child all of whose inputs come from one parent along a path."""
    return DominatorPattern(parent, path, child)


def patterns(root: DFPattern) -> list[DFPattern]:
    """List all patterns that a pattern is made of, each once, parts before the whole."""
    seen: set[DFPattern] = set()
    order: list[DFPattern] = []
    stack: list[tuple[DFPattern, bool]] = [(root, False)]
    while stack:
        pattern, ready = stack.pop()
        if ready:
            order.append(pattern)
        elif pattern not in seen:
            seen.add(pattern)
            stack.append((pattern, True))
            stack.extend((part, False) for part in reversed(pattern.parts()))
    return order
