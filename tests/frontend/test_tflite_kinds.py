"""Which quantized TensorFlow Lite operators are imported: those that LiteRT agrees on."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tvmlab
from tests.frontend.tflite import Content, Quantized, Step, write
from tests.frontend.tflite_quantized import (
    Parts,
    code,
    integers,
    padding,
    reference,
    together,
    value,
)
from tests.oracles.models import quickly, said
from tvmlab.errors import InputError, UnsupportedOperatorError

pytest.importorskip("tflite", reason="tflite is not installed")

SHAPE = (1, 5, 6, 4)


def unary(kind: str, table: str = "", zero: int | None = None, out: Quantized | None = None) -> Any:
    tensors: dict[str, Content] = {"x": value(SHAPE, "int8", zero=zero)}
    tensors["y"] = out or value(SHAPE, "int8")
    return Parts(tensors, [Step(code(kind), [0], [1], table)])


def binary(kind: str, table: str = "", same: bool = True, boolean: bool = False) -> Parts:
    b = value((1, 1, 1, 4), "int8") if same else value((1, 1, 1, 4), "int8", 0.03, -5)
    y = Quantized(SHAPE, "bool") if boolean else value(SHAPE, "int8", 0.05 if same else 0.08)
    tensors: dict[str, Content] = {"a": value(SHAPE, "int8"), "b": b, "y": y}
    return Parts(tensors, [Step(code(kind), [0, 1], [2], table)], inputs=[0, 1])


def reduced(kind: str) -> Parts:
    axes = Quantized(np.array([1, 3]), "int32")
    tensors: dict[str, Content] = {
        "x": value(SHAPE, "int8"),
        "axes": axes,
        "y": value((1, 6), "int8"),
    }
    return Parts(tensors, [Step(code(kind), [0, 1], [2], "ReducerOptions", {"KeepDims": False})])


def resized(**options: bool) -> Parts:
    to = Quantized(np.array([9, 13]), "int32")
    tensors: dict[str, Content] = {
        "x": value(SHAPE, "int8"),
        "to": to,
        "y": value((1, 9, 13, 4), "int8"),
    }
    return Parts(
        tensors, [Step(code("RESIZE_BILINEAR"), [0, 1], [2], "ResizeBilinearOptions", options)]
    )


LIMITS = "MaximumMinimumOptions"
ORDERED = ("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
CASES: dict[str, Parts] = {
    "abs": unary("ABS"),
    "exp": unary("EXP"),
    # Integers from the zero point on are real numbers from zero on.
    **{kind.lower(): unary(kind, zero=-128) for kind in ("SQRT", "RSQRT", "LOG")},
    "log_softmax": unary("LOG_SOFTMAX", out=value(SHAPE, "int8", 16 / 256, 127)),
    "maximum": binary("MAXIMUM", LIMITS),
    "minimum": binary("MINIMUM", LIMITS),
    **{
        f"squared difference {same}": binary("SQUARED_DIFFERENCE", "", same)
        for same in (False, True)
    },
    **{f"{kind.lower()} {s}": binary(kind, "", s, True) for kind in ORDERED for s in (False, True)},
    **{kind.lower(): binary(kind, boolean=True) for kind in ("EQUAL", "NOT_EQUAL")},
    "reduce_max": reduced("REDUCE_MAX"),
    "reduce_min": reduced("REDUCE_MIN"),
    "resize": resized(),
    "resize aligned": resized(AlignCorners=True),
    "resize by centres": resized(HalfPixelCenters=True),
}


@functools.cache
def results() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What we give and what LiteRT gives, by case: all cases are one model."""
    content = together(CASES).content
    shapes: list[Any] = [
        value.content
        for part in CASES.values()
        for value in [*part.tensors.values()][: len(part.inputs)]
        if isinstance(value, Quantized)
    ]
    inputs = [np.maximum(integers(shape, "int8", i), -127) for i, shape in enumerate(shapes)]
    ours = quickly(tvmlab.load(content), *inputs)
    return dict(zip(CASES, zip(ours, reference(content, *inputs), strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_an_operator_gives_the_reference_kernels_numbers(name: str) -> None:
    result, expected = results()[name]
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert len(np.unique(expected)) > 1
    difference = np.abs(result.astype("float64") - expected.astype("float64"))
    # LiteRT interpolates in fixed point, and cuts square roots off.
    assert difference.max() <= 1
    share = {"resize": 0.2, "sqrt": 0.6}.get(name.split()[0], 0.02)
    assert (difference > 0).mean() <= share


# What is refused

# LiteRT negates, adds up and multiplies the integers as they stand, whatever their zero points.
OTHERWISE = {
    "NEG": unary("NEG"),
    "SUM": reduced("SUM"),
    "REDUCE_PROD": reduced("REDUCE_PROD"),
    "DIV": binary("DIV", "DivOptions"),
    "SIN": unary("SIN"),
    "FLOOR": unary("FLOOR"),
    "POW": binary("POW", "PowOptions"),
}


@pytest.mark.parametrize("kind", OTHERWISE)
def test_operators_that_litert_computes_otherwise(kind: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=f"not supported.*{kind}") as caught:
        tvmlab.load(OTHERWISE[kind].content)
    assert f"{kind} giving 'y'" in str(caught.value.where)
    assert f" {kind}," not in str(caught.value.fix)
    said(caught.value)


@pytest.mark.parametrize("kind", ["MAXIMUM", "MINIMUM", "EQUAL", "NOT_EQUAL"])
def test_comparing_integers_of_two_scales(kind: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match="different scales") as caught:
        tvmlab.load(binary(kind, LIMITS, same=False, boolean=kind.endswith("EQUAL")).content)
    assert f"{kind} giving 'y'" in str(caught.value.where)


@pytest.mark.parametrize("quantized", [True, False])
def test_a_transposed_convolution(quantized: bool) -> None:
    """TVM has none in this layout; it failed only when it was compiled."""
    tensors: dict[str, Content] = {
        "size": Quantized(np.array([1, 10, 12, 3]), "int32"),
        "w": np.ones((3, 3, 3, 4), "float32"),
        "x": SHAPE,
        "y": (1, 10, 12, 3),
    }
    if quantized:
        tensors |= {"w": Quantized(integers((3, 3, 3, 4), "int8"), "int8", [0.01], [0])}
        tensors |= {"x": value(SHAPE, "int8"), "y": value((1, 10, 12, 3), "int8", 0.3)}
    options = {"Padding": padding("SAME"), "StrideH": 2, "StrideW": 2}
    step = Step(code("TRANSPOSE_CONV"), [0, 1, 2], [3], "TransposeConvOptions", options)
    with pytest.raises(UnsupportedOperatorError, match="no transposed convolution") as caught:
        tvmlab.load(Parts(tensors, [step], inputs=[2]).content)
    assert "TRANSPOSE_CONV giving 'y'" in str(caught.value.where)


# What is no name of the schema's


@pytest.mark.parametrize(
    ("step", "match", "near"),
    [
        (("conv2dOptions", {}), "no table of options 'conv2dOptions'", "Conv2DOptions"),
        (("Pool2DOptions", {"stride_w": 1}), "no field of Pool2DOptions 'stride_w'", "StrideW"),
    ],
)
def test_names_that_the_schema_does_not_have(step: Any, match: str, near: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        write({"x": (1, 4), "y": (1, 4)}, [Step(code("RELU"), [0], [1], *step)])
    assert near in said(caught.value)


def test_a_dtype_that_the_schema_does_not_have() -> None:
    with pytest.raises(InputError, match="no dtype 'FLOAT8'"):
        write({"x": Quantized((1, 4), "float8")}, [])
