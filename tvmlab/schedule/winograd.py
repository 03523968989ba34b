"""Winograd's minimal filtering for 3x3 convolutions with stride 1: fewer multiplications.

A square of ``m x m`` outputs is computed from ``(m + 2)^2`` products for each channel instead of
``9 m^2``: the squares of the image and the weights are transformed, multiplied point by point and
summed over the channels, which is one matrix product for each of the ``(m + 2)^2`` points, and
transformed back (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016, whose
matrices these are). The weights are transformed at compile time. TVM's `topi.nn.winograd_util`
defines the same matrices only in TE, for schedules that multiply by all their zeros.

For quantized numbers, the result is exact. The weights' matrix is multiplied by 2 or 24, so that it
has only integers, and all factors of the products fit into int16. The sums may wrap: modulo 2^32,
the result of 2x2 squares is 4 times the convolution, of 4x4 squares 576 times. A shift divides it
by 4. To divide by 576, which is 9 * 64, it is multiplied by the inverse of 9 modulo 2^32, and
shifted. The convolution must leave room for the shift; `_is_exact` computes from the weights
whether it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import s_tir, te, tirx
from tvm.s_tir.dlight.cpu.base import CPUScheduleRule

from ..qnn.fixed_point import wrapped
from . import loops
from .compute import Window, contraction
from .dot_operands import Factors, within
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
# The weights' matrix: integers, and the divisor of each row.
_FILTER = {
    2: ([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], [2, 2, 2, 2]),
    4: (
        [[6, 0, 0], [4, 4, 4], [4, -4, 4], [1, 2, 4], [1, -2, 4], [0, 0, 12]],
        [24, -24, -24, 24, 24, 12],
    ),
}
_RESULT = {
    2: [[1, 1, 1, 0], [0, 1, -1, -1]],
    4: [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
}


# Per core: vector multiply-adds per cycle that the tiles reach, of floats and of pairs of integers,
# which are added by another instruction; bytes per cycle from and to the caches, and from memory.
_FMAS, _PAIRS, _CACHE, _MEMORY = 1.7, 1.2, 8, 4


class Squares:
    """A 3x3 convolution in squares of 2x2 or 4x4 outputs; see `choose`."""

    def __init__(
        self,
        size: int,
        window: Window,
        shape: Sequence[Any],
        factors: Factors,
        machine: Machine,
        layouts: Layouts | None = None,
    ) -> None:
        self.size, self.points, self.window, self.shape = size, size + 2, window, list(shape)
        _, height, width, self.outputs = shape
        self.factors, self.inputs = factors, int(factors.weight.shape[-1])
        self.dtype = "int32" if factors.quantized else "float32"
        self.down, self.across = -(-height // size), -(-width // size)
        squares = self.down * self.across
        self.operator = (
            f"winograd {size}: {shape[0]}x{self.down}x{self.across} squares, "
            f"{self.inputs} to {self.outputs} channels"
        )
        if factors.quantized:
            self.operator += f" of {factors.dtype}"
        steps, apart = self.inputs // factors.depth, self.inputs * factors.bytes
        free = machine.beside(factors.dot)
        ranked = Tile.ranked(1, squares, self.outputs, steps, apart, self.dtype, free)
        self.tile = (layouts or Layouts()).pick(self.operator, ranked)

    @classmethod
    def choose(
        cls,
        window: Window,
        shape: Sequence[Any],
        groups: int,
        factors: Factors,
        machine: Machine,
        layouts: Layouts | None = None,
        reach: tuple[int, int] = (0, 0),
    ) -> Squares | None:
        """Choose the size with the fewest estimated cycles; None if direct convolution is faster.

        Parameters
        ----------
        window : Window
            The window of the convolution.
        shape : sequence
            The shape of the output, NHWC.
        groups : int
            The groups of channels.
        factors : Factors
            The weights, OHWI, and the instruction: of float32, or of 16 bits.
        machine : Machine
            The processor to tile for.
        layouts : Layouts, optional
            The choice of the products' tile.
        reach : tuple of int, optional
            The least and the greatest difference of quantized data and their zero point.
        """
        lanes, rate = machine.lanes("float32"), factors.depth * _PAIRS if factors.dot else _FMAS
        _, height, width, outputs = shape
        inputs = int(factors.weight.shape[-1])
        fits = window.taps == [3, 3] and {*window.strides, *window.dilation, groups} == {1}
        if not fits or inputs % machine.lanes(factors.dtype) or outputs % lanes:
            return None
        # Float32 allows the rounding errors. Integers are exact, but must be multiplied in pairs.
        pairs = factors.dtype == "int16" and factors.dot is not None
        if not pairs and factors.dtype != "float32":
            return None

        def cycles(products: int, points: int, moved: int) -> float:
            arithmetic = products * inputs * outputs / lanes / rate
            weights = factors.bytes * points * inputs * outputs
            return float(arithmetic + moved / _CACHE + weights / _MEMORY)

        best, size = cycles(9 * height * width, 9, 0), 0
        for m in _DATA:
            products = (m + 2) ** 2 * -(-height // m) * -(-width // m)
            # The transformed input and the sums: each is written, and read again.
            moved = 2 * products * (factors.bytes * inputs + 4 * outputs)
            need = cycles(products, (m + 2) ** 2, moved)
            if need < best and (not factors.quantized or _is_exact(m, factors.weight, reach)):
                best, size = need, m
        return cls(size, window, shape, factors, machine, layouts) if size else None

    def weights(self) -> NDArray[Any]:
        """Transform the weights to ``[points^2, outputs, inputs]``, and pack them per point."""
        g, divisors = (np.array(one, np.float64) for one in _FILTER[self.size])
        if not self.factors.quantized:
            g /= divisors[:, None]
        weight = self.factors.weight
        outputs, *_, inputs = weight.shape
        taps = np.moveaxis(weight, 0, 2).reshape(9, -1).astype(np.float64)
        points = (np.kron(g, g) @ taps).astype(weight.dtype).reshape(-1, outputs, inputs)
        made = (replace(self.factors, weight=one) for one in points)
        return np.stack([each.packed(1, self.tile.channels)[0] for each in made])

    def input(self, data: te.Tensor) -> te.Tensor:
        """Transform NHWC data to ``[n, points, points, down, across, inputs]``."""
        n, m, a, down = self.shape[0], self.size, self.points, self.down
        data = self.factors.moved(data)
        x = self.window.pad(data, (down * m, self.across * m), self.inputs, self.factors.fill)
        rows = te.compute(
            (n, down, a, self.across * m + 2, self.inputs),
            lambda b, y, e, x_, c: _combine(_DATA[m], e, x.dtype, lambda i: x(b, y * m + i, x_, c)),
            name=INPUT[0],
        )
        return te.compute(
            (n, a, a, down, self.across, self.inputs),
            lambda b, e, f, y, x_, c: _combine(
                _DATA[m], f, x.dtype, lambda j: rows(b, y, e, x_ * m + j, c)
            ),
            name=INPUT[1],
        )

    def product(self, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        """Sum over the channels for each point: ``[n, squares, points, points, outputs]``."""
        n, a = self.shape[0], self.points
        squares = self.down * self.across
        read = self.factors.reader(weight, self.tile.channels)
        sums = contraction(
            data,
            lambda outer, o, *k: read(outer[1] * a + outer[2], o, *k),
            read=lambda outer, t, _, k: (*outer, t // self.across, t % self.across, k),
            pixels=(n, a, a, squares, 1),
            taps=(),
            inputs=self.inputs,
            channels=self.outputs,
            tile=self.tile.upright(),
            dtype=self.dtype,
            operator=self.operator,
            dot=self.factors.dot,
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
        exact = self.factors.quantized
        table = _whole_result(m) if exact else _RESULT[m]
        half = te.compute(
            (n, self.down, m, self.across, a, outputs),
            lambda b, y, i, x, f, o: _combine(
                table, i, self.dtype, lambda e: sums(b, y * self.across + x, e, f, o)
            ),
            name=OUTPUT[0],
        )
        whole = te.compute(
            (n, self.down * m, self.across * m, outputs),
            lambda b, y, x, o: _combine(
                table, x % m, self.dtype, lambda f: half(b, y // m, y % m, x // m, f, o)
            ),
            name=OUTPUT[1],
        )

        def value(*index: Any) -> Any:
            return _divided(whole(*index), m) if exact else whole(*index)

        return te.compute((n, height, width, outputs), value, name="crop")


def _whole_result(size: int) -> list[list[int]]:
    """Return the matrix of the result for the integer matrix of the weights."""
    divisors = np.array(_FILTER[size][1])
    found: list[list[int]] = (np.array(_RESULT[size]) * (divisors.max() // divisors)).tolist()
    return found


def _division(size: int) -> tuple[int, int]:
    """Return the factor and the shift that divide an exact multiple modulo 2^32."""
    whole = max(_FILTER[size][1]) ** 2
    shift = (whole & -whole).bit_length() - 1
    return pow(whole >> shift, -1, 1 << 32), shift


def _divided(sums: Any, size: int) -> Any:
    """Divide an exact multiple modulo 2^32."""
    inverse, shift = _division(size)
    # In int64, because LLVM assumes that products of int32 do not wrap.
    return (wrapped(sums.astype("int64") * inverse) if inverse != 1 else sums) >> shift


def _is_exact(size: int, weight: NDArray[Any], reach: tuple[int, int]) -> bool:
    """Return whether all factors fit into int16, and the sums can be divided modulo 2^32."""
    low, high = min(*reach, 0), max(*reach, 0)
    magnitude = max(-int(weight.min()), int(weight.max()))
    largest = max(
        int(np.abs(matrix).sum(axis=1).max()) ** 2 * most
        for matrix, most in ((_DATA[size], max(-low, high)), (_FILTER[size][0], magnitude))
    )
    # The sums of each channel's positive and of its negative weights.
    up, down = (
        part(weight, 0).sum(axis=(1, 2, 3), dtype=np.int64) for part in (np.maximum, np.minimum)
    )
    least, most = (up * low + down * high).min(), (up * high + down * low).max()
    room = 1 << 31 - _division(size)[1]
    return within((-largest, largest), "int16") and bool(-room <= least and most < room)


def _combine(matrix: list[list[int]], row: Any, dtype: str, term: Any) -> Any:
    """Multiply a row of a matrix, known after unrolling, with terms; skip its zeros."""
    made = None
    for number, row_factors in reversed(list(enumerate(matrix))):
        total = None
        for place, factor in enumerate(row_factors):
            if factor == 0:
                continue
            value = term(place)
            if abs(factor) != 1:
                value *= tirx.const(abs(factor), dtype)
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
    half, block = blocks[place : place + 2]
    lanes = machine.lanes(str(sch.get(block).writes[0].source.dtype))
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
