"""The checks of notebooks 00, 01, 02, 07, 08, 09 and 13: schedules, C++, commands and numbers."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import relax, s_tir, te

from ... import cli
from ...errors import ToolchainError
from ...support import toolchain
from ...support.wording import several
from ...tuning.search import grid
from . import judge
from .judge import Function, Wrong, call, exercise, require

EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC"
# The int8 results of numbers halfway between two integers, and of others.
ROUNDED = (
    {0.5: 0, 1.5: 2, 2.5: 2, -0.5: 0},
    {1.0: 1, 0.9: 1, -1.2: -1, 3.4: 3, 1000.0: 127},
)
LANES, REGISTERS = 8, 16  # what AVX2 has for float32
BAR = 0.7  # loads per multiply-add

LOOPS = ["i_0", "j_0", "k_0", "k_1", "i_1", "j_1"]
WITHOUT, SPLITS = 48, 8  # points of the space without a split of k, and ways to split it
RULE, EVEN = [100, 100, 200, 300, 300], [100, 100, 100, 200, 200]
# The truth, and whether the candidate wins; times of its rounds and of the rule's, in µs.
DUELS = [
    ("it is 5 percent slower, and lucky twice", False, [80, 105, 160, 315, 315], RULE),
    ("it is 10 percent faster, and unlucky once", True, [90, 90, 990, 180, 180], EVEN),
    ("it is 10 percent faster, and unlucky twice", True, [90, 90, 180, 900, 900], RULE),
    ("it is 1 percent faster, which is not enough", False, [99, 99, 99, 198, 198], EVEN),
    ("it is 3 percent faster, which is enough", True, [97, 97, 97, 194, 194], EVEN),
]

TYPES = {"relu": "bool", "scale": "double", "channels": "short"}
TYPES |= {"weights": "void*", "stride": "int", "pad": "char"}
# A share of the time, and the speedup of that share.
SHARES = [(0.5, 2), (0.9, 10), (0.9, math.inf), (0.25, 1), (0.1, 0.5)]
# Lengths of sequences, layers, key-value heads, numbers per head, and tokens per page.
CACHES = [([16], 1, 1, 32, 16), ([16, 32], 4, 2, 64, 16), ([1, 17, 40], 3, 1, 32, 16)]


@exercise
def check_wide_vectors(wide: s_tir.Schedule) -> str:
    """Check that `wide`, a schedule of the fused kernel, fills the registers of AVX-512."""
    lanes = int(wide.get(wide.get_loops(wide.get_sblock("compute"))[-1]).extent)
    bits = f"{lanes} lanes of float32 are {lanes * 32} bits, but a register has 512"
    require(lanes == 16, bits)
    filled = any("vfmadd" in x and "%zmm" in x for x in judge.assembly(wide.mod, "x86-64-v4"))
    require(filled, "no vfmadd uses a zmm register: is the loop over the lanes vectorized?")
    return "the sums fill zmm registers"


@exercise
def check_fusion(pipeline: Function, mod: tvm.IRModule, extra_floats: int) -> str:
    """Check `pipeline`, a pass that lowers the notebook's model `mod` without fusing.

    `extra_floats` is the number of values written in addition to those written with fusing.
    """
    modules = judge.changed(pipeline, mod, "pipeline"), relax.transform.LegalizeOps()(mod)
    texts = [found["main"].script() for found in modules]  # without the kernels themselves
    calls, operators = (text.count("R.call_tir(") for text in texts)
    kernels = several(calls, "kernel") if calls else "no kernels"
    why = f"the module calls {kernels}, but one per operator would be {operators}"
    require(calls == operators, f"{why}\n{judge.difference(*texts)}")
    right = judge.whole(extra_floats, "extra_floats") == (operators - 1) * 8 * 16
    require(right, f"{extra_floats} is not right: count the results of the product and of the sum")
    return "two intermediate results stay in registers in the fused, scheduled kernel"


@exercise
def check_round_to_even(edit: Function, work: Path) -> str:
    """Check `edit`, which changes the text of ``quantize.cc`` to round halves to even.

    `work` is the notebook's copy of the quantizer, built in its folder ``made``.
    """
    # Each attempt uses a new path, because a process loads a library of the same path only once.
    copy = Path(tempfile.mkdtemp(dir=work.parent)) / "even"
    shutil.copytree(work, copy, symlinks=True)
    source = copy / "quantize.cc"
    given = source.read_text(encoding="utf-8")
    text = call(edit, given)
    source.write_text(text, encoding="utf-8")
    log = toolchain.run("make BUILD=made", cwd=copy).output
    quantize = _exported(copy / "made/quantizer.so", "quantize")
    unchanged = "quantize.cc has not changed: " if text == given else ""
    for expected in ROUNDED:
        x, found = np.array([*expected], "float32"), np.zeros(len(expected), "int8")
        call(quantize, x, np.ones(1, "float32"), np.zeros(1, "int32"), 0, found, returns=False)
        wanted, became = [*expected.values()], f"{', '.join(map(str, expected))} become"
        why = f"{unchanged}{became} {found.tolist()}, expected {wanted}"
        require(found.tolist() == wanted, why)
    return f"make compiled {log.count(' -c ')} object"


@exercise
def check_dequantize(source: str, work: Path) -> str:
    """Check `source`, the text of an extension that is built beside the folder `work`."""
    require(EXPORT in source, f"dequantize.cc exports no function: {EXPORT} is missing")
    folder = Path(tempfile.mkdtemp(dir=work.parent))
    file = folder / "dequantize.cc"
    file.write_text(source, encoding="utf-8")
    built = toolchain.build_extension([file], name="second", folder=folder)
    # 127 minus the zero point does not fit in int8.
    q, out = np.array([-128, 0, 5, 127], "int8"), np.zeros(4, "float32")
    call(_exported(built, "dequantize"), q, 0.5, -3, out, returns=False)
    judge.same_values(out, np.array([-62.5, 1.5, 4.0, 65.0], "float32"), "out")
    return "exact"


def _exported(library: Path, name: str) -> Function:
    """Load the library compiled from a learner's source, and return a function of it."""
    import tvm_ffi  # noqa: F401  (the library needs its own)

    try:
        # By default, the loader looks up a missing function at its call, and ends the process.
        ctypes.CDLL(str(library), mode=os.RTLD_NOW)
    except OSError as error:
        missing = str(error).split(": ")[-1]
        raise Wrong(f"the library calls an undefined function: {missing}") from error
    exported: Function | None = getattr(toolchain.load_extension(library), name, None)
    if exported is None:
        raise Wrong(f"the library exports no function named {name}")
    return exported


