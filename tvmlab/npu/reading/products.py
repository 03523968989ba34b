"""Reading convolutions and matrix products, with what stands around them.

Zero points go into the bias: ``sum((x - zx) * (w - zw))`` is ``sum(x * (w - zw))`` and a number for
each output channel, also at the borders, where padding is zx.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ...ir import checks, dialect, windows
from ...ir.graph import is_call
from ..layers import Convolution, Pair, Sides
from .scales import (
    INPUTS,
    INT32,
    NARROW,
    OUTPUT,
    SUMS,
    Array,
    LayerMatch,
    Unsupported,
    constant,
    epilogue,
    rescale,
    scalar,
    tensor,
)

__all__ = ["by_channel", "check_window", "convolution", "dense"]

#: The largest window that the machine's instructions slide, a side; and how far at a time.
MOST_KERNEL, MOST_STRIDE = 16, 8

_Window = tuple[Pair, Pair, Pair]


def convolution(root: relax.Expr) -> LayerMatch:
    """Read a convolution: an optional pad, qnn.conv2d, bias_add, clips, requantize, clips."""
    call = _core(root, "relax.qnn.conv2d")
    a = dialect.attributes(call)
    layout = str(a["data_layout"])
    if layout not in ("NCHW", "NHWC"):
        fix = "convert it to NCHW or NHWC (ConvertLayout)"
        raise Unsupported(f"the layout is {layout}", fix=fix)
    if a["out_layout"] not in ("", layout):
        raise Unsupported(f"the result's layout is {a['out_layout']}, the data's {layout}")
    data, pads = _padded(call, a, layout)
    shape = _data(data, 4)
    order = str(a["kernel_layout"])
    if sorted(order) != sorted("OIHW"):
        raise Unsupported(f"the weights' layout is {order}", fix="give them as OIHW or HWIO")
    turned = [order.index(letter) for letter in "HWIO"]
    weights, zeros = _weights(call, lambda found: found.transpose(turned))
    *kernel, inner, outer = weights.shape
    channels, groups = shape[layout.index("C")], int(a["groups"])
    depthwise = groups == channels == outer and inner == 1
    if groups != 1 and not depthwise:
        raise Unsupported(
            f"{channels} channels become {outer} in {groups} groups; the machine takes one group, "
            "or one a channel with one output each"
        )
    strides, dilation = (
        windows.steps(a[name], 2, "qnn.conv2d", name) for name in ("strides", "dilation")
    )
    window = check_window(kernel, strides, dilation)
    name = f"{'depthwise' if depthwise else 'conv2d'} {kernel[0]}x{kernel[1]} {channels}->{outer}"
    if max(strides) > 1:
        name += f" /{strides[0]}" if strides[0] == strides[1] else f" /{strides[0]}x{strides[1]}"
    weights = _narrow(weights[:, :, 0] if depthwise else weights, zeros, depthwise)
    made = _product(root, name, call, weights, layout.index("C"), window, pads)
    return LayerMatch(made, (data,), root, layout)


def dense(root: relax.Expr) -> LayerMatch:
    """Read a matrix product: qnn.dense, bias_add, clips, requantize, clips."""
    call = _core(root, "relax.qnn.dense")
    data = call.args[0]
    _data(data, 2)
    weights, zeros = _weights(call, lambda found: found.T[None, None])
    name = f"dense {weights.shape[2]}->{weights.shape[3]}"
    ones = (1, 1), (1, 1), (1, 1)
    made = _product(root, name, call, _narrow(weights, zeros, False), 1, ones, (0, 0, 0, 0))
    return LayerMatch(made, (data,), root)


def _core(root: relax.Expr, name: str) -> relax.Call:
    """Find the product behind its epilogue."""
    expr = epilogue(root)[1]
    if is_call(expr, "relax.relay.nn.bias_add"):
        expr = expr.args[0]
    if not is_call(expr, name):
        raise Unsupported(f"there is no {name.removeprefix('relax.')} where one is looked for")
    if str(expr.ty.dtype) != "int32":
        raise Unsupported(f"the sums are {expr.ty.dtype}; the accumulators are int32")
    return expr


def _data(data: relax.Expr, ndim: int) -> tuple[int, ...]:
    """Check what is multiplied; return its shape."""
    dtype, shape = tensor(data, "the data")
    if dtype not in NARROW:
        raise Unsupported(f"the data are {dtype}; the array multiplies int8 and uint8")
    if len(shape) != ndim:
        raise Unsupported(f"the data have {len(shape)} dimensions; {ndim} are needed")
    return shape


def _padded(call: relax.Call, a: dict[str, Any], layout: str) -> tuple[relax.Expr, Sides]:
    """Return what is convolved without the pad before it, and the padding of both."""
    (top, bottom), (left, right) = windows.padding(a["padding"], 2, "qnn.conv2d")
    data = call.args[0]
    if not is_call(data, "relax.nn.pad", "relax.relay.nn.pad"):
        return data, (top, left, bottom, right)
    zero = _zero_point(call, tensor(data, "the data")[0])
    if is_call(data, "relax.nn.pad"):
        widths = [int(width) for width in data.attrs.pad_width]
        value, mode = float(data.attrs.pad_value), str(data.attrs.pad_mode)
    else:  # as Relay has it: the value is an operand
        widths = [int(width) for pair in data.attrs["pad_width"] for width in pair]
        value, mode = scalar(data.args[1], "the pad's value"), str(data.attrs["pad_mode"])
    if mode != "constant" or value != zero:
        what = f"with {value:g}" if mode == "constant" else f"by {mode}"
        raise Unsupported(
            f"nn.pad pads {what}; the machine pads with the zero point, {zero}",
            fix="leave the pad out of the pattern, or pad with the zero point",
        )
    by_axis = dict(zip(layout, zip(widths[::2], widths[1::2], strict=True), strict=True))
    if any(by_axis["N"]) or any(by_axis["C"]) or min(widths) < 0:
        raise Unsupported("nn.pad pads other dimensions than rows and columns, or cuts")
    (up, down), (before, after) = by_axis["H"], by_axis["W"]
    return data.args[0], (top + up, left + before, bottom + down, right + after)


def _zero_point(call: relax.Call, dtype: str) -> int:
    """Return the data's zero point."""
    name = str(call.op.name).removeprefix("relax.")
    value = constant(call.args[2], "the data's zero point")
    return int(checks.zero_point(value, name, "input_zero_point", dtype))


