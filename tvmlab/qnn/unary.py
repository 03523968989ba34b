"""Quantized functions of one tensor; most are single rows of the table below.

The operators are Relay's (src/relay/qnn/op: leaky_relu.cc, softmax.cc, and the functions with
lookup tables in python/tvm/relay/qnn/op/canonicalizations.py, TVM 0.18).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from ..errors import InputError
from . import checks, config
from .checks import Array
from .numbers import Value, half_away, saturate, wrap
from .operands import CallOperands
from .operator import NARROW, OPERATORS, Operand, Operator, operator
from .rescale import requantize, rescale, rescale_or_keep


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.ravel()], x.dtype).reshape(x.shape)


def _hardswish(x: Array) -> Array:
    return np.asarray(x * np.clip(x + np.float32(3), 0, 6) / np.float32(6))


def _gelu(x: Array) -> Array:
    return np.asarray(x * (_erf(x.astype(np.float64) / math.sqrt(2)) + 1) / 2, x.dtype)


def _gelu_tanh(x: Array) -> Array:
    wide = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    return np.asarray(wide * (np.tanh(inner) + 1) / 2, x.dtype)


FUNCTIONS: dict[str, Callable[[Array], Array]] = {}
"""The float32 functions of the operators in `tvmlab.qnn.op`, as in Relay's lookup tables
(python/tvm/relay/qnn/op/legalizations.py and canonicalizations.py)."""


def unary(name: str, what: str, function: Callable[[Array], Array]) -> Operator:
    """Define a quantized function of one tensor from its function of float32."""

    def define(
        numbers: Any,
        x: Operand,
        scale: Operand,
        zero_point: Operand,
        output_scale: Operand,
        output_zero_point: Operand,
    ) -> Value:
        """{what} of a quantized tensor's real values, quantized again.

        Parameters
        ----------
        x : tensor
            Any shape; int8, uint8 or int16.
        scale, zero_point, output_scale, output_zero_point : float32, int32
            Scalars.

        Notes
        -----
        The kernel looks the results up in a table that is computed at compile time: each value is
        dequantized to float32, passed to NumPy's function, and quantized (Relay's
        `create_integer_lookup_table`). A NaN becomes the largest value.
        """
        low, high = checks.limits(numbers.dtype)
        real = (np.arange(low, high + 1) - zero_point).astype(np.float32) * scale
        steps = half_away(function(real) / output_scale) + output_zero_point.astype(np.float32)
        return saturate(steps, numbers.dtype)[x - low]

    define.__doc__ = str(define.__doc__).format(what=what)
    FUNCTIONS[name] = function
    return operator(name=name, dtypes=NARROW, tabulated=True)(define)


unary("tanh", "Hyperbolic tangent", np.tanh)
unary("exp", "Exponential", np.exp)
unary("sqrt", "Square root", np.sqrt)
unary("rsqrt", "Reciprocal of the square root", lambda x: 1 / np.sqrt(x))
unary("erf", "Error function", _erf)
unary("sigmoid", "Logistic function", lambda x: 1 / (1 + np.exp(-x)))
unary("silu", "Sigmoid linear unit, ``x * sigmoid(x)``,", lambda x: x / (1 + np.exp(-x)))
unary("gelu", "Gaussian error linear unit", _gelu)
unary("gelu_tanh", "Gaussian error linear unit with tanh for the error function", _gelu_tanh)
unary("hardswish", "Hard swish, ``x * clip(x + 3, 0, 6) / 6``,", _hardswish)
unary("log", "Logarithm", np.log)
unary("abs", "Absolute value", np.abs)


@operator(dtypes=NARROW, relay={"alpha": 0.25}, tabulated=True)
def leaky_relu(
    numbers: Any,
    x: Operand,
    alpha: float,
    input_scale: Operand,
    input_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> Value:
    """Multiply the negative values of a quantized tensor by `alpha`, and quantize again.

    Other parameters and results are as in `tanh`; `alpha` lies between -2**30 and 2**30.

    Notes
    -----
    Relay's `QnnLeakyReluCanonicalize` converts the values to q, with the result's scale and zero
    point z, and those below the input's zero point to ``alpha * q + (1 - alpha) * z``, both
    products in fixed point, rounded upward whatever the configuration says for the first step.
    """
    source, target = (input_scale, input_zero_point), (output_scale, output_zero_point)
    way = config.resolve("qnn.leaky_relu")
    q = rescale_or_keep(numbers, x, source, target, way, "x")

    def scaled(value: Array, factor: float) -> Value:
        ratio = np.asarray(math.fabs(factor))
        return numbers.times(value if factor >= 0 else -value, ratio, "UPWARD")

    below = scaled(q, alpha) + scaled(output_zero_point, 1 - alpha)
    return saturate(np.where(x < input_zero_point, below, q), numbers.dtype)


def _shares(x: Any, scale: Array, axis: int, np: Any, number: Any, emit: Any) -> Any:
    """Compute softmax in 128ths with int64, using the operators of NumPy or of Relax."""
    if scale > 1:
        what, fix = f"scale is {scale}; it must be at most 1", "compute softmax in floats"
        raise InputError(what, where="qnn.softmax, operand scale", fix=fix)
    one = number(int(1 / max(float(scale), 2.0**-31) + 0.5))  # the integer for the real 1
    x = emit(x - np.max(x, axis=axis, keepdims=True))
    power = emit(x + x // number(2) - x // number(16))  # log2(e) is about 1 + 1/2 - 1/16
    whole = emit(np.minimum(-power // one, number(20)))
    deepest = np.max(whole, axis=axis, keepdims=True)
    line = (power + whole * one) // number(2) + one
    exps = emit(np.left_shift(line, deepest - whole))
    total = np.sum(exps, axis=axis, keepdims=True)
    return emit(number(1 << 30) // total * exps // number(1 << 23))


def _softmax(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given = CallOperands(builder, call)
    known = OPERATORS["softmax"].known(given, "int8")

    def number(value: int) -> relax.Expr:
        return relax.const(value, "int64")

    x = builder.emit(relax.op.astype(given["x"], "int64") - number(int(known["zero_point"])))
    axis = given.attributes["axis"]
    parts = _shares(x, known["scale"], axis, relax.op, number, builder.emit)
    source = relax.const(np.float32(1 / 128)), relax.const(0, "int32")
    whole = builder.emit(relax.op.astype(parts, "int32"))
    return requantize.call(whole, *source, *call.args[3:])


@operator(dtypes=("int8",), kernel=_softmax)
def softmax(
    numbers: Any,
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
) -> Value:
    """Softmax of a quantized tensor along an axis, in integer arithmetic.

    Parameters
    ----------
    x : tensor
        Any shape, int8.
    scale : float32
        A scalar, at most 1.
    zero_point, output_scale, output_zero_point : int32, float32, int32
        Scalars.
    axis : int
        The axis along which the results sum to 1.

    Notes
    -----
    Relay's `QnnSoftmaxCanonicalize` is algorithm 1 of Lin et al., "I-ViT" (arXiv 2207.01405): it
    computes 2**x for e**x by shifts, with a linear approximation for the fraction. Relay calls it
    experimental and inaccurate, because a probability can be wrong by 0.1, so
    `FakeQuantizationToInteger` leaves softmax in float. Sums have 64 bits here and do not wrap.
    """
    parts = _shares(x - zero_point, scale, axis, np, np.int64, np.asarray)
    source, target = (np.float32(1 / 128), np.int64(0)), (output_scale, output_zero_point)
    way = config.resolve("qnn.requantize")
    return rescale(numbers, wrap(parts), source, target, way, "int8", "x")
