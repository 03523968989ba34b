"""Fold batch normalization into the convolution before it, or into one multiply and add.

At inference, batch normalization is ``x * scale + shift`` per channel (Ioffe and Szegedy, 2015,
section 3.1). Upstream's `FoldBatchnormToConv2D` supports one layout, and leaves the arithmetic
to `FoldConstant`, which compiles every constant expression. Here NumPy computes it, in float64.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_const, is_op, rewrite_call, wildcard

from .graph import is_call

__all__ = ["FoldBatchNorm"]


@relax.transform.function_pass(opt_level=0)
class FoldBatchNorm:
    """The pass that replaces every ``nn.batch_norm`` with constant statistics by cheaper operators.

    Folds batch normalization into a convolution with constant weights and no other user, and with
    it a bias added between the two. Any other batch normalization becomes a multiply and an add. A
    multiplication by one constant per channel, which Relay's `SimplifyInference` leaves, is folded
    into a convolution in the same way. Results differ from the original only by rounding to the
    tensor's dtype.
    """

    def transform_function(
        self, func: relax.Function, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> relax.Function:
        """Rewrite one function, called by TVM's pass infrastructure."""
        data, factor, statistics = wildcard(), is_const(), [is_const() for _ in range(4)]
        norm = is_op("relax.nn.batch_norm")(data, *statistics)
        pattern = TupleGetItemPattern(norm, 0) | is_op("relax.multiply")(data, factor)
        graph = _Graph(func)

        def rewrite(expr: relax.Expr, found: Any) -> relax.Expr:
            x = found[data]
            if norm not in found:
                folded = _into_conv(x, _numpy(found[factor]), None, graph)
                return expr if folded is None else folded
            call = found[norm]
            if call.attrs.training or x.ty.ndim < 0:
                return expr  # statistics of the batch, or an unknown rank
            gamma, beta, mean, variance = (_numpy(found[part]) for part in statistics)
            if not call.attrs.scale:
                gamma = np.ones_like(gamma)
            if not call.attrs.center:
                beta = np.zeros_like(beta)
            shape = [1] * x.ty.ndim
            shape[int(call.attrs.axis)] = -1
            scale = (gamma / np.sqrt(variance + float(call.attrs.epsilon))).reshape(shape)
            shift = beta.reshape(shape) - mean.reshape(shape) * scale
            folded = _into_conv(x, scale, shift, graph)
            if folded is not None:
                return folded
            dtype = str(x.ty.dtype)
            return relax.op.add(relax.op.multiply(x, _const(scale, dtype)), _const(shift, dtype))

        return rewrite_call(pattern, rewrite, func)


def _into_conv(
    x: relax.Expr, scale: np.ndarray, shift: np.ndarray | None, graph: _Graph
) -> relax.Expr | None:
    """Fold into ``conv(data, weight)``, with or without ``+ bias``; None if that is impossible."""
    conv, added = graph.only_used_here(x), [] if shift is None else [shift]
    if is_call(conv, "relax.add") and isinstance(conv.args[1], tvm.ir.GenericConst):
        added.append(_numpy(conv.args[1]) * scale)
        conv = graph.only_used_here(conv.args[0])
    if (
        not is_call(conv, "relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
        or not isinstance(conv.args[1], tvm.ir.GenericConst)
        # A bias of higher rank would move the channels to another axis.
        or conv.ty.ndim != x.ty.ndim
        # Narrower weights, or integers, could not represent the products.
        or conv.args[1].ty.dtype != x.ty.dtype
        or "float" not in str(x.ty.dtype)
    ):
        return None
    dtype, weight = str(x.ty.dtype), _numpy(conv.args[1])
    outputs = str(conv.attrs.kernel_layout).find("O")
    channel = [1] * x.ty.ndim
    channel[str(conv.attrs.out_layout or conv.attrs.data_layout).find("C")] = weight.shape[outputs]
    if not all(_fits(part, channel) for part in (scale, *added)):
        return None
    kernel = [1] * weight.ndim
    kernel[outputs] = -1
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (weight * np.broadcast_to(scale, channel).reshape(kernel)).astype(dtype)
    if not np.isfinite(scaled).all():
        return None
    folded = relax.Call(conv.op, [conv.args[0], _const(scaled, dtype)], conv.attrs)
    if not added:
        return folded
    return relax.op.add(folded, _const(np.broadcast_to(sum(added), channel), dtype))


def _fits(part: np.ndarray, channel: list[int]) -> bool:
    """Return whether a constant has one number for all channels, or one per channel."""
    shape = [1] * (len(channel) - part.ndim) + list(part.shape)
    return len(shape) == len(channel) and all(
        size in (1, most) for size, most in zip(shape, channel, strict=True)
    )


class _Graph:
    """The value of each variable of a function, and the number of its uses."""

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
