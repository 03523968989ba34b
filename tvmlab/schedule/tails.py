"""Compute the rows of a matrix that no whole tile covers in a smaller tile of their own.

The loops of a contraction run over whole tiles, and its last tile would read beyond the matrix. A
condition inside the sum would be a branch for each row and step. Therefore the tile is written
twice: whole, and with the rows that are left; one branch for each tile chooses.

If the number of rows is known only at run time, a matrix of a few rows is one such smaller tile. It
leaves registers for more sums, so that it is computed in tiles of twice the channels: the more
sums, the less often the same numbers of the matrix are loaded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx

from . import loops
from .compute import sizes
from .partial_sums import PIXEL_LOOP, STEP_LOOP, split_sums
from .prefetch import AHEAD, count_tiles, two_streams
from .rebuild import block_with, loop_with, renamed, replaced, without_marks

__all__ = ["mark_few", "mark_tail", "split_tails", "split_vectors"]

# The annotations of the loop over tiles: the number of rows, and the buffer of sums that belongs to
# one tile; and of the loop over a tile's rows: their number.
_ROWS, _SUMS, _SIZE = "tvmlab.rows_of_all", "tvmlab.sums", "tvmlab.rows_of_a_tile"
# The annotations of the loop over all tiles, and of the loop over tiles of rows if there is only
# one: the most rows that are few; and of the loops over a tile's vectors.
_WIDE, _ALONE, _VECTORS = "tvmlab.wide", "tvmlab.alone", "tvmlab.vectors"
# Spatial axes of a product of two matrices: rows, one pixel, channels.
_ONE_MATRIX = 3


def mark_tail(
    sch: s_tir.Schedule, tiles: Any, within: Sequence[Any], rows: int, size: int, sums: str
) -> bool:
    """Mark the loop over the tiles of all rows, and the loops over the `size` rows within a tile.

    `rows` is -1 if their number is known only at run time. `sums` is the name of the buffer of a
    tile's sums, empty if other loops read it as well. Return whether a tile can have fewer rows.
    """
    fewer = size > 1 and (rows < 0 or rows % size > 0)
    if fewer:
        sch.annotate(tiles, _ROWS, rows)
        sch.annotate(tiles, _SUMS, sums)
        for loop in within:
            if loops.extent(sch, loop) == size:
                sch.annotate(loop, _SIZE, size)
    return fewer


def mark_few(sch: s_tir.Schedule, tiles: Any, vectors: Sequence[Any], few: int) -> None:
    """Mark the loop over all tiles, and the loops over a tile's vectors.

    Matrices of up to `few` rows are computed in tiles of twice the vectors: of two neighbouring
    blocks of channels. The last part of the loop over all tiles counts the blocks, and the next
    part the tiles of rows, of which there is one; so twice its variable is the first of two blocks.
    """
    sch.annotate(tiles, _WIDE, few)
    for loop in vectors:
        sch.annotate(loop, _VECTORS, 1)


def _with_few(loop: tirx.For) -> tirx.Stmt:
    """Write a marked loop over all tiles for a matrix of a few rows as well."""
    if _WIDE not in loop.annotations:
        return loop
    few, plain = int(loop.annotations[_WIDE]), loop_with(loop, loop.body, without=(_WIDE,))

    def widen(inner: tirx.For) -> tirx.For:
        marks = inner.annotations
        if _VECTORS in marks:
            return loop_with(inner, inner.body, extent=inner.extent * 2)
        if _ROWS in marks:
            return loop_with(inner, inner.body, marks={_ALONE: few})
        if STEP_LOOP in marks:
            inner = loop_with(inner, inner.body, marks={STEP_LOOP: int(marks[STEP_LOOP]) * 2})
        return two_streams(inner) if AHEAD in marks else inner

    wide = renamed(plain)
    body = tvm_ffi.structural_map(wide.body, (tirx.For, widen))
    body = replaced(body, [(wide.loop_var, wide.loop_var * 2)])
    wide = loop_with(wide, body, extent=tirx.floordiv(wide.extent, 2))
    return tirx.IfThenElse(_open_rows(loop.body) <= few, wide, plain)


def split_tails(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Write the tiles of every marked loop for each number of rows, and choose between them."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    func = func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, _with_few)))
    root, own = func.body.block, list[tirx.Buffer]()

    def split(loop: tirx.For) -> tirx.For:
        if _ROWS not in loop.annotations:
            return loop
        rows, name = int(loop.annotations[_ROWS]), str(loop.annotations[_SUMS])
        first, size = _first_row(loop.body)
        many = rows if rows > 0 else _open_rows(loop.body)

        def tail(left: int) -> tirx.Stmt:
            made = _cut(renamed(loop.body), left)
            # With a buffer of its own, because its size would be that of all rows if both wrote it.
            for sums in (buffer for buffer in root.alloc_buffers if buffer.name == name):
                made, made_for = split_sums(made, sums, left)
                own.append(made_for)
            return made

        made = tail(rows % size if rows > 0 else 1)
        most = int(loop.annotations.get(_ALONE, size - 1)) if rows < 0 else 1
        for left in range(2, most + 1):
            made = tirx.IfThenElse(first + left <= many, tail(left), made)
        both = made
        if _ALONE not in loop.annotations:
            both = tirx.IfThenElse(first + size <= many, _cut(loop.body, size), made)
            both = count_tiles(both, many) if rows < 0 else both
        both = without_marks(both, (STEP_LOOP, PIXEL_LOOP, _VECTORS))
        return loop_with(loop, both, without=(_ROWS, _SUMS, _ALONE))

    body = tvm_ffi.structural_map(root.body, (tirx.For, split))
    return _with_body(func, body, own)


def _with_body(func: tirx.PrimFunc, body: tirx.Stmt, buffers: list[tirx.Buffer]) -> tirx.PrimFunc:
    """Return a function with another body of its root block, and more buffers in it."""
    root = func.body.block
    if body.same_as(root.body):
        return func
    block = block_with(root, body, buffers)
    realize = s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return func.with_body(realize)


def split_vectors(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Write the vectors at an edge number by number, where a condition cuts them."""

    def split(loop: tirx.For) -> tirx.Stmt:
        realize, last = loop.body, loop.loop_var
        if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(realize, s_tir.SBlockRealize):
            return loop
        parts = _conjuncts(realize.predicate)
        cut = [one for one in parts if _uses(one, [last])]
        values = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        moved = [(var, value) for var, value in values if _uses(value, [last])]
        if not cut or len(moved) != 1:
            return loop
        (var, value), rest = moved[0], [one for one in parts if not _uses(one, [last])]
        end = tirx.IntImm(str(last.ty.dtype), int(loop.extent) - 1)
        inside = replaced(value, [(last, end)]) < var.dom.extent
        whole = s_tir.SBlockRealize(realize.iter_values, tirx.all(True, *rest), realize.block)
        single = tirx.all(True, *rest, value < var.dom.extent)
        single = s_tir.SBlockRealize(realize.iter_values, single, realize.block)
        edge = tirx.For(last, loop.min, loop.extent, tirx.ForKind.UNROLLED, single)
        return tirx.IfThenElse(inside, loop_with(loop, whole), renamed(edge))

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, split)))


