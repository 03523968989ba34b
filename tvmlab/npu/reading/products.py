"""Reading convolutions and matrix products, with what stands around them.

Zero points go into the bias: ``sum((x - zx) * (w - zw))`` is ``sum(x * (w - zw))`` and a number for
each output channel, also at the borders, where padding is zx.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from ...ir import checks, dialect, windows
from ...ir.graph import is_call
from ..layers import Convolution, Sides
from .found import INPUTS, OUTPUT, Found
from .scales import (
    INT32,
    NARROW,
    SUMS,
    Array,
    Refusal,
    clips,
    constant,
    rescale,
    scalar,
    tensor,
)

__all__ = ["convolution", "dense", "epilogue"]

#: The largest window that the machine's instructions slide, a side; and how far at a time.
MOST_KERNEL, MOST_STRIDE = 16, 8


def epilogue(root: relax.Expr) -> tuple[relax.Call | None, relax.Expr, tuple[int, int, int, int]]:
    """Take off what may stand behind sums: clips, a requantize, clips.

    Returns
    -------
    tuple of (tvm.relax.Call or None, tvm.relax.Expr, tuple of int)
        The requantize; what it (or the clips) reads; the lower and upper end of the result and of
        the sums.
    """
    dtype, _ = tensor(root, "the result")
    expr, low, high = clips(root, dtype)
    if not is_call(expr, "relax.qnn.requantize"):
        return None, expr, (*INT32, low, high)
    inner, sum_low, sum_high = clips(expr.args[0], "int32")
    return expr, inner, (low, high, sum_low, sum_high)


def _biased(expr: relax.Expr, channels: int, axis: int) -> tuple[relax.Expr, Array]:
    """Take off a bias."""
    if not is_call(expr, "relax.relay.nn.bias_add"):
        return expr, np.zeros(channels, np.int64)
    bias = constant(expr.args[1], "the bias")
    ndim = len(tensor(expr, "the sums")[1])
    if int(expr.attrs["axis"]) % ndim != axis:
        raise Refusal("nn.bias_add adds along another axis than the channels'")
    if bias.dtype != np.int32 or bias.shape != (channels,):
        raise Refusal(f"the bias is {bias.dtype} of shape {bias.shape}; int32 [{channels}] fits")
    return expr.args[0], bias.astype(np.int64)


def convolution(root: relax.Expr) -> Found:
    """Read a convolution: an optional pad, qnn.conv2d, bias_add, clips, requantize, clips."""
    call = _core(root, "relax.qnn.conv2d")
    a = dialect.attributes(call)
    layout = _layout(a)
    data, pads = _padded(call, a, layout)
    dtype, shape = _data(data, 4)
    size = dict(zip(layout, shape, strict=True))
    weights, zeros = _weights(call, layout, a["kernel_layout"])
    kernel_h, kernel_w, inner, outer = weights.shape
    depthwise = _grouped(a["groups"], size["C"], inner, outer)
    name = f"{kernel_h}x{kernel_w} {size['C']}->{outer}"
    strides = windows.steps(a["strides"], 2, "qnn.conv2d", "strides")
    dilation = windows.steps(a["dilation"], 2, "qnn.conv2d", "dilation")
    limits((kernel_h, kernel_w), strides, dilation)
    if max(strides) > 1:
        name += f" /{strides[0]}" if strides[0] == strides[1] else f" /{strides[0]}x{strides[1]}"
    made = _product(
        root,
        f"{'depthwise' if depthwise else 'conv2d'} {name}",
        (call, data, dtype),
        _narrow(weights[:, :, 0] if depthwise else weights, zeros, depthwise),
        layout.index("C"),
        (strides, dilation, pads),
    )
    out = dict(zip(layout, tensor(call, "the sums")[1], strict=True))
    macs = math.prod(out.values()) * kernel_h * kernel_w * inner
    return Found(made, (data,), root, layout, macs)


def dense(root: relax.Expr) -> Found:
    """Read a matrix product: qnn.dense, bias_add, clips, requantize, clips."""
    call = _core(root, "relax.qnn.dense")
    data = call.args[0]
    dtype, shape = _data(data, 2)
    weights, zeros = _weights(call, "NC", "OI")
    made = _product(
        root,
        f"dense {weights.shape[2]}->{weights.shape[3]}",
        (call, data, dtype),
        _narrow(weights, zeros, False),
        1,
        ([1, 1], [1, 1], (0, 0, 0, 0)),
    )
    return Found(made, (data,), root, None, shape[0] * weights.shape[2] * weights.shape[3])


def _core(root: relax.Expr, name: str) -> relax.Call:
    """Find the product behind its epilogue."""
    expr = epilogue(root)[1]
    if is_call(expr, "relax.relay.nn.bias_add"):
        expr = expr.args[0]
    if not is_call(expr, name):
        raise Refusal(f"there is no {name.removeprefix('relax.')} where one is looked for")
    if str(expr.ty.dtype) != "int32":
        raise Refusal(f"the sums are {expr.ty.dtype}; the accumulators are int32")
    return expr


def _data(data: relax.Expr, ndim: int) -> tuple[str, tuple[int, ...]]:
    dtype, shape = tensor(data, "the data")
    if dtype not in NARROW:
        raise Refusal(f"the data are {dtype}; the array multiplies int8 and uint8")
    if len(shape) != ndim:
        raise Refusal(f"the data have {len(shape)} dimensions; {ndim} are needed")
    return dtype, shape


def _layout(a: dict[str, Any]) -> str:
    """Give the order of an image's dimensions."""
    layout = str(a["data_layout"])
    if layout not in ("NCHW", "NHWC"):
        raise Refusal(f"the layout is {layout}", fix="convert it to NCHW or NHWC (ConvertLayout)")
    if a["out_layout"] not in ("", layout):
        raise Refusal(f"the result's layout is {a['out_layout']}, the data's {layout}")
    return layout


