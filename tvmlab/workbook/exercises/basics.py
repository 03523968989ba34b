"""The checks of notebooks 00 Start here, 01 Build TVM and 02 Schedule a computation."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax, s_tir, te

from ...support import toolchain
from ...support.wording import several
from .judge import Wrong, assembly, call, changed, difference, exercise, same_values, whole

RESULT = 8 * 16  # numbers in the result of each operator of notebook 00
EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC"
# The int8 results of numbers halfway between two integers, and of others.
HALVES = {0.5: 0, 1.5: 2, 2.5: 2, -0.5: 0}
OTHERS = {1.0: 1, 0.9: 1, -1.2: -1, 3.4: 3, 1000.0: 127}
SIZE = 1024  # rows and columns of the matrices of notebook 02
LANES, REGISTERS = 8, 16  # what AVX2 has for float32
HOPELESS = 8 * REGISTERS  # a tile that needs more registers takes too long to compile
BAR = 0.7  # loads for each multiply-add


@exercise
def check_wide_vectors(wide: s_tir.Schedule) -> str:
    """Check a schedule whose vectors fill the registers of AVX-512.

    `wide` is the notebook's schedule of the fused kernel, with another number of lanes.
    """
    lanes = int(wide.get(wide.get_loops(wide.get_sblock("compute"))[-1]).extent)
    if lanes != 16:
        raise Wrong(f"{lanes} lanes of float32 are {lanes * 32} bits, and a register has 512")
    code = assembly(wide.mod, "x86-64-v4")
    if not any("vfmadd" in line and "%zmm" in line for line in code):
        raise Wrong("no vfmadd uses a zmm register: is the loop over the lanes vectorized?")
    return "the sums fill zmm registers"


@exercise
def check_fusion(
    pipeline: Callable[[tvm.IRModule], tvm.IRModule], mod: tvm.IRModule, extra_floats: int
) -> str:
    """Check a pipeline that lowers without fusing, and what fusing saves.

    `pipeline` is a pass, from a module to a new one; `mod` the notebook's model, a product, a sum
    and a ReLU with 8 x 16 results each; `extra_floats` how many more numbers are written without
    fusing.
    """
    modules = changed(pipeline, mod, "pipeline"), relax.transform.LegalizeOps()(mod)
    texts = [found["main"].script() for found in modules]  # without the kernels themselves
    calls, operators = (text.count("R.call_tir(") for text in texts)
    if calls != operators:
        raise Wrong(
            f"the module calls {several(calls, 'kernel') if calls else 'no kernels'}, one an "
            f"operator would be {operators}\n{difference(*texts)}"
        )
    if whole(extra_floats, "extra_floats") != (operators - 1) * RESULT:
        raise Wrong(f"{extra_floats}: count the results of the product and of the sum")
    return "two intermediate results stay in registers in the fused, scheduled kernel"


@exercise
def check_round_to_even(edit: Callable[[str], str], work: Path) -> str:
    """Check a change of the quantizer's source: halves go to the even neighbour.

    `edit` takes the text of ``quantize.cc`` and returns the new one; `work` is the notebook's copy
    of the quantizer, built in its folder ``made``.
    """
    # Each try has a new path, because a library that is loaded is not loaded again.
    copy = Path(tempfile.mkdtemp(dir=work.parent)) / "even"
    shutil.copytree(work, copy, symlinks=True)
    source = copy / "quantize.cc"
    given = source.read_text(encoding="utf-8")
    text = call(edit, given)
    source.write_text(text, encoding="utf-8")
    log = toolchain.run("make BUILD=made", cwd=copy).output
    quantize = _exported(copy / "made/quantizer.so", "quantize")
    unchanged = "quantize.cc has not changed, and " if text == given else ""
    for expected in (HALVES, OTHERS):
        x, found = np.array([*expected], "float32"), np.zeros(len(expected), "int8")
        call(quantize, x, np.ones(1, "float32"), np.zeros(1, "int32"), 0, found, returns=False)
        if found.tolist() != (wanted := [*expected.values()]):
            shown = ", ".join(map(str, expected))
            raise Wrong(f"{unchanged}{shown} become {found.tolist()}, expected {wanted}")
    return f"make compiled {log.count(' -c ')} object"


@exercise
def check_dequantize(source: str, work: Path) -> str:
    """Check the source of an extension that exports `dequantize`.

    `source` is the text of ``dequantize.cc``; the extension is built beside the folder `work`.
    """
    if EXPORT not in source:
        raise Wrong(f"dequantize.cc exports nothing: there is no {EXPORT}")
    folder = Path(tempfile.mkdtemp(dir=work.parent))
    file = folder / "dequantize.cc"
    file.write_text(source, encoding="utf-8")
    built = toolchain.build_extension([file], name="second", folder=folder)
    # 127 less the zero point does not fit an int8.
    q, out = np.array([-128, 0, 5, 127], "int8"), np.zeros(4, "float32")
    call(_exported(built, "dequantize"), q, 0.5, -3, out, returns=False)
    same_values(out, np.array([-62.5, 1.5, 4.0, 65.0], "float32"), "out")
    return "exact"


def _exported(library: Path, name: str) -> Callable[..., Any]:
    """Load the library that a learner's source has become, and take a function from it."""
    import tvm_ffi  # noqa: F401  (the library needs its own)

    try:
        # Otherwise the loader looks for a missing function at its call, and ends the process.
        ctypes.CDLL(str(library), mode=os.RTLD_NOW)
    except OSError as error:
        missing = str(error).split(": ")[-1]
        raise Wrong(f"the library calls what is not there: {missing}") from error
    exported: Callable[..., Any] | None = getattr(toolchain.load_extension(library), name, None)
    if exported is None:
        raise Wrong(f"the library exports nothing by the name {name}")
    return exported


@exercise
def check_guard(factor: int, *, length: int, within: tuple[int, int]) -> str:
    """Check a factor that splits a loop over a vector without a guard.

    `factor` is the length of the inner loop, between the two numbers `within`; `length` the number
    of elements of the vector.
    """
    smallest, largest = within
    if not smallest <= whole(factor, "factor") <= largest:
        raise Wrong(f"{factor} is outside of {smallest} to {largest}")
    a, b = (te.placeholder((length,), name=name) for name in "AB")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    sch = s_tir.Schedule(te.create_prim_func([a, b, c]))
    sch.split(sch.get_loops(sch.get_sblock("C"))[0], factors=[None, factor])
    blocks, left = divmod(length, factor)
    for line in sch.mod["main"].script().splitlines():
        if "T.where" in line:
            raise Wrong(
                f"{factor} leaves a guard: {blocks} blocks are full, and the last has {left} "
                f"elements\n  {line.strip()}"
            )
    return f"{blocks} blocks, and every block is full"


@exercise
def check_register_tile(
    tile: int, vectors: int, register_blocked: Callable[..., s_tir.Schedule]
) -> str:
    """Check a register tile for a processor with AVX2: few loads, and no spill.

    `tile` is the number of rows, `vectors` that of vectors of eight float32 in a row, and
    `register_blocked` the notebook's schedule: it takes the size of the matrices, the lanes,
    `vectors`, `tile`, and by name `rows` and `depth` of the block in the cache.
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
