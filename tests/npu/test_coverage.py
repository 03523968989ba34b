"""What the coverage report says about calls taken and calls left, and the reasons."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from tests.npu.machine_code import Bytes, cut, regions_of, upstream
from tests.npu.networks import digits, resnet8
from tests.qnn.graphs import Network, scale, zero
from tests.short import long
from tvmlab import npu
from tvmlab.ir.graph import typed
from tvmlab.npu.config import Config
from tvmlab.npu.coverage import macs
from tvmlab.qnn import op as q


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
        ("qnn.requantize", "runs on the CPU because its qnn.conv2d does"),
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
    free = relax.Var("f", relax.TensorType((tirx.Var("n", "int64"), 5), "float32"))
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


IMAGE, ROW = ((1, 4, 6, 6), "int8"), ((1, 4), "int8")
ONES = np.ones((4, 4, 3, 3), "int8")


def conv(x: Any, w: Any = ONES, points: Any = (3, 0), **how: Any) -> Any:
    weight = w if isinstance(w, relax.Expr) else relax.const(np.asarray(w))
    given: dict[str, Any] = {"kernel_size": None, "channels": None, **how}
    return q.conv2d(x, weight, *map(zero, points), scale(0.5), scale(0.25), **given)


def rescaled(x: Any, s: Any, rounding: str = "UPWARD", computed: str = "int64") -> Any:
    return q.requantize(x, s, zero(0), scale(1e-30), zero(3), 1, rounding, computed)


def added(x: Any, y: Any, one: float = 0.5, out: float = 0.5) -> Any:
    points = scale(one), zero(0), scale(one), zero(0), scale(out), zero(0)
    return q.add(x, y, *points, rounding="UPWARD")


#: What to build of an input, the reason why the machine does not take it, and the input's type.
CASES: tuple[tuple[Any, ...], ...] = (
    (
        lambda x: conv(x, q.quantize(relax.const(ONES.astype("float32")), scale(0.5), zero(0))),
        "not constant: qnn.quantize computes it; run QnnQuantizeConstFold first",
    ),
    (conv, "the data are int16", ((1, 4, 6, 6), "int16")),
    (lambda x: conv(x, ONES[:, :2], groups=2), "4 channels become 4 in 2 groups"),
    (lambda x: conv(x, strides=(9, 1), padding=(3, 3)), "steps of [9, 1]"),
    (lambda x: conv(x, 120 * ONES, (3, -50)), "less their zero point go from 170 to 170"),
    (
        lambda x: conv(typed(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "constant", 0))),
        "nn.pad pads with 0",
    ),
    (conv, "a size that is not known before it runs", ((tirx.Var("n", "int64"), 4, 6, 6), "int8")),
    (
        lambda x: rescaled(conv(x), scale(1.0), computed="float32"),
        "does not compute qnn.requantize in float32 with rounding UPWARD",
    ),
    (
        lambda x: rescaled(conv(x), relax.Var("s", relax.TensorType((), "float32"))),
        "input_scale is not a constant when the model is compiled",
    ),
    (
        lambda x: rescaled(conv(x), scale(1e30), "ONNX", "float32"),
        "so far apart that their ratio does not fit in float32",
    ),
    (lambda x: added(x, relax.const(np.ones((1, 4), "int8"))), "rhs is a constant", ROW),
    (lambda x: added(x, x, 1e6, 0.1), "so far apart that sums can overflow int32", ROW),
    (lambda x: typed(op.sum(typed(op.astype(x, "int32")), [2])), "over the rows and columns"),
    (lambda x: typed(op.reshape(x, (1, 144))), "moves numbers between channels"),
    (lambda x: typed(op.nn.softmax(x)), "no pattern takes nn.softmax", ((1, 4), "float32")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[1]))
def test_reasons(case: tuple[Any, ...]) -> None:
    make, reason, *given = case
    net = Network(*given or [IMAGE])
    assert reason in str(npu.Check(Config()).reason(make(net.inputs[0])))
    assert npu.Check(Config(), kind="dense").reason(net.inputs[0]) == "it is not a dense"
