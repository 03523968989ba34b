"""TensorFlow Lite models against LiteRT, quantized operators against its reference kernels.

A small model is written here; MLPerf Tiny's ResNet-8 is read as well where its file is at hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tvmlab
from tests.oracles.litert import Litert, Parts, convolutional, one, together
from tests.oracles.models import array, quickly, real_model, said
from tvmlab.errors import ModelError, UnsupportedOperatorError
from tvmlab.models.tflite_form import Quantized

tflite = pytest.importorskip("tflite", reason="tflite is not installed")

INFO = {"int8": (-128, 127), "uint8": (0, 255)}


MODELS: dict[str, tuple[Callable[[], bytes], str, float]] = {
    "small": (convolutional, "pooled.y", 2.0),
    "resnet8": (lambda: real_model("resnet8_float.tflite"), "Identity", 255.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_litert_s_numbers(name: str) -> None:
    read, output, largest = MODELS[name]
    content = read()
    executable = tvmlab.compile(tvmlab.load(content))
    (declared,), (given,) = executable.signature.inputs, executable.signature.outputs
    assert given.name == output
    for seed in range(3):
        x = np.random.default_rng(seed).uniform(0, largest, declared.shape).astype("float32")
        expected, result = Litert(content).run(x), executable(x)
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5)


# Quantized operators

FUSED = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
SHAPE = (1, 5, 6, 4)


def integers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers of all of a type's range, its ends among them."""
    low, high = INFO[dtype]
    made = np.random.default_rng([seed, *shape]).integers(low, high + 1, shape)
    made.flat[0], made.flat[-1] = low, high
    return made.astype(dtype)


