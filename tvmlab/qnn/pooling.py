"""Averages of windows of a quantized image.

The operator is Relay's (src/relay/qnn/op/avg_pool2d.cc, TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, relax

from ..ir import dialect
from ..ir.types import checked_call, result, views
from ..ir.windows import pooling
from .config import ROUNDINGS, one_of
from .elementwise import pairs
from .scaling import QUANTIZED

POOL_OPERANDS = (
    "data",
    "input_scale",
    "input_zero_point",
    "output_scale",
    "output_zero_point",
)


def _avg_pool2d_type(types: Sequence[ir.Type], a: dict[str, Any]) -> ir.Type:
    data, *rest = views("qnn.avg_pool2d", POOL_OPERANDS, types)
    one_of("qnn.avg_pool2d", "rounding", a["rounding"], ROUNDINGS)
    data.holds(QUANTIZED)
    pairs(rest, (1, 1))
    return result(pooling(data, "HW", a), data.dtype, 4)


dialect.register("relax.qnn.avg_pool2d", POOL_OPERANDS, _avg_pool2d_type)


def avg_pool2d(
    data: relax.Expr,
    input_scale: relax.Expr,
    input_zero_point: relax.Expr,
    output_scale: relax.Expr,
    output_zero_point: relax.Expr,
    pool_size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NHWC",
    out_layout: str = "",
    rounding: str = "None",
) -> relax.Call:
    """Average windows of a quantized image.

    Parameters
    ----------
    data : tvm.relax.Expr
        Shape (n, h, w, c) in `layout`; int8, uint8, int16 or int32.
    input_scale, input_zero_point, output_scale, output_zero_point : tvm.relax.Expr
        float32 and int32 scalars.
    pool_size, strides, dilation : sequence of int
        For height and width.
    padding : sequence of int
        One for all sides, (height, width), or (top, left, bottom, right).
    ceil_mode : bool
        Whether a last window that is not full counts, unless it begins after the data's end.
    count_include_pad : bool
        Whether padding counts in an average.
    layout, out_layout : str
        Orders of NHWC; an empty `out_layout` is `layout`.
    rounding : str
        As in `tvmlab.qnn.op.requantize`. ``"TFLITE"`` means its kernel: averages rounded half away
        from zero; Relay's other ways cut them off.

    Returns
    -------
    tvm.relax.Call
        The averages in the data's dtype, typed.

    Raises
    ------
    tvmlab.errors.InputError, tvmlab.errors.ShapeError
        If an operand or attribute does not fit; they name it.
    """
    operands = [data, input_scale, input_zero_point, output_scale, output_zero_point]
    attributes = {
        "pool_size": list(pool_size),
        "strides": list(strides),
        "dilation": list(dilation),
        "padding": list(padding),
        "layout": layout,
        "out_layout": out_layout,
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
        "rounding": rounding,
    }
    return checked_call("relax.qnn.avg_pool2d", operands, attributes)
