"""`dense` and `batch_matmul`: a kernel where the weights are constant, else Relax's matmul."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from ...ir.checks import limits
from .operands import Given, call_te, known_shape
from .sums import Sums

__all__ = ["batch_matmul", "dense"]


def dense(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.dense`."""
    given = Given(builder, call)
    weight, dtype = given.array("weight"), given.attributes["out_dtype"]
    sums = Sums.of(given, "data", "weight", weight)
    if sums is None:
        units = given.shape("weight")[0]
        data = _shifted(given, "data", "input_zero_point")
        kernel = _shifted(given, "weight", "kernel_zero_point", units)
        return _matmul(builder, data, _turned(builder, kernel), dtype)
    shape, extra = known_shape(given.name, "data", call), sums.row()
    kind = str(sums.extra.dtype)

    def compute(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, w.shape[1]), "k")

        def value(*index: Any) -> tirx.PrimExpr:
            *rows, unit = index
            return te.sum(x(*rows, k).astype(kind) * w(unit, k).astype(kind), axis=k)

        made = te.compute(shape, value, name="qnn_dense")
        return te.compute(
            shape,
            lambda *index: (made(*index) + extra.read(index[-1])).astype(dtype),
            name="corrected",
        )

    kept = relax.const(sums.weight, str(sums.weight.dtype))
    return call_te(builder, compute, [given["data"], kept], [extra], "qnn_dense")


def batch_matmul(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.batch_matmul`."""
    given = Given(builder, call)
    given.check_scales()
    x, y = _shifted(given, "x", "x_zero_point"), _shifted(given, "y", "y_zero_point")
    if given.attributes["transpose_a"]:
        x = _turned(builder, x)
    if given.attributes["transpose_b"]:
        y = _turned(builder, y)
    return _matmul(builder, x, y, given.attributes["out_dtype"])


def _shifted(given: Given, name: str, zero_name: str, channels: Any = 1) -> relax.Expr:
    """Take the zero points off a tensor, whose first axis is that of the channels."""
    dtype, shape = given.dtype(name), given.shape(name)
    zero = given.zero_row(zero_name, dtype, channels)
    low, high = limits(dtype)
    # Differences of 8 bits fit into 16.
    kind = "int16" if high - low < 1 << 15 else "int32"

    def compute(x: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> tirx.PrimExpr:
            return x(*index).astype(kind) - zero.read(index[0]).astype(kind)

        return te.compute(shape, value, name="shifted")

    made: relax.Expr = given.builder.emit(
        call_te(given.builder, compute, [given[name]], [zero], "qnn_shifted")
    )
    return made


def _turned(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Transpose the matrices of a tensor."""
    axes = [*range(x.ty.ndim)]
    axes[-2:] = axes[:-3:-1]
    made: relax.Expr = builder.emit(relax.op.permute_dims(x, axes))
    return made


def _matmul(builder: relax.BlockBuilder, x: relax.Expr, y: relax.Expr, dtype: str) -> relax.Expr:
    """Multiply, with sums of 32 bits or 64, which wrap to fewer."""
    if str(x.ty.dtype) != str(y.ty.dtype):
        x, y = (builder.emit(relax.op.astype(side, "int32")) for side in (x, y))
    made = relax.op.matmul(x, y, out_dtype="int64" if dtype == "int64" else "int32")
    return made if dtype != "int16" else relax.op.astype(builder.emit(made), dtype)
