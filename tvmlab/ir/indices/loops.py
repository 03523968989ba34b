"""Loops that check, clip and count indices, in TE."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...errors import CompileError

__all__ = [
    "ANALYZER",
    "advice",
    "checked_indices",
    "checked_sizes",
    "clipped_indices",
    "plain",
    "same",
    "size_text",
    "slice_places",
    "static",
]

ANALYZER = tvm.sym.Analyzer()


def checked_indices(
    indices: te.Tensor,
    extents: Sequence[Any],
    fits: Sequence[Any],
    where: str,
    mode: str,
    from_end: bool,
    spared: int | None,
) -> te.Tensor:
    """Copy indices as int64 and assert that all are inside.

    With `from_end`, indices below zero count from the end. Those that are `spared` stay unchecked.
    """
    loops = indices.shape if len(extents) == 1 else indices.shape[:-1]

    def body(inputs: Any, outputs: Any) -> Any:
        given, made = inputs[0], outputs[0]
        with IRBuilder() as builder:
            # A loop of one round: several statements need a block.
            with T.serial(0, 1):
                for small, large in zip(fits[::2], fits[1::2], strict=True):
                    with T.Assert(small <= large, *_error("shapes do not fit", where)):
                        pass
                # One assertion after the loop leaves the loop to vector instructions.
                outside = T.alloc_buffer((1,), "int32", scope="local")
                T.buffer_store(outside, tirx.const(0, "int32"), [0])
                with T.grid(*(loops or [1])) as at:
                    at = [at] if isinstance(at, tirx.Var) else list(at)
                    for j, extent in enumerate(extents):
                        place = [*at, j] if len(extents) > 1 else at[: len(loops)]
                        size = tirx.Cast("int64", extent)
                        value = _moved(tirx.BufferLoad(given, place), size, mode, from_end)
                        beyond = tirx.any(value < 0, value >= size)
                        if spared is not None:
                            beyond = tirx.all(beyond, value != tirx.const(spared, "int64"))
                        T.buffer_store(outside, outside[0] | tirx.Cast("int32", beyond), [0])
                        T.buffer_store(made, value, place)
                inside = outside[0] == tirx.const(0, "int32")
                fix = advice(extents, from_end)
                with T.Assert(inside, *_error("an index is out of range", where, fix)):
                    pass
            return builder.get()

    out = tirx.decl_buffer(indices.shape, "int64", "checked", layout=None)
    return te.extern([indices.shape], [indices], body, "check_indices", "int64", out_buffers=[out])


def clipped_indices(
    indices: te.Tensor,
    extents: Sequence[Any],
    fits: Sequence[Any],
    where: str,
    mode: str,
    from_end: bool,
    spared: int | None,
) -> te.Tensor:
    """Copy indices as int64, clipped to their axes; the arguments are `checked_indices`'s."""

    def clip(*at: Any) -> Any:
        size = tirx.Cast("int64", extents[-1])
        for j, extent in enumerate(extents[:-1]):
            size = tirx.Select(at[-1] == j, tirx.Cast("int64", extent), size)
        value = _moved(indices(*at), size, mode, from_end)
        inside = tirx.max(tirx.min(value, size - 1), tirx.const(0, "int64"))
        return inside if spared is None else tirx.Select(value == spared, value, inside)

    return te.compute(indices.shape, clip, name="clip_indices")


def _moved(index: Any, size: Any, mode: str, from_end: bool = True) -> Any:
    """Return an index as int64, with `from_end` negative ones counted from the end."""
    if str(index.ty.dtype) == "uint64":  # TVM takes a cast of one for at least 0
        if mode == "wrap":
            index = tirx.truncmod(index, tirx.Cast("uint64", tirx.max(size, 1)))
        index = tirx.min(index, tirx.const((1 << 63) - 1, "uint64"))
    value = tirx.Cast("int64", index)
    if mode == "clip":
        return tirx.max(tirx.min(value, size - 1), tirx.const(0, "int64"))
    if mode == "wrap":
        return tirx.floormod(value, tirx.max(size, tirx.const(1, "int64")))
    if not from_end:
        return value
    return tirx.if_then_else(value < 0, value + size, value)


