"""A match in the graph: its operator, and the clips and changes of scale around it.

The numbers are made from the scales as `tvmlab.qnn.arithmetic` makes them, so that the machine
computes the same bits.
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
from ...qnn.operands import CallOperands
from ...qnn.rescale import multiplier
from ..isa import Dtype, Rounding
from ..layers import Layer, Pair, Rescale, Side, Value

Array = npt.NDArray[Any]
NARROW = ("int8", "uint8")
INT32 = checks.limits("int32")
#: No change of scale: sums as they are.
SUMS = Rescale(Rounding.NONE, np.zeros(0, np.int32), np.zeros(0, np.int32), 0, *INT32)
#: The names of a layer's inputs and output until they are known.
INPUTS, OUTPUT = ("0", "1"), "out"
_BUILDER = relax.BlockBuilder()


class Unsupported(CompileError):
    """The machine does not take an operator; the message says why, and what helps."""

    def reason(self) -> str:
        """Return both in one line."""
        return f"{self.what}; {self.fix}" if self.fix else self.what


def check(holds: object, what: str, fix: str = "") -> None:
    """Raise `Unsupported` unless something holds."""
    if not holds:
        raise Unsupported(what, fix=fix)


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


@dataclass(frozen=True)
class Composite:
    """A match: the call that it is about, and what stands behind the call.

    That is a bias, clips of the sums to `sum_ends`, a requantize, clips of the result to `ends`:
    each may be missing.
    """

    root: relax.Expr
    call: relax.Call
    bias: relax.Call | None
    requantize: relax.Call | None
    ends: Pair
    sum_ends: Pair

    @classmethod
    def of(cls, root: relax.Expr) -> Composite:
        """Take a match apart."""
        call, ends = clips(root, tensor(root, "the result")[0])
        requantize, bias, sum_ends = None, None, ends
        if is_call(call, "relax.qnn.requantize"):
            requantize = call
            call, sum_ends = clips(call.args[0], "int32")
        if is_call(call, "relax.relay.nn.bias_add"):
            bias, call = call, call.args[0]
        return cls(root, call, bias, requantize, ends, sum_ends)

    def name(self) -> str:
        """Name the operator."""
        return str(self.call.op.name).removeprefix("relax.")

    def bare(self) -> CallOperands:
        """Return the operands, where nothing stands behind the operator but clips."""
        plain = self.requantize is None and self.bias is None
        check(plain, f"qnn.requantize goes with no {self.name()}")
        return operands(self.call)


def operands(call: relax.Call) -> CallOperands:
    """Return the operands of a quantized operator by name."""
    return CallOperands(_BUILDER, call)


def value(name: str, expr: relax.Expr, layout: str) -> Value:
    """Describe a tensor of the machine's dtypes and dimensions."""
    dtype, shape = tensor(expr, "a value")
    layouts = {1: "C", 2: "NC", 4: layout}
    limits(dtype)
    known = len(shape) in layouts
    check(known, f"a value has {len(shape)} dimensions; the machine knows 1, 2 and 4")
    check(0 not in shape, "a value is empty")
    return Value(name, Dtype[dtype], shape, layouts[len(shape)])


