"""How much is read of what a function computes on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import tvm_ffi
from tvm import s_tir, sym, tirx

__all__ = ["read_shares"]

_Box = list[tuple[int, int]]


def read_shares(func: tirx.PrimFunc) -> Mapping[Any, Fraction]:
    """Find the buffers that are filled up, and how much of them is of use."""
    boxes: dict[Any, _Box] = {}
    analyzer = sym.Analyzer()

    def visit(block: Any) -> None:
        for var in block.iter_vars:
            analyzer.bind(var.var, var.dom, allow_override=True)
        own = {written.source for written in block.writes}
        for read in block.reads:
            if read.source not in own:  # sums read what they add to
                box = [_span(analyzer, each) for each in read.region]
                boxes[read.source] = _around(boxes.get(read.source, box), box)

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, visit))
    given = set(func.params)
    shares = {
        buffer: _share(box, buffer.shape) for buffer, box in boxes.items() if buffer not in given
    }
    return {buffer: share for buffer, share in shares.items() if share < 1}


def _span(analyzer: Any, each: Any) -> tuple[int, int]:
    """Bound the indices of one axis: the first, and the one after the last."""
    first = analyzer.const_int_bound(each.min)
    last = analyzer.const_int_bound(each.min + each.extent)
    return int(first.min_value), int(last.max_value)


def _around(one: _Box, other: _Box) -> _Box:
    return [(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)]


def _share(box: _Box, shape: Any) -> Fraction:
    """Divide a box by the whole."""
    if not all(isinstance(size, tirx.IntImm) and size.value > 0 for size in shape):
        return Fraction(1)
    sizes = [int(size.value) for size in shape]
    inside = [
        max(0, min(end, size) - max(first, 0))
        for (first, end), size in zip(box, sizes, strict=True)
    ]
    return Fraction(math.prod(inside), math.prod(sizes))
