"""Layers against the operators they were read from: equal bits, by NumPy on both sides."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from tests.npu.machine_code import regions_of, simulated, upstream
from tests.qnn.graphs import Network, scale, zero
from tests.qnn.run import run
from tvmlab import npu
from tvmlab.qnn import op as q


def check(mod: Any, *inputs: Any, macs: float = 1.0) -> Any:
    """Partition by Relay's passes and by Relax's; all products are taken, results are equal."""
    want = run(mod, *inputs)[0]
    for parts in (npu.partition(mod), upstream(mod)):
        assert npu.coverage(parts).macs_share >= macs, str(npu.coverage(parts))
        assert regions_of(parts)
        np.testing.assert_array_equal(simulated(parts, *inputs), want)
    return npu.partition(mod)


def data(rng: np.random.Generator, shape: Any, dtype: str) -> Any:
    ends = np.iinfo(dtype)
    return rng.integers(ends.min, ends.max + 1, shape).astype(dtype)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "TFLITE"])
@pytest.mark.parametrize("narrow", list(itertools.product([True, False], repeat=3)))
def test_additions_of_int32_as_pytorch_has_them(rounding, narrow):
    rng, shape = np.random.default_rng(1), (2, 3, 4, 4)
    kinds = ["uint8" if one else "int32" for one in narrow[:2]]
    net = Network(*((shape, kind) for kind in kinds))
    sides = [
        net.emit(q.requantize(x, scale(0.02), zero(126), scale(1e-5), zero(0), 1, rounding,
                              "int64", "int32")) if one else x
        for x, one in zip(net.inputs, narrow[:2], strict=True)
    ]  # fmt: skip
    sums = net.emit(op.add(*sides))
    if narrow[2]:
        sums = net.emit(q.requantize(sums, scale(1e-5), zero(0), scale(0.03), zero(141), 0,
                                     rounding, "int64", "uint8"))  # fmt: skip
    inputs = [
        data(rng, shape, "uint8") if one else rng.integers(-(10**6), 10**6, shape).astype("int32")
        for one in narrow[:2]
    ]
    check(net.module(sums), *inputs, macs=0)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize(
    ("dtype", "taken"), [("int8", 0), ("int8", 37), ("uint8", 0), ("uint8", 37), ("int32", 0)]
)
def test_means(layout, dtype, taken):
    kept = layout == "NCHW"
    rng, shape = np.random.default_rng(4), (2, 5, 3, 6)
    net = Network((shape, dtype))
    x = net.inputs[0]
    if dtype != "int32":
        x = net.emit(op.astype(x, "int32"))
    elif kept:
        x = net.emit(op.maximum(x, relax.const(np.int32(0))))
    axis = [layout.index("W"), layout.index("H")]
    sums = net.emit(op.sum(x, axis, keepdims=kept))
    made = q.requantize(sums, scale(0.01), zero(taken), scale(0.1), zero(5), -1, "ONNX",
                        out_dtype="uint8")  # fmt: skip
    inside = data(rng, shape, dtype) if dtype != "int32" else rng.integers(-99, 99, shape)
    check(net.module(net.emit(made)), inside.astype(dtype), macs=0)


def test_rows_and_images_of_one_pixel():
    for before, after in (((2, 3, 1, 1), (2, 3)), ((2, 1, 1, 3), (2, 3)), ((2, 3), (2, 3, 1, 1))):
        net = Network((before, "int8"))
        mod = net.module(net.emit(op.reshape(net.inputs[0], after)))
        check(mod, np.arange(6, dtype="int8").reshape(before), macs=0)
