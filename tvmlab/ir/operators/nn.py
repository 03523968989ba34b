"""Rows for networks' simple layers: products, biases, activations, softmax, dropout, padding.

Names, attributes and types are those of src/relay/op/nn/nn.cc and pad.cc (TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from .. import dialect
from ..products import batch_matmul_shape, dense_shape
from ..table import Attribute, Operator, add, add_ours
from ..types import Tensor, differ, result, view
from .checks import relay_errors
from .common import Operands, Values, Written, same_as_relax, two_forms


def _rank(operand: relax.Expr) -> int:
    return view("", "operand", operand.ty).ndim


# Products


_UNITS = Attribute("units", "int", None)
_OUT_DTYPE = Attribute("out_dtype", "str", "")
_TRANSPOSES = (
    Attribute("transpose_a", "bool", False),
    Attribute("transpose_b", "bool", False),
)


def _turned(operand: relax.Expr, turn: bool) -> relax.Expr:
    """Swap an operand's last two axes if so asked."""
    if not turn:
        return operand
    last = operand.ty.ndim - 1
    return op.permute_dims(operand, [*range(last - 1), last, last - 1])


def _dense_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    data, weight = view("nn.dense", "data", types[0]), view("nn.dense", "weight", types[1])
    shape, _ = dense_shape(data, weight, a["units"])
    return result(shape, a["out_dtype"] or data.dtype, data.ndim)


def _dense(operands: Operands, a: Values) -> relax.Expr:
    data, weight = operands
    return op.matmul(data, _turned(weight, True), a["out_dtype"] or None)


add_ours(
    "nn.dense",
    ("data", "weight"),
    (_UNITS, _OUT_DTYPE),
    _dense_type,
    _dense,
)


def _transposed_type(ty: ir.Type, turn: bool, name: str, call: str) -> Tensor:
    known = view(call, name, ty)
    if not turn or known.shape is None:
        return known
    return Tensor(call, name, [*known.shape[:-2], *known.shape[:-3:-1]], known.ndim, known.dtype)


def _matmul_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    first = _transposed_type(types[0], a["transpose_a"], "tensor_a", "nn.matmul")
    # `dense_shape` wants the second one transposed.
    second = _transposed_type(types[1], not a["transpose_b"], "tensor_b", "nn.matmul")
    shape, _ = dense_shape(first, second, a["units"])
    return result(shape, a["out_dtype"] or first.dtype, first.ndim)


def _batch_matmul_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    name = "nn.batch_matmul"
    x, y = view(name, "tensor_a", types[0]), view(name, "tensor_b", types[1])
    return result(batch_matmul_shape(x, y, a), a["out_dtype"] or x.dtype, 3)


def _product(operands: Operands, a: Values) -> relax.Expr:
    first = _turned(operands[0], a["transpose_a"])
    second = _turned(operands[1], a["transpose_b"])
    return op.matmul(first, second, a["out_dtype"] or None)


def _matmul_row(name: str, rank: int, infer: dialect.Infer) -> None:
    """Add a product of matrices: Relax's own where both have `rank` axes as they stand."""
    units = (_UNITS,) if rank == 2 else ()

    def read(given: Operands, a: Values) -> relax.Expr | None:
        if a["transpose_a"] or a["transpose_b"] or any(_rank(x) != rank for x in given):
            return None
        with relay_errors():
            infer([x.ty for x in given], a)
        return op.matmul(*given, a["out_dtype"] or None)

    def write(call: relax.Call) -> Written | None:
        if any(_rank(x) != rank for x in call.args):
            return None
        columns = view(name, "tensor_b", call.args[1].ty).size(1)
        found = {"units": columns if isinstance(columns, int) else None} if units else {}
        plain = {"transpose_a": False, "transpose_b": False}
        return list(call.args), found | {"out_dtype": str(call.attrs.out_dtype or "")} | plain

    two_forms(
        name,
        ("tensor_a", "tensor_b"),
        (*units, _OUT_DTYPE, *_TRANSPOSES),
        "relax.matmul",
        read,
        write,
        infer,
        _product,
        defaults=None if units else {"transpose_b": True},
    )


_matmul_row("nn.matmul", 2, _matmul_type)
_matmul_row("nn.batch_matmul", 3, _batch_matmul_type)


# A bias


def _bias_add_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    data, bias = view("nn.bias_add", "data", types[0]), view("nn.bias_add", "bias", types[1])
    bias.rank(1)
    if data.dtype:
        bias.holds((data.dtype,))
    size = data.size(a["axis"])
    if size is not None and differ(size, bias.size(0)):
        raise RelayError(
            f"bias has {bias.size(0)} values; the data of shape {data.shape} has {size} along "
            f"axis {a['axis']}",
            where=bias.where,
        )
    return result(data.shape, data.dtype or bias.dtype, data.ndim)


def _bias_add(operands: Operands, a: Values) -> relax.Expr:
    data, bias = operands
    axis = a["axis"] % data.ty.ndim
    if axis == data.ty.ndim - 1:
        return op.add(data, bias)
    return op.add(data, op.expand_dims(bias, list(range(1, data.ty.ndim - axis))))


add_ours("nn.bias_add", ("data", "bias"), (Attribute("axis", "int", 1),), _bias_add_type, _bias_add)


