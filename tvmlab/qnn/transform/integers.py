"""What quantized models compute in integers already: read in their forms, and nothing else.

TensorFlow Lite's importer clips integers where a kernel would, to the ends of their dtype, and
averages windows of integers in int32.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from ...ir import checks
from .cuts import limits
from .emit import Emitter
from .form import NoForm, with_dtype
from .pooling import pooling_attributes

__all__ = ["Integers"]

_BYTES = ("int8", "uint8")


class Integers:
    """Finds operators of integers that have a shorter form.

    Parameters
    ----------
    emit : Emitter
        For constants and the rounding.
    """

    def __init__(self, emit: Emitter) -> None:
        self._emit = emit
        self._made: dict[relax.Var, relax.Call] = {}

    def replacement(self, var: relax.Var, value: relax.Call) -> relax.Expr:
        """Give what a call becomes: another call, a variable it is the same as, or itself."""
        name, ty = value.op.name, var.ty
        if not isinstance(ty, relax.TensorType) or not str(ty.dtype).startswith(("int", "uint")):
            return value
        if name == "relax.clip" and _all_of(value):
            return value.args[0]
        if name == "relax.astype" and str(ty.dtype) in _BYTES:
            return self._average(value, ty)
        if name in ("relax.astype", "relax.nn.avg_pool2d"):
            self._made[var] = value
        return value

    def _average(self, value: relax.Call, ty: relax.TensorType) -> relax.Expr:
        """Read a cast, an average and a cast back as ``qnn.avg_pool2d``."""
        pool = self._made.get(value.args[0]) if isinstance(value.args[0], relax.Var) else None
        if pool is None or pool.op.name != "relax.nn.avg_pool2d":
            return value
        wide = self._made.get(pool.args[0]) if isinstance(pool.args[0], relax.Var) else None
        if wide is None or wide.op.name != "relax.astype":
            return value
        data = wide.args[0]
        if str(data.ty.dtype) != str(ty.dtype) or str(wide.ty.dtype) != "int32":
            return value
        try:
            attributes = {**pooling_attributes(pool), "rounding": self._emit.rounding}
        except NoForm:
            return value
        one, zero = self._emit.scale(np.float32(1)), self._emit.zero(0)
        made = relax.Call(
            tvm.ir.Op.get("relax.qnn.avg_pool2d"),
            [data, one, zero, one, zero],
            tvm.ir.make_node("ir.DictAttrs", **attributes),
        )
        relax.expr._update_type(made, with_dtype(ty, str(ty.dtype)))
        return made


def _all_of(value: relax.Call) -> bool:
    """Say whether a clip of integers keeps every value of their dtype."""
    dtype = str(value.ty.dtype)
    try:
        low, high = limits(value)
        ends = checks.limits(dtype)
    except (NoForm, ValueError):
        return False
    return low <= ends[0] and high >= ends[1]
