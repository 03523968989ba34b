"""Random quantized operators, with data from the whole range of their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from helpers_qnn import Array, Case
from hypothesis import strategies as st

from tvmlab.qnn.elementwise import BINARY, UNARY

Draw = Callable[..., Any]

EIGHT = ("int8", "uint8")
NARROW = (*EIGHT, "int16")
QUANTIZED = (*NARROW, "int32")
#: Those that are in integers, and all of them.
ROUNDINGS = ("UPWARD", "TONEAREST", "TFLITE")
EVERY_ROUNDING = (*ROUNDINGS, "ONNX")
_COMPUTED = {"TFLITE": ("int64",), "ONNX": ("float32",)}


def number(dtype: str, draw: Draw) -> Array:
    """Draw a zero point: often an end of the dtype, or 0."""
    info = np.iinfo(dtype)
    least, most = (info.min, info.max) if dtype != "int32" else (-1000, 1000)
    values = st.one_of(st.sampled_from((0, least, most)), st.integers(int(least), int(most)))
    return np.asarray(draw(values), np.int32)


def scale(draw: Draw) -> Array:
    """Draw a scale; now and then a power of two, which makes half-way cases."""
    exact = st.integers(-12, 1).map(lambda n: 2.0**n)
    return np.asarray(draw(st.one_of(exact, st.floats(1e-4, 2.0))), np.float32)


def contents(shape: Sequence[int], dtype: str, draw: Draw) -> Array:
    """Fill an array from the whole range of a dtype, its ends more often than others."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    info = np.iinfo(dtype)
    made = random.integers(info.min, info.max, shape, dtype, endpoint=True)
    if dtype == "int32":  # sums are small more often than not
        made = made >> random.integers(0, 31, shape, dtype)
    ends = random.integers(0, 16, shape)
    return np.where(ends == 0, info.min, np.where(ends == 1, info.max, made)).astype(dtype)


def rows(count: int, make: Callable[[Draw], Array], draw: Draw) -> Array:
    """Draw one value, or one for each channel."""
    if not draw(st.booleans()):
        return make(draw)
    return np.stack([make(draw) for _ in range(count)])


def letters(sizes: dict[str, int], layout: str) -> list[int]:
    """Put sizes in a layout's order."""
    return [sizes[letter] for letter in layout]


def _orders(word: str) -> st.SearchStrategy[str]:
    return st.permutations(word).map("".join)


def _shape(draw: Draw, most: int = 4, least: int = 0) -> list[int]:
    sizes = st.sampled_from((1, 2, 3, 5, 8, 16, 17))
    shape = draw(st.lists(sizes, min_size=least, max_size=most))
    if shape and draw(st.integers(0, 19)) == 0:
        shape[draw(st.integers(0, len(shape) - 1))] = 0
    return shape


def _scaled(draw: Draw, shape: Sequence[int], dtype: str) -> tuple[int, Array, Array]:
    """Draw an axis, and scales and zero points along it."""
    axis = draw(st.integers(-max(len(shape), 1), max(len(shape), 1) - 1))
    count = shape[axis] if shape else 1
    count = count or 1  # of an empty tensor: one for all
    return axis, rows(count, scale, draw), rows(count, lambda d: number(dtype, d), draw)


@st.composite
def requantize(draw: Draw) -> Case:
    dtype, out = draw(st.sampled_from((*QUANTIZED, "int64"))), draw(st.sampled_from(QUANTIZED))
    shape, kind = _shape(draw), "int32" if dtype == "int64" else dtype
    axis, scales, zeros = _scaled(draw, shape, kind)
    if draw(st.booleans()):
        scales = scales.astype(np.float64) * draw(st.floats(0.5, 2.0))
    rounding = draw(st.sampled_from(EVERY_ROUNDING))
    computed = _COMPUTED.get(rounding, ("int64", "int64", "float32", "float64"))
    data = contents(shape, kind, draw).astype(dtype)
    given = (0, *draw(st.sampled_from(((), (), (2,), (4,), (2, 4)))))
    attributes = {
        "axis": axis,
        "rounding": rounding,
        "compute_dtype": draw(st.sampled_from(computed)),
        "out_dtype": out,
    }
    operands = [data, scales, zeros, scale(draw), number(out, draw)]
    return Case("requantize", operands, given, attributes)


