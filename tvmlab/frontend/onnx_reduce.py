"""Reductions from infinite numbers on, and over axes that are computed when the model runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from .arithmetic import extreme, place_of_extreme
from .onnx_graphs import Attributes, GraphImporter, Inputs, const, sizes_of
from .sizes import choose, computed

__all__ = ["EXTREMES", "REDUCTIONS", "counted"]

Terms = Callable[..., Any]


def counted(axes: Sequence[Any], rank: int) -> tuple[list[Any], dict[str, Any]]:
    """Count negative axes from the end, and return the condition that all are valid."""
    axes = [choose(axis < 0, axis + rank, axis) for axis in axes]
    inside = tirx.all(True, *(tirx.all(axis >= 0, axis < rank) for axis in axes))
    return axes, {"an axis is out of range": inside}


def _end(sign: int) -> Terms:
    """Make a function that returns the end of a dtype's range."""

    def end(dtype: str) -> Any:
        if "float" in dtype:
            return tirx.const(sign * np.inf, dtype)
        return (tirx.min_value if sign < 0 else tirx.max_value)(dtype)

    return end


_SUM: tuple[Terms, Terms] = lambda a, b: a + b, lambda dtype: tirx.const(0, dtype)
_PRODUCT: tuple[Terms, Terms] = lambda a, b: a * b, lambda dtype: tirx.const(1, dtype)
_MOST: tuple[Terms, Terms] = tirx.max, _end(-1)
#: How to combine the terms, from which number on, and the function that makes a term.
_REDUCED: dict[str, tuple[Terms, ...]] = {
    "ReduceL1": (*_SUM, tirx.abs),
    "ReduceL2": (*_SUM, lambda x: x * x),
    "ReduceLogSum": _SUM,
    "ReduceLogSumExp": _SUM,
    "ReduceMax": _MOST,
    "ReduceMean": _SUM,
    "ReduceMin": (tirx.min, _end(1)),
    "ReduceProd": _PRODUCT,
    "ReduceSum": _SUM,
    "ReduceSumSquare": (*_SUM, lambda x: x * x),
}


def _over(importer: GraphImporter, n: Sequence[Any], how: Sequence[Terms], *xs: Any) -> Any:
    """Reduce to the sizes `n`, each of which is 1 or that of the axis."""
    combine, start, *term = how

    def body(*given: Any) -> te.Tensor:
        x, *others, n = given
        reducer = te.comm_reducer(lambda a, b: combine(a, b), lambda dtype: start(str(dtype)))
        # An axis of size d that is reduced to n has d // n steps.
        pairs = zip(x.shape, n, strict=True)
        steps = [te.reduce_axis((0, tirx.floordiv(d, tirx.max(size, 1)))) for d, size in pairs]

        def element(*at: Any) -> Any:
            values = [x(*(i + k for i, k in zip(at, steps, strict=True)))]
            values += [other(*at) for other in others]
            return reducer(term[0](*values) if term else values[0], steps)

        return te.compute(n, element)

    return importer.bb.emit_te(body, *xs, list(n), primfunc_name_hint="reduce")


def _reduced(importer: GraphImporter, kind: str, x: relax.Expr, n: Sequence[Any]) -> Any:
    """Reduce to the sizes `n`; 16-bit floats in float32."""
    given = str(x.ty.dtype)
    dtype = {"float16": "float32", "bfloat16": "float32", "bool": "uint8"}.get(given, given)
    emit = importer.bb.emit
    x = x if dtype == given else emit(op.astype(x, dtype))
    y = _over(importer, n, _MOST if kind == "ReduceLogSumExp" else _REDUCED[kind], x)
    if kind == "ReduceLogSumExp":
        top = emit(op.where(op.isinf(y), const(np.array(0, dtype)), y))
        terms = _over(importer, n, (*_SUM, lambda v, top: tirx.exp(v - top)), x, top)
        y = op.add(op.log(terms), top)
    if kind == "ReduceMean":
        pairs = zip(x.ty.shape.values, n, strict=True)
        count = math.prod(tirx.floordiv(size, tirx.max(made, 1)) for size, made in pairs)
        number = emit(op.reshape(op.shape_to_tensor(relax.ShapeExpr([count])), []))
        y = op.divide(y, op.astype(number, dtype))
    after = {"ReduceL2": op.sqrt, "ReduceLogSum": op.log}.get(kind)
    y = y if after is None else emit(after(y))
    return y if dtype == given else emit(op.astype(y, given))


