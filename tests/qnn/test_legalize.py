"""Quantized operators, compiled: what their kernels are, what is refused, half-way cases.

`test_property.py` compares all of them with the reference.
"""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

import tvmlab
from tests.qnn.cases import EVERY_ROUNDING, ROUNDINGS, Case, differences, module
from tests.schedule.assembly import assembly
from tvmlab.qnn import arithmetic, op
from tvmlab.qnn.config import requantize_config


def real(*values: float) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], "float32")


def whole(*values: int) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], "int32")


def half_ways(rng: np.random.Generator, ratio: np.ndarray, dtype: str) -> np.ndarray:
    """Make integers that a multiplication brings next to a half-way case, and extremes."""
    shape = (200, len(ratio))
    info, most = np.iinfo(dtype), 2.0**31
    near = np.round((rng.integers(-300, 300, shape) + 0.5) / ratio) + rng.integers(-2, 3, shape)
    far = rng.integers(-(2**31), 2**31, shape) >> rng.integers(0, 31, shape)
    made = np.where((rng.random(shape) < 0.6) & (np.abs(near) < most), near, far)
    made[rng.random(shape) < 0.03] = info.min
    made[rng.random(shape) < 0.03] = info.max
    return np.clip(made, info.min, info.max).astype(dtype)


@pytest.mark.parametrize("rounding", EVERY_ROUNDING)
def test_half_way_cases_of_every_shift(rounding: str) -> None:
    """From multipliers of 2**-32, which give 0, to those that need a shift to the left."""
    rng = np.random.default_rng(0)
    cases = []
    for least in (-33, -20, -9, -3, -2, -1, 0, 3):
        exact = 2.0 ** rng.integers(least, least + 2, 4)
        ratio = np.append(exact, 2.0 ** rng.uniform(least, least + 1.5, 4))
        for dtype, scales in (("int32", (ratio, ratio[0], ratio[-1])), ("int8", (ratio[-1],))):
            for scale in scales:
                data = half_ways(rng, ratio, dtype)
                operands = [data, scale, whole(rng.choice([0, 7])), real(1), whole(-5)]
                more = {"axis": 1, "rounding": rounding, "out_dtype": rng.choice(["int8", "int32"])}
                cases.append(Case("requantize", operands, (0,), more))
    assert not differences(cases)


TARGETS = {
    "skylake-avx512": ({"kind": "llvm", "mcpu": "skylake-avx512"}, r"vpmuldq\s.*[yz]mm"),
    "x86-64-v3": ({"kind": "llvm", "mcpu": "x86-64-v3"}, r"vpmuldq\s.*ymm"),
    "cortex-a72": (
        {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"},
        r"sm(?:ull|lal)2\s+v\d+\.2d",
    ),
}


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("channels", [False, True])
def test_requantize_makes_vectors(target: str, rounding: str, channels: bool) -> None:
    """Of multiplications to 64 bits; and none of its numbers goes through a plain register."""
    scale = np.linspace(0.001, 0.02, 32, dtype="float32") if channels else real(0.002)
    operands = [np.zeros((64, 32), "int32"), scale, whole(0), real(1), whole(3)]
    case = Case("requantize", operands, (0,), {"rounding": rounding})
    described, multiplication = TARGETS[target]
    text = assembly(tvmlab.compile(module([case])[0], described))
    body = text[text.index("requantize_compute_:") :]
    body = body[: body.index(".Lfunc_end")]
    assert re.search(multiplication, body)
    assert not re.search(r"\b(?:imul[lq]?|smull\s+x\d+|idiv\w*)\b", body)


N, H, W = (tirx.Var(name, "int64") for name in "nhw")


@pytest.mark.parametrize("schedule", [False, True])
def test_sizes_may_be_open(schedule: bool) -> None:
    """Batch, height and width are known at run time only."""
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (5, 3, 3, 3), "int8")
    matrix = rng.integers(-128, 128, (4, 5), "int8")

    def build(make: Any, x: Any, const: Any) -> Any:
        sums = [const(whole(3)), const(whole(0)), const(real(0.5)), const(real(0.25))]
        small = [const(real(0.7)), const(whole(-2)), const(real(0.9)), const(whole(4))]
        image = make.conv2d(x, const(weight), *sums, None, None, padding=(1, 1), strides=(2, 1))
        image = make.requantize(image, const(real(0.01)), const(whole(0)), *small[:2])
        both = make.add(image, image, *small[:2], *small[:2], *small[2:])
        pooled = make.avg_pool2d(
            both, *small[2:], *small[:2], (2, 2), (1, 1), (1, 1), (1, 1), True, False, "NCHW"
        )
        joined = make.concatenate(
            [pooled, pooled], [small[0], small[2]], [small[1], small[3]], *small[:2], 2
        )
        return joined, make.tanh(joined, *small)

    x = relax.Var("x", relax.TensorType([N, 3, H, W], "int8"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            made = build(op, x, relax.const)
            results = builder.emit_output(relax.Tuple([builder.emit(one) for one in made]))
        builder.emit_func_output(results)
    rows = relax.Var("r", relax.TensorType([N, 5], "int8"))
    product = relax.BlockBuilder()
    with product.function("main", [rows]):
        sums = [relax.const(value) for value in (whole(3), whole(2), real(0.5), real(0.25))]
        product.emit_func_output(product.emit(op.dense(rows, relax.const(matrix), *sums, None)))
    run, run_dense = (tvmlab.compile(b.get(), schedule=schedule) for b in (builder, product))
    for n, h, w in ((1, 4, 5), (3, 9, 2), (2, 17, 16)):
        data = rng.integers(-128, 128, (n, 3, h, w), "int8")
        expected = build(arithmetic, data, lambda value: value)
        for found, wanted in zip(run(data), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        data = rng.integers(-128, 128, (n, 5), "int8")
        wanted = arithmetic.dense(data, matrix, 3, 2, 0.5, 0.25)
        np.testing.assert_array_equal(run_dense(data), wanted)


def test_what_a_call_leaves_open_is_the_configurations_when_it_is_legalized() -> None:
    data = np.array([-5, -3, -1, 1, 3, 5], "int32")
    mod, _ = module([Case("requantize", [data, real(0.5), whole(0), real(1), whole(0)])])
    assert tvmlab.compile(mod)(data)[0].tolist() == [-2, -1, 0, 1, 2, 3]
    with requantize_config(rounding="TONEAREST"):
        run = tvmlab.compile(mod)
    assert run(data)[0].tolist() == [-3, -2, -1, 1, 2, 3]


@pytest.mark.parametrize("name", ["dense", "conv2d"])
def test_sums_that_can_overflow_are_warned_of(name: str) -> None:
    many = 70_000
    weight = np.full((2, many), 127, "int8")
    parameters = [whole(0), whole(0), real(1), real(1)]
    last = {"data_layout": "NHWC", "kernel_layout": "OHWI", "kernel_size": None, "channels": None}
    shapes, more = {
        "dense": (((1, many), (2, many)), {"units": None}),
        "conv2d": (((1, 1, 1, many), (2, 1, 1, many)), last),
    }[name]
    data = np.zeros(shapes[0], "uint8")
    operands = [data, weight.reshape(shapes[1]), *parameters]
    for schedule in (False, True):
        with pytest.warns(
            UserWarning, match=rf"qnn.{name} .* \(2, .*uint8 data .* {255 * 127 * many}"
        ):
            tvmlab.compile(module([Case(name, operands, (0,), more)])[0], schedule=schedule)
    operands[2] = whole(128)  # then the data are no larger than those of int8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tvmlab.compile(module([Case(name, operands, (0,), more)])[0], schedule=False)
