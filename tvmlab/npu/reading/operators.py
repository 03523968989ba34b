"""Read layers from the graph: a main operator, with the clips and rescaling around it.

Zero points of products are folded into the bias: ``sum((x - zx) * (w - zw))`` equals
``sum(x * (w - zw))`` plus a constant per output channel, even at borders, because padding is zx.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir, relax, tirx

from ...errors import CompileError
from ...ir import dialect, windows
from ...ir.graph import is_call
from ...qnn import checks, config, frameworks
from ...qnn.fixed_point import fixed_point_multipliers
from ...qnn.operands import CallOperands
from ...qnn.rescale import multiplier
from ..isa import INT32, Dtype, PoolKind, Rounding
from ..layers import Add, Convolution, Layer, Mean, Pair, Pool, Rescale, Side, Sides, Value, View

Array = npt.NDArray[Any]
NARROW = ("int8", "uint8")
#: No rescaling: the result is the int32 sums.
SUMS = Rescale(Rounding.NONE, np.zeros(0, np.int32), np.zeros(0, np.int32), 0, *INT32)
#: Placeholder names of a layer's inputs and output.
INPUTS, OUTPUT = ("0", "1"), "out"
_BUILDER = relax.BlockBuilder()


class Unsupported(CompileError):
    """The machine cannot compute an operator."""


def check(holds: object, what: str, fix: str = "") -> None:
    """Raise `Unsupported` unless a condition holds."""
    if not holds:
        raise Unsupported(what, fix=fix)


@dataclass(frozen=True)
class LayerMatch:
    """A layer, its input and output expressions, and the layout of its images if it has any."""

    layer: Layer
    inputs: tuple[relax.Expr, ...]
    output: relax.Expr
    layout: str | None = None

    def values(self, layout: str) -> dict[str, Value]:
        """Describe the layer's inputs and output, by `INPUTS` and `OUTPUT`."""
        pairs = zip((*INPUTS[: len(self.inputs)], OUTPUT), (*self.inputs, self.output), strict=True)
        return {name: value(name, expr, layout) for name, expr in pairs}


@dataclass(frozen=True)
class Composite:
    """A match: the call, a bias, clips to `sum_ends`, a requantize and clips to `ends`."""

    root: relax.Expr
    call: relax.Call
    bias: relax.Call | None
    requantize: relax.Call | None
    ends: Pair
    sum_ends: Pair

    @classmethod
    def of(cls, root: relax.Expr) -> Composite:
        """Split a match into its parts."""
        call, ends = clips(root, tensor(root, "the result")[0])
        requantize, bias, sum_ends = None, None, ends
        if is_call(call, "relax.qnn.requantize"):
            requantize = call
            call, sum_ends = clips(call.args[0], "int32")
        if is_call(call, "relax.relay.nn.bias_add"):
            bias, call = call, call.args[0]
        return cls(root, call, bias, requantize, ends, sum_ends)

    def name(self) -> str:
        """Return the main operator's name."""
        return str(self.call.op.name).removeprefix("relax.")

    def bare(self) -> CallOperands:
        """Return the operands of an operator without bias and requantize."""
        plain = self.requantize is None and self.bias is None
        check(plain, f"no pattern requantizes the result of {self.name()}")
        return operands(self.call)


def operands(call: relax.Call) -> CallOperands:
    """Return a quantized operator's operands by name."""
    return CallOperands(_BUILDER, call)


def value(name: str, expr: relax.Expr, layout: str) -> Value:
    """Describe a tensor whose dtype and number of dimensions the machine supports."""
    dtype, shape = tensor(expr, "a value")
    layouts = {1: "C", 2: "NC", 4: layout}
    limits(dtype)
    known = len(shape) in layouts
    check(known, f"a value has {len(shape)} dimensions; the machine supports 1, 2 and 4")
    check(0 not in shape, "a value is empty")
    return Value(name, Dtype[dtype], shape, layouts[len(shape)])


