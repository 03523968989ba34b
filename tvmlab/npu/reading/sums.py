"""Reading additions, and changes of scale on their own."""

from __future__ import annotations

import numpy as np
from tvm import ir, relax

from ...ir import checks
from ...ir.graph import is_call
from ...qnn import frameworks
from ...qnn.rescale import multiplier
from ..isa import Rounding
from ..layers import Add, Side
from .found import INPUTS, OUTPUT, Found
from .products import epilogue
from .scales import (
    INT32,
    NARROW,
    Array,
    Refusal,
    bits,
    clips,
    constant,
    finite,
    parameters,
    side,
    tensor,
    way,
)

__all__ = ["add", "integer_add", "lone"]

_PLAIN = Side(0, Rounding.NONE, 0, 0)


def add(root: relax.Expr) -> Found:
    """Read qnn.add, and clips behind it."""
    dtype, _ = tensor(root, "the result")
    call, low, high = clips(root, dtype)
    if not is_call(call, "relax.qnn.add"):
        raise Refusal("there is no qnn.add where one is looked for")
    if dtype not in NARROW:
        raise Refusal(f"qnn.add adds {dtype}; the vector unit adds int8 and uint8")
    inputs = _inputs(call.args[0], call.args[1])
    names = [
        f"{one}_{what}" for one in ("lhs", "rhs", "output") for what in ("scale", "zero_point")
    ]
    values = [constant(arg, f"{n} of qnn.add") for arg, n in zip(call.args[2:], names, strict=True)]
    if any(value.size != 1 for value in values):
        raise Refusal("qnn.add has a scale for each channel", fix="give one for each side")
    scales = [checks.scale(v, "qnn.add", n) for v, n in zip(values[::2], names[::2], strict=True)]
    zeros = [
        checks.zero_point(v, "qnn.add", n, dtype)
        for v, n in zip(values[1::2], names[1::2], strict=True)
    ]
    sides, left_shift, out = _ADDS[way(call)](scales, zeros, dtype, way(call))
    made = Add(f"add {_size(root)}", INPUTS, OUTPUT, sides, left_shift, out, low, high)
    return Found(made, inputs, root)


def integer_add(root: relax.Expr) -> Found:
    """Read an addition of int32 as PyTorch's networks have it.

    Both sides may be a requantize of 8 bits to int32, a requantize to 8 bits may follow, and clips.
    """
    outer, expr, (low, high, sum_low, sum_high) = epilogue(root)
    if not is_call(expr, "relax.add") or str(expr.ty.dtype) != "int32":
        raise Refusal("there is no addition of int32 where one is looked for")
    if (sum_low, sum_high) != INT32 and outer is not None:
        raise Refusal("sums are clipped before qnn.requantize; the vector unit clips after it")
    read = [_side(arg) for arg in expr.args]
    inputs = _inputs(read[0][1], read[1][1])
    out = _PLAIN
    if outer is None:
        low, high = sum_low, sum_high
    else:
        scale, zero, out_scale, out_zero = parameters(outer, tensor(outer, "the result")[1])
        if scale.ndim or zero.ndim or zero:
            raise Refusal("the sums' scale or zero point is not one, or the zero point not 0")
        made = side(int(out_zero), way(outer), multiplier(scale, out_scale))
        out = _integer(made)
    sides = (read[0][0], read[1][0])
    return Found(Add(f"add {_size(root)}", INPUTS, OUTPUT, sides, 0, out, low, high), inputs, root)


def lone(root: relax.Expr) -> Found:
    """Read a requantize of 8 bits, or a clip, with no sums before it.

    No entry of the table has it: adding one is an exercise.
    """
    dtype, shape = tensor(root, "the result")
    expr, low, high = clips(root, dtype)
    out = _PLAIN
    if is_call(expr, "relax.qnn.requantize"):
        scale, zero, out_scale, out_zero = parameters(expr, shape)
        if scale.ndim or zero.ndim:
            raise Refusal("qnn.requantize has a scale for each channel", fix="give one for all")
        first = side(int(zero), way(expr), multiplier(scale, out_scale))
        out = Side(int(out_zero), Rounding.NONE, 0, 0)
        expr = expr.args[0]
        _integer(first)
    elif expr.same_as(root):
        raise Refusal("no pattern takes it")
    else:
        first = _PLAIN
    made = Add(f"rescale {_size(root)}", INPUTS[:1], OUTPUT, (first,), 0, out, low, high)
    return Found(made, (expr,), root)


