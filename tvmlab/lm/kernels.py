"""Attention over a paged key-value cache, as TIR functions for a CPU.

TVM's own functions for CPUs have the same parameters, but compute one number at a time on one
thread. Here, a thread has one key-value head of one sequence, and reads its keys and values once
for all query heads that share them. A page stores its keys in transposed tiles, so that a vector
has one number of each of a tile's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ..schedule.elementary import stores
from ..schedule.loops import divisor
from ..schedule.machine import Machine
from ..schedule.prefetch import LINE, fetch
from ..schedule.rebuild import replaced
from ..schedule.script import allocate, fill, function, tensor

__all__ = ["PAGE", "Attention"]

#: Tokens of a page of the cache. A head's keys in a page lie together, and long runs are read
#: faster; but a sequence leaves a part of its last page empty.
PAGE = 64
#: Tokens whose scores are computed together.
_TILE = 16
_LOWEST = -1e30


def _float(value: float) -> Any:
    return tirx.const(value, "float32")


@dataclass(frozen=True)
class _Read:
    """How to read a number of a key or of a value in a tile of tokens."""

    key: Callable[[Any, Any, Any], Any]  # of the tile, the number and the token
    value: Callable[[Any, Any, Any], Any]  # of the tile, the token and the number
    paged: bool


@dataclass(frozen=True)
class Attention:
    """The functions of the cache for a number of heads, of this size each.

    Attributes
    ----------
    heads, kv_heads : int
        Query heads, and the key-value heads that they share.
    size : int
        Numbers per head.
    theta : float
        The base of the rotary embedding's wavelengths.
    machine : Machine
        The processor.
    """

    heads: int
    kv_heads: int
    size: int
    theta: float
    machine: Machine

    def rotate(self) -> tirx.PrimFunc:
        """Return the function that splits queries, keys and values, and rotates the first two."""
        half, heads = self.size // 2, self.heads + self.kv_heads

        def body() -> None:
            tokens = T.int32()
            whole = tensor("qkv", (tokens, heads + self.kv_heads, self.size))
            position = _integers("position", tokens)
            outputs = [
                tensor(name, (tokens, count, self.size))
                for name, count in zip(
                    "qkv", [self.heads, self.kv_heads, self.kv_heads], strict=True
                )
            ]
            scalar("apply", "int64")
            with T.parallel(0, tokens) as row:
                angle = allocate(2 * half)
                with T.serial(0, half) as i:
                    # As in PyTorch: the frequency and the angle are rounded to float32.
                    power = tirx.Cast("float64", i) * tirx.const(-2.0 / self.size, "float64")
                    base = tirx.const(math.log(self.theta), "float64")
                    frequency = tirx.Cast("float32", tirx.exp(power * base))
                    turn = tirx.Cast("float32", position[row]) * frequency
                    T.buffer_store(angle, tirx.cos(turn), [i])
                    T.buffer_store(angle, tirx.sin(turn), [half + i])
                for number, (first, count) in enumerate(
                    [(0, self.heads), (self.heads, self.kv_heads)]
                ):
                    with T.serial(0, count) as h, T.vectorized(0, half) as i:
                        low, high = whole[row, first + h, i], whole[row, first + h, half + i]
                        cos, sin = angle[i], angle[half + i]
                        T.buffer_store(outputs[number], low * cos - high * sin, [row, h, i])
                        T.buffer_store(outputs[number], high * cos + low * sin, [row, h, half + i])
                with T.serial(0, self.kv_heads) as h, T.vectorized(0, self.size) as i:
                    T.buffer_store(outputs[2], whole[row, heads + h, i], [row, h, i])

        return function(body)

    def append(self) -> tirx.PrimFunc:
        """Return the function that writes keys and values to their places in the pages."""

        def body() -> None:
            tokens = T.int32()
            pages = self._pages()
            k, v = (tensor(name, (tokens, self.kv_heads, self.size)) for name in "kv")
            place = _integers("place", tokens)
            with T.serial(0, tokens) as row, T.serial(0, self.kv_heads) as h:
                page, slot = tirx.floordiv(place[row], PAGE), tirx.floormod(place[row], PAGE)
                with T.serial(0, self.size) as i:
                    T.buffer_store(pages, k[row, h, i], [page, 0, h, *self._key(i, slot)])
                with T.vectorized(0, self.size) as i:
                    T.buffer_store(pages, v[row, h, i], [page, 1, h, slot, i])

        return function(body)

    def _key(self, i: Any, t: Any) -> tuple[Any, Any]:
        """Return the place of a key's number in its page, where tiles of keys are transposed."""
        place = (tirx.floordiv(t, _TILE) * self.size + i) * _TILE + tirx.floormod(t, _TILE)
        return tirx.floordiv(place, self.size), tirx.floormod(place, self.size)

    def decode(self) -> tirx.PrimFunc:
        """Return the attention of one new token per sequence to all pages of the sequence."""
        return self._to_pages(single=True)

    def cross(self) -> tirx.PrimFunc:
        """Return the attention of several new tokens per sequence to the pages before them."""
        return self._to_pages(single=False)

    def _to_pages(self, single: bool) -> tirx.PrimFunc:
        def body() -> None:
            batch = T.int32()
            tokens = batch if single else T.int32()
            q = tensor("q", (tokens, self.heads, self.size))
            start = None if single else _integers("start", batch + 1)
            pages = self._pages()
            first = _integers("first", batch + 1)
            table = _integers("table", T.int32())
            last = _integers("last", batch)
            _integers("offset", batch)
            _integers("rotated", tokens)
            out, lse, scale = self._results(tokens, causal=not single)
            with T.parallel(0, batch * self.kv_heads) as index:
                b, h = tirx.floordiv(index, self.kv_heads), tirx.floormod(index, self.kv_heads)
                length, read = self._read(pages, first, table, last, b, h)
                scores = self._scores(length)
                limit = T.bind(length)
                begin = b if start is None else start[b]
                with T.serial(0, 1 if start is None else start[b + 1] - begin) as i:
                    self._attend(q, begin + i, h, limit, read, scores, scale, out, lse)

        return function(body)

    def within(self) -> tirx.PrimFunc:
        """Return the attention of new tokens to those of the same sequence that are new, too."""

        def body() -> None:
            batch, tokens = T.int32(), T.int32()
            q = tensor("q", (tokens, self.heads, self.size))
            start = _integers("start", batch + 1)
            k, v = (tensor(name, (tokens, self.kv_heads, self.size)) for name in "kv")
            _integers("start_of_keys", batch + 1)  # equal to `start`
            _integers("rotated", tokens)
            _integers("offset", batch)
            out, lse, scale = self._results(tokens, causal=True)
            with T.parallel(0, batch * self.kv_heads) as index:
                b, h = tirx.floordiv(index, self.kv_heads), tirx.floormod(index, self.kv_heads)
                length = start[b + 1] - start[b]
                scores = self._scores(length)
                shape = (tirx.ceildiv(length, _TILE), self.size, _TILE)
                turned = T.alloc_buffer(shape, "float32", layout=None)
                with T.serial(0, length) as t, T.serial(0, self.size) as i:
                    to = [tirx.floordiv(t, _TILE), i, tirx.floormod(t, _TILE)]
                    T.buffer_store(turned, k[start[b] + t, h, i], to)
                read = _Read(
                    lambda tile, i, t: turned[tile, i, t],
                    lambda tile, t, i: v[start[b] + tile * _TILE + t, h, i],
                    paged=False,
                )
                with T.serial(0, length) as i:
                    self._attend(q, start[b] + i, h, i + 1, read, scores, scale, out, lse)

        return function(body)

    def _pages(self) -> Any:
        return tensor("pages", (T.int32(), 2, self.kv_heads, PAGE, self.size))

    def _results(self, rows: Any, causal: bool) -> tuple[Any, Any, Any]:
        """Declare the results and the numbers at the end of the parameters."""
        out = tensor("out", (rows, self.heads, self.size))
        lse = tensor("lse", (rows, self.heads))
        # The cache asks for causal attention within new tokens, and for no other mask.
        for name in ["causal", "mode"] if causal else ["mode"]:
            scalar(name, "int32")
        *_, scale = [scalar(name, "float32") for name in ("rope_scale", "rope_theta", "scale")]
        return out, lse, scale

    def _read(
        self, pages: Any, first: Any, table: Any, last: Any, b: Any, h: Any
    ) -> tuple[Any, _Read]:
        """Return a sequence's length, and how to read the keys and values of a tile."""
        many = first[b + 1] - first[b]
        length = tirx.Select(many > 0, (many - 1) * PAGE + last[b], 0)

        def place(tile: Any, t: Any) -> tuple[Any, Any]:
            page, part = tirx.floordiv(tile, PAGE // _TILE), tirx.floormod(tile, PAGE // _TILE)
            return table[first[b] + page], part * _TILE + t

        def key(tile: Any, i: Any, t: Any) -> Any:
            page, slot = place(tile, t)
            return pages[page, 0, h, *self._key(i, slot)]

        def value(tile: Any, t: Any, i: Any) -> Any:
            page, slot = place(tile, t)
            return pages[page, 1, h, slot, i]

        return length, _Read(key, value, paged=True)

    def _scores(self, length: Any) -> Any:
        """Allocate the scores of the query heads that share a key-value head."""
        # TVM moves allocations before bound variables, so `length` must be an expression.
        # The tiles come first: with them last, each place would depend on `length`.
        shape = (tirx.ceildiv(length, _TILE), self.heads // self.kv_heads, _TILE)
        return T.alloc_buffer(shape, "float32", layout=None)

    def _attend(
        self,
        q: Any,
        row: Any,
        h: Any,
        limit: Any,
        read: _Read,
        scores: Any,
        scale: Any,
        out: Any,
        lse: Any,
    ) -> None:
        """Attend from one token to `limit` keys, with the query heads that share a head.

        While a tile is read, the tile after the next is prefetched: pages can be anywhere in
        memory, and the processor cannot predict the next one.
        """
        group, size = self.heads // self.kv_heads, self.size
        lanes = math.gcd(size, self.machine.lanes("float32"))
        # All but a few registers, which hold a value and the scores, are for sums.
        vectors = divisor(size // lanes, max(1, (self.machine.registers - 4) // group))
        dots, maxima, total = (
            allocate(count) for count in (2 * group * _TILE, group * _TILE, _TILE)
        )
        sums, inverse, highest = allocate(group * size), allocate(group), allocate(1)
        fill(maxima, _float(_LOWEST))
        tiles = tirx.ceildiv(limit, _TILE)
        with T.serial(0, tiles) as tile:
            later = T.bind(tirx.min(tile + 2, tiles - 1))
            fill(dots, _float(0))
            # Even and odd numbers apart, because each sum waits for the one before.
            with T.serial(0, size // 2) as half, T.unroll(0, 2) as odd:
                i = half * 2 + odd
                if read.paged:
                    T.evaluate(fetch(read.key(later, i, 0)))
                with T.unroll(0, group) as g:
                    first = (odd * group + g) * _TILE
                    with T.vectorized(0, _TILE) as t:
                        more = q[row, h * group + g, i] * read.key(tile, i, t)
                        T.buffer_store(dots, dots[first + t] + more, [first + t])
            with T.unroll(0, group) as g:
                with T.vectorized(0, _TILE) as t:
                    place = g * _TILE + t
                    score = (dots[place] + dots[group * _TILE + place]) * scale
                    score = tirx.Select(tile * _TILE + t < limit, score, _float(_LOWEST))
                    T.buffer_store(scores, score, [tile, g, t])
                with T.vectorized(0, _TILE) as t:
                    place = g * _TILE + t
                    score = tirx.max(maxima[place], scores[tile, g, t])
                    T.buffer_store(maxima, score, [place])
        with T.serial(0, group) as g:
            T.buffer_store(highest, _float(_LOWEST), [0])
            with T.serial(0, _TILE) as t:
                T.buffer_store(highest, tirx.max(highest[0], maxima[g * _TILE + t]), [0])
            fill(total, _float(0))
            with T.serial(0, tiles) as tile:
                _exponential(scores, lambda t: (tile, g, t), highest[0])
                with T.vectorized(0, _TILE) as t:
                    T.buffer_store(total, total[t] + scores[tile, g, t], [t])
            with T.serial(1, _TILE) as t:
                T.buffer_store(total, total[0] + total[t], [0])
            # Without any key, the results are zero.
            denominator = tirx.Select(limit > 0, total[0], _float(1))
            T.buffer_store(inverse, _float(1) / denominator, [g])
            log = (highest[0] + tirx.log(denominator)) * _float(math.log2(math.e))
            T.buffer_store(lse, log, [row, h * group + g])
        fill(sums, _float(0))
        with T.serial(0, tiles) as tile:
            count = T.bind(tirx.min(_TILE, limit - tile * _TILE))
            later = T.bind(tirx.min(tile + 2, tiles - 1))
            # The sums of a few vectors stay in registers.
            with T.unroll(0, size // lanes // vectors) as chunk, T.serial(0, count) as t:
                start = chunk * vectors * lanes
                for line in range(0, vectors * lanes if read.paged else 0, LINE):
                    # In the order of the addresses, although the sums go chunk by chunk.
                    ahead = (chunk * _TILE + t) * vectors * lanes + line
                    T.evaluate(fetch(read.value(later, ahead // size, ahead % size)))
                with (
                    T.unroll(0, vectors) as c,
                    T.unroll(0, group) as g,
                    T.vectorized(0, lanes) as i,
                ):
                    place = start + c * lanes + i
                    more = scores[tile, g, t] * read.value(tile, t, place)
                    T.buffer_store(sums, sums[g * size + place] + more, [g * size + place])
        with T.serial(0, group) as g, T.vectorized(0, size) as i:
            T.buffer_store(out, sums[g * size + i] * inverse[g], [row, h * group + g, i])


def _exponential(scores: Any, place: Callable[[Any], Any], highest: Any) -> None:
    """Replace the scores of a tile by the exponentials of their distance to the highest one."""
    lane, buffers = tirx.Var("lane", "int32"), list[Any]()
    value = tirx.exp(tirx.BufferLoad(scores, [*place(lane)]) - highest)
    made = stores(tirx.BufferStore(scores, value, [*place(lane)]), _TILE, lane, buffers)
    for buffer in buffers:
        T.add_to_parent(tirx.AllocBuffer(buffer))
    for each in made:
        own = tirx.Var("lane", "int32")
        body = replaced(each, [(lane, own)])
        T.add_to_parent(tirx.For(own, 0, _TILE, tirx.ForKind.VECTORIZED, body))


def _integers(name: str, count: Any) -> Any:
    """Declare a vector that can begin anywhere in the memory of its tensor."""
    return tensor(name, (count,), "int32", elem_offset=T.int32())


def scalar(name: str, dtype: str) -> Any:
    """Declare a parameter that is a number."""
    return T.arg(name, tirx.Var(name, dtype))
