"""Rows for simple layers of networks: products, biases, activations, padding, normalizations.

Names, attributes and types are those of src/relay/op/nn/nn.cc and pad.cc (TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ..table import native, stands_for
from ..types import Tensor, differ, result, view
from ..windows import batch_matmul_shape, dense_shape
from .common import Values, Written, need_dtype, need_rank, rank


def _turned(operand: relax.Expr, turn: bool) -> relax.Expr:
    """Swap an operand's last two axes if `turn` is set."""
    if not turn:
        return operand
    last = operand.ty.ndim - 1
    return op.permute_dims(operand, [*range(last - 1), last, last - 1])


@stands_for("nn.dense", "data weight", "units:int=None out_dtype:str=")
def _dense(data: relax.Expr, weight: relax.Expr, units: int | None, out_dtype: str) -> relax.Expr:
    x, w = view("nn.dense", "data", data.ty), view("nn.dense", "weight", weight.ty)
    dense_shape(x, w, units)
    return op.matmul(data, _turned(weight, True), out_dtype or None)


def _check_matmul(x: Tensor, y: Tensor, a: Values) -> None:
    def turned(known: Tensor, turn: bool) -> Tensor:
        if not turn or known.shape is None:
            return known
        return replace(known, shape=[*known.shape[:-2], *known.shape[:-3:-1]])

    # `dense_shape` takes the second operand transposed.
    dense_shape(turned(x, a["transpose_a"]), turned(y, not a["transpose_b"]), a["units"])


def _matmul_row(name: str, ndim: int, check: Callable[[Tensor, Tensor, Values], Any]) -> None:
    """Add a matrix product: Relax's own if both have `ndim` axes and neither is transposed."""

    def expand(*given: relax.Expr, **a: Any) -> relax.Expr:
        x, y = (view(name, f"tensor_{'ab'[i]}", one.ty) for i, one in enumerate(given))
        check(x, y, a)
        first, second = _turned(given[0], a["transpose_a"]), _turned(given[1], a["transpose_b"])
        return op.matmul(first, second, a["out_dtype"] or None)

    def to_relax(*given: relax.Expr, **a: Any) -> relax.Expr | None:
        ours = a["transpose_a"] or a["transpose_b"] or any(rank(x.ty) != ndim for x in given)
        return None if ours else expand(*given, **a)

    def known(call: relax.Call) -> Values | None:
        if any(rank(x.ty) != ndim for x in call.args):
            return None
        columns = view(name, "tensor_b", call.args[1].ty).size(1)
        units = columns if isinstance(columns, int) else None
        return {"units": units, "transpose_a": False, "transpose_b": False}

    spec = "out_dtype:str= transpose_a:bool=False transpose_b:bool=False"
    native(
        name,
        "tensor_a tensor_b",
        f"units:int=None {spec}" if ndim == 2 else spec,
        "matmul",
        to_relax=to_relax,
        known=known,
        expand=expand,
        defaults=None if ndim == 2 else {"transpose_b": True},
    )


_matmul_row("nn.matmul", 2, _check_matmul)
_matmul_row("nn.batch_matmul", 3, batch_matmul_shape)


@stands_for("nn.bias_add", "data bias", "axis:int=1")
def _bias_add(data: relax.Expr, bias: relax.Expr, axis: int) -> relax.Expr:
    known, values = view("nn.bias_add", "data", data.ty), view("nn.bias_add", "bias", bias.ty)
    values.rank(1)
    if known.dtype:
        values.holds((known.dtype,))
    size = known.size(axis)
    if size is not None and differ(size, values.size(0)):
        what = f"the data of shape {known.shape} has {size} along axis {axis}"
        raise values.error(f"bias has {values.size(0)} values; {what}")
    behind = tuple(range(1, known.ndim - known.axis(axis)))
    if not behind:
        return op.add(data, bias)
    if isinstance(bias, ir.GenericConst):  # otherwise FoldConstant compiles a kernel
        wide = np.expand_dims(bias.value.numpy(), behind)
        return op.add(data, relax.const(wide, str(bias.ty.dtype)))
    return op.add(data, op.expand_dims(bias, list(behind)))


native("nn.relu", "data")
native("nn.batch_flatten", "data")
native("nn.softmax", "data", "axis:int=-1")
native("nn.log_softmax", "data", "axis:int=-1")
native("nn.prelu", "data alpha", "axis:int=1")
native("nn.dropout", "data", "rate:float=0.5")
native("nn.leaky_relu", "data", "alpha:float=0.25", "nn.leakyrelu", defaults={"alpha": 0.01})
stands_for("nn.fast_softmax", "data", "axis:int=-1")(op.nn.softmax)


# Padding: in Relax the padding value is an attribute


_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def _check_pad(data: Tensor, pad_width: list[Any], pad_mode: str = "constant") -> None:
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pad_width):
        raise data.error(f"pad_width {pad_width} is not a list of pairs", "pad_width")
    if data.ndim >= 0 and len(pad_width) != data.ndim:
        what = f"pad_width has {len(pad_width)} pairs; the data has {data.ndim} dimensions"
        raise data.error(what, "pad_width")
    if pad_mode not in _MODES:
        what = f'pad_mode is "{pad_mode}"; nn.pad takes {", ".join(_MODES)}.'
        raise data.error(what, "pad_mode")


