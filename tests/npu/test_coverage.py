"""What the coverage report says about calls taken and calls left."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from tests.npu.machine_code import Bytes, cut, regions_of, upstream
from tests.npu.networks import digits, resnet8
from tests.qnn.graphs import Network
from tests.short import long
from tvmlab import npu
from tvmlab.npu.coverage import macs


@pytest.mark.parametrize(
    ("make", "needs", "left"),
    [
        (partial(digits, "QDQ"), "onnxruntime", []),
        (partial(digits, "QOperator"), "onnxruntime", ["nn.batch_norm"]),
        pytest.param(partial(digits, "PT2E"), "torchao", ["add"], marks=long),
        (resnet8, "tflite", ["nn.softmax"]),
    ],
)
def test_networks_are_one_region(make, needs, left):
    """Both ways make one region with all multiply-accumulates; some operators stay."""
    pytest.importorskip(needs, reason=f"{needs} is not installed")
    mod = make()
    ways = [npu.partition(mod), upstream(mod)]
    assert cut(ways[0]) == cut(ways[1])
    for parts in ways:
        found = npu.coverage(parts)
        assert found.regions == len(regions_of(parts)) == 1
        assert found.macs_share == 1
        names = sorted(one.operator for one in found.refused)
        assert names == sorted([*left, "qnn.quantize", "qnn.dequantize"])


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
    def ones(*shape):
        return relax.const(np.ones(shape, "float32"))

    data = relax.Var("x", relax.TensorType((2, 6, 8, 8), "float32"))
    free = relax.Var("f", relax.TensorType((tvm.tirx.Var("n", "int64"), 5), "float32"))
    for call, count in (
        (op.nn.conv2d(data, ones(4, 6, 3, 3), padding=1), 2 * 4 * 64 * 6 * 9),
        (op.nn.conv2d(data, ones(6, 1, 3, 3), groups=6), 2 * 6 * 36 * 9),
        (op.nn.conv2d_transpose(data, ones(6, 4, 3, 3)), 2 * 6 * 64 * 4 * 9),
        (op.matmul(ones(3, 5), ones(5, 7)), math.prod((3, 5, 7))),
        (op.matmul(free, ones(5, 7)), 0),
        (op.nn.relu(data), 0),
    ):
        assert macs(relax.BlockBuilder().normalize(call)) == count


def test_a_network_that_is_not_in_integers_yet():
    net = Network(((1, 4, 4, 4), "float32"))
    mod = net.module(net.fake(net.inputs[0], 0.5, 0))
    for one in npu.coverage(npu.partition(mod)).refused:
        assert "run FakeQuantizationToInteger first" in one.reason
