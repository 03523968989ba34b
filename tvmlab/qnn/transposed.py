"""Quantized transposed convolutions, as convolutions of data that are spread apart.

Between the data, and around them as far as the kernel reaches, lies the zero point, which is the
real 0; the kernel is turned upside down. In integers both sides are the same. The operator is
Relay's (src/relay/qnn/op/convolution_transpose.cc, TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, te, tirx

from ..ir import dialect, windows
from ..ir.checks import Array
from . import layout, products
from .operands import CallOperands, call_te
from .operator import Operand, operator

_CALL = "qnn.conv2d_transpose"


@dataclass(frozen=True)
class _Spread:
    """One spatial axis: `size` places, where datum number i lies at ``before + i * stride``."""

    size: int
    before: int
    stride: int


def _spread(sizes: Sequence[int], taps: Sequence[int], a: dict[str, Any]) -> list[_Spread]:
    """Place the data of both axes so that a convolution without padding gives the result."""
    axes = zip(
        *(sizes, taps),
        *(windows.steps(a[name], 2, _CALL, name) for name in ("strides", "dilation")),
        *(windows.padding(list(a[name]), 2, _CALL) for name in ("padding", "output_padding")),
        strict=True,
    )
    return [
        _Spread(
            (size - 1) * stride + 1 + 2 * (tap - 1) * step - before - after + more,
            (tap - 1) * step - before,
            stride,
        )
        for size, tap, stride, step, (before, after), (_, more) in axes
    ]


def _kernel(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    given = CallOperands(builder, call)
    a, dtype = given.attributes, given.dtype("data")
    written, zero = a["data_layout"], given.zero_row("input_zero_point", dtype)
    sizes = dict(zip(written, given.shape("data"), strict=True))
    taps = dict(zip(a["kernel_layout"], given.shape("weight"), strict=True))
    given.check_scales(kernel_scale=taps["O"] * a["groups"])
    axes = dict(
        zip("HW", _spread([sizes["H"], sizes["W"]], [taps["H"], taps["W"]], a), strict=True)
    )

    def spread(data: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> tirx.PrimExpr:
            at, inside = dict(zip(written, index, strict=True)), []
            for letter, axis in axes.items():
                place = at[letter] - axis.before
                at[letter] = tirx.floordiv(place, axis.stride)
                inside += [tirx.floormod(place, axis.stride) == 0]
                inside += [place >= 0, at[letter] < sizes[letter]]
            found = data(*(at[letter] for letter in written))
            return tirx.if_then_else(tirx.all(*inside), found, zero.read(0).astype(dtype))

        wide = [axes[n].size if n in axes else sizes[n] for n in written]
        return te.compute(wide, value, name="spread")

    data = builder.emit(call_te(builder, spread, [given["data"]], [zero], "qnn_spread"))
    operands = [data, _turned(builder, given["weight"], a), *call.args[2:]]
    attributes = {
        **{name: a[name] for name in ("dilation", "groups", "data_layout", "out_dtype")},
        "out_layout": a["out_layout"],
    }
    made = dialect.call("relax.qnn.conv2d", *products.conv2d.bind(operands, attributes))
    return products.conv2d.legalize(builder, builder.normalize(made))


def _turned(builder: relax.BlockBuilder, weight: relax.Expr, a: dict[str, Any]) -> relax.Expr:
    """Make a weight that of a convolution: OIHW, upside down; in NumPy where it is constant."""
    if isinstance(weight, tvm.ir.GenericConst):
        turned = _upside_down(weight.value.numpy(), a["kernel_layout"], a["groups"])
        return relax.const(np.ascontiguousarray(turned), str(weight.ty.dtype))
    op, groups = relax.op, a["groups"]
    axes = [a["kernel_layout"].index(letter) for letter in "IOHW"]
    weight = builder.emit(op.permute_dims(weight, axes))
    inputs, outputs, *taps = map(int, weight.ty.shape.values)
    parts = builder.emit(op.reshape(weight, [groups, inputs // groups, outputs, *taps]))
    parts = builder.emit(op.permute_dims(parts, [0, 2, 1, 3, 4]))
    whole = builder.emit(op.reshape(parts, [groups * outputs, inputs // groups, *taps]))
    made: relax.Expr = builder.emit(op.flip(builder.emit(op.flip(whole, 2)), 3))
    return made


def _upside_down(weight: Array, written: str, groups: int) -> Array:
    w = weight.transpose([written.index(letter) for letter in "IOHW"])
    inputs, outputs, *taps = w.shape
    parts = w.reshape(groups, inputs // groups, outputs, *taps).swapaxes(1, 2)
    return parts.reshape(groups * outputs, -1, *taps)[..., ::-1, ::-1]


@operator(
    shape=products.shape,
    kernel=_kernel,
    kept=products.four_sides,
    printed=(
        *("channels", "kernel_size", "strides", "output_padding", "padding", "dilation", "groups"),
        *("data_layout", "kernel_layout", "out_layout", "out_dtype"),
    ),
    relay={"out_dtype": ""},
    **(products.PRODUCT | {"layout": layout.convolution}),
)
def conv2d_transpose(
    numbers: Any,
    data: Operand,
    weight: Operand,
    input_zero_point: Operand,
    kernel_zero_point: Operand,
    input_scale: Operand,
    kernel_scale: Operand,
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sequence[int] | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Sequence[int] = (0, 0),
    out_dtype: str = "int32",
) -> Array:
    """Convolve quantized data with a quantized kernel, transposed.

    Parameters
    ----------
    data : tensor
        Shape (n, c, h, w) in `data_layout`; int8, uint8 or int16.
    weight : tensor
        Shape (c, o / groups, kh, kw) in `kernel_layout`; int8, uint8 or int16.
    output_padding : sequence of int
        Rows and columns added at the bottom and right of the result.

    Other parameters, results and errors are as in `conv2d`.
    """
    x = data.transpose([data_layout.index(letter) for letter in "NHWC"])
    w = _upside_down(weight, kernel_layout, groups)
    rest = {"strides": strides, "dilation": dilation, "padding": padding}
    axes = _spread(x.shape[1:3], w.shape[2:], rest | {"output_padding": output_padding})
    wide = np.empty([len(x), axes[0].size, axes[1].size, x.shape[3]], np.int64)
    wide[...] = input_zero_point
    kept, places = [], []
    for axis, size in zip(axes, x.shape[1:3], strict=True):
        place = axis.before + axis.stride * np.arange(size)
        inside = (place >= 0) & (place < axis.size)
        kept, places = [*kept, np.flatnonzero(inside)], [*places, place[inside]]
    wide[:, places[0][:, None], places[1]] = x[:, kept[0][:, None], kept[1]]
    made: Array = products.conv2d.define(
        *(numbers, wide, w, input_zero_point, kernel_zero_point, input_scale, kernel_scale),
        dilation=dilation,
        groups=groups,
        data_layout="NHWC",
        out_layout=out_layout or data_layout,
    )
    return made
