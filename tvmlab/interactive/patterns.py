"""Hold a pattern against a graph: what it covers, and why it stops where it stops."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tvm import relax
from tvm.ir import IRModule

from ..errors import InputError
from ..plot import Box
from ..relay import analysis
from ..relay.dataflow_pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ShapePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
)
from .choices import State
from .graphs import graph

__all__ = ["KINDS", "matched"]

#: What can be said of a node, in the order of the legend.
KINDS = ("covered by the pattern", "the match stops here", "outside")


_CONDITIONS = (AttrPattern, DataTypePattern, ShapePattern, TypePattern)


@dataclass
class _Attempt:
    """How far a pattern and a graph agree: by expression its kind, and why it stopped."""

    reached: dict[relax.Expr, str] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    @property
    def covered(self) -> int:
        return list(self.reached.values()).count(KINDS[0])


def matched(pattern: DFPattern, mod: IRModule) -> State:
    """Draw a graph with what a pattern covers of it, and say why it does not go further.

    A pattern may begin at any operator. Of all beginnings that match, the one that covers most is
    drawn; if none matches, of all others.

    Parameters
    ----------
    pattern : tvmlab.relay.dataflow_pattern.DFPattern
        The pattern, in Relay's language.
    mod : tvm.ir.IRModule
        A module with a small ``main``.

    Returns
    -------
    State
        Scales and zero points are not drawn, but named where the match stops at one.

    Raises
    ------
    tvmlab.errors.InputError
        If it is no pattern of Relay's, or the module has no ``main``.
    """
    if not isinstance(pattern, DFPattern):
        raise InputError(
            f"a {type(pattern).__name__} is no pattern of Relay's language",
            where="interactive.matched",
            fix="build it with tvmlab.relay.dataflow_pattern",
        )
    if "main" not in {one.name_hint for one in mod.get_global_vars()}:
        raise InputError("the module has no function main", where="interactive.matched")
    nodes: list[relax.Expr] = []
    analysis.post_order_visit(mod["main"].body, nodes.append)
    best, complete = _Attempt(), False
    for node in nodes:
        attempt = _Attempt()
        _follow(pattern, node, attempt)
        whole = pattern.match(node)
        if (whole, attempt.covered) > (complete, best.covered):
            best, complete = attempt, whole
    return State(graph(_boxes(nodes, best), KINDS), _told(pattern, nodes, best, complete))


def _follow(pattern: DFPattern, expr: relax.Expr, attempt: _Attempt) -> None:
    """Walk down a pattern and a graph together."""
    pattern = _inner(pattern, expr)
    if isinstance(pattern, CallPattern) and _begins(pattern, expr):
        attempt.reached[expr] = KINDS[0]
        for part, operand in zip(pattern.args or (), expr.args, strict=False):
            _follow(part, operand, attempt)
    elif not pattern.match(expr):
        attempt.reached[expr] = KINDS[1]
        attempt.reasons.append(f"{_name(expr)} stands where the pattern wants {_wanted(pattern)}")
    elif not isinstance(pattern, WildcardPattern):
        attempt.reached[expr] = KINDS[0]


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
    if not isinstance(pattern, CallPattern) or not isinstance(expr, relax.Call):
        return False
    return pattern.op.match(expr.op)


def _boxes(nodes: list[relax.Expr], attempt: _Attempt) -> dict[str, Box]:
    tensors = [e for e in nodes if isinstance(e.ty, relax.TensorType) and e.ty.ndim > 0]
    names = {expr: str(number) for number, expr in enumerate(tensors)}
    made = {}
    for expr in tensors:
        operands = [names[one] for one in getattr(expr, "args", ()) if one in names]
        kind = attempt.reached.get(expr, KINDS[2])
        made[names[expr]] = Box(f"{_name(expr)}\n{expr.ty.dtype}", kind, operands)
    return made


def _name(expr: relax.Expr) -> str:
    """Give the name that Relay had for an operator, or say what else it is."""
    if isinstance(expr, relax.Call):
        name: str = expr.op.name.removeprefix("relax.").removeprefix("relay.")
        return "cast" if name == "astype" else name
    if isinstance(expr, relax.Var):
        return str(expr.name_hint)
    return "tuple" if isinstance(expr, (relax.Tuple, relax.TupleGetItem)) else "constant"


def _wanted(pattern: Any) -> str:
    """Say what a pattern takes."""
    if isinstance(pattern, AltPattern):
        return f"{_wanted(pattern.left)} or {_wanted(pattern.right)}"
    if isinstance(pattern, CallPattern):
        return _wanted(pattern.op)
    if isinstance(pattern, ExprPattern):
        return min(pattern.names) if pattern.names else "one certain expression"
    if isinstance(pattern, ConstantPattern):
        return "a constant"
    if isinstance(pattern, VarPattern):
        return f"the variable {pattern.name}" if pattern.name else "a variable"
    if isinstance(pattern, WildcardPattern):
        return "anything"
    if isinstance(pattern, _CONDITIONS):
        return f"{_wanted(pattern.pattern)} with another type or other attributes"
    return "something else"


def _told(pattern: DFPattern, nodes: list[relax.Expr], attempt: _Attempt, complete: bool) -> str:
    """Say what one sees, and why."""
    if not attempt.covered:
        return f"The pattern matches nowhere: no operator here is {_wanted(pattern)}, its last one."
    calls = [node for node in nodes if isinstance(node, relax.Call)]

    def named(kind: str) -> str:
        return ", ".join(_name(e) for e in calls if attempt.reached.get(e, KINDS[2]) == kind)

    if complete:
        says = f"The pattern matches. It covers {named(KINDS[0])}."
    else:
        counted = Counter(attempt.reasons).items()
        each = [f"{why}, {count} times" if count > 1 else why for why, count in counted]
        why = "; ".join(each) or "two of its parts had to be one expression"
        says = f"The pattern does not match: {why}. It reached {named(KINDS[0])}."
    left = named(KINDS[2])
    return f"{says} Outside of it: {left}." if left else f"{says} No operator is outside."
