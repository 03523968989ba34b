"""Compute the rows of a matrix that no whole tile covers in a smaller tile of their own.

The loops of a contraction run over whole tiles, and its last tile would read beyond the matrix. A
condition inside the sum would be a branch for each row and step. Therefore the tile is written
twice: whole, and with the rows that are left; one branch for each tile chooses.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from .prefetch import replaced

__all__ = ["mark_tail", "split_tails"]

# The annotations of the loop over tiles: the first row of the last tile, and the buffer of sums
# that belongs to one tile; and of the loop over a tile's rows: how many of them the last tile has.
_LAST, _SUMS, _LEFT = "tvmlab.last", "tvmlab.sums", "tvmlab.left"


def mark_tail(
    sch: s_tir.Schedule, tiles: Any, within: Any, rows: int, size: int, sums: str
) -> None:
    """Mark the loops over the tiles of all rows, and over the `size` rows within a tile.

    `sums` is the name of the buffer of a tile's sums, empty if other loops read it as well.
    """
    if rows % size:
        sch.annotate(tiles, _LAST, rows // size * size)
        sch.annotate(tiles, _SUMS, sums)
        sch.annotate(within, _LEFT, rows % size)


def split_tails(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Write the tiles of every marked loop twice, and choose between them."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    root, own = func.body.block, list[tirx.Buffer]()

    def split(loop: tirx.For) -> tirx.For:
        if _LAST not in loop.annotations:
            return loop
        last, name = loop.annotations[_LAST], str(loop.annotations[_SUMS])
        tail = _cut(_renamed(loop.body), True)
        # With a buffer of its own, because its size would be that of all rows if both wrote to it.
        for sums in (buffer for buffer in root.alloc_buffers if buffer.name == name):
            own.append(tirx.decl_buffer(sums.shape, sums.dtype, f"{name}_tail", scope=sums.scope()))
            tail = replaced(tail, [(sums, own[-1])])
        both = tirx.IfThenElse(_first_row(loop.body) < last, _cut(loop.body, False), tail)
        return _with(loop, (_LAST, _SUMS), both)

    body = tvm_ffi.structural_map(root.body, (tirx.For, split))
    if body.same_as(root.body):
        return func
    block = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        body,
        root.init,
        [*root.alloc_buffers, *own],
        root.match_buffers,
        root.annotations,
    )
    realize = s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return func.with_body(realize)


def _with(loop: tirx.For, marks: tuple[str, ...], body: tirx.Stmt, extent: Any = None) -> tirx.For:
    """Return a loop without marks, and with another body."""
    rest = {key: value for key, value in loop.annotations.items() if key not in marks}
    size = loop.extent if extent is None else extent
    return tirx.For(loop.loop_var, loop.min, size, loop.kind, body, loop.thread_binding, rest)


def _cut(stmt: tirx.Stmt, last: bool) -> tirx.Stmt:
    """Remove the marks of loops over rows; in the last tile, run them for its rows only."""

    def change(loop: tirx.For) -> tirx.For:
        left = loop.annotations.get(_LEFT)
        if left is None:
            return loop
        size = tirx.IntImm(str(loop.extent.ty.dtype), int(left)) if last else None
        return _with(loop, (_LEFT,), loop.body, size)

    changed: tirx.Stmt = tvm_ffi.structural_map(stmt, (tirx.For, change))
    return changed


def _first_row(body: tirx.Stmt) -> Any:
    """Return the first row of the tile that a statement computes."""
    within: list[tirx.Var] = []
    values: list[Any] = []

    def of_loop(loop: tirx.For) -> None:
        if _LEFT in loop.annotations:
            within.append(loop.loop_var)

    def of_block(realize: s_tir.SBlockRealize) -> None:
        values.extend(realize.iter_values)

    kinds = ((tirx.For, of_loop), (s_tir.SBlockRealize, of_block))
    tvm_ffi.structural_walk(body, kinds)
    for value in values:
        first = replaced(value, [(var, tirx.IntImm(var.ty.dtype, 0)) for var in within])
        if not first.same_as(value):
            return first
    raise ValueError("no block uses a marked loop")


def _renamed(stmt: tirx.Stmt) -> tirx.Stmt:
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

    tvm_ffi.structural_walk(stmt, ((tirx.For, of_loop), (s_tir.SBlock, of_block)))
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
