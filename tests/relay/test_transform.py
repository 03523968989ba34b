"""Relay's passes, by Relay's names and levels, over Relax's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from tests.short import examples
from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.ir.patterns import is_constant, is_op, wildcard
from tvmlab.relay import fake_quantization, testing, transform
from tvmlab.relay.testing import run_infer_type

X = (1, 4, 6, 6)
SEED = np.random.default_rng(7)


def operators(mod: Any) -> dict[str, int]:
    return relay.analysis.list_op_freqs(mod)


def array(*shape: int) -> Any:
    return relay.const(SEED.standard_normal(shape).astype("float32"))


def vector(*shape: int, sign: int = 1) -> Any:
    return relay.const(sign * (SEED.random(shape) + 0.5).astype("float32"))


def conv(x: Any, groups: int = 1) -> Any:
    return relay.nn.conv2d(x, array(4, 4 // groups, 3, 3), padding=(1, 1), groups=groups)


def norm(x: Any) -> Any:
    return relay.nn.batch_norm(x, *(vector(4) for _ in range(4)))[0]


def convolutional() -> tvm.IRModule:
    x = relay.var("x", shape=X)
    y = norm(relay.nn.bias_add(conv(x), relay.const(np.arange(4, dtype="float32"))))
    return relay.from_expr(relay.Function([x], relay.nn.relu(y)))


def changed(body: Any, *passes: Any) -> tvm.IRModule:
    """Run passes on a graph of one input, and compare the results of both."""
    if not isinstance(body, tvm.IRModule):
        body = relay.from_expr(body)
    with tvm.transform.PassContext(opt_level=3):
        after = relay.Sequential(list(passes))(body)
    shape = [int(size) for size in body["main"].params[0].ty.shape]
    x = SEED.standard_normal(shape).astype("float32")
    one, other = (
        relay.create_executor("graph", mod).evaluate()(x).numpy() for mod in (body, after)
    )
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    return after


def test_infer_type() -> None:
    x = relay.var("x", shape=X)
    typed = run_infer_type(relay.Function([x], x + x))
    assert typed.ret_ty == x.ty
    assert isinstance(typed.body, relax.SeqExpr)
    graph = run_infer_type(relay.nn.relu(x + x))
    assert isinstance(graph, relay.Call)
    assert isinstance(graph.args[0], relay.Call)
    assert transform.InferType().info.name == "InferType"


@pytest.mark.parametrize(
    ("one", "gone"),
    [
        (transform.SimplifyInference(), {"nn.batch_norm"}),
        (transform.FoldScaleAxis(), {"nn.batch_norm"}),
        (transform.DeadCodeElimination(inline_once=True), set()),
        (transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}), set()),
        (transform.FuseOps(), set()),
    ],
)
def test_a_pass_keeps_the_numbers(one: Any, gone: set[str]) -> None:
    after = changed(convolutional(), one)
    assert not gone & operators(after).keys()
    assert gone or "nn.conv2d" in operators(after)


def test_layouts_are_those_asked_for() -> None:
    mod = transform.ConvertLayout({"nn.conv2d": ["NHWC", "OHWI"]})(convolutional())
    assert 'data_layout="NHWC", kernel_layout="OHWI"' in relay.astext(mod, types=False)
    with pytest.raises(RelayError, match=r"no operator 'relax\.nn\.conv2d'"):
        transform.ConvertLayout({"relax.nn.conv2d": ["NHWC"]})


def test_constants_and_common_subexpressions() -> None:
    x, one = relay.var("x", shape=X), vector(4, 1, 1)
    assert operators(changed(x + (one * one + one), transform.FoldConstant())) == {"add": 1}
    twice = relay.nn.relu(x) + relay.nn.relu(x)
    once = changed(twice, transform.EliminateCommonSubexpr())
    assert operators(once) == {"nn.relu": 1, "add": 1}
    with pytest.raises(RelayError, match="carry fskip"):
        transform.EliminateCommonSubexpr(fskip=lambda _: True)


def test_simplify_inference_leaves_a_scale_and_a_shift() -> None:
    x = relay.var("x", shape=X)
    both = [transform.SimplifyInference(), transform.FoldConstant()]
    assert operators(changed(norm(x), *both)) == {"multiply": 1, "add": 1}
    # Statistics that are parameters give what Relay gave.
    rest = [relay.var(name, shape=(4,)) for name in "abcd"]
    mod = relay.from_expr(relay.Function([x, *rest], relay.nn.batch_norm(x, *rest)[0]))
    after = transform.SimplifyInference()(mod)
    assert operators(after) == {"add": 3, "sqrt": 1, "divide": 1, "multiply": 3, "negative": 1,
                                "expand_dims": 2}  # fmt: skip
    assert "newshape" not in relay.astext(after)


@pytest.mark.parametrize("first", [[], [transform.SimplifyInference()]])
def test_a_table_finds_convolutions_after_either_way(first: list[Any]) -> None:
    mod, params = testing.resnet.get_workload(num_layers=18, image_shape=(3, 64, 64))
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    head = is_op("nn.conv2d")(wildcard(), is_constant())
    table = [("acc.conv", is_op("nn.relu")(is_op("add")(head, is_constant())))]
    seq = relay.Sequential(
        [*first, transform.FoldConstant(), transform.FoldScaleAxis(), transform.FoldConstant(),
         transform.MergeComposite(table)]
    )  # fmt: skip
    with tvm.transform.PassContext(opt_level=3):
        made = seq(mod)
    # The stem, and the first convolution of each of 8 blocks, have a norm and a ReLU behind them.
    assert relay.astext(made, show_meta_data=False).count('Composite="acc.conv"') == 9


@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.sampled_from("cgsbnrt"), min_size=2, max_size=6))
def test_scales_in_any_order(steps: list[str]) -> None:
    y = kept = relay.var("x", shape=X)
    make = {
        "c": conv,
        "g": lambda y: conv(y, groups=4),
        "t": lambda y: y + kept,
        "r": relay.nn.relu,
        "n": norm,
        "s": lambda y: y * vector(4, 1, 1),
        "b": lambda y: y + array(4, 1, 1),
    }
    for step in steps:
        y, kept = make[step](y), y if step == "c" else kept
    changed(y, transform.SimplifyInference(), transform.FoldScaleAxis())


def test_fused_operators_are_primitive_functions() -> None:
    y = relay.nn.relu(relay.nn.bias_add(conv(relay.var("x", shape=X)), vector(4)))
    parts = relay.split(relay.exp(y), 2, axis=1)
    both = relay.from_expr(relay.Tuple([parts[0], relay.log(parts[1])]))
    after = transform.FuseOps(2)(both)
    found = [
        [*relay.analysis.list_op_freqs(tvm.IRModule({"main": node}))]
        for node in relay.analysis.nodes(after["main"])
        if isinstance(node, relay.Function) and "Primitive" in (node.attrs or {})
    ]
    assert sorted(found, key=len) == [
        ["split"],
        ["log"],
        ["nn.conv2d", "nn.bias_add", "nn.relu", "exp"],
    ]
    with pytest.raises(RelayError, match="shape of FuseOps' result must be known"):
        transform.FuseOps()(relay.fromtext("free_var %x; nn.relu(%x)"))


def fake_quantized(make: Any) -> tvm.IRModule:
    x = relay.qnn.op.dequantize(relay.var("x", shape=X, dtype="int8"), number(2.0), number(0))
    return relay.from_expr(relay.qnn.op.quantize(make(x), number(2.0), number(0)))


def number(value: float) -> Any:
    return relay.const(value)


def test_relays_rules_for_operators_that_stay_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    to_integers = transform.FakeQuantizationToInteger(hard_fail=True)

    def resized(x: Any) -> Any:
        return relay.image.resize2d(x, size=[3, 4], method="linear")

    def run(mod: tvm.IRModule, value: Any) -> Any:
        return relay.create_executor("graph", mod).evaluate()(value).numpy()

    value = SEED.integers(-128, 128, X, "int8")
    after = to_integers(fake_quantized(resized))
    assert operators(after) == {"image.resize2d": 1}
    real = run(relay.from_expr(resized(relay.var("x", shape=X))), value.astype("float32"))
    np.testing.assert_array_equal(run(after, value), np.trunc(real))  # as Relay's kernel did

    # The same integers with two scales, and a rule that refuses.
    other = relay.qnn.op.dequantize(relay.var("x", shape=X, dtype="int8"), number(3.0), number(0))
    twice = fake_quantized(
        lambda x: resized(x) + resized(relay.bind(other, {other.args[0]: x.args[0]}))
    )
    monkeypatch.setattr(fake_quantization, "_RULES", dict(fake_quantization._RULES))
    negated = fake_quantized(relay.negative)

    @relay.op.register_fake_quantization_to_integer("negative", level=11)
    def rule(expr: Any, types: Any) -> Any:
        return relay.negative(expr.args[0]), types[expr.args[0]]

    assert operators(to_integers(negated)) == {"negative": 1}
    relay.op.register_fake_quantization_to_integer("negative", lambda *_: None, 12)
    for mod in (twice, negated):
        assert "qnn.dequantize" in operators(transform.FakeQuantizationToInteger()(mod))
        with pytest.raises(RelayError, match="stays in float"):
            to_integers(mod)


def test_levels_are_relays() -> None:
    mod = convolutional()
    folding = tvm.transform.Sequential([transform.SimplifyInference(), transform.FoldScaleAxis()])
    for required, stays in (([], True), (["FoldScaleAxis"], False)):
        given = {"disabled_pass": ["SimplifyInference"], "required_pass": required}
        with tvm.transform.PassContext(opt_level=2, **given):
            assert ("nn.batch_norm" in operators(folding(mod))) is stays
    assert transform.FoldConstant().info.opt_level == 2
    assert transform.EliminateCommonSubexpr().info.opt_level == 3


def test_passes_of_ones_own() -> None:
    @relay.transform.function_pass(opt_level=1)
    class Negate:
        def __init__(self, times: int) -> None:
            self.times = times

        def transform_function(self, func: Any, mod: Any, ctx: Any) -> Any:
            assert isinstance(ctx, relay.PassContext)
            body = func.body
            for _ in range(self.times):
                body = relay.negative(body)
            return relay.Function(func.params, body, None, None, func.attrs)

    @relay.function_pass(opt_level=0, name="same")
    def same(func: Any, mod: Any, ctx: Any) -> Any:
        assert "main" in mod
        return func

    x = relay.var("x", shape=(2,))
    mod = relay.from_expr(relay.Function([x], relay.nn.relu(x), attrs={"Composite": "x.y"}))
    assert operators(Negate(2)(mod)) == {"nn.relu": 1, "negative": 2}
    assert Negate(1)(mod)["main"].attrs["Composite"] == "x.y"
    assert Negate(1).info.name == "Negate"
    assert isinstance(same, relay.Pass)
    assert same.info.name == "same"
    tvm.ir.assert_structural_equal(same(mod), mod)
    with pytest.raises(RelayError, match="opt_level is missing"):
        relay.function_pass(lambda func, mod, ctx: func)
