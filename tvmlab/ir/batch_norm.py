"""Fold batch normalization into the convolution before it, or into one multiply and add.

In inference, batch normalization is ``x * scale + shift`` per channel, with ``scale = gamma /
sqrt(variance + epsilon)`` and ``shift = beta - mean * scale`` (Ioffe and Szegedy, 2015,
section 3.1). After a convolution the scale moves into the weights and the shift becomes its bias.

Upstream's `FoldBatchnormToConv2D` does the same for one layout, and leaves the arithmetic to
`FoldConstant`, which compiles and runs every constant expression without a schedule. Here NumPy
computes the constants, in float64.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_const, is_op, rewrite_call, wildcard

__all__ = ["FoldBatchNorm"]


@relax.transform.function_pass(opt_level=0)
class FoldBatchNorm:
    """The pass: Relax in, Relax with no ``nn.batch_norm`` of constant statistics out.

    A convolution is folded when it has constant weights and no other user; a bias added between
    the two is folded as well. Any other batch normalization becomes a multiply and an add.
    Results differ from the original by rounding to the tensor's dtype only.
    """

    def transform_function(
        self, func: relax.Function, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Rewrite one function, called by TVM's pass infrastructure."""
        data, statistics = wildcard(), [is_const() for _ in range(4)]
        norm = is_op("relax.nn.batch_norm")(data, *statistics)
        pattern = TupleGetItemPattern(norm, 0)
        graph = _Graph(func)

        def rewrite(expr: relax.Expr, found: Any) -> relax.Expr:
            x, call = found[data], found[norm]
            axis = int(call.attrs.axis)
            if call.attrs.training or x.ty.ndim < 0:
                return expr  # statistics of the batch, or a rank that is not known
            gamma, beta, mean, variance = (_numpy(found[part]) for part in statistics)
            if not call.attrs.scale:
                gamma = np.ones_like(gamma)
            if not call.attrs.center:
                beta = np.zeros_like(beta)
            scale = gamma / np.sqrt(variance + float(call.attrs.epsilon))
            shift = beta - mean * scale
            folded = _into_conv(x, scale, shift, axis % x.ty.ndim, graph)
            if folded is not None:
                return folded
            shape = [1] * x.ty.ndim
            shape[axis] = -1
            scaled = relax.op.multiply(x, _const(scale.reshape(shape), str(x.ty.dtype)))
            return relax.op.add(scaled, _const(shift.reshape(shape), str(x.ty.dtype)))

        return rewrite_call(pattern, rewrite, func)


def _into_conv(
    x: relax.Expr, scale: np.ndarray, shift: np.ndarray, axis: int, graph: _Graph
) -> relax.Expr | None:
    """Fold into ``conv(data, weight)``, with or without ``+ bias``; None where it cannot be."""
    bias: Any = 0.0
    conv = graph.only_used_here(x)
    if _is_call(conv, "relax.add") and isinstance(conv.args[1], tvm.ir.GenericConst):
        bias = _per_channel(_numpy(conv.args[1]), axis, x.ty.ndim, len(scale))
        conv = graph.only_used_here(conv.args[0])
    if (
        bias is None
        or not (_is_call(conv, "relax.nn.conv1d") or _is_call(conv, "relax.nn.conv2d"))
        or not isinstance(conv.args[1], tvm.ir.GenericConst)
        # A bias of higher rank would have moved the channels to another axis.
        or conv.ty.ndim != x.ty.ndim
        or str(conv.attrs.out_layout or conv.attrs.data_layout).find("C") != axis
        # Narrower weights, or integers, could not hold the products.
        or conv.args[1].ty.dtype != x.ty.dtype
    ):
        return None
    weight = _numpy(conv.args[1])
    shape = [1] * weight.ndim
    shape[str(conv.attrs.kernel_layout).find("O")] = -1
    dtype = str(x.ty.dtype)
    scaled = _const(weight * scale.reshape(shape), dtype)
    channel = [1] * x.ty.ndim
    channel[axis] = -1
    return relax.op.add(
        relax.Call(conv.op, [conv.args[0], scaled], conv.attrs),
        _const((bias * scale + shift).reshape(channel), dtype),
    )


def _per_channel(bias: np.ndarray, axis: int, ndim: int, channels: int) -> np.ndarray | None:
    """Read a broadcast constant as one number a channel, None where it is more than that."""
    shape = (1,) * (ndim - bias.ndim) + bias.shape
    if any(size != 1 for dim, size in enumerate(shape) if dim != axis):
        return None
    return np.broadcast_to(bias.reshape(-1), (channels,))


def _is_call(expr: Any, name: str) -> bool:
    return isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == name


class _Graph:
    """What each variable of a function is bound to, and how often it is used."""

    def __init__(self, func: relax.Function) -> None:
        self._values = dict(relax.analysis.get_var2val(func).items())
        self._variables = {value: var for var, value in self._values.items()}
        self._uses: Counter[relax.Var] = Counter()
        for value in [*self._values.values(), func.body.body]:
            relax.analysis.post_order_visit(value, self._count)

    def _count(self, expr: Any) -> None:
        if isinstance(expr, relax.Var):
            self._uses[expr] += 1

    def only_used_here(self, expr: relax.Expr) -> Any:
        """Return the value of a variable, or the value itself, if it has no second user."""
        var = expr if isinstance(expr, relax.Var) else self._variables.get(expr)
        return self._values.get(var) if self._uses[var] == 1 else None


def _numpy(constant: Any) -> np.ndarray:
    return np.asarray(constant.value.numpy(), dtype="float64")


def _const(value: np.ndarray, dtype: str) -> relax.Expr:
    return relax.const(value.astype(dtype), dtype)
