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
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..schedule.apply import SCHEDULED
from ..schedule.elementary import stores
from ..schedule.loops import divisor
from ..schedule.machine import Machine
from ..schedule.prefetch import LINE, fetch
from ..schedule.rebuild import replaced

__all__ = ["PAGE", "Attention", "allocate", "fill"]

#: Tokens of a page of the cache. The memory is fastest if a head's keys in a page are many.
PAGE = 64
#: Tokens whose scores are computed together.
_TILE = 16
_LOWEST = -1e30


def _float(value: float) -> Any:
    return tirx.const(value, "float32")


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

        def body(build: _Function) -> None:
            tokens = T.int32()
            whole = build.tensor("qkv", (tokens, heads + self.kv_heads, self.size))
            position = build.tensor("position", (tokens,), "int32")
            outputs = [
                build.tensor(name, (tokens, count, self.size))
                for name, count in zip(
                    "qkv", [self.heads, self.kv_heads, self.kv_heads], strict=True
                )
            ]
            build.scalar("apply", "int64")
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

        return _function("rotate", body)

    def append(self) -> tirx.PrimFunc:
        """Return the function that writes keys and values to their places in the pages."""

        def body(build: _Function) -> None:
            tokens = T.int32()
            pages = self._pages(build)
            k, v = (build.tensor(name, (tokens, self.kv_heads, self.size)) for name in "kv")
            place = build.tensor("place", (tokens,), "int32")
            with T.serial(0, tokens) as row, T.serial(0, self.kv_heads) as h:
                page, slot = tirx.floordiv(place[row], PAGE), tirx.floormod(place[row], PAGE)
                with T.serial(0, self.size) as i:
                    T.buffer_store(pages, k[row, h, i], [page, 0, h, *self._key(i, slot)])
                with T.vectorized(0, self.size) as i:
                    T.buffer_store(pages, v[row, h, i], [page, 1, h, slot, i])

        return _function("append", body)

    def copy(self) -> tirx.PrimFunc:
        """Return the function that copies a page; its tokens after `count` are overwritten."""

        def body(build: _Function) -> None:
            pages = self._pages(build)
            source, target = (build.scalar(name, "int64") for name in ("source", "target"))
            build.scalar("count", "int64")
            with T.grid(2, self.kv_heads, PAGE) as (which, h, t), T.vectorized(0, self.size) as i:
                place = [which, h, t, i]
                T.buffer_store(pages, pages[source, *place], [target, *place])

        return _function("copy", body)

    def _key(self, i: Any, t: Any) -> tuple[Any, Any]:
        """Return the place of a key's number in its page, where tiles of keys are transposed."""
        place = (tirx.floordiv(t, _TILE) * self.size + i) * _TILE + tirx.floormod(t, _TILE)
        return tirx.floordiv(place, self.size), tirx.floormod(place, self.size)

    def decode(self) -> tirx.PrimFunc:
        """Return the attention of one new token per sequence to all pages of the sequence."""

        def body(build: _Function) -> None:
            batch = T.int32()
            q = build.tensor("q", (batch, self.heads, self.size))
            pages, first, table, last = self._paged(build, batch)
            build.tensor("rotated", (batch,), "int32")
            out, lse, scale, _ = self._results(build, batch)
            with T.parallel(0, batch * self.kv_heads) as index:
                b, h = tirx.floordiv(index, self.kv_heads), tirx.floormod(index, self.kv_heads)
                length, key, value = self._read(pages, first, table, last, b, h)
                scores = self._scores(length)
                limit = T.bind(length)
                self._attend(build, q, b, h, limit, key, value, scores, scale, out, lse)

        return _function("decode_attention", body)

    def cross(self) -> tirx.PrimFunc:
        """Return the attention of several new tokens per sequence to the pages before them."""

        def body(build: _Function) -> None:
            batch, tokens = T.int32(), T.int32()
            q = build.tensor("q", (tokens, self.heads, self.size))
            start = build.tensor("start", (batch + 1,), "int32")
            pages, first, table, last = self._paged(build, batch)
            build.tensor("rotated", (tokens,), "int32")
            out, lse, scale, causal = self._results(build, tokens, causal=True)
            with T.parallel(0, batch * self.kv_heads) as index:
                b, h = tirx.floordiv(index, self.kv_heads), tirx.floormod(index, self.kv_heads)
                length, key, value = self._read(pages, first, table, last, b, h)
                scores = self._scores(length)
                with T.serial(0, start[b + 1] - start[b]) as i:
                    row, after = start[b] + i, length - (start[b + 1] - start[b]) + i + 1
                    limit = T.bind(tirx.Select(causal > 0, after, length))
                    self._attend(build, q, row, h, limit, key, value, scores, scale, out, lse)

        return _function("cross_attention", body)

    def within(self) -> tirx.PrimFunc:
        """Return the attention of new tokens to those of the same sequence that are new, too."""

        def body(build: _Function) -> None:
            batch, tokens, keys = T.int32(), T.int32(), T.int32()
            q = build.tensor("q", (tokens, self.heads, self.size))
            start = build.tensor("start", (batch + 1,), "int32")
            k, v = (build.tensor(name, (keys, self.kv_heads, self.size)) for name in "kv")
            begin = build.tensor("begin", (batch + 1,), "int32")
            build.tensor("rotated", (tokens,), "int32")
            build.tensor("offset", (batch,), "int32")
            out, lse, scale, causal = self._results(build, tokens, causal=True)
            with T.parallel(0, batch * self.kv_heads) as index:
                b, h = tirx.floordiv(index, self.kv_heads), tirx.floormod(index, self.kv_heads)
                length = begin[b + 1] - begin[b]
                scores = self._scores(length)
                rows = tirx.ceildiv(length, _TILE) * _TILE * self.size
                turned = T.alloc_buffer((rows,), "float32", layout=None)

                def place(tile: Any, i: Any, t: Any) -> Any:
                    return (tile * self.size + i) * _TILE + t

                with T.serial(0, length) as t, T.serial(0, self.size) as i:
                    to = place(tirx.floordiv(t, _TILE), i, tirx.floormod(t, _TILE))
                    T.buffer_store(turned, k[begin[b] + t, h, i], [to])
                with T.serial(0, start[b + 1] - start[b]) as i:
                    row, after = start[b] + i, length - (start[b + 1] - start[b]) + i + 1
                    limit = T.bind(tirx.Select(causal > 0, after, length))
                    self._attend(
                        build,
                        q,
                        row,
                        h,
                        limit,
                        lambda *at: turned[place(*at)],
                        lambda tile, t, i: v[begin[b] + tile * _TILE + t, h, i],
                        scores,
                        scale,
                        out,
                        lse,
                        paged=False,
                    )

        return _function("self_attention", body)

    def _pages(self, build: _Function) -> Any:
        return build.tensor("pages", (T.int32(), 2, self.kv_heads, PAGE, self.size), offset=False)

    def _paged(self, build: _Function, batch: Any) -> tuple[Any, ...]:
        """Declare the pages, and for each sequence its part of the table and its last length."""
        pages = self._pages(build)
        first = build.tensor("first", (batch + 1,), "int32")
        table = build.tensor("table", (T.int32(),), "int32")
        last = build.tensor("last", (batch,), "int32")
        build.tensor("offset", (batch,), "int32")
        return pages, first, table, last

    def _results(self, build: _Function, rows: Any, causal: bool = False) -> tuple[Any, ...]:
        """Declare the results and the numbers at the end of the parameters."""
        out = build.tensor("out", (rows, self.heads, self.size), offset=False)
        lse = build.tensor("lse", (rows, self.heads), offset=False)
        mask = build.scalar("causal", "int32") if causal else None
        build.scalar("mode", "int32")
        scale = [build.scalar(name, "float32") for name in ("rope_scale", "rope_theta", "scale")]
        return out, lse, scale[-1], mask

    def _read(self, pages: Any, first: Any, table: Any, last: Any, b: Any, h: Any) -> Any:
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

        return length, key, value

    def _scores(self, length: Any) -> Any:
        """Allocate the scores of the query heads that share a key-value head."""
        # TVM allocates before it binds variables, so that `length` must not be one.
        # The tiles come first: with them last, each place would depend on `length`.
        shape = (tirx.ceildiv(length, _TILE), self.heads // self.kv_heads, _TILE)
        return T.alloc_buffer(shape, "float32", layout=None)

    def _attend(
        self,
        build: _Function,
        q: Any,
        row: Any,
        h: Any,
        limit: Any,
        key: Callable[[Any, Any, Any], Any],
        value: Callable[[Any, Any, Any], Any],
        scores: Any,
        scale: Any,
        out: Any,
        lse: Any,
        paged: bool = True,
    ) -> None:
        """Attend from one token to `limit` keys, with the query heads that share a head.

        Pages can be anywhere in memory, where the processor cannot predict the next one. Therefore
        each tile fetches the second one after it.
        """
        group, size = self.heads // self.kv_heads, self.size
        lanes = math.gcd(size, self.machine.lanes("float32"))
        # All but a few registers, which hold a value and the scores, are for sums.
        few = divisor(size // lanes, max(1, (self.machine.registers - 4) // group))
        part, most, total = (allocate(count) for count in (2 * group * _TILE, group * _TILE, _TILE))
        sums, inverse, highest = allocate(group * size), allocate(group), allocate(1)
        fill(most, group * _TILE, _float(_LOWEST))
        tiles = tirx.ceildiv(limit, _TILE)
        with T.serial(0, tiles) as tile:
            after = T.bind(tirx.min(tile + 2, tiles - 1))
            fill(part, 2 * group * _TILE, _float(0))
            # Even and odd numbers apart, because each sum waits for the one before.
            with T.serial(0, size // 2) as half, T.unroll(0, 2) as odd:
                i = half * 2 + odd
                if paged:
                    T.evaluate(fetch(key(after, i, 0)))
                with T.unroll(0, group) as g:
                    first = (odd * group + g) * _TILE
                    with T.vectorized(0, _TILE) as t:
                        more = q[row, h * group + g, i] * key(tile, i, t)
                        T.buffer_store(part, part[first + t] + more, [first + t])
            with T.unroll(0, group) as g:
                with T.vectorized(0, _TILE) as t:
                    place = g * _TILE + t
                    score = (part[place] + part[group * _TILE + place]) * scale
                    score = tirx.Select(tile * _TILE + t < limit, score, _float(_LOWEST))
                    T.buffer_store(scores, score, [tile, g, t])
                with T.vectorized(0, _TILE) as t:
                    place = g * _TILE + t
                    score = tirx.max(most[place], scores[tile, g, t])
                    T.buffer_store(most, score, [place])
        with T.serial(0, group) as g:
            T.buffer_store(highest, _float(_LOWEST), [0])
            with T.serial(0, _TILE) as t:
                T.buffer_store(highest, tirx.max(highest[0], most[g * _TILE + t]), [0])
            fill(total, _TILE, _float(0))
            with T.serial(0, tiles) as tile:
                _exponential(scores, lambda t: (tile, g, t), highest[0])
                with T.vectorized(0, _TILE) as t:
                    T.buffer_store(total, total[t] + scores[tile, g, t], [t])
            with T.serial(1, _TILE) as t:
                T.buffer_store(total, total[0] + total[t], [0])
            # Without any key, the results are zero.
            whole = tirx.Select(limit > 0, total[0], _float(1))
            T.buffer_store(inverse, _float(1) / whole, [g])
            log = (highest[0] + tirx.log(whole)) * _float(math.log2(math.e))
            T.buffer_store(lse, log, [row, h * group + g])
        fill(sums, group * size, _float(0))
        with T.serial(0, tiles) as tile:
            count = T.bind(tirx.min(_TILE, limit - tile * _TILE))
            after = T.bind(tirx.min(tile + 2, tiles - 1))
            # The sums of a few vectors stay in registers.
            with T.unroll(0, size // lanes // few) as chunk, T.serial(0, count) as t:
                start = chunk * few * lanes
                for line in range(0, few * lanes if paged else 0, LINE):
                    # In the order of the memory, unlike the sums.
                    ahead = (chunk * _TILE + t) * few * lanes + line
                    T.evaluate(fetch(value(after, ahead // size, ahead % size)))
                with T.unroll(0, few) as c, T.unroll(0, group) as g, T.vectorized(0, lanes) as i:
                    place = start + c * lanes + i
                    more = scores[tile, g, t] * value(tile, t, place)
                    T.buffer_store(sums, sums[g * size + place] + more, [g * size + place])
        with T.serial(0, group) as g, T.vectorized(0, size) as i:
            T.buffer_store(out, sums[g * size + i] * inverse[g], [row, h * group + g, i])


def allocate(*shape: int, dtype: str = "float32") -> Any:
    """Allocate a thread's own buffer.

    `schedule.stack` keeps small buffers of the global scope on the stack, so that LLVM can keep
    them in registers. Buffers of the local scope would be allocated again in each iteration.
    """
    return T.alloc_buffer(shape, dtype, layout=None)


def fill(buffer: Any, count: int, value: Any) -> None:
    """Set all numbers of a buffer."""
    with T.vectorized(0, count) as i:
        T.buffer_store(buffer, value, [i])


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


class _Function:
    """The parameters of a function, in order."""

    def __init__(self) -> None:
        self._declared: list[Callable[[], None]] = []

    def tensor(
        self, name: str, shape: tuple[Any, ...], dtype: str = "float32", *, offset: bool = True
    ) -> Any:
        """Declare a tensor, whose data can begin anywhere in its memory."""
        place = {"elem_offset": T.int32()} if offset and dtype == "int32" else {}
        return T.match_buffer(T.arg(name, T.handle()), shape, dtype, layout=None, **place)

    def scalar(self, name: str, dtype: str) -> Any:
        """Declare a number."""
        return T.arg(name, tirx.Var(name, dtype))


def _function(name: str, body: Callable[[_Function], None]) -> tirx.PrimFunc:
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr({SCHEDULED: True, "tirx.noalias": True})
            body(_Function())
        return builder.get()
