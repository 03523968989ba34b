"""Constants, clips and changes of scale, as the machine's numbers.

The numbers are those of `tvmlab.qnn.arithmetic`: multipliers of 31 bits and shifts, or floats, made
from the scales as the reference makes them, so that the machine gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, relax, tirx

from ...errors import CompileError
from ...ir import checks
from ...ir.graph import is_call
from ...qnn import config
from ...qnn.fixed_point import fixed_point_multipliers
from ...qnn.rescale import multiplier
from ..isa import Rounding
from ..layers import Rescale, Side

__all__ = ["Refusal"]

Array = npt.NDArray[Any]
NARROW = ("int8", "uint8")
INT32 = checks.limits("int32")
#: No change of scale: sums as they are.
SUMS = Rescale(Rounding.NONE, np.zeros(0, np.int32), np.zeros(0, np.int32), 0, *INT32)


class Refusal(CompileError):
    """The machine does not take an operator; the words say why, and what would help."""

    def reason(self) -> str:
        """Give both in one line."""
        return f"{self.what}; {self.fix}" if self.fix else self.what


#: How the vector unit computes what the operators' attributes ask for.
WAYS = {
    ("UPWARD", "int64"): Rounding.UPWARD,
    ("TONEAREST", "int64"): Rounding.TONEAREST,
    ("TFLITE", "int64"): Rounding.TFLITE,
    ("TFLITE", "float64"): Rounding.TFLITE_FLOAT64,
    ("ONNX", "float32"): Rounding.ONNX,
}


def tensor(expr: relax.Expr, what: str) -> tuple[str, tuple[int, ...]]:
    """Give a tensor's dtype and shape.

    Raises
    ------
    Refusal
        If it is none, or a size is not known before it runs.
    """
    ty = expr.ty
    if not isinstance(ty, relax.TensorType):
        raise Refusal(f"{what} is no tensor")
    sizes = list(ty.shape.values) if isinstance(ty.shape, relax.ShapeExpr) else []
    known = [int(size) for size in sizes if isinstance(size, (int, tirx.IntImm))]
    if len(known) != ty.ndim:
        raise Refusal(f"{what} has a size that is not known before it runs", fix="fix its shape")
    return str(ty.dtype), tuple(known)


def constant(expr: relax.Expr, what: str) -> Array:
    """Give a constant's value.

    Raises
    ------
    Refusal
        If it is none.
    """
    if isinstance(expr, ir.GenericConst):
        found: Array = expr.value.numpy()
        return found
    if is_call(expr, "relax.qnn.quantize", "relax.quantize"):
        by = str(expr.op.name).removeprefix("relax.")
        raise Refusal(
            f"{what} is no constant: {by} computes it", fix="run QnnQuantizeConstFold first"
        )
    raise Refusal(f"{what} is no constant", fix="bind parameters (BindParams) and fold constants")


def scalar(expr: relax.Expr, what: str) -> float:
    """Give a number that is written in the graph, as a constant or as an operand of its own."""
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return float(expr.value)
    found = constant(expr, what)
    if found.size != 1:
        raise Refusal(f"{what} has {found.size} values", fix="the machine clips to one")
    return float(found.ravel()[0])


def clips(expr: relax.Expr, dtype: str) -> tuple[relax.Expr, int, int]:
    """Take off all clips around an expression.

    Returns
    -------
    tuple of (tvm.relax.Expr, int, int)
        What is clipped, and to what: the ends of `dtype` where nothing clips.

    Raises
    ------
    Refusal
        If the ends are no whole numbers, or none lies between them.
    """
    if dtype not in (*NARROW, "int32"):
        raise Refusal(f"it computes in {dtype}; the machine computes in int8, uint8 and int32")
    low, high = checks.limits(dtype)
    while is_call(expr, "relax.clip", "relax.maximum", "relax.minimum"):
        name = str(expr.op.name)
        what = f"an operand of {name.removeprefix('relax.')}"
        ends = [scalar(end, what) for end in expr.args[1:]]
        if any(end != int(end) for end in ends if np.isfinite(end)):
            raise Refusal(f"integers are clipped to {ends}, no whole numbers")
        if name != "relax.minimum":
            low = max(low, int(max(ends[0], low)))
        if name != "relax.maximum":
            high = min(high, int(min(ends[-1], high)))
        expr = expr.args[0]
    if low > high:
        raise Refusal(f"no number lies between {low} and {high}, to which it clips")
    return expr, low, high


def way(call: relax.Call) -> Rounding:
    """Give how a call rounds.

    Raises
    ------
    Refusal
        If the vector unit does not round so.
    """
    name, a = str(call.op.name).removeprefix("relax."), call.attrs
    computed = str(a["compute_dtype"]) if "compute_dtype" in a else config.UNSET
    found = config.resolve(name, str(a["rounding"]), computed)
    pair = (found.rounding, found.compute_dtype)
    if pair not in WAYS:
        raise Refusal(
            f"the vector unit does not compute {name} in {pair[1]} with rounding {pair[0]}",
            fix="it has " + ", ".join(f"{a} in {b}" for a, b in WAYS),
        )
    return WAYS[pair]


def rescale(call: relax.Call, channels: int, axis: int | None) -> tuple[Rescale, int]:
    """Read a requantize of sums.

    Parameters
    ----------
    call : tvm.relax.Call
        The requantize.
    channels : int
        How many the sums have.
    axis : int or None
        Along which axis; None takes one scale for all only.

    Returns
    -------
    tuple of (Rescale, int)
        The numbers, and the zero point that comes off the sums first.

    Raises
    ------
    Refusal
        If a scale or zero point is no constant, they lie along another axis, or the vector unit
        does not round so.
    """
    dtype, shape = tensor(call, "the result of qnn.requantize")
    scales, zero, out_scale, out_zero = parameters(call, shape)
    if zero.ndim:
        raise Refusal("qnn.requantize takes another zero point off each channel")
    own = int(call.attrs["axis"]) % max(len(shape), 1)
    if scales.ndim and (axis is None or own != axis or scales.size != channels):
        raise Refusal(
            f"qnn.requantize has a scale for each place along axis {own}",
            fix="the machine has one for each channel" if axis is not None else "give one for all",
        )
    rounding, ratio = way(call), multiplier(scales, out_scale)
    low, high = checks.limits(dtype)
    numbers = multipliers(ratio, rounding)
    return Rescale(*numbers, int(out_zero), low, high), int(zero)


def parameters(call: relax.Call, shape: Sequence[int]) -> tuple[Array, Array, Array, Array]:
    """Give a requantize's four constants, checked by the reference."""
    name = "qnn.requantize"
    names = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")
    values = [
        constant(arg, f"{one} of {name}") for arg, one in zip(call.args[1:], names, strict=True)
    ]
    dtype, _ = tensor(call.args[0], f"the data of {name}")
    out_dtype = str(call.ty.dtype)
    if out_dtype not in (*NARROW, "int32"):
        raise Refusal(f"qnn.requantize makes {out_dtype}; the vector unit makes 8 bits or int32")
    if dtype not in (*NARROW, "int32"):
        raise Refusal(f"qnn.requantize reads {dtype}; the vector unit reads 8 bits or int32")
    axis = int(call.attrs["axis"])
    count = int(shape[axis]) if shape else 1
    return (
        checks.scale(values[0], name, names[0], count, wide=True),
        checks.zero_point(values[1], name, names[1], dtype, count),
        checks.scale(values[2], name, names[2]),
        checks.zero_point(values[3], name, names[3], out_dtype),
    )


