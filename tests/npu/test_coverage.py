"""What the coverage report says about calls taken and calls left."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import tvmlab
from tests.npu.machine_code import Bytes, cut, regions_of, upstream
from tests.oracles.models import real_model
from tests.qnn.graphs import Network
from tests.short import long
from tvmlab import models, npu
from tvmlab.npu.coverage import macs
from tvmlab.qnn.transform import FakeQuantizationToInteger


def check(mod, left):
    """Both ways make one region with all multiply-accumulates; some operators stay."""
    mod = FakeQuantizationToInteger()(mod)
    ways = [npu.partition(mod), upstream(mod)]
    assert cut(ways[0]) == cut(ways[1])
    for parts in ways:
        found = npu.coverage(parts)
        assert found.regions == len(regions_of(parts)) == 1
        assert found.macs_share == 1
        assert [one.operator for one in found.refused] == left


@pytest.mark.parametrize(("format", "first"), [("QDQ", []), ("QOperator", ["nn.batch_norm"])])
def test_digits_by_onnx_runtime(format, first):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from tvmlab.models.quantized import quantized_onnx

    mod = tvmlab.load(quantized_onnx(models.digits_resnet(), format=format))
    check(mod, [*first, "qnn.quantize", "qnn.dequantize"])


@long
def test_digits_by_pt2e():
    pytest.importorskip("torchao", reason="torchao is not installed")
    from tvmlab.models.quantized import quantized_torch

    mod = tvmlab.load(quantized_torch(batch=2).program)
    check(mod, ["qnn.quantize", "qnn.dequantize", "add"])


def test_resnet8_of_tensorflow_lite():
    pytest.importorskip("tflite", reason="tflite is not installed")
    mod = tvmlab.load(real_model("resnet8_int8.tflite"))
    check(mod, ["qnn.dequantize", "nn.softmax", "qnn.quantize"])


def test_a_module_that_is_not_cut():
    net = Bytes()
    mod = net.module(net.turn(net.conv(net.inputs[0])))
    found = npu.coverage(mod)
    assert found.regions == 0
    assert found.operators_share == found.macs_share == 0
    assert [(one.operator, one.reason) for one in found.operators] == [
        ("qnn.conv2d", "the machine takes it, but nothing of the module was cut out: partition it"),
        ("qnn.requantize", "it goes with a qnn.conv2d that is left"),
        ("permute_dims", "no pattern takes permute_dims"),
    ]
    assert {one.function for one in found.operators} == {"main"}
    parts = npu.coverage(npu.partition(mod))
    assert parts.macs_share == 1
    assert parts.operators_share == 2 / 3
    assert [one.operator for one in parts.offloaded] == ["qnn.conv2d", "qnn.requantize"]


def test_the_table():
    net = Bytes()
    mod = net.module(net.turn(net.turn(net.conv(net.inputs[0]))))
    assert str(npu.coverage(npu.partition(mod))).splitlines() == [
        "1 region, 2 of 4 operators (50.0%), 100.00% of 144 multiply-accumulates",
        "    2 permute_dims  no pattern takes permute_dims",
    ]


def test_multiply_accumulates():
    data = relax.Var("x", relax.TensorType((2, 6, 8, 8), "float32"))
    builder = relax.BlockBuilder()

    def count(call):
        return macs(builder.normalize(call))

    w = relax.const(np.ones((4, 6, 3, 3), "float32"))
    assert count(op.nn.conv2d(data, w, padding=1)) == 2 * 4 * 64 * 6 * 9
    deep = relax.const(np.ones((6, 1, 3, 3), "float32"))
    assert count(op.nn.conv2d(data, deep, groups=6)) == 2 * 6 * 36 * 9
    turned = relax.const(np.ones((6, 4, 3, 3), "float32"))
    assert count(op.nn.conv2d_transpose(data, turned)) == 2 * 6 * 64 * 4 * 9
    rows = relax.Var("r", relax.TensorType((3, 5), "float32"))
    assert count(op.matmul(rows, relax.const(np.ones((5, 7), "float32")))) == math.prod((3, 5, 7))
    free = relax.Var("f", relax.TensorType((tvm.tirx.Var("n", "int64"), 5), "float32"))
    assert count(op.matmul(free, relax.const(np.ones((5, 7), "float32")))) == 0
    assert count(op.nn.relu(data)) == 0


def test_a_network_that_is_not_in_integers_yet():
    net = Network(((1, 4, 4, 4), "float32"))
    mod = net.module(net.fake(net.inputs[0], 0.5, 0))
    for one in npu.coverage(npu.partition(mod)).refused:
        assert "run FakeQuantizationToInteger first" in one.reason
