"""Relay's patterns on large things: dominators, depth, and a form in today's language."""

from __future__ import annotations

import pytest
from tvm import relax

from tests.ir.pattern_graphs import (
    call,
    conv,
    conv_bias_relu,
    conv_pattern,
    deeper,
    diamond,
    elementwise,
    image,
    leaky,
    nested,
    relu,
    single,
    var,
)
from tvmlab import errors
from tvmlab.ir import graph
from tvmlab.ir import patterns as dp
from tvmlab.ir.patterns import (
    FunctionPattern,
    dominates,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_var,
    wildcard,
)


def test_dominators_take_any_path_of_their_kind():
    x, w, _ = image()
    pattern = dominates(conv_pattern(), elementwise(), is_op("add")(wildcard(), wildcard()))
    for shape in (diamond, deeper, single):
        assert pattern.match(shape(x, w))
    assert not pattern.match(nested(x, w))
    either = elementwise() | is_op("add")(wildcard(), wildcard())
    fuzzy = dominates(conv_pattern(), either, is_op("add")(wildcard(), wildcard()))
    assert fuzzy.match(nested(x, w))


def test_dominators_need_one_parent_on_all_paths():
    x, w, _ = image()
    pattern = dominates(conv_pattern(), elementwise(), is_op("add")(wildcard(), wildcard()))
    assert not pattern.match(call("add", relu(conv(x, w)), leaky(conv(x, w))))
    assert not pattern.match(call("add", relu(x), leaky(call("tanh", x))))
    same = var("same", 1, 3, 10, 10)
    assert not pattern.match(call("add", relu(same), leaky(conv(x, w))))
    parent, step = conv_pattern(), is_op("nn.relu")(wildcard())
    pattern = dominates(parent, step, is_op("add")(wildcard(), wildcard()))
    same_size = {"padding": [1, 1, 1, 1]}
    first = conv(x, w, **same_size)
    second = conv(call("tanh", first), w, **same_size)
    assert not pattern.match(call("add", relu(second), relu(first)))
    assert not pattern.match(call("add", second, relu(first)))


def test_dominators_with_types():
    x, w, _ = image()

    def pattern(dtype, shape):
        child = is_op("add")(wildcard(), wildcard()).has_shape(shape)
        return dominates(conv_pattern(), elementwise().has_dtype(dtype), child)

    assert pattern("float32", [1, 3, 10, 10]).match(diamond(x, w))
    assert not pattern("float32", [1, 1, 10, 10]).match(diamond(x, w))
    assert not pattern("float16", [1, 3, 10, 10]).match(diamond(x, w))


def test_bindings_match_as_the_graph_that_they_are():
    x, w, b = image()
    pattern = is_op("nn.relu")(is_op("nn.bias_add")(conv_pattern(), wildcard()))
    function = graph.from_graph([x, w, b], conv_bias_relu(x, w, b))
    assert pattern.match(function.body)
    assert not pattern.match(function)
    assert FunctionPattern(None, pattern).match(function)


def test_graphs_of_variables_without_types_match():
    x, y = relax.Var("x"), relax.Var("y")
    assert is_op("add")(is_var("y"), is_var("x")).match(x + y)
    assert not is_op("add")(wildcard(), wildcard()).match(x - y)
    assert is_op("nn.relu")(is_op("subtract")(wildcard(), wildcard())).match(relu(x - y))


def test_depth_is_free():
    expr = x = var("x", 4)
    for _ in range(10_000):
        expr = relu(expr)
    pattern = is_op("nn.relu")(is_op("nn.relu")(wildcard()))
    assert pattern.match(expr)
    # A pattern that contains itself, and a dominator's path, go all the way down.
    rest = wildcard()
    chain = is_op("nn.relu")(rest)
    rest.redirect_to(chain | is_var("x"))
    assert chain.match(expr)
    assert not chain.match(relu(call("tanh", x)))
    start = is_op("tanh")(wildcard())
    path = dominates(start, is_op("nn.relu")(wildcard()), is_op("add")(wildcard(), wildcard()))
    up = call("tanh", x)
    for _ in range(3_000):
        up = relu(up)
    assert path.match(call("add", up, up))
    assert not path.match(call("add", expr, expr))


def test_paths_that_branch_again_and_again_are_followed_once():
    x = call("tanh", var("x", 4))
    for _ in range(60):
        x = call("add", relu(x), leaky(x))
    both = elementwise() | is_op("add")(wildcard(), wildcard())
    pattern = dominates(is_op("tanh")(wildcard()), both, is_op("add")(wildcard(), wildcard()))
    assert pattern.match(x)  # with 2 to the 60th paths, each followed alone, this never ends


def test_patterns_have_a_form_in_todays_language():
    x, w, b = image()
    one = conv_pattern()
    pattern = is_op("nn.relu")(one.optional(lambda c: is_op("nn.bias_add")(c, is_var("b"))))
    today = dp.to_dpl(pattern)
    assert today.match(relu(conv(x, w)))
    assert today.match(conv_bias_relu(x, w, b))
    assert not today.match(relu(x))
    shape = dp.to_dpl(is_op("reshape")(is_var("x")))
    assert shape.match(call("reshape", var("x", 4, 4), newshape=[16]))
    pad = dp.to_dpl(is_op("nn.pad")(wildcard(), wildcard()))
    image_ = var("x", 1, 3, 4, 4)
    for value in (relax.const(0.0), var("v")):
        assert pad.match(call("nn.pad", image_, value, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]))
    layout = dp.to_dpl(conv_pattern().has_attr({"data_layout": "NHWC"}))
    assert not layout.match(conv(x, w))


@pytest.mark.parametrize(
    "pattern",
    [
        dominates(wildcard(), wildcard(), wildcard()),
        is_if(wildcard(), wildcard(), wildcard()),
        is_let(wildcard(), wildcard(), wildcard()),
        is_tuple(None),
        is_op("add").has_attr({"TOpPattern": 1})(wildcard(), wildcard()),
        is_op("nn.conv2d")(wildcard(), wildcard()).has_attr({"kernel_size": [3, 3]}),
        is_op("nn.pad")(wildcard(), is_var("v")),
    ],
)
def test_what_todays_language_lacks_is_named(pattern):
    with pytest.raises(errors.RelayError, match=r"has no form in relax\.dpl"):
        dp.to_dpl(pattern)