@exercise
def check_guard(factor: int, *, length: int, within: tuple[int, int]) -> str:
    """Check `factor`, the inner length of a split of a loop over `length` elements without a guard.

    The two numbers `within` are its limits.
    """
    smallest, largest = within
    fits = smallest <= judge.whole(factor, "factor") <= largest
    require(fits, f"{factor} is outside of {smallest} to {largest}")
    a, b = (te.placeholder((length,), name=name) for name in "AB")
    c = te.compute(a.shape, lambda i: a[i] + b[i], name="C")
    sch = s_tir.Schedule(te.create_prim_func([a, b, c]))
    sch.split(sch.get_loops(sch.get_sblock("C"))[0], factors=[None, factor])
    blocks, left = divmod(length, factor)
    full = f"{blocks} blocks are full, and the last has {left} elements"
    for line in sch.mod["main"].script().splitlines():
        require("T.where" not in line, f"{factor} leaves a guard: {full}\n  {line.strip()}")
    return f"{blocks} blocks, and every block is full"


@exercise
def check_register_tile(tile: int, vectors: int, register_blocked: Function) -> str:
    """Check `tile` rows of `vectors` vectors of eight float32 for AVX2: few loads, and no spill.

    `register_blocked` is the notebook's schedule.
    """
    tile, vectors = judge.whole(tile, "my_tile"), judge.whole(vectors, "my_vectors")
    wanted = tile * vectors + vectors + 1
    sizes = f"{tile} x {vectors} sums, {several(vectors, 'vector')} of B and a number of A"
    registers = f"{sizes} need {wanted} registers, but there are {REGISTERS}"
    require(wanted <= 8 * REGISTERS, registers)  # a larger tile takes too long to compile
    sch = register_blocked(1024, LANES, vectors, tile, rows=8 * tile, depth=1)
    loop = _multiply_add_loop(judge.assembly(sch.mod, "x86-64-v3"))
    sums, spills = (sum(word in line for line in loop) for word in ("vfmadd", "(%rsp)"))
    loads = sum("(" in line for line in loop) - spills
    require(not spills, f"{spills} accesses to the stack: {registers}")
    reuse = "with more rows, each vector of B is used for more sums"
    if vectors == 1:
        reuse = "each number of A is used for one vector only"
    counts = f"{loads} loads for {sums} multiply-adds"
    require(loads < BAR * sums, f"{counts}, expected fewer than {BAR} per multiply-add: {reuse}")
    return f"{counts}, and all sums stay in registers"


