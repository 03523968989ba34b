"""Conditions on sizes, of operators whose loops would otherwise read outside their tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx

from .loops import static

__all__ = ["FITTING", "equal"]

#: The sizes of a tensor, and those of several tensors.
Shape = Sequence[Any]
Shapes = Sequence[Shape]


def equal(one: Any, other: Any) -> Any:
    """Return the condition that two sizes are equal."""
    return tirx.EQ(*(tirx.const(0, "int64") + size for size in (one, other)))


def _at_least(size: Any, least: int) -> Any:
    return tirx.GE(*(tirx.const(0, "int64") + number for number in (size, least)))


def _equal(one: Shape, other: Shape) -> list[Any]:
    return [equal(*pair) for pair in zip(one, other, strict=True)]


def _reshape(_: relax.Call, shapes: Shapes, made: Shape | None) -> list[Any]:
    if made is None:
        return []
    whole, new = (_product(sizes) for sizes in (shapes[0], made))
    return [equal(whole, new), *(_at_least(size, 0) for size in made)]


def _product(sizes: Shape) -> Any:
    """Return the product of sorted factors, so that the same factors give the same expression."""
    factors = sorted(sizes, key=lambda size: (static(size) is None, str(size)))
    return math.prod(factors, start=tirx.const(1, "int64"))


def _concat(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    axis = int(call.attrs.axis or 0) % len(shapes[0])
    first, *others = [[*shape[:axis], *shape[axis + 1 :]] for shape in shapes]
    return [condition for other in others for condition in _equal(first, other)]


def _matmul(_: relax.Call, shapes: Shapes, __: Shape | None) -> list[Any]:
    one, other = shapes
    return [equal(one[-1], other[max(len(other) - 2, 0)])]


def _convolution(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    (data, weights), attrs = shapes, call.attrs
    wanted = weights[str(attrs.kernel_layout).index("I")]
    if not call.op.name.endswith("_transpose"):
        wanted = wanted * int(attrs.groups)
    return [equal(data[str(attrs.data_layout).index("C")], wanted)]


def _pad(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    """A reflection needs more elements than its width; edge and wrap need one."""
    widths, mode = list(map(int, call.attrs.pad_width)), str(call.attrs.pad_mode)
    conditions = []
    for size, before, after in zip(shapes[0], widths[::2], widths[1::2], strict=True):
        if before or after:
            least = {"constant": 0, "reflect": max(before, after, 0) + 1}.get(mode, 1)
            conditions.append(_at_least(size, least - min(before, 0) - min(after, 0)))
    return conditions


def _squeeze(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    axes = call.attrs.axis
    return [] if axes is None else [equal(shapes[0][int(axis)], 1) for axis in axes]


def _resize(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    layout = str(call.attrs.layout)
    sizes = [size for size, axis in zip(shapes[0], layout, strict=True) if axis in "DHW"]
    return [_at_least(size, 1) for size in sizes]


def _attention(_: relax.Call, shapes: Shapes, __: Shape | None) -> list[Any]:
    queries, keys, values, *bias = shapes
    conditions = _equal([queries[0], *queries[2:]], [keys[0], *keys[2:]])
    conditions += _equal(keys[:3], values[:3])
    scores = [queries[0], queries[2], queries[1], keys[1]]
    return [
        *conditions,
        *(
            equal(*pair)
            for one in bias
            for pair in zip(one, scores, strict=True)
            if static(pair[0]) != 1
        ),
    ]


def _einsum(call: relax.Call, shapes: Shapes, _: Shape | None) -> list[Any]:
    operands = str(call.attrs.subscripts).replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, Any] = {}
    conditions = []
    for labels, shape in zip(operands, shapes, strict=True):
        first, dots, last = labels.partition("...")
        batch = len(shape) - len(first) - len(last)
        # Axes in place of the dots are counted from the last.
        between = [f"-{batch - k}" for k in range(batch)] if dots else []
        for label, size in zip([*first, *between, *last], shape, strict=True):
            if static(size) != 1:
                conditions.append(equal(sizes.setdefault(label, size), size))
    return conditions


#: For each operator, a function of the call, its tensors' shapes and its result's, if known.
FITTING: dict[str, Callable[[relax.Call, Shapes, Shape | None], list[Any]]] = {
    "relax.reshape": _reshape,
    "relax.concat": _concat,
    "relax.matmul": _matmul,
    **{
        f"relax.nn.conv{rank}d{kind}": _convolution
        for rank in (1, 2, 3)
        for kind in ("", "_transpose")
    },
    "relax.nn.pad": _pad,
    "relax.topk": lambda call, shapes, _: [
        _at_least(shapes[0][int(call.attrs.axis)], int(call.attrs.k))
    ],
    "relax.squeeze": _squeeze,
    "relax.image.resize2d": _resize,
    "relax.image.resize3d": _resize,
    "relax.nn.attention": _attention,
    "relax.nn.attention_bias": _attention,
    "relax.nn.cross_entropy_with_logits": lambda _, shapes, __: _equal(*shapes),
    "relax.einsum": _einsum,
}
