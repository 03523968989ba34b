"""Converters between numbers: 8-bit floats, bits, shifts, powers and remainders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as upstream

from ..ir.dialect import WIDENED
from .arithmetic import by_libm, converted, remainder
from .onnx_graphs import Attributes, GraphImporter, Inputs, const

__all__ = ["NUMBERS", "cast", "wide"]

_SMALL_FLOATS = tuple(f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"))
_POWERS = "float8_e8m0fnu"  # powers of two


def elementwise(
    importer: GraphImporter, function: Callable[..., Any], *operands: relax.Expr
) -> relax.Expr:
    """Apply a function of TIR expressions to the elements of tensors of one shape."""

    def body(*tensors: te.Tensor) -> te.Tensor:
        return te.compute(tensors[0].shape, lambda *at: function(*(x(*at) for x in tensors)))

    return importer.bb.emit_te(body, *operands, primfunc_name_hint=function.__name__.strip("_"))


def cast(importer: GraphImporter, x: relax.Expr, dtype: str, how: Attributes) -> relax.Expr:
    """Convert a tensor to a dtype, rounding to small floats and integers as ONNX defines."""
    given = str(x.ty.dtype)
    if given in (*_SMALL_FLOATS, _POWERS):
        values = np.arange(256, dtype="uint8").view(given).astype("float32")
        codes = elementwise(importer, lambda v: tirx.reinterpret("uint8", v), x)
        x = importer.bb.emit(op.take(const(values), op.astype(codes, "int32")))
    if dtype in WIDENED:
        return _narrowed(importer, x, dtype)
    if dtype == "bfloat16" and importer.value(x) is None:
        return converted(importer.bb, x, dtype)
    if dtype not in (*_SMALL_FLOATS, _POWERS):
        return importer.by_upstream("Cast", [x], {"to": dtype})
    x = importer.bb.emit(op.astype(x, "float32"))
    return elementwise(importer, (_powers(how) if dtype == _POWERS else _floats(dtype, how)), x)


def _narrowed(importer: GraphImporter, x: relax.Expr, dtype: str) -> relax.Expr:
    """Convert to 2 or 4 bits: keep the low bits of an integer, or round to the nearest float4."""
    emit, wide = importer.bb.emit, WIDENED[dtype]
    if "float" not in dtype:
        x = x if "int" in str(x.ty.dtype) else emit(op.astype(x, "int32"))
        unused = const(np.array(8 - int(dtype.lstrip("uint")), wide))
        return op.right_shift(op.left_shift(emit(op.astype(x, wide)), unused), unused)
    x = emit(op.astype(x, "float32"))
    size = emit(op.abs(x))
    half, one, two, four = (const(np.float32(number)) for number in (0.5, 1, 2, 4))
    step = emit(op.where(op.less(size, two), half, op.where(op.less(size, four), one, two)))
    rounded = op.clip(op.multiply(op.round(op.divide(x, step)), step), -6, 6)
    known = op.where(op.isnan(x), const(np.float32(0)), rounded)  # as NumPy does with ml_dtypes
    return cast(importer, emit(known), wide, {})


def _powers(how: Attributes) -> Callable[[Any], Any]:
    """Return a function that rounds a float32 number to a power of two, without its sign."""
    mode, saturate = how.get("round_mode", b"up").decode(), how.get("saturate", 1)

    def to_power(x: Any) -> Any:
        bits = tirx.reinterpret("uint32", x).astype("int32") & tirx.const(0x7FFFFFFF, "int32")
        half = tirx.Select(bits < 0x800000, 0x3FFFFF, 0x400000)  # up, except from below 2**-126
        code = (bits + {"up": 0x7FFFFF, "down": 0, "nearest": half}[mode]) >> 23
        code = tirx.Select(bits >= 0x7F800000, 255, tirx.min(code, 254 if saturate else 255))
        return tirx.reinterpret(_POWERS, code.astype("uint8"))

    return to_power


def _as_float(bits: Any) -> Any:
    return tirx.reinterpret("float32", bits.astype("uint32"))


def _floats(dtype: str, how: Attributes) -> Callable[[Any], Any]:
    """Return a function that rounds a float32 number to an 8-bit float."""
    info: Any = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    mantissa, low = int(info.nmant), int(info.minexp)
    top = int(np.array(info.max, dtype).view("uint8"))
    saturate = how.get("saturate", 1)
    unsigned = "fnuz" in dtype  # without a negative zero, whose code means NaN
    nan = int(np.array(np.nan, dtype).view("uint8")) & (0xFF if unsigned else 0x7F)
    over = top if saturate else (0x7C if dtype == "float8_e5m2" else nan)

    def to_float8(x: Any) -> Any:
        bits = tirx.reinterpret("uint32", x).astype("int32")
        size = bits & tirx.const(0x7FFFFFFF, "int32")
        exponent = tirx.max((size >> 23) - 127, low)
        scale = _as_float((127 + mantissa - exponent) << 23)
        steps = tirx.round(_as_float(size) * scale).astype("int32")
        code = ((exponent - low) << mantissa) + steps
        code = tirx.Select(tirx.any(code > top, exponent > 100), over, code)
        sign = (bits >> 24) & 0x80
        sign = tirx.Select(code == 0, 0, sign) if unsigned else sign
        code = code | tirx.Select(code == nan, 0, sign) if unsigned else code | sign
        code = tirx.Select(size > 0x7F800000, nan, code)
        return tirx.reinterpret(dtype, code.astype("uint8"))

    return to_float8


def _cast(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, dtype = inputs[0], upstream.get_type(attributes["to"])
    if isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType):
        return cast(importer, x, dtype, attributes)
    return importer.by_upstream("Cast", inputs, attributes)


def _cast_like(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    return _cast(importer, inputs, {**attributes, "to": str(inputs[1].ty.dtype)})


def _bit_cast(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    dtype = upstream.get_type(attributes["to"])
    if dtype in WIDENED:
        raise importer.unsupported(f"to {dtype}", "use a dtype of 8 bits or more")
    if "bool" in (dtype, str(inputs[0].ty.dtype)):
        return importer.by_upstream("Cast", inputs, {"to": dtype})

    def bits(x: Any) -> Any:
        return tirx.reinterpret(dtype, x)

    return elementwise(importer, bits, inputs[0])


def _pow(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Compute in the base's dtype; integer powers of integers by squaring."""
    x, y = inputs
    kind = str(x.ty.dtype)
    if str(y.ty.dtype) == kind and "float" in kind:
        return importer.by_upstream("Pow", inputs, attributes)
    if "float" in kind:
        return op.power(x, op.astype(y, kind))
    emit = importer.bb.emit
    if "float" in str(y.ty.dtype):  # float64 is exact for integers up to 2**53
        made = op.power(*(op.astype(value, "float64") for value in (x, y)))
        return cast(importer, emit(made), kind, {})
    exponent, base = emit(op.astype(y, "int64")), emit(op.astype(x, "int64"))
    nil, one, most = (const(np.int64(number)) for number in (0, 1, 64))
    whole = emit(op.logical_or(op.greater_equal(exponent, nil), op.equal(op.abs(base), one)))
    # From 64 on, a power overflows, except those of -1, 0 and 1, which depend on the parity.
    even = op.add(most, op.bitwise_and(exponent, one))
    exponent = emit(op.where(op.greater(exponent, most), even, exponent))
    result = one
    for _ in range(7):
        odd = op.equal(op.bitwise_and(exponent, one), one)
        result = emit(op.multiply(result, op.where(odd, base, one)))
        base, exponent = emit(op.multiply(base, base)), emit(op.right_shift(exponent, one))
    return op.astype(op.where(whole, result, nil), kind)


