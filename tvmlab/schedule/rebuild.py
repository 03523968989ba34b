"""Rebuild loops and blocks with other parts: TVM's statements cannot be changed in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

__all__ = ["block_with", "loop_with", "renamed", "replaced", "without_marks"]


def replaced(expr: Any, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Substitute values for variables."""

    def value(var: tirx.Var) -> Any:
        return next((known for old, known in pairs if old.same_as(var)), var)

    return tvm_ffi.structural_map(expr, (tirx.Var, value))


def loop_with(
    loop: tirx.For,
    body: tirx.Stmt,
    *,
    without: Sequence[str] = (),
    marks: dict[str, Any] | None = None,
    extent: Any = None,
) -> tirx.For:
    """Return a loop with another body, without some annotations, with others, and of a size."""
    kept = {key: value for key, value in loop.annotations.items() if key not in without}
    size = loop.extent if extent is None else extent
    parts = loop.min, size, loop.kind, body, loop.thread_binding, kept | (marks or {})
    return tirx.For(loop.loop_var, *parts, step=loop.step)


def without_marks(stmt: tirx.Stmt, marks: Sequence[str]) -> tirx.Stmt:
    """Remove annotations of all loops in a statement."""

    def plain(loop: tirx.For) -> tirx.For:
        marked = any(mark in loop.annotations for mark in marks)
        return loop_with(loop, loop.body, without=marks) if marked else loop

    changed: tirx.Stmt = tvm_ffi.structural_map(stmt, (tirx.For, plain))
    return changed


def block_with(
    block: s_tir.SBlock,
    body: tirx.Stmt,
    buffers: Sequence[Any] = (),
    *,
    axes: Sequence[Any] | None = None,
    reads: Sequence[Any] | None = None,
) -> s_tir.SBlock:
    """Return a block with another body, with more buffers in it, and with other axes or reads."""
    return s_tir.SBlock(
        block.iter_vars if axes is None else axes,
        block.reads if reads is None else reads,
        block.writes,
        block.name_hint,
        body,
        block.init,
        [*block.alloc_buffers, *buffers],
        block.match_buffers,
        block.annotations,
    )


def renamed(stmt: tirx.Stmt) -> tirx.Stmt:
    """Define the variables of a statement's loops and blocks anew: each has one definition."""
    found: list[tirx.Var] = []
    buffers: list[tirx.Buffer] = []

    def of_loop(loop: tirx.For) -> None:
        found.append(loop.loop_var)

    def of_block(block: s_tir.SBlock) -> None:
        found.extend(var.var for var in block.iter_vars)
        for match in block.match_buffers:
            sizes = (match.buffer.elem_offset, *match.buffer.strides)
            found.extend(size for size in sizes if isinstance(size, tirx.Var))
            buffers.append(match.buffer)
        buffers.extend(block.alloc_buffers)

    def of_value(made: tirx.AllocBuffer) -> None:
        buffers.append(made.buffer)

    def of_name(bind: tirx.Bind) -> None:
        found.append(bind.var)

    kinds = ((tirx.For, of_loop), (s_tir.SBlock, of_block))
    tvm_ffi.structural_walk(stmt, (*kinds, (tirx.AllocBuffer, of_value), (tirx.Bind, of_name)))
    pairs: list[tuple[Any, Any]] = [(var, tirx.Var(var.name, var.ty.dtype)) for var in found]
    for old in buffers:
        new = tirx.decl_buffer(
            old.shape,
            old.dtype,
            old.name,
            strides=[replaced(size, pairs) for size in old.strides],
            elem_offset=replaced(old.elem_offset, pairs),
            scope=old.scope(),
            data_alignment=old.data_alignment,
            offset_factor=old.offset_factor,
            layout=old.layout,
        )
        pairs.append((old, new))
    return replaced(stmt, pairs)
