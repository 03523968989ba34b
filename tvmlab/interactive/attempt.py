"""How far a pattern and a graph agree, from one expression down, and why not further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from ..relay.dataflow_pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
)
from ..relay.dataflow_pattern.index import Index
from ..relay.dataflow_pattern.matcher import Matcher
from ..relay.dataflow_pattern.view import Head, see

__all__ = ["KINDS", "Attempt", "attempt", "name_of", "wanted"]

#: What can be said of a node, in the order of the legend.
KINDS = ("covered by the pattern", "the match stops here", "outside")

_CONDITIONS = (AttrPattern, DataTypePattern, ShapePattern, TypePattern)
# They say nothing of an expression that what they hold does not say.
_AROUND = (*_CONDITIONS, AltPattern, WildcardPattern)
# Relay tries their operands the other way around, too.
_COMMUTATIVE = {"add", "multiply"}
_PLAIN: dict[type, str] = {
    ConstantPattern: "a constant",
    FunctionPattern: "a function",
    IfPattern: "an if",
    LetPattern: "a let",
    TupleGetItemPattern: "a field of a tuple",
    TuplePattern: "a tuple",
    WildcardPattern: "anything",
}


@dataclass
class Attempt:
    """What came of a pattern at one expression.

    Attributes
    ----------
    whole : bool
        Whether the pattern matches.
    begun : bool
        Whether at least its last operator is the expression's.
    reached : dict of tvm.relax.Expr to str
        One of `KINDS` for each expression that the pattern came to; none where it does not begin.
    reasons : list of str
        Why it stopped, once for each place.
    """

    whole: bool
    begun: bool
    reached: dict[relax.Expr, str] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """Say how good it is, beside others."""
        return self.whole, self.begun, list(self.reached.values()).count(KINDS[0])

    def stop(self, expr: relax.Expr, reason: str) -> None:
        """Note where the match stops, and why."""
        self.reached[expr] = KINDS[1]
        self.reasons.append(reason)


def attempt(pattern: DFPattern, expr: relax.Expr) -> Attempt:
    """Try a pattern at an expression of a graph."""
    matcher = Matcher(Index(expr))
    if matcher.match(pattern, expr):
        parts = (one for one in matcher.found if not isinstance(one, _AROUND))
        found = [each for part in parts for each in matcher.found[part]]
        return Attempt(True, True, {one: KINDS[0] for one in found if isinstance(one, relax.Expr)})
    made = Attempt(False, _begins(pattern, expr))
    if made.begun:
        _follow(pattern, expr, made)
    return made


def _follow(pattern: DFPattern, expr: relax.Expr, made: Attempt) -> None:
    """Walk down a pattern and a graph together."""
    pattern = _inner(pattern, expr)
    if isinstance(pattern, CallPattern) and _begins(pattern, expr):
        operands = see(expr).operands
        parts = operands if pattern.args is None else pattern.args
        if len(parts) != len(operands):
            has, named = (f"{n} operand{'s' * (n != 1)}" for n in (len(operands), len(parts)))
            made.stop(expr, f"{name_of(expr)} has {has}, and the pattern names {named}")
        elif pattern.args is not None:
            _follow_all(_turned(pattern, operands), operands, expr, made)
        else:
            made.reached[expr] = KINDS[0]
    elif isinstance(pattern, TuplePattern) and _as_long(pattern, expr):
        _follow_all(pattern.fields or [], expr.fields, expr, made)
    elif not pattern.match(expr):
        made.stop(expr, f"{name_of(expr)} stands where the pattern wants {wanted(pattern)}")
    elif not isinstance(pattern, _AROUND):
        made.reached[expr] = KINDS[0]


def _follow_all(
    parts: Sequence[DFPattern], exprs: Sequence[relax.Expr], whole: relax.Expr, made: Attempt
) -> None:
    made.reached[whole] = KINDS[0]
    for part, expr in zip(parts, exprs, strict=True):
        _follow(part, expr, made)


def _as_long(pattern: TuplePattern, expr: relax.Expr) -> bool:
    return isinstance(expr, relax.Tuple) and len(pattern.fields or ()) == len(expr.fields)


def _turned(pattern: CallPattern, operands: Sequence[relax.Expr]) -> list[DFPattern]:
    """Put the parts of a sum or a product in the order in which more of them match."""
    parts = list(pattern.args or ())
    if not isinstance(pattern.op, ExprPattern) or pattern.op.names.isdisjoint(_COMMUTATIVE):
        return parts

    def agreeing(order: list[DFPattern]) -> int:
        return sum(part.match(one) for part, one in zip(order, operands, strict=True))

    return max(parts, parts[::-1], key=agreeing)


def _inner(pattern: DFPattern, expr: relax.Expr) -> DFPattern:
    """Take conditions off, and choose between alternatives, as far as the expression decides it."""
    if isinstance(pattern, _CONDITIONS):
        # Stop at a condition where it is the condition that fails.
        if pattern.match(expr) or not pattern.pattern.match(expr):
            return _inner(pattern.pattern, expr)
    elif isinstance(pattern, AltPattern):
        for fits in (lambda side: side.match(expr), lambda side: _begins(side, expr)):
            for side in (pattern.left, pattern.right):
                if fits(side):
                    return _inner(side, expr)
    return pattern


def _begins(pattern: DFPattern, expr: relax.Expr) -> bool:
    """Say whether a pattern's last operator is this call's, whatever its operands are."""
    if isinstance(pattern, AltPattern):
        return _begins(pattern.left, expr) or _begins(pattern.right, expr)
    if isinstance(pattern, _CONDITIONS):
        return _begins(pattern.pattern, expr)
    if isinstance(pattern, DominatorPattern):
        return _begins(pattern.child, expr)
    if not isinstance(pattern, CallPattern) or not isinstance(expr, relax.Call):
        return False
    return pattern.op.match(expr.op)


def name_of(expr: relax.Expr) -> str:
    """Give the name that Relay had for an operator, or say what else it is."""
    if isinstance(expr, relax.Call):
        head = see(expr).head
        return min(head.names) if isinstance(head, Head) else "the call of a function"
    if isinstance(expr, relax.Var):
        return str(expr.name_hint)
    if isinstance(expr, (relax.Tuple, relax.TupleGetItem)):
        return "tuple" if isinstance(expr, relax.Tuple) else "a field of a tuple"
    kinds = {relax.Function: "a function", relax.If: "an if", relax.SeqExpr: "a let"}
    return kinds.get(type(expr), "constant")


def wanted(pattern: DFPattern) -> str:
    """Say what a pattern takes."""
    return _said(pattern, _expression)


def _said(pattern: DFPattern, leaf: Callable[[DFPattern], str]) -> str:
    """Say alternatives and conditions in words, and what they hold by another function."""
    if isinstance(pattern, AltPattern):
        return f"{_said(pattern.left, leaf)} or {_said(pattern.right, leaf)}"
    if isinstance(pattern, _CONDITIONS):
        return f"{_said(pattern.pattern, leaf)} {_condition(pattern)}"
    return leaf(pattern)


def _expression(pattern: DFPattern) -> str:
    """Say which expression is taken."""
    if isinstance(pattern, DominatorPattern):
        return f"{wanted(pattern.child)} that {wanted(pattern.parent)} dominates"
    if isinstance(pattern, CallPattern):
        return _said(pattern.op, _operator)
    if isinstance(pattern, ExprPattern):
        return (
            f"{_operator(pattern)} itself, not a call of it" if pattern.names else "an expression"
        )
    if isinstance(pattern, VarPattern):
        return f"the variable {pattern.name}" if pattern.name else "a variable"
    return _PLAIN.get(type(pattern), "something else")


def _operator(pattern: DFPattern) -> str:
    """Say which operator a call has to be of."""
    if isinstance(pattern, ExprPattern) and pattern.names:
        return min(pattern.names)
    return "any operator" if isinstance(pattern, WildcardPattern) else _expression(pattern)


def _condition(pattern: Any) -> str:
    """Say what a condition asks for."""
    if isinstance(pattern, DataTypePattern):
        return f"of dtype {pattern.dtype}"
    if isinstance(pattern, ShapePattern):
        return f"of shape ({', '.join(map(str, pattern.shape))})"
    if isinstance(pattern, TypePattern):
        return f"of type {pattern.type}"
    return f"with {', '.join(f'{name}={value}' for name, value in pattern.attrs.items())}"
