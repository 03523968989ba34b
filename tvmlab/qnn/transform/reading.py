"""Reading quantizes and dequantizes, Relax's and ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import relax

from .context import operator
from .quantized_value import Array, NotQuantizable, QuantizedValue, array_of, channel_params

QUANTIZES = ("relax.quantize", "relax.qnn.quantize")
DEQUANTIZES = ("relax.dequantize", "relax.qnn.dequantize")
_STORED = ("int8", "uint8", "int16", "int32")


def nested(value: relax.Expr) -> Iterator[relax.SeqExpr]:
    """Yield the branches of an `if`."""
    if isinstance(value, relax.If):
        for branch in (value.true_branch, value.false_branch):
            if isinstance(branch, relax.SeqExpr):
                yield branch


def bindings(body: relax.Expr) -> Iterator[tuple[relax.Var, relax.Expr]]:
    """Yield the bindings of a body and of the branches and functions in it, in order."""
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        for binding in block.bindings:
            value = binding.value
            for inner in [value.body] if isinstance(value, relax.Function) else nested(value):
                yield from bindings(inner)
            yield binding.var, value


def any_quantize(body: relax.Expr) -> bool:
    """Whether a body quantizes anything, in itself, a branch or a function within it."""
    return any(operator(value) in QUANTIZES for _, value in bindings(body))


def _attribute(call: relax.Call, name: str) -> Any:
    ours = call.op.name.startswith("relax.qnn.")
    return call.attrs[name] if ours else getattr(call.attrs, name)


def read_quantize(call: relax.Call) -> tuple[Array, Array, int, str]:
    """Return a quantize's scale, zero point, axis and dtype.

    Raises
    ------
    NotQuantizable
        If they are not constant, or quantized networks do not have the dtypes.
    """
    ty, dtype = call.args[0].ty, str(_attribute(call, "out_dtype"))
    if dtype not in _STORED:
        raise NotQuantizable(f"it quantizes to {dtype}")
    if str(ty.dtype) != "float32":
        raise NotQuantizable(f"it quantizes {ty.dtype}")
    return *channel_params(call, int(_attribute(call, "axis")), ty, dtype), dtype


def read_dequantize(call: relax.Call, data: relax.Expr, bounds: tuple[int, int]) -> QuantizedValue:
    """Return the integers that a dequantize reads from `data`, its operand as it is now."""
    dtype, out = str(data.ty.dtype), str(_attribute(call, "out_dtype"))
    if dtype not in _STORED:
        raise NotQuantizable(f"it dequantizes {dtype}")
    if out != "float32":
        raise NotQuantizable(f"it dequantizes to {out}")
    params = channel_params(call, int(_attribute(call, "axis")), call.args[0].ty, dtype)
    return QuantizedValue(data, dtype, *params, *bounds, array=array_of(data))