@st.composite
def quantize(draw: Draw) -> Case:
    out, shape = draw(st.sampled_from(QUANTIZED)), _shape(draw)
    axis, scales, zeros = _scaled(draw, shape, out)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps = random.normal(0, 10 ** random.uniform(0, 4, shape), shape)
    halves = np.floor(steps) + 0.5
    data = np.asarray(np.where(random.random(shape) < 0.5, steps, halves) * scale(draw), np.float32)
    for value in (np.nan, np.inf, -np.inf, 3e38, -3e38, 2.0**31):
        data[random.random(shape) < 0.03] = value
    with np.errstate(over="ignore"):
        data = data.astype(draw(st.sampled_from(("float32", "float32", "float16"))))
    given = draw(st.sampled_from(((0,), (0,), (0, 1), (0, 1, 2))))
    rounding = draw(st.sampled_from(("None", "ONNX")))
    attributes = {"axis": axis, "out_dtype": out, "rounding": rounding}
    return Case("quantize", [data, scales, zeros], given, attributes)


@st.composite
def dequantize(draw: Draw) -> Case:
    dtype, shape = draw(st.sampled_from(QUANTIZED)), _shape(draw)
    axis, scales, zeros = _scaled(draw, shape, dtype)
    given = draw(st.sampled_from(((0,), (0,), (0, 1), (0, 1, 2))))
    out = draw(st.sampled_from(("float32", "float16")))
    operands = [contents(shape, dtype, draw), scales, zeros]
    return Case("dequantize", operands, given, {"axis": axis, "out_dtype": out})


@st.composite
def binary(draw: Draw) -> Case:
    name, dtype = (
        draw(st.sampled_from(BINARY)),
        draw(st.sampled_from(QUANTIZED)),
    )
    rounding = draw(st.sampled_from(("None", *EVERY_ROUNDING)))
    if rounding == "TFLITE" and dtype == "int32":
        dtype = "int8"
    shape = _shape(draw)
    shapes = [list(shape), list(shape)]
    for i, size in enumerate(shape):
        which = draw(st.integers(0, 5))
        if which < 2 and size:
            shapes[which][i] = 1
    side = draw(st.integers(0, 1))
    shapes[side] = shapes[side][draw(st.integers(0, len(shape))) :]
    operands: list[Any] = [contents(own, dtype, draw) for own in shapes]
    attributes: dict[str, Any] = {"rounding": rounding}
    plain = rounding in _COMPUTED or name == "mul"
    for word, own in zip(("lhs", "rhs"), shapes, strict=True):
        axis, scales, zeros = _scaled(draw, own, dtype)
        attributes[f"{word}_axis"] = axis
        one = rounding == "ONNX" and name != "mul"
        operands += [scale(draw) if plain else scales, number(dtype, draw) if one else zeros]
    same = draw(st.booleans())
    operands += (
        [operands[2].ravel()[0], operands[3].ravel()[0]]
        if same
        else [scale(draw), number(dtype, draw)]
    )
    operands[6:] = [np.asarray(operands[6], np.float32), np.asarray(operands[7], np.int32)]
    return Case(name, operands, draw(st.sampled_from(((0, 1), (0,), (1,)))), attributes)


@st.composite
def concatenate(draw: Draw) -> Case:
    dtype, shape = draw(st.sampled_from(QUANTIZED)), _shape(draw, least=1)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    tensors, scales, zeros = [], [], []
    out_scale, out_zero = scale(draw), number(dtype, draw)
    for _ in range(draw(st.integers(1, 3))):
        shape[axis] = draw(st.integers(1, 9))
        tensors.append(contents(shape, dtype, draw))
        same = draw(st.booleans())
        scales.append(out_scale if same else scale(draw))
        zeros.append(out_zero if same else number(dtype, draw))
    operands = [tensors, scales, zeros, out_scale, out_zero]
    return Case("concatenate", operands, (0,), {"axis": axis})


