"""Relay's pattern callbacks rewrite graphs, and its patterns cut functions out of them."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

from tests.ir.pattern_graphs import (
    call,
    conv,
    conv_bias_relu,
    conv_pattern,
    equal,
    image,
    leaky,
    relu,
    var,
)
from tvmlab import errors
from tvmlab.ir import graph
from tvmlab.ir.patterns import (
    DFPatternCallback,
    dominates,
    is_op,
    is_var,
    rewrite,
    rewrite_functions,
    wildcard,
)
from tvmlab.ir.patterns.pattern import Matcher
from tvmlab.ir.patterns.view import View


def rule(pattern, change, **options):
    """Make a callback of a pattern and a function."""

    class Rule(DFPatternCallback):
        def __init__(self):
            super().__init__(**options)
            self.pattern = pattern

        def callback(self, pre, post, node_map):
            return change(pre, post, node_map)

    return Rule()


def add_pattern():
    return is_op("add")(wildcard(), wildcard())


def to_subtract(pre, post, node_map):
    return call("subtract", *post.args)


def test_inputs_are_rewritten_before_the_match():
    x, y = var("x", 4), var("y", 4)
    seen = []

    def change(pre, post, node_map):
        seen.append((pre, post))
        return call("subtract", *post.args)

    inner = call("add", x, y)
    outer = call("add", inner, y)
    result = rewrite(rule(add_pattern(), change), outer)
    assert equal(result, call("subtract", call("subtract", x, y), y))
    assert [pre.same_as(e) for (pre, _), e in zip(seen, (inner, outer), strict=True)] == [
        True,
        True,
    ]
    assert seen[1][1].args[0].op.name == "relax.subtract"


def test_node_maps_list_what_each_part_matched():
    x, w = var("x", 1, 3, 12, 12), var("w", 3, 3, 3, 3)
    data, weight, op = wildcard(), wildcard(), is_op("nn.conv2d")
    product, step = op(data, weight), is_op("nn.relu")(wildcard())
    child = add_pattern()
    seen = []

    def change(pre, post, node_map):
        seen.append(node_map)
        return post

    one = conv(x, w)
    expr = call("add", relu(relu(one)), relu(one))
    rewrite(rule(dominates(product, step, child), change), expr)
    (found,) = seen
    assert found[data][0].same_as(x)
    assert found[weight][0].same_as(w)
    assert found[op][0].name == "relax.nn.conv2d"
    assert len(found[product]) == 1
    assert len(found[step]) == 3
    assert found[child][0].same_as(expr)


@pytest.mark.parametrize("once", [False, True])
def test_rewrite_once_ends_a_rule_after_the_first_round_that_changed_something(once):
    def change(pre, post, node_map):
        fields = list(post.args[0].fields)[:-1]
        return call("concatenate", relax.Tuple(fields)) if fields else post.args[0].fields[0]

    shorten = rule(is_op("concatenate")(None), change, rewrite_once=once)
    x, y, z = (var(name, 4) for name in "xyz")
    result = rewrite(shorten, call("concatenate", relax.Tuple([x, y, z])))
    assert equal(result, call("concatenate", relax.Tuple([x, y])) if once else x)


def test_rules_without_an_end_are_an_error():
    x, y = var("x", 4), var("y", 4)
    turn = rule(add_pattern(), lambda pre, post, found: call("add", *reversed(post.args)))
    with pytest.raises(errors.RelayError, match="still changes"):
        rewrite(turn, call("add", x, y))


def test_a_rule_without_a_pattern_is_an_error():
    with pytest.raises(errors.RelayError, match="no pattern"):
        rewrite(DFPatternCallback(), relax.Var("x"))


@pytest.mark.parametrize("made", [None, 5, "post"])
def test_a_callback_that_returns_no_expression_is_named(made):
    x = var("x", 4)
    forgetful = rule(add_pattern(), lambda pre, post, found: made)
    with pytest.raises(errors.RelayError, match="return post to change nothing") as caught:
        rewrite(forgetful, call("add", x, x))
    assert type(forgetful).__name__ in str(caught.value)
    assert repr(made) in str(caught.value)


def test_functions_come_back_in_the_form_they_came_in():
    x, y = var("x", 4), var("y", 4)
    change = rule(add_pattern(), to_subtract, require_type=True)
    bound = graph.to_anf([x, y], call("add", x, y), {"global_symbol": "main"})
    expected = graph.to_anf([x, y], call("subtract", x, y), {"global_symbol": "main"})
    assert equal(rewrite(change, bound), expected)
    assert rewrite(rule(add_pattern(), lambda pre, post, found: post), bound).same_as(bound)
    plain = relax.Function([x, y], call("add", x, y))
    assert not rewrite(change, plain).body.blocks


def test_depth_is_free():
    x = var("x", 4)
    expr = call("tanh", relu(x))
    for _ in range(10_000):
        expr = relu(expr)
    pattern = is_op("tanh")(is_op("nn.relu")(wildcard()))
    result = rewrite(rule(pattern, lambda pre, post, found: leaky(post.args[0].args[0])), expr)
    nodes = list(graph.post_order(result))
    assert nodes[1].op.name == "relax.nn.leakyrelu"
    assert len(nodes) == 10_002


def test_a_padding_value_becomes_a_parameter_and_comes_back():
    x = var("x", 1, 3, 4, 4)
    padded = call("nn.pad", x, relax.const(7.0), pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]])
    result = (is_op("nn.relu")(is_op("nn.pad")(wildcard(), wildcard()))).partition(relu(padded))
    assert len(result.args) == 2
    assert float(result.args[1].value.numpy()) == 7.0
    inner = result.op.body.body.args[0]
    assert is_op("nn.pad")(is_var("FunctionVar_0_0"), is_var("FunctionVar_0_1")).match(inner)


def test_functions_with_bindings_come_back_with_bindings():
    x, w, b = image()
    function = graph.to_anf([x, w, b], conv_bias_relu(x, w, b), {"global_symbol": "main"})
    pattern = is_op("nn.bias_add")(conv_pattern(), wildcard())
    result = pattern.partition(function)
    assert result.attrs["global_symbol"] == "main"
    assert result.body.blocks
    relax.analysis.well_formed(tvm.IRModule({"main": result}))
    nothing = is_op("tanh")(wildcard())
    assert nothing.partition(function).same_as(function)


def chain(length):
    """Make a function of many calls, of which every second one starts a match."""
    x = var("x", 4)
    expr = x
    for _ in range(length // 2):
        expr = call("tanh", relu(expr))
    return graph.to_anf([x], expr, {"global_symbol": "main"})


def to_abs(pre, post, node_map):
    return call("abs", post.args[0].args[0])


@pytest.mark.parametrize(
    "change",
    [
        lambda pattern, function: rewrite(rule(pattern, to_abs), function),
        lambda pattern, function: pattern.partition(function),
        lambda pattern, function: rewrite_functions(
            tvm.IRModule({"main": function}), rule(pattern, to_abs)
        )["main"],
    ],
    ids=["rewrite", "partition", "in place"],
)
def test_the_work_grows_with_the_size_of_the_graph(change, monkeypatch):
    counts = {"visit": 0, "parts": 0}

    def counted(kind, name):
        method = getattr(kind, name)

        def count(self, *args):
            counts[name] += 1
            return method(self, *args)

        monkeypatch.setattr(kind, name, count)

    counted(Matcher, "visit")
    counted(View, "parts")
    work = []
    for length in (200, 400):
        counts.update(visit=0, parts=0)
        result = change(is_op("tanh")(is_op("nn.relu")(wildcard())), chain(length))
        assert len(result.body.blocks[0].bindings) in (length // 2, length)
        work.append(dict(counts))
    for name in counts:
        assert work[1][name] <= 2.1 * work[0][name]


def test_in_place_a_match_may_use_what_others_use():
    x = var("x", 4)
    inner = relu(x)
    shared = call("add", call("tanh", inner), call("add", call("tanh", inner), inner))
    mod = tvm.IRModule({"main": graph.to_anf([x], shared, {"global_symbol": "main"})})
    pattern = is_op("tanh")(is_op("nn.relu")(wildcard()))
    expected = call("add", call("abs", x), call("add", call("abs", x), inner))
    result = rewrite_functions(mod, rule(pattern, to_abs))["main"]
    assert equal(graph.inline_bindings(result.body), expected)
    assert rewrite(rule(pattern, to_abs), mod["main"]).same_as(mod["main"])
    assert rewrite_functions(mod, rule(is_op("exp")(wildcard()), to_abs)).same_as(mod)


def test_in_place_a_function_with_a_match_cast_stays():
    x, size = var("x", 4), tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        cast = builder.match_cast(x, relax.TensorType((size,), "float32"))
        builder.emit_func_output(builder.emit(relax.op.tanh(relax.op.nn.relu(cast))))
    mod = builder.get()
    pattern = is_op("tanh")(is_op("nn.relu")(wildcard()))
    assert rewrite_functions(mod, rule(pattern, to_abs)).same_as(mod)