def _axes(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> list[int]:
    """Return the constant axes that a reduction removes, sorted."""
    x, axes = inputs[0:2]
    listed = attributes.get("axes") if axes is None else importer.value(axes)
    if listed is None and axes is not None:
        raise importer.unsupported("with axes computed at run time", "make them constants")
    if listed is None or not len(listed):
        return [] if attributes.get("noop_with_empty_axes") else list(range(x.ty.ndim))
    return sorted({int(axis) % x.ty.ndim for axis in listed})


def _of_terms(kind: str) -> Terms:
    """Make a converter for a reduction that has its terms as results if it has no axes."""

    def convert(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
        if _axes(importer, inputs, attributes):
            return importer.by_upstream(kind, inputs, attributes)
        return _TERMS[kind](inputs[0])

    return convert


def _log_sum_exp(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    """Convert ReduceLogSumExp, where upstream subtracts infinity from infinity."""
    x, axes, emit = inputs[0], _axes(importer, inputs, attributes), importer.bb.emit
    if not axes:
        return x
    most, zero = extreme(importer.bb, op.max, x, axes, True), const(np.zeros((), str(x.ty.dtype)))
    most = emit(op.where(op.isinf(emit(most)), zero, most))
    made = op.add(op.log(op.sum(op.exp(op.subtract(x, most)), axes, True)), most)
    return made if attributes.get("keepdims", 1) else op.squeeze(emit(made), axes)


def _extreme(kind: str) -> Terms:
    """Make a converter for the largest or smallest element, which can be infinite or NaN."""

    def convert(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
        x, where = inputs[0], _axes(importer, inputs, attributes)
        if not where:
            return x
        reduce = op.max if kind == "ReduceMax" else op.min
        keep = bool(attributes.get("keepdims", 1))
        if str(x.ty.dtype) != "bool":
            return extreme(importer.bb, reduce, x, where, keep)
        made = importer.bb.emit(reduce(op.astype(x, "uint8"), where, keep))
        return op.astype(made, "bool")

    return convert


def _reduce(kind: str) -> Terms:
    """Make a converter for a reduction over axes that are computed."""

    def convert(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
        x, axes = inputs[0:2]
        given, shape = str(x.ty.dtype), list(x.ty.shape.values)
        rank, (count,) = len(shape), importer.known_sizes(axes)
        if not count:
            return importer.convert(kind, [x, const(np.zeros(0, "int64"))], attributes)
        if "float" not in given and kind.startswith(("ReduceL2", "ReduceLog", "ReduceMean")):
            raise importer.unsupported(f"of {given} over axes computed at run time", "use float32")
        flat = not attributes.get("keepdims", 1)
        left = rank - count if flat else 0

        def sizes(shape: Sequence[Any], axes: Sequence[Any]) -> Any:
            axes, conditions = counted(axes, rank)
            kept = [tirx.all(True, *(axis != k for axis in axes)) for k in range(rank)]
            made = [choose(one, size, 1) for one, size in zip(kept, shape, strict=True)]
            place = [sum(choose(one, 1, 0) for one in kept[:k]) for k in range(rank + 1)]
            if flat:
                conditions["an axis is given twice"] = place[rank] == left
            for i in range(left):
                each = zip(kept, place, shape, strict=False)
                made.append(sum(choose(tirx.all(k, p == i), size, 0) for k, p, size in each))
            return made, conditions

        where, fix = importer.place(), f"give different axes from {-rank} to {rank - 1}"
        made = computed(importer.bb, rank + left, sizes, [axes], shape, where, fix)
        y = _reduced(importer, kind, x, made[:rank])
        return op.reshape(y, relax.ShapeExpr(made[rank:])) if flat else y

    return convert


def _size(x: relax.Expr, axis: int) -> int | None:
    sizes = sizes_of(x)
    return None if sizes is None else sizes[axis]


def _place(kind: str) -> Terms:
    """Make a converter for the index of the largest or smallest element."""

    def convert(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
        made = importer.bb.emit(importer.by_upstream(kind, inputs, attributes))
        size = _size(inputs[0], attributes.get("axis", 0))
        last = np.iinfo("int64").max if size is None else size - 1
        # TVM returns -1 or the size if all elements are the end of the dtype's range.
        return op.minimum(op.maximum(made, const(np.int64(0))), const(np.int64(last)))

    return convert


def _hardmax(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, axis = inputs[0], attributes.get("axis", -1)
    size = _size(x, axis)
    if importer.opset < 13 or size is None:  # before 13, the rows of a matrix
        return importer.by_upstream("Hardmax", inputs, attributes)
    axis %= x.ty.ndim
    line = np.arange(size).reshape([-1 if k == axis else 1 for k in range(x.ty.ndim)])
    place = importer.bb.emit(place_of_extreme(op.argmax, x, axis, True))
    return op.astype(op.equal(place, const(line)), str(x.ty.dtype))


def _mean(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    if "float" not in str(inputs[0].ty.dtype):  # upstream's kernel writes another dtype
        raise importer.unsupported(f"of {inputs[0].ty.dtype}", "convert it to float32 before")
    return importer.by_upstream("ReduceMean", inputs, attributes)


_TERMS: dict[str, Terms] = {
    "ReduceL1": op.abs,
    "ReduceL2": op.abs,
    "ReduceLogSum": op.log,
    "ReduceSumSquare": op.square,
}
#: The converters over constant axes, and over axes that are computed.
EXTREMES = {kind: _extreme(kind) for kind in ("ReduceMax", "ReduceMin")}
EXTREMES |= {kind: _place(kind) for kind in ("ArgMax", "ArgMin")}
EXTREMES |= {"Hardmax": _hardmax, "ReduceMean": _mean, "ReduceLogSumExp": _log_sum_exp}
EXTREMES |= {kind: _of_terms(kind) for kind in _TERMS}
REDUCTIONS = {kind: _reduce(kind) for kind in _REDUCED}
