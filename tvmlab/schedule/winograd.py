"""Winograd's minimal filtering for 3x3 convolutions with stride 1: fewer multiplications.

A square of ``m x m`` outputs is computed from ``(m + 2)^2`` products for each channel instead of
``9 m^2``: the squares of the image and the weights are transformed, multiplied point by point and
summed over the channels, which is one matrix product for each of the ``(m + 2)^2`` points, and
transformed back (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016, whose
matrices these are). The weights are transformed at compile time. TVM's `topi.nn.winograd_util`
defines the same matrices only in TE, for schedules that multiply by all their zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from . import loops
from .compute import Window, contraction
from .machine import Machine
from .tile_size import Layouts, Tile

__all__ = ["INPUT", "OUTPUT", "Squares", "WinogradTransform"]

#: Names of the blocks of the two transforms: first along one axis, then along the other.
INPUT = ("winograd_rows", "winograd_columns")
OUTPUT = ("winograd_sums", "winograd_squares")

_DATA = {
    2: [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    4: [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
}
_FILTER = {
    2: [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
    4: [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
}
_RESULT = {
    2: [[1, 1, 1, 0], [0, 1, -1, -1]],
    4: [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
}


# Per core: vector multiply-adds per cycle that the tiles reach; bytes per cycle from
# and to the caches, and from memory.
_FMAS, _CACHE, _MEMORY = 1.7, 8, 4


class Squares:
    """A 3x3 convolution in squares of 2x2 or 4x4 outputs; see `choose`."""

    def __init__(
        self,
        size: int,
        window: Window,
        shape: Sequence[Any],
        inputs: int,
        machine: Machine,
        layouts: Layouts | None = None,
    ) -> None:
        self.size, self.points, self.window, self.shape = size, size + 2, window, list(shape)
        _, height, width, self.outputs = shape
        self.inputs = inputs
        self.down, self.across = -(-height // size), -(-width // size)
        squares = self.down * self.across
        self.operator = (
            f"winograd {size}: {shape[0]}x{self.down}x{self.across} squares, "
            f"{inputs} to {self.outputs} channels"
        )
        ranked = Tile.ranked(1, squares, self.outputs, inputs, 4 * inputs, "float32", machine)
        self.tile = (layouts or Layouts()).pick(self.operator, ranked)

    @classmethod
    def choose(
        cls,
        window: Window,
        shape: Sequence[Any],
        inputs: int,
        groups: int,
        dtype: str,
        machine: Machine,
        layouts: Layouts | None = None,
    ) -> Squares | None:
        """Choose the size with the fewest estimated cycles; None if direct convolution is faster.

        Parameters
        ----------
        window : Window
            The window of the convolution.
        shape : sequence
            The shape of the output, NHWC.
        inputs, groups : int
            The channels of the input, and the groups.
        dtype : str
            The dtype of the sums: only float32 tolerates the rounding errors.
        machine : Machine
            The processor to tile for.
        layouts : Layouts, optional
            The choice of the products' tile.
        """
        lanes = machine.lanes("float32")
        _, height, width, outputs = shape
        fits = window.taps == [3, 3] and {*window.strides, *window.dilation, groups} == {1}
        if not fits or dtype != "float32" or inputs % lanes or outputs % lanes:
            return None

        def cycles(products: int, points: int, moved: int) -> float:
            arithmetic = products * inputs * outputs / lanes / _FMAS
            weights = 4 * points * inputs * outputs
            return float(arithmetic + 4 * moved / _CACHE + weights / _MEMORY)

        best, size = cycles(9 * height * width, 9, 0), 0
        for m in _DATA:
            products = (m + 2) ** 2 * -(-height // m) * -(-width // m)
            # The transformed input and the sums: each is written, and read again.
            need = cycles(products, (m + 2) ** 2, 2 * products * (inputs + outputs))
            if need < best:
                best, size = need, m
        return cls(size, window, shape, inputs, machine, layouts) if size else None

    def filters(self, weight: NDArray[np.float32]) -> NDArray[np.float32]:
        """Transform weights ``[outputs, 3, 3, inputs]`` to ``[points^2, outputs, inputs]``."""
        g = np.array(_FILTER[self.size])
        made = np.einsum("ey,fx,oyxi->efoi", g, g, weight.astype(np.float64))
        return np.asarray(made.reshape(self.points**2, *made.shape[2:]), np.float32)

    def input(self, data: te.Tensor) -> te.Tensor:
        """Transform NHWC data to ``[n, points, points, down, across, inputs]``."""
        n, m, a, down = self.shape[0], self.size, self.points, self.down
        x = self.window.pad(data, (down * m, self.across * m), self.inputs)
        rows = te.compute(
            (n, down, a, self.across * m + 2, self.inputs),
            lambda b, y, e, x_, c: _combine(_DATA[m], e, lambda i: x(b, y * m + i, x_, c)),
            name=INPUT[0],
        )
        return te.compute(
            (n, a, a, down, self.across, self.inputs),
            lambda b, e, f, y, x_, c: _combine(_DATA[m], f, lambda j: rows(b, y, e, x_ * m + j, c)),
            name=INPUT[1],
        )

    def product(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        """Sum over the channels for each point: ``[n, squares, points, points, outputs]``."""
        n, a, channels = self.shape[0], self.points, self.tile.channels
        squares = self.down * self.across
        sums = contraction(
            data,
            lambda outer, o, k: weight(outer[1] * a + outer[2], o // channels, k, o % channels),
            read=lambda outer, t, _, k: (*outer, t // self.across, t % self.across, k),
            pixels=(n, a, a, squares, 1),
            taps=(),
            inputs=self.inputs,
            channels=self.outputs,
            tile=self.tile.upright(),
            dtype="float32",
            operator=self.operator,
        )
        return te.compute(
            (n, squares, a, a, self.outputs),
            lambda b, t, e, f, o: sums(b, e, f, t, 0, o),
            name="crop",
        )

    def output(self, sums: te.Tensor) -> te.Tensor:
        """Transform the sums back to NHWC."""
        n, height, width, outputs = self.shape
        m, a = self.size, self.points
        half = te.compute(
            (n, self.down, m, self.across, a, outputs),
            lambda b, y, i, x, f, o: _combine(
                _RESULT[m], i, lambda e: sums(b, y * self.across + x, e, f, o)
            ),
            name=OUTPUT[0],
        )
        whole = te.compute(
            (n, self.down * m, self.across * m, outputs),
            lambda b, y, x, o: _combine(
                _RESULT[m], x % m, lambda f: half(b, y // m, y % m, x // m, f, o)
            ),
            name=OUTPUT[1],
        )
        return te.compute((n, height, width, outputs), lambda *index: whole(*index), name="crop")


def _combine(matrix: list[list[int]], row: Any, term: Any) -> Any:
    """Multiply a row of a matrix, known after unrolling, with terms; skip its zeros."""
    made = None
    for number, factors in reversed(list(enumerate(matrix))):
        total = None
        for place, factor in enumerate(factors):
            if factor == 0:
                continue
            value = term(place) if abs(factor) == 1 else term(place) * float(abs(factor))
            if total is None:
                total = value if factor > 0 else -value
            else:
                total = total + value if factor > 0 else total - value
        made = total if made is None else tirx.Select(row == number, total, made)
    return made


class WinogradTransform(CPUScheduleRule):
    """Schedule functions that hold a transform of `winograd.Squares`.

    The points of a square are unrolled, so that a transform's matrix becomes only additions and a
    few multiplications.
    """

    def apply(
        self, func: tirx.PrimFunc, target: tvm.target.Target, tunable: bool
    ) -> s_tir.Schedule | None:
        """Schedule a function, or return None if it holds no such transform."""
        sch = s_tir.Schedule(func)
        blocks = loops.blocks(sch)
        names = [sch.get(block).name_hint for block in blocks]
        machine = Machine.of(target)
        if INPUT[0] in names:
            _input(sch, blocks, names.index(INPUT[0]), machine)
        elif OUTPUT[0] in names:
            _output(sch, blocks, names.index(OUTPUT[0]), machine)
        else:
            return None
        return sch


def _input(sch: s_tir.Schedule, blocks: list[Any], place: int, machine: Machine) -> None:
    """Schedule the input transform: for each row of squares, pad the pixels first."""
    lanes = machine.lanes("float32")
    half, block = blocks[place : place + 2]
    work = loops.work(sch, block)
    sources = loops.inline_producers(sch, blocks[:place], half)
    n, e, f, y, x, c = sch.get_loops(block)
    c, lane = sch.split(c, [None, lanes])
    sch.reorder(n, y, x, e, c, f, lane)
    together = sch.fuse(n, y)
    if work is None or work >= loops.PARALLEL:
        sch.parallel(together)
    sch.compute_at(half, c, preserve_unit_loops=True)
    for source in sources:
        sch.compute_at(source, together, preserve_unit_loops=True)
        loops.vectorize_last(sch, source, lanes)
    _write_out(sch, half)
    for loop in (e, f):
        sch.unroll(loop)
    sch.vectorize(lane)


def _output(sch: s_tir.Schedule, blocks: list[Any], place: int, machine: Machine) -> None:
    """Schedule the output transform; fused operators are computed in the square."""
    lanes = machine.lanes("float32")
    half, whole, *after = blocks[place:]
    work = loops.work(sch, whole)
    size = loops.extent(sch, sch.get_loops(half)[2])
    final, beyond = loops.epilogue(sch, after)
    n, y, x, o = sch.get_loops(final)
    (y, i), (x, j) = (sch.split(loop, [None, size]) for loop in (y, x))
    o, lane = sch.split(o, [None, lanes])
    sch.reorder(n, y, x, o, i, j, lane)
    together = sch.fuse(n, y)
    if work is None or work >= loops.PARALLEL:
        sch.parallel(together)
    for block in (whole, half):
        sch.compute_at(block, i, preserve_unit_loops=True)
        _write_out(sch, block)
    for loop in (i, j):
        sch.unroll(loop)
    sch.vectorize(lane)
    if beyond:
        loops.elementwise(sch, beyond, machine)


def _write_out(sch: s_tir.Schedule, block: Any) -> None:
    """Unroll the small loops of a block in a square, and vectorize its channels."""
    *points, lane = sch.get_loops(block)[-4:]
    for loop in points:
        if loops.extent(sch, loop) > 1 and sch.get(loop).kind == tirx.ForKind.SERIAL:
            sch.unroll(loop)
    sch.vectorize(lane)
