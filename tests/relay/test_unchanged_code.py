"""What code written for Relay reads and makes, where only its imports were changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import ir, relax

from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.ir import graph
from tvmlab.ir.patterns import DFPatternCallback, is_constant, is_op, rewrite, wildcard
from tvmlab.relay import transform
from tvmlab.relay.build_module import bind_params_by_name
from tvmlab.relay.testing import run_opt_pass


def is_a(value: Any, *kinds: Any) -> bool:
    """Ask as code does, without telling mypy what the answer means."""
    return isinstance(value, kinds)


def normalized(body: Any, *params: relax.Var) -> relax.Function:
    """Make a function as modules hold it, with bindings."""
    return relay.IRModule.from_expr(relay.Function(list(params), body))["main"]


def test_a_functions_body_is_read_as_the_graph_that_it_is() -> None:
    x = relay.var("x", shape=(2, 3))
    body = normalized(relay.nn.relu(relay.add(x, relay.const(np.float32(2)))), x).body
    assert is_a(body, relax.SeqExpr)
    assert is_a(body, relay.Call)
    assert not is_a(body, relay.Tuple, relay.Constant, relay.Var)
    assert body.op.same_as(relay.op.get("nn.relu"))
    assert body.args[0].op.same_as(relay.op.get("add"))  # the producer, not a variable
    assert body.args[0].args[1].data.numpy() == 2

    pair = normalized(relay.Tuple([relay.abs(x), x]), x).body
    assert is_a(pair, relay.Tuple)
    assert len(pair.fields) == 2
    field = normalized(relay.TupleGetItem(relay.split(x, 3, axis=1).astuple(), 2), x).body
    assert is_a(field, relay.TupleGetItem)
    assert field.index == 2
    constant = normalized(relay.const(np.float32(7))).body
    assert is_a(constant, relay.Constant)
    assert constant.data.numpy() == 7
    assert is_a(normalized(x, x).body, relay.Var)
    with pytest.raises(AttributeError):
        _ = pair.op


def test_a_let_is_no_call_though_its_value_is() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y")
    let = relay.Let(y, relay.abs(x), relay.nn.relu(y))
    assert is_a(let, relay.Let)
    assert not is_a(let, relay.Call)
    assert graph.result(let).same_as(let)


def test_a_merged_function_is_found_in_the_body() -> None:
    x = relay.var("x", shape=(2, 3))
    table = [("lab.add_relu", is_op("nn.relu")(is_op("add")(wildcard(), wildcard())))]
    function = relay.Function([x], relay.nn.relu(relay.add(x, x)))
    result = run_opt_pass(function, transform.MergeComposite(table))
    assert result.body.op.attrs["Composite"] == "lab.add_relu"
    assert result.body.op.body.op.same_as(relay.op.get("nn.relu"))


def test_numbers_read_off_a_constant_are_those_that_were_written() -> None:
    x, var = (relay.var(name, shape=(1, 4, 1, 1)) for name in ("x", "var"))

    class Epsilon(DFPatternCallback):
        def __init__(self) -> None:
            super().__init__()
            self.x, self.epsilon = wildcard(), is_constant()
            self.pattern = is_op("sqrt")(self.x + self.epsilon)

        def callback(self, pre: Any, post: Any, node_map: Any) -> Any:
            number = node_map[self.epsilon][0].data.numpy().item()
            assert number != 1e-5  # it is the float32's
            return relay.nn.leaky_relu(node_map[self.x][0], alpha=number)

    found = rewrite(Epsilon(), relay.sqrt(var + relay.const(1e-5)))
    assert tvm_ffi.structural_equal(found, relay.nn.leaky_relu(var, alpha=1e-5))
    assert relay.nn.leaky_relu(x, alpha=0.1 + 1e-12).attrs.alpha == 0.1 + 1e-12
    largest = float(np.finfo("float32").max)
    assert relay.clip(x, -largest, largest).args[2].value == largest


def test_what_python_operators_made_has_a_type_for_patterns() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    total = relay.nn.relu(x) + relay.nn.relu(relay.abs(x))
    pattern = is_op("add")(wildcard(), wildcard())
    assert pattern.has_shape((1, 3, 8, 8)).has_dtype("float32").match(total)
    assert not pattern.has_shape((1, 3, 8, 9)).match(x + x)


def test_parameters_of_another_type_are_bound_and_found_wrong_by_inference() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    mod = relay.IRModule.from_expr(relay.Function([x, w], relay.nn.conv2d(x, w)))
    pattern = is_op("nn.conv2d")(wildcard(), is_constant())
    assert not pattern.match(mod["main"].body)
    wrong = tvm.runtime.tensor(np.ones((4, 3, 3, 3)))  # float64
    mod["main"] = bind_params_by_name(mod["main"], {"w": wrong})
    assert pattern.match(mod["main"].body)
    with pytest.raises(RelayError):
        transform.InferType()(mod)


def test_a_weight_of_wrong_shape_is_found_wrong_when_the_data_is_known() -> None:
    made = relay.nn.conv2d(relay.var("x"), relay.const(1))
    assert is_op("nn.conv2d")(wildcard(), is_constant()).match(made)
    with pytest.raises(RelayError):
        relay.nn.conv2d(relay.var("x", shape=(1, 3, 8, 8)), relay.const(1))


def test_parameters_without_a_type_take_the_callees() -> None:
    x, y = relay.var("x", shape=(4,)), relay.var("y")
    name = ir.GlobalVar("half")
    mod = ir.IRModule({name: relay.Function([x], relay.abs(x))})
    mod["main"] = relay.Function([y], relay.nn.relu(relay.Call(name, [y])))
    inferred = transform.InferType()(mod)
    assert tvm_ffi.structural_equal(inferred["main"].params[0].ty, x.ty)
    assert tvm_ffi.structural_equal(inferred["main"].ret_ty, x.ty)


def test_several_results_are_taken_apart_where_a_sequence_is_wanted() -> None:
    x = relay.var("x", shape=(4, 6))
    parts = relay.split(x, 2)
    joined = relay.concatenate(parts, axis=1)
    assert is_a(joined.args[0], relay.Tuple)
    assert [field.index for field in joined.args[0].fields] == [0, 1]
    marked = relay.annotation.compiler_end(parts, "lab")
    assert is_a(marked, relay.Call)
    assert is_a(marked.ty, ir.TupleType)


def test_the_functions_beneath_relays_take_all_in_order() -> None:
    x = relay.var("x", shape=(4, 6))
    pair = relay.Tuple([x, x])
    below = relay.op._make.concatenate(pair, 1)
    assert tvm_ffi.structural_equal(below, relay.concatenate(pair, axis=1))
    assert tvm_ffi.structural_equal(relay.op.nn._make.softmax(x, 0), relay.nn.softmax(x, axis=0))
    with pytest.raises(AttributeError, match="no operator"):
        _ = relay.op._make.no_such_operator


def test_a_branch_has_the_type_that_both_sides_share() -> None:
    x = relay.var("x", shape=(4,))
    both = relay.If(relay.const(True), relay.abs(x), relay.nn.relu(x))
    assert tvm_ffi.structural_equal(both.ty, x.ty)


def test_text_is_read_by_relays_names() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { abs(%x) }'
    assert relay.parse(text, "notes.relay")["main"].body.op.same_as(relay.op.get("abs"))
    assert relay.parse_expr("1f + 2f").op.same_as(relay.op.get("add"))


def test_nested_functions_without_types_get_those_of_their_arguments() -> None:
    types = ": Tensor[(1, 3, 8, 8), float32]", ": Tensor[(4, 3, 3, 3), float32]"
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) {{
      %1 = fn (%a{}, %b{}, Composite="lab.conv") {{
        nn.conv2d(%a, %b, channels=4, kernel_size=[3, 3])
      }};
      %2 = %1(%x, %w);
      nn.relu(%2)
    }}"""
    bare, typed = relay.fromtext(text.format("", "")), relay.fromtext(text.format(*types))
    inner, wanted = (mod["main"].body.args[0].op for mod in (bare, typed))
    assert tvm_ffi.structural_equal(inner.params, wanted.params, map_free_vars=True)
    assert inner.body.op.same_as(wanted.body.op)
    assert str(bare["main"].ret_ty) == str(typed["main"].ret_ty)
    assert graph.known(bare["main"].body.body)
