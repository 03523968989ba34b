"""Quantized functions of one tensor; most are one row of the table below.

The operators are Relay's (src/relay/qnn/op: leaky_relu.cc, softmax.cc, and the functions that
python/tvm/relay/qnn/op/canonicalizations.py looks up, TVM 0.18).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from ..errors import InputError
from ..ir import checks
from ..ir.checks import Array
from . import config
from .numbers import Arrays, Value, half_away, saturate, where, wrap
from .operands import CallOperands
from .operator import OPERATORS, Operand, Operator, operator
from .rescale import dequantize, quantize, requantize, rescale, rescale_or_keep


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.ravel()], x.dtype).reshape(x.shape)


def _hardswish(x: Array) -> Array:
    return np.asarray(x * np.clip(x + np.float32(3), 0, 6) / np.float32(6))


def _relax_hardswish(x: relax.Expr) -> relax.Expr:
    three, six = (relax.const(value, "float32") for value in (3.0, 6.0))
    cut = relax.op.clip(relax.op.add(x, three), 0, 6)
    return relax.op.divide(relax.op.multiply(x, cut), six)


def _relax_rsqrt(x: relax.Expr) -> relax.Expr:
    return relax.op.divide(relax.const(1.0, "float32"), relax.op.sqrt(x))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {}
"""The functions of `tvmlab.qnn.op` on float32, as Relay computes its tables
(python/tvm/relay/qnn/op/legalizations.py and canonicalizations.py)."""


def unary(
    name: str,
    what: str,
    in_numpy: Callable[[Array], Array],
    in_relax: Callable[[relax.Expr], relax.Expr],
) -> Operator:
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
            Any shape; int8, uint8, int16 or int32.
        scale, zero_point, output_scale, output_zero_point : float32, int32
            Scalars.

        Raises
        ------
        tvmlab.errors.InputError, tvmlab.errors.ShapeError
            If an operand's dtype, shape or value does not fit; they name the operand.

        Notes
        -----
        The results of 8 and of 16 bits are looked up in a table that is computed at compile time:
        each value is dequantized to float32, put through NumPy's function, and quantized (Relay's
        `create_integer_lookup_table`). A result that is no number becomes the largest value. An
        int32 goes through Relax's function, so that the last bit in float32 is TVM's.
        """
        if numbers.dtype in ("int8", "uint8"):  # all values at once, in one order
            low, high = checks.limits(numbers.dtype)
            every = define(
                Arrays("int32", {}, {}), np.arange(low, high + 1), scale, zero_point,
                output_scale, output_zero_point,
            )  # fmt: skip
            return saturate(every, numbers.dtype)[x - low]
        real = in_numpy((x - zero_point).astype(np.float32) * scale)
        steps = half_away(real / output_scale) + output_zero_point.astype(np.float32)
        return saturate(steps, numbers.dtype)

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        given, dtype = CallOperands(builder, call), str(call.ty.dtype)
        known = row.known(given, dtype)
        if dtype != "int32":
            return row.looked_up(given, known)
        _, in_scale, zero, out_scale, out_zero = call.args
        real = in_relax(builder.emit(dequantize.call(call.args[0], in_scale, zero)))
        return quantize.call(builder.emit(real), out_scale, out_zero, out_dtype=dtype)

    define.__doc__ = str(define.__doc__).format(what=what)
    FUNCTIONS[name] = in_numpy
    row = operator(name=name, kernel=legalize)(define)
    return row


unary("tanh", "Hyperbolic tangent", np.tanh, relax.op.tanh)
unary("exp", "Exponential", np.exp, relax.op.exp)
unary("sqrt", "Square root", np.sqrt, relax.op.sqrt)
unary("rsqrt", "Reciprocal of the square root", lambda x: 1 / np.sqrt(x), _relax_rsqrt)
unary("erf", "Error function", _erf, relax.op.erf)
unary("sigmoid", "Logistic function", lambda x: 1 / (1 + np.exp(-x)), relax.op.sigmoid)
unary("hardswish", "Hard swish, ``x * clip(x + 3, 0, 6) / 6``,", _hardswish, _relax_hardswish)
unary("log", "Logarithm", np.log, relax.op.log)
unary("abs", "Absolute value", np.abs, relax.op.abs)


