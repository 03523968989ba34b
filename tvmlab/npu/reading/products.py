"""Reading convolutions and matrix products, with what stands around them.

Zero points go into the bias: ``sum((x - zx) * (w - zw))`` is ``sum(x * (w - zw))`` and a number for
each output channel, also at the borders, where padding is zx.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from ...ir import checks, windows
from ...ir.graph import is_call
from ...qnn.operands import CallOperands
from ..layers import Convolution, Pair, Sides
from .scales import (
    INPUTS,
    NARROW,
    OUTPUT,
    SUMS,
    Array,
    Composite,
    LayerMatch,
    Unsupported,
    check,
    constant,
    operands,
    rescale,
    scalar,
    tensor,
)

#: The largest window that the machine's instructions slide, a side; and how far at a time.
MOST_KERNEL, MOST_STRIDE = 16, 8

_Window = tuple[Pair, Pair, Pair]


def convolution(match: Composite) -> LayerMatch:
    """Read a convolution: an optional pad, qnn.conv2d, bias_add, clips, requantize, clips."""
    given = operands(match.call)
    a = given.attributes
    layout, order = str(a["data_layout"]), str(a["kernel_layout"])
    check(
        layout in ("NCHW", "NHWC"),
        f"the layout is {layout}",
        "convert it to NCHW or NHWC (ConvertLayout)",
    )
    check(
        a["out_layout"] in ("", layout),
        f"the result's layout is {a['out_layout']}, the data's {layout}",
    )
    check(
        sorted(order) == sorted("OIHW"),
        f"the weights' layout is {order}",
        "give them as OIHW or HWIO",
    )
    data, pads = _padded(given, layout)
    channels = _data(data, 4)[layout.index("C")]
    weights = constant(match.call.args[1], "weight")
    weights = weights.transpose([order.index(letter) for letter in "HWIO"])
    *kernel, _, outer = weights.shape
    depthwise = by_channel(match.call)
    check(
        int(a["groups"]) == 1 or depthwise,
        f"{channels} channels become {outer} in {a['groups']} groups; the machine takes one group, "
        "or one a channel with one output each",
    )
    strides, dilation = (
        windows.steps(a[name], 2, "qnn.conv2d", name) for name in ("strides", "dilation")
    )
    window = check_window(kernel, strides, dilation)
    name = f"{'depthwise' if depthwise else 'conv2d'} {kernel[0]}x{kernel[1]} {channels}->{outer}"
    if max(strides) > 1:
        name += f" /{strides[0]}" if strides[0] == strides[1] else f" /{strides[0]}x{strides[1]}"
    made = _product(match, name, weights, layout.index("C"), window, pads, depthwise)
    return LayerMatch(made, (data,), match.root, layout)


def dense(match: Composite) -> LayerMatch:
    """Read a matrix product: qnn.dense, bias_add, clips, requantize, clips."""
    data = match.call.args[0]
    _data(data, 2)
    weights = constant(match.call.args[1], "weight").T[None, None]
    name = f"dense {weights.shape[2]}->{weights.shape[3]}"
    ones = (1, 1), (1, 1), (1, 1)
    made = _product(match, name, weights, 1, ones, (0, 0, 0, 0), False)
    return LayerMatch(made, (data,), match.root)


def by_channel(call: relax.Call) -> bool:
    """Return whether each channel of a qnn.conv2d is convolved by itself, to one channel."""
    order, shape = str(call.attrs["kernel_layout"]), getattr(call.args[1].ty, "shape", None) or ()
    size = dict(zip(order, shape, strict=False))
    return bool(size.get("I") == 1 and size.get("O") == int(call.attrs["groups"]))


def _data(data: relax.Expr, ndim: int) -> tuple[int, ...]:
    """Check what is multiplied; return its shape."""
    dtype, shape = tensor(data, "the data")
    check(dtype in NARROW, f"the data are {dtype}; the array multiplies int8 and uint8")
    check(len(shape) == ndim, f"the data have {len(shape)} dimensions; {ndim} are needed")
    return shape


def _padded(given: CallOperands, layout: str) -> tuple[relax.Expr, Sides]:
    """Return what is convolved without the pad before it, and the padding of both."""
    (top, bottom), (left, right) = windows.padding(given.attributes["padding"], 2, given.name)
    data = given["data"]
    if is_call(data, "relax.nn.pad"):
        widths, mode = [int(width) for width in data.attrs.pad_width], str(data.attrs.pad_mode)
        value = float(data.attrs.pad_value)
    elif is_call(data, "relax.relay.nn.pad"):  # as Relay has it: the value is an operand
        widths = [int(width) for pair in data.attrs["pad_width"] for width in pair]
        value, mode = scalar(data.args[1], "the pad's value"), str(data.attrs["pad_mode"])
    else:
        return data, (top, left, bottom, right)
    zero = given.zero_point("input_zero_point", given.dtype("data"))
    check(
        mode == "constant" and value == zero,
        f"nn.pad pads {f'with {value:g}' if mode == 'constant' else f'by {mode}'}; the machine "
        f"pads with the zero point, {zero}",
        "leave the pad out of the pattern, or pad with the zero point",
    )
    by_axis = dict(zip(layout, zip(widths[::2], widths[1::2], strict=True), strict=True))
    inside = not any((*by_axis["N"], *by_axis["C"])) and min(widths) >= 0
    check(inside, "nn.pad pads other dimensions than rows and columns, or cuts")
    (up, down), (before, after) = by_axis["H"], by_axis["W"]
    return data.args[0], (top + up, left + before, bottom + down, right + after)


def _product(
    match: Composite,
    name: str,
    weights: Array,
    axis: int,
    window: _Window,
    pads: Sides,
    depthwise: bool,
) -> Convolution:
    """Fold everything into one layer; `weights` are [kernel_h, kernel_w, inputs, outputs]."""
    given, channels = operands(match.call), weights.shape[3]
    check(
        match.call.ty.dtype == "int32",
        f"the sums are {match.call.ty.dtype}; the accumulators are int32",
    )
    zero = int(given.zero_point("input_zero_point", given.dtype("data")))
    zeros = given.zero_point("kernel_zero_point", weights.dtype.name, channels)
    weights = _narrow(weights[:, :, 0] if depthwise else weights, zeros, depthwise)
    bias = np.zeros(channels, np.int64)
    if match.bias is not None:
        bias += constant(match.bias.args[1], "the bias")
        along = int(match.bias.attrs["axis"]) % len(tensor(match.bias, "the sums")[1])
        check(along == axis, "nn.bias_add adds along another axis than the channels'")
    bias -= zero * weights.sum(tuple(range(weights.ndim - 1)), dtype=np.int64)
    scale = SUMS
    if match.requantize is not None:
        scale, off = rescale(match.requantize, channels, axis)
        check(not off, "qnn.requantize takes a zero point off the sums", "take it off the bias")
        scale = scale.clipped(*match.ends)
    values = weights, bias.astype(np.int32), zero
    return Convolution(name, INPUTS[:1], OUTPUT, *values, *window[1:], pads, *match.sum_ends, scale)


def _narrow(weights: Array, zeros: Array, depthwise: bool) -> Array:
    """Take the zero points off the weights."""
    weights = weights.astype(np.int32) - zeros.astype(np.int32)
    least, most = int(weights.min()), int(weights.max())
    kind = "int16" if depthwise and not (least >= -128 and most <= 127) else "int8"
    low, high = checks.limits(kind)
    check(
        low <= least and most <= high,
        f"weights less their zero point go from {least} to {most}; the machine holds {kind}",
        "quantize the weights symmetrically, with zero point 0",
    )
    return np.ascontiguousarray(weights, kind)


def check_window(kernel: Sequence[int], strides: list[int], dilation: list[int]) -> _Window:
    """Check that the machine's instructions slide a window; return its sizes as pairs."""
    if max(kernel) > MOST_KERNEL or max(*strides, *dilation) > MOST_STRIDE:
        raise Unsupported(
            f"a window of {kernel[0]}x{kernel[1]} by steps of {strides} with dilation {dilation}; "
            f"windows are at most {MOST_KERNEL} a side, steps and dilation {MOST_STRIDE}"
        )
    return (kernel[0], kernel[1]), (strides[0], strides[1]), (dilation[0], dilation[1])
