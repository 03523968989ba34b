"""Reading what the vector unit computes: additions, changes of scale, pooling, means, reshapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir, relax

from ...ir import checks, dialect, windows
from ...ir.graph import is_call
from ...qnn import config, frameworks
from ...qnn.rescale import multiplier
from ..isa import PoolKind, Rounding
from ..layers import Add, Mean, Pool, Side, View
from .products import check_window
from .scales import (
    INPUTS,
    INT32,
    NARROW,
    OUTPUT,
    SUMS,
    LayerMatch,
    Unsupported,
    bits,
    clips,
    epilogue,
    finite,
    parameters,
    quantization,
    rescale,
    side,
    tensor,
    way,
)

__all__ = ["add", "average_pool", "integer_add", "lone", "max_pool", "mean", "view"]

_PLAIN = Side(0, Rounding.NONE, 0, 0)


def add(root: relax.Expr) -> LayerMatch:
    """Read qnn.add, and clips behind it."""
    dtype, _ = tensor(root, "the result")
    call, low, high = clips(root, dtype)
    if not is_call(call, "relax.qnn.add"):
        raise Unsupported("there is no qnn.add where one is looked for")
    if dtype not in NARROW:
        raise Unsupported(f"qnn.add adds {dtype}; the vector unit adds int8 and uint8")
    inputs = _inputs(call.args[0], call.args[1])
    scales, zeros = quantization(call.args[2:], "qnn.add", dtype, ("lhs", "rhs", "output"))
    rounding = way(call)
    if rounding is Rounding.TFLITE_FLOAT64:
        raise Unsupported("the vector unit does not add in float64")
    if rounding is Rounding.ONNX:  # zero points are in what the sums have in common
        ratios = frameworks.ratios(scales[:2], scales[2])
        common = finite(frameworks.fixed_part(ratios, zeros[:2], zeros[2]))
        shift, out = 0, Side(0, rounding, bits(common), 0)
        sides = [Side(0, rounding, bits(ratio), 0) for ratio in ratios]
    elif rounding is Rounding.TFLITE:  # both sides against twice the larger scale
        left, right, last = (np.float64(scale) for scale in scales)
        shift, twice = frameworks.ADD_SHIFTS[dtype], 2 * max(left, right)
        pairs = zip(zeros, (left, right), strict=False)
        sides = [side(zero, rounding, np.asarray(scale / twice)) for zero, scale in pairs]
        out = side(zeros[2], rounding, np.asarray(twice / ((1 << shift) * last)))
    else:  # each side to the result's scale, then the sum
        reach = sum(float(scale) / float(scales[2]) for scale in scales[:2]) * 512
        if reach > INT32[1]:
            raise Unsupported("the scales are so far apart that sums may not fit int32")
        factors = [multiplier(scale, scales[2]) for scale in scales[:2]]
        sides = [side(zero, rounding, ratio) for zero, ratio in zip(zeros, factors, strict=False)]
        shift, out = 0, Side(int(zeros[2]), Rounding.NONE, 0, 0)
    made = Add(f"add {_size(root)}", INPUTS, OUTPUT, tuple(sides), shift, out, low, high)
    return LayerMatch(made, inputs, root)


def integer_add(root: relax.Expr) -> LayerMatch:
    """Read an addition of int32 as PyTorch's networks have it.

    Both sides may be a requantize of 8 bits to int32, a requantize to 8 bits may follow, and clips.
    """
    outer, expr, (low, high, sum_low, sum_high) = epilogue(root)
    if not is_call(expr, "relax.add") or str(expr.ty.dtype) != "int32":
        raise Unsupported("there is no addition of int32 where one is looked for")
    if (sum_low, sum_high) != INT32 and outer is not None:
        raise Unsupported("sums are clipped before qnn.requantize; the vector unit clips after it")
    (left, lhs), (right, rhs) = map(_side, expr.args)
    out = _PLAIN
    if outer is None:
        low, high = sum_low, sum_high
    else:
        scale, zero, out_scale, out_zero = parameters(outer, tensor(outer, "the result")[1])
        if scale.ndim or zero.ndim or zero:
            raise Unsupported("the sums' scale or zero point is not one, or the zero point not 0")
        out = _in_integers(side(out_zero, way(outer), multiplier(scale, out_scale)))
    made = Add(f"add {_size(root)}", INPUTS, OUTPUT, (left, right), 0, out, low, high)
    return LayerMatch(made, _inputs(lhs, rhs), root)


def lone(root: relax.Expr) -> LayerMatch:
    """Read a requantize of 8 bits, or a clip, with no sums before it.

    The table has no entry for it: adding one is an exercise.
    """
    dtype, shape = tensor(root, "the result")
    expr, low, high = clips(root, dtype)
    first = out = _PLAIN
    if is_call(expr, "relax.qnn.requantize"):
        scale, zero, out_scale, out_zero = parameters(expr, shape)
        if scale.ndim or zero.ndim:
            raise Unsupported("qnn.requantize has a scale for each channel", fix="give one for all")
        first = _in_integers(side(zero, way(expr), multiplier(scale, out_scale)))
        out = Side(int(out_zero), Rounding.NONE, 0, 0)
        expr = expr.args[0]
    elif expr.same_as(root):
        raise Unsupported("no pattern takes it")
    made = Add(f"rescale {_size(root)}", INPUTS[:1], OUTPUT, (first,), 0, out, low, high)
    return LayerMatch(made, (expr,), root)


def _side(expr: relax.Expr) -> tuple[Side, relax.Expr]:
    """Read one side of an addition of int32: a requantize of 8 bits, or int32 as they are."""
    if not is_call(expr, "relax.qnn.requantize") or str(expr.args[0].ty.dtype) not in NARROW:
        return _PLAIN, expr
    scale, zero, out_scale, out_zero = parameters(expr, tensor(expr, "a side")[1])
    if scale.ndim or zero.ndim or out_zero:
        raise Unsupported("a side's scale is not one, or its zero point in int32 not 0")
    return _in_integers(side(zero, way(expr), multiplier(scale, out_scale))), expr.args[0]


def _in_integers(made: Side) -> Side:
    """Check that a side is rescaled in integers."""
    if made.rounding in (Rounding.ONNX, Rounding.TFLITE_FLOAT64):
        raise Unsupported(
            f"the vector unit rescales sides in integers, not by {made.rounding.name}"
        )
    return made


def _inputs(*sides: relax.Expr) -> tuple[relax.Expr, ...]:
    """Check that both sides are computed tensors of one shape."""
    for one, name in zip(sides, ("lhs", "rhs"), strict=True):
        if isinstance(one, ir.GenericConst):
            raise Unsupported(f"{name} is a constant", fix="the machine adds what it computes")
    lhs, rhs = (list(tensor(one, "a side")[1]) for one in sides)
    if lhs != rhs:
        raise Unsupported(f"it adds {lhs} and {rhs}; the machine broadcasts nothing")
    return sides


def _size(expr: relax.Expr) -> str:
    return "x".join(map(str, tensor(expr, "the result")[1][1:]))


def max_pool(root: relax.Expr) -> LayerMatch:
    """Read nn.max_pool2d."""
    names = ("pool_size", "strides", "dilation", "padding", "layout", "out_layout")
    attributes = {name: getattr(root.attrs, name) for name in names}
    return _pool(root, "max_pool2d", attributes, PoolKind.MAX, (0, 0, 0, 0), False)


def average_pool(root: relax.Expr) -> LayerMatch:
    """Read qnn.avg_pool2d; the numbers are those that the reference averages with."""
    a, (dtype, _) = dialect.attributes(root), tensor(root.args[0], "the data")
    if dtype not in NARROW:
        raise Unsupported(f"it pools {dtype}; the vector unit pools int8 and uint8")
    call, count_pad = "qnn.avg_pool2d", bool(a["count_include_pad"])
    scales, zeros = quantization(root.args[1:], call, dtype, ("input", "output"))
    rounding = config.resolve(call, a["rounding"]).rounding
    taps, (in_zero, out_zero) = math.prod(int(size) for size in a["pool_size"]), map(int, zeros)
    kind, parts = PoolKind.AVERAGE, (0, 0)
    if rounding == "ONNX":
        kind, parts = PoolKind.AVERAGE_ONNX, (bits(scales[0]), bits(scales[1]))
    elif frameworks.averages_once(rounding, dtype, scales, taps):
        kind = PoolKind.AVERAGE_TFLITE
        parts = frameworks.average_parts(float(scales[0]) / float(scales[1]), dtype)
    elif scales[0] != scales[1] or in_zero != out_zero:
        raise Unsupported(
            f"it averages between two scales with rounding {rounding}",
            fix="the vector unit does that for TFLITE and ONNX",
        )
    elif rounding == "TFLITE":
        kind = PoolKind.AVERAGE_HALF
    return _pool(root, "avg_pool2d", a, kind, (in_zero, out_zero, *parts), count_pad)


def _pool(
    root: relax.Expr,
    what: str,
    a: dict[str, Any],
    kind: PoolKind,
    numbers: tuple[int, int, int, int],
    count_pad: bool,
) -> LayerMatch:
    data, (dtype, shape) = root.args[0], tensor(root.args[0], "the data")
    tensor(root, "the result")
    if dtype not in NARROW:
        raise Unsupported(f"it pools {dtype}; the vector unit pools int8 and uint8")
    layout = str(a["layout"])
    if layout not in ("NCHW", "NHWC") or str(a["out_layout"]) not in ("", layout):
        raise Unsupported(f"the layout is {layout}, of the result {a['out_layout']}")
    kernel, strides, dilation = (
        windows.steps([int(size) for size in a[name]], 2, what, name)
        for name in ("pool_size", "strides", "dilation")
    )
    window = check_window(kernel, strides, dilation)
    padding = windows.padding([int(size) for size in a["padding"]], 2, what)
    (top, bottom), (left, right) = padding
    channels = shape[layout.index("C")]
    name, pads = f"{what} {kernel[0]}x{kernel[1]} {channels}", (top, left, bottom, right)
    made = Pool(name, INPUTS[:1], OUTPUT, kind, *window, pads, count_pad, *numbers)
    return LayerMatch(made, (data,), root, layout)


def mean(root: relax.Expr) -> LayerMatch:
    """Read a sum over images: an optional rectifier, the sum, clips, requantize, clips."""
    requantize, call, (low, high, sum_low, sum_high) = epilogue(root)
    if not is_call(call, "relax.sum") or str(call.ty.dtype) != "int32":
        raise Unsupported("there is no sum of int32 where one is looked for")
    if (sum_low, sum_high) != INT32:
        raise Unsupported("the sums are clipped; the vector unit clips what it made of them")
    data, least, most = clips(call.args[0], "int32")
    if is_call(data, "relax.astype") and str(data.args[0].ty.dtype) in NARROW:
        data = data.args[0]
    dtype, shape = tensor(data, "the data")
    if is_call(data, "relax.astype"):
        kind = tensor(data.args[0], "the data")[0]
        raise Unsupported(f"it sums {kind}; the vector unit sums {', '.join(NARROW)} and int32")
    ends = checks.limits(dtype)
    if most < ends[1]:
        raise Unsupported(
            f"what it sums is clipped at {most}; the vector unit clips from below only"
        )
    layout = _images(call, shape)
    size = dict(zip(layout, shape, strict=True))
    scale, start = SUMS, 0
    if requantize is not None:
        axis = layout.index("C") if len(tensor(call, "the sums")[1]) == 4 else 1
        read, off = rescale(requantize, size["C"], axis)
        start, scale = -off, read.clipped(low, high)
    reach = max(abs(max(end, least)) for end in ends) * size["H"] * size["W"]
    if start and reach + abs(start) > INT32[1]:
        raise Unsupported("qnn.requantize takes a zero point off sums that may not fit int32")
    name = f"mean {size['H']}x{size['W']} {size['C']}"
    made = Mean(name, INPUTS[:1], OUTPUT, max(least, ends[0]), start, scale)
    return LayerMatch(made, (data,), root, layout)


def _images(call: relax.Call, shape: tuple[int, ...]) -> str:
    """Return the layout whose rows and columns a sum goes over."""
    if len(shape) == 4 and call.attrs.axis is not None:
        axes = sorted(int(axis) % 4 for axis in call.attrs.axis)
        for layout in ("NCHW", "NHWC"):
            if axes == [layout.index("H"), layout.index("W")]:
                return layout
    raise Unsupported("it does not sum over all rows and columns of images, and nothing else")


def view(root: relax.Expr) -> LayerMatch:
    """Read a reshape between images of one pixel and rows of a matrix."""
    data = root.args[0]
    (_, before), (_, after) = tensor(data, "the data"), tensor(root, "the result")
    if isinstance(data, ir.GenericConst):
        raise Unsupported("it reshapes a constant", fix="fold constants")
    layout = None
    if before != after:
        image, row = (before, after) if len(before) == 4 else (after, before)
        layouts = [
            layout
            for layout, pixel in (("NCHW", image[2:]), ("NHWC", image[1:3]))
            if len(image) == 4 and pixel == (1, 1) and row == (image[0], math.prod(image[1:]))
        ]
        if not layouts:
            raise Unsupported(
                f"it makes {list(after)} of {list(before)}, which moves numbers between channels",
                fix="the machine takes images of one pixel as rows, and back",
            )
        layout = layouts[0] if len(layouts) == 1 else None
    return LayerMatch(View("reshape", INPUTS[:1], OUTPUT), (data,), root, layout)
