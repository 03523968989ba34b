"""Converters of operators whose sizes are computed when the model runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op
from tvm.relax.frontend.onnx import onnx_frontend as upstream

from .onnx_graphs import Attributes, GraphImporter, Inputs, const
from .onnx_reduce import REDUCTIONS, counted
from .sizes import choose, computed, not_too_large

__all__ = ["RUN_TIME"]

Terms = Callable[..., Any]


def _constant_of_shape(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    value = attributes.get("value")
    fill = np.zeros(1, "float32") if value is None else upstream.get_numpy(value)
    (count,) = importer.known_sizes(inputs[0])

    def sizes(_: Any, wanted: Sequence[Any]) -> Any:
        return wanted, not_too_large(wanted)

    where, fix = importer.place(), "give sizes from 0 on"
    made = computed(importer.bb, count, sizes, inputs[:1], (), where, fix)
    return op.full(relax.ShapeExpr(made), const(fill.reshape(())), str(fill.dtype))


def _reshape(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, shape = inputs
    old, (count,) = list(x.ty.shape.values), importer.known_sizes(shape)

    def sizes(old: Sequence[Any], wanted: Sequence[Any]) -> Any:
        if not attributes.get("allowzero"):
            olds = [*old, *[-2] * count]
            wanted = [choose(v == 0, *pair) for v, *pair in zip(wanted, olds, wanted, strict=False)]
        known = math.prod(choose(size == -1, 1, size) for size in wanted)
        rest = tirx.floordiv(math.prod(old), tirx.max(known, 1))
        fit = tirx.all(True, *(size >= -1 for size in wanted))
        fit = tirx.all(fit, sum(choose(size == -1, 1, 0) for size in wanted) <= 1)
        conditions = {"a size is negative, or -1 is there twice": fit}
        return [choose(size == -1, rest, size) for size in wanted], conditions

    where, fix = importer.place(), "give sizes from 0 on, and -1 at most once"
    made = computed(importer.bb, count, sizes, [shape], old, where, fix)
    return op.reshape(x, relax.ShapeExpr(made))


def _part(x: relax.Expr, axis: int, begin: Any, size: Any) -> Any:
    return op.strided_slice(x, [axis], [begin], [begin + size], assume_inbound=True)


def _split(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, lengths = inputs
    old, (count,) = list(x.ty.shape.values), importer.known_sizes(lengths) or [0]
    if not count:
        raise importer.unsupported("into parts of one size computed at run time", "give all sizes")
    axis = attributes.get("axis", 0) % len(old)

    def sizes(whole: Sequence[Any], lengths: Sequence[Any]) -> Any:
        begins = [sum(lengths[:i], start=tirx.const(0, "int64")) for i in range(count)]
        fit = tirx.all(True, *(tirx.all(size >= 0, size <= whole[0]) for size in lengths))
        fit = tirx.all(fit, begins[-1] + lengths[-1] == whole[0])
        return [*lengths, *begins], {"the sizes do not add up to the axis": fit}

    where, fix = importer.place(), "give sizes from 0 on that add up to the axis"
    made = computed(importer.bb, 2 * count, sizes, [lengths], [old[axis]], where, fix)
    pairs = zip(made[count:], made[:count], strict=True)
    return relax.Tuple([importer.bb.emit(_part(x, axis, *pair)) for pair in pairs])


def _top_k(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, k = inputs
    axis = attributes.get("axis", -1) % x.ty.ndim
    size = importer.known_sizes(x)[axis]

    def sizes(_: Any, k: Sequence[Any]) -> Any:
        return [0, *k], {"k is out of range": tirx.all(k[0] >= 0, k[0] <= size)}

    where, fix = importer.place(), f"give a k from 0 to {size}"
    zero, number = computed(importer.bb, 2, sizes, [k], (), where, fix)
    both = importer.convert("TopK", [x, const(np.array([size]))], attributes)
    return relax.Tuple([importer.bb.emit(_part(one, axis, zero, number)) for one in both])


def _pad(importer: GraphImporter, inputs: Inputs, attributes: Attributes) -> Any:
    x, widths, value, axes = inputs[0:4]
    old, mode = list(x.ty.shape.values), attributes.get("mode", b"constant")
    rank, (count,) = len(old), importer.known_sizes(widths)
    axes = const(np.arange(rank)) if axes is None else axes
    value = const(np.zeros(1, str(x.ty.dtype))) if value is None else op.reshape(value, [1])

    def sizes(old: Sequence[Any], widths: Sequence[Any], axes: Sequence[Any]) -> Any:
        axes, conditions = counted(axes, rank)
        before, after = [
            [sum(choose(axis == k, *one) for axis, *one in each) for k in range(rank)]
            for part in (widths[: count // 2], widths[count // 2 :])
            for each in [list(zip(axes, part, [0] * count, strict=False))]
        ]
        made = [size + one + other for size, one, other in zip(old, before, after, strict=True)]
        low, fit = (-(2**31), []) if mode == b"constant" else (0, [size >= 1 for size in old])
        for size, width in zip([*old, *old], [*before, *after], strict=True):
            fit += [width >= low, width < (size if mode == b"reflect" else 2**31)]
        conditions |= {"a width is out of range": tirx.all(True, *fit), **not_too_large(made)}
        return [*made, *before], conditions

    where, fix = importer.place(), "give widths that fit the tensor, and axes that it has"
    made = computed(importer.bb, 2 * rank, sizes, [widths, axes], old, where, fix)

    def padded(x: te.Tensor, value: te.Tensor, made: Sequence[Any]) -> te.Tensor:
        def element(*at: Any) -> Any:
            places = [i - before for i, before in zip(at, made[rank:], strict=True)]
            pairs = list(zip(places, x.shape, strict=True))
            if mode != b"constant":
                return x(*(_MOVED[mode](place, size) for place, size in pairs))
            inside = tirx.all(True, *(tirx.all(place >= 0, place < n) for place, n in pairs))
            return tirx.if_then_else(inside, x(*places), value(0))

        return te.compute(made[:rank], element)

    return importer.bb.emit_te(padded, x, importer.bb.emit(value), made, primfunc_name_hint="pad")


#: From where each mode of padding takes an element, of a place and the axis's size.
_MOVED: dict[bytes, Terms] = {
    b"edge": lambda place, size: tirx.max(tirx.min(place, size - 1), 0),
    b"reflect": lambda place, size: size - 1 - tirx.abs(size - 1 - tirx.abs(place)),
    b"wrap": tirx.floormod,
}

#: The converter of each operator, and the operands that make it one of this table when computed.
RUN_TIME: dict[str, tuple[slice, Terms]] = {
    **{kind: (slice(1, 2), convert) for kind, convert in REDUCTIONS.items()},
    "ConstantOfShape": (slice(0, 1), _constant_of_shape),
    "Pad": (slice(1, 4, 2), _pad),
    "Reshape": (slice(1, 2), _reshape),
    "Split": (slice(1, 2), _split),
    "SplitToSequence": (slice(1, 2), _split),
    "TopK": (slice(1, 2), _top_k),
}
