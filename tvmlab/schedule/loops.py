"""Helpers that the rules share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm import s_tir, tirx
from tvm_ffi import structural_equal

from .compute import DOT, TILE
from .machine import Machine

#: Numbers written below which starting the threads costs more than it saves.
PARALLEL = 16_384
#: The annotation of a parallel loop of symbolic size: how often a block must run, at least.
LEAST = "tvmlab.least"
#: The attribute of a function that is a reshape. Alone, it is a view in upstream's pipeline, which
#: does not recognize its loops after a split.
VIEW = "tvmlab.view"
#: Vectors that are summed in parallel, so that a sum need not wait for the previous one.
VECTORS = 4


def blocks(sch: s_tir.Schedule) -> list[Any]:
    """List the blocks of a function in order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def find(sch: s_tir.Schedule, every: Sequence[Any], name: str) -> int | None:
    """Return the index of this package's block of this name, which carries the tiling."""
    for place, block in enumerate(every):
        found = sch.get(block)
        if found.name_hint == name and TILE in found.annotations:
            return place
    return None


def extent(sch: s_tir.Schedule, loop: Any) -> Any:
    """Return a loop's extent: an int if it is known, else its expression."""
    value = sch.get(loop).extent
    return int(value) if isinstance(value, int | tirx.IntImm) else value


def divisor(number: int, most: int) -> int:
    """Return the greatest divisor of a number that is at most `most`, and at least 1."""
    return max(d for d in range(1, max(1, min(number, most)) + 1) if number % d == 0)


def _of_kind(sch: s_tir.Schedule, block: Any, kind: int) -> list[Any]:
    found = zip(sch.get(block).iter_vars, sch.get_loops(block), strict=True)
    return [loop for var, loop in found if var.iter_type == kind]


def spatial(sch: s_tir.Schedule, block: Any) -> list[Any]:
    """List the spatial loops of a fresh block."""
    return _of_kind(sch, block, tirx.IterVar.DataPar)


def reduction(sch: s_tir.Schedule, block: Any) -> list[Any]:
    """List the reduction loops of a fresh block."""
    return _of_kind(sch, block, tirx.IterVar.CommReduce)


def start_sums(sch: s_tir.Schedule) -> None:
    """Initialize sums of an open number of terms before their loops, which may not run at all.

    TVM would initialize them in the first iteration. Blocks that share loops are left alone.
    """
    for block in blocks(sch):
        fresh = len(sch.get_loops(block)) == len(sch.get(block).iter_vars)
        reduced = reduction(sch, block) if fresh and sch.get(block).init is not None else []
        if any(not isinstance(extent(sch, loop), int) for loop in reduced):
            sch.decompose_reduction(block, reduced[0])


def work(sch: s_tir.Schedule, block: Any) -> int | None:
    """Count how often a block runs; None if a size is symbolic."""
    counts = [extent(sch, loop) for loop in sch.get_loops(block)]
    return math.prod(counts) if all(isinstance(n, int) for n in counts) else None


def parallel(sch: s_tir.Schedule, loop: Any, many: int | None, least: int = PARALLEL) -> None:
    """Run a loop on all threads if a block runs often enough; None decides when the model runs."""
    if many is None or many >= least:
        sch.parallel(loop)
        if many is None:
            sch.annotate(loop, LEAST, least)


def inline_all(sch: s_tir.Schedule, after: Sequence[Any]) -> Any:
    """Inline element-wise blocks into the last of them, and return that block."""
    for block in after[:-1]:
        sch.compute_inline(block)
    return after[-1]


def epilogue(sch: s_tir.Schedule, after: Sequence[Any]) -> tuple[Any, Any]:
    """Inline the blocks after a sum into two: blocks with one number per sum, and all others."""
    shape = [sch.get(loop).extent for loop in spatial(sch, after[0])]
    near = 1
    for follower in after[1:]:
        if not structural_equal([sch.get(loop).extent for loop in spatial(sch, follower)], shape):
            break
        near += 1
    far = after[near:]
    return inline_all(sch, after[:near]), inline_all(sch, far) if far else None


def written(sch: s_tir.Schedule, block: Any) -> str:
    """Return the name of the buffer that a block writes."""
    return str(sch.get(block).writes[0].source.name)


