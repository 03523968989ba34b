"""What the machine does not take, and what it says of it: a case for every reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op as plain

from tests.qnn.graphs import Network, scale, zero
from tvmlab import npu
from tvmlab.ir import graph
from tvmlab.npu import reading
from tvmlab.npu.config import Config
from tvmlab.qnn import op as q


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


def grouped(x: Any) -> Any:
    return conv(x, np.ones((4, 2, 3, 3), "int8"), groups=2)


def both(x: Any) -> Any:
    return op.add(rescaled(conv(x), out_dtype="int32"), rescaled(conv(x), out_dtype="int32"))


#: What to build of an input, the reason why the machine does not take it, and the input's type.
CASES: dict[str, tuple[Any, ...]] = {
    # products
    "weight": (
        lambda x: conv(
            x, q.quantize(relax.const(np.ones((4, 4, 3, 3), "float32")), scale(0.5), zero(0))
        ),
        "no constant: qnn.quantize computes it; run QnnQuantizeConstFold first",
    ),
    "int16 data": (lambda x: conv(x), "the data are int16", ((1, 4, 6, 6), "int16")),
    "layout": (lambda x: conv(x, data_layout="HWNC"), "the layout is HWNC", ((6, 6, 1, 4), "int8")),
    "groups": (grouped, "4 channels become 4 in 2 groups"),
    "stride": (lambda x: conv(x, strides=(9, 1), padding=(3, 3)), "steps of [9, 1]"),
    "weights": (
        lambda x: conv(x, np.full((4, 4, 3, 3), 120, "int8"), (3, -50)),
        "weights less their zero point go from 170 to 170",
    ),
    "pad's value": (lambda x: conv(padded(x, value=0)), "nn.pad pads with 0"),
    "pad's place": (
        lambda x: conv(padded(x, (0, 1, 0, 0, 0, 0, 0, 0))),
        "other dimensions than rows and columns",
    ),
    "symbolic": (
        lambda x: conv(x),
        "a size that is not known before it runs",
        ((tirx.Var("n", "int64"), 4, 6, 6), "int8"),
    ),
    # scales
    "rounding": (
        lambda x: rescaled(conv(x), compute_dtype="float32"),
        "does not compute qnn.requantize in float32 with rounding UPWARD",
    ),
    "zero point": (lambda x: rescaled(conv(x), z=5), "takes a zero point off the sums"),
    "scale": (
        lambda x: q.requantize(
            conv(x),
            relax.Var("s", relax.TensorType((), "float32")),
            zero(0),
            scale(0.5),
            zero(3),
            1,
        ),
        "input_scale is not known when the model is compiled",
    ),
    "ratio": (
        lambda x: q.requantize(conv(x), scale(1e30), zero(0), scale(1e-30), zero(3), 1, "ONNX"),
        "so far apart that their ratio is no float32",
    ),
    "clip to a tensor": (
        lambda x: op.maximum(conv(x), relax.const(np.zeros((1, 4, 1, 1), "int32"))),
        "an operand of maximum has 4 values",
    ),
    # sums
    "constant side": (
        lambda x: added(x, relax.const(np.ones((1, 4), "int8"))),
        "rhs is a constant",
        ((1, 4), "int8"),
    ),
    "far scales": (
        lambda x: added(x, x, (1e6, 1e6, 0.1), rounding="UPWARD"),
        "so far apart that sums may not fit int32",
        ((1, 4), "int8"),
    ),
    # windows
    "pool layout": (
        lambda x: op.nn.max_pool2d(x, (2, 2), layout="NCHW", out_layout="NHWC"),
        "the layout is NCHW, of the result NHWC",
    ),
    "average": (lambda x: pooled(x, 0.7), "between two scales with rounding UPWARD"),
    "sum of rows": (
        lambda x: rescaled(summed(x, [2])),
        "it does not sum over all rows and columns",
    ),
    "reshape": (lambda x: op.reshape(x, (1, 144)), "moves numbers between channels"),
    # others
    "softmax": (lambda x: op.nn.softmax(x), "no pattern takes nn.softmax", ((1, 4), "float32")),
}


def network(make: Any, reason: str, given: Any = IMAGE) -> tuple[Network, relax.Expr]:
    net = Network(given)
    return net, make(net.inputs[0])


@pytest.mark.parametrize("name", CASES)
def test_reasons(name):
    found = npu.Check(Config()).reason(network(*CASES[name])[1])
    assert found is not None
    assert CASES[name][1] in found


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
    ):
        assert reading.kind(call) == kind
        assert npu.Check(Config(), kind=kind).reason(call) is None
    assert npu.Check(Config(), kind="dense").reason(conv(x)) == "it is no dense"
