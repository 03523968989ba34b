"""Reading what the vector unit computes: additions, pooling, means, reshapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import ir, relax

from ...ir import checks, windows
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
    Composite,
    LayerMatch,
    bits,
    check,
    clips,
    finite,
    operands,
    rescale,
    scales,
    side,
    tensor,
    way,
)

_PLAIN = Side(0, Rounding.NONE, 0, 0)


def add(match: Composite) -> LayerMatch:
    """Read qnn.add, and clips behind it."""
    given = match.bare()
    dtype, rounding = tensor(match.root, "the result")[0], way(given)
    check(dtype in NARROW, f"qnn.add adds {dtype}; the vector unit adds int8 and uint8")
    parts = ("lhs", "rhs", "output")
    *factors, last = (given.scale(f"{part}_scale") for part in parts)
    *zeros, out_zero = (given.zero_point(f"{part}_zero_point", dtype) for part in parts)
    check(rounding is not Rounding.TFLITE_FLOAT64, "the vector unit does not add in float64")
    shift, out = 0, Side(int(out_zero), Rounding.NONE, 0, 0)
    ratios: list[Any]
    if rounding is Rounding.ONNX:  # zero points are in what the sums have in common
        ratios = frameworks.ratios(factors, last)
        common = finite(frameworks.fixed_part(ratios, zeros, out_zero))
        out = Side(0, rounding, bits(common), 0)
        sides = [Side(0, rounding, bits(ratio), 0) for ratio in ratios]
        return _addition(match, sides, shift, out)
    if rounding is Rounding.TFLITE:  # both sides against twice the larger scale
        wide = [np.float64(scale) for scale in factors]
        shift, twice = frameworks.ADD_SHIFTS[dtype], 2 * max(wide)
        ratios = [np.asarray(scale / twice) for scale in wide]
        out = side(out_zero, rounding, np.asarray(twice / ((1 << shift) * np.float64(last))))
    else:  # each side to the result's scale, then the sum
        reach = sum(float(scale) / float(last) for scale in factors) * 512
        check(reach <= INT32[1], "the scales are so far apart that sums may not fit int32")
        ratios = [multiplier(scale, last) for scale in factors]
    sides = [side(zero, rounding, ratio) for zero, ratio in zip(zeros, ratios, strict=True)]
    return _addition(match, sides, shift, out)


def integer_add(match: Composite) -> LayerMatch:
    """Read an addition of int32 as PyTorch's networks have it.

    Both sides may be a requantize of 8 bits to int32, a requantize to 8 bits may follow, and clips.
    """
    check(match.call.ty.dtype == "int32", "there is no addition of int32 where one is looked for")
    sides, inputs = zip(*map(_side, match.call.args), strict=True)
    if match.requantize is None:
        return _addition(match, sides, 0, _PLAIN, inputs)
    check(
        match.sum_ends == INT32,
        "sums are clipped before qnn.requantize; the vector unit clips after it",
    )
    given = operands(match.requantize)
    scale, zero, out_scale, out_zero = scales(given)
    check(
        not (scale.ndim or zero.ndim or zero),
        "the sums' scale or zero point is not one, or the zero point not 0",
    )
    out = side(out_zero, way(given), multiplier(scale, out_scale))
    return _addition(match, sides, 0, out, inputs)


def _side(expr: relax.Expr) -> tuple[Side, relax.Expr]:
    """Read one side of an addition of int32: a requantize of 8 bits, or int32 as they are."""
    if not is_call(expr, "relax.qnn.requantize") or str(expr.args[0].ty.dtype) not in NARROW:
        return _PLAIN, expr
    given = operands(expr)
    scale, zero, out_scale, out_zero = scales(given)
    check(
        not (scale.ndim or zero.ndim or out_zero),
        "a side's scale is not one, or its zero point in int32 not 0",
    )
    return side(zero, way(given), multiplier(scale, out_scale)), expr.args[0]


def _addition(
    match: Composite, sides: Any, shift: int, out: Side, inputs: tuple[relax.Expr, ...] = ()
) -> LayerMatch:
    """Make the layer; both sides are computed tensors of one shape."""
    inputs = inputs or tuple(match.call.args[:2])
    for one, name in zip(inputs, ("lhs", "rhs"), strict=True):
        constant = isinstance(one, ir.GenericConst)
        check(not constant, f"{name} is a constant", "the machine adds what it computes")
    lhs, rhs = (list(tensor(one, "a side")[1]) for one in inputs)
    check(lhs == rhs, f"it adds {lhs} and {rhs}; the machine broadcasts nothing")
    ends = match.sum_ends if match.requantize is None else match.ends
    name = f"add {'x'.join(map(str, lhs[1:]))}"
    made = Add(name, INPUTS, OUTPUT, tuple(sides), shift, out, *ends)
    return LayerMatch(made, inputs, match.root)


def max_pool(match: Composite) -> LayerMatch:
    """Read nn.max_pool2d."""
    names = ("pool_size", "strides", "dilation", "padding", "layout", "out_layout")
    attributes = {name: getattr(match.call.attrs, name) for name in names}
    return _pool(match, attributes, PoolKind.MAX, (0, 0, 0, 0), False)


def average_pool(match: Composite) -> LayerMatch:
    """Read qnn.avg_pool2d; the numbers are those that the reference averages with."""
    given = match.bare()
    a, dtype = given.attributes, given.dtype("data")
    parts = ("input", "output")
    ratio = [given.scale(f"{part}_scale") for part in parts]
    zeros = [int(given.zero_point(f"{part}_zero_point", dtype)) for part in parts]
    rounding = config.resolve(given.name, a["rounding"]).rounding
    kind, numbers = PoolKind.AVERAGE, (0, 0)
    if rounding == "ONNX":
        kind, numbers = PoolKind.AVERAGE_ONNX, (bits(ratio[0]), bits(ratio[1]))
    elif frameworks.averages_once(rounding, dtype, ratio, math.prod(map(int, a["pool_size"]))):
        kind = PoolKind.AVERAGE_TFLITE
        numbers = frameworks.average_parts(float(ratio[0]) / float(ratio[1]), dtype)
    else:
        check(
            ratio[0] == ratio[1] and zeros[0] == zeros[1],
            f"it averages between two scales with rounding {rounding}",
            "the vector unit does that for TFLITE and ONNX",
        )
        kind = PoolKind.AVERAGE_HALF if rounding == "TFLITE" else kind
    return _pool(match, a, kind, (*zeros, *numbers), bool(a["count_include_pad"]))


def _pool(
    match: Composite, a: dict[str, Any], kind: PoolKind, numbers: Any, count_pad: bool
) -> LayerMatch:
    data, what = match.call.args[0], match.name().removeprefix("nn.").removeprefix("qnn.")
    dtype, shape = tensor(data, "the data")
    check(dtype in NARROW, f"it pools {dtype}; the vector unit pools int8 and uint8")
    check(match.root.same_as(match.call), f"something stands behind {what}")
    layout = str(a["layout"])
    check(
        layout in ("NCHW", "NHWC") and str(a["out_layout"]) in ("", layout),
        f"the layout is {layout}, of the result {a['out_layout']}",
    )
    kernel, strides, dilation = (
        windows.steps([int(size) for size in a[name]], 2, what, name)
        for name in ("pool_size", "strides", "dilation")
    )
    window = check_window(kernel, strides, dilation)
    padding = windows.padding([int(size) for size in a["padding"]], 2, what)
    (top, bottom), (left, right) = padding
    name = f"{what} {kernel[0]}x{kernel[1]} {shape[layout.index('C')]}"
    pads = top, left, bottom, right
    made = Pool(name, INPUTS[:1], OUTPUT, kind, *window, pads, count_pad, *numbers)
    return LayerMatch(made, (data,), match.root, layout)


def mean(match: Composite) -> LayerMatch:
    """Read a sum over images: an optional rectifier, the sum, clips, requantize, clips."""
    call = match.call
    check(call.ty.dtype == "int32", "there is no sum of int32 where one is looked for")
    clipped = "the sums are clipped; the vector unit clips what it made of them"
    check(match.sum_ends == INT32, clipped)
    data, least, most = clips(call.args[0], "int32")
    if is_call(data, "relax.astype"):
        data = data.args[0]
    dtype, shape = tensor(data, "the data")
    known = dtype in (*NARROW, "int32")
    check(known, f"it sums {dtype}; the vector unit sums {', '.join(NARROW)} and int32")
    ends = checks.limits(dtype)
    check(
        most >= ends[1],
        f"what it sums is clipped at {most}; the vector unit clips from below only",
    )
    layout = _images(call, shape)
    size = dict(zip(layout, shape, strict=True))
    scale, start = SUMS, 0
    if match.requantize is not None:
        axis = layout.index("C") if len(tensor(call, "the sums")[1]) == 4 else 1
        scale, off = rescale(match.requantize, size["C"], axis)
        start, scale = -off, scale.clipped(*match.ends)
    reach = max(abs(max(end, least)) for end in ends) * size["H"] * size["W"]
    check(
        not start or reach + abs(start) <= INT32[1],
        "qnn.requantize takes a zero point off sums that may not fit int32",
    )
    name = f"mean {size['H']}x{size['W']} {size['C']}"
    made = Mean(name, INPUTS[:1], OUTPUT, max(least, ends[0]), start, scale)
    return LayerMatch(made, (data,), match.root, layout)


def _images(call: relax.Call, shape: tuple[int, ...]) -> str:
    """Return the layout whose rows and columns a sum goes over."""
    axes = sorted(int(axis) % 4 for axis in call.attrs.axis or ()) if len(shape) == 4 else []
    layouts = {(2, 3): "NCHW", (1, 2): "NHWC"}
    images = tuple(axes) in layouts
    check(images, "it does not sum over all rows and columns of images, and nothing else")
    return layouts[axes[0], axes[1]]


def view(match: Composite) -> LayerMatch:
    """Read a reshape between images of one pixel and rows of a matrix."""
    data = match.call.args[0]
    (_, before), (_, after) = tensor(data, "the data"), tensor(match.root, "the result")
    check(not isinstance(data, ir.GenericConst), "it reshapes a constant", "fold constants")
    check(match.root.same_as(match.call), "something stands behind the reshape")
    layout = None
    if before != after:
        image, row = (before, after) if len(before) == 4 else (after, before)
        layouts = [
            layout
            for layout, pixel in (("NCHW", image[2:]), ("NHWC", image[1:3]))
            if len(image) == 4 and pixel == (1, 1) and row == (image[0], math.prod(image[1:]))
        ]
        check(
            layouts,
            f"it makes {list(after)} of {list(before)}, which moves numbers between channels",
            "the machine takes images of one pixel as rows, and back",
        )
        layout = layouts[0] if len(layouts) == 1 else None
    return LayerMatch(View("reshape", INPUTS[:1], OUTPUT), (data,), match.root, layout)
