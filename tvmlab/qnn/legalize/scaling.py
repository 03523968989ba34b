"""`quantize`, `dequantize` and `requantize` as kernels; what they compute is in the reference."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx

from .. import config
from .casts import half_away, half_even, saturate_float
from .operands import Given, call_te
from .scale import Scaling, requantized

__all__ = ["dequantize", "quantize", "requantize"]


def quantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.quantize`. Scales and zero points may be known at run time only."""
    given = Given(builder, call)
    shape, dtype = given.shape("data"), given.attributes["out_dtype"]
    axis = given.axis("data", given.attributes["axis"])
    channels = given.channels("data", axis)
    scale = given.scale_row("output_scale", channels)
    zero = given.zero_row("output_zero_point", dtype, channels)

    rounded = half_even if given.attributes.get("rounding") == "ONNX" else half_away

    def compute(data: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> tirx.PrimExpr:
            c = index[axis] if index else 0
            real = data(*index).astype("float32") / scale.read(c)
            return saturate_float(rounded(real) + zero.read(c).astype("float32"), dtype)

        return te.compute(shape, value, name="quantize")

    return call_te(builder, compute, [given["data"]], [scale, zero], "quantize")


def dequantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.dequantize`. Scales and zero points may be known at run time only."""
    given = Given(builder, call)
    shape, dtype = given.shape("data"), given.dtype("data")
    axis = given.axis("data", given.attributes["axis"])
    channels = given.channels("data", axis)
    scale = given.scale_row("input_scale", channels)
    zero = given.zero_row("input_zero_point", dtype, channels)
    # int32 less a zero point may need one bit more.
    wide = "int64" if dtype == "int32" and not zero.is_all(0) else "int32"

    def compute(data: te.Tensor) -> te.Tensor:
        def value(*index: Any) -> tirx.PrimExpr:
            c = index[axis] if index else 0
            whole = data(*index).astype(wide) - zero.read(c).astype(wide)
            real = whole.astype("float32") * scale.read(c)
            return real.astype(given.attributes["out_dtype"])

        return te.compute(shape, value, name="dequantize")

    return call_te(builder, compute, [given["data"]], [scale, zero], "dequantize")


def requantize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Legalize `qnn.requantize`. Scales are constants, as in Relay; zero points need not be."""
    given = Given(builder, call)
    dtype, a = given.dtype("data"), given.attributes
    axis = given.axis("data", a["axis"])
    channels = given.channels("data", axis)
    kind, out_dtype = "int32" if dtype == "int64" else dtype, a["out_dtype"] or dtype
    scaling = Scaling(
        given.scale("input_scale", channels, wide=True),
        given.zero_row("input_zero_point", kind, channels),
        given.scale("output_scale"),
        given.zero_row("output_zero_point", out_dtype),
        kind,
        out_dtype,
        config.resolve(given.name, a["rounding"], a["compute_dtype"]),
    )

    return requantized(builder, given["data"], scaling, given.name, axis)
