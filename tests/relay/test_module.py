"""Modules, functions and visitors through Relay's names."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import tvm
from tvm import relax

from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.ir import table
from tvmlab.ir.module import normalize
from tvmlab.relay.module import bind_params_by_name

X = (1, 3, 8, 8)


def calls(function: relax.Function) -> list[str]:
    found: list[str] = []
    relay.analysis.post_order_visit(
        function,
        lambda e: found.append(table.written(e)[0].name) if isinstance(e, relay.Call) else 0,
    )
    return found


def test_a_module_of_an_expression() -> None:
    x, y = relay.var("x", shape=X), relay.var("y", shape=X)
    mod = relay.IRModule.from_expr(relay.add(y, x) - y)
    assert isinstance(mod, relay.IRModule)
    assert [param.name for param in mod["main"].params] == ["y", "x"]
    relax.analysis.well_formed(mod)
    assert [type(block) for block in mod["main"].body.blocks] == [relax.DataflowBlock]
    assert "other" in relay.from_expr(relay.Function([x], x, attrs={"global_symbol": "other"}))


def test_functions_without_types_take_those_of_their_arguments() -> None:
    x, w = relay.var("x"), relay.var("w")
    inner = relay.Function([x, w], relay.nn.conv2d(x, w)).with_attr("Composite", "test.conv")
    a, b = relay.var("a", shape=X), relay.var("b", shape=(4, 3, 3, 3))
    main = relay.from_expr(relay.Function([a, b], inner(a, b) + relay.Call(inner, [a, b])))["main"]
    values = (binding.value for binding in main.body.blocks[0].bindings)
    found = next(value for value in values if isinstance(value, relax.Function))
    assert [param.ty for param in found.params] == [a.ty, b.ty]
    assert found.attrs["Composite"] == "test.conv"
    assert main.ret_ty == relay.TensorType((1, 4, 6, 6))
    with pytest.raises(RelayError, match="cannot be inferred"):
        relay.from_expr(relay.nn.batch_norm(*(relay.var(name) for name in "abcde"))[0])


def test_let_and_if() -> None:
    x, y, z = relay.var("x", shape=X), relay.var("y"), relay.var("z")
    chain = relay.Let(y, x + x, relay.Let(z, relay.nn.relu(y), z * y))
    mod = relay.from_expr(relay.Function([x], chain))
    assert calls(mod["main"]) == ["add", "nn.relu", "multiply"]
    condition = relay.var("c", "bool")
    branch = relay.Function([condition, x], relay.If(condition, x + x, x))
    assert relay.from_expr(branch)["main"].ret_ty == x.ty
    w = relay.var("w")
    with pytest.raises(RelayError, match="computed from itself"):
        relay.from_expr(relay.Function([x], relay.Let(w, w + w, w)))


@pytest.mark.parametrize(
    "text",
    [
        "let %x: float16 = (); %x",
        "let %x: int8x4 = 1; %x",
        "free_var %x: float32; let %x = fn (%y) { if (%y) { %y(%y) } else { () } }; %x",
    ],
)
def test_an_expression_is_read_whose_types_do_not_fit(text: str) -> None:
    read = relay.parse_expr(text)
    assert isinstance(read.body, relay.Var)
    assert read.body.name == "x"


def test_a_deep_graph() -> None:
    x = y = relay.var("x", shape=(2,))
    for _ in range(3000):
        y = y + x

    class Flip(relay.ExprMutator):
        def visit_call(self, call: relax.Call) -> relax.Expr:
            made = super().visit_call(call)
            return made.args[0] - made.args[1]

    flipped = Flip().visit(relay.from_expr(relay.Function([x], y))["main"])
    assert calls(flipped) == ["subtract"] * 3000


def test_modules_filled_by_hand_are_normalized() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    callee, call = relay.GlobalVar("callee"), relay.var("z")
    mod = tvm.IRModule()
    mod[callee] = relay.Function([x, y], relay.Tuple([x + y, x]))
    pair = callee(call, call)
    mod["main"] = relay.Function([call], relay.nn.relu(relay.TupleGetItem(pair, 0)))
    made = normalize(mod)
    assert made["main"].ret_ty == made["main"].params[0].ty == x.ty  # as the callee has it
    relax.analysis.well_formed(made)
    assert made["main"].attrs["global_symbol"] == "main"
    assert "global_symbol" not in made["callee"].attrs
    assert normalize(made).same_as(made)


def test_binding() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    function = relay.Function([x, y], x + y)
    bound = relay.bind(function, {y: relay.const(np.ones(2))})
    assert [param.name for param in bound.params] == ["x"]
    assert relay.bind(x + y, {x: y}).args[0].same_as(y)
    mod = relay.from_expr(function)
    for one in (function, mod["main"]):
        by_name = bind_params_by_name(one, {"y": np.ones(2, "float32"), "other": np.ones(2)})
        assert [str(param.ty) for param in by_name.params] == [str(x.ty)]
        assert bool(by_name.body.blocks) == bool(one.body.blocks)
        for wrong in (np.ones(2), np.ones(3, "float32"), np.ones((1, 3), "float32")):
            with pytest.raises(RelayError):  # bound, as Relay did, and found wrong by inference
                normalize(tvm.IRModule({"main": bind_params_by_name(one, {"y": wrong})}))


def test_variables_in_the_order_of_their_use() -> None:
    a, b, c = (relay.var(name, shape=(2,)) for name in "abc")
    inner = relay.Function([c], c + b)
    graph = (b - a) * relay.Call(inner, [a])

    def names(found: list[relax.Var]) -> list[str]:
        return [var.name for var in found]

    assert names(relay.analysis.free_vars(graph)) == ["b", "a"]
    assert names(relay.analysis.all_vars(graph)) == ["b", "a", "c"]
    assert names(relay.analysis.bound_vars(graph)) == ["c"]
    assert relay.analysis.free_vars(relay.Function([a, b], graph)) == []


def test_each_node_is_visited_once_after_its_parts() -> None:
    x = relay.var("x", shape=(2,))
    y = relay.nn.relu(x)
    seen: list[relax.Expr] = []
    relay.analysis.post_order_visit(y + y, seen.append)
    assert [type(node).__name__ for node in seen] == ["Op", "Op", "Var", "Call", "Call"]
    mod = relay.from_expr(relay.Function([x], (y + y) * y))
    assert relay.analysis.list_op_freqs(mod) == {"nn.relu": 1, "add": 1, "multiply": 1}

    class Count(relay.ExprVisitor):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def visit_call(self, call: relax.Call) -> None:
            super().visit_call(call)
            self.found.append(call.op.name)

    visitor = Count()
    visitor.visit(mod["main"])
    assert visitor.found == ["relax.nn.relu", "relax.add", "relax.multiply"]
    limit = sys.getrecursionlimit()
    with pytest.raises(AttributeError, match="visit_var"):
        relay.ExprFunctor().visit(x)
    assert sys.getrecursionlimit() == limit
