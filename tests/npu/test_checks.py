"""What the machine does not take, and what it says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from tests.qnn.graphs import Network, scale, zero
from tvmlab import npu
from tvmlab.ir.graph import typed
from tvmlab.npu.config import Config
from tvmlab.qnn import op as q

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
        "no constant: qnn.quantize computes it; run QnnQuantizeConstFold first",
    ),
    (conv, "the data are int16", ((1, 4, 6, 6), "int16")),
    (lambda x: conv(x, data_layout="HWNC"), "the layout is HWNC", ((6, 6, 1, 4), "int8")),
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
        "input_scale is not known when the model is compiled",
    ),
    (
        lambda x: rescaled(conv(x), scale(1e30), "ONNX", "float32"),
        "so far apart that their ratio is no float32",
    ),
    (lambda x: added(x, relax.const(np.ones((1, 4), "int8"))), "rhs is a constant", ROW),
    (lambda x: added(x, x, 1e6, 0.1), "so far apart that sums may not fit int32", ROW),
    (
        lambda x: typed(op.nn.max_pool2d(x, (2, 2), layout="NCHW", out_layout="NHWC")),
        "the layout is NCHW, of the result NHWC",
    ),
    (lambda x: typed(op.sum(typed(op.astype(x, "int32")), [2])), "all rows and columns"),
    (lambda x: typed(op.reshape(x, (1, 144))), "moves numbers between channels"),
    (lambda x: typed(op.nn.softmax(x)), "no pattern takes nn.softmax", ((1, 4), "float32")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[1]))
def test_reasons(case: tuple[Any, ...]) -> None:
    make, reason, *given = case
    net = Network(*given or [IMAGE])
    assert reason in str(npu.Check(Config()).reason(make(net.inputs[0])))
    assert npu.Check(Config(), kind="dense").reason(net.inputs[0]) == "it is no dense"
