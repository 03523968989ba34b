"""Residual blocks whose sums nothing quantizes: convolution, bias and trunk, added in int32."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from tests.qnn.graphs import Network, names, well_typed
from tests.qnn.steps import differences
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

IMAGE = (2, 4, 6, 6)


def conv(net, x, seed):
    """Convolve as PyTorch's quantizer writes it: weights by channel, a float bias."""
    rng = np.random.default_rng(seed)
    w = rng.integers(-127, 128, (4, 4, 3, 3)).astype("int8")
    weight = net.weight(w, rng.uniform(0.002, 0.004, 4).astype("float32"), np.zeros(4))
    made = net.emit(op.nn.conv2d(x, weight, padding=1))
    bias = rng.normal(size=(1, 4, 1, 1)).astype("float32")
    return net.emit(op.add(made, relax.const(bias)))


def block(net, x, seed):
    """Build a block of ResNet v1."""
    inner = net.fake(net.emit(op.nn.relu(conv(net, x, seed))), 0.05, 0, "uint8")
    made = net.emit(op.add(conv(net, inner, seed + 1), x))
    return net.fake(net.emit(op.nn.relu(made)), 0.06, 0, "uint8")


@pytest.mark.parametrize("rounding", ["None", "TFLITE", "ONNX"])
def test_blocks_of_resnet_v1_are_integers(rounding):
    """A bias is rounded to its sums' step, which is to be judged beside the result's."""
    net = Network((IMAGE, "float32"))
    x = net.fake(net.inputs[0], 0.03, 120, "uint8")
    mod = net.module(block(net, block(net, x, 1), 3))
    after = FakeQuantizationToInteger(rounding=rounding)(mod)
    well_typed(after)
    assert float_operators(after) == []
    assert names(after).count("qnn.conv2d") == 4
    data = np.random.default_rng(0).normal(size=IMAGE).astype("float32")
    steps, _, _ = differences(mod, data, rounding=rounding)
    assert max(int(step.max()) for step in steps.values()) <= 1


def test_a_bias_as_coarse_as_the_result_keeps_floats():
    net = Network((IMAGE, "uint8"))
    real = net.real(net.inputs[0], 0.03, 120)
    made = net.emit(op.add(conv(net, real, 1), real))
    mod = net.module(net.quantized(made, 5e-6, 0, "uint8"))
    left = float_operators(mod)
    assert [one.operator for one in left] == ["nn.conv2d", "add", "add"]
    assert left[2].reason == "roundings before it could be more than half a step of its result"
