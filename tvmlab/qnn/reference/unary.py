"""Functions of one quantized tensor, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ...ir import checks
from ...ir.checks import Array
from .. import config
from .fixed_point import fixed_point_multiplier, multiply_upward
from .scaling import channels, dequantize, quantize, requantize, requantize_or_widen, saturate

Unary = Callable[[Array, npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, npt.ArrayLike], Array]


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.ravel()], x.dtype).reshape(x.shape)


def _hardswish(x: Array) -> Array:
    cut: Array = x * np.clip(x + np.float32(3), 0, 6) / np.float32(6)
    return cut


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "erf": _erf,
    "exp": np.exp,
    "hardswish": _hardswish,
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
}
"""The functions of `tvmlab.qnn.op` on float32, as Relay computes its tables
(python/tvm/relay/qnn/op/legalizations.py and canonicalizations.py)."""

TABLES = ("int8", "uint8")
"""Dtypes whose 256 values are looked up in a table."""


def lookup_table(
    name: str,
    dtype: str,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
) -> Array:
    """Tabulate a function of a quantized tensor of 8 bits.

    Parameters
    ----------
    name : str
        One of `FUNCTIONS`.
    dtype : str
        int8 or uint8.
    scale, zero_point, output_scale, output_zero_point : array_like
        One value.

    Returns
    -------
    numpy.ndarray
        Shape (256,), in `dtype`: the result for each value, by its bits read as uint8.

    Raises
    ------
    tvmlab.errors.InputError
        If a scale or zero point is none.

    Notes
    -----
    Relay's `create_integer_lookup_table` (python/tvm/relay/qnn/op/canonicalizations.py): each value
    is dequantized to float32, put through NumPy's function, and quantized. A result that is no
    number, as of the root of a negative one, becomes the largest value.
    """
    values = np.arange(256, dtype=np.uint8).view(dtype)
    return _through_floats(name, values, scale, zero_point, output_scale, output_zero_point)


def _through_floats(
    name: str,
    x: Array,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
) -> Array:
    call = f"qnn.{name}"
    scale = checks.scale(scale, call, "scale")
    zero = checks.zero_point(zero_point, call, "zero_point", x.dtype.name)
    out_scale = checks.scale(output_scale, call, "output_scale")
    out_zero = checks.zero_point(output_zero_point, call, "output_zero_point", x.dtype.name)
    with np.errstate(all="ignore"):
        real = FUNCTIONS[name](dequantize(x, scale, zero))
    return quantize(real, out_scale, out_zero, out_dtype=x.dtype.name)


def _unary(name: str, what: str) -> Unary:
    def compute(
        x: Array,
        scale: npt.ArrayLike,
        zero_point: npt.ArrayLike,
        output_scale: npt.ArrayLike,
        output_zero_point: npt.ArrayLike,
    ) -> Array:
        x = np.asarray(x)
        quantized = (scale, zero_point, output_scale, output_zero_point)
        if x.dtype.name in TABLES:
            found: Array = lookup_table(name, x.dtype.name, *quantized)[x.view(np.uint8)]
            return found
        return _through_floats(name, x, *quantized)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"""{what} of a quantized tensor's real values, quantized again.

    Parameters
    ----------
    x : numpy.ndarray
        Any shape; int8 and uint8 (by `lookup_table`), int16 and int32 (value by value).
    scale, zero_point, output_scale, output_zero_point : array_like
        One value.

    Returns
    -------
    numpy.ndarray
        The shape and dtype of `x`.

    Raises
    ------
    tvmlab.errors.InputError
        If a scale or zero point is none.
    """
    return compute


tanh = _unary("tanh", "Hyperbolic tangent")
exp = _unary("exp", "Exponential")
sqrt = _unary("sqrt", "Square root")
rsqrt = _unary("rsqrt", "Reciprocal of the square root")
erf = _unary("erf", "Error function")
sigmoid = _unary("sigmoid", "Logistic function")
hardswish = _unary("hardswish", "Hard swish, ``x * clip(x + 3, 0, 6) / 6``,")
log = _unary("log", "Logarithm")
abs = _unary("abs", "Absolute value")


def leaky_relu(
    x: Array,
    alpha: float,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
) -> Array:
    """Multiply negative values of a quantized tensor by `alpha`, and quantize again.

    Parameters, result and errors are as in `tanh`; `alpha` lies between -2**30 and 2**30.

    Notes
    -----
    Relay's `QnnLeakyReluCanonicalize` (src/relay/qnn/op/leaky_relu.cc): the values q are brought to
    the result's scale and zero point z, and those below the input's zero point become
    ``alpha * q + (1 - alpha) * z``, both products in fixed point, upward, whatever the
    configuration says for the first step.
    """
    call, x = "qnn.leaky_relu", np.asarray(x)
    in_scale = checks.scale(scale, call, "scale")
    in_zero = checks.zero_point(zero_point, call, "zero_point", x.dtype.name)
    out_scale = checks.scale(output_scale, call, "output_scale")
    out_zero = checks.zero_point(output_zero_point, call, "output_zero_point", x.dtype.name)
    way = config.resolve(call)
    q = requantize_or_widen(x, in_scale, in_zero, out_scale, out_zero, -1, way)
    below = scaled(q, alpha) + scaled(out_zero, 1 - alpha)
    return saturate(np.where(x.astype(np.int64) < in_zero, below, q), x.dtype.name)


def scaled(x: Array, factor: float) -> Array:
    """Multiply integers by a number of either sign, rounding half-way cases upward."""
    multiplier, shift = fixed_point_multiplier(math.fabs(factor))
    signed = multiplier if factor >= 0 else -multiplier
    return multiply_upward(x, np.asarray(signed, np.int64), np.asarray(shift, np.int64))


def softmax(
    x: Array,
    scale: npt.ArrayLike,
    zero_point: npt.ArrayLike,
    output_scale: npt.ArrayLike,
    output_zero_point: npt.ArrayLike,
    axis: int = -1,
) -> Array:
    """Softmax of a quantized tensor along an axis, in integers alone.

    Parameters
    ----------
    x : numpy.ndarray
        Any shape, int8.
    scale : array_like
        One value, at most 1.
    zero_point, output_scale, output_zero_point : array_like
        One value.
    axis : int
        An axis of `x`.

    Returns
    -------
    numpy.ndarray
        The shape of `x`, int8.

    Raises
    ------
    tvmlab.errors.InputError
        If an operand or the axis does not fit.

    Notes
    -----
    Relay's `QnnSoftmaxCanonicalize` (src/relay/qnn/op/softmax.cc), algorithm 1 of Lin et al.,
    "I-ViT" (arXiv 2207.01405): 2**x for e**x by shifts, its fraction taken as a line. Relay calls
    it experimental and inaccurate; it is. Here the sums are of 64 bits, so that many classes do
    not wrap.
    """
    call, x = "qnn.softmax", np.asarray(x)
    channels(call, x, axis)
    in_scale = checks.scale(scale, call, "scale")
    if x.dtype != np.int8 or in_scale > 1:
        raise InputError(
            f"x has dtype {x.dtype} and scale {in_scale}; int8 and a scale of at most 1 are needed",
            where=f"{call}, operand x",
            fix="leave softmax in floats, between dequantize and quantize",
        )
    zero = checks.zero_point(zero_point, call, "zero_point", "int8")
    out_scale = checks.scale(output_scale, call, "output_scale")
    out_zero = checks.zero_point(output_zero_point, call, "output_zero_point", "int8")
    shifted = x.astype(np.int64) - zero
    shifted = shifted - shifted.max(axis, keepdims=True)
    one = math.floor(float(np.float32(1) / in_scale) + 0.5)
    # log2(e) is about 1 + 1/2 - 1/16.
    power = shifted + (shifted >> 1) - (shifted >> 4)
    whole = np.clip(-power // one, 0, 20)
    line = ((power + whole * one) >> 1) + one
    exps = line << (whole.max(axis, keepdims=True) - whole)
    parts = ((1 << 30) // exps.sum(axis, keepdims=True) * exps) >> 23
    return requantize(parts.astype(np.int32), np.float32(1 / 128), 0, out_scale, out_zero)
