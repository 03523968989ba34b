"""Reading pooling, means over images, and reshapes that move nothing."""

from __future__ import annotations

import math
from typing import Any

from tvm import ir, relax

from ...ir import checks, dialect, windows
from ...ir.graph import is_call
from ...qnn import config, frameworks
from ..isa import PoolKind
from ..layers import Mean, Pool, View
from .found import INPUTS, OUTPUT, Found
from .products import epilogue, limits
from .scales import (
    INT32,
    NARROW,
    SUMS,
    Array,
    Refusal,
    bits,
    clips,
    constant,
    rescale,
    tensor,
)

__all__ = ["average_pool", "max_pool", "mean", "view"]


def max_pool(root: relax.Expr) -> Found:
    """Read nn.max_pool2d."""
    a = {name: getattr(root.attrs, name) for name in ("pool_size", "strides", "dilation")}
    a |= {name: getattr(root.attrs, name) for name in ("padding", "layout", "out_layout")}
    return _pool(root, "max_pool2d", a, (PoolKind.MAX, 0, 0, 0, 0), False)


def average_pool(root: relax.Expr) -> Found:
    """Read qnn.avg_pool2d."""
    a = dialect.attributes(root)
    dtype, _ = tensor(root.args[0], "the data")
    if dtype not in NARROW:
        raise Refusal(f"it pools {dtype}; the vector unit pools int8 and uint8")
    names = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")
    values = [constant(arg, f"{n} of it") for arg, n in zip(root.args[1:], names, strict=True)]
    call = "qnn.avg_pool2d"
    scales = [checks.scale(v, call, n) for v, n in zip(values[::2], names[::2], strict=True)]
    zeros = [
        checks.zero_point(v, call, n, dtype) for v, n in zip(values[1::2], names[1::2], strict=True)
    ]
    taps = math.prod(int(size) for size in a["pool_size"])
    kind = _average(config.resolve(call, a["rounding"]).rounding, dtype, scales, zeros, taps)
    return _pool(root, "avg_pool2d", a, kind, bool(a["count_include_pad"]))


def _average(
    rounding: str, dtype: str, scales: list[Array], zeros: list[Array], taps: int
) -> tuple[PoolKind, int, int, int, int]:
    """Choose how windows are averaged, and with which numbers, as the reference does."""
    in_zero, out_zero = map(int, zeros)
    if rounding == "ONNX":
        return PoolKind.AVERAGE_ONNX, in_zero, out_zero, bits(scales[0]), bits(scales[1])
    if frameworks.averages_once(rounding, dtype, scales, taps):
        parts = frameworks.average_parts(float(scales[0]) / float(scales[1]), dtype)
        return PoolKind.AVERAGE_TFLITE, in_zero, out_zero, *parts
    if scales[0] != scales[1] or in_zero != out_zero:
        raise Refusal(
            f"it averages between two scales with rounding {rounding}",
            fix="the vector unit does that for TFLITE and ONNX",
        )
    kind = PoolKind.AVERAGE_HALF if rounding == "TFLITE" else PoolKind.AVERAGE
    return kind, in_zero, out_zero, 0, 0


def _pool(
    root: relax.Expr,
    what: str,
    a: dict[str, Any],
    kind: tuple[PoolKind, int, int, int, int],
    count_pad: bool,
) -> Found:
    data = root.args[0]
    dtype, shape = tensor(data, "the data")
    tensor(root, "the result")
    if dtype not in NARROW:
        raise Refusal(f"it pools {dtype}; the vector unit pools int8 and uint8")
    layout = str(a["layout"])
    if layout not in ("NCHW", "NHWC") or str(a["out_layout"]) not in ("", layout):
        raise Refusal(f"the layout is {layout}, of the result {a['out_layout']}")
    kernel = windows.steps([int(size) for size in a["pool_size"]], 2, what, "pool_size")
    strides = windows.steps([int(size) for size in a["strides"]], 2, what, "strides")
    dilation = windows.steps([int(size) for size in a["dilation"]], 2, what, "dilation")
    sides = windows.padding([int(size) for size in a["padding"]], 2, what)
    limits((kernel[0], kernel[1]), strides, dilation)
    (top, bottom), (left, right) = sides
    way, in_zero, out_zero, multiplier, shift = kind
    made = Pool(
        f"{what} {kernel[0]}x{kernel[1]} {dict(zip(layout, shape, strict=True))['C']}",
        INPUTS[:1],
        OUTPUT,
        way,
        (kernel[0], kernel[1]),
        (strides[0], strides[1]),
        (dilation[0], dilation[1]),
        (top, left, bottom, right),
        count_pad,
        in_zero,
        out_zero,
        multiplier,
        shift,
    )
    return Found(made, (data,), root, layout)


