"""The networks that the integer form is for: three frontends, and nothing left in floats."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm.relax import op

import tvmlab
from tests.oracles.models import real_model
from tests.qnn.graphs import Network, equal, names
from tests.qnn.run import run
from tests.qnn.steps import differences
from tests.short import long
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


@pytest.mark.parametrize("activations", ["int8", "uint8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("format", ["QDQ", "QOperator"])
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


@pytest.mark.parametrize("fold", [False, True])
def test_digits_by_pt2e(fold):
    pytest.importorskip("torchao", reason="torchao is not installed")
    from tvmlab.models.quantized import quantized_torch

    mod = tvmlab.load(quantized_torch(fold_quantize=fold).program)
    after = check(mod, models.digits().x_test[:1])
    assert names(after).count("qnn.conv2d") == 14
    assert not {"nn.conv2d", "matmul", "nn.relu", "mean"} & set(names(after))


@pytest.mark.parametrize("rounding", ["None", "UPWARD", "TONEAREST", "TFLITE"])
def test_resnet8_of_tensorflow_lite(rounding):
    pytest.importorskip("tflite", reason="tflite is not installed")
    mod = tvmlab.load(real_model("resnet8_int8.tflite"))
    x = np.random.default_rng(0).integers(-128, 128, (1, 32, 32, 3)).astype("int8")
    after = check(mod, x, rounding=rounding, floats=["nn.softmax"])
    assert names(after)[:6] == SUMS * 2
    assert names(after)[-6:-3] == ["qnn.dense", "relay.nn.bias_add", "qnn.requantize"]


@long
def test_resnet50_by_onnx_runtime():
    """Sums of two branches and batch norms on their own: whole, and rewritten in a moment.

    MobileNet's relu6 is in test_qnn_peers, with its values.
    """
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from tvmlab.models.quantized import quantized_onnx

    rng = np.random.default_rng(0)
    calibration = rng.normal(size=(1, 3, 224, 224)).astype("float32")
    mod = tvmlab.load(quantized_onnx(models.resnet50_v2("seeded"), calibration=calibration))
    after = FakeQuantizationToInteger()(mod)
    assert float_operators(after) == []
    kept = {name for name in names(after) if not name.startswith(("qnn.", "relay."))}
    assert kept <= {"astype", "sum", "reshape", "nn.max_pool2d"}


def quantized_twice(frontend):
    """One network as ONNX and as PT2E write it: the same places are quantized."""
    net = Network(((1, 4, 6, 6), "float32"))
    x = net.fake(net.inputs[0], 0.02, -128)
    rng = np.random.default_rng(0)
    w = rng.integers(-127, 128, (4, 4, 3, 3)).astype("int8")
    s = np.linspace(0.01, 0.02, 4).astype("float32")
    bias = rng.integers(-300, 300, 4).astype("int32")
    sums = s * np.float32(0.02)
    made = net.emit(op.nn.conv2d(x, net.weight(w, s, np.zeros(4)), padding=1))
    if frontend == "onnx":  # a quantized bias, and no relu: the quantize cuts
        column = net.emit(op.reshape(net.weight(bias, sums, np.zeros(4)), (1, 4, 1, 1)))
        made = net.emit(op.add(made, column))
    else:  # a float bias, and the relu
        real = tvm.relax.const((bias * sums.astype("float64")).astype("float32"))
        column = net.emit(op.reshape(real, (1, 4, 1, 1)))
        made = net.emit(op.nn.relu(net.emit(op.add(made, column))))
    relu = net.fake(made, 0.05, -128)
    joined = net.emit(op.add(relu, x))
    if frontend == "onnx":
        mean = net.emit(op.mean(net.fake(joined, 0.06, -128), [2, 3], keepdims=True))
        flat = net.fake(net.emit(op.reshape(net.fake(mean, 0.03, -128), (1, 4))), 0.03, -128)
    else:
        mean = net.emit(op.nn.adaptive_avg_pool2d(net.fake(joined, 0.06, -128), (1, 1)))
        flat = net.emit(op.reshape(net.fake(mean, 0.03, -128), (1, 4)))
    w = net.weight(rng.integers(-127, 128, (3, 4)).astype("int8"), 0.01)
    made = net.emit(op.matmul(flat, net.emit(op.permute_dims(w))))
    return net.module(net.fake(made, 0.1, 3))


def test_onnx_and_pt2e_become_one_sequence_of_operators():
    forms = [FakeQuantizationToInteger()(quantized_twice(name)) for name in ("onnx", "pt2e")]
    assert names(forms[0]) == names(forms[1])
    x = np.random.default_rng(0).normal(size=(1, 4, 6, 6)).astype("float32")
    results = [run(form, x)[0] for form in forms]
    assert np.array_equal(*results)
    assert equal(*forms)
