"""How far the integers reach that a module computes already.

Sums that were left float are dequantized, and read again by whoever asks why: were they taken for
any int32, adding a bias would look as if it could leave int32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from ...ir import checks
from .cuts import limits
from .form import NARROW, Form, NoForm, array_of, sizes
from .movement import MOVES
from .products import reach

__all__ = ["Ranges"]

Ends = tuple[int, int]


class Ranges:
    """Bounds of integer variables, noted as their bindings are met."""

    def __init__(self) -> None:
        self._of: dict[relax.Var, Ends] = {}

    def of(self, expr: relax.Expr) -> Ends:
        """Give the least and the largest integer that a tensor may hold."""
        array = array_of(expr)
        if array is not None and array.size:
            return int(array.min()), int(array.max())
        found = self._of.get(expr) if isinstance(expr, relax.Var) else None
        return found or checks.limits(str(expr.ty.dtype))

    def note(self, var: relax.Var, value: relax.Call) -> None:
        """Bound what a call of integers gives, where it can be said."""
        rule = _RULES.get(value.op.name)
        if rule is None or not isinstance(var.ty, relax.TensorType):
            return
        try:
            ends = checks.limits(str(var.ty.dtype))
            found = rule(self, value)
        except (NoForm, ValueError):
            return
        if ends[0] <= found[0] <= found[1] <= ends[1]:
            self._of[var] = found


def _stored(ranges: Ranges, expr: relax.Expr, zero: relax.Expr) -> Form:
    point, dtype = array_of(zero), str(expr.ty.dtype)
    if point is None or dtype not in NARROW:
        raise NoForm("its zero point is not constant")
    zeros = np.asarray(point, np.int64)
    one, array = np.ones((), np.float32), array_of(expr)
    return Form(expr, dtype, one, zeros, 0, *ranges.of(expr), array=array)


def _product(ranges: Ranges, call: relax.Call) -> Ends:
    x, w = (_stored(ranges, call.args[i], call.args[i + 2]) for i in (0, 1))
    name, shape = call.op.name, sizes(call.args[1].ty)
    if x.zero.ndim or shape is None:
        raise NoForm("its sums are not bounded")
    if name.startswith("relax.qnn.conv2d"):
        outputs = str(call.attrs["kernel_layout"]).index("O")
    elif name == "relax.qnn.dense":
        outputs = 0
    else:
        return reach(x, w, None, shape[-1:])
    rows = None if w.array is None else np.moveaxis(w.array, outputs, 0)
    return reach(x, w, rows, shape[:outputs] + shape[outputs + 1 :])


def _clip(ranges: Ranges, call: relax.Call) -> Ends:
    low, high = limits(call)
    least, most = ranges.of(call.args[0])
    return int(np.floor(max(low, least))), int(np.ceil(min(high, most)))


def _sum(ranges: Ranges, call: relax.Call) -> Ends:
    (a, b), (c, d) = (ranges.of(arg) for arg in call.args)
    return a + c, b + d


def _same(ranges: Ranges, call: relax.Call) -> Ends:
    return ranges.of(call.args[0])


_RULES: dict[str, Callable[[Ranges, relax.Call], Ends]] = {
    **{
        f"relax.qnn.{name}": _product
        for name in ("conv2d", "conv2d_transpose", "dense", "batch_matmul")
    },
    **dict.fromkeys(("relax.add", "relax.relay.nn.bias_add"), _sum),
    **dict.fromkeys((*MOVES, "relax.astype"), _same),
    "relax.clip": _clip,
}