def tensor(expr: relax.Expr, what: str) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of a tensor of static shape."""
    ty = expr.ty
    check(isinstance(ty, relax.TensorType), f"{what} is not a tensor")
    sizes = ty.shape.values[:] if isinstance(ty.shape, relax.ShapeExpr) else []
    known = [int(size) for size in sizes if isinstance(size, (int, tirx.IntImm))]
    fixed = len(known) == ty.ndim
    check(fixed, f"{what} has a size that is not known before it runs", "fix its shape")
    return str(ty.dtype), tuple(known)


def limits(dtype: str) -> Pair:
    """Return the range of a dtype that the machine computes with."""
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
    raise Unsupported(f"{what} is not constant{by}", fix=fix)


def scalar(expr: relax.Expr, what: str) -> float:
    """Return a number in the graph: a constant, or an immediate operand."""
    if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):
        return float(expr.value)
    found = constant(expr, what)
    check(found.size == 1, f"{what} has {found.size} values", "the machine clips to one")
    return float(found.ravel()[0])


def clips(expr: relax.Expr, dtype: str) -> tuple[relax.Expr, Pair]:
    """Remove all clips around an expression; return the inner expression and the range."""
    low, high = limits(dtype)
    while is_call(expr, "relax.clip", "relax.maximum", "relax.minimum"):
        name = str(expr.op.name).removeprefix("relax.")
        ends = [scalar(end, f"an operand of {name}") for end in expr.args[1:]]
        whole = all(end == int(end) for end in ends if np.isfinite(end))
        check(whole, f"integers are clipped to {ends}, which are not whole numbers")
        if name != "minimum":
            low = max(low, int(max(ends[0], low)))
        if name != "maximum":
            high = min(high, int(min(ends[-1], high)))
        expr = expr.args[0]
    check(low <= high, f"it clips to {low}..{high}, which is an empty range")
    return expr, (low, high)


_WAYS = {
    ("UPWARD", "int64"): Rounding.UPWARD,
    ("TONEAREST", "int64"): Rounding.TONEAREST,
    ("TFLITE", "int64"): Rounding.TFLITE,
    ("TFLITE", "float64"): Rounding.TFLITE_FLOAT64,
    ("ONNX", "float32"): Rounding.ONNX,
}


def way(given: CallOperands) -> Rounding:
    """Return the vector unit's rounding mode for a call."""
    a = given.attributes
    found = config.resolve(given.name, a["rounding"], a.get("compute_dtype", config.UNSET))
    pair = (found.rounding, found.compute_dtype)
    how = f"{given.name} in {pair[1]} with rounding {pair[0]}"
    ways = ", ".join(f"{a} in {b}" for a, b in _WAYS)
    check(pair in _WAYS, f"the vector unit does not compute {how}", f"it has {ways}")
    return _WAYS[pair]


def scales(given: CallOperands) -> tuple[Array, Array, Array, Array]:
    """Return a requantize's scales and zero points; the input's can be per channel."""
    dtype, out_dtype = given.dtype("data"), str(given.call.ty.dtype)
    count = given.channels("data", int(given.attributes["axis"]))
    return (
        given.scale("input_scale", count, wide=True),
        given.zero_point("input_zero_point", dtype, count),
        given.scale("output_scale"),
        given.zero_point("output_zero_point", out_dtype),
    )


def rescale(call: relax.Call, channels: int, axis: int) -> tuple[Rescale, int]:
    """Read a requantize of sums; return it without the sums' zero point, and that zero point."""
    given = operands(call)
    dtype, shape = tensor(call, "the result of qnn.requantize")
    found, zero, out_scale, out_zero = scales(given)
    check(not zero.ndim, "qnn.requantize subtracts a zero point per channel")
    own = int(given.attributes["axis"]) % max(len(shape), 1)
    by_channel = not found.ndim or (own == axis and found.size == channels)
    check(by_channel, f"qnn.requantize has scales along axis {own}, which is not the channels'")
    ratio, rounding = multiplier(found, out_scale), way(given)
    factors, shifts = SUMS.multipliers, SUMS.shifts
    if rounding is Rounding.TFLITE_FLOAT64:  # saturates, unlike `NONE`
        factors = np.atleast_1d(np.float64(1) if ratio is None else ratio)
    elif ratio is None:
        rounding = Rounding.NONE
    elif rounding is Rounding.ONNX:
        with np.errstate(over="ignore"):
            factors = np.atleast_1d(finite(ratio.astype(np.float32)))
    else:
        both = fixed_point_multipliers(np.atleast_1d(ratio))
        factors, shifts = (one.astype(np.int32) for one in both)
    return Rescale(rounding, factors, shifts, int(out_zero), *checks.limits(dtype)), int(zero)


