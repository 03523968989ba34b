"""Keep the integer weights of matrix products that have a scale per block of inputs.

Files of language models often store weights as integers of 2, 4 or 8 bits, and a scale for each
block of a row. In Relax they are constants in three dimensions, from which a zero point is
subtracted, and which are multiplied by a scale. Constant folding would make float32 numbers of
them, and a product of few tokens would read four to eight times as many bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax import op

from ..indices.loops import shape_of, static
from ..ir.graph import bound, is_call, key
from .apply import RULE
from .machine import Machine
from .packing import Format
from .weight_only import Quantized

__all__ = ["IntegerWeights"]

# The name of the rule in `Executable.summary`.
_RULE = "IntegerWeights"
_MATRIX, _BLOCKED = 2, 3
# The smallest block of inputs, and what a larger one is a multiple of.
_SMALLEST, _MULTIPLE = 16, 32
# Elements from which an index needs 64 bits.
_MOST = 1 << 31
# The largest integers of 4 and of 8 bits.
_HALF_BYTE, _BYTE = 15, 255


@tvm.transform.module_pass(opt_level=0)
class IntegerWeights:
    """Multiply by integer weights with a scale per block of inputs, without dequantizing them.

    The weights of ``matmul(x, w)`` are ``reshape((integers - zero) * scale)``, with or without
    ``permute_dims``, all of them constants.
    """

    def __init__(self, target: tvm.target.Target) -> None:
        self.machine = Machine.of(target)

    def transform_module(
        self, mod: tvm.ir.IRModule, ctx: tvm.transform.PassContext
    ) -> tvm.ir.IRModule:
        """Rewrite a module, called by TVM's pass infrastructure."""
        products = _Products(mod, self.machine)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                products.builder_.update_func(var, products.visit_expr(func))
        if not products.found:
            return mod
        return relax.transform.DeadCodeElimination()(products.builder_.get())


@dataclass(frozen=True)
class _Weights:
    """Packed weights."""

    form: Format
    outputs: int
    inputs: int
    arrays: list[relax.Expr]


def _weights(weight: relax.Expr, builder: relax.BlockBuilder, machine: Machine) -> _Weights | None:
    """Pack the weights of a product, if they are integers in blocks."""
    parts = _parts(weight, builder)
    packed = None if parts is None else _packed(*parts, machine)
    if parts is None or packed is None:
        return None
    (outputs, inputs), (form, arrays) = parts[0].shape, packed
    return _Weights(form, outputs, inputs, [relax.const(array) for array in arrays])


@relax.expr_functor.mutator
class _Products(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: tvm.ir.IRModule, machine: Machine) -> None:
        super().__init__(mod)
        self.machine, self.found = machine, False
        self.packed: dict[int, _Weights | None] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.matmul"):
            return call
        x, weight = call.args
        shape, given = (shape_of(each.ty) for each in (call, x))
        floats = {str(each.ty.dtype) for each in (call, x, weight)} == {"float32"}
        if not floats or shape is None or given is None:
            return call
        if (place := key(weight)) not in self.packed:
            self.packed[place] = _weights(weight, self.builder_, self.machine)
        packed, emit = self.packed[place], self.builder_.emit
        if packed is None or static(given[-1]) != packed.inputs:
            return call
        inputs, outputs, form = packed.inputs, packed.outputs, packed.form
        lines = math.prod(shape[:-1], start=tvm.tirx.const(1, "int64"))
        count = static(lines)
        if count == 0:
            return call
        if count is not None and count * max(inputs, outputs) >= _MOST:
            count = None  # the product of any number of rows has indices of 64 bits
        kernel = Quantized(form, outputs, inputs).product(count).with_attr(RULE, _RULE)
        name = self.builder_.add_func(kernel, f"matmul_{form.kind}")
        flat = x.ty.ndim == _MATRIX
        operands = [x if flat else emit(op.reshape(x, [lines, inputs]))]
        operands += packed.arrays
        made = relax.call_tir(name, operands, relax.TensorType([lines, outputs], "float32"))
        self.found = True
        return made if flat else op.reshape(emit(made), shape)


