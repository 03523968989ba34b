"""Compute operators of constants in NumPy, call by call.

Upstream's `FoldConstant` compiles a function for every constant expression, and runs it without a
schedule. BERT-base took 15 s to compile, 9 of them for its transposed weights. Swin-T took 29 s, 19
of them for comparisons of a few numbers. An int8 ResNet-50 took 28 s, 14 of them for its
dequantized weights. `FoldConstant` runs later, if anything is left: it lowers every call to loops
first, so that models without constant expressions pay for it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm_ffi import structural_equal

from .graph import bound, is_call

__all__ = ["each_call", "fold_constants", "fold_others"]

# Operators that are functions of NumPy's. Divisions of integers and maxima with NaN have other
# results in NumPy. Code that TVM compiles finds no difference between NaN and a number; NumPy does,
# like PyTorch and ONNX.
_SAME: dict[str, Callable[..., Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.equal": np.equal,
    "relax.not_equal": np.not_equal,
    "relax.less": np.less,
    "relax.less_equal": np.less_equal,
    "relax.greater": np.greater,
    "relax.greater_equal": np.greater_equal,
    "relax.logical_and": np.logical_and,
    "relax.logical_or": np.logical_or,
    "relax.logical_not": np.logical_not,
    "relax.bitwise_not": np.invert,
    "relax.where": np.where,
}
_ARITHMETIC = ("relax.add", "relax.subtract", "relax.multiply")
_CAST = "relax.astype"
_RESHAPES = ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten")
_PARTS = ("relax.strided_slice", "relax.take", "relax.scatter_nd")
_DEQUANTIZE = "relax.dequantize"
_FLOATS = ("float16", "float32", "float64")
# Kinds of NumPy's own numbers: bool, integers, floats.
_KINDS = "biuf"


def each_call(
    change: Callable[[relax.Call, relax.BlockBuilder], relax.Expr],
) -> tvm.transform.Pass:
    """Make a pass that replaces each call of a function, operands first."""

    @relax.expr_functor.mutator
    class Changed(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            return change(self.visit_expr_post_order(call), self.builder_)

    @relax.transform.function_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def changed(func: relax.Function, mod: tvm.ir.IRModule, ctx: Any) -> relax.Function:
        return Changed().visit_expr(func)

    return changed


def fold_constants() -> tvm.transform.Pass:
    """Return the pass that folds operators of constants, and drops broadcasts before products."""
    return each_call(_fold)


def fold_others() -> tvm.transform.Pass:
    """Return upstream's pass for the operators of constants that `fold_constants` leaves."""
    fold = relax.transform.FoldConstant()

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def folded(mod: tvm.ir.IRModule, ctx: Any) -> tvm.ir.IRModule:
        functions = [one for one in mod.functions.values() if isinstance(one, relax.Function)]
        return fold(mod) if any(map(_has_constant_calls, functions)) else mod

    return folded


def _has_constant_calls(func: relax.Function) -> bool:
    """Return whether a call in a function has no operand that is computed."""
    found: list[relax.Call] = []
    values = relax.analysis.get_var2val(func)

    def computed(operand: relax.Expr) -> bool:
        while isinstance(operand, relax.Var) and operand in values:
            operand = values[operand]
        if isinstance(operand, relax.Tuple):
            return any(map(computed, operand.fields))
        return isinstance(operand, relax.Var | relax.Call | relax.TupleGetItem | relax.If)

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and not any(map(computed, expr.args)):
            found.append(expr)

    relax.analysis.post_order_visit(func, visit)
    return bool(found)


