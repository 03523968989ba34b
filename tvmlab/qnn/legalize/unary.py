"""Functions of one quantized tensor: looked up in a table that is made at compile time.

Of 8 and of 16 bits there are so few values that the reference computes all of them now. An int32 is
dequantized, put through Relax's function in float32 and quantized, as in Relay; then the last bit
of that function is TVM's, not NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from ...ir.checks import limits
from .. import arithmetic, config, op
from ..reference.unary import scaled
from .casts import saturate_int
from .fixed_point import Multiplication
from .operands import Given, Row, call_te, narrow
from .scale import Scaling

__all__ = ["FUNCTIONS", "leaky_relu", "unary"]

Array = npt.NDArray[Any]

# Of relax/transform/fuse_ops.cc (OpPatternKind): a table is read anywhere, but only one number of
# the data. (0, element-wise, counts as not said.)
_BROADCAST = 1


def _real(value: float) -> relax.Expr:
    return relax.const(value, "float32")


def _hardswish(x: relax.Expr) -> relax.Expr:
    cut = relax.op.clip(relax.op.add(x, _real(3.0)), 0, 6)
    return relax.op.divide(relax.op.multiply(x, cut), _real(6.0))


FUNCTIONS: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "abs": relax.op.abs,
    "erf": relax.op.erf,
    "exp": relax.op.exp,
    "hardswish": _hardswish,
    "log": relax.op.log,
    "rsqrt": lambda x: relax.op.divide(_real(1.0), relax.op.sqrt(x)),
    "sigmoid": relax.op.sigmoid,
    "sqrt": relax.op.sqrt,
    "tanh": relax.op.tanh,
}
"""What `tvmlab.qnn.op`'s functions are in Relax, of float32."""


def unary(name: str) -> Callable[[relax.BlockBuilder, relax.Call], relax.Expr]:
    """Make the legalization of one of the `FUNCTIONS`."""

    def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        given = Given(builder, call)
        dtype = given.dtype("x")
        parameters = (
            given.scale("scale"),
            given.zero_point("zero_point", dtype),
            given.scale("output_scale"),
            given.zero_point("output_zero_point", dtype),
        )
        if narrow(dtype):
            compute: Callable[..., Array] = getattr(arithmetic, name)
            return _looked_up(given, lambda x: compute(x, *parameters))
        _, scale, zero, out_scale, out_zero = call.args
        real = op.dequantize(call.args[0], scale, zero)
        made = FUNCTIONS[name](builder.emit(real))
        return op.quantize(builder.emit(made), out_scale, out_zero, out_dtype=dtype)

    return legalize


def leaky_relu(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.leaky_relu`."""
    given = Given(builder, call)
    dtype, alpha = given.dtype("x"), given.attributes["alpha"]
    parameters = (
        given.scale("scale"),
        given.zero_point("zero_point", dtype),
        given.scale("output_scale"),
        given.zero_point("output_zero_point", dtype),
    )
    if not narrow(dtype):
        return _leaky_int32(given, alpha, *parameters)
    return _looked_up(given, lambda x: arithmetic.leaky_relu(x, alpha, *parameters))


def _leaky_int32(
    given: Given, alpha: float, scale: Array, zero: Array, out_scale: Array, out_zero: Array
) -> relax.Expr:
    """Compute `leaky_relu` number by number: int32 has too many values for a table."""
    rows = [Row(point, dtype="int32") for point in (zero, out_zero)]
    scaling = None
    if (scale, zero) != (out_scale, out_zero):
        way = config.resolve(given.name)
        scaling = Scaling(scale, rows[0], out_scale, rows[1], "int32", "int32", way)
    low, high = limits("int32")
    product = Multiplication(np.asarray(abs(alpha)), "UPWARD", (low, high + 1))
    fixed = int(scaled(out_zero, 1 - alpha))

    def compute(x: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> tirx.PrimExpr:
            number = x(*index)
            q = (scaling.apply(number, 0) if scaling else number).astype("int64")
            below = product.apply(q if alpha >= 0 else tirx.const(0, "int64") - q, 0)
            below = below.astype("int64") + tirx.const(fixed, "int64")
            return saturate_int(tirx.Select(number < int(zero), below, q), "int32")

        return te.compute(given.shape("x"), value, name="leaky_relu")

    read = [*(scaling.rows if scaling else ()), *product.rows]
    return call_te(given.builder, compute, [given["x"]], read, "qnn_leaky_relu")


def _looked_up(given: Given, compute: Callable[[Array], Array]) -> relax.Expr:
    """Call a kernel that reads a function's results where they lie."""
    dtype, shape = given.dtype("x"), given.shape("x")
    low, high = limits(dtype)
    table = compute(np.arange(low, high + 1).astype(dtype))

    def looked_up(x: te.Tensor, results: te.Tensor) -> te.Tensor:
        return te.compute(
            shape, lambda *index: results(x(*index).astype("int32") - low), name="look_up"
        )

    operands = [given["x"], relax.const(table, dtype)]
    return call_te(given.builder, looked_up, operands, [], given.name.replace(".", "_"), _BROADCAST)
