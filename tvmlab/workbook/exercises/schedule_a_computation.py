"""The checks of notebook 02, Schedule a computation."""

from __future__ import annotations

import re
from collections.abc import Callable

from tvm import s_tir, te

from ...support.wording import several
from .judge import Wrong, assembly, exercise, whole

SIZE = 1024  # rows and columns of the matrices
LANES, REGISTERS = 8, 16  # what AVX2 has for float32
HOPELESS = 8 * REGISTERS  # a tile that needs more registers takes too long to compile
BAR = 0.7  # loads for each multiply-add


@exercise
def check_guard(factor: int, *, length: int, within: tuple[int, int]) -> str:
    """Check a factor that splits a loop over a vector without a guard.

    Parameters
    ----------
    factor : int
        The length of the inner loop.
    length : int
        Elements of the vector.
    within : tuple of int
        The smallest and the largest factor to choose from.
    """
    smallest, largest = within
    if not smallest <= whole(factor, "factor") <= largest:
        raise Wrong(f"{factor} is outside of {smallest} to {largest}")
    a, b = (te.placeholder((length,), name=name) for name in "AB")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    sch = s_tir.Schedule(te.create_prim_func([a, b, c]))
    sch.split(sch.get_loops(sch.get_sblock("C"))[0], factors=[None, factor])
    for line in sch.mod["main"].script().splitlines():
        if "T.where" in line:
            blocks, left = divmod(length, factor)
            raise Wrong(
                f"{factor} leaves a guard: {blocks} blocks are full, and the last has {left} "
                f"elements\n  {line.strip()}"
            )
    return f"{length // factor} blocks, and every block is full"


@exercise
def check_register_tile(
    tile: int, vectors: int, register_blocked: Callable[..., s_tir.Schedule]
) -> str:
    """Check a register tile for a processor with AVX2: few loads, and no spill.

    Parameters
    ----------
    tile : int
        Rows of the tile.
    vectors : int
        Vectors in a row, of eight float32 each.
    register_blocked : callable
        The notebook's schedule: takes the matrices' size, the lanes, `vectors`, `tile`, and by name
        `rows` and `depth` of the block in the cache; returns a schedule.
    """
    tile, vectors = whole(tile, "my_tile"), whole(vectors, "my_vectors")
    wanted = tile * vectors + vectors + 1
    registers = (
        f"{tile} x {vectors} sums, {several(vectors, 'vector')} of B and a number of A want "
        f"{wanted} registers, and there are {REGISTERS}"
    )
    if wanted > HOPELESS:
        raise Wrong(registers)
    sch = register_blocked(SIZE, LANES, vectors, tile, rows=8 * tile, depth=1)
    loop = _multiply_add_loop(assembly(sch.mod, "x86-64-v3"))
    sums, spills = (sum(word in line for line in loop) for word in ("vfmadd", "(%rsp)"))
    loads = sum("(" in line for line in loop) - spills
    if spills:
        raise Wrong(f"{spills} accesses to the stack: {registers}")
    if loads >= BAR * sums:
        reuse = "with more rows, a vector of B would serve more sums"
        if vectors == 1:
            reuse = "a number of A serves one vector only"
        raise Wrong(
            f"{loads} loads for {sums} multiply-adds, expected fewer than {BAR} each: {reuse}"
        )
    return f"{loads} loads for {sums} multiply-adds, and all sums stay in registers"


def _multiply_add_loop(lines: list[str]) -> list[str]:
    """Return the instructions of the loop with the most multiply-adds for its length."""
    start: dict[str, int] = {}
    loops: list[list[str]] = []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.LBB\w+):", line):
            start[label[1]] = number
        if (jump := re.match(r"\tj\w+\s+(\.LBB\w+)", line)) and jump[1] in start:
            loops.append([one.strip() for one in lines[start[jump[1]] + 1 : number + 1]])
    return max(loops, key=lambda loop: sum("vfmadd" in one for one in loop) / len(loop))