def _error(
    what: str, where: str, fix: str = "correct the operands' shapes"
) -> tuple[list[str], str]:
    return [str(CompileError(what, where=where, fix=fix))], "tvmlab.OutOfRangeError"


def advice(extents: Sequence[Any], from_end: bool) -> str:
    """Return the ranges of valid indices in words."""
    names = [(static(extent), size_text(extent)) for extent in extents]
    ranges = [
        f"{f'-{name}' if from_end else 0} to {name + ' - 1' if n is None else n - 1}"
        for n, name in names
    ]
    return f"give indices from {' and from '.join(dict.fromkeys(ranges))}"


def static(size: Any) -> int | None:
    """Return a size as an int, or None where it is symbolic."""
    return int(size) if isinstance(size, (int, tirx.IntImm)) else None


def same(one: Any, other: Any) -> bool:
    """Return whether two expressions, or types, are the same."""
    return bool(one.same_as(other) or tvm_ffi.structural_equal(one, other))


def plain(sizes: Sequence[Any]) -> str:
    """Return a shape as text."""
    return f"[{', '.join(map(size_text, sizes))}]"


def size_text(size: Any) -> str:
    """Return one size, or a condition of sizes, as text."""
    return re.sub(r"T\.(int64\((-?\d+)\))?", r"\2", str(size)).replace("+ -", "- ")


def slice_places(sizes: Sequence[Any], given: Sequence[te.Tensor], where: str) -> te.Tensor:
    """Compute the beginning, the stride and the length of a slice of each axis."""

    def body(inputs: Any, outputs: Any) -> Any:
        begins, ends, strides = inputs
        with IRBuilder() as builder:
            with T.serial(0, 1):
                for axis, size in enumerate(sizes):
                    size, most = tirx.Cast("int64", size), tirx.const(1 << 62, "int64")
                    begin, end, stride = (
                        tirx.BufferLoad(one, [axis]) for one in (begins, ends, strides)
                    )
                    with T.Assert(stride != 0, *_error("a slice has the step 0", where)):
                        pass
                    begin, end = (_moved(one, size, "") for one in (begin, end))
                    last = size - 1
                    forwards = stride > 0
                    begin = tirx.Select(
                        forwards, _limited(begin, 0, size), _limited(begin, 0, last)
                    )
                    end = tirx.Select(forwards, _limited(end, 0, size), _limited(end, -1, last))
                    stride = tirx.max(tirx.min(stride, most), -most)
                    span = tirx.Select(forwards, end - begin, begin - end)
                    step = tirx.Select(forwards, stride, -stride)
                    length = tirx.max(tirx.floordiv(span + step - 1, step), tirx.const(0, "int64"))
                    for row, value in enumerate((begin, stride, length)):
                        T.buffer_store(outputs[0], value, [row, axis])
            return builder.get()

    shape = (3, len(sizes))
    out = tirx.decl_buffer(shape, "int64", "places", layout=None)
    return te.extern([shape], list(given), body, "slice_places", "int64", out_buffers=[out])


def _limited(value: Any, low: int, high: Any) -> Any:
    return tirx.min(tirx.max(value, tirx.const(low, "int64")), high)


def checked_sizes(conditions: Sequence[Any], where: str) -> te.Tensor:
    """Return one zero, and assert conditions about sizes."""

    def body(_: Any, outputs: Any) -> Any:
        with IRBuilder() as builder:
            with T.serial(0, 1):
                for condition in conditions:
                    fix = f"give inputs with {size_text(condition)}"
                    with T.Assert(condition, *_error("shapes do not fit", where, fix)):
                        pass
                T.buffer_store(outputs[0], tirx.const(0, "int64"), [0])
            return builder.get()

    out = tirx.decl_buffer((1,), "int64", "checked", layout=None)
    return te.extern([(1,)], [], body, "check_sizes", "int64", out_buffers=[out])
