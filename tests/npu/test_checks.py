"""What the machine does not take, and what it says of it: a case for every reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op as plain

from tests.qnn.graphs import Network, scale, zero
from tvmlab import npu
from tvmlab.ir import dialect, graph
from tvmlab.npu import reading
from tvmlab.npu.config import Config
from tvmlab.qnn import op as q
from tvmlab.relay import op as relay_op


class Typed:
    """Relax's operators, their calls with types."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        return (lambda *a, **k: graph.typed(found(*a, **k))) if callable(found) else Typed(found)


op = Typed(plain)
IMAGE = ((1, 4, 6, 6), "int8")
ONES = np.ones((4, 4, 3, 3), "int8")


def conv(x: Any, w: Any = ONES, points: Any = (3, 0), **how: Any) -> Any:
    weight = w if isinstance(w, relax.Expr) else relax.const(np.asarray(w))
    given: dict[str, Any] = {"kernel_size": None, "channels": None, **how}
    zeros = [zero(point) for point in points]
    return q.conv2d(x, weight, *zeros, scale(0.5), scale(0.25), **given)


def rescaled(x: Any, s: Any = 0.125, z: Any = 0, **how: Any) -> Any:
    given: dict[str, Any] = {"axis": 1, "rounding": "UPWARD", **how}
    return q.requantize(x, scale(s), zero(z), scale(0.5), zero(3), **given)


def added(x: Any, y: Any, scales: Any = (0.5, 0.5, 0.5), **how: Any) -> Any:
    points = [p for s in scales for p in (scale(s), zero(np.zeros(np.shape(s), "int32")))]
    return q.add(x, y, *points, **how)


def pooled(x: Any, out: float = 0.5, rounding: str = "UPWARD", size: int = 2, **how: Any) -> Any:
    given: dict[str, Any] = {"layout": "NCHW", **how}
    points = scale(0.5), zero(3), scale(out), zero(3)
    pair = [size, size]
    return q.avg_pool2d(
        x, *points, pair, [1, 1], [0, 0], [1, 1], rounding=rounding, **given
    )  # fmt: skip


def summed(x: Any, axis: Any = (2, 3)) -> Any:
    return op.sum(op.astype(x, "int32"), list(axis), keepdims=True)


def padded(
    x: Any, width: Any = (0, 0, 0, 0, 1, 1, 1, 1), mode: str = "constant", value: int = 3
) -> Any:
    return op.nn.pad(x, list(width), mode, value)


def of_scale_zero(x: Any) -> Any:
    """What no builder lets through, but a file may hold."""
    good = rescaled(conv(x))
    args = [good.args[0], scale(0.0), *good.args[2:]]
    return dialect.typed_call("relax.qnn.requantize", args, dialect.attributes(good))


def grouped(x: Any) -> Any:
    return conv(x, np.ones((4, 2, 3, 3), "int8"), groups=2)


def both(x: Any) -> Any:
    return op.add(rescaled(conv(x), out_dtype="int32"), rescaled(conv(x), out_dtype="int32"))