def finite(ratio: Array) -> Array:
    """Check that ratios of scales are finite in float32."""
    near = np.isfinite(ratio).all()
    check(near, "the scales are so far apart that their ratio does not fit in float32")
    return ratio


def side(zero: Any, rounding: Rounding, ratio: Array | None) -> Side:
    """Make one side of an addition with one scale, rescaled in integers."""
    if ratio is None:
        return Side(int(zero), Rounding.NONE, 0, 0)
    integers = rounding not in (Rounding.ONNX, Rounding.TFLITE_FLOAT64)
    check(integers, f"the vector unit rescales sides in integers, not by {rounding.name}")
    return Side(int(zero), rounding, *map(int, fixed_point_multipliers(ratio)))


def bits(value: Array) -> int:
    """Return the bits of a float32 as an int32."""
    return int(np.float32(value).view(np.int32))


#: The largest side of a window that the machine supports, and the largest step.
MOST_KERNEL, MOST_STRIDE = 16, 8

_PLAIN = Side(0, Rounding.NONE, 0, 0)

_Window = tuple[Pair, Pair, Pair]


def convolution(match: Composite) -> LayerMatch:
    """Read a convolution: an optional pad, qnn.conv2d, bias_add, clips, requantize, clips."""
    given = operands(match.call)
    a = given.attributes
    layout, order = _layout(a["data_layout"], a["out_layout"]), str(a["kernel_layout"])
    check(sorted(order) == sorted("OIHW"), f"the weights' layout is {order}", "convert to OIHW")
    data, pads = _padded(given, layout)
    channels = _data(data, 4)[layout.index("C")]
    weights = constant(match.call.args[1], "weight")
    weights = weights.transpose([order.index(letter) for letter in "HWIO"])
    *kernel, _, outer = weights.shape
    depthwise = by_channel(match.call)
    groups = f"{channels} channels become {outer} in {a['groups']} groups"
    fix = "the machine supports one group, or one group per channel with one output each"
    check(int(a["groups"]) == 1 or depthwise, groups, fix)
    window = _, strides, _ = _window(kernel, a, given.name)
    name = f"{'depthwise' if depthwise else 'conv2d'} {kernel[0]}x{kernel[1]} {channels}->{outer}"
    if max(strides) > 1:
        name += f" /{strides[0]}" if strides[0] == strides[1] else f" /{strides[0]}x{strides[1]}"
    weights = weights[:, :, 0] if depthwise else weights
    made = _product(match, name, weights, layout.index("C"), window, pads)
    return LayerMatch(made, (data,), match.root, layout)


def dense(match: Composite) -> LayerMatch:
    """Read a matrix product: qnn.dense, bias_add, clips, requantize, clips."""
    data = match.call.args[0]
    _data(data, 2)
    weights = constant(match.call.args[1], "weight").T[None, None]
    name, one = f"dense {weights.shape[2]}->{weights.shape[3]}", (1, 1)
    made = _product(match, name, weights, 1, (one, one, one), (0, 0, 0, 0))
    return LayerMatch(made, (data,), match.root)


def by_channel(call: relax.Call) -> bool:
    """Return whether a qnn.conv2d is depthwise, with one output per channel."""
    shape = getattr(call.args[1].ty, "shape", None)
    sizes = shape.values[:] if isinstance(shape, relax.ShapeExpr) else []
    size = dict(zip(str(call.attrs["kernel_layout"]), sizes, strict=False))
    return bool(size.get("I") == 1 and size.get("O") == int(call.attrs["groups"]))


def _layout(layout: str, result: str) -> str:
    known = layout in ("NCHW", "NHWC") and result in ("", layout)
    check(known, f"the layout is {layout}, the result's {result}", "convert both to NCHW or NHWC")
    return str(layout)


def _data(data: relax.Expr, ndim: int) -> tuple[int, ...]:
    dtype, shape = tensor(data, "the data")
    check(dtype in NARROW, f"the data are {dtype}; the array multiplies int8 and uint8")
    check(len(shape) == ndim, f"the data have {len(shape)} dimensions; {ndim} are needed")
    return shape


