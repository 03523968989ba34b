"""Rewriting with Relay's pattern callbacks: rounds, order, node maps, and the customer's passes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.ir.pattern_graphs import call, conv, diamond, equal, leaky, nested, relu, single, var
from tvmlab import errors
from tvmlab.ir import graph
from tvmlab.ir.patterns import (
    DFPatternCallback,
    FunctionPattern,
    dominates,
    has_attr,
    is_constant,
    is_expr,
    is_op,
    rewrite,
    wildcard,
)
from tvmlab.ir.patterns.rewriter import same_graph


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


def test_a_match_is_replaced():
    x, y = var("x", 4), var("y", 4)
    result = rewrite(rule(add_pattern(), to_subtract), call("add", x, y))
    assert equal(result, call("subtract", x, y))


def test_what_python_operators_make_is_typed():
    x, y = relax.Var("x"), relax.Var("y")
    minus = rule(add_pattern(), lambda pre, post, node_map: post.args[0] - post.args[1])
    assert is_op("subtract")(wildcard(), wildcard()).match(minus.rewrite(x + y))
    z = var("z", 4)
    assert minus.rewrite(call("add", z, z)).ty.shape[0] == 4


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

    expr = call("add", relu(relu(conv(x, w))), call("nn.relu", conv(x, w)))
    assert rewrite(rule(dominates(product, step, child), change), expr).same_as(expr)
    assert not seen
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


def test_functions_inside_are_rewritten_too():
    x, y = var("x", 4), var("y", 4)
    a, b = var("a", 4), var("b", 4)
    function = relax.Function([a, b], call("add", a, b)).with_attr("Composite", "add")
    expr = call("abs", graph.typed(relax.Call(function, [x, y])))
    result = rewrite(rule(add_pattern(), to_subtract), expr)
    assert equal(result.args[0].op.body.body, call("subtract", a, b))
    inlined = rule(
        has_attr({"Composite": "add"})(wildcard(), wildcard()),
        lambda pre, post, node_map: call("add", *post.args),
    )
    assert equal(inlined.rewrite(expr), call("abs", call("add", x, y)))


def test_a_called_function_is_replaced_with_the_call():
    x, w, b = var("x", 1, 3, 12, 12), var("w", 3, 3, 3, 3), var("b", 1, 3, 10, 10)
    a, c = var("a", 1, 3, 12, 12), var("c", 3, 3, 3, 3)
    function = relax.Function([a, c], conv(a, c))
    pattern = FunctionPattern([wildcard(), wildcard()], wildcard())(wildcard(), wildcard())
    called = graph.typed(relax.Call(function, [x, w]))
    expr = call("add", call("add", called, b), b)
    result = rewrite(rule(pattern + wildcard(), lambda pre, post, node_map: relu(b)), expr)
    assert equal(result, call("add", relu(b), b))


def test_returning_post_changes_nothing():
    x, y = var("x", 4), var("y", 4)
    a, b = wildcard(), wildcard()
    first = is_op("add")(a, b)
    pattern = is_op("add")(first, is_op("add")(first, a))
    inner = call("add", x, call("add", y, y))
    expr = call("add", call("add", x, inner), inner)
    result = rewrite(rule(pattern, lambda pre, post, node_map: post), expr)
    assert result.same_as(expr)


class BatchNorm(DFPatternCallback):
    """Five operators into one: Relay's own example."""

    def __init__(self):
        super().__init__()
        self.x, self.var, self.mean = wildcard(), wildcard(), wildcard()
        self.beta, self.gamma, self.eps = wildcard(), wildcard(), is_constant()
        root = is_op("sqrt")(self.var + self.eps)
        self.pattern = self.gamma * (self.x - self.mean) / root + self.beta

    def callback(self, pre, post, node_map):
        names = ("x", "gamma", "beta", "mean", "var")
        operands = [node_map[getattr(self, name)][0] for name in names]
        epsilon = float(node_map[self.eps][0].value.numpy())
        return relax.TupleGetItem(call("nn.batch_norm", *operands, epsilon=epsilon), 0)


def normalized(x, p, last="add", *, divide_first=False, swapped=False):
    root = call("sqrt", call("add", p["var"], relax.const(1e-5)))
    centered = call("subtract", x, p["mean"])
    if divide_first:
        scaled = call("multiply", p["gamma"], call("divide", centered, root))
    else:
        scaled = call("divide", call("multiply", p["gamma"], centered), root)
    return call(last, *([p["beta"], scaled] if swapped else [scaled, p["beta"]]))


def fused(x, p):
    epsilon = float(np.float32(1e-5))
    order = (x, p["gamma"], p["beta"], p["mean"], p["var"])
    return relax.TupleGetItem(call("nn.batch_norm", *order, epsilon=epsilon), 0)


def statistics():
    return {name: var(name, 3) for name in ("gamma", "beta", "mean", "var")}


