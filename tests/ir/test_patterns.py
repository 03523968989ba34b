"""Relay's pattern language: what matches, by the rules of Relay's matcher, and what callbacks make.

Relay 0.18's own tests of the language run unchanged as well; here is one test of each rule.
"""

from __future__ import annotations

import pytest
import tvm
from tvm import ir, relax
from tvm.relax import dpl

from tests.ir.pattern_graphs import (
    BROADCAST,
    ELEMENTWISE,
    call,
    conv,
    conv_bias_relu,
    conv_pattern,
    diamond,
    elementwise,
    equal,
    image,
    leaky,
    nested,
    relu,
    var,
)
from tvmlab import errors
from tvmlab.ir import graph
from tvmlab.ir import patterns as dp
from tvmlab.ir.patterns import (
    DFPatternCallback,
    FunctionPattern,
    dominates,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    rewrite_functions,
    wildcard,
)
from tvmlab.ir.patterns.pattern import Matcher
from tvmlab.ir.patterns.view import View


def test_an_unknown_operator_is_named_with_the_closest_one():
    with pytest.raises(errors.RelayError, match="conf2d") as caught:
        is_op("nn.conf2d")
    assert "nn.conv2d" in caught.value.fix


@pytest.mark.parametrize(
    "make",
    [
        lambda: is_op("nn.pad")(None, wildcard()),
        lambda: is_op("nn.relu")(dpl.wildcard()),
        lambda: is_op("nn.relu")("x"),
        lambda: wildcard() | 3,
        lambda: is_tuple([wildcard(), None]),
    ],
)
def test_a_part_that_is_no_pattern_is_refused_where_it_is_written(make):
    with pytest.raises(errors.RelayError, match="not a pattern of Relay's language"):
        make()


X, Y, Z, IMAGE = var("x", 4), var("y", 4), var("z", 4), var("image", 1, 3, 4, 4)
A, W, B = image()
ADD = is_op("add")(wildcard(), wildcard())
QUOTIENT = is_op("divide")(is_op("multiply")(is_var("x"), is_var("y")), is_var("z"))
CONV, SHARED = conv(A, W), conv_pattern()
DIAMOND = is_op("add")(is_op("nn.relu")(SHARED), is_op("tanh")(SHARED))
OPTIONAL = is_op("nn.relu")(
    conv_pattern().optional(lambda inner: is_op("nn.bias_add")(inner, wildcard()))
)
SUM = relax.Function([X, Y], call("add", X, Y))
BRANCH = is_if(is_op("less")(is_var("x"), is_var("y")), is_var("x"), is_var("y"))
BOUND = var("let", 4, dtype="bool")
LET = graph.let(BOUND, call("less", X, Y), BOUND)
LESS = is_op("less")(is_var("x"), is_var("y"))
NAME = is_var("let")
PAIR = is_tuple((is_var("x"), wildcard()))
N, M = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
CLIPPED = call("clip", X, a_min=0.0, a_max=6.0)
AMOUNT = [[0, 0], [0, 0], [1, 1], [1, 1]]
PADDED = call("nn.pad", IMAGE, relax.const(0.0), pad_width=AMOUNT)
PADDED_BY_VARIABLE = call("nn.pad", IMAGE, var("value"), pad_width=AMOUNT)
DOMINATOR = dominates(conv_pattern(), elementwise(), ADD)


def body_pattern():
    a, b = wildcard(), wildcard()
    return FunctionPattern([a, b], a + b)


@pytest.mark.parametrize(
    ("pattern", "expr"),
    [
        (is_op("add") | is_op("subtract"), ir.Op.get("relax.subtract")),
        (is_op("concatenate")(is_tuple(None)), call("concatenate", relax.Tuple([X, Y, X]))),
        (is_op("add")(is_var("x"), is_var("y")), call("add", Y, X)),
        (QUOTIENT, call("multiply", X, call("divide", Y, Z))),
        (QUOTIENT, call("multiply", call("divide", X, Z), Y)),
        (DIAMOND, call("add", call("tanh", CONV), relu(CONV))),
        (OPTIONAL, relu(CONV)),
        (OPTIONAL, conv_bias_relu(A, W, B)),
        (is_expr(relu(X)), relu(X)),
        (body_pattern(), SUM),
        (body_pattern(), graph.to_anf([X, Y], call("add", X, Y))),
        (wildcard().has_attr({"Composite": "add"}), SUM.with_attr("Composite", "add")),
        (BRANCH, relax.If(call("less", X, Y), X, Y)),
        (is_let(NAME, LESS, NAME), LET),
        (is_tuple_get_item(PAIR, 1), relax.TupleGetItem(relax.Tuple([X, Y]), 1)),
        (has_type(relax.TensorType((4,), "float32")), X),
        (has_dtype("float32", is_op("nn.relu")(wildcard())), relu(X)),
        (has_shape((N, 3)), var("rows", M, 3)),
        (conv_pattern().has_attr({"data_layout": "NCHW", "kernel_size": [3, 3]}), CONV),
        (conv_pattern().has_attr({"channels": 3, "groups": 1}), CONV),
        (is_op("clip")(wildcard()).has_attr({"a_max": 6.0}), CLIPPED),
        (is_op("nn.pad")(wildcard(), is_constant()), PADDED),
        (is_op("nn.pad")(wildcard(), wildcard()), PADDED_BY_VARIABLE),
        (is_op("nn.pad")(None).has_attr({"pad_mode": "constant"}), PADDED_BY_VARIABLE),
        (is_op("reshape")(is_var("x")), call("reshape", X, newshape=[2, 2])),
        (DOMINATOR, diamond(A, W)),
        (dominates(conv_pattern(), elementwise() | ADD, ADD), nested(A, W)),
    ],
)
def test_what_matches(pattern, expr):
    assert pattern.match(expr)