def split_parallel(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Write parallel loops of symbolic size for one thread as well, which small sizes take."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    root, own = func.body.block, list[tirx.Buffer]()

    def split(loop: tirx.For) -> tirx.Stmt:
        if loops.LEAST not in loop.annotations:
            return loop
        least, many = int(loop.annotations[loops.LEAST]), _most(loop)
        plain = loop_with(loop, loop.body, without=(loops.LEAST,))
        if _at_least(many) >= least:
            return plain
        alone = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)
        alone = renamed(alone)
        for buffer in root.alloc_buffers:
            if _count(loop, buffer) == _count(root.body, buffer) > 0:
                own.append(_another(buffer, f"{buffer.name}_alone"))
                alone = replaced(alone, [(buffer, own[-1])])
        return tirx.IfThenElse(many >= least, plain, alone)

    body = tvm_ffi.structural_map(root.body, (tirx.For, split))
    return _with_body(func, body, own)


def _most(stmt: Any) -> Any:
    """Return how often the block of a statement runs that runs most often."""
    if isinstance(stmt, tirx.For):
        return sizes([stmt.extent])[0] * _most(stmt.body)
    if isinstance(stmt, tirx.IfThenElse):
        return _most(stmt.then_case)
    if isinstance(stmt, tirx.SeqStmt):
        numbers = [_most(part) for part in stmt.seq]
        known = [number for number in numbers if isinstance(number, int)]
        others = [number for number in numbers if not isinstance(number, int)]
        return functools.reduce(tirx.max, others, max(known, default=1))
    return 1


