"""Rows for networks' simple layers: products, biases, activations, softmax, dropout, padding.

Names, attributes and types are those of src/relay/op/nn/nn.cc and pad.cc (TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ...errors import RelayError
from .. import dialect
from ..products import batch_matmul_shape, dense_shape
from ..table import native, stands_for
from ..types import Tensor, differ, result, view
from .checks import relay_errors
from .common import Values, Written, like, rank


def _turned(operand: relax.Expr, turn: bool) -> relax.Expr:
    """Swap an operand's last two axes if `turn` is set."""
    if not turn:
        return operand
    last = operand.ty.ndim - 1
    return op.permute_dims(operand, [*range(last - 1), last, last - 1])


def _dense_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    data, weight = view("nn.dense", "data", types[0]), view("nn.dense", "weight", types[1])
    shape, _ = dense_shape(data, weight, a["units"])
    return result(shape, a["out_dtype"] or data.dtype, data.ndim)


@stands_for("nn.dense", "data weight", "units:int=None out_dtype:str=", infer=_dense_type)
def _dense(data: relax.Expr, weight: relax.Expr, units: int | None, out_dtype: str) -> relax.Expr:
    return op.matmul(data, _turned(weight, True), out_dtype or None)


def _transposed_type(ty: ir.Type, turn: bool, name: str) -> Tensor:
    known = view("nn.matmul", name, ty)
    if not turn or known.shape is None:
        return known
    shape = [*known.shape[:-2], *known.shape[:-3:-1]]
    return Tensor(known.call, name, shape, known.ndim, known.dtype)


def _matmul_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    first = _transposed_type(types[0], a["transpose_a"], "tensor_a")
    # `dense_shape` takes the second one transposed.
    second = _transposed_type(types[1], not a["transpose_b"], "tensor_b")
    shape, _ = dense_shape(first, second, a["units"])
    return result(shape, a["out_dtype"] or first.dtype, first.ndim)


def _batch_matmul_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    name = "nn.batch_matmul"
    x, y = view(name, "tensor_a", types[0]), view(name, "tensor_b", types[1])
    return result(batch_matmul_shape(x, y, a), a["out_dtype"] or x.dtype, 3)


def _product(a: relax.Expr, b: relax.Expr, **given: Any) -> relax.Expr:
    first, second = _turned(a, given["transpose_a"]), _turned(b, given["transpose_b"])
    return op.matmul(first, second, given["out_dtype"] or None)


def _matmul_row(name: str, ndim: int, infer: dialect.Infer) -> None:
    """Add a product of matrices: Relax's own where both have `ndim` axes and none is transposed."""
    units = ndim == 2

    def fits(*given: relax.Expr) -> bool:
        return all(rank(x.ty) == ndim for x in given)

    def to_relax(*given: relax.Expr, **a: Any) -> relax.Expr | None:
        if a["transpose_a"] or a["transpose_b"] or not fits(*given):
            return None
        with relay_errors():
            infer([x.ty for x in given], a)
        return op.matmul(*given, a["out_dtype"] or None)

    def from_relax(call: relax.Call) -> Written:
        columns = view(name, "tensor_b", call.args[1].ty).size(1)
        found: Values = {"units": columns if isinstance(columns, int) else None} if units else {}
        found["out_dtype"] = str(call.attrs.out_dtype or "")
        return list(call.args), found | {"transpose_a": False, "transpose_b": False}

    native(
        name,
        "tensor_a tensor_b",
        f"{'units:int=None ' * units}out_dtype:str= transpose_a:bool=False transpose_b:bool=False",
        "matmul",
        to_relax=to_relax,
        from_relax=from_relax,
        only=lambda call: fits(*call.args),
        expand=_product,
        infer=infer,
        defaults=None if units else {"transpose_b": True},
    )


_matmul_row("nn.matmul", 2, _matmul_type)
_matmul_row("nn.batch_matmul", 3, _batch_matmul_type)


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