def _padded(call: relax.Call, a: dict[str, Any], layout: str) -> tuple[relax.Expr, Sides]:
    """Give what is convolved without the pad before it, and the padding of both."""
    (top, bottom), (left, right) = windows.padding(a["padding"], 2, "qnn.conv2d")
    data = call.args[0]
    if not is_call(data, "relax.nn.pad", "relax.relay.nn.pad"):
        return data, (top, left, bottom, right)
    zero = _zero(call, tensor(data, "the data")[0])
    if is_call(data, "relax.nn.pad"):
        widths = [int(width) for width in data.attrs.pad_width]
        value, mode = float(data.attrs.pad_value), str(data.attrs.pad_mode)
    else:  # as Relay has it: the value is an operand
        widths = [int(width) for pair in data.attrs["pad_width"] for width in pair]
        value, mode = scalar(data.args[1], "the pad's value"), str(data.attrs["pad_mode"])
    if mode != "constant" or value != zero:
        what = f"with {value:g}" if mode == "constant" else f"by {mode}"
        raise Refusal(
            f"nn.pad pads {what}; the machine pads with the zero point, {zero}",
            fix="leave the pad out of the pattern, or pad with the zero point",
        )
    by_axis = dict(zip(layout, zip(widths[::2], widths[1::2], strict=True), strict=True))
    if any(by_axis["N"]) or any(by_axis["C"]) or min(widths) < 0:
        raise Refusal("nn.pad pads other dimensions than rows and columns, or cuts")
    (up, down), (before, after) = by_axis["H"], by_axis["W"]
    return data.args[0], (top + up, left + before, bottom + down, right + after)


def _zero(call: relax.Call, dtype: str) -> int:
    """Give the data's zero point."""
    name = str(call.op.name).removeprefix("relax.")
    value = constant(call.args[2], "the data's zero point")
    return int(checks.zero_point(value, name, "input_zero_point", dtype))


def _weights(call: relax.Call, layout: str, order: str) -> tuple[Array, Array]:
    """Give the weights as HWIO, and their zero points: one, or one an output channel."""
    found = constant(call.args[1], "weight")
    name = str(call.op.name).removeprefix("relax.")
    dtype = found.dtype.name
    if layout == "NC":
        found = found.T[None, None]
    elif sorted(order) != sorted("OIHW"):
        raise Refusal(f"the weights' layout is {order}", fix="give them as OIHW or HWIO")
    else:
        found = found.transpose([order.index(letter) for letter in "HWIO"])
    zeros = constant(call.args[3], "the weights' zero point")
    count = found.shape[3]
    return found, checks.zero_point(zeros, name, "kernel_zero_point", dtype, count)


