"""The networks that the integer form is for: three frontends, and nothing left in floats."""

from __future__ import annotations

import numpy as np
import pytest

import tvmlab
from tests.oracles.models import real_model
from tests.qnn.cut import differences
from tests.qnn.graphs import names
from tvmlab import models
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

SUMS = ["qnn.conv2d", "relay.nn.bias_add", "qnn.requantize"]


def check(mod, *inputs, rounding="None", floats=()):
    """Rewrite; nothing stays float but `floats`, and every quantize is at most a step off."""
    after = FakeQuantizationToInteger(rounding=rounding)(mod)
    assert [one.operator for one in float_operators(after)] == list(floats)
    steps, got, want = differences(mod, *inputs, rounding=rounding)
    assert max(int(step.max()) for step in steps.values()) <= 1
    wrong = sum(int((step > 0).sum()) for step in steps.values())
    assert wrong <= 0.01 * sum(step.size for step in steps.values())
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5)
    return after


@pytest.mark.parametrize(
    ("activations", "per_channel", "format"),
    [
        ("int8", False, "QDQ"),
        ("uint8", True, "QDQ"),
        ("int8", True, "QOperator"),
        ("uint8", False, "QOperator"),
    ],
)
def test_digits_by_onnx_runtime(activations, per_channel, format):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from tvmlab.models.quantized import quantized_onnx

    how = {"format": format, "per_channel": per_channel, "activations": activations}
    proto = quantized_onnx(models.digits_resnet(), **how)
    after = check(tvmlab.load(proto), models.digits().x_test[:1])
    assert names(after)[-1] == "qnn.dequantize"
    # Nine convolutions and five batch norms, of which one comes before QOperator's first quantize.
    assert names(after).count("qnn.conv2d") == 14 - names(after).index("qnn.quantize")
    assert names(after).count("qnn.add") == 3


def test_digits_by_pt2e():
    pytest.importorskip("torchao", reason="torchao is not installed")
    from tvmlab.models.quantized import quantized_torch

    mod = tvmlab.load(quantized_torch().program)
    after = check(mod, models.digits().x_test[:1])
    assert names(after).count("qnn.conv2d") == 14
    assert not {"nn.conv2d", "matmul", "nn.relu", "mean"} & set(names(after))


@pytest.mark.parametrize("rounding", ["None", "TFLITE"])
def test_resnet8_of_tensorflow_lite(rounding):
    pytest.importorskip("tflite", reason="tflite is not installed")
    mod = tvmlab.load(real_model("resnet8_int8.tflite"))
    x = np.random.default_rng(0).integers(-128, 128, (1, 32, 32, 3)).astype("int8")
    after = check(mod, x, rounding=rounding, floats=["nn.softmax"])
    assert names(after)[:6] == SUMS * 2
    assert names(after)[-6:-3] == ["qnn.dense", "relay.nn.bias_add", "qnn.requantize"]