def inline_producers(sch: s_tir.Schedule, before: Sequence[Any], block: Any) -> list[Any]:
    """Inline the producers that a block does not read itself; return those that it reads."""
    read = [str(region.source.name) for region in sch.get(block).reads]
    sources = []
    for producer in before:
        name = written(sch, producer)
        if name not in read:
            sch.compute_inline(producer)
        elif len(sch.get_consumers(producer)) == 1:
            sources.append(producer)
        else:  # a block after `block` reads it as well, and must not wait for the copy
            sources.append(sch.cache_read(block, read.index(name), "global", [block]))
            sch.compute_inline(producer)
    return sources


def whole_groups(sch: s_tir.Schedule, block: Any, store: Any, channels: int) -> bool:
    """Return whether the tiles of a contraction divide the channels of a group."""
    # A dot-product instruction sums over an axis of its own.
    if len(reduction(sch, block)) - (DOT in sch.get(block).annotations) == 1:
        return True  # a matrix product
    groups = extent(sch, spatial(sch, block)[1])
    each = extent(sch, sch.get_loops(store)[-1]) // groups
    return bool(groups == 1 or each % channels == 0)


def vectorize_last(sch: s_tir.Schedule, block: Any, lanes: int) -> None:
    """Vectorize a block's last loop if the lanes divide its size, or can divide a symbolic size."""
    loop = sch.get_loops(block)[-1]
    size = extent(sch, loop)
    if not isinstance(size, int):
        if lanes > 1:  # `tails.split_vectors` computes the numbers that fill no vector
            sch.vectorize(sch.split(loop, [None, lanes])[1])
        return
    if size % lanes or size < 2:
        return
    if size > lanes:
        vectors, loop = sch.split(loop, [None, lanes])
        if size <= 8 * lanes:
            sch.unroll(vectors)
    sch.vectorize(loop)


def vectorize_ragged(sch: s_tir.Schedule, block: Any, lanes: int) -> None:
    """Vectorize a block's last loop, except the numbers of its end that fill no vector.

    The block is scheduled otherwise before, because it becomes two.
    """
    loop = sch.get_loops(block)[-1]
    size = extent(sch, loop)
    if not isinstance(size, int) or size <= lanes or size % lanes == 0:
        vectorize_last(sch, block, lanes)
        return
    whole, _ = sch.loop_partition(loop, [size - size % lanes, None])
    _, lane = sch.split(whole, [None, lanes])
    sch.vectorize(lane)


def vector_sums(sch: s_tir.Schedule, last: Any, reduced: Sequence[Any], lanes: int) -> Any:
    """Vectorize the last spatial loop of a sum, with a few vectors in registers; return the rest.

    The lanes divide the loop.
    """
    vectors = divisor(extent(sch, last) // lanes, VECTORS)
    outer, vector, lane = sch.split(last, [None, vectors, lanes])
    sch.reorder(outer, *reduced, vector, lane)
    sch.unroll(vector)
    sch.vectorize(lane)
    return outer


def elementwise(sch: s_tir.Schedule, block: Any, machine: Machine) -> None:
    """Schedule an element-wise block: threads outside, vectors inside."""
    lanes = machine.lanes(str(sch.get(block).writes[0].source.dtype))
    many = work(sch, block)
    every = sch.get_loops(block)
    if len(every) > 1:
        outer = sch.fuse(*every[:-1])
    elif every:
        size = extent(sch, every[0])
        if not isinstance(size, int) or size % (lanes * machine.threads):
            return
        outer, _ = sch.split(every[0], [machine.threads, None])
    else:
        return
    vectorize_last(sch, block, lanes)
    parallel(sch, outer, many)


def prepare(sch: s_tir.Schedule, block: Any, machine: Machine, *, parallel: bool) -> None:
    """Schedule a block that pads or copies NHWC pixels for a sum that reads them."""
    dtype = str(sch.get(block).writes[0].source.dtype)
    lanes = machine.lanes(dtype)
    sch.storage_align(block, 0, -2, 2 * lanes, lanes)
    if parallel:
        elementwise(sch, block, machine)
    else:
        vectorize_last(sch, block, lanes)