def _fold(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    if is_call(call, "relax.matmul"):
        return _without_broadcasts(call, builder)
    if is_call(call, "relax.broadcast_to") and structural_equal(call.ty, call.args[0].ty):
        return call.args[0]
    if is_call(call, "relax.shape_of") and _known(call.args[0].ty.shape) is not None:
        return call.args[0].ty.shape
    if is_call(call, "relax.shape_to_tensor"):
        shape = _known(bound(call.args[0], builder))
        return call if shape is None else relax.const(np.array(shape, "int64"), "int64")
    if not is_call(call, "relax.permute_dims", *_RESHAPES, *_SAME, *_PARTS, _DEQUANTIZE, _CAST):
        return call
    args = [bound(arg, builder) for arg in call.args]
    data = [arg for arg in args if isinstance(arg.ty, relax.TensorType)]
    if not all(isinstance(arg, tvm.ir.GenericConst) for arg in data):
        return call
    if _known(getattr(call.ty, "shape", None)) is None:
        return call
    try:
        with np.errstate(all="ignore"):
            value = _computed(call, [arg.value.numpy() for arg in data], args[len(data) :])
    except (TypeError, ValueError, IndexError, AttributeError):
        return call  # TVM accepts some operands that NumPy does not, such as a plain number
    if value is None:
        return call
    return relax.const(np.array(value, order="C"), str(call.ty.dtype))


def _computed(
    call: relax.Call, data: Sequence[NDArray[Any]], rest: Sequence[Any]
) -> NDArray[Any] | None:
    """Return the result of a call for the values of its operands; None to leave it."""
    name = str(call.op.name)
    if name == "relax.permute_dims":
        axes = call.attrs.axes
        return np.transpose(data[0], None if axes is None else [int(axis) for axis in axes])
    if name in _RESHAPES:
        return data[0].reshape(_known(call.ty.shape) or ())
    if any(value.dtype.kind not in _KINDS for value in data):
        return None
    if name in _ARITHMETIC and data[0].dtype.kind == "b":
        return None
    if name in _SAME:
        return np.asarray(_SAME[name](*data), str(call.ty.dtype))
    if name == _CAST:
        # NumPy differs for numbers that do not fit into an integer, and has no smaller floats.
        to = str(call.ty.dtype)
        return np.asarray(data[0], to) if to in _FLOATS else None
    if name == _DEQUANTIZE:
        return _dequantized(data[0], data[1:], call.attrs)
    if name == "relax.take":
        return _taken(data[0], data[1], call.attrs)
    if name == "relax.scatter_nd":
        return _scattered(*data) if str(call.attrs.reduction) == "update" else None
    numbers = [number for part in rest for number in part.fields]
    if not all(isinstance(number, tvm.tirx.IntImm) for number in numbers):
        return None
    axes, begin, end, *strides = ([int(number) for number in part.fields] for part in rest)
    steps = strides[0] if strides else [1] * len(axes)
    where = [slice(None)] * data[0].ndim
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        where[axis] = slice(first, last, step)
    found = data[0][tuple(where)]
    # Backwards, the end of a slice has another meaning in NumPy.
    return found if min(steps) > 0 and [*found.shape] == _known(call.ty.shape) else None


def _dequantized(
    data: NDArray[Any], parameters: Sequence[NDArray[Any]], attrs: Any
) -> NDArray[Any] | None:
    """Dequantize with one scale, or one per channel."""
    fits = data.dtype.kind in "iu" and np.can_cast(data.dtype, "int32")
    if not fits or str(attrs.out_dtype) != "float32":
        return None
    shape = [1] * data.ndim
    if data.ndim:
        shape[int(attrs.axis)] = -1
    scale, zero = (one.reshape(()) if one.size == 1 else one.reshape(shape) for one in parameters)
    made = (data.astype("int32") - zero.astype("int32")).astype("float32")
    return np.asarray(made * scale.astype("float32"))


def _taken(data: NDArray[Any], index: NDArray[Any], attrs: Any) -> NDArray[Any] | None:
    axis, mode = attrs.axis, str(attrs.mode)
    if axis is None or mode not in ("clip", "wrap"):
        return None
    return np.asarray(np.take(data, index, int(axis), mode=mode))  # type: ignore[call-overload]


def _scattered(
    data: NDArray[Any], index: NDArray[Any], updates: NDArray[Any]
) -> NDArray[Any] | None:
    depth = index.shape[-1]
    if np.any(index < 0) or np.any(index >= data.shape[:depth]):
        return None
    made = data.copy()
    made[tuple(np.moveaxis(index, -1, 0))] = updates
    return made


def _known(shape: Any) -> list[int] | None:
    """Return the sizes of a shape if all are known."""
    if not isinstance(shape, relax.ShapeExpr):
        return None
    sizes = [int(size) for size in shape.values if isinstance(size, tvm.tirx.IntImm)]
    return sizes if len(sizes) == len(shape.values) else None


def _without_broadcasts(call: relax.Call, builder: relax.BlockBuilder) -> relax.Expr:
    """Multiply matrices as they are before they are repeated."""
    for place in (1, 0):
        before = bound(call.args[place], builder)
        if not is_call(before, "relax.broadcast_to"):
            continue
        if isinstance(before.args[0], relax.DataflowVar) and type(call.args[place]) is relax.Var:
            continue  # the matrix is not visible outside the block that repeats it
        matrices = [one.ty.shape for one in (before, before.args[0])]
        if not all(isinstance(shape, relax.ShapeExpr) for shape in matrices):
            continue
        if not structural_equal(*[relax.ShapeExpr(shape.values[-2:]) for shape in matrices]):
            continue
        args = [*call.args[:place], before.args[0], *call.args[place + 1 :]]
        made = builder.normalize(relax.Call(call.op, args, call.attrs))
        call = made if structural_equal(made.ty, call.ty) else call
    return call