def _weights(call: relax.Call, to_hwio: Any) -> tuple[Array, Array]:
    """Return the weights as HWIO, and their zero points: one, or one an output channel."""
    name, found = (
        str(call.op.name).removeprefix("relax."),
        to_hwio(constant(call.args[1], "weight")),
    )
    zeros = constant(call.args[3], "the weights' zero point")
    dtype, count = found.dtype.name, found.shape[3]
    return found, checks.zero_point(zeros, name, "kernel_zero_point", dtype, count)


def by_channel(call: relax.Call) -> bool:
    """Return whether a qnn.conv2d has a group for each channel."""
    a, shape = call.attrs, getattr(call.args[0].ty, "shape", None)
    groups, layout = int(a["groups"]), str(a["data_layout"])
    if not isinstance(shape, relax.ShapeExpr) or "C" not in layout or len(shape) != len(layout):
        return groups > 1
    return bool(shape[layout.index("C")] == groups == int(a["channels"] or groups))


def _narrow(weights: Array, zeros: Array, depthwise: bool) -> Array:
    """Take the zero points off the weights."""
    if zeros.any():
        weights = weights.astype(np.int32) - zeros.astype(np.int32)
    least, most = int(weights.min()), int(weights.max())
    kind = "int16" if depthwise and not (least >= -128 and most <= 127) else "int8"
    low, high = checks.limits(kind)
    if least < low or most > high:
        raise Unsupported(
            f"weights less their zero point go from {least} to {most}; the machine holds {kind}",
            fix="quantize the weights symmetrically, with zero point 0",
        )
    return np.ascontiguousarray(weights, kind)


def _product(
    root: relax.Expr,
    name: str,
    call: relax.Call,
    weights: Array,
    axis: int,
    window: _Window,
    pads: Sides,
) -> Convolution:
    """Fold everything into one layer."""
    requantize, expr, (low, high, sum_low, sum_high) = epilogue(root)
    dtype, channels = str(call.args[0].ty.dtype), weights.shape[-1]
    zero, taps = _zero_point(call, dtype), tuple(range(weights.ndim - 1))
    bias = _bias(expr, channels, axis) - zero * weights.sum(taps, dtype=np.int64)
    scale = SUMS
    if requantize is not None:
        read, off = rescale(requantize, channels, axis)
        scale = read.clipped(low, high)
        if off:  # the sums' zero point goes into the bias, where none of the sums wraps
            most = max(map(abs, checks.limits(dtype)))
            reach = np.abs(weights.astype(np.int64)).sum(taps) * most
            if (np.abs(bias) + reach).max() + abs(off) > INT32[1]:
                raise Unsupported(
                    "qnn.requantize takes a zero point off sums that may not fit int32"
                )
            sum_low, sum_high = (
                end if end in INT32 else min(max(end - off, INT32[0]), INT32[1])
                for end in (sum_low, sum_high)
            )
            bias = bias - off
    values = weights, bias.astype(np.int32), zero
    return Convolution(
        name, INPUTS[:1], OUTPUT, *values, *window[1:], pads, sum_low, sum_high, scale
    )


def _bias(expr: relax.Expr, channels: int, axis: int) -> Array:
    """Return the bias of sums, zeros if they have none."""
    if not is_call(expr, "relax.relay.nn.bias_add"):
        return np.zeros(channels, np.int64)
    bias = constant(expr.args[1], "the bias")
    ndim = len(tensor(expr, "the sums")[1])
    if int(expr.attrs["axis"]) % ndim != axis:
        raise Unsupported("nn.bias_add adds along another axis than the channels'")
    if bias.dtype != np.int32 or bias.shape != (channels,):
        raise Unsupported(
            f"the bias is {bias.dtype} of shape {bias.shape}; int32 [{channels}] fits"
        )
    return bias.astype(np.int64)


def check_window(kernel: list[int], strides: list[int], dilation: list[int]) -> _Window:
    """Check that the machine's instructions slide a window; return its sizes as pairs."""
    if max(kernel) > MOST_KERNEL or max(*strides, *dilation) > MOST_STRIDE:
        raise Unsupported(
            f"a window of {kernel[0]}x{kernel[1]} by steps of {strides} with dilation {dilation}; "
            f"windows are at most {MOST_KERNEL} a side, steps and dilation {MOST_STRIDE}"
        )
    return (kernel[0], kernel[1]), (strides[0], strides[1]), (dilation[0], dilation[1])
