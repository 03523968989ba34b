"""Hold a pattern against a graph: what it covers, and why it stops where it stops."""

from __future__ import annotations

from collections import Counter

from tvm import relax
from tvm.ir import IRModule, Op

from ..errors import InputError
from ..plot import Box
from ..relay import analysis
from ..relay.dataflow_pattern import CallPattern, DFPattern, ExprPattern
from .attempt import KINDS, Attempt, attempt, name_of, wanted
from .choices import State
from .graphs import graph

__all__ = ["matched"]


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
    main = mod["main"] if isinstance(mod, IRModule) and "main" in _functions(mod) else None
    if not isinstance(main, relax.Function):
        raise InputError(
            "the module has no function main of Relax's"
            if isinstance(mod, IRModule)
            else f"a {type(mod).__name__} is no module",
            where="interactive.matched",
            fix="make one: relay.IRModule.from_expr(relay.Function([x], body))",
        )
    nodes: list[relax.Expr] = []
    analysis.post_order_visit(main.body, nodes.append)
    nodes = [node for node in nodes if not isinstance(node, Op)]
    best = max((attempt(pattern, node) for node in nodes), key=lambda one: one.rank)
    return State(graph(_boxes(nodes, best), KINDS), _told(pattern, nodes, best))


def _functions(mod: IRModule) -> set[str]:
    return {one.name_hint for one in mod.get_global_vars()}


def _boxes(nodes: list[relax.Expr], made: Attempt) -> dict[str, Box]:
    tensors = [e for e in nodes if isinstance(e.ty, relax.TensorType) and e.ty.ndim > 0]
    names = {expr: str(number) for number, expr in enumerate(tensors)}
    drawn = {}
    for expr in tensors:
        operands = [names[one] for one in getattr(expr, "args", ()) if one in names]
        kind = made.reached.get(expr, KINDS[2])
        drawn[names[expr]] = Box(f"{name_of(expr)}\n{expr.ty.dtype}", kind, operands)
    return drawn


def _told(pattern: DFPattern, nodes: list[relax.Expr], made: Attempt) -> str:
    """Say what one sees, and why."""
    if not made.begun:
        if isinstance(pattern, ExprPattern) and pattern.names:
            name = min(pattern.names)
            return (
                f"The pattern matches nowhere: it is the operator {name} alone. For a call of it, "
                f'give it patterns of its operands, or None for any: is_op("{name}")(None).'
            )
        missing = f"nothing here is {wanted(pattern)}"
        if isinstance(pattern, CallPattern):
            missing = f"no operator here is {wanted(pattern)}, its last one"
        return f"The pattern matches nowhere: {missing}."
    calls = [node for node in nodes if isinstance(node, relax.Call)]

    def named(kind: str) -> str:
        return ", ".join(name_of(e) for e in calls if made.reached.get(e, KINDS[2]) == kind)

    if made.whole:
        says = f"The pattern matches. It covers {named(KINDS[0]) or 'no operator'}."
    else:
        counted = Counter(made.reasons).items()
        each = [f"{why}, {count} times" if count > 1 else why for why, count in counted]
        why = "; ".join(each) or "two of its parts had to be one expression"
        reached = named(KINDS[0])
        says = f"The pattern does not match: {why}." + (
            f" It reached {reached}." if reached else ""
        )
    left = named(KINDS[2])
    return f"{says} Outside of it: {left}." if left else f"{says} No operator is outside."
