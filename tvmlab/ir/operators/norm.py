"""Rows for normalizations.

Names, attributes and types are those of src/relay/op/nn/nn.cc (TVM 0.18).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax import op

from ...errors import RelayError
from ..table import attributes, native, stands_for, values_of
from ..types import view
from .checks import relay_errors
from .common import Written, axes, like, need_dtype, need_rank

_SPEC = "axis:int={} epsilon:float=1e-5 center:bool=True scale:bool=True"
# Relay has no momentum, which matters in training only: 0.9 is ONNX's default, so that a network
# from there is unchanged after a round trip.
native(
    "nn.batch_norm",
    "data gamma beta moving_mean moving_var",
    _SPEC.format(1),
    to_relax=lambda *given, **a: op.nn.batch_norm(*given, **a, momentum=0.9, training=False),
    only=lambda call: not call.attrs.training,
)


def _norm(name: str, spec: str, make: Callable[..., relax.Expr]) -> None:
    """Add a layer, instance or group normalization.

    Relax's own multiply and add whatever ``scale`` and ``center`` are, so they serve where both
    are set, and an operator of ours elsewhere.
    """
    rows = attributes(spec)

    def expand(data: relax.Expr, gamma: relax.Expr, beta: relax.Expr, **a: Any) -> relax.Expr:
        gamma = gamma if a["scale"] else op.ones_like(gamma)
        beta = beta if a["center"] else op.zeros_like(beta)
        a |= {"center": True, "scale": True}
        return make(data, gamma, beta, ndim=need_rank(data.ty, f"{name} data"), **a)

    def to_relax(*given: relax.Expr, **a: Any) -> relax.Expr | None:
        data = view(name, "data", given[0].ty)
        with relay_errors():
            data.axis(a["axis"])
        own = a["center"] and a["scale"] and data.ndim >= 0
        return make(*given, ndim=data.ndim, **a) if own else None

    def from_relax(call: relax.Call) -> Written | None:
        a, ndim = call.attrs, view(name, "data", call.args[0].ty).ndim
        if ndim < 0:
            return None
        axis = int(a.axes[0] if name == "nn.layer_norm" else a.channel_axis)
        found = values_of(call, rows, axis=axis)
        # Relax normalizes over any axes, Relay over those that its one axis implies.
        same = make(*call.args, ndim=ndim, **found).attrs.axes
        wanted = sorted(int(i) % ndim for i in a.axes)
        return (list(call.args), found) if sorted(int(i) % ndim for i in same) == wanted else None

    native(
        name,
        "data gamma beta",
        spec,
        to_relax=to_relax,
        from_relax=from_relax,
        expand=expand,
        infer=like,
    )


def _layer_norm(*given: relax.Expr, ndim: int, axis: int, **a: Any) -> relax.Expr:
    return op.nn.layer_norm(*given, [axis], **a)


def _by_channels(make: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
    def over_the_rest(*given: relax.Expr, ndim: int, axis: int, **a: Any) -> relax.Expr:
        rest = [i for i in range(1, ndim) if i != axis % ndim]
        return make(*given, channel_axis=axis, axes=rest, **a)

    return over_the_rest


_norm("nn.layer_norm", _SPEC.format(-1), _layer_norm)
_norm("nn.instance_norm", _SPEC.format(1), _by_channels(op.nn.instance_norm))
_norm("nn.group_norm", f"num_groups:int=0 {_SPEC.format(1)}", _by_channels(op.nn.group_norm))


def _scalar(value: float, like: relax.Expr) -> relax.Expr:
    return relax.const(value, need_dtype(like.ty, "normalization data"))


@stands_for(
    "nn.lrn",
    "data",
    "size:int=5 axis:int=1 bias:float=2.0 alpha:float=0.0001 beta:float=0.75",
    defaults={"alpha": 0.00001},
)
def _lrn(
    data: relax.Expr, size: int, axis: int, bias: float, alpha: float, beta: float
) -> relax.Expr:
    if size % 2 == 0:
        raise RelayError(f"size is {size}; it has to be odd", where="nn.lrn, size")
    (axis,) = axes([axis], need_rank(data.ty, "nn.lrn data"), "nn.lrn data")
    widths = [0] * (2 * data.ty.ndim)
    widths[2 * axis] = widths[2 * axis + 1] = size // 2
    squares = op.nn.pad(op.multiply(data, data), widths)
    length = data.ty.shape[axis]
    total = None
    for start in range(size):
        part = op.strided_slice(squares, [axis], [start], [length + start])
        total = part if total is None else op.add(total, part)
    base = op.add(op.multiply(total, _scalar(alpha / size, data)), _scalar(bias, data))
    return op.divide(data, op.power(base, _scalar(beta, data)))


@stands_for("nn.l2_normalize", "data", "eps:float axis:ints", defaults={"axis": None})
def _l2_normalize(data: relax.Expr, eps: float, axis: list[int] | None) -> relax.Expr:
    total = op.sum(op.multiply(data, data), axis or None, keepdims=True)
    return op.divide(data, op.sqrt(op.maximum(total, _scalar(eps, data))))
