"""Quantized products: against sums written out, against PyTorch and ONNX Runtime, at overflow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.oracles.exact import values
from tests.oracles.models import by_onnx_runtime, model, node, value, weight
from tests.qnn.cases import Draw
from tvmlab.qnn import arithmetic
from tvmlab.qnn.products import sum_parts, sum_range

DTYPES = ("int8", "uint8", "int16")
LAYOUTS = [("NCHW", "OIHW"), ("NHWC", "OHWI"), ("NHWC", "HWIO"), ("NCHW", "HWOI")]


def zeros(rng: np.random.Generator, count: int, dtype: str) -> list[int]:
    return [int(zero) for zero in values(rng, (count,), dtype)]


def ordered(x: np.ndarray, layout: str, wanted: str) -> np.ndarray:
    return x.transpose([layout.index(letter) for letter in wanted])


def by_pytorch(
    x: np.ndarray, w: np.ndarray, zero: int, kernel_zero: Sequence[int], **attributes: object
) -> np.ndarray:
    """Convolve in float64, where these sums are exact: x NCHW, w OIHW, padding on four sides."""
    top, left, bottom, right = attributes.pop("padding")  # type: ignore[misc, attr-defined]
    data = np.pad(x.astype("float64") - zero, [(0, 0), (0, 0), (top, bottom), (left, right)])
    kernel = w.astype("float64") - np.reshape(kernel_zero, (-1, 1, 1, 1))
    found = torch.nn.functional.conv2d(
        torch.from_numpy(data),
        torch.from_numpy(kernel),
        **attributes,  # type: ignore[arg-type]
    )
    return found.numpy().astype("int64").astype("int32")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_conv2d(seed: int) -> None:
    draw = Draw(seed)
    rng, groups, inner, outer = draw.rng, draw.of(1, 1, 2, 3), draw.whole(1, 3), draw.whole(1, 3)
    taps, strides, dilation = (tuple(draw.whole(1, most) for _ in "HW") for most in (3, 2, 2))
    padding, layouts = tuple(draw.whole(0, 2) for _ in range(4)), draw.of(*LAYOUTS)
    dtypes, by_channel = (draw.of(*DTYPES), draw.of(*DTYPES)), draw.of(True, False)
    # With as many groups as channels on both sides, Relay reads O and I another way.
    inner = max(inner, 2) if groups > 1 else inner
    o = groups * outer
    x = values(rng, (2, groups * inner, 7, 8), dtypes[0])
    w = values(rng, (o, inner, *taps), dtypes[1])
    (zero,) = zeros(rng, 1, dtypes[0])
    kernel_zero = zeros(rng, o if by_channel else 1, dtypes[1])
    window = {"stride": strides, "dilation": dilation, "groups": groups, "padding": padding}
    expected = by_pytorch(x, w, zero, kernel_zero, **window)
    data, kernel = ordered(x, "NCHW", layouts[0]), ordered(w, "OIHW", layouts[1])
    points = (zero, kernel_zero, 0.1, [0.1] * len(kernel_zero))
    given = (taps, o, strides, padding, dilation, groups, *layouts)
    found = arithmetic.conv2d(data, kernel, *points, *given, out_layout="NCHW")
    assert found.dtype == "int32"
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("multiplier", [1, 2, 3])
@pytest.mark.parametrize(("data_layout", "kernel_layout"), LAYOUTS)
def test_depthwise(data_layout: str, kernel_layout: str, multiplier: int) -> None:
    """Relay takes O for the input's channels and I for the multiplier."""
    rng, c = np.random.default_rng(multiplier), 5
    x = values(rng, (2, c, 9, 8), "uint8")
    w = values(rng, (c, multiplier, 3, 2), "uint8")
    own = zeros(rng, c * multiplier, "uint8")
    flat = w.reshape(c * multiplier, 1, 3, 2)
    expected = by_pytorch(x, flat, 77, own, stride=(2, 1), groups=c, padding=(1, 0, 0, 1))
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout, "out_layout": "NCHW"}
    window = {"strides": (2, 1), "padding": (1, 0, 0, 1), "groups": c}
    data, kernel = ordered(x, "NCHW", data_layout), ordered(w, "OIHW", kernel_layout)
    found = arithmetic.conv2d(data, kernel, 77, own, 0.1, 0.1, **window, **layouts)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtypes", [(a, b) for a in DTYPES for b in DTYPES])
