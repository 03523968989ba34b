"""Relay's networks for tests: their layers, their text, and what one computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from tvmlab import relay
from tvmlab.errors import RelayError
from tvmlab.relay import testing

NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int, dict[str, int]]] = {
    "vgg": (
        lambda: testing.vgg.get_net(1, (3, 32, 32), 10, "float32"),
        (1, 10),
        22,
        {"nn.conv2d": 8, "nn.bias_add": 11, "nn.relu": 10, "nn.max_pool2d": 5, "nn.dense": 3},
    ),
    "vgg with norms": (
        lambda: testing.vgg.get_net(2, (3, 32, 32), 10, "float32", 19, batch_norm=True),
        (2, 10),
        38 + 4 * 16,
        {"nn.conv2d": 16, "nn.batch_norm": 16, "nn.bias_add": 19, "nn.dropout": 2},
    ),
    "squeezenet": (
        lambda: testing.squeezenet.get_net(1, (3, 64, 64), 10, "1.0", "float32"),
        (1, 10),
        52,
        {"nn.conv2d": 26, "nn.bias_add": 26, "nn.relu": 26, "concatenate": 8, "nn.max_pool2d": 3},
    ),
    "squeezenet 1.1": (
        lambda: testing.squeezenet.get_net(2, (3, 64, 64), 10, "1.1", "float16"),
        (2, 10),
        52,
        {"nn.conv2d": 26, "concatenate": 8, "nn.max_pool2d": 3, "nn.global_avg_pool2d": 1},
    ),
    "densenet": (
        testing.densenet.get_net,
        (4, 1000),
        120 + 4 * 121 + 2,
        # A block's 58 layers have two convolutions each; one comes first, three between blocks.
        {"nn.conv2d": 2 * 58 + 4, "nn.batch_norm": 121, "concatenate": 4, "nn.avg_pool2d": 4},
    ),
    "dqn": (
        lambda: testing.dqn.get_net(1),
        (1, 18),
        10,
        {"nn.conv2d": 3, "nn.bias_add": 5, "nn.relu": 4, "nn.dense": 2},
    ),
    "dqn NHWC": (
        lambda: testing.dqn.get_net(2, 5, (84, 84, 4), layout="NHWC"),
        (2, 5),
        10,
        {"nn.conv2d": 3, "nn.bias_add": 5, "nn.relu": 4, "nn.dense": 2},
    ),
    "dcgan": (
        lambda: testing.dcgan.get_net(2),
        (2, 3, 64, 64),
        17,
        {"nn.conv2d_transpose": 4, "nn.batch_norm": 3, "nn.relu": 4, "nn.dense": 1, "tanh": 1},
    ),
    "dcgan NHWC": (
        lambda: testing.dcgan.get_net(2, layout="NHWC"),
        (2, 64, 64, 3),
        17,
        {"nn.conv2d_transpose": 4, "nn.batch_norm": 3, "reshape": 1, "tanh": 1},
    ),
    "inception_v3": (
        lambda: testing.inception_v3.get_net(1, 1000, (3, 299, 299), "float32"),
        (1, 1000),
        5 * 94 + 2,
        {
            "nn.conv2d": 94,
            "nn.batch_norm": 94,
            "nn.relu": 94,
            "concatenate": 11,
            "nn.max_pool2d": 5,
            "nn.avg_pool2d": 9,
        },
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_has_its_layers_and_is_read_as_it_was_printed(name: str) -> None:
    make, shape, weights, operators = NETWORKS[name]
    mod = relay.transform.InferType()(relay.IRModule.from_expr(make()))
    main = mod["main"]
    assert [int(size) for size in main.ret_ty.shape] == list(shape)
    names = [param.name for param in main.params]
    assert names[0] == "data"
    assert len(names) == len(set(names)) == 1 + weights
    found = relay.analysis.list_op_freqs(mod)
    assert {operator: found[operator] for operator in operators} == operators
    for types in (True, False):
        again = relay.fromtext(relay.astext(mod, types=types))
        assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)


@pytest.mark.parametrize(
    ("network", "arguments", "parameter", "shape"),
    [
        (testing.vgg, {"image_shape": (3, 32, 32)}, "conv5_2_bias", (512,)),
        (testing.squeezenet, {"version": "1.1"}, "fire8_right_conv_weight", (256, 64, 3, 3)),
        (testing.densenet, {"batch_size": 1}, "batch_2_3_15_moving_mean", (128,)),
        (testing.dqn, {"layout": "NHWC", "image_shape": (84, 84, 4)}, "dense1_weight", (512, 3136)),
        (testing.dcgan, {"ngf": 4}, "g3_deconv_weight", (16, 8, 4, 4)),
        (testing.inception_v3, {}, "mixed_9_tower_1_mixed_conv_1_conv1_weight", (384, 384, 3, 1)),
        (testing.inception_v3, {}, "mixed_8_tower_1_conv_3_conv1_weight", (192, 192, 3, 3)),
        (testing.inception_v3, {}, "fc2_bias", (1000,)),
    ],
)
def test_parameters_have_relays_names(
    network: Any, arguments: dict[str, Any], parameter: str, shape: tuple[int, ...]
) -> None:
    if network in (testing.vgg, testing.dqn, testing.dcgan):  # the others have a default
        arguments = {"batch_size": 1, **arguments}
    mod, params = network.get_workload(**arguments)
    assert params[parameter].shape == shape
    assert set(params) == {param.name for param in mod["main"].params} - {"data"}


def test_dcgan_draws_what_pytorch_draws() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    mod, params = testing.dcgan.get_workload(2, ngf=2, random_len=7)
    rng = np.random.default_rng(0)
    values = {
        name: rng.uniform(0.5, 1.5, param.shape).astype("float32")
        if "batch_norm" in name
        else rng.normal(0, 0.3, param.shape).astype("float32")
        for name, param in params.items()
    }
    code = rng.normal(size=(2, 7)).astype("float32")
    run = relay.create_executor("graph", mod, target="llvm", params=values).evaluate()
    got = run(code).numpy()

    weights = {name: torch.from_numpy(value) for name, value in values.items()}
    x = torch.relu(torch.from_numpy(code) @ weights["dense_weight"].T)
    x = x.reshape(-1, 16, 4, 4)
    for name in ("g2", "g3", "g4", "g5"):
        kernel = weights[f"{name}_deconv_weight"]
        x = torch.nn.functional.conv_transpose2d(x, kernel, stride=2, padding=1)
        if name == "g5":
            break
        norm = {key: weights[f"{name}_batch_norm_{key}"] for key in ("moving_mean", "moving_var")}
        # Relay's network does not scale: gamma is a parameter that nothing reads.
        x = torch.nn.functional.batch_norm(
            x, *norm.values(), bias=weights[f"{name}_batch_norm_beta"], eps=1e-5
        )
        x = torch.relu(x)
    wanted = torch.tanh(x).numpy()
    assert wanted.std() > 0.1
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_cells_remember_what_they_saw() -> None:
    mod, params = testing.lstm.get_workload(2, 3, batch_size=2)
    order = ["data", "i2h_{}_weight", "i2h_{}_bias", "h2h_{}_weight", "h2h_{}_bias"]
    names = [name.format(number) for number in range(2) for name in order]
    assert [param.name for param in mod["main"].params] == names
    for types in (True, False):
        again = relay.fromtext(relay.astext(mod, types=types))
        assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)

    rng = np.random.default_rng(0)
    values = {
        name: rng.normal(size=param.shape).astype("float32") for name, param in params.items()
    }
    inputs = rng.normal(size=(2, 2, 3)).astype("float32")
    run = relay.create_executor("graph", mod, target="llvm", params=values).evaluate()
    got = run(*inputs).numpy()

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    h = c = np.zeros((2, 3), "float32")
    for number, x in enumerate(inputs):
        sums = [
            data @ values[f"{which}_{number}_weight"].T + values[f"{which}_{number}_bias"]
            for which, data in (("i2h", x), ("h2h", h))
        ]
        enter, keep, new, leave = np.split(sums[0] + sums[1], 4, axis=1)
        c = sigmoid(keep) * c + sigmoid(enter) * np.tanh(new)
        h = sigmoid(leave) * np.tanh(c)
    np.testing.assert_allclose(got, h, rtol=1e-4, atol=1e-5)


def test_a_layer_takes_the_weights_it_is_given() -> None:
    x, weight, bias = (
        relay.var(name, shape=(3,) * n) for name, n in (("x", 2), ("w", 2), ("b", 1))
    )
    body = testing.layers.dense_add_bias(x, weight, bias, units=3, name="fc")
    assert [var.name for var in relay.analysis.free_vars(body)] == ["x", "w", "b"]


def test_dcgan_draws_from_a_given_code() -> None:
    code = relay.var("code", shape=(1, 5))
    net = testing.dcgan.get_net(1, ngf=1, code=relay.tanh(code))
    assert net.params[0].same_as(code)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: testing.vgg.get_workload(1, num_layers=12), "11, 13, 16, 19"),
        (lambda: testing.squeezenet.get_workload(version="2"), "'1.0' or '1.1'"),
        (lambda: testing.densenet.get_workload(7), "121, 161, 169, 201"),
        (lambda: testing.dcgan.get_workload(1, oshape=(3, 32, 32)), "64, 64"),
        (lambda: testing.lstm.get_workload(0, 3), "1 or more"),
        (lambda: testing.dcgan.get_workload(1, layout="CHWN"), "'NCHW' or 'NHWC'"),
    ],
)
def test_a_network_that_there_is_not_is_refused(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(RelayError, match=told):
        make()
