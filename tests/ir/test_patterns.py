"""Relay's pattern language: what matches, by the rules of Relay's matcher, at any depth."""

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
    wildcard,
)


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
    with pytest.raises(errors.RelayError, match="no pattern of Relay's language"):
        make()


# What matches.


def test_operators_match_by_relays_names():
    assert is_op("add").match(ir.Op.get("relax.add"))
    assert not is_op("add").match(ir.Op.get("relax.subtract"))
    either = is_op("add") | is_op("subtract")
    assert either.match(ir.Op.get("relax.subtract"))
    x = var("x", 4)
    assert is_op("concatenate")(None).match(call("concatenate", relax.Tuple([x, x])))
    assert not is_op("add").match(x)


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "divide"])
def test_only_sums_and_products_match_either_way_round(name):
    x, y = var("x", 4), var("y", 4)
    pattern = is_op(name)(is_var("x"), is_var("y"))
    assert pattern.match(call(name, x, y))
    assert pattern.match(call(name, y, x)) == (name in ("add", "multiply"))
    assert not pattern.match(call(name, x, x))


def test_division_and_multiplication_associate_as_in_relay():
    a, b, c = var("a", 4), var("b", 4), var("c", 4)
    pattern = is_op("divide")(is_op("multiply")(is_var("a"), is_var("b")), is_var("c"))
    assert pattern.match(call("divide", call("multiply", a, b), c))
    assert pattern.match(call("multiply", a, call("divide", b, c)))
    assert pattern.match(call("multiply", call("divide", b, c), a))
    assert pattern.match(call("multiply", call("divide", a, c), b))
    assert not pattern.match(call("multiply", a, call("divide", c, b)))


def test_a_pattern_object_used_twice_is_one_expression():
    x, w, _ = image()
    shared = conv_pattern()
    diamond = is_op("add")(is_op("nn.relu")(shared), is_op("tanh")(shared))
    one = conv(x, w)
    assert diamond.match(call("add", relu(one), call("tanh", one)))
    assert diamond.match(call("add", call("tanh", one), relu(one)))
    assert not diamond.match(call("add", relu(one), call("tanh", conv(x, w))))


def test_what_a_failed_alternative_matched_is_forgotten():
    x, y = var("x", 4), var("y", 4)
    one = wildcard()
    # The left alternative ties `one` to x and fails; the right one is free to tie it to y.
    pattern = is_op("subtract")(one, is_var("z")) | is_op("subtract")(is_var("x"), one)
    assert pattern.match(call("subtract", x, y))
    swapped = is_op("add")(is_op("nn.relu")(one), one)
    assert swapped.match(call("add", y, relu(y)))
    assert not swapped.match(call("add", y, relu(x)))


def test_optional_users():
    x, w, b = image()
    pattern = is_op("nn.relu")(
        conv_pattern().optional(lambda inner: is_op("nn.bias_add")(inner, wildcard()))
    )
    assert pattern.match(relu(conv(x, w)))
    assert pattern.match(conv_bias_relu(x, w, b))
    assert not pattern.match(relu(call("add", conv(x, w), conv(x, w))))


def test_constants_variables_and_expressions():
    x, two = var("x", 4), relax.const(2.0)
    assert is_constant().match(two)
    assert not is_constant().match(x)
    assert is_var("x").match(x)
    assert not is_var("y").match(x)
    assert not is_var().match(two)
    assert is_expr(relax.const(2.0)).match(two)
    assert not is_expr(relax.const(2)).match(two)
    assert not is_expr(x).match(var("x", 4))
    assert is_expr(relu(x)).match(relu(x))


def test_functions():
    x, y = var("x", 4), var("y", 4)
    a, b = wildcard(), wildcard()
    pattern = FunctionPattern([a, b], a + b)
    add = relax.Function([x, y], call("add", x, y))
    assert pattern.match(add)
    assert pattern.match(graph.from_graph([x, y], call("add", x, y)))
    assert not pattern.match(relax.Function([x, y], call("subtract", x, y)))
    assert not pattern.match(relax.Function([x], call("add", x, x)))
    assert FunctionPattern(None, wildcard()).match(add)
    named = wildcard().has_attr({"Composite": "add"})
    assert named.match(add.with_attr("Composite", "add"))
    assert not named.match(add.with_attr("Composite", "other"))


def test_branches_and_lets():
    x, y = var("x"), var("y")
    less = is_op("less")(is_var("x"), is_var("y"))
    branch = is_if(less, is_var("x"), is_var("y"))
    assert branch.match(relax.If(call("less", x, y), x, y))
    assert not branch.match(relax.If(call("less", x, y), y, x))
    bound, name = var("let", dtype="bool"), is_var("let")
    block = relax.BindingBlock([relax.VarBinding(bound, call("less", x, y))])
    assert is_let(name, less, name).match(relax.SeqExpr([block], bound))
    assert not is_let(name, less, name).match(relax.SeqExpr([block], x))
    # The let is not the call that it binds.
    assert not less.match(relax.SeqExpr([block], bound))


