"""Reading what a frontend wrote: quantizes and dequantizes, Relax's and ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from .demand import nested
from .form import Array, Form, Goal, NoForm, parameters
from .ranges import Ranges

__all__ = [
    "DEQUANTIZES",
    "QUANTIZES",
    "Quantizes",
    "any_quantize",
    "dequantized",
    "operator",
    "spoken",
]

QUANTIZES = ("relax.quantize", "relax.qnn.quantize")
DEQUANTIZES = ("relax.dequantize", "relax.qnn.dequantize")
_STORED = ("int8", "uint8", "int16", "int32")

Read = tuple[Array, Array, int, str]


def operator(value: relax.Expr) -> str:
    """Give the name of the operator that an expression calls; empty where it calls none."""
    called = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return str(value.op.name) if called else ""


def spoken(value: relax.Call) -> str:
    """Name an operator as reasons do; of a kernel's call, the kernel too."""
    name = str(value.op.name).removeprefix("relax.")
    kernel = value.args[0] if value.args else None
    if isinstance(kernel, tvm.ir.GlobalVar):
        return f"{name} of {kernel.name_hint}"
    return name


def any_quantize(body: relax.Expr) -> bool:
    """Say whether a body quantizes anything, in a branch or in itself."""
    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            bodies = list(nested(value))
            if isinstance(value, relax.Function):
                bodies.append(value.body)
            if operator(value) in QUANTIZES or any(map(any_quantize, bodies)):
                return True
    return False


class Quantizes:
    """Reads quantizes, each once."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[relax.Call, Read | NoForm]] = {}

    def read(self, value: relax.Call) -> Read:
        """Give a quantize's scale, zero point, axis and dtype.

        Raises
        ------
        NoForm
            If they are not constant, or the dtypes are none of quantized networks.
        """
        key = int(value.__chandle__())
        if key not in self._found:
            try:
                self._found[key] = value, _read(value)
            except NoForm as why:
                self._found[key] = value, why
        found = self._found[key][1]
        if isinstance(found, NoForm):
            raise found
        return found

    def goal(self, value: relax.Call) -> Goal | None:
        """Give a quantize's goal; None where it has none, or the call is no quantize."""
        if value.op.name not in QUANTIZES:
            return None
        try:
            scale, zero, _, dtype = self.read(value)
        except NoForm:
            return None
        if scale.ndim or zero.ndim:
            return None
        return Goal(float(scale), int(zero), dtype)


def _read(value: relax.Call) -> Read:
    data, name = value.args[0], value.op.name
    dtype = str(_attribute(value, "out_dtype"))
    if dtype not in _STORED:
        raise NoForm(f"it quantizes to {dtype}")
    if str(data.ty.dtype) != "float32":
        raise NoForm(f"it quantizes {data.ty.dtype}")
    axis = int(_attribute(value, "axis"))
    scale, zero, axis = parameters(value.args[1], value.args[2], axis, data.ty, dtype, name)
    return scale, zero, axis, dtype


def _attribute(value: relax.Call, name: str) -> Any:
    """Give an attribute: ours are a dictionary."""
    return (
        value.attrs[name] if value.op.name.startswith("relax.qnn.") else getattr(value.attrs, name)
    )


def dequantized(value: relax.Call, data: relax.Expr, array: Array | None, ranges: Ranges) -> Form:
    """Read a dequantize as a form.

    Parameters
    ----------
    value : tvm.relax.Call
        The dequantize.
    data : tvm.relax.Expr
        Its operand, as it is now.
    array : numpy.ndarray or None
        The operand's integers, where they are constant.
    ranges : Ranges
        Their bounds, where they are not.

    Raises
    ------
    NoForm
        As `Quantizes.read`.
    """
    dtype = str(data.ty.dtype)
    if dtype not in _STORED:
        raise NoForm(f"it dequantizes {dtype}")
    if str(_attribute(value, "out_dtype")) != "float32":
        raise NoForm(f"it dequantizes to {_attribute(value, 'out_dtype')}")
    axis = int(_attribute(value, "axis"))
    ty, name = value.args[0].ty, value.op.name
    scale, zero, axis = parameters(value.args[1], value.args[2], axis, ty, dtype, name)
    if array is not None and not isinstance(data, tvm.ir.GenericConst):
        data = relax.const(np.ascontiguousarray(array), dtype)
    if array is not None and array.size:
        ends = (int(array.min()), int(array.max()))
    else:
        ends = ranges.of(data)
    return Form(data, dtype, scale, zero, axis, *ends, array=array)