def multipliers(ratio: Array | None, rounding: Rounding) -> tuple[Rounding, Array, Array]:
    """Write ratios of scales as a way of the vector unit reads them.

    Parameters
    ----------
    ratio : numpy.ndarray or None
        Of `tvmlab.qnn.rescale.multiplier`.
    rounding : Rounding
        The way.

    Returns
    -------
    tuple of (Rounding, numpy.ndarray, numpy.ndarray)
        The way, multipliers and shifts, as in `Rescale`.
    """
    none = np.zeros(0, np.int32)
    if rounding is Rounding.TFLITE_FLOAT64:  # saturates, which `NONE` does not
        return rounding, np.atleast_1d(np.float64(1) if ratio is None else ratio), none
    if ratio is None:
        return Rounding.NONE, none, none
    if rounding is Rounding.ONNX:
        with np.errstate(over="ignore"):
            return rounding, np.atleast_1d(finite(ratio.astype(np.float32))), none
    factors, shifts = fixed_point_multipliers(np.atleast_1d(ratio))
    return rounding, factors.astype(np.int32), shifts.astype(np.int32)


def finite(ratio: Array) -> Array:
    """Insist that ratios are numbers of float32."""
    if not np.isfinite(ratio).all():
        raise Refusal("the scales are so far apart that their ratio is no float32")
    return ratio


def side(zero: int, rounding: Rounding, ratio: Array | None) -> Side:
    """Make one side of an addition, with one scale."""
    if ratio is None:
        return Side(zero, Rounding.NONE, 0, 0)
    factor, shift = fixed_point_multipliers(ratio)
    return Side(zero, rounding, int(factor), int(shift))


def bits(value: Array) -> int:
    """Give the bits of a float32 as an int32."""
    return int(np.float32(value).view(np.int32))
