"""Random modules printed and read again."""

from __future__ import annotations

from typing import Any

import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import ir, relax

from tests.ir.rows import Draw, modules
from tests.ir.texts import equal, module, same_again
from tests.short import examples
from tvmlab.ir import graph
from tvmlab.ir.text.printer import astext
from tvmlab.relay import transform

ANY = settings(deadline=None, suppress_health_check=list(HealthCheck))


ATTRIBUTES: tuple[dict[str, Any], ...] = (
    {},
    {"Primitive": 1},
    {"Composite": "ours.part", "PartitionedFromPattern": "nn.conv2d_add_"},
)


@st.composite
def nested_modules(draw: Draw) -> tvm.IRModule:
    """Make a module in which nested functions replace some calls.

    Such a function takes the call's operands as parameters, tuples whole; but constants can be
    inside, and it can read parameters of ``main``. It can be called again.
    """
    main = draw(modules(most=6))["main"]
    params, before = list(main.params), graph.inline_bindings(main.body)
    seconds: list[relax.Expr] = []

    def wrap(old: relax.Expr, new: relax.Expr) -> relax.Expr:
        if not isinstance(old, relax.Call) or draw(st.integers(0, 2)):
            return new
        function, operands = _around(draw, new, {graph.key(param) for param in params})
        if not draw(st.integers(0, 3)):
            seconds.append(graph.typed(relax.Call(function, operands)))
        return graph.typed(relax.Call(function, operands))

    after = graph.transform(before, wrap)
    body = relax.Tuple([after, *seconds]) if seconds else after
    made = graph.to_anf(params, body).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": made})


def _around(
    draw: Draw, call: relax.Expr, around: set[int]
) -> tuple[relax.Function, list[relax.Expr]]:
    """Make a function of a call, and give what to call it with."""
    inside: dict[int, relax.Expr] = {}
    params: list[relax.Var] = []
    operands: list[relax.Expr] = []
    for child in graph.children(call):
        captured = graph.key(child) in around and draw(st.booleans())
        constant = isinstance(child, ir.GenericConst) and draw(st.booleans())
        if graph.key(child) in inside or captured or constant or not _tensors(child.ty):
            inside.setdefault(graph.key(child), child)
            continue
        params.append(relax.Var(f"p{len(params)}", child.ty))
        operands.append(child)
        inside[graph.key(child)] = params[-1]
    inner = graph.rebuild(call, [inside[graph.key(child)] for child in graph.children(call)])
    body = relax.SeqExpr([], inner)
    attributes = ir.make_node("ir.DictAttrs", **draw(st.sampled_from(ATTRIBUTES)))
    return relax.Function(params, body, call.ty, attrs=attributes), operands


def _tensors(ty: ir.Type) -> bool:
    """Say whether a type is of tensors alone: shapes and numbers are attributes to Relay."""
    if isinstance(ty, relax.TupleType):
        return all(map(_tensors, ty.fields))
    return isinstance(ty, relax.TensorType)


@given(modules())
@settings(ANY, max_examples=examples(400))
def test_a_module_is_read_as_it_was_printed(mod: tvm.IRModule) -> None:
    same_again(mod)


@given(nested_modules())
@settings(ANY, max_examples=examples(100))
def test_calls_of_nested_functions_are_read_as_they_were_printed(mod: tvm.IRModule) -> None:
    relax.analysis.well_formed(mod)
    same_again(mod)
    inferred = transform.InferType()(mod)
    assert equal(inferred, mod), astext(mod)


def test_minus_zero_is_no_default() -> None:
    x = relax.Var("x", relax.TensorType((1, 2, 3, 4), "float32"))
    given = {"layout": "NCHW", "extrapolation_value": -0.0}
    text = same_again(module(lambda b, x: b.emit(relax.op.image.resize2d(x, (6, 8), **given)), x))
    assert "extrapolation_value=-0f" in text
