"""Relay's networks for tests, and the workbook's own as Relay text and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi

import tvmlab
from tvmlab import models, relay
from tvmlab.errors import RelayError
from tvmlab.relay import testing, transform
from tvmlab.relay.testing import create_workload, run_opt_pass

NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...], int, dict[str, int]]] = {
    "vgg with norms": (
        lambda: testing.vgg.get_net(2, (3, 32, 32), 10, "float32", 19, batch_norm=True),
        (2, 10),
        38 + 4 * 16,
        {"nn.conv2d": 16, "nn.batch_norm": 16, "nn.bias_add": 19, "nn.dropout": 2},
    ),
    "squeezenet 1.1": (
        lambda: testing.squeezenet.get_net(2, (3, 64, 64), 10, "1.1", "float16"),
        (2, 10),
        52,
        {"nn.conv2d": 26, "concatenate": 8, "nn.max_pool2d": 3, "nn.global_avg_pool2d": 1},
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
        (testing.inception_v3, {}, "mixed_9_tower_1_mixed_conv_1_conv1_weight", (384, 384, 3, 1)),
    ],
)
def test_parameters_have_relays_names(
    network: Any, arguments: dict[str, Any], parameter: str, shape: tuple[int, ...]
) -> None:
    mod, params = network.get_workload(batch_size=1, **arguments)
    assert params[parameter].shape == shape
    assert set(params) == {param.name for param in mod["main"].params} - {"data"}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: testing.vgg.get_workload(1, num_layers=12), "11, 13, 16, 19"),
        (lambda: testing.squeezenet.get_workload(version="2"), "'1.0' or '1.1'"),
    ],
)
def test_a_network_that_there_is_not_is_refused(make: Callable[[], Any], told: str) -> None:
    with pytest.raises(RelayError, match=told):
        make()


@pytest.mark.parametrize(
    ("make", "sizes", "parameters", "convolutions"),
    [
        (testing.mlp.get_workload, {"batch_size": 2}, 6, 0),
        (testing.resnet.get_workload, {"num_layers": 8, "image_shape": (3, 28, 28)}, 44, 10),
        (testing.resnet.get_workload, {"num_layers": 50}, 259, 53),
        (testing.mobilenet.get_workload, {"image_shape": (3, 32, 32)}, 137, 27),
    ],
)
def test_networks(make: Any, sizes: Any, parameters: int, convolutions: int) -> None:
    mod, params = make(**sizes)
    assert len(params) == parameters
    assert relay.analysis.list_op_freqs(mod).get("nn.conv2d", 0) == convolutions
    assert relay.analysis.list_op_freqs(mod)["nn.softmax"] == 1
    by_name = {param.name: param.ty for param in mod["main"].params}
    assert by_name.keys() == {"data", *params}
    for name, value in params.items():
        assert by_name[name] == relay.TensorType(value.shape, str(value.dtype))
    again = make(**sizes)[1]
    weight = next(name for name in params if name.endswith("weight"))
    np.testing.assert_array_equal(params[weight].numpy(), again[weight].numpy())
    assert params[weight].numpy().std() > 0
    with pytest.raises(RelayError, match="no ResNet of 7 layers"):
        testing.resnet.get_workload(num_layers=7)


def test_a_network_runs() -> None:
    mod, params = testing.mlp.get_workload(batch_size=2)
    data = np.random.default_rng(0).random((2, 1, 28, 28)).astype("float32")
    x = data.reshape(2, -1)
    for name in ("fc1", "fc2", "fc3"):
        x = x @ params[f"{name}_weight"].numpy().T + params[f"{name}_bias"].numpy()
        x = np.maximum(x, 0) if name != "fc3" else np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    made = relay.create_executor("vm", mod, params=params).evaluate()(data).numpy()
    np.testing.assert_allclose(made, x, rtol=1e-4, atol=1e-6)


def test_workloads_of_ones_own() -> None:
    x = relay.var("data", shape=(1, 3))
    net = relay.Function([x, relay.var("w", shape=(2, 3))], x)
    with pytest.raises(RelayError, match="no rule for the values of 'w'"):
        create_workload(net)
    params = create_workload(net, lambda _, array: array.fill(7))[1]
    np.testing.assert_array_equal(params["w"].numpy(), np.full((2, 3), 7, "float32"))
    passes = [transform.InferType(), transform.FoldConstant()]
    assert tvm_ffi.structural_equal(run_opt_pass(net, passes), relay.from_expr(net)["main"])
    assert testing.rand("float32", 2, 3).shape == (2, 3)


WORKBOOK = {
    "digits_resnet": models.digits_resnet,
    "mobilenet_v2": models.mobilenet_v2,
    "resnet50_v2": lambda: models.resnet50_v2("seeded"),
}


@pytest.fixture(scope="module", params=WORKBOOK)
def both(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A network's module, and the one that is read from its text."""
    mod = tvmlab.load(WORKBOOK[request.param]())
    return mod, relay.fromtext(relay.astext(mod))


def test_a_network_is_read_as_it_was_printed(both: tuple[Any, Any]) -> None:
    mod, again = both
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)


def test_a_network_read_from_text_gives_the_same_numbers() -> None:
    """The smallest of them: all are structurally equal, and the large are slow to compile twice."""
    mod = tvmlab.load(models.digits_resnet())
    again = relay.fromtext(relay.astext(mod))
    shape = [int(extent) for extent in mod["main"].params[0].ty.shape]
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    expected = tvmlab.compile(mod)(image)
    np.testing.assert_array_equal(tvmlab.compile(again)(image), expected)
    assert np.ptp(expected) > 0