def _padded(given: CallOperands, layout: str) -> tuple[relax.Expr, Sides]:
    data, (top, left, bottom, right) = given["data"], _pads(given.attributes, given.name)
    if not is_call(data, "relax.nn.pad", "relax.relay.nn.pad"):
        return data, (top, left, bottom, right)
    widths = [int(width) for width in np.ravel(dialect.plain(data.attrs["pad_width"]))]
    mode = str(data.attrs["pad_mode"])
    if is_call(data, "relax.nn.pad"):
        value = float(data.attrs["pad_value"])
    else:  # as in Relay: the value is an operand
        value = scalar(data.args[1], "the pad's value")
    zero = given.zero_point("input_zero_point", given.dtype("data"))
    how = f"with {value:g}" if mode == "constant" else f"by {mode}"
    zeros = mode == "constant" and value == zero
    check(zeros, f"nn.pad pads {how}; the machine pads with the zero point, {zero}")
    by_axis = dict(zip(layout, zip(widths[::2], widths[1::2], strict=True), strict=True))
    inside = not any((*by_axis["N"], *by_axis["C"])) and min(widths) >= 0
    check(inside, "nn.pad pads other dimensions than rows and columns, or cuts")
    (up, down), (before, after) = by_axis["H"], by_axis["W"]
    return data.args[0], (top + up, left + before, bottom + down, right + after)


def _pads(a: Any, call: str) -> Sides:
    (top, bottom), (left, right) = windows.padding(list(map(int, a["padding"])), 2, call)
    return top, left, bottom, right


def _steps(a: Any, name: str, call: str) -> list[int]:
    return windows.steps(list(map(int, a[name])), 2, call, name)


def _product(
    match: Composite, name: str, weights: Array, axis: int, window: _Window, pads: Sides
) -> Convolution:
    given, channels, dtype = operands(match.call), weights.shape[-1], match.call.ty.dtype
    check(dtype == "int32", f"the sums are {dtype}; the accumulators are int32")
    zero = int(given.zero_point("input_zero_point", given.dtype("data")))
    zeros = given.zero_point("kernel_zero_point", weights.dtype.name, channels)
    weights = weights.astype(np.int32) - zeros.astype(np.int32)
    least, most = int(weights.min()), int(weights.max())
    kind = "int16" if weights.ndim == 3 and not (least >= -128 and most <= 127) else "int8"
    low, high = checks.limits(kind)
    found = f"weights less their zero point go from {least} to {most}; the machine holds {kind}"
    check(low <= least and most <= high, found, "quantize the weights with zero point 0")
    weights = np.ascontiguousarray(weights, kind)
    bias = np.zeros(channels, np.int64)
    if match.bias is not None:
        bias += constant(match.bias.args[1], "the bias")
        along = int(match.bias.attrs["axis"]) % len(tensor(match.bias, "the sums")[1])
        check(along == axis, "nn.bias_add adds along another axis than the channels'")
    bias -= zero * weights.sum(tuple(range(weights.ndim - 1)), dtype=np.int64)
    scale = SUMS
    if match.requantize is not None:
        scale, off = rescale(match.requantize, channels, axis)
        check(not off, "qnn.requantize subtracts a zero point from the sums", "adjust the bias")
        scale = scale.clipped(*match.ends)
    values = weights, bias.astype(np.int32), zero
    return Convolution(name, INPUTS[:1], OUTPUT, *values, *window[1:], pads, *match.sum_ends, scale)


def _window(kernel: Sequence[int], a: Any, call: str) -> _Window:
    (kh, kw), (sh, sw), (dh, dw) = kernel, _steps(a, "strides", call), _steps(a, "dilation", call)
    found = f"a window of {kh}x{kw} by steps of {[sh, sw]} with dilation {[dh, dw]}"
    most = f"windows are at most {MOST_KERNEL} a side, steps and dilation {MOST_STRIDE}"
    check(max(kh, kw) <= MOST_KERNEL and max(sh, sw, dh, dw) <= MOST_STRIDE, found, most)
    return (kh, kw), (sh, sw), (dh, dw)