CASES: dict[str, tuple[Any, Any, str]] = {
    # products
    "weight": (
        lambda x: conv(
            x, q.quantize(relax.const(np.ones((4, 4, 3, 3), "float32")), scale(0.5), zero(0))
        ),
        IMAGE,
        "no constant: qnn.quantize computes it; run QnnQuantizeConstFold first",
    ),
    "weight of the reader's": (
        lambda x: conv(x, x),
        ((4, 4, 6, 6), "int8"),
        "weight is no constant; bind parameters",
    ),
    "int16 data": (
        lambda x: conv(x),
        ((1, 4, 6, 6), "int16"),
        "the data are int16; the array multiplies int8 and uint8",
    ),
    "int64 sums": (
        lambda x: conv(x, out_dtype="int64"),
        IMAGE,
        "int64; the machine computes in int8",
    ),
    "int16 sums": (
        lambda x: conv(x, out_dtype="int16"),
        IMAGE,
        "int16; the machine computes in int8",
    ),
    "sums of int16": (
        lambda x: rescaled(conv(x, out_dtype="int16")),
        IMAGE,
        "the sums are int16; the accumulators are int32",
    ),
    "layout": (
        lambda x: conv(x, data_layout="HWNC"),
        ((6, 6, 1, 4), "int8"),
        "the layout is HWNC; convert it",
    ),
    "out layout": (
        lambda x: conv(x, out_layout="NHWC"),
        IMAGE,
        "the result's layout is NHWC, the data's NCHW",
    ),
    "groups": (grouped, IMAGE, "4 channels become 4 in 2 groups; the machine takes one group"),
    "multiplier": (
        lambda x: conv(x, np.ones((8, 1, 3, 3), "int8"), groups=4),
        IMAGE,
        "4 channels become 8 in 4 groups",
    ),
    "kernel": (
        lambda x: conv(x, np.ones((1, 4, 17, 1), "int8"), padding=(8, 0)),
        IMAGE,
        "a window of 17x1",
    ),
    "stride": (lambda x: conv(x, strides=(9, 1), padding=(3, 3)), IMAGE, "steps of [9, 1]"),
    "dilation": (lambda x: conv(x, dilation=(9, 9), padding=(9, 9)), IMAGE, "dilation [9, 9]"),
    "weights": (
        lambda x: conv(x, np.full((4, 4, 3, 3), 120, "int8"), (3, -50)),
        IMAGE,
        "weights less their zero point go from 170 to 170; the machine holds int8; quantize",
    ),
    "int16 weights": (
        lambda x: conv(x, np.full((4, 4, 3, 3), 300, "int16")),
        IMAGE,
        "go from 300 to 300; the machine holds int8",
    ),
    "pad's value": (
        lambda x: conv(padded(x, value=0)),
        IMAGE,
        "nn.pad pads with 0; the machine pads with the zero point, 3",
    ),
    "pad's mode": (lambda x: conv(padded(x, mode="reflect")), IMAGE, "nn.pad pads by reflect"),
    "pad's place": (
        lambda x: conv(padded(x, (0, 1, 0, 0, 0, 0, 0, 0))),
        IMAGE,
        "other dimensions than rows and columns",
    ),
    "bias axis": (
        lambda x: relay_op.nn.bias_add(conv(x), relax.const(np.ones(4, "int32")), 3),
        IMAGE,
        "another axis than the channels'",
    ),
    "dense of three": (
        lambda x: q.dense(
            x, relax.const(np.ones((5, 4), "int8")), zero(0), zero(0), scale(1), scale(1), 5
        ),
        ((2, 3, 4), "int8"),
        "the data have 3 dimensions; 2 are needed",
    ),
    "symbolic": (
        lambda x: conv(x),
        ((tirx.Var("n", "int64"), 4, 6, 6), "int8"),
        "a size that is not known before it runs; fix its shape",
    ),
    # scales
    "rounding": (
        lambda x: rescaled(conv(x), compute_dtype="float32"),
        IMAGE,
        "does not compute qnn.requantize in float32 with rounding UPWARD; it has",
    ),
    "axis": (
        lambda x: rescaled(conv(x), np.full(4, 0.1), axis=3),
        IMAGE,
        "a scale for each place along axis 3; the machine has one for each channel",
    ),
    "zero points": (
        lambda x: rescaled(conv(x), z=np.arange(4)),
        IMAGE,
        "another zero point off each channel",
    ),
    "far zero point": (
        lambda x: rescaled(conv(x), z=2**31 - 1),
        IMAGE,
        "sums that may not fit int32",
    ),
    "out dtype": (
        lambda x: rescaled(conv(x), out_dtype="int16"),
        IMAGE,
        "int16; the machine computes in",
    ),
    "scale": (
        lambda x: q.requantize(
            conv(x),
            relax.Var("s", relax.TensorType((), "float32")),
            zero(0),
            scale(0.5),
            zero(3),
            1,
        ),
        IMAGE,
        "input_scale of qnn.requantize is no constant",
    ),
    "scale of zero": (of_scale_zero, IMAGE, "input_scale is 0.0"),
    "ratio": (
        lambda x: q.requantize(conv(x), scale(1e30), zero(0), scale(1e-30), zero(3), 1, "ONNX"),
        IMAGE,
        "so far apart that their ratio is no float32",
    ),
    "clip to halves": (
        lambda x: op.clip(rescaled(conv(x)), 0.5, 8.0),
        IMAGE,
        "clipped to [0.5, 8.0], no whole numbers",
    ),
    "clip to nothing": (
        lambda x: op.clip(rescaled(conv(x)), 9, 3),
        IMAGE,
        "no number lies between 9 and 3",
    ),
    "clip to a tensor": (
        lambda x: op.maximum(conv(x), relax.const(np.zeros((1, 4, 1, 1), "int32"))),
        IMAGE,
        "an operand of maximum has 4 values",
    ),
    # sums
    "int16 sides": (lambda x: added(x, x), ((1, 4), "int16"), "int16; the machine computes in"),
    "constant side": (
        lambda x: added(x, relax.const(np.ones((1, 4), "int8"))),
        ((1, 4), "int8"),
        "rhs is a constant; the machine adds what it computes",
    ),
    "broadcast": (
        lambda x: added(x, op.reshape(x, (4,))),
        ((1, 4), "int8"),
        "it adds [1, 4] and [4]; the machine broadcasts nothing",
    ),
    "scales of channels": (
        lambda x: added(x, x, (np.ones(4), 1, 1)),
        ((1, 4), "int8"),
        "a scale for each channel; give one for each side",
    ),
    "far scales": (
        lambda x: added(x, x, (1e6, 1e6, 0.1), rounding="UPWARD"),
        ((1, 4), "int8"),
        "so far apart that sums may not fit int32",
    ),
    "float64 sides": (
        lambda x: rescaled(
            op.add(
                rescaled(x, out_dtype="int32", rounding="ONNX"),
                rescaled(x, out_dtype="int32", rounding="ONNX"),
            )
        ),
        ((1, 4), "int8"),
        "a side's scale is not one, or its zero point in int32 not 0",
    ),
    "float32": (
        lambda x: op.add(x, x),
        ((1, 4), "float32"),
        "it computes in float32; the machine computes in int8, uint8 and int32",
    ),
    # windows
    "pool dtype": (
        lambda x: op.nn.max_pool2d(x, (2, 2)),
        ((1, 4, 6, 6), "int32"),
        "it pools int32",
    ),
    "pool layout": (
        lambda x: op.nn.max_pool2d(x, (2, 2), layout="NCHW", out_layout="NHWC"),
        IMAGE,
        "the layout is NCHW, of the result NHWC",
    ),
    "pool window": (
        lambda x: op.nn.max_pool2d(x, (17, 1), padding=(8, 0)),
        ((1, 4, 20, 6), "int8"),
        "a window of 17x1",
    ),
    "average": (
        lambda x: pooled(x, 0.7),
        IMAGE,
        "between two scales with rounding UPWARD; the vector unit does that for TFLITE",
    ),
    "average dtype": (lambda x: pooled(x), ((1, 4, 6, 6), "int16"), "it pools int16"),
    "sum of rows": (
        lambda x: rescaled(summed(x, [2])),
        IMAGE,
        "it does not sum over all rows and columns",
    ),
    "sum of int16": (
        lambda x: rescaled(summed(x)),
        ((1, 4, 6, 6), "int16"),
        "it sums int16; the vector unit sums int8, uint8 and int32",
    ),
    "sum of floats": (lambda x: op.sum(x, [2, 3]), ((1, 4, 6, 6), "float32"), "float32"),
    "clipped above": (
        lambda x: rescaled(op.sum(op.minimum(x, relax.const(np.int32(9))), [2, 3], keepdims=True)),
        ((1, 4, 6, 6), "int32"),
        "clipped at 9; the vector unit clips from below only",
    ),
    "clipped sums": (
        lambda x: rescaled(op.maximum(summed(x), relax.const(np.int32(9)))),
        IMAGE,
        "the sums are clipped",
    ),
    "sum that wraps": (
        lambda x: rescaled(op.sum(x, [2, 3], keepdims=True), z=5),
        ((1, 4, 6, 6), "int32"),
        "sums that may not fit int32",
    ),
    "reshape": (
        lambda x: op.reshape(x, (1, 144)),
        IMAGE,
        "moves numbers between channels; the machine takes images of one pixel",
    ),
    "dimensions": (
        lambda x: op.reshape(x, x.ty.shape),
        ((1, 2, 3, 4, 5), "int8"),
        "a value has 5 dimensions; the machine knows 1, 2 and 4",
    ),
    "empty": (lambda x: op.reshape(x, x.ty.shape), ((0, 4), "int8"), "a value is empty"),
    # others
    "softmax": (lambda x: op.nn.softmax(x), ((1, 4), "float32"), "no pattern takes nn.softmax"),
}


