"""What a quantized model computes in integers already: its bounds, and shorter forms of it.

Sums that stay float are dequantized, and the analysis reads them again: were they taken for any
int32, adding a bias would look as if it could leave int32. TensorFlow Lite's importer clips
integers where a kernel would, to the ends of their dtype, and averages windows in int32.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from ...ir import checks, dialect
from .clip import limits
from .context import calls, operator
from .data_movement import MOVES
from .emit import Emitter, typed
from .pooling import pooling_attributes
from .products import product_bounds
from .quantized_value import NARROW, NotQuantizable, QuantizedValue, array_of, sizes

_PRODUCTS = ("conv2d", "conv2d_transpose", "dense", "batch_matmul")


class Bounds:
    """Bounds of integer expressions, computed when they are asked for."""

    def __init__(self, calls: dict[relax.Var, relax.Call]) -> None:
        self._calls = calls
        self._found: dict[relax.Var, tuple[int, int]] = {}

    def of(self, expr: relax.Expr) -> tuple[int, int]:
        """Return the least and the largest integer that a tensor may hold."""
        array = array_of(expr)
        if array is not None and array.size:
            return int(array.min()), int(array.max())
        ends = checks.limits(str(expr.ty.dtype))
        call = self._calls.get(expr) if isinstance(expr, relax.Var) else None
        if call is None:
            return ends
        if expr not in self._found:
            try:
                least, most = self._computed(call) or ends
            except (NotQuantizable, ValueError):
                least, most = ends
            inside = ends[0] <= least <= most <= ends[1]
            self._found[expr] = (least, most) if inside else ends
        return self._found[expr]

    def _computed(self, call: relax.Call) -> tuple[int, int] | None:
        name = operator(call)
        if name.removeprefix("relax.qnn.") in _PRODUCTS:
            return self._product(call)
        if name in ("relax.add", "relax.relay.nn.bias_add"):
            (a, b), (c, d) = (self.of(arg) for arg in call.args)
            return a + c, b + d
        if name in MOVES or name == "relax.astype":
            return self.of(call.args[0])
        if name == "relax.clip":
            found, (least, most) = limits(call), self.of(call.args[0])
            if found is not None:
                return int(np.floor(max(found[0], least))), int(np.ceil(min(found[1], most)))
        return None

    def _product(self, call: relax.Call) -> tuple[int, int]:
        x, w = (self._stored(call.args[i], call.args[i + 2]) for i in (0, 1))
        name, shape = operator(call), sizes(call.args[1].ty)
        if x.zero.ndim or shape is None:
            raise NotQuantizable("its sums are not bounded")
        if name == "relax.qnn.batch_matmul":
            return product_bounds(x, w, None, shape[-1:])
        outputs = 0 if name == "relax.qnn.dense" else str(call.attrs["kernel_layout"]).index("O")
        rows = None if w.array is None else np.moveaxis(w.array, outputs, 0)
        return product_bounds(x, w, rows, shape[:outputs] + shape[outputs + 1 :])

    def _stored(self, expr: relax.Expr, zero: relax.Expr) -> QuantizedValue:
        zeros, dtype = array_of(zero), str(expr.ty.dtype)
        if zeros is None or dtype not in NARROW:
            raise NotQuantizable("its zero point is not constant")
        one, array = np.ones((), np.float32), array_of(expr)
        whole = zeros.astype(np.int64)
        return QuantizedValue(expr, dtype, one, whole, 0, *self.of(expr), array=array)


def simplify(emit: Emitter, var: relax.Var, call: relax.Call) -> relax.Expr:
    """Return what a call of integers becomes: another call, what it is the same as, or itself."""
    name, ty = call.op.name, var.ty
    if not isinstance(ty, relax.TensorType) or not str(ty.dtype).startswith(("int", "uint")):
        return call
    if name == "relax.clip" and (found := limits(call)) is not None:
        least, most = checks.limits(str(ty.dtype))
        return call.args[0] if found[0] <= least and found[1] >= most else call
    if name == "relax.astype" and str(ty.dtype) in ("int8", "uint8"):
        return _average(emit, call)
    return call


def _average(emit: Emitter, call: relax.Call) -> relax.Call:
    """Read a cast to int32, an average and a cast back as ``qnn.avg_pool2d``."""
    pool = emit.calls.get(call.args[0])
    if not calls(pool, "nn.avg_pool2d"):
        return call
    wide = emit.calls.get(pool.args[0])
    if not calls(wide, "astype") or str(wide.ty.dtype) != "int32":
        return call
    data = wide.args[0]
    if str(data.ty.dtype) != str(call.ty.dtype):
        return call
    try:
        attributes = {**pooling_attributes(pool), "rounding": emit.rounding}
    except NotQuantizable:
        return call
    one, zero = emit.scale(np.float32(1)), emit.zero(0)
    made = dialect.call("relax.qnn.avg_pool2d", [data, one, zero, one, zero], attributes)
    return typed(made, call.ty)