def add(match: Composite) -> LayerMatch:
    """Read qnn.add and the clips behind it."""
    given = match.bare()
    dtype, rounding = tensor(match.root, "the result")[0], way(given)
    check(dtype in NARROW, f"qnn.add adds {dtype}; the vector unit adds int8 and uint8")
    parts = ("lhs", "rhs", "output")
    *factors, last = (given.scale(f"{part}_scale") for part in parts)
    *zeros, out_zero = (given.zero_point(f"{part}_zero_point", dtype) for part in parts)
    check(rounding is not Rounding.TFLITE_FLOAT64, "the vector unit does not add in float64")
    shift, out = 0, Side(int(out_zero), Rounding.NONE, 0, 0)
    ratios: list[Any]
    if rounding is Rounding.ONNX:  # zero points are in the constant part of the sums
        ratios = frameworks.ratios(factors, last)
        common = finite(frameworks.fixed_part(ratios, zeros, out_zero))
        out = Side(0, rounding, bits(common), 0)
        sides = [Side(0, rounding, bits(ratio), 0) for ratio in ratios]
        return _addition(match, sides, shift, out)
    if rounding is Rounding.TFLITE:  # both sides relative to twice the larger scale
        wide = [np.float64(scale) for scale in factors]
        shift, twice = frameworks.ADD_SHIFTS[dtype], 2 * max(wide)
        ratios = [np.asarray(scale / twice) for scale in wide]
        out = side(out_zero, rounding, np.asarray(twice / ((1 << shift) * np.float64(last))))
    else:  # each side is rescaled to the result's scale before the sum
        reach = sum(float(scale) / float(last) for scale in factors) * 512
        check(reach <= INT32[1], "the scales are so far apart that sums can overflow int32")
        ratios = [multiplier(scale, last) for scale in factors]
    sides = [side(zero, rounding, ratio) for zero, ratio in zip(zeros, ratios, strict=True)]
    return _addition(match, sides, shift, out)


def integer_add(match: Composite) -> LayerMatch:
    """Read PyTorch's addition: int32 operands, some requantized to int32; requantize; clips."""
    check(match.call.ty.dtype == "int32", "expected an addition of int32")
    sides, inputs = zip(*map(_side, match.call.args), strict=True)
    if match.requantize is None:
        return _addition(match, sides, 0, _PLAIN, inputs)
    check(match.sum_ends == INT32, "sums are clipped before qnn.requantize, not after it")
    return _addition(match, sides, 0, _rescaled(match.requantize, True), inputs)


def _side(expr: relax.Expr) -> tuple[Side, relax.Expr]:
    if not is_call(expr, "relax.qnn.requantize") or str(expr.args[0].ty.dtype) not in NARROW:
        return _PLAIN, expr
    return _rescaled(expr, False), expr.args[0]


def _rescaled(call: relax.Call, sums: bool) -> Side:
    given = operands(call)
    scale, zero, out_scale, out_zero = scales(given)
    kept, wide = (out_zero, zero) if sums else (zero, out_zero)
    plain = not (scale.ndim or zero.ndim or wide)
    check(plain, "an addition has a scale or zero point by channel, or one in int32 that is not 0")
    return side(kept, way(given), multiplier(scale, out_scale))


def _addition(
    match: Composite, sides: Any, shift: int, out: Side, inputs: tuple[relax.Expr, ...] = ()
) -> LayerMatch:
    inputs = inputs or tuple(match.call.args[:2])
    for one, name in zip(inputs, ("lhs", "rhs"), strict=True):
        constant = isinstance(one, ir.GenericConst)
        check(not constant, f"{name} is a constant", "the machine adds what it computes")
    lhs, rhs = (list(tensor(one, "a side")[1]) for one in inputs)
    check(lhs == rhs, f"it adds {lhs} and {rhs}; the machine does not broadcast")
    ends = match.sum_ends if match.requantize is None else match.ends
    name = f"add {'x'.join(map(str, lhs[1:]))}"
    made = Add(name, INPUTS, OUTPUT, tuple(sides), shift, out, *ends)
    return LayerMatch(made, inputs, match.root)


def max_pool(match: Composite) -> LayerMatch:
    """Read nn.max_pool2d."""
    return _pool(match, match.call.attrs, PoolKind.MAX, (0, 0, 0, 0), False)


def average_pool(match: Composite) -> LayerMatch:
    """Read qnn.avg_pool2d with the parameters that the reference averages with."""
    given = match.bare()
    a, dtype = given.attributes, given.dtype("data")
    ratio = [given.scale(f"{part}_scale") for part in ("input", "output")]
    zeros = [int(given.zero_point(f"{part}_zero_point", dtype)) for part in ("input", "output")]
    rounding = config.resolve(given.name, a["rounding"]).rounding
    kind, numbers = PoolKind.AVERAGE, (0, 0)
    if rounding == "ONNX":
        kind, numbers = PoolKind.AVERAGE_ONNX, (bits(ratio[0]), bits(ratio[1]))
    elif frameworks.averages_once(rounding, dtype, ratio, math.prod(map(int, a["pool_size"]))):
        kind = PoolKind.AVERAGE_TFLITE
        numbers = frameworks.average_parts(float(ratio[0]) / float(ratio[1]), dtype)
    else:
        one = ratio[0] == ratio[1] and zeros[0] == zeros[1]
        fix = "the vector unit supports TFLITE and ONNX"
        check(one, f"it averages between two scales with rounding {rounding}", fix)
        kind = PoolKind.AVERAGE_HALF if rounding == "TFLITE" else kind
    return _pool(match, a, kind, (*zeros, *numbers), bool(a["count_include_pad"]))


