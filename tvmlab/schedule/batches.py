"""Products of two quantized tensors, batch by batch, with a dot-product instruction.

In attention both factors are computed at run time. For each batch (each head), a thread copies the
left matrix with padding, packs the right one in the order in which the tiles read it, and sums
tiles in registers. With both zero points, the sum over k of ``(a - za) (b - zb)`` is::

    sum(a b) - za sum(b) - zb sum(a) + k za zb

The sums of the right columns are dot products with ones, and those of the left rows plain sums.
An instruction for 16 bits needs no such sums, because its factors are the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir, te, tirx
from tvm.s_tir import TensorIntrin
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule
from tvm.script import tirx as T

from ..ir import dialect
from . import loops
from .compute import DOT, TILE, broadcast_index, round_up, sizes
from .machine import Machine
from .tile_size import Tile

__all__ = ["BATCHES", "Batches", "batch_matmul"]

#: The names of the sum's block, and of those before it: copies of both matrices, the packed matrix,
#: ones, and the sums of the left rows and of the right columns.
BATCHES = "batches"
_LEFT, _RIGHT, _PACKED, _INTERLEAVED = "left", "right", "packed", "interleaved"
_ROWS, _COLUMNS = "row_sums", "column_sums"
# Of relax/transform/fuse_ops.cc (OpPatternKind): element-wise operators after it are fused.
_OUT_ELEMENTWISE = 4
# Multiply-adds below which starting the threads costs more than they save.
_PARALLEL = 200_000
_NARROW = ("int8", "uint8")


@dataclass(frozen=True)
class _Side:
    """A matrix of 8-bit integers, and the dtype in which the instruction multiplies it."""

    dtype: str
    wanted: str
    zero: int

    @property
    def point(self) -> int:
        """The zero point in the wanted dtype; the differences have none."""
        if self.wanted == "int16":
            return 0
        return self.zero + int(np.iinfo(self.wanted).min) - int(np.iinfo(self.dtype).min)

    def moved(self, value: Any) -> Any:
        """Convert a number to the wanted dtype: a shift by 128 flips the highest bit."""
        if self.wanted == "int16":
            return value.astype("int16") - tirx.const(self.zero, "int16")
        if self.dtype == self.wanted:
            return value
        highest = tirx.const(np.array(128, "uint8").view(self.dtype).item(), self.dtype)
        return tirx.reinterpret(self.wanted, value ^ highest)


def batch_matmul(
    builder: relax.BlockBuilder, call: relax.Call, machine: Machine
) -> relax.Expr | None:
    """Legalize ``qnn.batch_matmul`` of known sizes; None if it has too few batches, or no dot."""
    a, dot = dialect.attributes(call), machine.dot8 or machine.dot16
    left, right, *zeros = call.args[:4]
    shapes = [getattr(x.ty, "shape", None) for x in (left, right, call)]
    if dot is None or not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return None
    one, other, shape = (sizes(s.values) for s in shapes if s is not None)
    dtypes = str(left.ty.dtype), str(right.ty.dtype)
    fits = all(isinstance(size, int) and size for size in (*one, *other, *shape))
    constant = all(isinstance(zero, tvm.ir.GenericConst) for zero in zeros)
    if not fits or not constant or not {*dtypes} <= {*_NARROW} or a["transpose_a"]:
        return None
    *batch, rows, columns = shape
    inner = one[-1]
    if a["out_dtype"] != "int32" or inner * 255 * 255 * 4 >= 2**31:
        return None
    sides = [
        _Side(dtype, wanted, int(zero.value.numpy().ravel()[0]))
        for dtype, wanted, zero in zip(dtypes, (dot.data, dot.weight), zeros, strict=True)
    ]
    wide = round_up(inner, dot.depth)
    free = machine.beside(dot)
    steps = wide // dot.depth
    apart = wide * np.dtype(dot.data).itemsize
    tile = Tile.choose(1, rows, columns, steps, apart, "int32", free)
    turned = bool(a["transpose_b"])
    ones = np.zeros(wide, dot.data)
    ones[:inner] = 1

    def compute(x: te.Tensor, y: te.Tensor, ones: te.Tensor) -> te.Tensor:
        high, far = round_up(rows, tile.columns), round_up(columns, tile.channels)
        step = tile.channels

        def read_left(*i: Any) -> Any:
            *outer, m, k = i
            m = tirx.min(m, rows - 1) if high > rows else m
            value = sides[0].moved(x(*broadcast_index(outer, one[:-2]), m, k))
            if wide == inner:
                return value
            return tirx.if_then_else(k < inner, value, tirx.const(0, dot.data))

        def read_right(outer: Sequence[Any], k: Any, n: Any) -> Any:
            # Numbers beyond the matrix are multiplied by zero, or not read.
            k = tirx.min(k, inner - 1) if wide > inner else k
            n = tirx.min(n, columns - 1) if far > columns else n
            outer = broadcast_index(outer, other[:-2])
            return sides[1].moved(y(*outer, n, k) if turned else y(*outer, k, n))

        packed_shape = [*batch, far // step, steps, step, dot.depth]
        given = te.compute([*batch, high, wide], read_left, name=_LEFT)
        if turned:
            packed = te.compute(
                packed_shape,
                lambda *i: read_right(i[:-4], i[-3] * dot.depth + i[-1], i[-4] * step + i[-2]),
                name=_PACKED,
            )
        else:
            copy = te.compute(
                [*batch, wide, far], lambda *i: read_right(i[:-2], i[-2], i[-1]), name=_RIGHT
            )
            packed = te.compute(
                packed_shape,
                lambda *i: copy(*i[:-4], i[-3] * dot.depth + i[-1], i[-4] * step + i[-2]),
                name=_INTERLEAVED,
            )

        def summed(value: Callable[..., Any], n: Any, outer: Sequence[Any]) -> Any:
            k, j = te.reduce_axis((0, steps), "k"), te.reduce_axis((0, dot.depth), "j")
            weight = packed(*outer, n // step, k, n % step, j).astype("int32")
            return te.sum(value(k * dot.depth + j).astype("int32") * weight, axis=[k, j])

        sums = te.compute(
            [*batch, high, far],
            lambda *i: summed(lambda k: given(*i[:-1], k), i[-1], i[:-2]),
            name=BATCHES,
            attrs={TILE: [1, tile.columns, step], DOT: dot.name},
        )
        by_row = by_column = None
        if sides[1].point:
            k = te.reduce_axis((0, wide), "k")
            by_row = te.compute(
                [*batch, high],
                lambda *i: te.sum(given(*i, k).astype("int32"), axis=k),
                name=_ROWS,
            )
        if sides[0].point:
            by_column = te.compute(
                [*batch, far],
                lambda *i: summed(ones, i[-1], i[:-1]),
                name=_COLUMNS,
                attrs={DOT: dot.name},
            )

        def value(*i: Any) -> Any:
            found = sums(*i)
            if by_column is not None:
                found -= sides[0].point * by_column(*i[:-2], i[-1])
            if by_row is not None:
                found -= sides[1].point * by_row(*i[:-1])
            return found + inner * sides[0].point * sides[1].point

        return te.compute(shape, value, name="crop")

    attrs = {"op_pattern": _OUT_ELEMENTWISE}
    return builder.call_te(
        compute,
        left,
        right,
        relax.const(ones),
        primfunc_name_hint="qnn_batch_matmul",
        primfunc_attrs=attrs,
    )


def _interleave(lanes: int, depth: int, dtype: str) -> str:
    """Return the name of the TensorIntrin that packs `depth` rows of `lanes` integers."""
    name = f"tvmlab.interleave_{lanes}x{depth}_{dtype}"
    if TensorIntrin.get(name, allow_missing=True) is not None:
        return name
    bits = int(tvm.DataType(dtype).bits)
    row, words, whole = f"uint{bits}x{lanes}", f"uint32x{lanes}", f"{dtype}x{lanes * depth}"

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def description(x: T.handle, y: T.handle) -> None:
        X = T.match_buffer(x, (depth, lanes), dtype, offset_factor=1, strides=[T.int64(), 1])
        Y = T.match_buffer(y, (lanes, depth), dtype, offset_factor=1)
        with T.sblock("root"):
            T.reads(X[0:depth, 0:lanes])
            T.writes(Y[0:lanes, 0:depth])
            for i, j in T.grid(lanes, depth):
                with T.sblock("update"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    Y[vi, vj] = X[vj, vi]

    def joined(rows: list[Any]) -> Any:
        made = None
        for place, each in enumerate(rows):
            word = T.Cast(words, T.reinterpret(each, dtype=row))
            shift = T.broadcast(T.uint32(bits * place), lanes)
            moved = T.shift_left(word, shift) if place else word
            made = moved if made is None else T.bitwise_or(made, moved)
        return T.reinterpret(made, dtype=whole)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def implementation(x: T.handle, y: T.handle) -> None:
        X = T.match_buffer(x, (depth, lanes), dtype, offset_factor=1, strides=[T.int64(), 1])
        Y = T.match_buffer(y, (lanes, depth), dtype, offset_factor=1)
        with T.sblock("root"):
            T.reads(X[0:depth, 0:lanes])
            T.writes(Y[0:lanes, 0:depth])
            Y[0, T.ramp(0, 1, lanes * depth)] = joined(
                [X.vload([place, 0], f"{dtype}x{lanes}") for place in range(depth)]
            )

    TensorIntrin.register(name, description, implementation)
    return name


class Batches(CPUScheduleRule):
    """Schedule the loop nests of `batch_matmul`: one thread multiplies the matrices of a batch."""

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None if `batch_matmul` did not make it."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        names = [str(sch.get(block).name_hint) for block in blocks]
        if BATCHES not in names:
            return None
        machine, own = Machine.of(target), dict(zip(names, blocks, strict=True))
        known = {_LEFT, _RIGHT, _PACKED, _INTERLEAVED, _ROWS, _COLUMNS, BATCHES}
        others = [block for block, name in zip(blocks, names, strict=True) if name not in known]
        before = len([name for name in names[: names.index(BATCHES)] if name not in known])
        final, beyond = loops.epilogue(sch, others[before:])
        for block in others[:before]:
            sch.compute_inline(block)
        block, lanes = own[BATCHES], machine.lanes("int32")
        annotations, work = sch.get(block).annotations, loops.work(sch, block)
        _, rows, channels = (int(size) for size in annotations[TILE])
        rank, dot = len(loops.spatial(sch, block)) - 2, str(annotations[DOT])
        sch.unannotate(block, TILE)
        mine = [one for name, one in own.items() if name in known and name != BATCHES]
        together = [sch.fuse(*sch.get_loops(one)[:rank]) for one in (*mine, block, final)]
        row = sch.merge(*together)
        if work is None or work >= _PARALLEL:
            sch.parallel(row)
        for name in (_LEFT, _RIGHT, _PACKED):
            if name in own:
                _vectors(sch, own[name], machine)
        if _INTERLEAVED in own:
            place_, depth = sch.get_loops(own[_INTERLEAVED])[-2:]
            _, place_ = sch.split(place_, [None, lanes])
            dtype = str(sch.get(own[_INTERLEAVED]).writes[0].source.dtype)
            sch.tensorize(place_, _interleave(lanes, loops.extent(sch, depth), dtype))
        if _COLUMNS in own:
            n, k, j = sch.get_loops(own[_COLUMNS])[-3:]
            nt, nl = sch.split(n, [None, lanes])
            sch.reorder(nt, k, nl, j)
            _dots(sch, own[_COLUMNS], k, nl, dot)
        m, n, k, j = sch.get_loops(block)[-4:]
        store = sch.cache_write(block, 0, "global")
        mt, mi = sch.split(m, [None, rows])
        nt, nv, nl = sch.split(n, [None, channels // lanes, lanes])
        sch.reorder(nt, mt, k, mi, nv, nl, j)
        sch.reverse_compute_at(store, mt, preserve_unit_loops=True)
        loops.vectorize_last(sch, store, lanes)
        for loop in (mi, nv):
            sch.unroll(loop)
        _dots(sch, block, k, nl, dot)
        loops.vectorize_ragged(sch, final, lanes)
        if beyond is not None:
            loops.elementwise(sch, beyond, machine)
        return sch


def _dots(sch: s_tir.Schedule, block: Any, k: Any, lane: Any, dot: str) -> None:
    """Sum with the dot-product instruction, after initial zeros."""
    sch.unannotate(block, DOT)
    begin = sch.decompose_reduction(sch.blockize(lane), k)
    sch.vectorize(sch.get_loops(sch.get_child_blocks(begin)[0])[-1])
    sch.tensorize(lane, dot)


def _vectors(sch: s_tir.Schedule, block: Any, machine: Machine) -> None:
    """Vectorize the last loop of a copy in vectors that divide it."""
    size = loops.extent(sch, sch.get_loops(block)[-1])
    most = machine.lanes("int8")
    lanes = next(n for n in (64, 32, 16, 8, 4, 2, 1) if n <= most and size % n == 0)
    if lanes > 1:
        loops.vectorize_last(sch, block, lanes)