def _mod(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Compute the remainder; with fmod, of the dividend's sign, as in C."""
    x, y = inputs
    kind = str(x.ty.dtype)
    fmod = attributes.get("fmod", 0)
    if "float" in kind:
        return (op.mod if fmod else remainder)(x, y)
    if kind.startswith("uint") or not fmod:
        return importer.by_upstream("Mod", inputs, {})
    emit = importer.bb.emit
    wide_x, wide_y = (emit(op.astype(v, "int64")) for v in (x, y))
    rest = emit(op.mod(op.abs(wide_x), op.abs(wide_y)))
    below = op.less(wide_x, const(np.int64(0)))
    return op.astype(op.where(below, op.negative(rest), rest), kind)


def _shift(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Shift bits; a shift beyond the width leaves none, or the sign."""
    x, y = inputs
    kind, left = str(x.ty.dtype), attributes["direction"] == b"LEFT"
    bits = int(kind.lstrip("uint"))
    emit = importer.bb.emit
    width, nil = const(np.array(bits, kind)), const(np.array(0, kind))
    inside = op.less(y, width)
    if kind.startswith("int"):
        inside = op.logical_and(inside, op.greater_equal(y, nil))
    inside = emit(inside)
    safe = emit(op.where(inside, y, nil))
    made = emit((op.left_shift if left else op.right_shift)(x, safe))
    beyond = nil
    if kind.startswith("int") and not left:
        beyond = op.where(op.less(x, nil), const(np.array(-1, kind)), nil)
    return op.where(inside, made, beyond)


def wide(kind: str, converter: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Make a converter that computes 16-bit floats in float32, as other runtimes do."""

    def convert(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
        emit, dtype = importer.bb.emit, str(inputs[0].ty.dtype)
        narrow = dtype in ("float16", "bfloat16")
        if narrow:
            alike = [x is not None and str(x.ty.dtype) == dtype for x in inputs]
            pairs = zip(inputs, alike, strict=True)
            wider = [emit(op.astype(x, "float32")) if same else x for x, same in pairs]
            inputs = upstream.onnx_input(wider)
        if converter is None:
            made = importer.by_upstream(kind, inputs, attributes)
        else:
            made = converter(importer, inputs, attributes)
        return converted(importer.bb, emit(made), dtype) if narrow else made

    return convert


def _extreme(kind: str, choose: Callable[..., Any]) -> Callable[..., Any]:
    """Make a converter for the largest or smallest of tensors; NaN if one of them is NaN."""

    def convert(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
        if len(inputs) == 1 or "float" not in str(inputs[0].ty.dtype):
            return importer.by_upstream(kind, inputs, attributes)
        made, *others = inputs
        for other in others:
            # A comparison with NaN is false, and `other` NaN is the sum's NaN.
            best = op.where(choose(made, other), made, op.where(op.isnan(made), made, other))
            made = importer.bb.emit(best)
        return made

    return convert


def _atanh(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    return by_libm(importer.bb, "atanh", inputs[0])


def _softplus(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, emit = inputs[0], importer.bb.emit
    zero = const(np.zeros((), str(x.ty.dtype)))
    power = emit(op.exp(op.negative(op.abs(x))))
    positive = op.where(op.less(x, zero), zero, x)
    return op.add(positive, by_libm(importer.bb, "log1p", power))


#: The converters of this module.
NUMBERS: dict[str, Callable[..., Any]] = {
    "Atanh": wide("Atanh", _atanh),
    "BitCast": _bit_cast,
    "BitShift": _shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Max": _extreme("Max", op.greater),
    "Min": _extreme("Min", op.less),
    "Mod": _mod,
    "Pow": _pow,
    "Softplus": wide("Softplus", _softplus),
}