def _at_least(number: Any) -> int:
    """Return a number if all open sizes are 1: a size of 0 needs no second form."""
    if isinstance(number, int):
        return number
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(number, (tirx.Var, found.append))
    ones = [(var, tirx.IntImm(var.ty.dtype, 1)) for var in found]
    return int(sym.Analyzer().simplify(replaced(number, ones)))


def _count(stmt: tirx.Stmt, buffer: tirx.Buffer) -> int:
    """Count how often blocks access a buffer."""
    found: list[tirx.Buffer] = []

    def look(block: s_tir.SBlock) -> None:
        found.extend(region.source for region in (*block.reads, *block.writes))

    tvm_ffi.structural_walk(stmt, (s_tir.SBlock, look))
    return sum(one.same_as(buffer) for one in found)


def _another(buffer: tirx.Buffer, name: str) -> tirx.Buffer:
    return tirx.decl_buffer(buffer.shape, buffer.dtype, name, scope=buffer.scope())


def _cut(stmt: tirx.Stmt, rows: int) -> tirx.Stmt:
    """Remove the marks of loops over rows, and run the loops for `rows` rows only."""
    within: list[tirx.Var] = []

    def change(loop: tirx.For) -> tirx.For:
        if _SIZE not in loop.annotations:
            return loop
        within.append(loop.loop_var)
        many = tirx.IntImm(str(loop.extent.ty.dtype), rows)
        return loop_with(loop, loop.body, without=(_SIZE,), extent=many)

    def inside(realize: s_tir.SBlockRealize) -> s_tir.SBlockRealize:
        # No row is outside, so that its condition is true.
        kept = [one for one in _conjuncts(realize.predicate) if not _uses(one, within)]
        if len(kept) == len(_conjuncts(realize.predicate)):
            return realize
        return s_tir.SBlockRealize(realize.iter_values, tirx.all(True, *kept), realize.block)

    changed = tvm_ffi.structural_map(stmt, (tirx.For, change))
    made: tirx.Stmt = tvm_ffi.structural_map(changed, (s_tir.SBlockRealize, inside))
    return made


def _conjuncts(condition: Any) -> list[Any]:
    """List the conditions that all are true if a condition is."""
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]


def _uses(expr: Any, variables: list[tirx.Var]) -> bool:
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(expr, (tirx.Var, found.append))
    return any(var.same_as(one) for var in found for one in variables)


def _first_row(body: tirx.Stmt) -> tuple[Any, int]:
    """Return the first row of the tile that a statement computes, and the rows of a tile."""
    within: list[tirx.Var] = []
    values: list[Any] = []
    sizes: list[int] = []

    def of_loop(loop: tirx.For) -> None:
        if _SIZE in loop.annotations:
            within.append(loop.loop_var)
            sizes.append(int(loop.annotations[_SIZE]))

    def of_block(realize: s_tir.SBlockRealize) -> None:
        values.extend(realize.iter_values)

    kinds = ((tirx.For, of_loop), (s_tir.SBlockRealize, of_block))
    tvm_ffi.structural_walk(body, kinds)
    for value in values:
        first = replaced(value, [(var, tirx.IntImm(var.ty.dtype, 0)) for var in within])
        if not first.same_as(value):
            return first, sizes[0]
    raise ValueError("no block uses a marked loop")


def _open_rows(body: tirx.Stmt) -> Any:
    """Return the number of rows of the matrix that a statement multiplies."""
    found: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(body, (s_tir.SBlock, found.append))
    update = max(found, key=lambda block: len(block.iter_vars))
    own = [region.source for region in update.writes]
    data = next(r.source for r in update.reads if not any(r.source.same_as(one) for one in own))
    axes = [var for var in update.iter_vars if var.iter_type == tirx.IterVar.DataPar]
    return math.prod(data.shape[:-1]) if len(axes) == _ONE_MATRIX else data.shape[-2]
