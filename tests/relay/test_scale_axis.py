"""FoldScaleAxis and what SimplifyInference leaves for it: where scales go, and that sums agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.short import examples
from tvmlab import relay
from tvmlab.ir.patterns import is_constant, is_op, wildcard
from tvmlab.relay import testing, transform

X = (1, 4, 6, 6)
SEED = np.random.default_rng(7)


def array(*shape: int) -> Any:
    return relay.const(SEED.standard_normal(shape).astype("float32"))


def vector(*shape: int, sign: int = 1) -> Any:
    return relay.const(sign * (SEED.random(shape) + 0.5).astype("float32"))


def conv(x: Any, channels: int = 4, **attributes: Any) -> Any:
    weight = array(channels, 4 // attributes.get("groups", 1), 3, 3)
    return relay.nn.conv2d(x, weight, padding=(1, 1), **attributes)


def norm(x: Any, channels: int = 4) -> Any:
    return relay.nn.batch_norm(x, *(vector(channels) for _ in range(4)))[0]


def operators(mod: Any) -> dict[str, int]:
    return relay.analysis.list_op_freqs(mod)


def run(mod: Any, *inputs: np.ndarray) -> list[np.ndarray]:
    made = relay.create_executor("graph", mod).evaluate()(*inputs)
    return [one.numpy() for one in (made if isinstance(made, list) else [made])]


def folded(body: Any, *params: Any, passes: Any = None) -> dict[str, int]:
    """Fold, compare with what was there, and count what is left."""
    mod = relay.IRModule.from_expr(relay.Function(params, body))
    after = relay.Sequential(passes or [transform.FoldScaleAxis(), transform.FoldConstant()])
    with tvm.transform.PassContext(opt_level=3):
        made = after(mod)
    inputs = [
        SEED.standard_normal([int(size) for size in p.ty.shape]).astype("float32") for p in params
    ]
    for one, other in zip(run(mod, *inputs), run(made, *inputs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    return operators(made)


def test_simplify_inference_leaves_a_scale_and_a_shift() -> None:
    x = relay.var("x", shape=X)
    alone = folded(norm(x), x, passes=[transform.SimplifyInference()])
    assert alone == {"multiply": 1, "add": 1}
    # Statistics that are parameters give what Relay gave.
    rest = [relay.var(name, shape=(4,)) for name in "abcd"]
    mod = relay.from_expr(relay.Function([x, *rest], relay.nn.batch_norm(x, *rest)[0]))
    counts = operators(transform.SimplifyInference()(mod))
    assert counts == {"add": 3, "sqrt": 1, "divide": 1, "multiply": 3, "negative": 1,
                      "expand_dims": 2}  # fmt: skip
    assert "newshape" not in relay.astext(transform.SimplifyInference()(mod))


@pytest.mark.parametrize("first", [[], [transform.SimplifyInference()]])
def test_a_table_finds_convolutions_after_either_way(first: list[Any]) -> None:
    mod, params = testing.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32))
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
    assert operators(made)["multiply"] == 1  # of the last norm, with pooling behind it


def test_backward() -> None:
    x = relay.var("x", shape=X)
    scale = vector(4, 1, 1)
    assert folded(conv(x) * scale, x) == {"nn.conv2d": 1}
    assert folded(conv(x, groups=4) * scale, x) == {"nn.conv2d": 1}
    assert folded(relay.nn.relu(conv(x) - vector(4, 1, 1)) * scale, x) == {
        "nn.conv2d": 1, "subtract": 1, "nn.relu": 1}  # fmt: skip
    data = relay.var("data", shape=(2, 5))
    dense = relay.nn.dense(data, array(3, 5))
    assert folded(dense * vector(3), data) == {"nn.dense": 1}
    nhwc = relay.var("x", shape=(1, 6, 6, 4))
    last = relay.nn.conv2d(nhwc, array(3, 3, 4, 5), data_layout="NHWC", kernel_layout="HWIO",
                           kernel_size=(3, 3), channels=5)  # fmt: skip
    assert folded(last * vector(5), nhwc) == {"nn.conv2d": 1}


def test_backward_leaves_what_it_may_not_fold() -> None:
    x = relay.var("x", shape=X)
    negative = vector(4, 1, 1, sign=-1)
    limited = folded(relay.nn.relu(conv(x)) * negative, x)
    assert limited == {"nn.conv2d": 1, "nn.relu": 1, "multiply": 1}
    shared = conv(x)
    assert folded(shared * negative + shared, x)["multiply"] == 1
    assert folded(conv(x) * vector(6), x)["multiply"] == 1  # along the width
    assert folded(conv(x, groups=2) * negative, x)["multiply"] == 1


def test_forward() -> None:
    x = relay.var("x", shape=X)
    assert folded(conv(x * vector(4, 1, 1)), x) == {"nn.conv2d": 1}
    assert folded(conv(x * vector(4, 1, 1), groups=4), x) == {"nn.conv2d": 1}
    before = relay.nn.relu(x * vector(4, 1, 1) + array(4, 1, 1))
    assert folded(conv(before), x) == {"add": 1, "nn.relu": 1, "nn.conv2d": 1}
    twice = x * vector(4, 1, 1, sign=-1)
    assert folded(relay.Tuple([conv(twice), conv(twice)]), x) == {"nn.conv2d": 2}
    assert folded(conv(twice) + twice, x)["multiply"] == 1
    assert folded(conv(relay.nn.relu(twice)), x)["multiply"] == 1
    zero = relay.const(np.array([0, 1, 1, 1], "float32").reshape(4, 1, 1))
    assert folded(conv(x * zero + array(4, 1, 1)), x)["multiply"] == 1
    data = relay.var("data", shape=(2, 5))
    assert folded(relay.nn.dense(data * vector(5), array(3, 5)), data) == {"nn.dense": 1}
    backward, forward = transform.BackwardFoldScaleAxis(), transform.ForwardFoldScaleAxis()
    assert folded(conv(x * vector(4, 1, 1)), x, passes=[backward])["multiply"] == 1
    assert folded(conv(x) * vector(4, 1, 1), x, passes=[forward])["multiply"] == 1


@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.sampled_from("cgsbnrt"), min_size=2, max_size=6))
def test_any_order(steps: list[str]) -> None:
    x = relay.var("x", shape=X)
    y, kept = x, x
    for step in steps:
        if step == "c":
            kept, y = y, conv(y)
        elif step == "g":
            y = conv(y, groups=4)
        elif step == "t":
            y = y + kept
        elif step == "r":
            y = relay.nn.relu(y)
        elif step == "n":
            y = norm(y)
        else:
            y = y * vector(4, 1, 1) if step == "s" else y + array(4, 1, 1)
    folded(y, x, passes=[transform.SimplifyInference(), transform.FoldScaleAxis()])