def test_dense_and_batch_matmul(dtypes: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    x, w = values(rng, (2, 3, 40), dtypes[0]), values(rng, (6, 40), dtypes[1])
    (zero,), own = zeros(rng, 1, dtypes[0]), zeros(rng, 6, dtypes[1])
    wide = np.einsum("abk,uk->abu", x.astype(object) - zero, w.astype(object) - np.c_[own])
    found = arithmetic.dense(x, w, zero, own, 0.1, [0.2] * 6, out_dtype="int64")
    np.testing.assert_array_equal(found, wide.astype("int64"))
    y = values(rng, (1, 6, 40), dtypes[1])
    wide = np.einsum("bmk,ank->bmn", x.astype(object) - zero, y.astype(object) - own[0])
    given = (zero, own[0], 0.1, 0.2, "int64")
    np.testing.assert_array_equal(arithmetic.batch_matmul(x, y, *given), wide.astype("int64"))
    turned = arithmetic.batch_matmul(x.swapaxes(1, 2), y.swapaxes(1, 2), *given, True, False)
    np.testing.assert_array_equal(turned, wide.astype("int64"))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("kind", ["ConvInteger", "MatMulInteger"])
def test_onnx_runtimes_integer_products(kind: str, dtype: str) -> None:
    rng, conv = np.random.default_rng(0), kind == "ConvInteger"
    x = values(rng, (2, 4, 9, 10) if conv else (30, 50), "uint8")
    w = values(rng, (6, 2, 3, 2) if conv else (20, 50), dtype)
    zero, own = np.array(113, "uint8"), np.array(11, dtype) if conv else values(rng, (20,), dtype)
    window = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2], "group": 2}
    constants = {"w": w if conv else np.ascontiguousarray(w.T), "zero": zero, "own": own}
    made = model(
        [node(kind, ["x", *constants], ["y"], **(window if conv else {}))],
        [value("x", TensorProto.UINT8, x.shape)],
        [value("y", TensorProto.INT32, None)],
        [weight(name, content) for name, content in constants.items()],
        opset=21,
        ir_version=10,
    )
    if conv:
        more = (None, None, (2, 1), (1, 0, 2, 1), (1, 2), 2)
        found = arithmetic.conv2d(x, w, 113, 11, 0.1, 0.1, *more)
    else:
        found = arithmetic.dense(x, w, 113, own.astype("int32"), 0.1, 0.1)
    np.testing.assert_array_equal(found, by_onnx_runtime(made, x)[0])


def test_sums_wrap_where_they_do_not_fit() -> None:
    """Relay's do."""
    terms = 2**31 // (255 * 128) + 1
    x, w = np.full((1, terms), 255, "uint8"), np.full((1, terms), -128, "int8")
    exact = -255 * 128 * terms
    assert exact < -(2**31)
    assert arithmetic.dense(x, w, 0, 0, 0.1, 0.1)[0, 0] == exact + 2**32
    assert arithmetic.dense(x, w, 0, 0, 0.1, 0.1, out_dtype="int64")[0, 0] == exact
    pixels = x.reshape(1, terms, 1, 1), w.reshape(1, terms, 1, 1)
    assert arithmetic.conv2d(*pixels, 0, 0, 0.1, 0.1)[0, 0, 0, 0] == exact + 2**32


@settings(max_examples=40, deadline=None)
@given(
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    terms=st.integers(1, 30),
    seed=st.integers(0, 999),
)
def test_the_bounds_are_reached(dtypes: tuple[str, str], terms: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    (zero,), own = zeros(rng, 1, dtypes[0]), zeros(rng, 3, dtypes[1])
    weights = values(rng, (3, terms), dtypes[1])
    info, parts = np.iinfo(dtypes[0]), sum_parts(weights.astype("int64") - np.c_[own])
    low, high = sum_range(parts, info.min - zero, info.max - zero)
    for i in range(3):
        row = weights[i].astype("int64") - own[i]
        for bound, largest in ((low[i], row < 0), (high[i], row > 0)):
            data = np.where(largest, info.max, info.min).astype(dtypes[0])
            given = (zero, own[i], 0.1, 0.1)
            found = arithmetic.dense(data[None], weights[i : i + 1], *given, out_dtype="int64")
            assert found[0, 0] == bound
