"""Relay's patterns cut out of graphs: the functions, names and parameters of a partition."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.ir.pattern_graphs import (
    call,
    conv,
    conv_bias_relu,
    conv_pattern,
    cut_out,
    deeper,
    diamond,
    elementwise,
    equal,
    image,
    nested,
    relu,
    single,
    var,
)
from tvmlab.ir import graph
from tvmlab.ir.patterns import (
    FunctionPattern,
    dominates,
    is_constant,
    is_expr,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)


def test_partitions_are_named_and_numbered_as_relays():
    x, w, b = image()
    v, c = var("v", 3, 3, 3, 3), var("c", 3)
    relu_p = is_op("nn.relu")(is_op("nn.bias_add")(conv_pattern(), wildcard()))
    bias_p = is_op("nn.bias_add")(conv_pattern(), wildcard())
    result = call("nn.bias_add", conv(conv_bias_relu(x, w, b), v), c)
    for pattern, label in ((relu_p, "conv_bias_relu"), (bias_p, "conv_bias")):
        result = pattern.partition(result, {"Composite": label})
    assert [param.name for param in result.op.params] == [f"FunctionVar_0_{i}" for i in range(3)]
    p, q, r = image()
    name = "nn.conv2d_nn.bias_add_nn.relu_"
    first = cut_out([p, q, r], conv_bias_relu(p, q, r), name, Composite="conv_bias_relu")
    inner = graph.typed(relax.Call(first, [x, w, b]))
    z, u, d = var("z", 1, 3, 10, 10), var("u", 3, 3, 3, 3), var("d", 3)
    second = cut_out(
        [z, u, d],
        call("nn.bias_add", conv(z, u), d),
        "nn.conv2d_nn.bias_add_",
        Composite="conv_bias",
    )
    expected = graph.typed(relax.Call(second, [inner, v, c]))
    assert equal(result, expected)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (diamond, "nn.conv2d_nn.relu_nn.relu_nn.leaky_relu_add_"),
        (deeper, "nn.conv2d_nn.relu_nn.relu_tanh_nn.leaky_relu_add_"),
        (single, "nn.conv2d_nn.relu_nn.relu_tanh_add_"),
        (nested, "nn.conv2d_nn.relu_add_tanh_nn.leaky_relu_add_"),
    ],
)
def test_dominators_are_cut_out_whole(make, name):
    x, w, _ = image()
    either = elementwise() | is_op("add")(wildcard(), wildcard())
    pattern = dominates(conv_pattern(), either, is_op("add")(wildcard(), wildcard()))
    i, j = var("i", 1, 3, 12, 12), var("j", 3, 3, 3, 3)
    squares = [call("multiply", x, x), call("multiply", w, w)]
    expected = graph.typed(relax.Call(cut_out([i, j], make(i, j), name), squares))
    assert equal(pattern.partition(make(*squares)), expected)


def batch_norm(x, gamma, beta, mean, variance, eps):
    scaled = call("multiply", gamma, call("subtract", x, mean))
    root = call("sqrt", call("add", variance, eps))
    return call("add", call("divide", scaled, root), beta)


def test_parameters_come_in_the_patterns_order_and_constants_stay_inside():
    names = ("x", "gamma", "beta", "mean", "variance")
    given = {name: var(name, 4) for name in names}
    inside = {name: var(name, 4) for name in names}
    p = {name: wildcard() for name in names}
    root = is_op("sqrt")(p["variance"] + is_constant())
    pattern = p["gamma"] * (p["x"] - p["mean"]) / root + p["beta"]
    eps = relax.const(1e-5)
    order = ("gamma", "x", "mean", "variance", "beta")
    function = cut_out(
        [inside[name] for name in order],
        batch_norm(**inside, eps=eps),
        "subtract_multiply_add_sqrt_divide_add_",
    )
    expected = graph.typed(relax.Call(function, [given[name] for name in order]))
    assert equal(pattern.partition(batch_norm(**given, eps=eps)), expected)


def test_a_match_that_is_used_elsewhere_or_overlaps_stays():
    x, w, _ = image()
    one = conv(x, w)
    pattern = is_op("nn.relu")(conv_pattern())
    used = call("add", relu(one), one)
    assert pattern.partition(used).same_as(used)
    pair = relax.Tuple([x, w])
    first, second = relax.TupleGetItem(pair, 0), relax.TupleGetItem(pair, 0)
    both = call("add", first, second)
    assert is_tuple_get_item(is_tuple([wildcard(), wildcard()]), 0).partition(both).same_as(both)


def test_what_comes_back_to_the_root_may_be_used_outside():
    x, w, _ = image()
    pattern = is_op("multiply")(is_op("add")(conv_pattern(), wildcard()), wildcard())
    other = var("y", 1, 3, 10, 10)
    summed = call("add", conv(x, w), other)
    result = pattern.partition(relu(call("multiply", summed, call("sigmoid", summed))))
    assert result.args[0].op.attrs["PartitionedFromPattern"] == "nn.conv2d_add_multiply_"
    outside = result.args[0].args[3]
    assert is_op("sigmoid")(is_op("add")(conv_pattern(), is_var("y"))).match(outside)


def test_an_input_used_twice_is_one_parameter():
    x, w, _ = image()
    left, right = var("l", 1, 3, 10, 10), var("r", 1, 3, 10, 10)
    pattern = is_op("multiply")(wildcard(), wildcard()) + is_op("add")(wildcard(), wildcard())
    one = conv(x, w)
    result = pattern.partition(call("add", call("multiply", left, one), call("add", one, right)))
    assert [arg.same_as(e) for arg, e in zip(result.args, (left, one, right), strict=True)] == [
        True
    ] * 3
    assert result.op.attrs["PartitionedFromPattern"] == "multiply_add_add_"


def test_tuples_of_any_length_become_parameters():
    x, y = var("x", 4), var("y", 4)
    pattern = is_op("concatenate")(is_tuple(None))
    fields = [x, y, call("add", x, y)]
    for count in (1, 2, 3):
        result = pattern.partition(call("concatenate", relax.Tuple(fields[:count])))
        assert result.op.attrs["PartitionedFromPattern"] == "Tuple_concatenate_"
        assert len(result.op.params) == count
        assert all(a.same_as(b) for a, b in zip(result.args, fields, strict=False))


def test_calls_of_functions_are_cut_out_with_the_function():
    x, w, _ = image()
    b = var("b", 1, 3, 10, 10)
    x1, w1 = var("x1", 1, 3, 12, 12), var("w1", 3, 3, 3, 3)
    inner = relax.Function([x1, w1], conv(x1, w1))
    for function_p in (
        FunctionPattern([p := wildcard(), q := wildcard()], is_op("nn.conv2d")(p, q)),
        FunctionPattern([wildcard(), wildcard()], wildcard()),
        FunctionPattern(None, is_op("nn.conv2d")(wildcard(), wildcard())),
    ):
        called = graph.typed(relax.Call(inner, [x, w]))
        args = (None,) if function_p.params is None else (wildcard(), wildcard())
        pattern = function_p(*args) + wildcard()
        result = pattern.partition(call("add", call("add", called, b), b))
        made = result.args[0]
        assert made.op.attrs["PartitionedFromPattern"] == "nn.conv2d_FunctionCall_add_"
        assert len(made.args) == 3
        assert made.op.body.body.args[0].op.same_as(inner)
    # A function that nobody calls is no part of anything.
    assert FunctionPattern(None, wildcard()).partition(inner).same_as(inner)


def test_checks_decide():
    x, w, _ = image()
    pattern = is_op("nn.relu")(is_op("nn.conv2d")(is_var("x"), wildcard()))

    def check(pre):
        return pre.args[0].attrs.data_layout == "NCHW" and pre.args[0].ty.shape[0] == 1

    good = relu(conv(x, w))
    assert (
        pattern.partition(good, check=check).op.attrs["PartitionedFromPattern"]
        == "nn.conv2d_nn.relu_"
    )
    two = relu(conv(var("x", 2, 3, 12, 12), w))
    assert pattern.partition(two, check=check).same_as(two)


def test_constants_stay_inside_where_the_pattern_asked_for_them():
    x, _, b = image()
    weight = relax.const(np.ones((3, 3, 3, 3), "float32"))
    expr = conv_bias_relu(x, weight, b)
    free = conv_bias_relu(x, var("w", 3, 3, 3, 3), b)

    def pattern(kind):
        return is_op("nn.relu")(
            is_op("nn.bias_add")(is_op("nn.conv2d")(wildcard(), kind), wildcard())
        )

    def parameters(kind, given):
        result = pattern(kind).partition(given)
        return None if result.same_as(given) else len(result.op.params)

    assert parameters(wildcard(), expr) == 3
    assert parameters(wildcard(), free) == 3
    assert parameters(is_var(), expr) is None
    assert parameters(is_var(), free) == 3
    assert parameters(is_constant(), expr) == 2
    assert parameters(is_constant(), free) is None
    assert parameters(is_expr(weight), expr) == 2
    assert parameters(is_expr(weight), free) is None
    for kind in (is_var() | is_constant(), is_constant() | is_var()):
        assert parameters(kind, expr) == 2
        assert parameters(kind, free) == 3


def test_a_padding_value_becomes_a_parameter_and_comes_back():
    x = var("x", 1, 3, 4, 4)
    padded = call("nn.pad", x, relax.const(7.0), pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]])
    result = (is_op("nn.relu")(is_op("nn.pad")(wildcard(), wildcard()))).partition(relu(padded))
    assert len(result.args) == 2
    assert float(result.args[1].value.numpy()) == 7.0
    inner = result.op.body.body.args[0]
    assert is_op("nn.pad")(is_var("FunctionVar_0_0"), is_var("FunctionVar_0_1")).match(inner)


def test_what_is_partitioned_is_not_partitioned_again():
    x, w, _ = image()
    pattern = is_op("nn.relu")(conv_pattern())
    once = pattern.partition(relu(conv(x, w)))
    assert pattern.partition(once).same_as(once)


def test_functions_with_bindings_come_back_with_bindings():
    x, w, b = image()
    function = graph.from_graph([x, w, b], conv_bias_relu(x, w, b), {"global_symbol": "main"})
    pattern = is_op("nn.bias_add")(conv_pattern(), wildcard())
    result = pattern.partition(function)
    assert result.attrs["global_symbol"] == "main"
    assert result.body.blocks
    relax.analysis.well_formed(tvm.IRModule({"main": result}))
    nothing = is_op("tanh")(wildcard())
    assert nothing.partition(function).same_as(function)