def tensor(expr: relax.Expr, what: str) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor whose sizes are known."""
    ty = expr.ty
    check(isinstance(ty, relax.TensorType), f"{what} is no tensor")
    sizes = list(ty.shape.values) if isinstance(ty.shape, relax.ShapeExpr) else []
    known = [int(size) for size in sizes if isinstance(size, (int, tirx.IntImm))]
    fixed = len(known) == ty.ndim
    check(fixed, f"{what} has a size that is not known before it runs", "fix its shape")
    return str(ty.dtype), tuple(known)


def limits(dtype: str) -> Pair:
    """Return the least and the greatest number of a dtype that the machine computes with."""
    known = dtype in (*NARROW, "int32")
    check(known, f"it computes in {dtype}; the machine computes in int8, uint8 and int32")
    return checks.limits(dtype)


def constant(expr: relax.Expr, what: str) -> Array:
    """Return the value of a constant."""
    if isinstance(expr, ir.GenericConst):
        found: Array = expr.value.numpy()
        return found
    by, fix = "", "bind parameters (BindParams) and fold constants"
    if is_call(expr, "relax.qnn.quantize", "relax.quantize"):
        by = f": {str(expr.op.name).removeprefix('relax.')} computes it"
        fix = "run QnnQuantizeConstFold first"
    raise Unsupported(f"{what} is no constant{by}", fix=fix)


def scalar(expr: relax.Expr, what: str) -> float:
    """Return a number that is written in the graph, as a constant or as an operand of its own."""
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return float(expr.value)
    found = constant(expr, what)
    check(found.size == 1, f"{what} has {found.size} values", "the machine clips to one")
    return float(found.ravel()[0])


def clips(expr: relax.Expr, dtype: str) -> tuple[relax.Expr, Pair]:
    """Take off all clips around an expression; return what is clipped, and to which ends."""
    low, high = limits(dtype)
    while is_call(expr, "relax.clip", "relax.maximum", "relax.minimum"):
        name = str(expr.op.name).removeprefix("relax.")
        ends = [scalar(end, f"an operand of {name}") for end in expr.args[1:]]
        whole = all(end == int(end) for end in ends if np.isfinite(end))
        check(whole, f"integers are clipped to {ends}, no whole numbers")
        if name != "minimum":
            low = max(low, int(max(ends[0], low)))
        if name != "maximum":
            high = min(high, int(min(ends[-1], high)))
        expr = expr.args[0]
    check(low <= high, f"no number lies between {low} and {high}, to which it clips")
    return expr, (low, high)


_WAYS = {
    ("UPWARD", "int64"): Rounding.UPWARD,
    ("TONEAREST", "int64"): Rounding.TONEAREST,
    ("TFLITE", "int64"): Rounding.TFLITE,
    ("TFLITE", "float64"): Rounding.TFLITE_FLOAT64,
    ("ONNX", "float32"): Rounding.ONNX,
}


def way(given: CallOperands) -> Rounding:
    """Return how the vector unit rounds as a call does."""
    a = given.attributes
    found = config.resolve(given.name, a["rounding"], a.get("compute_dtype", config.UNSET))
    pair = (found.rounding, found.compute_dtype)
    how = f"{given.name} in {pair[1]} with rounding {pair[0]}"
    ways = ", ".join(f"{a} in {b}" for a, b in _WAYS)
    check(pair in _WAYS, f"the vector unit does not compute {how}", f"it has {ways}")
    return _WAYS[pair]


def scales(given: CallOperands) -> tuple[Array, Array, Array, Array]:
    """Return a requantize's scales and zero points: the input's may differ by channel."""
    dtype, out_dtype = given.dtype("data"), str(given.call.ty.dtype)
    count = given.channels("data", int(given.attributes["axis"]))
    return (
        given.scale("input_scale", count, wide=True),
        given.zero_point("input_zero_point", dtype, count),
        given.scale("output_scale"),
        given.zero_point("output_zero_point", out_dtype),
    )


def rescale(call: relax.Call, channels: int, axis: int) -> tuple[Rescale, int]:
    """Read a requantize of sums; return it without the zero point of the sums, and that."""
    given = operands(call)
    dtype, shape = tensor(call, "the result of qnn.requantize")
    found, zero, out_scale, out_zero = scales(given)
    check(not zero.ndim, "qnn.requantize takes another zero point off each channel")
    own = int(given.attributes["axis"]) % max(len(shape), 1)
    by_channel = not found.ndim or (own == axis and found.size == channels)
    check(by_channel, f"qnn.requantize has a scale for each place along axis {own}, no channel's")
    numbers = _multipliers(multiplier(found, out_scale), way(given))
    return Rescale(*numbers, int(out_zero), *checks.limits(dtype)), int(zero)


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
    near = np.isfinite(ratio).all()
    check(near, "the scales are so far apart that their ratio is no float32")
    return ratio


def side(zero: Any, rounding: Rounding, ratio: Array | None) -> Side:
    """Make one side of an addition, with one scale; it is rescaled in integers."""
    integers = rounding not in (Rounding.ONNX, Rounding.TFLITE_FLOAT64) or ratio is None
    check(integers, f"the vector unit rescales sides in integers, not by {rounding.name}")
    if ratio is None:
        return Side(int(zero), Rounding.NONE, 0, 0)
    factor, shift = fixed_point_multipliers(ratio)
    return Side(int(zero), rounding, int(factor), int(shift))


def bits(value: Array) -> int:
    """Return the bits of a float32 as an int32."""
    return int(np.float32(value).view(np.int32))