def value(shape: Any, dtype: str, scale: float = 0.05, zero: int | None = None) -> Quantized:
    """A quantized value; the zero point lies off the middle if it is not given."""
    low, high = INFO[dtype]
    return Quantized(shape, dtype, [scale], [(low + high) // 2 + 7 if zero is None else zero])


def ints(*numbers: Any) -> Quantized:
    """A constant of int32."""
    return Quantized(np.array(numbers[0] if len(numbers) == 1 else numbers), "int32")


def weights(shape: tuple[int, ...], dtype: str, axis: int = 0, each: bool = True) -> Quantized:
    """Weights: int8 by channel or with one scale, uint8 as a whole with a zero point."""
    if dtype == "uint8":
        return Quantized(integers(shape, "uint8", 5), "uint8", [0.02], [121])
    content = np.maximum(integers(shape, "int8", 5), -127)
    if not each:
        return Quantized(content, "int8", [0.02], [0])
    scales = 0.01 * (1 + np.arange(shape[axis]) % 3)
    return Quantized(content, "int8", scales, [0] * shape[axis], axis)


def bias(count: int, weight: Quantized) -> Quantized:
    content = np.random.default_rng(9).integers(-2000, 2000, count).astype("int32")
    scales = np.asarray(weight.scale) * 0.05
    return Quantized(content, "int32", scales, [0] * len(scales))


def convolution(dtype: str, fused: str = "NONE", pad: str = "SAME", by: int = 1, dilation: int = 1):
    weight, size = weights((5, 3, 3, 4), dtype), 9 if pad == "SAME" else 9 - 2 * dilation
    return one(
        *("CONV_2D", value((1, -(-size // by), -(-size // by), 5), dtype, 0.3)),
        *(value((1, 9, 9, 4), dtype), weight, bias(5, weight)),
        **{"table": "Conv2DOptions", "Padding": pad, "StrideH": by, "StrideW": by},
        **{"DilationHFactor": dilation, "DilationWFactor": dilation},
        FusedActivationFunction=fused,
    )


def depthwise(dtype: str, fused: str = "NONE", channels: int = 4, multiplier: int = 1) -> Parts:
    results = channels * multiplier
    weight = weights((1, 3, 3, results), dtype, 3)
    return one(
        *("DEPTHWISE_CONV_2D", value((1, 4, 4, results), dtype, 0.1)),
        *(value((1, 8, 8, channels), dtype), weight, bias(results, weight)),
        **{"table": "DepthwiseConv2DOptions", "Padding": "SAME", "StrideH": 2, "StrideW": 2},
        **{"DepthMultiplier": multiplier, "DilationHFactor": 1, "DilationWFactor": 1},
        FusedActivationFunction=fused,
    )


def dense(dtype: str, fused: str = "NONE", each: bool = False, biased: bool = True) -> Parts:
    weight = weights((6, 10), dtype, each=each)
    more = [bias(6, weight)] if biased else []
    x, y = value((3, 10), dtype), value((3, 6), dtype, 0.3)
    return one("FULLY_CONNECTED", y, x, weight, *more, FusedActivationFunction=fused)


def binary(kind: str, dtype: str, fused: str = "NONE", other: Any = None) -> Parts:
    shape = (1, 5, 5, 3)
    other = other or value(shape, dtype, 0.011, 0 if dtype == "int8" else 120)
    out = value(shape, dtype, 0.02 if kind == "MUL" else 0.06)
    return one(kind, out, value(shape, dtype), other, FusedActivationFunction=fused)


def pool(
    kind: str, dtype: str, fused: str = "NONE", pad: str = "VALID", same: bool = True
) -> Parts:
    shape = (1, 3, 3, 3) if pad == "VALID" else (1, 4, 4, 3)
    y = value(shape, dtype) if same else value(shape, dtype, 0.04, 3)
    return window(kind, value((1, 7, 7, 3), dtype), y, (3, 3), 2, pad, fused)


def window(
    kind: str, x: Quantized, y: Quantized, size: Any, by: int, pad: str, fused: str
) -> Parts:
    return one(
        *(f"{kind}_POOL_2D", y, x),
        **{"table": "Pool2DOptions", "Padding": pad, "StrideH": by, "StrideW": by},
        **{"FilterHeight": size[0], "FilterWidth": size[1], "FusedActivationFunction": fused},
    )


def joined(dtype: str) -> Parts:
    """Two tensors along their channels; LiteRT takes different scales of uint8 only."""
    more = ((), ()) if dtype == "int8" else ((0.09, 10), (0.06,))
    b, y = value((1, 3, 4, 5), dtype, *more[0]), value((1, 3, 4, 8), dtype, *more[1])
    return one("CONCATENATION", y, value((1, 3, 4, 3), dtype), b, Axis=3)


def mean(dtype: str, keep: bool = True, *to: Any) -> Parts:
    y = value((1, 1, 1, 5) if keep else (1, 5), dtype, *to)
    axes, options = ints(1, 2), {"table": "ReducerOptions", "KeepDims": keep}
    return one("MEAN", y, value((1, 7, 6, 5), dtype), axes, **options)


def padded(dtype: str, *by: int) -> Parts:
    widths, x = ints([[0, 0], [1, 2], [0, 1], [0, 0]]), value((1, 3, 4, 2), dtype)
    more = [value(np.array(by, dtype), dtype)] if by else []
    kind, table = ("PADV2", "PadV2Options") if by else ("PAD", "PadOptions")
    return one(kind, value((1, 6, 5, 2), dtype), x, widths, *more, table=table)


def moved(kind: str, shape: tuple[int, ...], *operands: Any, **options: Any) -> Any:
    return lambda d: one(kind, value(shape, d), value((1, 4, 1, 6), d), *operands, **options)


def unary(kind: str, **options: Any) -> Callable[[str], Parts]:
    def make(dtype: str) -> Parts:
        low = INFO[dtype][0]
        scales: dict[str, tuple[Any, ...]] = {
            **dict.fromkeys(("SOFTMAX", "LOGISTIC"), (1 / 256, low)),
            "TANH": (1 / 128, low + 128),
            **dict.fromkeys((*FUSED[1:], "LEAKY_RELU", "HARD_SWISH"), (0.04, low + 9)),
        }
        return one(kind, value((2, 9), dtype, *scales[kind]), value((2, 9), dtype), **options)

    return make


#: By name, a function of the dtype that writes a model of one operator.
CASES: dict[str, Callable[[str], Parts]] = {
    **{f"conv2d {f}": lambda d, f=f: convolution(d, f) for f in FUSED},
    "conv2d stride": lambda d: convolution(d, "RELU", by=2),
    "conv2d valid": lambda d: convolution(d, pad="VALID", by=2),
    "conv2d dilated": lambda d: convolution(d, pad="VALID", dilation=2),
    **{f"depthwise {f}": lambda d, f=f: depthwise(d, f) for f in ("NONE", "RELU6")},
    "depthwise multiplied": lambda d: depthwise(d, multiplier=2),
    "depthwise of one channel": lambda d: depthwise(d, channels=1, multiplier=4),
    **{f"dense {f}": lambda d, f=f: dense(d, f) for f in ("NONE", "RELU")},
    "dense by channel": lambda d: dense(d, each=True),
    "dense without bias": lambda d: dense(d, biased=False),
    "dense of pictures": lambda d: one(
        *("FULLY_CONNECTED", value((1, 6), d, 0.3), value((1, 2, 2, 5), d)),
        weights((6, 20), d, each=False),
    ),
    **{f"add {f}": lambda d, f=f: binary("ADD", d, f) for f in FUSED},
    "sub": lambda d: binary("SUB", d),
    "mul": lambda d: binary("MUL", d, "RELU6"),
    "add constant": lambda d: binary("ADD", d, other=value(integers((3,), d, 3), d, 0.011)),
    **{f"average pool {f}": lambda d, f=f: pool("AVERAGE", d, f) for f in ("NONE", "RELU6")},
    "average pool padded": lambda d: pool("AVERAGE", d, pad="SAME"),
    **{f"max pool {f}": lambda d, f=f: pool("MAX", d, f) for f in ("NONE", "RELU")},
    "max pool padded": lambda d: pool("MAX", d, pad="SAME"),
    "mean": mean,
    "mean without axes": lambda d: mean(d, False),
    "mean to another scale": lambda d: mean(d, True, 0.02, 9),
    "concatenation": joined,
    "pad": padded,
    "pad with a value": lambda d: padded(d, 17),
    "reshape": moved("RESHAPE", (2, 12), ints(2, 12), NewShape=[2, 12]),
    "squeeze": moved("SQUEEZE", (4, 6), SqueezeDims=[0, 2]),
    "expand_dims": moved("EXPAND_DIMS", (1, 1, 4, 1, 6), ints(1)),
    "transpose": moved("TRANSPOSE", (1, 6, 4, 1), ints(0, 3, 1, 2)),
    "slice": moved("SLICE", (1, 2, 1, 4), ints(0, 1, 0, 2), ints(1, 2, 1, -1)),
    "strided_slice": moved(
        "STRIDED_SLICE", (1, 2, 1, 3), ints(0, 0, 0, 1), ints(1, 4, 1, 6), ints(1, 2, 1, 2)
    ),
    **{k.lower(): unary(k) for k in ("LOGISTIC", "TANH", *FUSED[1:], "HARD_SWISH")},
    **{f"softmax {beta}": unary("SOFTMAX", Beta=beta) for beta in (1.0, 0.5)},
    "leaky_relu": unary("LEAKY_RELU", Alpha=0.1),
    **{
        f"requantize {same}": lambda d, same=same: one(
            *("QUANTIZE", value((4, 64), d if same else {"int8": "uint8"}.get(d, "int8"), 0.05, 3)),
            value((4, 64), d, 0.031),
        )
        for same in (True, False)
    },
    "quantize": lambda d: one("QUANTIZE", value((4, 64), d), (4, 64)),
    "dequantize": lambda d: one("DEQUANTIZE", (4, 64), value((4, 64), d)),
}


def function(kind: str, zero: int | None = None, **more: Any) -> Parts:
    return one(kind, value(SHAPE, "int8", **more), value(SHAPE, "int8", zero=zero))


def compared(kind: str, same: bool = True, boolean: bool = False) -> Parts:
    y = Quantized(SHAPE, "bool") if boolean else value(SHAPE, "int8", 0.05 if same else 0.08)
    b = value((1, 1, 1, 4), "int8", *(() if same else (0.03, -5)))
    table = "MaximumMinimumOptions" if kind in ("MAXIMUM", "MINIMUM") else ""
    return one(kind, y, value(SHAPE, "int8"), b, table=table)


def reduced(kind: str) -> Parts:
    y, options = value((1, 6), "int8"), {"table": "ReducerOptions", "KeepDims": False}
    return one(kind, y, value(SHAPE, "int8"), ints(1, 3), **options)


def resized(**options: bool) -> Parts:
    y = value((1, 9, 13, 4), "int8")
    return one("RESIZE_BILINEAR", y, value(SHAPE, "int8"), ints(9, 13), **options)


ORDERED = ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
#: Operators of int8 alone, some of which LiteRT computes otherwise in more than a few places.
KINDS: dict[str, Parts] = {
    "abs": function("ABS"),
    "exp": function("EXP"),
    # Integers from the zero point on are real numbers from zero on.
    **{kind.lower(): function(kind, -128) for kind in ("SQRT", "RSQRT", "LOG")},
    "log_softmax": one("LOG_SOFTMAX", value(SHAPE, "int8", 16 / 256, 127), value(SHAPE, "int8")),
    "maximum": compared("MAXIMUM"),
    "minimum": compared("MINIMUM"),
    **{f"squared difference {s}": compared("SQUARED_DIFFERENCE", s) for s in (False, True)},
    **{f"{kind.lower()} {s}": compared(kind, s, True) for kind in ORDERED for s in (False, True)},
    **{kind.lower(): compared(kind, boolean=True) for kind in ("EQUAL", "NOT_EQUAL")},
    "reduce_max": reduced("REDUCE_MAX"),
    "reduce_min": reduced("REDUCE_MIN"),
    "resize": resized(),
    "resize aligned": resized(AlignCorners=True),
    "resize by centres": resized(HalfPixelCenters=True),
}


@functools.cache
def results(dtype: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What we give and what LiteRT gives, by case: all cases are one model."""
    parts = KINDS if dtype == "kinds" else {name: make(dtype) for name, make in CASES.items()}
    model, inputs = together(parts), []
    content, tensors = model.content, list(model.tensors.values())
    for i, place in enumerate(model.inputs):
        given = tensors[place]
        if isinstance(given, Quantized):
            made = integers(given.content, given.dtype, i)
            inputs.append(np.maximum(made, -127) if dtype == "kinds" else made)
        else:
            inputs.append(np.random.default_rng(i).uniform(-9, 9, given).astype("float32"))
    ours = quickly(tvmlab.load(content), *inputs)
    return dict(zip(parts, zip(ours, Litert(content).results(*inputs), strict=True), strict=True))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in CASES for dtype in INFO] + [(name, "kinds") for name in KINDS],
)
def test_an_operator_gives_the_reference_kernels_numbers(name: str, dtype: str) -> None:
    result, expected = results(dtype)[name]
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert len(np.unique(expected)) > 1
    difference = np.abs(result.astype("float64") - expected.astype("float64"))
    # The kernels round twice, interpolate in fixed point and cut square roots off: one step.
    assert difference.max() <= 1
    shares = {"resize": 0.2, "sqrt": 0.6} if dtype == "kinds" else {}
    share = shares.get(name.split()[0], 0.02 if dtype == "kinds" else 0.15)
    assert (difference > 0).sum() <= max(2 * (dtype != "kinds"), share * difference.size)


def test_the_rounding_and_the_constants_of_an_import() -> None:
    for dtype in INFO:
        mod = tvmlab.load(convolution(dtype).content)
        assert str(mod["main"].attrs["qnn.rounding"]) == "TFLITE"
        # Upstream lists the constants as an attribute too, for parameters that are not there.
        assert "params" not in mod["main"].attrs
        assert 'data_layout="NHWC"' in mod.script()
        assert "permute_dims" not in mod.script()
    content = one("RELU", (1, 4), (1, 4)).content
    assert "qnn.rounding" not in tvmlab.load(content)["main"].attrs


def test_comparisons_with_nan() -> None:
    found = Quantized((4,), "bool")
    parts = {
        "not equal": one("NOT_EQUAL", found, (4,), (4,)),
        "equal": one("EQUAL", found, (4,), (4,)),
    }
    content = together(parts).content
    inputs = [np.float32([1, np.nan, 3, np.nan]), np.float32([1, 2, np.nan, np.nan])] * 2
    for ours, want in zip(
        quickly(tvmlab.load(content), *inputs), Litert(content).results(*inputs), strict=True
    ):
        np.testing.assert_array_equal(ours, want)


#: A pool of a line of int8: its kind and activation, the scale, the window, and its results.
ROUNDED: list[tuple[str, str, float, int, dict[tuple[int, ...], tuple[int, ...]]]] = [
    # Upstream divides int32 and cuts off: -1.5 becomes -1, and LiteRT says -2.
    (
        *("AVERAGE", "NONE", 1.0, 2),
        {(-1, -2): (-2,), (-7, -8): (-8,), (1, 2): (2,), (-3, -3): (-3,)},
    ),
    # 6 / 12 and 1 / 2 are halves: ties to even would cut everything off.
    ("MAX", "RELU6", 12.0, 1, {(-9, -1, 0, 1, 9): (0, 0, 0, 1, 1)}),
    ("MAX", "RELU_N1_TO_1", 2.0, 1, {(-9, -1, 0, 1, 9): (-1, -1, 0, 1, 1)}),
    ("MAX", "RELU6", 2.4, 1, {(-9, -1, 0, 1, 9): (0, 0, 0, 1, 3)}),
]


@pytest.mark.parametrize(("kind", "fused", "scale", "width", "results"), ROUNDED)
def test_averages_and_limits_are_rounded_as_litert_rounds_them(
    kind: str, fused: str, scale: float, width: int, results: dict[Any, Any]
) -> None:
    for given, expected in results.items():
        x, y = (value((1, 1, len(row), 1), "int8", scale, 0) for row in (given, expected))
        content = window(kind, x, y, (1, width), 1, "VALID", fused).content
        data = np.array(given, "int8").reshape(1, 1, -1, 1)
        for found in (Litert(content).run(data), quickly(tvmlab.load(content), data)[0]):
            assert tuple(found.ravel()) == expected


# What is refused


def by_channel(scales: list[float], axis: int) -> Parts:
    weight = Quantized(integers((3, 4), "int8"), "int8", scales, [0] * len(scales), axis)
    return one("FULLY_CONNECTED", value((1, 3), "int8"), X, weight)


X, FLAT, IMAGE = value((1, 4), "int8"), value((1, 4), "int8", 0.25), value(SHAPE, "int8")
WEIGHT = weights((3, 4), "int8", each=False)
UP: dict[str, Any] = {"Padding": "SAME", "StrideH": 2, "StrideW": 2}
#: Models, the error's words, and where the error says that it is.
WRONG: list[tuple[Parts, str, str]] = [
    *(
        (one("RELU", X, Quantized((1, 4), "int8", [scale], [zero])), match, "tensor 'x0'")
        for scale, zero, match in (
            (float("nan"), 0, "scale of nan"),
            (0.5, 200, "zero point of 200, out of int8's range"),
        )
    ),
    (by_channel([0.1, 0.2], 0), "2 scales for an axis of 3", "x1"),
    (by_channel([0.1] * 3, 2), "axis 2 of a tensor with 2 dimensions", "x1"),
    (one("RELU", X, X, X), "AssertionError", "RELU giving 'y'"),
]
UNSUPPORTED: list[tuple[Parts, str, str]] = [
    (one("FULLY_CONNECTED", (1, 3), (1, 4), WEIGHT), "dynamic range quantization", " bytes"),
    (one("SQUEEZE", FLAT, X, SqueezeDims=[0]), "different scales", "SQUEEZE giving 'y'"),
    (dense("int8", "TANH"), "fused activation TANH", "FULLY_CONNECTED giving 'y'"),
    (pool("AVERAGE", "int8", same=False), "different scales", "AVERAGE_POOL_2D giving 'y'"),
    *(
        (compared(kind, False, kind == "EQUAL"), "different scales", f"{kind} giving 'y'")
        for kind in ("MAXIMUM", "EQUAL")
    ),
    # TVM has none in this layout: without the refusal it failed when it was compiled.
    (
        one("TRANSPOSE_CONV", (1, 10, 12, 3), ints(1, 10, 12, 3), array(3, 3, 3, 4), SHAPE, **UP),
        *("no transposed convolution", "TRANSPOSE_CONV giving 'y'"),
    ),
    # LiteRT negates, adds up and multiplies the integers as they are, whatever their zero points.
    *(
        (part, f"not supported.*{kind}", " bytes")
        for kind, part in (
            ("NEG", function("NEG")),
            ("REDUCE_PROD", reduced("REDUCE_PROD")),
        )
    ),
]


@pytest.mark.parametrize(
    ("kind", "part", "match", "where"),
    [(ModelError, *row) for row in WRONG]
    + [(UnsupportedOperatorError, *row) for row in UNSUPPORTED],
)
def test_a_model_that_cannot_be_right_is_refused(
    kind: type[ModelError], part: Parts, match: str, where: str
) -> None:
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(part.content)
    assert type(caught.value) is kind
    assert where in str(caught.value.where)
    said(caught.value)


def test_operators_without_a_converter_are_named() -> None:
    for name, match in (("RNN", "RNN"), ("CUSTOM", "Custom operators")):
        with pytest.raises(UnsupportedOperatorError, match=match) as caught:
            tvmlab.load(convolutional(name))
        assert "TensorFlow Lite operator" in said(caught.value)
