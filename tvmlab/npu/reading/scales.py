"""Constants, clips and changes of scale, as the machine's numbers.

The numbers are those of `tvmlab.qnn.arithmetic`: multipliers of 31 bits and shifts, or floats, made
from the scales as the reference makes them, so that the machine gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from ..isa import Dtype, Rounding
from ..layers import Layer, Rescale, Side, Value

__all__ = ["LayerMatch", "Unsupported"]

Array = npt.NDArray[Any]
NARROW = ("int8", "uint8")
INT32 = checks.limits("int32")
#: No change of scale: sums as they are.
SUMS = Rescale(Rounding.NONE, np.zeros(0, np.int32), np.zeros(0, np.int32), 0, *INT32)
#: The names of a layer's inputs and output until they are known.
INPUTS, OUTPUT = ("0", "1"), "out"


class Unsupported(CompileError):
    """The machine does not take an operator; the words say why, and what would help."""

    def reason(self) -> str:
        """Return both in one line."""
        return f"{self.what}; {self.fix}" if self.fix else self.what


@dataclass(frozen=True)
class LayerMatch:
    """A layer, the expressions that it reads and makes, and the layout of its images if any."""

    layer: Layer
    inputs: tuple[relax.Expr, ...]
    output: relax.Expr
    layout: str | None = None

    def named(self, inputs: Sequence[str], output: str) -> Layer:
        """Return the layer with the names of its values."""
        return replace(self.layer, inputs=tuple(inputs), output=output)

    def values(self, layout: str) -> dict[str, Value]:
        """Describe what the layer reads and makes, by `INPUTS` and `OUTPUT`."""
        pairs = zip((*INPUTS[: len(self.inputs)], OUTPUT), (*self.inputs, self.output), strict=True)
        return {name: value(name, expr, layout) for name, expr in pairs}


def value(name: str, expr: relax.Expr, layout: str) -> Value:
    """Describe a tensor of the machine's dtypes and dimensions."""
    dtype, shape = tensor(expr, "a value")
    if dtype not in Dtype.__members__ or dtype == "int16":
        raise Unsupported(f"a value is of {dtype}; the machine computes with int8, uint8 and int32")
    layouts = {1: "C", 2: "NC", 4: layout}
    if len(shape) not in layouts:
        raise Unsupported(f"a value has {len(shape)} dimensions; the machine knows 1, 2 and 4")
    if 0 in shape:
        raise Unsupported("a value is empty")
    return Value(name, Dtype[dtype], shape, layouts[len(shape)])


