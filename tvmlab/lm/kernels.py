"""Attention over a paged key-value cache, as TIR functions for a CPU.

TVM's own functions for CPUs have the same parameters, but compute one number at a time on one
thread. Here, a thread has one key-value head of one sequence, and reads its keys once for all query
heads that share them, a page at a time. The softmax is rescaled when a page has a larger score
(Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
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
from ..schedule.machine import Machine
from ..schedule.prefetch import replaced

__all__ = ["PAGE", "Attention"]

#: Tokens of a page of the cache.
PAGE = 16
_LOWEST, _SMALLEST = -1e30, 1e-30


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

    @property
    def _lanes(self) -> int:
        return math.gcd(self.size, self.machine.lanes("float32"))

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
                angle = build.local(2 * half)
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
            new = [build.tensor(name, (tokens, self.kv_heads, self.size)) for name in "kv"]
            place = build.tensor("place", (tokens,), "int32")
            with T.serial(0, tokens) as row, T.serial(0, self.kv_heads) as h:
                page, slot = tirx.floordiv(place[row], PAGE), tirx.floormod(place[row], PAGE)
                for which, source in enumerate(new):
                    with T.vectorized(0, self.size) as i:
                        T.buffer_store(pages, source[row, h, i], [page, which, h, slot, i])

        return _function("append", body)

    def decode(self) -> tirx.PrimFunc:
        """Return the attention of one new token per sequence to all pages of the sequence."""

        def body(build: _Function) -> None:
            batch = T.int32()
            q = build.tensor("q", (batch, self.heads, self.size))
            pages, first, table, last = self._paged(build, batch)
            build.tensor("rotated", (batch,), "int32")
            outputs, scale = self._results(build, batch)[:2]
            with T.parallel(0, batch * self.kv_heads) as index:
                b, h = tirx.floordiv(index, self.kv_heads), tirx.floormod(index, self.kv_heads)
                many = T.bind(first[b + 1] - first[b])
                length = T.bind(tirx.Select(many > 0, (many - 1) * PAGE + last[b], 0))
                read = _paged_reader(pages, table, first[b], h)
                self._attend(build, q, b, h, length, read, outputs, scale)

        return _function("decode_attention", body)

    def cross(self) -> tirx.PrimFunc:
        """Return the attention of several new tokens per sequence to the pages before them."""

        def body(build: _Function) -> None:
            batch, tokens = T.int32(), T.int32()
            q = build.tensor("q", (tokens, self.heads, self.size))
            start = build.tensor("start", (batch + 1,), "int32")
            pages, first, table, last = self._paged(build, batch)
            build.tensor("rotated", (tokens,), "int32")
            outputs, scale, causal = self._results(build, tokens, causal=True)
            with T.parallel(0, batch * self.kv_heads) as index:
                b, h = tirx.floordiv(index, self.kv_heads), tirx.floormod(index, self.kv_heads)
                many = T.bind(first[b + 1] - first[b])
                length = T.bind(tirx.Select(many > 0, (many - 1) * PAGE + last[b], 0))
                read = _paged_reader(pages, table, first[b], h)
                with T.serial(0, start[b + 1] - start[b]) as i:
                    after = length - (start[b + 1] - start[b]) + i + 1
                    limit = T.bind(tirx.Select(causal > 0, after, length))
                    self._attend(build, q, start[b] + i, h, limit, read, outputs, scale)

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
            outputs, scale, causal = self._results(build, tokens, causal=True)
            with T.parallel(0, batch * self.kv_heads) as index:
                b, h = tirx.floordiv(index, self.kv_heads), tirx.floormod(index, self.kv_heads)
                length = T.bind(begin[b + 1] - begin[b])

                def read(page: Any, which: int, t: Any, i: Any) -> Any:
                    return (k, v)[which][begin[b] + page * PAGE + t, h, i]

                with T.serial(0, start[b + 1] - start[b]) as i:
                    after = length - (start[b + 1] - start[b]) + i + 1
                    limit = T.bind(tirx.Select(causal > 0, after, length))
                    self._attend(build, q, start[b] + i, h, limit, read, outputs, scale)

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
        return (out, lse), scale[-1], mask

    def _attend(
        self,
        build: _Function,
        q: Any,
        row: Any,
        h: Any,
        limit: Any,
        read: Callable[[Any, int, Any, Any], Any],
        outputs: tuple[Any, Any],
        scale: Any,
    ) -> None:
        """Attend from one token to `limit` keys, with the query heads that share a head."""
        group, lanes, (out, lse) = self.heads // self.kv_heads, self._lanes, outputs
        chunks = self.size // lanes
        most, total, shrink = (build.local(count) for count in (group, group, 1))
        sums, score, part = build.local(group * self.size), build.local(PAGE), build.local(lanes)
        with T.serial(0, group) as g:
            T.buffer_store(most, _float(_LOWEST), [g])
            T.buffer_store(total, _float(0), [g])
            with T.vectorized(0, self.size) as i:
                T.buffer_store(sums, _float(0), [g * self.size + i])
        with T.serial(0, tirx.ceildiv(limit, PAGE)) as page, T.serial(0, group) as g:
            count = T.bind(tirx.min(PAGE, limit - page * PAGE))
            with T.vectorized(0, PAGE) as t:
                T.buffer_store(score, _float(_LOWEST), [t])
            with T.serial(0, count) as t:
                with T.vectorized(0, lanes) as i:
                    T.buffer_store(part, _float(0), [i])
                with T.unroll(0, chunks) as c, T.vectorized(0, lanes) as i:
                    product = q[row, h * group + g, c * lanes + i] * read(page, 0, t, c * lanes + i)
                    T.buffer_store(part, part[i] + product, [i])
                width = lanes
                while width % 2 == 0:  # add the halves of the vector
                    width //= 2
                    with T.vectorized(0, width) as i:
                        T.buffer_store(part, part[i] + part[width + i], [i])
                for i in range(1, width):
                    T.buffer_store(part, part[0] + part[i], [0])
                T.buffer_store(score, part[0] * scale, [t])
            T.buffer_store(shrink, most[g], [0])
            with T.serial(0, PAGE) as t:
                T.buffer_store(most, tirx.max(most[g], score[t]), [g])
            _exponential(score, lambda t: score[t] - most[g], PAGE)
            _exponential(shrink, lambda _: shrink[0] - most[g], 1)
            T.buffer_store(total, total[g] * shrink[0], [g])
            with T.serial(0, count) as t:
                T.buffer_store(total, total[g] + score[t], [g])
            with T.unroll(0, chunks) as c:
                with T.vectorized(0, lanes) as i:
                    before = sums[g * self.size + c * lanes + i]
                    T.buffer_store(part, before * shrink[0], [i])
                with T.serial(0, count) as t, T.vectorized(0, lanes) as i:
                    more = score[t] * read(page, 1, t, c * lanes + i)
                    T.buffer_store(part, part[i] + more, [i])
                with T.vectorized(0, lanes) as i:
                    T.buffer_store(sums, part[i], [g * self.size + c * lanes + i])
        with T.serial(0, group) as g:
            # Without any key, the result is zero, and the sum of exponentials too.
            whole = tirx.max(total[g], _float(_SMALLEST))
            with T.vectorized(0, self.size) as i:
                T.buffer_store(out, sums[g * self.size + i] / whole, [row, h * group + g, i])
            log = (most[g] + tirx.log(whole)) * _float(math.log2(math.e))
            T.buffer_store(lse, log, [row, h * group + g])


def _paged_reader(pages: Any, table: Any, first: Any, h: Any) -> Callable[..., Any]:
    """Return the function that reads a key (0) or value (1) of a sequence's page."""
    return lambda page, which, t, i: pages[table[first + page], which, h, t, i]


def _exponential(target: Any, value: Callable[[Any], Any], lanes: int) -> None:
    """Store the exponentials of a vector."""
    lane, buffers = tirx.Var("lane", "int32"), list[Any]()
    store = tirx.BufferStore(target, tirx.exp(value(lane)), [lane])
    made = stores(store, lanes, lane, buffers)
    for buffer in buffers:
        T.add_to_parent(tirx.AllocBuffer(buffer))
    for each in made:
        own = tirx.Var("lane", "int32")
        body = replaced(each, [(lane, own)])
        T.add_to_parent(tirx.For(own, 0, lanes, tirx.ForKind.VECTORIZED, body))


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

    def local(self, count: int) -> Any:
        """Allocate numbers that a thread has for itself."""
        return T.alloc_buffer((count,), "float32", scope="local", layout=None)


def _function(name: str, body: Callable[[_Function], None]) -> tirx.PrimFunc:
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr({SCHEDULED: True, "tirx.noalias": True})
            body(_Function())
        return builder.get()
