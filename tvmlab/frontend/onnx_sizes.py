"""Arithmetic on sizes of ONNX models: symbolic integers instead of tensors.

Exporters of models with open sizes compute shapes from ``Shape`` by small operators. The results
are shapes of Relax, or integers for scalars, so that the sizes of tensors stay symbolic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import tvm
from tvm import relax, sym, tirx
from tvm.ir import PrimType
from tvm.relax import op
from tvm_ffi import structural_equal

from ..indices.loops import static

__all__ = ["SCALARS", "as_tensor", "computed_sizes", "is_scalar", "quotient", "size_range"]
__all__ += ["sizes_in"]

_Array = npt.NDArray[Any]
#: Operators whose upstream converters accept a symbolic integer in place of a scalar tensor.
SCALARS = {"Range"}


def is_scalar(x: Any) -> bool:
    """Return whether a value is a symbolic integer."""
    return isinstance(getattr(x, "ty", None), PrimType)


def as_tensor(builder: relax.BlockBuilder, x: Any) -> relax.Expr:
    """Convert a shape, or a symbolic integer, to a tensor of int64."""
    if not is_scalar(x):
        return builder.emit(op.shape_to_tensor(x))
    vector = builder.emit(op.shape_to_tensor(relax.ShapeExpr([x])))
    return builder.emit(op.reshape(vector, []))


def computed_sizes(
    kind: str, inputs: Sequence[Any], attributes: dict[str, Any]
) -> relax.Expr | None:
    """Compute an operator whose operands are sizes, or return None for another operator."""
    values = [None if x is None else _elements(x) for x in inputs]
    is_size = [is_scalar(x) or isinstance(x, relax.ShapeExpr) for x in inputs]
    if kind not in _OPERATORS or not any(is_size):
        return None
    if any(value is None and x is not None for value, x in zip(values, inputs, strict=True)):
        return None
    made = _OPERATORS[kind](attributes, *values)
    if made is None or made.ndim > 1:
        return None
    if all(static(size) is not None for size in made.flat):
        return relax.const(np.array([*map(int, made.flat)], "int64").reshape(made.shape), "int64")
    return relax.ShapeExpr([*made]) if made.ndim else relax.prim_value(made.item())


def size_range(inputs: Sequence[Any]) -> relax.Expr | None:
    """Return the integers from 0 up to a size; None for another range."""
    start, limit, step = (None if x is None else _elements(x) for x in inputs)
    if start is None or limit is None or step is None or not is_scalar(inputs[1]):
        return None
    if not _known(start) or not _known(step) or (start.item(), step.item()) != (0, 1):
        return None
    size, analyzer = limit.item(), sym.Analyzer()
    for var in tirx.analysis.undefined_vars(size):
        analyzer.bind(var, tvm.ir.Range.from_min_extent(0, 1 << 62))
    if not analyzer.can_prove(size >= 0):
        return None
    return op.arange(0, size, 1, "int64")


def sizes_in(shape: Any, value: _Array | None) -> list[Any] | None:
    """Return the sizes in a shape, or in a constant `value`; None if they are not known."""
    if isinstance(shape, relax.ShapeExpr):
        return list(shape.values)
    return (
        None if value is None or value.ndim != 1 else [tirx.const(int(n), "int64") for n in value]
    )


def quotient(sizes: Sequence[Any], divisors: Sequence[Any]) -> Any:
    """Divide the product of some sizes by that of others, without what both have in common."""
    (above, up), (below, down) = map(_factors, (sizes, divisors))
    left = []
    for factor in down:
        place = next((i for i, one in enumerate(up) if structural_equal(one, factor)), None)
        left += [factor] if place is None else []
        up = up if place is None else [*up[:place], *up[place + 1 :]]
    common = math.gcd(above, below) or 1
    whole = math.prod(up, start=tirx.const(above // common, "int64"))
    if not left and below == common:
        return whole
    return tirx.floordiv(whole, math.prod(left, start=tirx.const(below // common, "int64")))


def _factors(sizes: Sequence[Any]) -> tuple[int, list[Any]]:
    """Split a product into a known number and other factors."""
    number, others = 1, []
    waiting = list(sizes)
    while waiting:
        size = waiting.pop()
        if isinstance(size, tirx.Mul):
            waiting += [size.a, size.b]
        elif (known := static(size)) is not None:
            number *= known
        else:
            others.append(size)
    return number, others


def _elements(x: Any) -> _Array | None:
    """Return sizes, or a constant of int64, as an array of integers and expressions."""
    if isinstance(x, relax.ShapeExpr):
        return _array([static(n) if static(n) is not None else n for n in x.values], (len(x),))
    if is_scalar(x):
        return _array([x], ())
    value = getattr(x, "value", None)
    if not isinstance(value, tvm.runtime.Tensor) or str(x.ty.dtype) != "int64" or x.ty.ndim > 1:
        return None
    return np.asarray(value.numpy()).astype(object)


def _array(values: Sequence[Any], shape: tuple[int, ...]) -> _Array:
    made = np.empty(len(values), object)
    for i, value in enumerate(values):
        made[i] = value
    return made.reshape(shape)


def _elementwise(combine: Callable[[Any, Any], Any]) -> Callable[..., _Array]:
    def computed(_: dict[str, Any], a: _Array, b: _Array) -> _Array:
        a, b = np.broadcast_arrays(a, b)
        return _array([*map(combine, a.flat, b.flat)], a.shape)

    return computed


def _cast(attributes: dict[str, Any], x: _Array) -> _Array | None:
    return x if attributes["to"] in (onnx.TensorProto.INT64, "int64") else None


def _gather(attributes: dict[str, Any], x: _Array, index: _Array) -> _Array | None:
    if attributes.get("axis", 0) or not _known(index) or x.ndim != 1:
        return None
    chosen = [x[int(i)] for i in index.flat]
    return _array(chosen, index.shape)


def _reshape(_: dict[str, Any], x: _Array, shape: _Array) -> _Array | None:
    return x.reshape([*map(int, shape)]) if _known(shape) else None


def _slice(_: dict[str, Any], x: _Array, *bounds: _Array | None) -> _Array | None:
    begin, end, _axes, steps = (*bounds, None, None)[:4]
    if begin is None or end is None or not all(b is None or _known(b) for b in bounds):
        return None
    return x[slice(int(begin[0]), int(end[0]), 1 if steps is None else int(steps[0]))]


def _squeeze(_: dict[str, Any], x: _Array, axes: _Array | None = None) -> _Array | None:
    return x.reshape(()) if x.shape == (1,) else None


def _unsqueeze(_: dict[str, Any], x: _Array, axes: _Array | None = None) -> _Array | None:
    return x.reshape(1) if x.ndim == 0 else None


def _known(x: _Array) -> bool:
    return all(isinstance(value, int) for value in x.flat)


_OPERATORS: dict[str, Callable[..., _Array | None]] = {
    "Add": _elementwise(lambda a, b: a + b),
    "Sub": _elementwise(lambda a, b: a - b),
    "Mul": _elementwise(lambda a, b: a * b),
    "Cast": _cast,
    "Concat": lambda _, *parts: np.concatenate(parts),
    "Gather": _gather,
    "Identity": lambda _, x: x,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