def tensor(expr: relax.Expr, what: str) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor whose sizes are known."""
    ty = expr.ty
    if not isinstance(ty, relax.TensorType):
        raise Unsupported(f"{what} is no tensor")
    sizes = list(ty.shape.values) if isinstance(ty.shape, relax.ShapeExpr) else []
    known = [int(size) for size in sizes if isinstance(size, (int, tirx.IntImm))]
    if len(known) != ty.ndim:
        raise Unsupported(
            f"{what} has a size that is not known before it runs", fix="fix its shape"
        )
    return str(ty.dtype), tuple(known)


def constant(expr: relax.Expr, what: str) -> Array:
    """Return the value of a constant."""
    if isinstance(expr, ir.GenericConst):
        found: Array = expr.value.numpy()
        return found
    if is_call(expr, "relax.qnn.quantize", "relax.quantize"):
        by = str(expr.op.name).removeprefix("relax.")
        raise Unsupported(
            f"{what} is no constant: {by} computes it", fix="run QnnQuantizeConstFold first"
        )
    raise Unsupported(
        f"{what} is no constant", fix="bind parameters (BindParams) and fold constants"
    )


def scalar(expr: relax.Expr, what: str) -> float:
    """Return a number that is written in the graph, as a constant or as an operand of its own."""
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return float(expr.value)
    found = constant(expr, what)
    if found.size != 1:
        raise Unsupported(f"{what} has {found.size} values", fix="the machine clips to one")
    return float(found.ravel()[0])


def clips(expr: relax.Expr, dtype: str) -> tuple[relax.Expr, int, int]:
    """Take off all clips around an expression; return what is clipped, and to which ends."""
    if dtype not in (*NARROW, "int32"):
        raise Unsupported(f"it computes in {dtype}; the machine computes in int8, uint8 and int32")
    low, high = checks.limits(dtype)
    while is_call(expr, "relax.clip", "relax.maximum", "relax.minimum"):
        name = str(expr.op.name)
        what = f"an operand of {name.removeprefix('relax.')}"
        ends = [scalar(end, what) for end in expr.args[1:]]
        if any(end != int(end) for end in ends if np.isfinite(end)):
            raise Unsupported(f"integers are clipped to {ends}, no whole numbers")
        if name != "relax.minimum":
            low = max(low, int(max(ends[0], low)))
        if name != "relax.maximum":
            high = min(high, int(min(ends[-1], high)))
        expr = expr.args[0]
    if low > high:
        raise Unsupported(f"no number lies between {low} and {high}, to which it clips")
    return expr, low, high


def epilogue(root: relax.Expr) -> tuple[relax.Call | None, relax.Expr, tuple[int, int, int, int]]:
    """Take off clips, a requantize and clips behind sums.

    Return the requantize if there is one, the sums, and the ends of the result and of the sums.
    """
    dtype, _ = tensor(root, "the result")
    expr, low, high = clips(root, dtype)
    if not is_call(expr, "relax.qnn.requantize"):
        return None, expr, (*INT32, low, high)
    inner, sum_low, sum_high = clips(expr.args[0], "int32")
    return expr, inner, (low, high, sum_low, sum_high)


_WAYS = {
    ("UPWARD", "int64"): Rounding.UPWARD,
    ("TONEAREST", "int64"): Rounding.TONEAREST,
    ("TFLITE", "int64"): Rounding.TFLITE,
    ("TFLITE", "float64"): Rounding.TFLITE_FLOAT64,
    ("ONNX", "float32"): Rounding.ONNX,
}


def way(call: relax.Call) -> Rounding:
    """Return how the vector unit rounds as a call does."""
    name, a = str(call.op.name).removeprefix("relax."), call.attrs
    computed = str(a["compute_dtype"]) if "compute_dtype" in a else config.UNSET
    found = config.resolve(name, str(a["rounding"]), computed)
    pair = (found.rounding, found.compute_dtype)
    if pair not in _WAYS:
        raise Unsupported(
            f"the vector unit does not compute {name} in {pair[1]} with rounding {pair[0]}",
            fix="it has " + ", ".join(f"{a} in {b}" for a, b in _WAYS),
        )
    return _WAYS[pair]


def rescale(call: relax.Call, channels: int, axis: int) -> tuple[Rescale, int]:
    """Read a requantize of sums; return it without the zero point of the sums, and that."""
    dtype, shape = tensor(call, "the result of qnn.requantize")
    scales, zero, out_scale, out_zero = parameters(call, shape)
    if zero.ndim:
        raise Unsupported("qnn.requantize takes another zero point off each channel")
    own = int(call.attrs["axis"]) % max(len(shape), 1)
    if scales.ndim and (own != axis or scales.size != channels):
        raise Unsupported(
            f"qnn.requantize has a scale for each place along axis {own}",
            fix="the machine has one for each channel",
        )
    numbers = _multipliers(multiplier(scales, out_scale), way(call))
    return Rescale(*numbers, int(out_zero), *checks.limits(dtype)), int(zero)


def quantization(args: Sequence[relax.Expr], call: str, dtype: str, parts: Sequence[str]) -> Any:
    """Return the scales and the zero points of an operator, in pairs of its last operands."""
    names = [f"{part}_{what}" for part in parts for what in ("scale", "zero_point")]
    values = [constant(arg, f"{name} of {call}") for arg, name in zip(args, names, strict=True)]
    if any(value.size != 1 for value in values):
        raise Unsupported(f"{call} has a scale for each channel", fix="give one for each side")
    scales = [checks.scale(v, call, n) for v, n in zip(values[::2], names[::2], strict=True)]
    zeros = [
        checks.zero_point(v, call, n, dtype) for v, n in zip(values[1::2], names[1::2], strict=True)
    ]
    return scales, zeros


def parameters(call: relax.Call, shape: Sequence[int]) -> tuple[Array, Array, Array, Array]:
    """Return a requantize's four constants, checked by the reference."""
    name = "qnn.requantize"
    names = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")
    values = [
        constant(arg, f"{one} of {name}") for arg, one in zip(call.args[1:], names, strict=True)
    ]
    dtype, out_dtype = tensor(call.args[0], f"the data of {name}")[0], str(call.ty.dtype)
    if out_dtype not in (*NARROW, "int32"):
        raise Unsupported(
            f"qnn.requantize makes {out_dtype}; the vector unit makes 8 bits or int32"
        )
    if dtype not in (*NARROW, "int32"):
        raise Unsupported(f"qnn.requantize reads {dtype}; the vector unit reads 8 bits or int32")
    count = int(shape[int(call.attrs["axis"])]) if shape else 1
    return (
        checks.scale(values[0], name, names[0], count, wide=True),
        checks.zero_point(values[1], name, names[1], dtype, count),
        checks.scale(values[2], name, names[2]),
        checks.zero_point(values[3], name, names[3], out_dtype),
    )


def _multipliers(ratio: Array | None, rounding: Rounding) -> tuple[Rounding, Array, Array]:
    """Write ratios of scales as the vector unit reads them: a way, multipliers and shifts."""
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
    """Check that ratios are numbers of float32."""
    if not np.isfinite(ratio).all():
        raise Unsupported("the scales are so far apart that their ratio is no float32")
    return ratio


def side(zero: Any, rounding: Rounding, ratio: Array | None) -> Side:
    """Make one side of an addition, with one scale."""
    if ratio is None:
        return Side(int(zero), Rounding.NONE, 0, 0)
    factor, shift = fixed_point_multipliers(ratio)
    return Side(int(zero), rounding, int(factor), int(shift))


def bits(value: Array) -> int:
    """Return the bits of a float32 as an int32."""
    return int(np.float32(value).view(np.int32))
