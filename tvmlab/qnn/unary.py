"""Quantized functions of one tensor; most are one row of the table below.

The operators are Relay's (src/relay/qnn/op/leaky_relu.cc, and the functions that
python/tvm/relay/qnn/op/canonicalizations.py looks up, TVM 0.18).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir import checks
from ..ir.checks import Array
from . import config
from .numbers import Value, half_away, saturate
from .operator import Operand, Operator, operator
from .rescale import rescale_or_keep

_NARROW = ("int8", "uint8", "int16")


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.ravel()], x.dtype).reshape(x.shape)


def _hardswish(x: Array) -> Array:
    return np.asarray(x * np.clip(x + np.float32(3), 0, 6) / np.float32(6))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {}
"""The functions of `tvmlab.qnn.op` on float32, as Relay computes its tables
(python/tvm/relay/qnn/op/legalizations.py and canonicalizations.py)."""


def unary(name: str, what: str, function: Callable[[Array], Array]) -> Operator:
    """Define a quantized function of one tensor by its function of float32."""

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
        The results are looked up in a table that is computed at compile time: each value is
        dequantized to float32, put through NumPy's function, and quantized (Relay's
        `create_integer_lookup_table`). A result that is no number becomes the largest value.
        """
        low, high = checks.limits(numbers.dtype)
        real = (np.arange(low, high + 1) - zero_point).astype(np.float32) * scale
        steps = half_away(function(real) / output_scale) + output_zero_point.astype(np.float32)
        return saturate(steps, numbers.dtype)[x - low]

    define.__doc__ = str(define.__doc__).format(what=what)
    FUNCTIONS[name] = function
    return operator(name=name, dtypes=_NARROW, tabulated=True)(define)


unary("tanh", "Hyperbolic tangent", np.tanh)
unary("exp", "Exponential", np.exp)
unary("sqrt", "Square root", np.sqrt)
unary("rsqrt", "Reciprocal of the square root", lambda x: 1 / np.sqrt(x))
unary("erf", "Error function", _erf)
unary("sigmoid", "Logistic function", lambda x: 1 / (1 + np.exp(-x)))
unary("hardswish", "Hard swish, ``x * clip(x + 3, 0, 6) / 6``,", _hardswish)
unary("log", "Logarithm", np.log)
unary("abs", "Absolute value", np.abs)


@operator(dtypes=_NARROW, relay={"alpha": 0.25}, tabulated=True)
def leaky_relu(
    numbers: Any,
    x: Operand,
    alpha: float,
    input_scale: Operand,
    input_zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
) -> Value:
    """Multiply negative values of a quantized tensor by `alpha`, and quantize again.

    Other parameters and results are as in `tanh`; `alpha` lies between -2**30 and 2**30.

    Notes
    -----
    Relay's `QnnLeakyReluCanonicalize`: the values q are brought to the result's scale and zero
    point z, and those below the input's zero point become ``alpha * q + (1 - alpha) * z``, both
    products in fixed point, upward, whatever the configuration says for the first step.
    """
    source, target = (input_scale, input_zero_point), (output_scale, output_zero_point)
    way = config.resolve("qnn.leaky_relu")
    q = rescale_or_keep(numbers, x, source, target, way, "x")

    def scaled(value: Array, factor: float) -> Value:
        ratio = np.asarray(math.fabs(factor))
        return numbers.times(value if factor >= 0 else -value, ratio, "UPWARD")

    below = scaled(q, alpha) + scaled(output_zero_point, 1 - alpha)
    return saturate(np.where(x < input_zero_point, below, q), numbers.dtype)