def _multiply_add_loop(lines: list[str]) -> list[str]:
    """Return the instructions of the inner loop with the most multiply-adds for its length."""
    # From a label to a jump back to it, without a label between them.
    inner = r"^(\.LBB\w+):.*\n((?:(?!\.LBB).*\n)*?\tj\w+\s+)\1\b"
    loops = [body.split("\n") for _, body in re.findall(inner, "\n".join(lines), re.MULTILINE)]
    return max(loops, key=lambda loop: sum("vfmadd" in one for one in loop) / len(loop))


@exercise
def check_search_space(deeper: Function, product: tvm.IRModule) -> str:
    """Check `deeper`, which returns a schedule of `product` with sampled decisions.

    The tuner chooses how the loop over `k` is split as well.
    """
    sch = judge.of_type(call(deeper), s_tir.Schedule, "deeper()", "a schedule")
    names = [sch.get(loop).loop_var.name for loop in sch.get_loops(sch.get_sblock("C"))]
    require(names == LOOPS, f"the loops are {' '.join(names)}, expected {' '.join(LOOPS)}")
    count, wanted = grid.size(product, sch), WITHOUT * SPLITS
    why = "as many as before: the split of k is not the tuner's choice"
    if count != WITHOUT:
        why = f"but {SPLITS} splits of k would make {wanted} from {WITHOUT}: "
        why += "can its inner part have any size?"
    require(count == wanted, f"{count} points, {why}")
    return f"{count} points"


@exercise
def check_wins(wins: Function) -> str:
    """Check `wins`, which decides whether a candidate wins although other processes disturb it.

    It takes the times of the candidate and of the rule, round by round.
    """
    for what, wanted, candidate, rule in DUELS:
        verdict = "does not win" if wanted else "wins"
        times = f"\n  candidate {candidate}\n  rule      {rule}"
        # Copies, because the function may sort its lists in place.
        right = call(wins, list(candidate), list(rule)) == wanted
        require(right, f"the candidate {verdict}, but {what}{times}")
    return "other processes do not change the decision"


@exercise
def check_words(options: str, folder: Path, *, target: str, shapes: str, linker: str) -> str:
    """Check `options`, a piece of a command line that a shell splits into words.

    The shell runs in `folder`, with files named like pieces of the shapes. The command has to read
    `target`, `shapes`, and the linker's one option `linker`.
    """
    files = [f"{name}:{size}" for name in ("data", "mask") for size in ("8", "n")]
    for name in files:
        (folder / name).touch()
    line = rf"printf '%s\n' compile MODEL {options}"
    try:
        cut = toolchain.run(line, cwd=folder).output.splitlines()
    except ToolchainError as error:
        raise Wrong(f"the shell cannot read it: {judge.complaint(error)}") from error
    words, shown = set(cut), "\n  ".join(["", *cut[2:]])
    tied = f"--cross-compiler-options={linker}" in words
    for right, wrong in (
        (not words & set(files), "the shell replaced the brackets with names of files"),
        ({target, f"--target={target}"} & words, "the target is not one word"),
        ({shapes, f"--input-shapes={shapes}"} & words, "the shapes are not one word"),
        (tied, "the linker's option is not joined to --cross-compiler-options"),
    ):
        require(right, f"{wrong}:{shown}")
    args = cli.parser().parse_args(cut)
    return f"{args.target} {args.input_shapes} {args.cross_compiler_options}"


