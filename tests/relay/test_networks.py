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

#: A network, its number of parameters, one of them with its shape, and some of its operators.
NETWORKS: list[tuple[Callable[[], Any], int, str, tuple[int, ...], dict[str, int]]] = [
    (lambda: testing.mlp.get_workload(2), 6, "fc1_bias", (128,), {"nn.softmax": 1}),
    (
        lambda: testing.resnet.get_workload(num_layers=18),
        *(99, "stage4_unit2_conv2_weight", (512, 512, 3, 3), {"nn.conv2d": 21}),
    ),
    (
        lambda: testing.mobilenet.get_workload(1, 10, (3, 32, 32)),
        *(137, "separable_conv_block_1_depthwise_conv1_weight", (32, 1, 3, 3), {"nn.conv2d": 27}),
    ),
]


@pytest.mark.parametrize(("make", "count", "parameter", "shape", "operators"), NETWORKS)
def test_a_network_has_its_layers_and_is_read_as_it_was_printed(
    make: Any, count: int, parameter: str, shape: tuple[int, ...], operators: dict[str, int]
) -> None:
    mod, params = make()
    assert len(params) == count
    assert params[parameter].shape == shape
    found = relay.analysis.list_op_freqs(mod)
    assert {operator: found[operator] for operator in operators} == operators
    types = {param.name: param.ty for param in mod["main"].params}
    assert next(iter(types)) == "data"
    assert types.keys() == {"data", *params}
    for name, value in params.items():
        assert types[name] == relay.TensorType(value.shape, str(value.dtype))
    again = relay.fromtext(relay.astext(mod))
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)


def test_a_network_that_there_is_not_is_refused() -> None:
    with pytest.raises(RelayError, match="no ResNet of 7 layers"):
        testing.resnet.get_workload(num_layers=7)


def test_a_network_runs() -> None:
    mod, params = testing.mlp.get_workload(batch_size=2)
    again = testing.mlp.get_workload(batch_size=2)[1]
    data = np.random.default_rng(0).random((2, 1, 28, 28)).astype("float32")
    x = data.reshape(2, -1)
    for name in ("fc1", "fc2", "fc3"):
        weight = params[f"{name}_weight"].numpy()
        np.testing.assert_array_equal(again[f"{name}_weight"].numpy(), weight)
        x = x @ weight.T + params[f"{name}_bias"].numpy()
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


def test_a_network_from_onnx_is_read_as_it_was_printed() -> None:
    mod = tvmlab.load(models.digits_resnet())
    again = relay.fromtext(relay.astext(mod))
    assert tvm_ffi.structural_equal(again, mod, map_free_vars=True)
    image = models.digits().x_test[:1]
    expected = tvmlab.compile(mod)(image)
    np.testing.assert_array_equal(tvmlab.compile(again)(image), expected)