# Activations, softmax, dropout: Relax has the same


def _same(
    name: str,
    native: Callable[..., relax.Expr],
    attribute: Attribute,
    operands: tuple[str, ...] = ("data",),
    relax_name: str | None = None,
    defaults: Values | None = None,
) -> None:
    """Add a row of which Relax has the same, with one attribute."""
    kind = {"int": int, "float": float}[attribute.kind]

    def read(args: Operands, a: Values) -> relax.Expr:
        return native(*args, a[attribute.name])

    def write(call: relax.Call) -> Written:
        return list(call.args), {attribute.name: kind(getattr(call.attrs, attribute.name))}

    whole = relax_name or f"relax.{name}"
    add(Operator(name, whole, operands, (attribute,), read, write, defaults=defaults))


_AXIS = Attribute("axis", "int", -1)
same_as_relax("nn.relu", op.nn.relu, ("data",))
same_as_relax("nn.batch_flatten", op.nn.batch_flatten, ("data",))
_same("nn.softmax", op.nn.softmax, _AXIS)
_same("nn.log_softmax", op.nn.log_softmax, _AXIS)
_same("nn.prelu", op.nn.prelu, Attribute("axis", "int", 1), ("data", "alpha"))
_same("nn.dropout", op.nn.dropout, Attribute("rate", "float", 0.5))
_same(
    "nn.leaky_relu",
    op.nn.leakyrelu,
    Attribute("alpha", "float", 0.25),
    relax_name="relax.nn.leakyrelu",
    defaults={"alpha": 0.01},
)


# Padding: Relax's own has the value as an attribute


_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def _pad_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    data, value = view("nn.pad", "data", types[0]), view("nn.pad", "pad_value", types[1])
    value.rank(0)
    _pad_check(data, a)
    if data.shape is None:
        return result(None, data.dtype, len(a["pad_width"]))
    pairs = zip(data.shape, a["pad_width"], strict=True)
    return result([size + sum(pair) for size, pair in pairs], data.dtype)


def _pad_check(data: Tensor, a: Values) -> None:
    widths = a["pad_width"]
    if any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in widths):
        raise RelayError(
            f"pad_width {widths} is no list of pairs", where="nn.pad, attribute pad_width"
        )
    if data.ndim >= 0 and len(widths) != data.ndim:
        raise RelayError(
            f"pad_width has {len(widths)} pairs; the data has {data.ndim} dimensions",
            where="nn.pad, attribute pad_width",
        )
    if a["pad_mode"] not in _MODES:
        raise RelayError(
            f'pad_mode is "{a["pad_mode"]}"; nn.pad takes {", ".join(_MODES)}.',
            where="nn.pad, attribute pad_mode",
        )


def _constant(value: relax.Expr) -> Any:
    """Give a scalar constant's value as NumPy has it, None where it is no such constant."""
    if not isinstance(value, ir.GenericConst) or _rank(value) != 0:
        return None
    return value.value.numpy()[()]


def _native_pad(data: relax.Expr, value: float, a: Values) -> relax.Expr:
    flat = [size for pair in a["pad_width"] for size in pair]
    return op.nn.pad(data, flat, _MODES[a["pad_mode"]], value)


def _pad(operands: Operands, a: Values) -> relax.Expr:
    data, value = operands
    number, dtype = _constant(value), str(data.ty.dtype)
    if number is not None and float(number) == number:
        return _native_pad(data, float(number), a)
    if a["pad_mode"] != "constant":
        return _native_pad(data, 0.0, a)
    # A value known at run time only: take it where a mask, padded alike, says so.
    inside = op.astype(_native_pad(op.ones_like(data, "uint8"), 0.0, a), "bool")
    return op.where(inside, _native_pad(data, 0.0, a), op.astype(value, dtype))


def _read_pad(operands: Operands, a: Values) -> relax.Expr | None:
    data, value = operands
    known = view("nn.pad", "data", data.ty)
    _pad_check(known, a)
    number = _constant(value)
    if isinstance(number, np.float32) and known.ndim >= 0:
        return _native_pad(data, float(number), a)
    return None


def _write_pad(call: relax.Call) -> Written | None:
    modes = {theirs: name for name, theirs in _MODES.items()}
    mode = modes.get(str(call.attrs.pad_mode))
    if mode is None:
        return None
    sizes = [int(size) for size in call.attrs.pad_width]
    value = float(call.attrs.pad_value)
    # Float32, as Relay's frontends have it, unless that would change float64 data.
    exact = np.float32(value) == value or value != value
    wide = not exact and view("nn.pad", "data", call.args[0].ty).dtype == "float64"
    return [call.args[0], relax.const(value, "float64" if wide else "float32")], {
        "pad_width": [list(pair) for pair in zip(sizes[::2], sizes[1::2], strict=True)],
        "pad_mode": mode,
    }


two_forms(
    "nn.pad",
    ("data", "pad_value"),
    (Attribute("pad_width", "ints"), Attribute("pad_mode", "str", "constant")),
    "relax.nn.pad",
    _read_pad,
    _write_pad,
    _pad_type,
    _pad,
    signature=("data", "pad_width", "pad_value", "pad_mode"),
    defaults={"pad_value": 0},
)
