"""Matrix products with quantized weights, as TIR functions for a CPU.

A product of few tokens is memory-bound: it reads the integers as they are, and multiplies them with
inputs that are rounded to 16 bits. A product of many tokens converts a part of the weights at a
time to float32, and multiplies all tokens with it while it is in the second-level cache.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from .packing import Format
from .prefetch import LINE, fetch
from .script import allocate, fill, function, tensor

__all__ = ["Quantized"]

# Bits of a rounded input. The masks select the low byte of each half of a word, after these shifts.
_HALF, _SHIFTS = 16, (0, 8)
# How many words lie between a word and the one that is fetched with it: 4 KiB hide the memory's
# latency, and 2 to 32 KiB take about the same time.
_AHEAD = 1024
# Up to this number of tokens, rounding the inputs takes less time than converting the weights.
_FEW = 6
# The largest 16-bit integer.
_LARGEST = 32_767.0
# The most inputs that are rounded together: the sums of their products fit into 32 bits.
_ROUNDED = 32
# A group whose largest absolute value is below `_SMALL` counts as zero. If the sum of its absolute
# values is above `_HUGE`, the results are NaN.
_SMALL, _HUGE = 1e-30, 3e38


@dataclass(frozen=True)
class Quantized:
    """The products ``x @ weight.T`` for a weight ``[outputs, inputs]`` of int8 or int4."""

    form: Format
    outputs: int
    inputs: int

    @property
    def _step(self) -> int:
        """Inputs that are rounded and summed together."""
        return min(self.form.group, _ROUNDED)

    def product(self, count: int | None = None) -> tirx.PrimFunc:
        """Return the product for this number of tokens, or for any."""
        # An index of the result can exceed 32 bits.
        tokens = T.int64() if count is None else count
        shapes = self.form.shapes(self.outputs, self.inputs)
        names = ("weight", "scale", "zero")[: len(shapes)]

        def body() -> None:
            x = tensor("x", (tokens, self.inputs))
            weight, *units = [tensor(name, *each) for name, each in zip(names, shapes, strict=True)]
            operands = x, weight, units, tensor("out", (tokens, self.outputs)), tokens
            if count is None:
                with T.If(tokens <= _FEW):
                    with T.Then():
                        self._few(*operands)
                    with T.Else():
                        self._many(*operands)
            elif count <= _FEW:
                self._few(*operands)
            else:
                self._many(*operands)

        return function(body)

    def _few(self, x: Any, weight: Any, units: list[Any], out: Any, tokens: Any) -> None:
        """Round the inputs, and multiply integers.

        The instruction multiplies pairs, which masks take out of the words. The 4-bit pairs at bit
        4 are not shifted: their products are 16 times too large, and have an accumulator of their
        own, which is shifted at the end of a group.
        """
        form, tile = self.form, self.form.tile
        dot = form.machine.dot16
        lanes = dot.lanes if dot else form.machine.lanes("int32")
        words, positions = self._step // form.word, 8 // form.bits
        # Four streams of 4-bit weights would need too many registers. A single one is prefetched.
        blocks = form.blocks(self.outputs)
        streams = form.streams(self.outputs) if form.bits == 8 else 1
        rounded, scales, summed = self._rounded(x, tokens)
        with T.parallel(0, blocks // streams) as index, T.serial(0, tokens) as token:
            mine = [index + stream * (blocks // streams) for stream in range(streams)]
            totals = [allocate(tile) for _ in mine]
            sums = [[allocate(tile, dtype="int32") for _ in range(positions)] for _ in mine]
            for total in totals:
                fill(total, T.float32(0))
            with T.serial(0, self.inputs // self._step) as group:
                for block, parts in zip(mine, sums, strict=True):
                    for position, part in enumerate(parts):
                        own = position or form.zeros
                        fill(part, T.int32(0) if own else summed[token, group] * -form.zero)
                    if streams == 1:
                        start = (block * (self.inputs // form.word) + group * words) * tile
                        for line in range(0, words * tile, LINE):
                            T.evaluate(fetch(weight[0, 0, start + line + _AHEAD]))
                for word, stream in itertools.product(range(words), range(streams)):
                    at, places = group * words + word, itertools.product(_SHIFTS, range(positions))
                    for pair, (shift, position) in enumerate(places):
                        part, first_input = sums[stream][position], at * form.word + 2 * pair
                        mask = (2**form.bits - 1 << form.bits * position) * (1 + (1 << _HALF))
                        for start in range(0, tile, lanes):
                            every = T.ramp(start, 1, lanes)
                            number = _unsigned(weight[mine[stream], at, every], lanes)
                            number = _masked(number, shift, mask, lanes)
                            more = self._accumulated(
                                part[every], rounded, token, first_input, number
                            )
                            T.buffer_store(part, more, [every])
                for block, parts, total in zip(mine, sums, totals, strict=True):
                    with T.vectorized(0, tile) as o:
                        shifted = [
                            tirx.shift_right(part[o], T.int32(form.bits * position))
                            for position, part in enumerate(parts)
                        ]
                        product = functools.reduce(operator.add, shifted)
                        place = block, group * self._step // form.group, o
                        if form.zeros:
                            zero = tirx.Cast("int32", units[1][place])
                            product = product - zero * summed[token, group]
                        unit = self._scale(units, place) * scales[token, group]
                        more = tirx.Cast("float32", product) * unit
                        T.buffer_store(total, total[o] + more, [o])
            for block, total in zip(mine, totals, strict=True):
                with T.serial(0, tirx.min(tile, self.outputs - block * tile)) as o:
                    T.buffer_store(out, total[o], [token, block * tile + o])

    def _many(self, x: Any, weight: Any, units: list[Any], out: Any, tokens: Any) -> None:
        """Convert the weights once, and multiply in float32."""
        form, tile, rows = self.form, self.form.tile, self.form.rows
        # Half of the cache: the inputs and the results need it, too.
        most = form.machine.l2 // 2 // (4 * tile * self._step) * self._step
        depth = min(self.inputs, max(self._step, most))
        with T.parallel(0, form.blocks(self.outputs)) as block:
            floats, sums = allocate(depth * tile), allocate(rows * tile)
            columns = tirx.min(tile, self.outputs - block * tile)
            with T.serial(0, -(-self.inputs // depth)) as part:
                start = part * depth
                steps = T.bind(tirx.min(depth, self.inputs - start))
                with T.serial(0, tirx.floordiv(steps, form.word)) as word:
                    at = tirx.floordiv(start, form.word) + word
                    for k in range(form.word):
                        with T.vectorized(0, tile) as o:
                            place = block, tirx.floordiv(at * form.word, form.group), o
                            zero = tirx.Cast("int32", units[1][place]) if form.zeros else form.zero
                            number = self._number(weight[block, at, o], k, zero)
                            number = number * self._scale(units, place)
                            T.buffer_store(floats, number, [(word * form.word + k) * tile + o])
                with T.serial(0, tirx.ceildiv(tokens, rows)) as strip:
                    # A row beyond the last one reads that one, and its sums are dropped.
                    places = [strip * rows + row for row in range(rows)]
                    fill(sums, T.float32(0))
                    with T.serial(0, steps) as k:
                        for row, place in enumerate(places):
                            token = tirx.min(place, tokens - 1)
                            with T.vectorized(0, tile) as o:
                                more = x[token, start + k] * floats[k * tile + o]
                                more = sums[row * tile + o] + more
                                T.buffer_store(sums, more, [row * tile + o])
                    for row, place in enumerate(places):
                        with T.If(place < tokens), T.Then(), T.serial(0, columns) as o:
                            before = out[place, block * tile + o]
                            before = tirx.Select(part > 0, before, T.float32(0))
                            result = before + sums[row * tile + o]
                            T.buffer_store(out, result, [place, block * tile + o])

    def _scale(self, units: list[Any], place: tuple[Any, ...]) -> Any:
        """Return a scale as float32."""
        found = units[0][place]
        return found if self.form.scale == "float32" else _bfloat(found)

    def _number(self, word: Any, k: int, zero: Any) -> Any:
        """Return weight `k` of a word, with its sign, as float32."""
        shift = tirx.const(self.form.place(k), "uint32")
        last = tirx.reinterpret("int32", tirx.shift_right(_unsigned(word), shift))
        mask = tirx.const(2**self.form.bits - 1, "int32")
        return tirx.Cast("float32", tirx.bitwise_and(last, mask) - zero)

    def _accumulated(self, sums: Any, inputs: Any, token: Any, first: Any, words: Any) -> Any:
        """Add the products of two inputs with the halves of each word."""
        dot, lanes = self.form.machine.dot16, int(words.ty.dtype.lanes)
        if dot:
            alike = T.reinterpret(inputs[token, T.ramp(first, 1, 2)], dtype="int32")
            factors, many = (T.broadcast(alike, lanes), words), f"int16x{2 * lanes}"
            return dot.added(sums, *(T.reinterpret(factor, dtype=many) for factor in factors))
        low = tirx.bitwise_and(words, T.broadcast(T.uint32(2**_HALF - 1), lanes))
        high = tirx.shift_right(words, T.broadcast(T.uint32(_HALF), lanes))
        for place, half in enumerate((low, high)):
            number = T.broadcast(tirx.Cast("int32", inputs[token, first + place]), lanes)
            sums = sums + number * tirx.reinterpret(f"int32x{lanes}", half)
        return sums

    def _rounded(self, x: Any, tokens: Any) -> tuple[Any, Any, Any]:
        """Round the inputs to 16 bits; return them, and the scale and the sum of each group.

        The sum times a zero point is subtracted from the products. The scale is NaN if an input of
        the group is not finite, or if the sum of their absolute values overflows.
        """
        size, lanes = self._step, self.form.machine.lanes("float32")
        groups = self.inputs // size
        many = tokens if isinstance(tokens, int) else _FEW
        rounded, scales = allocate(many, self.inputs, dtype="int16"), allocate(many, groups)
        summed, factor = allocate(many, groups, dtype="int32"), allocate(1)
        high, total = allocate(lanes), allocate(lanes)

        def joined(buffer: Any, join: Callable[[Any, Any], Any]) -> Any:
            return functools.reduce(join, [buffer[i] for i in range(lanes)])

        with T.grid(tokens, groups) as (token, group):
            fill(high, T.float32(0))
            fill(total, T.float32(0))
            for start in range(0, size, lanes):
                with T.vectorized(0, lanes) as i:
                    value = tirx.abs(x[token, group * size + start + i])
                    T.buffer_store(high, tirx.max(high[i], value), [i])
                    T.buffer_store(total, total[i] + value, [i])
            most = T.bind(joined(high, tirx.max))
            finite = joined(total, operator.add) <= T.float32(_HUGE)
            scale = tirx.Select(finite, most / T.float32(_LARGEST), T.float32(math.nan))
            T.buffer_store(scales, scale, [token, group])
            inverse = tirx.Select(
                most < T.float32(_SMALL), T.float32(0), T.float32(_LARGEST) / most
            )
            T.buffer_store(factor, inverse, [0])
            fill(total, T.float32(0))
            for start in range(0, size, lanes):
                with T.vectorized(0, lanes) as i:
                    at = group * size + start + i
                    near = tirx.round(x[token, at] * factor[0])
                    # `min` returns its second operand if the first is not a number.
                    near = tirx.max(tirx.min(near, T.float32(_LARGEST)), T.float32(-_LARGEST))
                    T.buffer_store(total, total[i] + near, [i])
                    T.buffer_store(rounded, tirx.Cast("int16", near), [token, at])
            T.buffer_store(summed, tirx.Cast("int32", joined(total, operator.add)), [token, group])
        return rounded, scales, summed


def _unsigned(word: Any, lanes: int = 1) -> Any:
    return tirx.reinterpret("uint32" if lanes == 1 else f"uint32x{lanes}", word)


def _masked(words: Any, shift: int, mask: int, lanes: int) -> Any:
    """Shift words to the right, and keep the bits of a mask."""
    if shift:
        words = tirx.shift_right(words, T.broadcast(tirx.const(shift, "uint32"), lanes))
    return tirx.bitwise_and(words, T.broadcast(tirx.const(mask, "uint32"), lanes))


def _bfloat(bits: Any) -> Any:
    """Return the float32 whose upper half these bits are."""
    return tirx.reinterpret("float32", tirx.Cast("uint32", bits) << 16)