def test_tuples_and_their_fields():
    x, y = var("x", 4), var("y", 4)
    pair = relax.Tuple([x, y])
    pattern = is_tuple((is_var("x"), wildcard()))
    assert pattern.match(pair)
    assert not is_tuple((is_var("x"), wildcard(), wildcard())).match(pair)
    assert not is_tuple((is_var("y"), wildcard())).match(pair)
    assert is_tuple_get_item(pattern, 1).match(relax.TupleGetItem(pair, 1))
    assert not is_tuple_get_item(pattern, 1).match(relax.TupleGetItem(pair, 0))
    assert is_tuple_get_item(pattern).match(relax.TupleGetItem(pair, 0))
    joined = is_op("concatenate")(is_tuple(None))
    for fields in ([x], [x, y], [x, y, x]):
        assert joined.match(call("concatenate", relax.Tuple(fields)))


def test_types_dtypes_and_shapes():
    x = var("x", 10, 10)
    assert has_type(relax.TensorType((10, 10), "float32")).match(x)
    assert not has_type(relax.TensorType((10, 10), "int32")).match(x)
    assert has_dtype("float32").match(x)
    assert not has_dtype("int32").match(x)
    assert has_shape((10, 10)).match(x)
    assert not has_shape((10, 5)).match(x)
    assert not has_shape((10,)).match(x)
    n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
    assert has_shape((n, 3)).match(var("y", m, 3))
    assert not has_shape((n, 3)).match(var("y", 2, 3))
    assert has_dtype("float32", is_op("nn.relu")(wildcard())).match(relu(x))
    assert not has_shape((2,)).match(relax.Tuple([x, x]))


def test_a_type_that_is_not_known_is_an_error_and_no_guess():
    bare = relax.Var("bare")
    with pytest.raises(errors.RelayError, match="type"):
        has_dtype("float32").match(bare)
    assert not is_constant().has_dtype("float32").match(bare)


def test_attributes_of_calls_by_relays_names_and_defaults():
    x, w, _ = image()
    plain = conv(x, w)

    def has(**attributes):
        return conv_pattern().has_attr(attributes)

    assert has(data_layout="NCHW").match(plain)
    assert not has(data_layout="NHWC").match(plain)
    assert has(kernel_size=[3, 3]).match(plain)
    assert not has(kernel_size=[2, 1]).match(plain)
    assert has(channels=3, groups=1).match(plain)
    assert not has(channels=3, groups=3).match(plain)
    assert not has(RandomAttr="NCHW").match(plain)
    assert has().match(plain)
    assert (
        is_op("cast")(wildcard()).has_attr({"dtype": "int8"}).match(call("cast", x, dtype="int8"))
    )
    clip = is_op("clip")(wildcard())
    clipped = call("clip", x, a_min=0.0, a_max=6.0)
    assert clip.has_attr({"a_max": 6.0}).match(clipped)
    assert not clip.has_attr({"a_max": 6}).match(clipped)
    assert not clip.has_attr({"a_max": 6.0}).match(x)


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


def test_padding_matches_with_both_of_relays_operands():
    x = var("x", 1, 3, 4, 4)
    amount = [[0, 0], [0, 0], [1, 1], [1, 1]]
    constant = call("nn.pad", x, relax.const(0.0), pad_width=amount)
    variable = call("nn.pad", x, var("value"), pad_width=amount)
    for padded in (constant, variable):
        assert is_op("nn.pad")(wildcard(), wildcard()).match(padded)
        assert is_op("nn.pad")(None).has_attr({"pad_mode": "constant"}).match(padded)
        assert not is_op("nn.pad")(wildcard()).match(padded)
    assert is_op("nn.pad")(wildcard(), is_constant()).match(constant)
    assert is_op("nn.pad")(wildcard(), is_expr(relax.const(0.0))).match(constant)
    assert not is_op("nn.pad")(wildcard(), is_constant()).match(variable)


def test_reshape_has_one_operand_as_in_relay():
    x = var("x", 4, 4)
    assert is_op("reshape")(is_var("x")).match(call("reshape", x, newshape=[16]))


def test_dominators_take_any_path_of_their_kind_from_one_parent():
    x, w, _ = image()
    add = is_op("add")(wildcard(), wildcard())
    pattern = dominates(conv_pattern(), elementwise(), add)
    assert pattern.match(diamond(x, w))
    assert not pattern.match(nested(x, w))
    assert dominates(conv_pattern(), elementwise() | add, add).match(nested(x, w))
    assert not pattern.match(call("add", relu(conv(x, w)), leaky(conv(x, w))))
    same = var("same", 1, 3, 10, 10)
    assert not pattern.match(call("add", relu(same), leaky(conv(x, w))))


def test_bindings_match_as_the_graph_that_they_are():
    x, w, b = image()
    pattern = is_op("nn.relu")(is_op("nn.bias_add")(conv_pattern(), wildcard()))
    function = graph.from_graph([x, w, b], conv_bias_relu(x, w, b))
    assert pattern.match(function.body)
    assert not pattern.match(function)
    assert FunctionPattern(None, pattern).match(function)


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