def by_channel(call: relax.Call) -> bool:
    """Say whether a qnn.conv2d has a group for each channel."""
    a, shape = call.attrs, getattr(call.args[0].ty, "shape", None)
    groups, layout = int(a["groups"]), str(a["data_layout"])
    if not isinstance(shape, relax.ShapeExpr) or "C" not in layout or len(shape) != len(layout):
        return groups > 1
    return bool(shape[layout.index("C")] == groups == int(a["channels"] or groups))


def _grouped(groups: int, channels: int, inner: int, outer: int) -> bool:
    """Say whether a convolution is depthwise; refuse what is between."""
    if groups == channels == outer and inner == 1:
        return True
    if groups != 1:
        raise Refusal(
            f"{channels} channels become {outer} in {groups} groups; the machine takes one group, "
            "or one a channel with one output each"
        )
    return False


def _narrow(weights: Array, zeros: Array, depthwise: bool) -> Array:
    """Take the zero points off the weights."""
    if zeros.any():
        weights = weights.astype(np.int32) - zeros.astype(np.int32)
    least, most = int(weights.min()), int(weights.max())
    kind = "int16" if depthwise and not (least >= -128 and most <= 127) else "int8"
    low, high = checks.limits(kind)
    if least < low or most > high:
        raise Refusal(
            f"weights less their zero point go from {least} to {most}; the machine holds {kind}",
            fix="quantize the weights symmetrically, with zero point 0",
        )
    return np.ascontiguousarray(weights, kind)


def _product(
    root: relax.Expr,
    name: str,
    given: tuple[relax.Call, relax.Expr, str],
    weights: Array,
    axis: int,
    window: tuple[list[int], list[int], Sides],
) -> Convolution:
    """Fold everything into one layer."""
    call, _, dtype = given
    requantize, expr, (low, high, sum_low, sum_high) = epilogue(root)
    channels = weights.shape[-1]
    _, bias = _biased(expr, channels, axis)
    zero = _zero(call, dtype)
    taps = tuple(range(weights.ndim - 1))
    bias = bias - zero * weights.sum(taps, dtype=np.int64)
    if requantize is None:
        scale = SUMS
    else:
        read, off = rescale(requantize, channels, axis)
        if off:
            bias, sum_low, sum_high = _without(off, bias, weights, taps, dtype, (sum_low, sum_high))
        scale = read.clipped(low, high)
    strides, dilation, pads = window
    return Convolution(
        name,
        INPUTS[:1],
        OUTPUT,
        weights,
        bias.astype(np.int32),
        zero,
        (strides[0], strides[1]),
        (dilation[0], dilation[1]),
        pads,
        sum_low,
        sum_high,
        scale,
    )


def _without(
    off: int,
    bias: Array,
    weights: Array,
    taps: tuple[int, ...],
    dtype: str,
    ends: tuple[int, int],
) -> tuple[Array, int, int]:
    """Take a zero point off the sums by way of the bias, where none of them wraps."""
    reach = np.abs(weights.astype(np.int64)).sum(taps) * max(map(abs, checks.limits(dtype)))
    if (np.abs(bias) + reach).max() + abs(off) > INT32[1]:
        raise Refusal("qnn.requantize takes a zero point off sums that may not fit int32")
    low, high = (end if end in INT32 else min(max(end - off, INT32[0]), INT32[1]) for end in ends)
    return bias - off, low, high


def limits(kernel: tuple[int, int], strides: list[int], dilation: list[int]) -> None:
    """Refuse windows that the machine's instructions do not slide."""
    if max(kernel) > MOST_KERNEL or max(*strides, *dilation) > MOST_STRIDE:
        raise Refusal(
            f"a window of {kernel[0]}x{kernel[1]} by steps of {strides} with dilation {dilation}; "
            f"windows are at most {MOST_KERNEL} a side, steps and dilation {MOST_STRIDE}"
        )
