"""The constant quantizer in C++ against NumPy, and against what Relay computed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tvmlab import native

GOLDEN = Path(__file__).parents[1] / "data" / "qnn_quantize"
CASES = json.loads((GOLDEN / "cases.json").read_text())
DTYPES = ("int8", "uint8", "int16", "int32")


def reference(x, scale, zero_point, axis, dtype):
    """saturate(round(x / scale) + zero_point), float32 up to the last step."""
    shape = [1] * x.ndim
    if x.ndim:
        shape[axis] = -1
    s = np.broadcast_to(scale, np.size(scale)).reshape(shape if np.size(scale) > 1 else 1)
    z = np.broadcast_to(zero_point, np.size(zero_point))
    z = z.reshape(shape if np.size(zero_point) > 1 else 1).astype("float32")
    with np.errstate(over="ignore", invalid="ignore"):
        exact = x / s
        whole = np.trunc(exact)
        up = np.abs(exact - whole) >= 0.5  # False for infinities, whose difference is NaN
        rounded = (whole + np.copysign(up.astype("float32"), exact)).astype("float32")
        shifted = (rounded + z).astype("float64")
    limits = np.iinfo(dtype)
    return np.clip(shifted, limits.min, limits.max).astype(dtype).reshape(x.shape)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"].removesuffix(".npz"))
def test_relay_computed_the_same(case):
    with np.load(GOLDEN / case["file"]) as data:
        x, expected = data["in_data"], data["out"]
    out = native.quantize(
        x,
        np.asarray(case["scale"], "float32"),
        case["zero_point"],
        axis=case.get("axis", -1),
        dtype=case["out_dtype"],
    )
    assert out.dtype == expected.dtype
    np.testing.assert_array_equal(out, expected)


finite = st.floats(width=32, allow_nan=False)
positive = st.floats(2.0**-100, 2.0**100, width=32)


@st.composite
def problems(draw):
    x = draw(hnp.arrays("float32", hnp.array_shapes(min_dims=0, max_dims=4), elements=finite))
    axis = draw(st.integers(-max(x.ndim, 1), max(x.ndim, 1) - 1))
    channels = x.shape[axis] if x.ndim else 1
    scale = draw(hnp.arrays("float32", draw(st.sampled_from([(), (1,), (channels,)])),
                            elements=positive))  # fmt: skip
    zero = draw(
        hnp.arrays(
            "int32",
            draw(st.sampled_from([(), (1,), (channels,)])),
            elements=st.integers(-(2**31), 2**31 - 1) | st.integers(-130, 130),
        )
    )
    if draw(st.booleans()):  # Values exactly between two integers, and next to them.
        halves = draw(hnp.arrays("int32", x.shape, elements=st.integers(-300, 300)))
        x = (halves + np.float32(0.5)).astype("float32").reshape(x.shape)
        x = np.asarray(np.nextafter(x, np.float32(draw(st.sampled_from([0, 1e9])))), "float32")
        x = np.where(halves % 2 == 0, x, np.rint(x) - np.float32(0.5)).astype("float32")
        scale = np.ones_like(scale)
    return x, scale, zero, axis, draw(st.sampled_from(DTYPES))


@settings(max_examples=300, deadline=None)
@given(problems())
@example((np.float32([0.49999997, -0.49999997]), np.float32(1), np.int32(0), 0, "int8"))
@example((np.float32([8388609.0, -8388609.0]), np.float32(1), np.int32(0), 0, "int32"))
@example((np.float32([np.inf, -np.inf]), np.float32(1), np.int32(5), 0, "int32"))
@example((np.float32([2147483520.0, 3e9, -3e9]), np.float32(1), np.int32(0), 0, "int32"))
@example((np.float32([3e38]), np.float32(1e-30), np.int32(0), 0, "uint8"))
@example((np.zeros((2, 0, 3), "float32"), np.float32([1]), np.int32([0]), 1, "int8"))
def test_equal_to_numpy(problem):
    x, scale, zero, axis, dtype = problem
    out = native.quantize(x, scale, zero, axis=axis, dtype=dtype)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, reference(x, scale, zero, axis, dtype))


X = np.ones((2, 3), "float32")
BAD = {
    "axis too large": ((X, 1.0, 0), {"axis": 2}, ValueError, "axis 2 is out of range"),
    "number of scales": ((X, [1.0, 1.0], 0), {}, ValueError, "scale must hold 1 value, or 3"),
    "zero scale": ((X, [1.0, 0.0, 1.0], 0), {}, ValueError, r"scale\[1\] is 0"),
    "negative scale": ((X, -1.0, 0), {}, ValueError, "positive and finite"),
    "NaN": ((np.float32([0, np.nan]), 1.0, 0), {}, ValueError, "element 1 of x is NaN"),
    "x is float64": ((X.astype("float64"), 1.0, 0), {}, TypeError, "x must be float32"),
    "zero is a float": ((X, 1.0, 0.5), {}, TypeError, "zero_point must hold integers"),
    "zero is too large": ((X, 1.0, 2**31), {}, ValueError, "fit into int32"),
    "dtype": ((X, 1.0, 0), {"dtype": "int64"}, TypeError, "out must be int8, uint8, int16"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_refused(name):
    arguments, options, error, message = BAD[name]
    with pytest.raises(error, match=message):
        native.quantize(*arguments, **options)
