"""Graphs are as deep as memory is; what TVM walks by recursion is refused before it is too deep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import relax

from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.ir import graph

X = relay.var("x", shape=(2,))
C = relay.var("c", shape=(), dtype="bool")
Y = relay.abs(X)


def repeated(times: int, step: Callable[[Any], Any], first: Any = X) -> Any:
    made = first
    for _ in range(times):
        made = step(made)
    return made


STEPS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "tuples": (lambda inner: relay.Tuple([inner]), graph.MAX_TYPE_DEPTH - 1),
    "tuples of Relax": (lambda inner: relax.Tuple([inner]), graph.MAX_TYPE_DEPTH - 1),
    "pairs of the same": (lambda inner: relay.Tuple([inner, inner]), 12),
    "branches": (lambda inner: relay.If(C, inner, X), graph.MAX_SCOPES),
    "branches that use no condition": (lambda inner: relay.If(C, X, inner), graph.MAX_SCOPES),
    "functions": (lambda inner: relay.Function([], inner), graph.MAX_SCOPES - 1),
}


@pytest.mark.parametrize("name", STEPS)
def test_nesting_is_carried_up_to_a_limit_and_refused_beyond_it(name: str) -> None:
    step, most = STEPS[name]
    mod = relay.IRModule.from_expr(relay.Function([X, C], repeated(most, step, Y)))
    assert relay.analysis.well_formed(mod)
    for more in (1, 5000):
        with pytest.raises(RelayError, match="nest"):
            relay.IRModule.from_expr(relay.Function([X, C], repeated(most + more, step, Y)))


def test_what_does_not_nest_is_not_counted() -> None:
    """Fields of tuples taken out again, and branches one after the other."""
    packed = repeated(500, lambda inner: relay.Tuple([inner, X])[0])
    turned = repeated(500, lambda inner: relay.If(C, relay.abs(inner), relay.nn.relu(inner)))
    for body in (packed, turned):
        mod = relay.IRModule.from_expr(relay.Function([X, C], body))
        assert mod["main"].ret_ty == X.ty