def mean(root: relax.Expr) -> Found:
    """Read a sum over images: an optional rectifier, the sum, clips, requantize, clips."""
    requantize, call, (low, high, sum_low, sum_high) = epilogue(root)
    if not is_call(call, "relax.sum") or str(call.ty.dtype) != "int32":
        raise Refusal("there is no sum of int32 where one is looked for")
    if (sum_low, sum_high) != INT32:
        raise Refusal("the sums are clipped; the vector unit clips what it made of them")
    data, least, most = clips(call.args[0], "int32")
    if is_call(data, "relax.astype") and str(data.args[0].ty.dtype) in NARROW:
        data = data.args[0]
    dtype, shape = tensor(data, "the data")
    if is_call(data, "relax.astype"):
        kind = tensor(data.args[0], "the data")[0]
        raise Refusal(f"it sums {kind}; the vector unit sums {', '.join(NARROW)} and int32")
    ends = checks.limits(dtype)
    if most < ends[1]:
        raise Refusal(f"what it sums is clipped at {most}; the vector unit clips from below only")
    layout = _images(call, shape)
    size = dict(zip(layout, shape, strict=True))
    scale = SUMS
    start = 0
    if requantize is not None:
        axis = layout.index("C") if len(tensor(call, "the sums")[1]) == 4 else 1
        read, off = rescale(requantize, size["C"], axis)
        start = -off
        scale = read.clipped(low, high)
    reach = max(abs(max(end, least)) for end in ends) * size["H"] * size["W"]
    if start and reach + abs(start) > INT32[1]:
        raise Refusal("qnn.requantize takes a zero point off sums that may not fit int32")
    name = f"mean {size['H']}x{size['W']} {size['C']}"
    made = Mean(name, INPUTS[:1], OUTPUT, max(least, ends[0]), start, scale)
    return Found(made, (data,), root, layout)


def _images(call: relax.Call, shape: tuple[int, ...]) -> str:
    """Give the layout whose rows and columns a sum goes over."""
    if len(shape) == 4 and call.attrs.axis is not None:
        axes = sorted(int(axis) % 4 for axis in call.attrs.axis)
        for layout in ("NCHW", "NHWC"):
            if axes == [layout.index("H"), layout.index("W")]:
                return layout
    raise Refusal("it does not sum over all rows and columns of images, and nothing else")


def view(root: relax.Expr) -> Found:
    """Read a reshape between images of one pixel and rows of a matrix."""
    data = root.args[0]
    (_, before), (_, after) = tensor(data, "the data"), tensor(root, "the result")
    if isinstance(data, ir.GenericConst):
        raise Refusal("it reshapes a constant", fix="fold constants")
    layout = None
    if before != after:
        image, row = (before, after) if len(before) == 4 else (after, before)
        layouts = [
            layout
            for layout, pixel in (("NCHW", image[2:]), ("NHWC", image[1:3]))
            if len(image) == 4 and pixel == (1, 1) and row == (image[0], math.prod(image[1:]))
        ]
        if not layouts:
            raise Refusal(
                f"it makes {list(after)} of {list(before)}, which moves numbers between channels",
                fix="the machine takes images of one pixel as rows, and back",
            )
        layout = layouts[0] if len(layouts) == 1 else None
    return Found(View("reshape", INPUTS[:1], OUTPUT), (data,), root, layout)