def _side(expr: relax.Expr) -> tuple[Side, relax.Expr]:
    """Read one side of an addition of int32: a requantize of 8 bits, or int32 as they are."""
    if not is_call(expr, "relax.qnn.requantize") or str(expr.args[0].ty.dtype) not in NARROW:
        return _PLAIN, expr
    scale, zero, out_scale, out_zero = parameters(expr, tensor(expr, "a side")[1])
    if scale.ndim or zero.ndim or out_zero:
        raise Refusal("a side's scale is not one, or its zero point in int32 not 0")
    return _integer(side(int(zero), way(expr), multiplier(scale, out_scale))), expr.args[0]


def _integer(made: Side) -> Side:
    """Insist on a way in integers."""
    if made.rounding in (Rounding.ONNX, Rounding.TFLITE_FLOAT64):
        raise Refusal(f"the vector unit rescales sides in integers, not by {made.rounding.name}")
    return made


def _inputs(*sides: relax.Expr) -> tuple[relax.Expr, ...]:
    """Insist that both sides are tensors of one shape that something computes."""
    for one, name in zip(sides, ("lhs", "rhs"), strict=True):
        if isinstance(one, ir.GenericConst):
            raise Refusal(f"{name} is a constant", fix="the machine adds what it computes")
    shapes = [tensor(one, "a side")[1] for one in sides]
    if shapes[0] != shapes[1]:
        raise Refusal(
            f"it adds {list(shapes[0])} and {list(shapes[1])}; the machine broadcasts nothing"
        )
    return sides


def _size(expr: relax.Expr) -> str:
    return "x".join(map(str, tensor(expr, "the result")[1][1:]))


def _tflite(
    scales: list[Array], zeros: list[Array], dtype: str, rounding: Rounding
) -> tuple[tuple[Side, ...], int, Side]:
    """`tvmlab.qnn.arithmetic.add`: both sides against twice the larger scale."""
    left, right, out = (np.float64(scale) for scale in scales)
    shift, twice = frameworks.ADD_SHIFTS[dtype], 2 * max(left, right)
    sides = tuple(
        side(int(zero), rounding, np.asarray(scale / twice))
        for zero, scale in zip(zeros, (left, right), strict=False)
    )
    return sides, shift, side(int(zeros[2]), rounding, np.asarray(twice / ((1 << shift) * out)))


def _onnx(
    scales: list[Array], zeros: list[Array], dtype: str, rounding: Rounding
) -> tuple[tuple[Side, ...], int, Side]:
    """`tvmlab.qnn.arithmetic.add`: zero points are in what sums have in common."""
    ratios = frameworks.ratios(scales[:2], scales[2])
    common = finite(frameworks.fixed_part(ratios, zeros[:2], zeros[2]))
    sides = tuple(Side(0, rounding, bits(ratio), 0) for ratio in ratios)
    return sides, 0, Side(0, rounding, bits(common), 0)


def _relay(
    scales: list[Array], zeros: list[Array], dtype: str, rounding: Rounding
) -> tuple[tuple[Side, ...], int, Side]:
    """Relay's: each side to the result's scale, then the sum."""
    reach = sum(float(scale) / float(scales[2]) for scale in scales[:2]) * 512
    if reach > INT32[1]:
        raise Refusal("the scales are so far apart that sums may not fit int32")
    sides = tuple(
        side(int(zero), rounding, multiplier(scale, scales[2]))
        for zero, scale in zip(zeros, scales[:2], strict=False)
    )
    return sides, 0, Side(int(zeros[2]), Rounding.NONE, 0, 0)


_ADDS = {
    Rounding.TFLITE: _tflite,
    Rounding.ONNX: _onnx,
    Rounding.UPWARD: _relay,
    Rounding.TONEAREST: _relay,
}
