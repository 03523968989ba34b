"""Relay's passes, by Relay's names and levels, over Relax's; its helpers for tests and networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.relay import transform
from tvmlab.relay.testing import run_infer_type

X = (1, 4, 8, 8)


def operators(mod: Any) -> dict[str, int]:
    return relay.analysis.list_op_freqs(mod)


def run(mod: Any, *inputs: np.ndarray) -> np.ndarray:
    return relay.create_executor("graph", mod).evaluate()(*inputs).numpy()


def convolutional() -> relax.Function:
    x = relay.var("x", shape=X)
    weight = relay.const(np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype("float32"))
    y = relay.nn.conv2d(x, weight, padding=(1, 1))
    y = relay.nn.bias_add(y, relay.const(np.arange(4, dtype="float32")))
    statistics = [relay.const(np.full(4, value, "float32")) for value in (1.5, 0.5, 0.1, 2.0)]
    y = relay.nn.batch_norm(y, *statistics)[0]
    return relay.Function([x], relay.nn.relu(y))


# Each pass


def test_infer_type() -> None:
    x = relay.var("x", shape=X)
    y = x + x
    typed = run_infer_type(relay.Function([x], y))
    assert typed.ret_ty == x.ty
    assert isinstance(typed.body, relax.SeqExpr)
    graph = run_infer_type(relay.nn.relu(y))
    assert isinstance(graph, relay.Call)
    assert isinstance(graph.args[0], relay.Call)
    assert transform.InferType().info.name == "InferType"
    assert transform.InferTypeLocal(x * x) == x.ty


def test_fold_constant() -> None:
    x = relay.var("x", shape=(2, 3))
    one = relay.const(np.arange(3, dtype="float32"))
    folded = relay.from_expr(relay.Function([x], x + (one * one + one)))
    after = tvm.transform.Sequential([transform.FoldConstant()])(folded)
    assert operators(after) == {"add": 1}
    np.testing.assert_array_equal(run(after, np.zeros((2, 3), "float32"))[0], [0, 2, 6])


@pytest.mark.parametrize(
    ("one", "gone"),
    [
        (transform.SimplifyInference(), {"nn.batch_norm"}),
        (transform.FoldScaleAxis(), {"nn.batch_norm"}),
        (transform.CanonicalizeOps(), {"nn.bias_add"}),
        (transform.FoldConstant(fold_qnn=True), set()),
        (transform.DeadCodeElimination(inline_once=True), set()),
        (transform.EliminateCommonSubexpr(), set()),
        (transform.ToANormalForm(), set()),
        (transform.ToGraphNormalForm(), set()),
        (transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}), set()),
        (transform.ConvertLayout({"nn.conv2d": ["NHWC", "OHWI"]}), set()),
        (transform.FuseOps(), {"nn.conv2d", "nn.relu"}),
    ],
)
def test_a_pass_keeps_the_numbers(one: Any, gone: set[str]) -> None:
    mod = tvm.IRModule()
    mod["main"] = convolutional()
    x = np.random.default_rng(1).standard_normal(X).astype("float32")
    before = run(relay.from_expr(convolutional()), x)
    with tvm.transform.PassContext(opt_level=3):
        after = one(mod)
    assert not gone & operators(after).keys()
    assert gone or "nn.conv2d" in operators(after)
    np.testing.assert_allclose(run(after, x), before, rtol=1e-4, atol=1e-5)


def test_layouts_are_those_asked_for() -> None:
    mod = transform.ConvertLayout({"nn.conv2d": ["NHWC", "OHWI"]})(relay.from_expr(convolutional()))
    found = [
        (str(call.attrs.data_layout), str(call.attrs.kernel_layout))
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(call := binding.value, relay.Call) and call.op.name == "relax.nn.conv2d"
    ]
    assert found == [("NHWC", "OHWI")]
    with pytest.raises(RelayError, match=r"no operator 'relax\.nn\.conv2d'"):
        transform.ConvertLayout({"relax.nn.conv2d": ["NHWC"]})


def test_common_subexpressions() -> None:
    x = relay.var("x", shape=X)
    twice = relay.Function([x], relay.nn.relu(x) + relay.nn.relu(x))
    assert operators(relay.from_expr(twice)) == {"nn.relu": 2, "add": 1}
    with tvm.transform.PassContext(opt_level=3):
        once = transform.EliminateCommonSubexpr()(relay.from_expr(twice))
    assert operators(once) == {"nn.relu": 1, "add": 1}
    with pytest.raises(RelayError, match="what to skip"):
        transform.EliminateCommonSubexpr(fskip=lambda _: True)


def test_unused_functions() -> None:
    x = relay.var("x", shape=(2,))
    mod = relay.IRModule({name: relay.Function([x], relay.nn.relu(x)) for name in ("used", "not")})
    y = relay.var("y", shape=(2,))
    mod["main"] = relay.Function([y], mod.get_global_var("used")(y))
    left = transform.RemoveUnusedFunctions()(mod)
    assert {var.name_hint for var in left.get_global_vars()} == {"main", "used"}
    left = transform.RemoveUnusedFunctions(["not"])(mod)
    assert {var.name_hint for var in left.get_global_vars()} == {"not"}


# The levels


def test_levels_are_relays() -> None:
    mod = relay.from_expr(convolutional())
    folding = tvm.transform.Sequential([transform.SimplifyInference(), transform.FoldScaleAxis()])
    with tvm.transform.PassContext(opt_level=2, disabled_pass=["SimplifyInference"]):
        assert "nn.batch_norm" in operators(folding(mod))
    with tvm.transform.PassContext(opt_level=2, disabled_pass=["SimplifyInference"],
                                   required_pass=["FoldScaleAxis"]):  # fmt: skip
        assert "nn.batch_norm" not in operators(folding(mod))
    assert transform.FoldConstant().info.opt_level == 2
    assert transform.EliminateCommonSubexpr().info.opt_level == 3


def test_passes_of_ones_own() -> None:
    @relay.transform.function_pass(opt_level=1)
    class Negate:
        def __init__(self, times: int) -> None:
            self.times = times

        def transform_function(self, func: Any, mod: Any, ctx: Any) -> Any:
            assert isinstance(ctx, relay.PassContext)
            body = relay.Tuple([func.body]) if self.times == 0 else func.body
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
    with pytest.raises(RelayError, match="optimization level"):
        relay.function_pass(lambda func, mod, ctx: func)

    @relay.module_pass(opt_level=0)
    def empty(mod: Any, ctx: Any) -> Any:
        return tvm.IRModule()

    assert not empty(mod).get_global_vars()