@stands_for("nn.bias_add", "data bias", "axis:int=1", infer=_bias_add_type)
def _bias_add(data: relax.Expr, bias: relax.Expr, axis: int) -> relax.Expr:
    behind = data.ty.ndim - 1 - axis % data.ty.ndim
    axes = tuple(range(1, behind + 1))
    if not axes:
        return op.add(data, bias)
    if isinstance(bias, ir.GenericConst):  # FoldConstant would compile a kernel for each
        return op.add(data, relax.const(np.expand_dims(bias.value.numpy(), axes)))
    return op.add(data, op.expand_dims(bias, list(axes)))


native("nn.relu", "data")
native("nn.batch_flatten", "data")
native("nn.softmax", "data", "axis:int=-1")
native("nn.log_softmax", "data", "axis:int=-1")
native("nn.prelu", "data alpha", "axis:int=1")
native("nn.dropout", "data", "rate:float=0.5")
native("nn.leaky_relu", "data", "alpha:float=0.25", "nn.leakyrelu", defaults={"alpha": 0.01})
stands_for("nn.fast_softmax", "data", "axis:int=-1", infer=like)(op.nn.softmax)


# Padding: in Relax the value is an attribute


_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def _pad_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    data, value = view("nn.pad", "data", types[0]), view("nn.pad", "pad_value", types[1])
    value.rank(0)
    _pad_check(data, **a)
    if data.shape is None:
        return result(None, data.dtype, len(a["pad_width"]))
    pairs = zip(data.shape, a["pad_width"], strict=True)
    return result([size + sum(pair) for size, pair in pairs], data.dtype)


def _pad_check(data: Tensor, pad_width: list[Any], pad_mode: str) -> None:
    where = "nn.pad, attribute pad_width"
    if any(not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in pad_width):
        raise RelayError(f"pad_width {pad_width} is no list of pairs", where=where)
    if data.ndim >= 0 and len(pad_width) != data.ndim:
        raise RelayError(
            f"pad_width has {len(pad_width)} pairs; the data has {data.ndim} dimensions",
            where=where,
        )
    if pad_mode not in _MODES:
        raise RelayError(
            f'pad_mode is "{pad_mode}"; nn.pad takes {", ".join(_MODES)}.',
            where="nn.pad, attribute pad_mode",
        )


def _constant(value: relax.Expr) -> Any:
    """Return a scalar constant's value as NumPy has it, None where it is no such constant."""
    if not isinstance(value, ir.GenericConst) or rank(value.ty) != 0:
        return None
    return value.value.numpy()[()]


def _native_pad(data: relax.Expr, value: float, a: Values) -> relax.Expr:
    flat = [size for pair in a["pad_width"] for size in pair]
    return op.nn.pad(data, flat, _MODES[a["pad_mode"]], value)


def _pad(data: relax.Expr, value: relax.Expr, **a: Any) -> relax.Expr:
    number = _constant(value)
    if number is not None and float(number) == number:
        return _native_pad(data, float(number), a)
    if a["pad_mode"] != "constant":
        return _native_pad(data, 0.0, a)
    # A value known at run time only: take it where a mask, padded alike, is zero.
    inside = op.astype(_native_pad(op.ones_like(data, "uint8"), 0.0, a), "bool")
    return op.where(inside, _native_pad(data, 0.0, a), op.astype(value, str(data.ty.dtype)))


def _to_relax_pad(data: relax.Expr, value: relax.Expr, **a: Any) -> relax.Expr | None:
    known, number = view("nn.pad", "data", data.ty), _constant(value)
    _pad_check(known, **a)
    own = isinstance(number, np.float32) and known.ndim >= 0
    return _native_pad(data, float(number), a) if own else None


def _from_relax_pad(call: relax.Call) -> Written | None:
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


native(
    "nn.pad",
    "data pad_value",
    "pad_width:ints pad_mode:str=constant",
    to_relax=_to_relax_pad,
    from_relax=_from_relax_pad,
    expand=_pad,
    infer=_pad_type,
    signature="data pad_width pad_value pad_mode",
    defaults={"pad_value": 0},
)
