"""The checks of notebook 04, Import quantized models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from ...compiler import compile
from ...frontend import load
from ...qnn.analysis import float_operators
from ...qnn.transform import FakeQuantizationToInteger
from ...support.extras import need
from .judge import Wrong, call, exercise, same_values, whole

RANGES = [(0.0, 2.0), (-1.2, 2.0), (-4.0, 0.0), (0.5, 2.0), (-3.0, -1.0), (-0.7, 2.0)]
LOWEST, HIGHEST = -128, 127  # of an int8
STEPS = HIGHEST - LOWEST
ENOUGH = 1.01  # times the smallest scale, because a rounded zero point costs a part of a step
STEP = 0.05  # how far the mended network's result may be off: its last scale and a little more


@exercise
def check_choose(choose: Callable[[float, float], Sequence[float]]) -> str:
    """Check a function that chooses the scale and the zero point of an int8.

    Parameters
    ----------
    choose : callable
        Takes the lowest and the highest value; returns the scale and the zero point.
    """
    for low, high in RANGES:
        what = f"for {low} to {high}, "
        scale, zero = map(float, call(choose, low, high))
        if not zero.is_integer():
            raise Wrong(f"{what}the zero point {zero:.6g} is not whole, and so 0.0 not exact")
        if not LOWEST <= zero <= HIGHEST:
            raise Wrong(
                f"{what}the zero point {zero:.0f} is no int8: 0.0 lies outside of the range"
            )
        first, last = scale * (LOWEST - zero), scale * (HIGHEST - zero)
        reach = f"the int8 reach from {first:.2f} to {last:.2f}"
        if first > low + scale / 2 or last < high - scale / 2:
            raise Wrong(f"{what}{reach} only")
        if scale > ENOUGH * (max(high, 0) - min(low, 0)) / STEPS:
            raise Wrong(f"{what}the scale {scale:.5f} is larger than it need be, and {reach}")
    return "zero is exact, and every value has its place"


@exercise
def check_scaled(
    scaled: Callable[[int, float], int], expected: Mapping[tuple[int, float], int]
) -> str:
    """Check a product of an integer and a ratio, by a multiplier and a shift.

    Parameters
    ----------
    scaled : callable
        Takes the integer and the ratio; returns their product, rounded.
    expected : mapping of (int, float) to int
        The right product of each pair.
    """
    for (total, ratio), wanted in expected.items():
        called = f"scaled({total}, {ratio})"
        given = whole(call(scaled, total, ratio), called)
        if given == wanted:
            continue
        exact = total * Fraction(ratio)
        why = f"the product is {float(exact):.10g}"
        if exact.denominator == 2:
            why += ", and a half goes upward"
        elif abs(given - wanted) > 1:
            why += ", and more than a step off: has the multiplier 31 bits?"
        elif wanted != math.floor(exact + Fraction(1, 2)):
            why += ", but the multiplier of 31 bits is not quite the ratio"
        raise Wrong(f"{called} gives {given}, expected {wanted}: {why}")
    return f"the same in all {len(expected)}"


@exercise
def check_mended(text: str) -> str:
    """Check a network that comes out all in integers, with a ReLU and an addition.

    Parameters
    ----------
    text : str
        The network in ONNX's own text form; takes and returns float32 of the shape (1, 8).
    """
    parser = need("onnx.parser", extra="onnx")
    try:
        proto = parser.parse_model(text)
    except parser.ParseError as error:
        raise Wrong(f"the text is no network: {error.args[0].decode()}") from error
    mended = FakeQuantizationToInteger()(load(proto))  # type: ignore[operator]
    if left := float_operators(mended):
        raise Wrong("; ".join(f"{found.operator} is float: {found.reason}" for found in left))
    sample = np.linspace(-2, 2, 8, dtype="float32")[np.newaxis]
    found = np.asarray(compile(mended)(sample))
    same_values(found, np.maximum(sample, 0) + sample, "the result", tolerance=STEP)
    return "all in integers, and the same results"