@operator(relay={"alpha": 0.25}, tabulated=True)
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

    Other parameters, results and errors are as in `tanh`; `alpha` lies between -2**30 and 2**30.

    Notes
    -----
    Relay's `QnnLeakyReluCanonicalize`: the values q are brought to the result's scale and zero
    point z, and those below the input's zero point become ``alpha * q + (1 - alpha) * z``, both
    products in fixed point, upward, whatever the configuration says for the first step.
    """
    source, target = (input_scale, input_zero_point), (output_scale, output_zero_point)
    way = config.resolve("qnn.leaky_relu")
    q = rescale_or_keep(numbers, x, source, target, way, "x")

    def scaled(n: Any, value: Any, factor: float) -> Value:
        return n.times(value if factor >= 0 else -value, np.asarray(math.fabs(factor)), "UPWARD")

    fixed = int(scaled(Arrays("", {}, {}), output_zero_point, 1 - alpha))
    below = scaled(numbers, q, alpha) + fixed
    return saturate(where(x < int(input_zero_point), below, q), numbers.dtype)


def _softmax(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given = CallOperands(builder, call)
    scale, axis = given.scale("scale"), given.attributes["axis"]
    zero = int(given.zero_point("zero_point", given.dtype("x")))
    row = OPERATORS["softmax"]
    row.known(given, "int8")
    one = _softmax_one(given.dtype("x"), scale)

    def emit(name: str, *operands: Any, **more: Any) -> relax.Expr:
        exprs = (o if isinstance(o, relax.Expr) else relax.const(o, "int64") for o in operands)
        return builder.emit(getattr(relax.op, name)(*exprs, **more))

    x = emit("astype", given["x"], dtype="int64")
    parts = emit("astype", _softmax_parts(emit, x, zero, one, axis), dtype="int32")
    constants = [relax.const(np.float32(1 / 128)), relax.const(0, "int32")]
    return requantize.call(parts, *constants, *call.args[3:])


def _in_numpy(name: str, *operands: Any, **more: Any) -> Any:
    names = {"left_shift": np.left_shift, "right_shift": np.right_shift}
    return (names.get(name) or getattr(np, name))(*operands, **more)


def _softmax_one(dtype: str, scale: Array) -> int:
    """Return the integer that is the real 1, or refuse what has none."""
    one = math.floor(float(np.float32(1) / scale) + 0.5)
    if dtype != "int8" or scale > 1 or one > 1 << 40:
        raise InputError(
            f"x has dtype {dtype} and scale {scale}; int8 and a scale of at most 1 are needed",
            where="qnn.softmax, operand x",
            fix="leave softmax in floats, between dequantize and quantize",
        )
    return one


def _softmax_parts(do: Callable[..., Any], x: Any, zero: int, one: int, axis: int) -> Any:
    """Compute softmax in 128ths of int64, with the operators of NumPy or of Relax."""
    x = do("subtract", x, zero)
    x = do("subtract", x, do("max", x, axis=axis, keepdims=True))
    # log2(e) is about 1 + 1/2 - 1/16.
    power = do("subtract", do("add", x, do("right_shift", x, 1)), do("right_shift", x, 4))
    whole = do("minimum", do("floor_divide", do("negative", power), one), 20)
    line = do("right_shift", do("add", power, do("multiply", whole, one)), 1)
    deepest = do("max", whole, axis=axis, keepdims=True)
    exps = do("left_shift", do("add", line, one), do("subtract", deepest, whole))
    total = do("sum", exps, axis=axis, keepdims=True)
    share = do("floor_divide", do("add", do("multiply", total, 0), 1 << 30), total)
    return do("right_shift", do("multiply", share, exps), 23)


@operator(kernel=_softmax)
def softmax(
    numbers: Any,
    x: Operand,
    scale: Operand,
    zero_point: Operand,
    output_scale: Operand,
    output_zero_point: Operand,
    axis: int = -1,
) -> Value:
    """Softmax of a quantized tensor along an axis, in integers alone.

    Parameters
    ----------
    x : tensor
        Any shape, int8.
    scale : float32
        A scalar, at most 1.
    zero_point, output_scale, output_zero_point : int32, float32, int32
        Scalars.
    axis : int
        Along which the results add up to 1.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand's dtype, shape or value does not fit; they name the operand.

    Notes
    -----
    Relay's `QnnSoftmaxCanonicalize`, algorithm 1 of Lin et al., "I-ViT" (arXiv 2207.01405): 2**x
    for e**x by shifts, its fraction taken as a line. Relay calls it experimental and inaccurate; it
    is. Here the sums are of 64 bits, so that many classes do not wrap.
    """
    one = _softmax_one(numbers.dtype, scale)
    parts = wrap(_softmax_parts(_in_numpy, x, int(zero_point), one, axis))
    source = np.asarray(1 / 128, np.float32), np.zeros((), np.int64)
    way = config.resolve("qnn.requantize")
    return rescale(numbers, parts, source, (output_scale, output_zero_point), way, "int8", "x")
