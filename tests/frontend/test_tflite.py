"""TensorFlow Lite models against LiteRT, quantized operators against its reference kernels.

A small model is written here; MLPerf Tiny's ResNet-8 is read as well where its file is at hand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

import tvmlab
from tests.frontend.tflite import (
    INFO,
    Parts,
    binary,
    convolution,
    convolutional,
    dense,
    depthwise,
    integers,
    ints,
    one,
    pool,
    reference,
    together,
    value,
    weights,
    window,
)
from tests.oracles.litert import Litert
from tests.oracles.models import quickly, real_model, said
from tvmlab.errors import ModelError, UnsupportedOperatorError
from tvmlab.models.tflite_form import Quantized

tflite = pytest.importorskip("tflite", reason="tflite is not installed")

SMALL = convolutional()


def named(content: bytes) -> str:
    graph = tflite.Model.GetRootAsModel(content, 0).Subgraphs(0)
    return graph.Tensors(graph.Outputs(0)).Name().decode()


MODELS: dict[str, tuple[Callable[[], bytes], tuple[int, ...], tuple[int, ...], float]] = {
    "small": (lambda: SMALL, (1, 8, 8, 2), (1, 4, 4, 3), 2.0),
    "resnet8": (lambda: real_model("resnet8_float.tflite"), (1, 32, 32, 3), (1, 10), 255.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_litert_s_numbers(name: str) -> None:
    read, given_shape, made_shape, largest = MODELS[name]
    content = read()
    executable = tvmlab.compile(tvmlab.load(content))
    (declared,) = executable.signature.inputs
    assert declared.shape == given_shape
    (given,) = executable.signature.outputs
    assert given.name == named(content)
    for seed in range(3):
        x = np.random.default_rng(seed).uniform(0, largest, given_shape).astype("float32")
        expected = Litert(content).run(x)
        result = executable(x)
        assert result.shape == expected.shape == made_shape
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("code", "name"),
    [(tflite.BuiltinOperator.RNN, "RNN"), (tflite.BuiltinOperator.CUSTOM, "Custom operators")],
)
def test_an_unsupported_operator_is_named(code: int, name: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=name) as caught:
        tvmlab.load(convolutional(pooling=code))
    assert "TensorFlow Lite operator" in said(caught.value)


# Quantized operators

FUSED = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
SHAPE = (1, 5, 6, 4)


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
    content = together(parts).content
    graph, inputs = tflite.Model.GetRootAsModel(content, 0).Subgraphs(0), []
    for i in range(graph.InputsLength()):
        tensor = graph.Tensors(graph.Inputs(i))
        shape = tuple(int(size) for size in tensor.ShapeAsNumpy())
        if tensor.Type() == tflite.TensorType.FLOAT32:
            inputs.append(np.random.default_rng(i).uniform(-9, 9, shape).astype("float32"))
        elif dtype == "kinds":
            inputs.append(np.maximum(integers(shape, "int8", i), -127))
        else:
            inputs.append(integers(shape, dtype, i))
    ours = quickly(tvmlab.load(content), *inputs)
    return dict(zip(parts, zip(ours, reference(content, *inputs), strict=True), strict=True))


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
        tvm.ir.assert_structural_equal(mod, tvmlab.load(convolution(dtype).content))
    content = one("RELU", (1, 4), (1, 4)).content
    assert "qnn.rounding" not in tvmlab.load(content)["main"].attrs


def test_an_average_is_taken_between_dequantize_and_quantize() -> None:
    """Upstream divides int32 and cuts off: -1.5 becomes -1, and LiteRT says -2."""
    content = window(
        *(value((1, 1, 2, 1), "int8", 1.0, 0), value((1, 1, 1, 1), "int8", 1.0, 0)), "AVERAGE", 2
    )
    for pair, average in (((-1, -2), -2), ((-7, -8), -8), ((1, 2), 2), ((-3, -3), -3)):
        x = np.array(pair, "int8").reshape(1, 1, 2, 1)
        assert reference(content, x)[0].item() == average
        assert quickly(tvmlab.load(content), x)[0].item() == average


def test_the_limits_of_an_activation_are_rounded_away_from_zero() -> None:
    # 6 / 12 and 1 / 2 are halves: ties to even would cut everything off.
    for fused, scale, limit in (("RELU6", 12.0, 1), ("RELU_N1_TO_1", 2.0, 1), ("RELU6", 2.4, 3)):
        tensors = [value((1, 1, 5, 1), "int8", scale, 0) for _ in "xy"]
        content = window(*tensors, "MAX", 1, fused)
        x = np.array([-9, -1, 0, 1, 9], "int8").reshape(1, 1, 5, 1)
        (expected,) = reference(content, x)
        assert expected.max() == limit
        np.testing.assert_array_equal(quickly(tvmlab.load(content), x)[0], expected)


# What is refused


def scaled(scale: float, zero: int) -> Parts:
    return one("RELU", Quantized((1, 4), "int8", [scale], [zero]), value((1, 4), "int8"))


def by_channel(scales: list[float], axis: int) -> Parts:
    weight = Quantized(integers((3, 4), "int8"), "int8", scales, [0] * len(scales), axis)
    return one("FULLY_CONNECTED", value((1, 3), "int8"), value((1, 4), "int8"), weight)


def transposed(quantized: bool) -> Parts:
    """TVM has none in this layout; it failed only when it was compiled."""
    size, options = ints(1, 10, 12, 3), {"Padding": "SAME", "StrideH": 2, "StrideW": 2}
    if quantized:
        w = Quantized(integers((3, 3, 3, 4), "int8"), "int8", [0.01], [0])
        y = value((1, 10, 12, 3), "int8", 0.3)
        return one("TRANSPOSE_CONV", y, size, w, value(SHAPE, "int8"), **options)
    floats = np.ones((3, 3, 3, 4), "float32")
    return one("TRANSPOSE_CONV", (1, 10, 12, 3), size, floats, SHAPE, **options)


def squeezed() -> Parts:
    x, y = value((1, 1, 4), "int8", 0.5), value((4,), "int8", 0.25)
    return one("SQUEEZE", y, x, SqueezeDims=[0, 1])


def flipped() -> Parts:
    return one("REVERSE_V2", value((1, 4), "int8"), value((1, 4), "int8"), ints(np.array([1])))


def dynamic() -> Parts:
    return one("FULLY_CONNECTED", (1, 3), (1, 4), weights((3, 4), "int8", each=False))


def doubled() -> Parts:
    return one("RELU", *[value((1, 4), "int8")] * 3)


#: Models, the error's words, and where the error says that it is.
REFUSED: list[tuple[Parts, type[ModelError], str, str]] = [
    *(
        (scaled(scale, 0), ModelError, f"scale of {scale}", "tensor 'y'")
        for scale in (-0.5, float("nan"))
    ),
    *(
        (scaled(0.5, zero), ModelError, f"zero point of {zero}, out of int8's range", "tensor 'y'")
        for zero in (200, -129)
    ),
    *(
        (by_channel(scales, axis), ModelError, match, "x1")
        for scales, axis, match in (
            ([0.1, 0.2], 0, "2 scales for an axis of 3"),
            ([0.1] * 3, 2, "axis 2 of a tensor with 2 dimensions"),
        )
    ),
    (flipped(), UnsupportedOperatorError, "REVERSE_V2", "REVERSE_V2 giving 'y'"),
    (dynamic(), UnsupportedOperatorError, "dynamic range quantization", "FULLY_CONNECTED giving"),
    (squeezed(), UnsupportedOperatorError, "different scales", "SQUEEZE giving 'y'"),
    (dense("int8", "TANH"), UnsupportedOperatorError, "fused activation TANH", "giving 'y'"),
    (pool("AVERAGE", "int8", same=False), UnsupportedOperatorError, "scales", "AVERAGE_POOL_2D"),
    (doubled(), ModelError, "RELU: AssertionError", "RELU giving 'y'"),
    *(
        (
            *(compared(kind, False, kind.endswith("EQUAL")), UnsupportedOperatorError),
            *("different scales", f"{kind} giving 'y'"),
        )
        for kind in ("MAXIMUM", "MINIMUM", "EQUAL", "NOT_EQUAL")
    ),
    *(
        (transposed(each), UnsupportedOperatorError, "no transposed convolution", "TRANSPOSE_CONV")
        for each in (True, False)
    ),
    # LiteRT negates, adds up and multiplies the integers as they stand, whatever their zero points.
    *(
        (part, UnsupportedOperatorError, f"not supported.*{kind}", f"{kind} giving 'y'")
        for kind, part in (
            *((kind, function(kind)) for kind in ("NEG", "SIN", "FLOOR")),
            *((kind, reduced(kind)) for kind in ("SUM", "REDUCE_PROD")),
            *((kind, compared(kind)) for kind in ("DIV", "POW")),
        )
    ),
]


@pytest.mark.parametrize(("part", "kind", "match", "where"), REFUSED)
def test_a_model_that_cannot_be_right_is_refused(
    part: Parts, kind: type[ModelError], match: str, where: str
) -> None:
    with pytest.raises(kind, match=match) as caught:
        tvmlab.load(part.content)
    assert type(caught.value) is kind
    assert where in str(caught.value.where)
    said(caught.value)
    if match.startswith("not supported"):
        assert "quantized operators supported: ABS, ADD" in str(caught.value.fix)
        assert f" {where.split()[0]}," not in str(caught.value.fix)
