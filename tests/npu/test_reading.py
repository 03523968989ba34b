"""Layers against the operators they were read from: equal bits, by NumPy on both sides."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from tests.npu.machine_code import regions_of, simulated, upstream
from tests.qnn.graphs import Network, scale, zero
from tests.qnn.run import run
from tests.short import examples
from tvmlab import npu
from tvmlab.qnn import op as q

WAYS = [
    ("UPWARD", "int64"),
    ("TONEAREST", "int64"),
    ("TFLITE", "int64"),
    ("TFLITE", "float64"),
    ("ONNX", "float32"),
    ("None", "None"),
]


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


@settings(max_examples=examples(60), phases=[Phase.generate])
@given(st.data())
def test_any_product_is_read_to_the_bit(given):
    draw = given.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from(["int8", "uint8"]))
    kind = draw(st.sampled_from(["conv2d", "depthwise", "dense"]))
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    out_dtype = draw(st.sampled_from(["int8", "uint8", "int32"]))
    per_channel, c, o = draw(st.booleans()), draw(st.integers(1, 5)), draw(st.integers(1, 6))
    o = c if kind == "depthwise" else o
    in_zero = int(data(rng, (), dtype))
    weight_zero = draw(st.sampled_from([0, 0, 3, -2]))
    scales = rng.uniform(0.001, 0.02, o if per_channel else ()).astype("float32")
    points = zero(in_zero), zero(weight_zero), scale(0.5), scale(scales / 0.5)
    if kind == "dense":
        net, axis = Network(((3, 4), dtype)), 1
        w = relax.const(rng.integers(-120, 120, (o, 4)).astype("int8"))
        sums = net.emit(q.dense(net.inputs[0], w, *points, o))
    else:
        axis = layout.index("C")
        size = {"N": draw(st.integers(1, 2)), "C": c, "H": 6, "W": 5}
        net = Network((tuple(size[letter] for letter in layout), dtype))
        kernel = draw(st.sampled_from([(1, 1), (3, 3), (3, 2)]))
        groups = c if kind == "depthwise" else 1
        wide = kind == "depthwise" and draw(st.booleans()) and weight_zero == 0
        w = rng.integers(*((-3000, 3000) if wide else (-120, 120)), (o, c // groups, *kernel))
        w = relax.const(w.astype("int16" if wide else "int8"))
        x = net.inputs[0]
        if draw(st.booleans()):
            width = {"N": (0, 0), "C": (0, 0), "H": (1, 2), "W": (0, 1)}
            x = net.emit(
                op.nn.pad(x, [n for letter in layout for n in width[letter]], "constant", in_zero)
            )
        pads = draw(st.tuples(*[st.integers(0, 1)] * 4))
        strides = draw(st.tuples(*[st.integers(1, 2)] * 2))
        sums = net.emit(
            q.conv2d(x, w, *points, kernel, o, strides, pads, (1, 1), groups, layout, "OIHW")
        )
    if draw(st.booleans()):
        from tvmlab.relay import op as relay_op

        bias = relax.const(rng.integers(-4000, 4000, o).astype("int32"))
        sums = net.emit(relay_op.nn.bias_add(sums, bias, axis))
    if draw(st.booleans()):
        sums = net.emit(op.maximum(sums, relax.const(np.int32(draw(st.integers(-500, 500))))))
    if draw(st.booleans()):
        rounding, computed = draw(st.sampled_from(WAYS))
        taken = draw(st.sampled_from([0, 0, 37]))
        out_zero = 0 if out_dtype == "int32" else int(data(rng, (), out_dtype)) // 2
        sums = net.emit(
            q.requantize(
                sums, scale(scales), zero(taken), scale(0.25), zero(out_zero),
                axis, rounding, computed, out_dtype,
            )
        )  # fmt: skip
        if draw(st.booleans()) and out_dtype != "int32":
            sums = net.emit(op.clip(sums, 20, 90))
    mod = net.module(sums)
    shape = [int(n) for n in mod["main"].params[0].ty.shape]
    check(mod, data(rng, shape, dtype))


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