@pytest.mark.parametrize("name", CASES)
def test_reasons(name):
    make, given, reason = CASES[name]
    net = Network(given)
    found = npu.Check(Config()).reason(make(net.inputs[0]))
    assert found is not None
    assert reason in found


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if n not in ("symbolic", "scale")])
def test_what_has_a_reason_stays_on_the_cpu(name):
    """The module is cut all the same, and coverage says the reason of what is left."""
    make, given, _ = CASES[name]
    net = Network(given)
    mod = net.module(net.emit(make(net.inputs[0])))
    left = npu.coverage(npu.partition(mod)).refused
    assert left
    assert all(one.reason for one in left)


def test_what_does_not_fit():
    net = Network(((1, 4, 6, 6), "int8"))
    call = rescaled(conv(net.inputs[0]))
    assert npu.Check(Config()).reason(call) is None
    assert npu.Check(Config(sram_bytes=16)).reason(call)


def test_kinds():
    net = Network(IMAGE)
    x = net.inputs[0]
    deep = conv(x, np.ones((4, 1, 3, 3), "int8"), groups=4)
    for call, kind in (
        (conv(x), "conv2d"),
        (rescaled(deep), "depthwise_conv2d"),
        (added(x, x), "add"),
        (both(x), "add"),
        (rescaled(summed(x)), "mean"),
        (pooled(x), "avg_pool2d"),
        (rescaled(x), "rescale"),
    ):
        assert reading.kind(call) == kind
        assert npu.Check(Config(), kind=kind).reason(call) is None
    assert npu.Check(Config(), kind="dense").reason(conv(x)) == "it is no dense"
