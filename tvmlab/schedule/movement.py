"""Lower operators that only move numbers to loops: the legalizations of reshape and concat."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm_ffi import structural_equal

from .compute import raveled, sizes, unraveled
from .loops import VIEW

__all__ = ["INJECTIVE", "concat", "reshape"]

#: Of relax/transform/fuse_ops.cc (OpPatternKind): the kind into which the operators before it are
#: fused.
INJECTIVE = 2


def concat(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Legalize ``concat`` as a binary search for the part that holds an element.

    Upstream's loop compares with one part after another, and LLVM does not vectorize it from about
    six parts on.
    """
    (given,) = call.args
    if call.attrs.axis is None:  # the parts are flattened
        return None
    axis = int(call.attrs.axis) % call.ty.ndim
    lengths = [sizes(part.shape)[axis] for part in given.ty.fields]
    if not all(isinstance(size, int) for size in lengths):
        return None
    ends = list(itertools.accumulate(lengths))
    if isinstance(given, relax.Tuple):
        parts = list(given.fields)
    else:
        parts = [relax.TupleGetItem(given, i) for i in range(len(ends))]

    def concatenate(parts: list[te.Tensor], shape: list[Any]) -> te.Tensor:
        def value(*index: Any) -> Any:
            def among(first: int, last: int) -> Any:
                if last - first == 1:
                    place = index[axis] - ends[first - 1] if first else index[axis]
                    return parts[first](*index[:axis], place, *index[axis + 1 :])
                middle = (first + last) // 2
                left = index[axis] < ends[middle - 1]
                return tirx.if_then_else(left, among(first, middle), among(middle, last))

            return among(0, len(ends))

        return te.compute(shape, value, name="concatenate")

    shape = list(call.ty.shape.values)
    return builder.call_te(concatenate, parts, shape, primfunc_name_hint="concatenate")


def reshape(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr | None:
    """Legalize a reshape that keeps the symbolic sizes, without divisions by them."""
    old, new = (list(x.ty.shape.values) for x in (call.args[0], call))
    pieces = _pieces(old, new)
    if pieces is None or all(isinstance(size, int) for size in sizes(new)):
        return None

    def made(x: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
        def value(*index: Any) -> Any:
            place: list[Any] = []
            for before, after in pieces:
                own, index = index[: len(after)], index[len(after) :]
                if before == [None]:
                    place += own
                elif before:
                    place += unraveled(raveled(own, after) if own else 0, before)
            return x(*place)

        return te.compute(shape, value, name="reshape")

    # Not element-wise, so that it is not copied to be fused with a product that reads it.
    attrs = {"op_pattern": INJECTIVE, VIEW: True}
    how = {"primfunc_name_hint": "reshape", "primfunc_attrs": attrs}
    return builder.call_te(made, call.args[0], new, **how)


def _pieces(old: Sequence[Any], new: Sequence[Any]) -> list[tuple[list[Any], list[Any]]] | None:
    """Pair the sizes between symbolic ones, and these as ``None``; return None if they differ."""
    sides = []
    for shape in (old, new):
        parts: list[list[Any]] = [[]]
        for size in sizes(shape):
            parts = [*parts, [size], []] if not isinstance(size, int) else parts
            if isinstance(size, int):
                parts[-1].append(size)
        sides.append(parts)
    if len(sides[0]) != len(sides[1]):
        return None
    pieces = []
    for i, (before, after) in enumerate(zip(*sides, strict=True)):
        if i % 2:
            if not structural_equal(before[0], after[0]):
                return None
            pieces.append(([None], [None]))
        elif math.prod(before) != math.prod(after) or 0 in before:
            return None
        else:
            pieces.append((before, after))
    return pieces