@pytest.mark.parametrize(
    "form", [{}, {"swapped": True}, {"divide_first": True}, {"swapped": True, "divide_first": True}]
)
def test_five_operators_become_one_however_they_were_written(form):
    x, p = var("x", 2, 3, 3, 3), statistics()
    assert equal(rewrite(BatchNorm(), normalized(x, p, **form)), fused(x, p))


def test_only_what_matches_is_fused():
    x, p = var("x", 2, 3, 3, 3), statistics()
    fake = normalized(x, p, "subtract")
    assert rewrite(BatchNorm(), fake).same_as(fake)
    twice = normalized(normalized(x, p), p)
    assert equal(rewrite(BatchNorm(), twice), fused(fused(x, p), p))
    partly = normalized(fake, p)
    assert equal(rewrite(BatchNorm(), partly), fused(fake, p))


def test_dominated_regions_are_replaced_one_after_the_other():
    x, w = var("x", 1, 3, 12, 12), var("w", 3, 3, 1, 1)
    data, weight = wildcard(), wildcard()
    steps = has_attr({"TOpPattern": 0})(wildcard()) | is_op("add")(wildcard(), wildcard())
    pattern = dominates(is_op("nn.conv2d")(data, weight), steps, add_pattern())
    replace = rule(pattern, lambda pre, post, found: conv(found[data][0], found[weight][0]))
    expr = nested(single(diamond(x, w), w), w)
    assert equal(rewrite(replace, expr), conv(conv(conv(x, w), w), w))


class TestAlgebra:
    """Several rules at once: x + 0, x - 0, x * 1, x / 1, x * 0 and 0 / x."""

    zero = is_expr(relax.const(0)) | is_expr(relax.const(0.0))
    one = is_expr(relax.const(1)) | is_expr(relax.const(1.0))

    def simplify(self, expr):
        def keep(make, x):
            return rule(make(x), lambda pre, post, found: found[x][0])

        rules = [
            keep(lambda x: x + self.zero, wildcard()),
            keep(lambda x: x - self.zero, wildcard()),
            keep(lambda x: x * self.one, wildcard()),
            keep(lambda x: x / self.one, wildcard()),
            keep(lambda x: x * wildcard(), self.zero),
            keep(lambda x: x / wildcard(), self.zero),
        ]
        return rewrite(rules, expr)

    @pytest.mark.parametrize("dtype", ["int32", "float32"])
    def test_single_steps(self, dtype):
        x, zero, one = relax.Var("x"), relax.const(0, dtype), relax.const(1, dtype)
        for expr in (x + zero, zero + x, x - zero, x * one, one * x, x / one):
            assert self.simplify(expr).same_as(x)
        for expr in (x * zero, zero * x, zero / x):
            assert self.simplify(expr).same_as(zero)

    def test_steps_after_steps(self):
        x, y = relax.Var("x"), relax.Var("y")
        zero, one = relax.const(0), relax.const(1)
        expr = (x + zero * y) / one + (y * one) - zero / x
        assert equal(self.simplify(expr), x + y)


class TestOnce:
    """`rewrite_once` ends a rule after the first round in which it changed something."""

    def shorten(self, *, once):
        def change(pre, post, node_map):
            fields = list(post.args[0].fields)[:-1]
            return call("concatenate", relax.Tuple(fields)) if fields else post.args[0].fields[0]

        return rule(is_op("concatenate")(None), change, rewrite_once=once)

    def test_one_rule(self):
        x, y, z = (var(name, 4) for name in "xyz")
        expr = call("concatenate", relax.Tuple([x, y, z]))
        assert rewrite(self.shorten(once=False), expr).same_as(x)
        expected = call("concatenate", relax.Tuple([x, y]))
        assert equal(rewrite(self.shorten(once=True), expr), expected)

    def test_two_rules(self):
        x, y, z = (var(name, 4) for name in "xyz")
        expr = call("nn.softmax", call("concatenate", relax.Tuple([x, y, z])))
        wrap = rule(
            is_op("nn.softmax")(None), lambda pre, post, found: relu(post), rewrite_once=True
        )
        pair = call("concatenate", relax.Tuple([x, y]))
        result = rewrite([wrap, self.shorten(once=True)], expr)
        assert equal(result, relu(call("nn.softmax", pair)))
        result = rewrite([wrap, self.shorten(once=False)], expr)
        assert equal(result, relu(call("nn.softmax", x)))

    @pytest.mark.parametrize("where", ["arguments", "left", "right"])
    def test_a_pattern_that_contains_itself(self, where):
        dense = is_op("nn.dense")(wildcard(), wildcard())
        rest = wildcard()
        if where == "arguments":
            chain = is_op("cast")(rest)
            rest.redirect_to(chain | dense)
        else:
            chain = is_op("cast")(rest | dense if where == "left" else dense | rest)
            rest.redirect_to(chain)
        expr = call("nn.dense", var("x", 2, 8), relax.const(np.zeros((4, 8), "float32")))
        for _ in range(6):
            expr = call("cast", expr, dtype="float32")
        end = rule(chain, lambda pre, post, found: relu(post), rewrite_once=True)
        assert equal(rewrite(end, expr), relu(expr))


