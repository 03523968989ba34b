"""Quantized transposed convolutions by phases, whose sums are requantized before they are placed.

The phases of `tvmlab.schedule.transposed` are interleaved as the integers of 8 bits that the
requantization makes of the sums: a quarter of the bytes, and the sums stay in registers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, rewrite_call, wildcard

from ..ir import dialect, windows
from ..qnn import op as qnn
from .compute import sizes
from .transposed import Phases

__all__ = ["quantized_phases"]

_NAME = "relax.qnn.conv2d_transpose"


def quantized_phases() -> tvm.transform.Pass:
    """Return the pass for ``qnn.conv2d_transpose`` in NHWC with constant weights."""

    @relax.transform.function_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def run(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
        bias, scales = is_const(), [is_const() for _ in range(4)]
        conv = is_op(_NAME)(*(wildcard() for _ in range(6)))
        summed = is_op("relax.add")(conv, bias)
        # The longest first: a convolution alone is left for the pattern after it.
        for sums, more in ((summed, bias), (conv, None)):
            whole = is_op("relax.qnn.requantize")(sums, *scales)

            def rewrite(
                expr: relax.Expr, found: Any, more: Any = more, whole: Any = whole
            ) -> relax.Expr:
                if not isinstance(expr, relax.Call):
                    return expr
                made = _by_phases(found[conv], found[more] if more is not None else None, expr)
                return expr if made is None else made

            func = rewrite_call(whole, rewrite, func)
        return func

    return run


def _by_phases(
    conv: relax.Call, bias: relax.Expr | None, requantize: relax.Call
) -> relax.Expr | None:
    """Return a convolution, a bias and a requantization by phases; None if they do not fit."""
    a, how = dialect.attributes(conv), dialect.attributes(requantize)
    data, weight, zero, weight_zero, *_ = conv.args
    layouts = a["data_layout"], a["kernel_layout"], a["out_layout"] or a["data_layout"]
    constant = all(isinstance(x, tvm.ir.GenericConst) for x in (weight, zero, weight_zero))
    if layouts != ("NHWC", "IOHW", "NHWC") or not constant or a["groups"] != 1:
        return None
    made = sizes(conv.ty.shape)
    padding = [before for before, _ in windows.padding(a["padding"], 2, conv.op.name)]
    given = SimpleNamespace(
        strides=windows.steps(a["strides"], 2, conv.op.name, "strides"),
        dilation=windows.steps(a["dilation"], 2, conv.op.name, "dilation"),
        padding=padding,
        groups=1,
    )
    filters = weight.value.numpy()
    exact = all(
        size % step == 0 for size, step in zip(filters.shape[2:], given.strides, strict=True)
    )
    points = weight_zero.value.numpy()
    plan = Phases.of(filters, given, sizes(data.ty.shape), made)
    if plan is None or (points.any() and not exact):
        return None
    many = int(np.prod(given.strides))
    channels = made[3]

    def tiled(value: relax.Expr) -> relax.Expr:
        """Repeat numbers of channels for each phase."""
        array = value.value.numpy()
        return (
            value if array.size == 1 else relax.const(np.tile(array.ravel(), many), value.ty.dtype)
        )

    if (how["axis"] % 4 != 3 and any(x.value.numpy().size > 1 for x in requantize.args[1:3])) or (
        bias is not None and bias.value.numpy().size not in (1, channels)
    ):
        return None
    sums: relax.Expr = qnn.conv2d(
        data,
        relax.const(plan.filters, weight.ty.dtype),
        zero,
        tiled(weight_zero),
        conv.args[4],
        tiled(conv.args[5]),
        padding=[*plan.before, *plan.after],
        data_layout="NHWC",
        kernel_layout="OHWI",
        out_dtype=a["out_dtype"],
    )
    if bias is not None:
        row = tiled(bias).value.numpy().reshape(1, 1, 1, -1)
        sums = relax.op.add(sums, relax.const(row, bias.ty.dtype))
    scale, point, *out = requantize.args[1:]
    operands = [sums, tiled(scale), tiled(point), *out]
    whole = dialect.call("relax.qnn.requantize", operands, {**how, "axis": 3})
    return plan.placed(whole, lambda expr: expr)