def _parts(
    weight: relax.Expr, builder: relax.BlockBuilder
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """Return integers ``[outputs, inputs]``, and scales and zero points ``[outputs, blocks]``."""
    turned = False
    while is_call(weight := bound(weight, builder), "relax.permute_dims"):
        axes = weight.attrs.axes
        turned ^= axes is None or [*map(int, axes)] == [1, 0]
        weight = weight.args[0]
    if not is_call(weight, "relax.reshape") or weight.ty.ndim != _MATRIX:
        return None
    scaled = bound(weight.args[0], builder)
    if not is_call(scaled, "relax.multiply") or scaled.ty.ndim != _BLOCKED:
        return None
    shifted, zero = bound(scaled.args[0], builder), np.zeros(1, "float32")
    if is_call(shifted, "relax.subtract"):
        found = _value(shifted.args[1], builder)
        shifted = bound(shifted.args[0], builder)
        if found is None:
            return None
        zero = found
    scale = _value(scaled.args[1], builder)
    whole = _value(shifted.args[0], builder) if is_call(shifted, "relax.astype") else None
    if scale is None or whole is None or whole.dtype not in (np.int8, np.uint8) or not whole.size:
        return None
    outer, middle, inner = whole.shape
    # The blocks are of a row's inputs, or of a column's.
    shapes = ((outer, middle, 1), (outer, middle * inner))
    columns = ((outer, 1, inner), (outer * middle, inner))
    if (scale.shape, _sizes(weight)) != (shapes if turned else columns):
        return None
    try:
        zero = np.broadcast_to(zero, scale.shape)
    except ValueError:
        return None
    if not turned:
        whole, scale, zero = (one.transpose(2, 0, 1) for one in (whole, scale, zero))
    rows = len(whole)
    return whole.reshape(rows, -1), scale.reshape(rows, -1), zero.reshape(rows, -1)


def _packed(
    integers: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], machine: Machine
) -> tuple[Format, list[NDArray[Any]]] | None:
    """Pack weights; return None if there is no format for them."""
    group = integers.shape[1] // scale.shape[1]
    with np.errstate(invalid="ignore"):  # what is no integer of 16 bits is not equal either
        whole, points = integers.astype("int16"), zero.astype("int16")
    low, high = (int(end([end(whole), end(points)])) for end in (np.min, np.max))
    if (points != zero).any() or (group != _SMALLEST and group % _MULTIPLE) or high - low > _BYTE:
        return None
    form = Format("int4" if high - low <= _HALF_BYTE else "int8", machine, group, "float32")
    # With the same zero point in all blocks, the format's own one may do.
    shift = form.zero - int(points.flat[0])
    if (points == points.flat[0]).all() and 0 <= low + shift <= high + shift < 2**form.bits:
        return form, form.pack_integers(whole + shift, scale)
    form = replace(form, zeros=True)
    return form, form.pack_integers(whole - low, scale, (points - low).astype("uint8"))


def _value(expr: relax.Expr, builder: relax.BlockBuilder) -> NDArray[Any] | None:
    """Return the value of a constant, or of a reshaped and converted one."""
    expr = bound(expr, builder)
    if isinstance(expr, tvm.ir.GenericConst):
        return expr.value.numpy()  # type: ignore[no-any-return]
    if not is_call(expr, "relax.expand_dims", "relax.reshape", "relax.astype"):
        return None
    value, sizes, dtype = _value(expr.args[0], builder), _sizes(expr), str(expr.ty.dtype)
    if value is None or value.size != math.prod(sizes):
        return None
    if value.dtype.kind == "f" and not dtype.startswith("float"):
        return None
    return value.reshape(sizes).astype(dtype)


def _sizes(expr: relax.Expr) -> tuple[int, ...]:
    """Return the sizes of a tensor; 0 for those that are not known."""
    return tuple(static(size) or 0 for size in shape_of(expr.ty) or [0])