def test_rules_without_an_end_are_an_error():
    x, y = var("x", 4), var("y", 4)
    turn = rule(add_pattern(), lambda pre, post, found: call("add", *reversed(post.args)))
    with pytest.raises(errors.RelayError, match="still changes"):
        rewrite(turn, call("add", x, y))


def test_rules_that_make_the_same_again_end():
    x = var("x", 4)
    again = rule(add_pattern(), lambda pre, post, found: call("add", *post.args))
    expr = call("add", x, x)
    assert equal(rewrite(again, expr), expr)


def test_a_rule_without_a_pattern_or_types_is_an_error():
    x = relax.Var("x")
    with pytest.raises(errors.RelayError, match="no pattern"):
        rewrite(DFPatternCallback(), x)
    typed = rule(add_pattern(), to_subtract, require_type=True)
    with pytest.raises(errors.RelayError, match="no type"):
        rewrite(typed, x + x)


@pytest.mark.parametrize("made", [None, 5, "post"])
def test_a_callback_that_returns_no_expression_is_named(made):
    class Forgetful(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.pattern = add_pattern()

        def callback(self, pre, post, node_map):
            return made

    x = var("x", 4)
    with pytest.raises(errors.RelayError, match="return post to change nothing") as caught:
        rewrite(Forgetful(), call("add", x, x))
    assert "Forgetful" in str(caught.value)
    assert repr(made) in str(caught.value)


def test_functions_come_back_in_the_form_they_came_in():
    x, y = var("x", 4), var("y", 4)
    change = rule(add_pattern(), to_subtract, require_type=True)
    bound = graph.from_graph([x, y], call("add", x, y), {"global_symbol": "main"})
    expected = graph.from_graph([x, y], call("subtract", x, y), {"global_symbol": "main"})
    assert equal(rewrite(change, bound), expected)
    assert rewrite(rule(add_pattern(), lambda pre, post, found: post), bound).same_as(bound)
    plain = relax.Function([x, y], call("add", x, y))
    assert not rewrite(change, plain).body.blocks


def test_branches_are_rewritten_and_bound_again():
    x, y = var("x", 4), var("y", 4)
    flag = var("flag", dtype="bool")
    branch = relax.If(flag, call("add", x, y), call("multiply", x, y))
    function = graph.from_graph([x, y, flag], branch)
    result = rewrite(rule(add_pattern(), to_subtract), function)
    relax.analysis.well_formed(tvm.IRModule({"main": result.with_attr("global_symbol", "main")}))
    assert "R.subtract(x, y)" in result.script()
    assert "R.add" not in result.script()


def test_lets_are_rewritten_however_many_there_are():
    x = var("x", 4)
    names = [var(f"v{index}", 4) for index in range(5000)]
    body = names[-1]
    for before, name in zip([names[-2::-1], [x]], [names[:0:-1], [names[0]]], strict=True):
        for value, bound in zip(before, name, strict=True):
            block = relax.BindingBlock([relax.VarBinding(bound, call("add", value, x))])
            body = relax.SeqExpr([block], body)
    made = rewrite(rule(add_pattern(), to_subtract), body)
    found = []
    while isinstance(made, relax.SeqExpr) and made.blocks:
        found.append(made.blocks[0].bindings[0].value.op.name)
        made = made.body
    assert found == ["relax.subtract"] * 5000
    assert made.same_as(names[-1])


def test_depth_is_free():
    x = var("x", 4)
    expr = call("tanh", relu(x))
    for _ in range(10_000):
        expr = relu(expr)
    pattern = is_op("tanh")(is_op("nn.relu")(wildcard()))
    result = rewrite(rule(pattern, lambda pre, post, found: leaky(post.args[0].args[0])), expr)
    assert not same_graph(result, expr)
    nodes = list(graph.post_order(result))
    assert nodes[1].op.name == "relax.nn.leakyrelu"
    assert len(nodes) == 10_002


def test_graphs_are_compared_by_all_that_they_are():
    x, y = var("x", 4), var("y", 4)
    assert same_graph(call("clip", x, a_min=0.0, a_max=6.0), call("clip", x, a_min=0.0, a_max=6.0))
    for a, b in [
        (call("clip", x, a_min=0.0, a_max=6.0), call("clip", x, a_min=0.0, a_max=5.0)),
        (call("reshape", x, newshape=[2, 2]), call("reshape", x, newshape=[4, 1])),
        (call("nn.softmax", x, axis=0), call("nn.softmax", x, axis=-1)),
        (relax.const(1.0), relax.const(2.0)),
        (relu(x), relu(y)),
        (relax.Tuple([x, y]), relax.Tuple([y, x])),
    ]:
        assert not same_graph(a, b)
        assert same_graph(a, a)