def _pool(match: Composite, a: Any, kind: PoolKind, numbers: Any, count_pad: bool) -> LayerMatch:
    data, what = match.call.args[0], match.name().removeprefix("nn.").removeprefix("qnn.")
    dtype, shape = tensor(data, "the data")
    check(dtype in NARROW, f"it pools {dtype}; the vector unit pools int8 and uint8")
    check(match.root.same_as(match.call), f"an operator follows {what}")
    layout = _layout(a["layout"], a["out_layout"])
    kernel = _steps(a, "pool_size", what)
    window, pads = _window(kernel, a, what), _pads(a, what)
    name = f"{what} {kernel[0]}x{kernel[1]} {shape[layout.index('C')]}"
    made = Pool(name, INPUTS[:1], OUTPUT, kind, *window, pads, count_pad, *numbers)
    return LayerMatch(made, (data,), match.root, layout)


def mean(match: Composite) -> LayerMatch:
    """Read a sum over images: an optional ReLU, the sum, clips, requantize, clips."""
    call = match.call
    check(call.ty.dtype == "int32", "expected a sum of int32")
    check(match.sum_ends == INT32, "the sums are clipped; the vector unit clips their average")
    data, (least, most) = clips(call.args[0], "int32")
    if is_call(data, "relax.astype"):
        data = data.args[0]
    dtype, shape = tensor(data, "the data")
    ends = limits(dtype)
    check(most >= ends[1], f"its input is clipped at {most}; the vector unit clips only from below")
    axes = tuple(sorted(int(axis) % 4 for axis in call.attrs.axis or ()))
    layouts: dict[tuple[int, ...], str] = {(2, 3): "NCHW", (1, 2): "NHWC"}
    images = len(shape) == 4 and axes in layouts
    check(images, "it has to sum over the rows and columns of images, and over no other axis")
    layout = layouts[axes]
    size = dict(zip(layout, shape, strict=True))
    scale, start = SUMS, 0
    if match.requantize is not None:
        axis = layout.index("C") if len(tensor(call, "the sums")[1]) == 4 else 1
        scale, off = rescale(match.requantize, size["C"], axis)
        start, scale = -off, scale.clipped(*match.ends)
    reach = max(abs(max(end, least)) for end in ends) * size["H"] * size["W"]
    small = not start or reach + abs(start) <= INT32[1]
    check(small, "qnn.requantize subtracts a zero point from sums that can overflow int32")
    name = f"mean {size['H']}x{size['W']} {size['C']}"
    made = Mean(name, INPUTS[:1], OUTPUT, max(least, ends[0]), start, scale)
    return LayerMatch(made, (data,), match.root, layout)


def view(match: Composite) -> LayerMatch:
    """Read a reshape between images of one pixel and matrix rows."""
    data = match.call.args[0]
    (_, before), (_, after) = tensor(data, "the data"), tensor(match.root, "the result")
    check(not isinstance(data, ir.GenericConst), "it reshapes a constant", "fold constants")
    check(match.root.same_as(match.call), "an operator follows the reshape")
    image, row = (before, after) if len(before) == 4 else (after, before)
    layouts = [
        layout
        for layout, pixel in (("NCHW", image[2:]), ("NHWC", image[1:3]))
        if len(image) == 4 and pixel == (1, 1) and row == (image[0], math.prod(image[1:]))
    ]
    found = f"it reshapes {list(before)} to {list(after)}, which moves numbers between channels"
    fix = "the machine reshapes only images of one pixel to rows, and back"
    check(layouts or before == after, found, fix)
    layout = layouts[0] if len(layouts) == 1 and before != after else None
    return LayerMatch(View("reshape", INPUTS[:1], OUTPUT), (data,), match.root, layout)