def _pad_type(types: Sequence[ir.Type], a: Values) -> ir.Type:
    data = view("nn.pad", "data", types[0])
    view("nn.pad", "pad_value", types[1]).rank(0)
    _check_pad(data, **a)
    if data.shape is None:
        return result(None, data.dtype, len(a["pad_width"]))
    pairs = zip(data.shape, a["pad_width"], strict=True)
    return result([size + sum(pair) for size, pair in pairs], data.dtype)


def _native_pad(
    data: relax.Expr, value: float, pad_width: list[Any], pad_mode: str = "constant"
) -> relax.Expr:
    flat = [size for pair in pad_width for size in pair]
    return op.nn.pad(data, flat, _MODES[pad_mode], value)


def _constant(value: relax.Expr) -> Any:
    """Return a scalar constant's value as a NumPy scalar, or None for anything else."""
    if not isinstance(value, ir.GenericConst) or rank(value.ty) != 0:
        return None
    return value.value.numpy()[()]


def _pad(data: relax.Expr, value: relax.Expr, **a: Any) -> relax.Expr:
    number = _constant(value)
    if number is not None and float(number) == number:
        return _native_pad(data, float(number), **a)
    padded = _native_pad(data, 0.0, **a)
    if a["pad_mode"] != "constant":
        return padded
    # For a value only known at run time, use the value where an equally padded mask is zero.
    inside = op.astype(_native_pad(op.ones_like(data, "uint8"), 0.0, **a), "bool")
    return op.where(inside, padded, op.astype(value, need_dtype(data.ty, "nn.pad data")))


def _to_relax_pad(data: relax.Expr, value: relax.Expr, **a: Any) -> relax.Expr | None:
    number = _constant(value)
    if not isinstance(number, np.float32) or rank(data.ty) is None:
        return None
    _check_pad(view("nn.pad", "data", data.ty), **a)
    return _native_pad(data, float(number), **a)


def _from_relax_pad(call: relax.Call) -> Written | None:
    modes = {theirs: name for name, theirs in _MODES.items()}
    mode = modes.get(str(call.attrs.pad_mode))
    if mode is None:
        return None
    sizes = [int(size) for size in call.attrs.pad_width]
    value = float(call.attrs.pad_value)
    # Use float32, as Relay's frontends do, unless that would change float64 data.
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


# Normalizations

_SPEC = "axis:int={} epsilon:float=1e-5 center:bool=True scale:bool=True"
# Relay has no momentum, which matters only in training: use ONNX's default of 0.9, so that a
# network from ONNX is unchanged after a round trip.
native(
    "nn.batch_norm",
    "data gamma beta moving_mean moving_var",
    _SPEC.format(1),
    to_relax=lambda *given, **a: op.nn.batch_norm(*given, **a, momentum=0.9, training=False),
    known=lambda call: None if call.attrs.training else {},
)


def _norm(name: str, spec: str) -> None:
    """Add a normalization; Relax's own ignores ``scale`` and ``center``: it multiplies and adds."""
    layer = name == "nn.layer_norm"

    def over(axis: int, ndim: int) -> list[int]:
        return [axis] if layer else [i for i in range(1, ndim) if i != axis % ndim]

    def make(*given: relax.Expr, axis: int, **a: Any) -> relax.Expr:
        channels = {} if layer else {"channel_axis": axis}
        axes = over(axis, need_rank(given[0].ty, f"{name} data"))
        return getattr(op.nn, name[3:])(*given, axes=axes, **channels, **a)

    def expand(data: relax.Expr, gamma: relax.Expr, beta: relax.Expr, **a: Any) -> relax.Expr:
        gamma = gamma if a["scale"] else op.ones_like(gamma)
        beta = beta if a["center"] else op.zeros_like(beta)
        return make(data, gamma, beta, **a | {"center": True, "scale": True})

    def to_relax(*given: relax.Expr, **a: Any) -> relax.Expr | None:
        data = view(name, "data", given[0].ty)
        data.axis(a["axis"])
        return make(*given, **a) if a["center"] and a["scale"] and data.ndim >= 0 else None

    def known(call: relax.Call) -> Values | None:
        a, ndim = call.attrs, rank(call.args[0].ty)
        if ndim is None:
            return None
        axis = int(a.axes[0] if layer else a.channel_axis)
        # Relax normalizes over any axes, Relay over the axes that its single axis implies.
        one, other = (sorted(int(i) % ndim for i in some) for some in (a.axes, over(axis, ndim)))
        return {"axis": axis} if one == other else None

    operands = "data gamma beta"
    native(name, operands, spec, to_relax=to_relax, known=known, expand=expand)


_norm("nn.layer_norm", _SPEC.format(-1))
_norm("nn.instance_norm", _SPEC.format(1))
_norm("nn.group_norm", f"num_groups:int=0 {_SPEC.format(1)}")