@st.composite
def unary(draw: Draw) -> Case:
    name = draw(st.sampled_from((*UNARY, "leaky_relu")))
    dtype = draw(st.sampled_from(NARROW))
    operands = [contents(_shape(draw), dtype, draw), scale(draw), number(dtype, draw)]
    operands += [scale(draw), number(dtype, draw)]
    more = {} if name != "leaky_relu" else {"alpha": draw(st.sampled_from((0.25, 0.1, 0.0, -1.5)))}
    return Case(name, operands, (0,), more)


@st.composite
def softmax(draw: Draw) -> Case:
    shape = _shape(draw, least=1)
    shape = [size or 1 for size in shape]
    scales = np.asarray(draw(st.sampled_from((1.0, 0.5, 0.1, 0.0123, 1e-3))), np.float32)
    out = [np.asarray(1 / 256, np.float32), np.asarray(-128, np.int32)]
    operands = [contents(shape, "int8", draw), scales, number("int8", draw), *out]
    return Case("softmax", operands, (0,), {"axis": draw(st.integers(-len(shape), len(shape) - 1))})


def _window(
    draw: Draw, sizes: dict[str, int], taps: dict[str, int], dilations: tuple[int, ...]
) -> dict[str, Any]:
    """Draw strides, padding and dilation, and sizes that the window fits into."""
    dilation = [draw(st.sampled_from(dilations)) for _ in "HW"]
    for letter, step in zip("HW", dilation, strict=True):
        taps[letter] = draw(st.integers(1, 3))
        sizes[letter] = (taps[letter] - 1) * step + draw(st.integers(1, 6))
    count = draw(st.sampled_from((1, 2, 4)))
    return {
        "strides": [draw(st.integers(1, 3)) for _ in "HW"],
        "padding": [draw(st.integers(0, 2)) for _ in range(count)],
        "dilation": dilation,
    }


@st.composite
def convolution(draw: Draw) -> Case:
    groups, inner = draw(
        st.sampled_from(((1, 3), (1, 16), (1, 1), (2, 4), (3, 2), (8, 1), (16, 1)))
    )
    sizes, outer = (
        {"N": draw(st.integers(1, 2)), "C": groups * inner},
        groups * draw(st.integers(1, 3)),
    )
    if draw(st.integers(0, 3)) == 0:
        outer = 16 * groups
    made = outer
    if inner == 1 and draw(st.booleans()):  # depthwise: (channels, multiplier)
        outer, inner = groups, draw(st.integers(1, 3))
        made = outer * inner if groups > 1 else outer
        inner = inner if groups > 1 else 1
    taps = {"O": outer, "I": inner}
    attributes = _window(draw, sizes, taps, (1, 1, 2))
    layouts = st.sampled_from(("NCHW", "NHWC", "NHWC"))
    attributes |= {
        "groups": groups,
        "data_layout": draw(st.one_of(layouts, _orders("NCHW"))),
        "kernel_layout": draw(
            st.one_of(st.sampled_from(("OIHW", "OHWI", "HWIO")), _orders("OIHW"))
        ),
        "out_layout": draw(st.sampled_from(("", "", "", "NCHW", "NHWC"))),
        "out_dtype": draw(st.sampled_from(("int32", "int32", "int64", "int16"))),
        "kernel_size": None,
        "channels": None,
    }
    shapes = letters(sizes, attributes["data_layout"]), letters(taps, attributes["kernel_layout"])
    return Case("conv2d", *_product(draw, shapes, made), attributes)


def _product(
    draw: Draw, shapes: tuple[list[int], list[int]], made: int
) -> tuple[list[Array], tuple[int, ...]]:
    """Draw data and weights, their zero points and scales, and what is known at run time only."""
    dtypes = [draw(st.sampled_from((*EIGHT, *EIGHT, "int16"))) for _ in shapes]
    data, weight = (contents(s, d, draw) for s, d in zip(shapes, dtypes, strict=True))
    zeros = [number(dtypes[0], draw), rows(made, lambda d: number(dtypes[1], d), draw)]
    if draw(st.booleans()):
        zeros[1] = np.zeros_like(zeros[1])
    if "int16" in dtypes:  # or sums overflow
        data, weight = (np.clip(x, -(1 << 12), 1 << 12).astype(x.dtype) for x in (data, weight))
        zeros = [np.clip(zero, -(1 << 12), 1 << 12) for zero in zeros]
    given = draw(st.sampled_from(((0,), (0,), (0,), (0, 1), (0, 2), (0, 1, 2, 3, 4, 5))))
    return [data, weight, *zeros, scale(draw), rows(made, scale, draw)], given


