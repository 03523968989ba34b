"""Loops that check and count indices, in TE, and sizes as text."""

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
    "plain",
    "same",
    "slice_places",
    "static",
]

ANALYZER = tvm.sym.Analyzer()


def checked_indices(
    indices: te.Tensor,
    extents: Sequence[Any],
    where: str,
    fix: str,
    from_end: bool,
) -> te.Tensor:
    """Copy indices as int64 and assert that all are inside.

    With `from_end`, indices below zero count from the end.
    """
    loops = indices.shape if len(extents) == 1 else indices.shape[:-1]

    def body(inputs: Any, outputs: Any) -> Any:
        given, made = inputs[0], outputs[0]
        with IRBuilder() as builder:
            # A loop of one round: several statements need a block.
            with T.serial(0, 1):
                # One assertion after the loop leaves the loop to vector instructions.
                outside = T.alloc_buffer((1,), "int32", scope="local")
                T.buffer_store(outside, tirx.const(0, "int32"), [0])
                with T.grid(*(loops or [1])) as at:
                    at = [at] if isinstance(at, tirx.Var) else list(at)
                    for j, extent in enumerate(extents):
                        place = [*at, j] if len(extents) > 1 else at[: len(loops)]
                        size = tirx.Cast("int64", extent)
                        value = _counted(tirx.BufferLoad(given, place), size, from_end)
                        beyond = tirx.any(value < 0, value >= size)
                        T.buffer_store(outside, outside[0] | tirx.Cast("int32", beyond), [0])
                        T.buffer_store(made, value, place)
                inside = outside[0] == tirx.const(0, "int32")
                with T.Assert(inside, *_error("an index is out of range", where, fix)):
                    pass
            return builder.get()

    out = tirx.decl_buffer(indices.shape, "int64", "checked", layout=None)
    return te.extern([indices.shape], [indices], body, "check_indices", "int64", out_buffers=[out])


def _counted(index: Any, size: Any, from_end: bool = True) -> Any:
    """Return an index as int64, with `from_end` negative ones counted from the end."""
    if str(index.ty.dtype) == "uint64":  # TVM takes a cast of one for at least 0
        index = tirx.min(index, tirx.const((1 << 63) - 1, "uint64"))
    value = tirx.Cast("int64", index)
    return tirx.if_then_else(value < 0, value + size, value) if from_end else value


def slice_places(
    sizes: Sequence[Any], begins: te.Tensor, ends: te.Tensor, steps: te.Tensor
) -> list[te.Tensor]:
    """Return the begins, steps and lengths of slices clamped to the axes, as ONNX defines them."""

    def places(k: Any) -> list[Any]:
        size = zero = tirx.const(0, "int64")
        for axis, extent in enumerate(sizes):
            size = tirx.Select(k == axis, tirx.Cast("int64", extent), size)
        begin, end = (_limited(_counted(one(k), size), zero, size) for one in (begins, ends))
        step = _limited(steps(k), tirx.const(1, "int64"), size + 1)
        return [begin, step, tirx.max(tirx.floordiv(end - begin + step - 1, step), zero)]

    def part(place: int) -> te.Tensor:
        return te.compute((len(sizes),), lambda k: places(k)[place])

    return [part(place) for place in range(3)]


def _limited(value: Any, low: Any, high: Any) -> Any:
    return tirx.min(tirx.max(value, low), high)


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