@exercise
def check_damaged_files(damaged_files: Function, package: Path) -> str:
    """Check `damaged_files`, which finds damaged packages by their checksums.

    It takes the content of files by their names and returns names; `package` is not damaged.
    """
    content = package.read_bytes()
    damaged = {"cut.so": content[:-1000]}
    for name, place in (("description.so", len(content) - 40), ("library.so", len(content) // 2)):
        turned = bytearray(content)
        turned[place] ^= 1
        damaged[name] = bytes(turned)
    found = sorted(call(damaged_files, {package.name: content, **damaged}))
    why = f"{', '.join(damaged)} are damaged, but damaged_files returns {found}"
    require(found == sorted(damaged), why)
    return "it finds all damaged files, and no others"


@exercise
def check_holes(fields: str, *, size: int) -> str:
    """Check `fields`, the declarations of a C++ struct of `size` bytes without holes."""
    for name in TYPES:
        require(re.search(rf"\b{name}\b", fields), f"the field {name} is missing")
    # The address of a member has its type; a bit field has no address.
    same = " && ".join(
        f"is_same_v<decltype(&Layer::{name}), {kind} Layer::*>" for name, kind in TYPES.items()
    )
    source = (
        "#include <cstdio>\n#include <type_traits>\nusing std::is_same_v;\n"
        f"struct Layer {{\n{fields}\n}};\n"  # a directive has a line of its own
        f"int main() {{ constexpr bool same = {same}, aligned = alignof(Layer) == alignof(double);"
        'std::printf("%d %d %zu", same, aligned, sizeof(Layer)); }\n'
    )
    with tempfile.TemporaryDirectory() as place:
        Path(place, "layer.cc").write_text(source, encoding="utf-8")
        toolchain.run("g++ -std=c++17 -fmax-errors=1 layer.cc -o layer", cwd=place)
        typed, aligned, found = map(int, toolchain.run("./layer", cwd=place).output.split())
    require(typed, "the type of a field has changed")
    require(aligned, "a field is not aligned: the struct is packed")
    require(found == size, f"{found} bytes, of which {found - size} are holes")
    return f"{size} bytes"


@exercise
def check_gain(gain: Function) -> str:
    """Check `gain`, which returns the speedup of the whole program if one function gets faster.

    It takes the function's share of the time, and the speedup of the function.
    """
    for share, times in SHARES:
        stay, become = 1 - share, share / times
        found, wanted = call(gain, share, times), 1 / (stay + become)
        parts = f"of 1 second, {stay:g} stay and {share:g} become {become:g}"
        why = f"gain({share}, {times}) is {found:.6g}, expected {wanted:.6g}: {parts}"
        require(math.isclose(found, wanted, rel_tol=1e-6), why)  # float32 is good enough
    return "the speedup is right for every share"


@exercise
def check_cache_bytes(cache_bytes: Function) -> str:
    """Check `cache_bytes`, which returns the bytes of the pages that some sequences need.

    It takes the sequences' lengths, the number of layers, the number of key-value heads, the
    numbers per head, and the tokens per page. Keys and values are float32.
    """
    for lengths, *sizes, page in CACHES:
        count = sum(math.ceil(length / page) for length in lengths)
        wanted = 2 * 4 * math.prod(sizes) * count * page
        found = judge.whole(call(cache_bytes, lengths, *sizes, page), "the number of bytes")
        why = f"for sequences of {lengths} tokens in pages of {page}, cache_bytes returns {found}"
        require(found == wanted, f"{why}, expected {wanted}: {several(count, 'page')}")
    return "the pages of keys and values are counted"


@exercise
def check_attend_pages(attend_pages: Function) -> str:
    """Check `attend_pages`, the attention of a query to the keys and values in some pages.

    It takes the query, all pages of keys and of values, the numbers of the sequence's pages in
    order, and the length of the sequence.
    """
    random = np.random.default_rng(0)
    query = random.standard_normal(32)
    keys, values = random.standard_normal((2, 8, 16, 32))
    for table, length in (([5], 16), ([6, 1], 32), ([3, 7, 2], 37), ([4, 0], 17)):
        found = call(attend_pages, query, keys.copy(), values.copy(), table, length)
        k, v = (one[table].reshape(-1, 32)[:length] for one in (keys, values))
        weights = np.exp(k @ query / math.sqrt(32))
        wanted = weights @ v / weights.sum()
        name = f"the result for {length} tokens in the pages {table}"
        judge.same_values(found, wanted, name, tolerance=1e-4)
    return "the result is right for full pages, and for pages that are partly empty"
