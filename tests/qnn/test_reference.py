"""The reference arithmetic against exact fractions, PyTorch, NumPy and ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from tests.oracles.exact import away, cut, twice, upward, values, whole
from tests.oracles.models import by_onnx_runtime, model, node, value, weight
from tests.qnn.cases import Case, Draw, differences
from tvmlab.qnn import arithmetic, fixed_point, unary


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_conv2d_transpose(seed: int) -> None:
    draw = Draw(seed)
    rng, groups, inner, outer = draw.rng, *(draw.whole(1, 3) for _ in range(3))
    taps, stride, dilation = [draw.whole(1, 3) for _ in "HW"], draw.whole(1, 3), draw.whole(1, 2)
    padding, more = draw.whole(0, 1), draw.whole(0, max(stride, dilation) - 1)
    x = values(rng, (2, groups * inner, 5, 4), "int8")
    w = values(rng, (groups * inner, outer, *taps), "uint8")
    own = rng.integers(0, 256, groups * outer).astype("int32")
    # PyTorch's weights are (in, out / groups); a zero point belongs to a channel of the result.
    per_group = np.repeat(np.reshape(own, (groups, outer)), inner, axis=0)[..., None, None]
    expected = torch.nn.functional.conv_transpose2d(
        torch.from_numpy(x.astype("float64") + 5),
        torch.from_numpy(w.astype("float64") - per_group),
        stride=stride,
        padding=padding,
        output_padding=more,
        groups=groups,
        dilation=dilation,
    ).numpy()
    given = {"strides": (stride, stride), "padding": (padding, padding), "groups": groups}
    given |= {"dilation": (dilation, dilation), "output_padding": (more, more)}
    found = arithmetic.conv2d_transpose(x, w, -5, own, 0.1, 0.1, **given)
    np.testing.assert_array_equal(found, expected.astype("int32"))
    given |= {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    last = x.transpose(0, 2, 3, 1), w.transpose(1, 2, 3, 0)
    turned = arithmetic.conv2d_transpose(*last, -5, own, 0.1, 0.1, **given)
    np.testing.assert_array_equal(turned, found.transpose(0, 2, 3, 1))


def test_quantize_at_the_ends() -> None:
    data = np.array(
        [-np.inf, -1e30, -2.5, -0.5, 0.49999997, 0.5, 2.5, 1e30, np.inf, np.nan], "float32"
    )
    ends = [-128, -128, -3, -1, 0, 1, 3, 127, 127, 127]
    assert arithmetic.quantize(data, 1.0, 0).tolist() == ends
    wide = arithmetic.quantize(data, 1.0, 0, out_dtype="int32")
    assert wide[[0, -2, -1]].tolist() == [-(2**31), 2**31 - 1, 2**31 - 1]
    with np.errstate(over="ignore"):
        half = arithmetic.quantize(data.astype("float16"), 1.0, 0)
    assert half.tolist() == [-128, -128, -3, -1, 1, 1, 3, 127, 127, 127]
    assert arithmetic.quantize(np.float32(3), 2.0, 1).tolist() == 3


DTYPES = ("int8", "uint8", "int16")

# Multiplying integers by a real number

WIDE = st.integers(-(2**31), 2**31 - 1)
SHIFTS = st.integers(fixed_point.LEAST_SHIFT, fixed_point.LARGEST_SHIFT)
MULTIPLIERS = st.integers(2**30, 2**31 - 1)


@given(st.floats(2.0**-32, 2.0**29))
@example(0.5)
@example(math.nextafter(0.5, 0))
@example(math.nextafter(0.5, 1))
@example(math.nextafter(1.0, 0))
@example(1.0)
@example(1 - 2.0**-32)  # Half-way between the largest multiplier and the next power of two.
@example(1 - 2.0**-32 - 2.0**-53)
def test_a_multiplier_is_the_nearest_of_31_bits(scale: float) -> None:
    multiplier, shift = arithmetic.fixed_point_multiplier(scale)
    assert 2**30 <= multiplier < 2**31
    assert fixed_point.LEAST_SHIFT <= shift <= fixed_point.LARGEST_SHIFT
    means = Fraction(multiplier) * Fraction(2) ** (shift - 31)
    assert abs(means - Fraction(scale)) <= Fraction(2) ** (shift - 32)


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "TFLITE"])
@given(x=WIDE, multiplier=MULTIPLIERS, shift=SHIFTS)
@example(x=2**31 - 1, multiplier=2**31 - 1, shift=30)
@example(x=-(2**31), multiplier=2**31 - 1, shift=30)
@example(x=-(2**31), multiplier=2**31 - 1, shift=-31)
@example(x=2**31 - 1, multiplier=2**30, shift=0)
@example(x=-(2**31), multiplier=2**30, shift=0)
@example(x=-1, multiplier=2**30, shift=0)
@example(x=1, multiplier=2**30, shift=0)
@example(x=-3, multiplier=2**30, shift=-1)
@example(x=2**31 - 1, multiplier=2**30, shift=-31)
def test_products_are_rounded_exactly(rounding: str, x: int, multiplier: int, shift: int) -> None:
    real = x * multiplier * Fraction(2) ** (shift - 31)
    expected = {
        "UPWARD": lambda: upward(real),
        "TONEAREST": lambda: away(real),
        "TFLITE": lambda: twice(x, multiplier, shift),
    }[rounding]()
    given = (np.array(value, np.int64) for value in (x, multiplier, shift))
    assert int(fixed_point.multiply(*given, rounding)) == expected


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_average_pooling_against_pytorch(seed: int) -> None:
    """On the real values, whose padding is the real 0; averages are exact fractions."""
    draw = Draw(seed)
    size, pool, strides = (
        tuple(draw.whole(*ends) for _ in "HW") for ends in ((4, 9), (2, 4), (1, 3))
    )
    padding, ceil, include = draw.whole(0, 1), draw.of(True, False), draw.of(True, False)
    dtype = draw.of(*DTYPES)
    zero, x = int(draw.zero(dtype)), values(draw.rng, (2, *size, 3), dtype)
    real = torch.from_numpy(x.astype("float64") - zero).permute(0, 3, 1, 2)
    window = {"ceil_mode": ceil, "count_include_pad": include}
    expected = torch.nn.functional.avg_pool2d(real, pool, strides, padding, **window).numpy()
    given = (x, 0.5, zero, 0.5, zero, pool, strides, [padding], [1, 1], ceil, include)
    found = arithmetic.avg_pool2d(*given, out_layout="NCHW", rounding="TFLITE")
    nearest = np.vectorize(lambda v: away(Fraction(round(v * 144 * 25), 144 * 25)))(expected + zero)
    np.testing.assert_array_equal(found, nearest)
    relay = arithmetic.avg_pool2d(*given, out_layout="NCHW")
    exact = np.vectorize(lambda v: math.trunc(Fraction(round(v * 144 * 25), 144 * 25)))(
        expected + zero
    )
    np.testing.assert_array_equal(relay, exact)
    # Between two scales "TFLITE" rounds once: at most half a step from the real average.
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    scale, out, ratio = np.float32(0.02), (low + high) // 2 - 5, draw.of(0.68, 1.7, 2.0**-30, 2**12)
    points = scale, zero, np.float32(scale / ratio), out
    found = arithmetic.avg_pool2d(x, *points, *given[5:], out_layout="NCHW", rounding="TFLITE")
    want = np.clip(expected * (float(scale) / float(points[2])) + out, low, high)
    assert np.abs(found - want).max() <= 0.5 + 1e-4


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("name", sorted(unary.FUNCTIONS))
def test_functions_of_one_tensor(name: str, dtype: str) -> None:
    """Against PyTorch in float64, where at most a result next to a border between two differs."""
    bytes_ = np.arange(256, dtype="uint8")
    x = np.arange(-200, 200, dtype=dtype) if dtype == "int16" else bytes_.view(dtype)
    zero, out = (100, 90) if dtype == "uint8" else (-20, 5)
    found = getattr(arithmetic, name)(x, 0.04, zero, 0.03, out)
    assert found.dtype == dtype
    how = {"approximate": "tanh"} if name == "gelu_tanh" else {}
    near = name.removesuffix("_tanh")
    function = getattr(torch, near, None) or getattr(torch.nn.functional, near)
    real = function(torch.from_numpy((x.astype("float64") - zero) * float(np.float32(0.04))), **how)
    for steps, result in zip(
        (real / float(np.float32(0.03))).tolist(), found.tolist(), strict=True
    ):
        if not math.isfinite(steps):
            assert result == (np.iinfo(dtype).min if steps == -math.inf else np.iinfo(dtype).max)
        else:
            near = {cut(away(Fraction(steps + more)) + out, dtype) for more in (-1e-3, 0, 1e-3)}
            assert result in near


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
    # With as many groups as input channels Relay takes O for those, and I for a multiplier.
    o, deep = groups * outer, groups > 1 and inner == 1
    x = values(rng, (2, groups * inner, 7, 8), dtypes[0])
    w = values(rng, (groups, outer, *taps) if deep else (o, inner, *taps), dtypes[1])
    (zero,) = zeros(rng, 1, dtypes[0])
    kernel_zero = zeros(rng, o if by_channel else 1, dtypes[1])
    window = {"stride": strides, "dilation": dilation, "groups": groups, "padding": padding}
    expected = by_pytorch(x, w.reshape(o, inner, *taps), zero, kernel_zero, **window)
    data, kernel = ordered(x, "NCHW", layouts[0]), ordered(w, "OIHW", layouts[1])
    points = (zero, kernel_zero, 0.1, [0.1] * len(kernel_zero))
    given = (taps, o, strides, padding, dilation, groups, *layouts)
    found = arithmetic.conv2d(data, kernel, *points, *given, out_layout="NCHW")
    assert found.dtype == "int32"
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


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int) -> None:
    """Relay calls its integers inaccurate; a tenth is what they keep here."""
    x = values(np.random.default_rng(0), (5, 6, 4), "int8")
    found = arithmetic.softmax(x, 0.05, 3, 1 / 128, -128, axis)
    real = (found.astype("float64") + 128) / 128
    exps = np.exp((x - 3.0) * 0.05)
    np.testing.assert_allclose(real, exps / exps.sum(axis, keepdims=True), atol=0.1)
    order = np.argsort(x, axis, kind="stable")
    assert (np.diff(np.take_along_axis(found.astype(int), order, axis), axis=axis) >= 0).all()


@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
def test_products_by_channel(rounding: str) -> None:
    """Channels of both sides; Relay computes it (src/relay/qnn/op/mul.cc, TVM 0.18)."""
    rng = np.random.default_rng(0)
    x, y = values(rng, (2, 3, 5), "int8"), values(rng, (3, 1), "int8")
    one, other, out = np.float32([0.5, 0.25, 0.1]), np.float32([0.1, 0.7, 0.05]), np.float32(3)
    zeros = np.int32([1, 2, 3]), np.asarray(4, "int32"), np.asarray(-5, "int32")
    operands = [x, y, one, zeros[0], other, zeros[1], np.asarray(out), zeros[2]]
    attributes = {"lhs_axis": 1, "rhs_axis": 0, "rounding": rounding}
    found = arithmetic.mul(*operands, **attributes)
    for i, scale in enumerate((one * other / out.astype("float64")).tolist()):
        products = (x[:, i].astype(int) - int(zeros[0][i])) * (int(y[i, 0]) - 4)
        wanted = [cut(whole(int(v), 0, scale, -5, rounding), "int8") for v in products.flat]
        assert found[:, i].ravel().tolist() == wanted
    assert not differences([Case("mul", operands, (0, 1), attributes)], schedule=False)
