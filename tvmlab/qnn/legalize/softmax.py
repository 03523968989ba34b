"""`softmax` as a kernel of integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from ...errors import InputError
from .. import config
from .operands import Given, Row, call_te
from .scale import Scaling

__all__ = ["softmax"]

# The reference's: parts are of 30 bits, and 23 of them are dropped; no exponent is beyond 20.
_BITS, _DROPPED, _MOST = 30, 23, 20
_ONE_AT_MOST = 1 << 40


def softmax(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.softmax`; the steps are those of `tvmlab.qnn.arithmetic.softmax`."""
    given = Given(builder, call)
    dtype, shape = given.dtype("x"), given.shape("x")
    axis = given.axis("x", given.attributes["axis"])
    scale = given.scale("scale")
    zero = int(given.zero_point("zero_point", dtype))
    one = math.floor(float(np.float32(1) / scale) + 0.5)
    if dtype != "int8" or scale > 1 or one > _ONE_AT_MOST:
        raise InputError(
            f"x has dtype {dtype} and scale {scale}; int8 and a scale of at most 1 are needed",
            where="qnn.softmax, operand x",
            fix="leave softmax in floats, between dequantize and quantize",
        )
    scaling = Scaling(
        np.asarray(1 / 128, np.float32),
        Row(0, dtype="int32"),
        given.scale("output_scale"),
        Row(given.zero_point("output_zero_point", "int8"), dtype="int32"),
        "int32",
        "int8",
        config.resolve("qnn.requantize"),
    )
    reduced = [1 if i == axis else size for i, size in enumerate(shape)]
    length = shape[axis] if shape else 1

    def over(index: Any, k: Any) -> list[Any]:
        return [k if i == axis else at for i, at in enumerate(index)]

    def compute(x: te.Tensor) -> te.Tensor:
        def reduce(function: Any, value: Any, name: str) -> te.Tensor:
            k = te.reduce_axis((0, length), "k")
            return te.compute(reduced, lambda *i: function(value(*over(i, k)), axis=k), name=name)

        def first(*index: Any) -> list[Any]:
            return over(index, 0)

        largest = reduce(te.max, lambda *i: x(*i).astype("int64") - zero, "largest")

        def power(*index: Any) -> tirx.PrimExpr:
            shifted = x(*index).astype("int64") - zero - largest(*first(*index))
            # log2(e) is about 1 + 1/2 - 1/16.
            return shifted + (shifted >> 1) - (shifted >> 4)

        powers = te.compute(shape, power, name="power")

        def whole(*index: Any) -> tirx.PrimExpr:
            count = tirx.floordiv(tirx.const(0, "int64") - powers(*index), one)
            return tirx.min(count, _MOST)

        deepest = reduce(te.max, whole, "deepest")

        def exp(*index: Any) -> tirx.PrimExpr:
            count = whole(*index)
            line = ((powers(*index) + count * one) >> 1) + one
            return line << (deepest(*first(*index)) - count)

        exps = te.compute(shape, exp, name="exp")
        sums = reduce(te.sum, exps, "sum")

        def part(*index: Any) -> tirx.PrimExpr:
            share = tirx.floordiv(tirx.const(1 << _BITS, "int64"), sums(*first(*index)))
            number = (share * exps(*index)) >> _DROPPED
            return scaling.apply(number.astype("int32"), 0)

        return te.compute(shape, part, name="part")

    return call_te(builder, compute, [given["x"]], scaling.rows, "qnn_softmax")