@st.composite
def transposed(draw: Draw) -> Case:
    groups, inner, outer = (
        draw(st.sampled_from((1, 1, 2))),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 4)),
    )
    sizes = {"N": draw(st.integers(1, 2)), "C": groups * inner}
    taps = {"I": groups * inner, "O": outer}
    attributes = _window(draw, sizes, taps, (1, 2))
    attributes["padding"] = [0] if min(taps["H"], taps["W"]) == 1 else [draw(st.integers(0, 1))]
    for letter in "HW":
        sizes[letter] = draw(st.integers(2, 5))
    attributes |= {
        "groups": groups,
        "output_padding": [draw(st.integers(0, s - 1)) for s in attributes["strides"]],
        "data_layout": draw(st.sampled_from(("NCHW", "NHWC"))),
        "kernel_layout": draw(_orders("OIHW")),
        "out_dtype": draw(st.sampled_from(("int32", "int64", "int16"))),
    }
    shapes = letters(sizes, attributes["data_layout"]), letters(taps, attributes["kernel_layout"])
    return Case("conv2d_transpose", *_product(draw, shapes, groups * outer), attributes)


@st.composite
def dense(draw: Draw) -> Case:
    shape, units = _shape(draw, most=3, least=1), draw(st.sampled_from((1, 3, 16, 17)))
    shape[-1] = shape[-1] or 1
    operands, given = _product(draw, (shape, [units, shape[-1]]), units)
    kind = draw(st.sampled_from(("int32", "int32", "int64", "int16")))
    return Case("dense", operands, given, {"units": None, "out_dtype": kind})


@st.composite
def batch_matmul(draw: Draw) -> Case:
    b, m, n, k = (draw(st.sampled_from((1, 2, 5, 16))) for _ in range(4))
    first, second = draw(st.sampled_from(((b, b), (1, b), (b, 1))))
    operands, _ = _product(draw, ([first, m, k], [second, n, k]), 1)
    operands[3], operands[5] = operands[3].reshape(-1)[0], operands[5].reshape(-1)[0]
    operands[3:6:2] = [np.asarray(operands[3], np.int32), np.asarray(operands[5], np.float32)]
    given = draw(st.sampled_from(((0, 1), (0,), (0, 1, 2))))
    return Case("batch_matmul", operands, given, {"out_dtype": "int32"})


@st.composite
def avg_pool2d(draw: Draw) -> Case:
    dtype = draw(st.sampled_from(QUANTIZED))
    sizes = {"N": draw(st.integers(1, 2)), "C": draw(st.sampled_from((1, 3, 16)))}
    taps: dict[str, int] = {}
    attributes = _window(draw, sizes, taps, (1, 1, 2))
    attributes |= {
        "pool_size": [taps["H"], taps["W"]],
        "ceil_mode": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
        "layout": draw(st.sampled_from(("NHWC", "NCHW"))),
        "out_layout": draw(st.sampled_from(("", "NHWC", "NCHW"))),
        "rounding": draw(st.sampled_from(("None", *EVERY_ROUNDING))),
    }
    scales, zeros = [scale(draw)] * 2, [number(dtype, draw)] * 2
    if draw(st.booleans()):
        scales[1], zeros[1] = scale(draw), number(dtype, draw)
    data = contents(letters(sizes, attributes["layout"]), dtype, draw)
    operands = [data, scales[0], zeros[0], scales[1], zeros[1]]
    return Case("avg_pool2d", operands, (0,), attributes)


OPERATORS = {
    "requantize": requantize(),
    "quantize": quantize(),
    "dequantize": dequantize(),
    "binary": binary(),
    "concatenate": concatenate(),
    "unary": unary(),
    "softmax": softmax(),
    "convolution": convolution(),
    "transposed": transposed(),
    "dense": dense(),
    "batch_matmul": batch_matmul(),
    "avg_pool2d": avg_pool2d(),
}
"""Strategies of cases."""
