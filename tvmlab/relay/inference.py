"""What ``SimplifyInference`` leaves of batch normalization in Relay: a scale, and a shift.

Relax's own pass subtracts the mean, divides and multiplies, one after the other over the whole
tensor; Relay computes one scale and one shift a channel, so that `FoldConstant` leaves ``multiply``
and ``add``, and `FoldScaleAxis` the ``add`` alone, which tables of patterns look for behind a
convolution. The source is Relay's ``src/relay/transforms/simplify_inference.cc``.
"""

from __future__ import annotations

import numpy as np
from tvm import ir, relax
from tvm.relax import op

from ..ir import graph, table

__all__ = ["one_by_one", "unpacked"]


def unpacked(call: relax.Call) -> relax.Expr | None:
    """Say a normalization of inference with ``multiply`` and ``add``.

    Parameters
    ----------
    call : tvm.relax.Call
        A typed ``relax.nn.batch_norm``.

    Returns
    -------
    tvm.relax.Expr or None
        The normalized data, of what would be the call's first result. What depends on constants
        only is computed, in the data's dtype. None in training, and where the rank is not known.
    """
    data, gamma, beta, mean, variance = call.args
    attrs, rank = call.attrs, data.ty.ndim
    if attrs.training or rank < 0 or any(not graph.has_type(arg) for arg in call.args):
        return None
    dtype = str(data.ty.dtype)
    deviation = _op(op.sqrt, _op(op.add, variance, relax.const(float(attrs.epsilon), dtype)))
    scale = _op(op.divide, relax.const(1.0, dtype), deviation)
    if attrs.scale:
        scale = _op(op.multiply, scale, gamma)
    shift = _op(op.multiply, _op(op.negative, mean), scale)
    if attrs.center:
        shift = _op(op.add, shift, beta)
    behind = rank - int(attrs.axis) % rank - 1
    scaled = graph.typed(op.multiply(data, _expanded(scale, behind)))
    return graph.typed(op.add(scaled, _expanded(shift, behind)))


_NUMPY = {op.add: np.add, op.divide: np.divide, op.multiply: np.multiply, op.negative: np.negative,
          op.sqrt: np.sqrt}  # fmt: skip


def _op(make: object, *args: relax.Expr) -> relax.Expr:
    """Make a call, or its result where all operands are constants."""
    if all(isinstance(arg, ir.GenericConst) for arg in args):
        with np.errstate(all="ignore"):  # what TVM computes to infinity, too
            value = _NUMPY[make](*(arg.value.numpy() for arg in args))  # type: ignore[index,attr-defined]
        return relax.const(value, str(args[0].ty.dtype))
    return graph.typed(make(*args))  # type: ignore[operator]


def _expanded(value: relax.Expr, behind: int) -> relax.Expr:
    """Give a vector axes of size 1 behind its own."""
    if behind == 0:
        return value
    if isinstance(value, ir.GenericConst):
        array = value.value.numpy()
        return relax.const(array.reshape(-1, *[1] * behind), str(value.ty.dtype))
    return graph.typed(op.expand_dims(value, [*range(1, behind + 1)]))


def one_by_one(call: relax.Call) -> relax.Expr:
    """Say an ``expand_dims`` of axes here and there as Relay can: adjacent ones at a time."""
    rank = getattr(call.args[0].ty, "ndim", -1)
    axes = [int(axis) for axis in call.attrs.axis]
    if rank < 0 or table.written(call) is not None:
        return call
    made, run = call.args[0], list[int]()
    for axis in sorted(axis % (rank + len(axes)) for axis in axes):
        if run and axis != run[-1] + 1:
            made, run = graph.typed(relax.op.expand_dims(made, run)), []
        run.append(axis)
    return graph.typed(relax.op.expand_dims(made, run))