@pytest.mark.parametrize(
    ("pattern", "expr"),
    [
        (is_op("subtract")(is_var("x"), is_var("y")), call("subtract", Y, X)),
        (is_op("add")(is_var("x"), is_var("y")), call("add", X, X)),
        (QUOTIENT, call("multiply", X, call("divide", Z, Y))),
        (DIAMOND, call("add", relu(CONV), call("tanh", conv(A, W)))),
        (OPTIONAL, relu(call("add", CONV, CONV))),
        (is_var(), relax.const(2.0)),
        (is_expr(relax.const(2)), relax.const(2.0)),
        (is_expr(X), var("x", 4)),
        (body_pattern(), relax.Function([X, Y], call("subtract", X, Y))),
        (body_pattern(), relax.Function([X], call("add", X, X))),
        (wildcard().has_attr({"Composite": "other"}), SUM.with_attr("Composite", "add")),
        (BRANCH, relax.If(call("less", X, Y), Y, X)),
        (is_let(NAME, LESS, NAME), graph.let(BOUND, call("less", X, Y), X)),
        (is_tuple((is_var("x"), wildcard(), wildcard())), relax.Tuple([X, Y])),
        (is_tuple_get_item(PAIR, 1), relax.TupleGetItem(relax.Tuple([X, Y]), 0)),
        (has_type(relax.TensorType((4,), "int32")), X),
        (has_dtype("int32"), X),
        (has_shape((N, 3)), var("rows", 2, 3)),
        (has_shape((2,)), relax.Tuple([X, X])),
        (conv_pattern().has_attr({"data_layout": "NHWC"}), CONV),
        (conv_pattern().has_attr({"kernel_size": [2, 1]}), CONV),
        (conv_pattern().has_attr({"RandomAttr": "NCHW"}), CONV),
        (is_op("clip")(wildcard()).has_attr({"a_max": 6}), CLIPPED),
        (is_op("nn.pad")(wildcard()), PADDED),
        (is_op("nn.pad")(wildcard(), is_constant()), PADDED_BY_VARIABLE),
        (DOMINATOR, nested(A, W)),
        (DOMINATOR, call("add", relu(CONV), leaky(conv(A, W)))),
    ],
)
def test_what_does_not_match(pattern, expr):
    assert not pattern.match(expr)


def test_what_a_failed_alternative_matched_is_forgotten():
    x, y = var("x", 4), var("y", 4)
    one = wildcard()
    # The left alternative ties `one` to x and fails; the right one is free to tie it to y.
    pattern = is_op("subtract")(one, is_var("z")) | is_op("subtract")(is_var("x"), one)
    assert pattern.match(call("subtract", x, y))
    swapped = is_op("add")(is_op("nn.relu")(one), one)
    assert swapped.match(call("add", y, relu(y)))
    assert not swapped.match(call("add", y, relu(x)))


def test_a_type_that_is_not_known_is_an_error_and_no_guess():
    bare = relax.Var("bare")
    with pytest.raises(errors.RelayError, match="type"):
        has_dtype("float32").match(bare)
    assert not is_constant().has_dtype("float32").match(bare)


def test_how_operators_may_be_fused():
    x, y = var("x", 4, 4), var("y", 4, 4)
    broadcast = is_op("add").has_attr({"TOpPattern": BROADCAST})(wildcard(), wildcard())
    assert broadcast.match(call("add", x, y))
    assert not broadcast.match(call("subtract", x, y))
    dense = is_op("nn.dense").has_attr({"TOpPattern": ELEMENTWISE})(wildcard(), wildcard())
    assert not dense.match(call("nn.dense", x, y))
    unary = wildcard().has_attr({"TOpPattern": ELEMENTWISE})(wildcard())
    assert unary.match(relu(x))
    assert not unary.match(call("nn.softmax", x))
    with pytest.raises(errors.RelayError, match="TNonComputational"):
        is_op("add").has_attr({"TNonComputational": True}).match(ir.Op.get("relax.add"))


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


@pytest.mark.parametrize(
    "pattern",
    [
        dominates(wildcard(), wildcard(), wildcard()),
        is_if(wildcard(), wildcard(), wildcard()),
        is_let(wildcard(), wildcard(), wildcard()),
        is_tuple(None),
        is_op("nn.conv2d")(wildcard(), wildcard()).has_attr({"kernel_size": [3, 3]}),
        is_op("nn.pad")(wildcard(), is_var("v")),
    ],
)
def test_what_todays_language_lacks_is_named(pattern):
    with pytest.raises(errors.RelayError, match=r"has no form in relax\.dpl"):
        dp.to_dpl(pattern)


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


def test_rules_without_an_end_are_an_error():
    x, y = var("x", 4), var("y", 4)
    turn = rule(add_pattern(), lambda pre, post, found: call("add", *reversed(post.args)))
    with pytest.raises(errors.RelayError, match="still changes"):
        rewrite(turn, call("add", x, y))


def test_a_rule_without_a_pattern_is_an_error():
    with pytest.raises(errors.RelayError, match="not a pattern"):
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


def test_a_padding_value_becomes_a_parameter_and_comes_back():
    x = var("x", 1, 3, 4, 4)
    padded = call("nn.pad", x, relax.const(7.0), pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]])
    result = (is_op("nn.relu")(is_op("nn.pad")(wildcard(), wildcard()))).partition(relu(padded))
    assert len(result.args) == 2
    assert float(result.args[1].value.numpy()) == 7.0
    inner = result.op.body.body.args[0]
    assert is_op("nn.pad")(is_var("FunctionVar_0_0"), is_var("FunctionVar_0_1")).match(inner)


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
