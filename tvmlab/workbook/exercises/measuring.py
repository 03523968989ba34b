"""The checks of notebooks 07 Tune a model, 08 Deploy and 09 Find where the time goes."""

from __future__ import annotations

import io
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import s_tir

from ... import cli
from ...errors import ToolchainError
from ...support import toolchain
from ...support.wording import several
from ...tuning.search import grid
from .judge import Wrong, call, complaint, exercise, of_type, whole

LOOPS = ["i_0", "j_0", "k_0", "k_1", "i_1", "j_1"]
WITHOUT, SPLITS = 48, 8  # points of the space without a split of k, and ways to split it

RULE, EVEN = [100, 100, 200, 300, 300], [100, 100, 100, 200, 200]
# What is true, and whether the candidate wins; the times of its rounds and of the rule's, in µs.
DUELS = [
    ("it is 5 percent slower, and lucky twice", False, [80, 105, 160, 315, 315], RULE),
    ("it is 10 percent faster, and unlucky once", True, [90, 90, 990, 180, 180], EVEN),
    ("it is 10 percent faster, and unlucky twice", True, [90, 90, 180, 900, 900], RULE),
    ("it is 1 percent faster, which is not enough", False, [99, 99, 99, 198, 198], EVEN),
    ("it is 3 percent faster, which is enough", True, [97, 97, 97, 194, 194], EVEN),
]
# Processes, seconds to build, seconds to run.
POOLS = [(2, 1, 4), (2, 1, 1), (1, 4, 2), (4, 2, 3), (2, 4, 3), (1, 4, 5), (4, 4, 1)]

MAPS = """\
55d0c0000000-55d0c0004000 r--p 00000000 fe:00 11  /bin/deploy
55d0c0004000-55d0c0030000 r-xp 00004000 fe:00 11  /bin/deploy
7f0010000000-7f0010021000 rw-p 00000000 00:00 0
7f17173db000-7f17173f2000 r-xp 00001000 fe:00 23  /dev/shm/a b/lib.so (deleted)"""
LIBRARY = "/dev/shm/a b/lib.so (deleted)"
PLACES: dict[int, tuple[tuple[str, int] | None, str]] = {
    0x55D0C0004010: (("/bin/deploy", 0x4010), "the second line begins 0x4000 into its file"),
    0x55D0C0003FFF: (("/bin/deploy", 0x3FFF), "the first line has it, code or not"),
    0x7F17173DB000: ((LIBRARY, 0x1000), "a file's name may have spaces"),
    0x7F17173F1FFF: ((LIBRARY, 0x17FFF), "it is the last address of its line"),
    0x7F17173F2000: (None, "the end of a line does not belong to it"),
    0x7F0010000008: (None, "no file is behind it"),
    0x10: (None, "nothing is mapped there"),
}
TYPES = {"relu": "bool", "scale": "double", "channels": "short"}
TYPES |= {"weights": "void*", "stride": "int", "pad": "char"}
# A share of the time, and how many times as fast that is made.
SHARES = [(0.5, 2), (0.9, 10), (0.9, math.inf), (0.25, 1), (0.1, 0.5)]
CLOSE = 1e-6  # a part of the gain: what float32 has to spare


@exercise
def check_search_space(deeper: Callable[[], s_tir.Schedule], product: tvm.IRModule) -> str:
    """Check a search space in which the tuner also splits the loop over `k`.

    `deeper` returns a schedule of the notebook's `product` of two matrices, with sampled decisions.
    """
    sch = of_type(call(deeper), s_tir.Schedule, "deeper()", "a schedule")
    names = [sch.get(loop).loop_var.name for loop in sch.get_loops(sch.get_sblock("C"))]
    if names != LOOPS:
        raise Wrong(f"the loops are {' '.join(names)}, expected {' '.join(LOOPS)}")
    count = grid.size(product, sch)
    if count == WITHOUT:
        raise Wrong(f"{count} points, as many as before: the split of k is not the tuner's choice")
    if count != WITHOUT * SPLITS:
        raise Wrong(
            f"{count} points, and {SPLITS} splits of k would make {WITHOUT * SPLITS} of {WITHOUT}: "
            "may its inner part have any size?"
        )
    return f"{count} points"


@exercise
def check_wins(wins: Callable[[Sequence[int], Sequence[int]], bool]) -> str:
    """Check a comparison in which another process disturbs some rounds.

    `wins` takes the times of the candidate and of the rule, round by round, and returns whether the
    candidate wins.
    """
    for what, wanted, candidate, rule in DUELS:
        # Copies, because the function may sort its lists in place.
        if call(wins, list(candidate), list(rule)) != wanted:
            verdict = "does not win" if wanted else "wins"
            raise Wrong(
                f"the candidate {verdict}, but {what}\n  candidate {candidate}\n  rule      {rule}"
            )
    return "no neighbour decides"


@exercise
def check_servers(enough: Callable[[int, float, float], int]) -> str:
    """Check how many servers keep the compilers busy.

    `enough` takes the number of processes that compile, the seconds for one kernel to compile, and
    those to measure it, and returns the number of servers.
    """
    for processes, build, run in POOLS:
        wanted = math.ceil(processes * run / build)
        name = f"enough({processes}, {build}, {run})"
        found = whole(call(enough, processes, build, run), name)
        if found < wanted:
            raise Wrong(
                f"{name} gives {found}, and compilers wait: while a server measures for {run} s, "
                f"they make {processes * run / build:g} kernels"
            )
        if found > wanted:
            raise Wrong(f"{name} gives {found}, and {wanted} would do: a server is spare")
    return "no compiler waits, no server is spare"


@exercise
def check_words(options: str, folder: Path, *, target: str, shapes: str, linker: str) -> str:
    """Check a piece of a command line that a shell cuts into words.

    `options` is the piece. The shell runs in `folder`, with files whose names are like pieces of
    the shapes. The command has to read `target`, `shapes`, and the linker's one option `linker`.
    """
    files = [f"{name}:{size}" for name in ("data", "mask") for size in ("8", "n")]
    for name in files:
        (folder / name).touch()
    line = rf"printf '%s\n' compile MODEL {options}"
    try:
        cut = toolchain.run(line, cwd=folder).output.splitlines()
    except ToolchainError as error:
        raise Wrong(f"the shell cannot read it: {complaint(error)}") from error
    words, shown = set(cut), "\n  ".join(["", *cut[2:]])
    if words & set(files):
        raise Wrong(f"the shell put names of files in the place of brackets:{shown}")
    if not {target, f"--target={target}"} & words:
        raise Wrong(f"the target is not one word:{shown}")
    if not {shapes, f"--input-shapes={shapes}"} & words:
        raise Wrong(f"the shapes are not one word:{shown}")
    if f"--cross-compiler-options={linker}" not in words:
        raise Wrong(f"the linker's option is not tied to --cross-compiler-options:{shown}")
    args = cli.parser().parse_args(cut)
    return f"{args.target} {args.input_shapes} {args.cross_compiler_options}"


@exercise
def check_damaged_files(
    damaged_files: Callable[[Mapping[str, bytes]], Iterable[str]], package: Path
) -> str:
    """Check a function that finds damaged packages by their checksums.

    `damaged_files` takes the content of files by their names and returns the names of damaged ones;
    `package` is not damaged.
    """
    content = package.read_bytes()
    damaged = {"cut.so": content[:-1000]}
    for name, place in (("description", len(content) - 40), ("library", len(content) // 2)):
        turned = bytearray(content)
        turned[place] ^= 1
        damaged[f"{name}.so"] = bytes(turned)
    found = sorted(call(damaged_files, {package.name: content, **damaged}))
    if found != sorted(damaged):
        raise Wrong(f"{', '.join(damaged)} are damaged, and damaged_files finds {found}")
    return "it finds each damaged file, and no other"


@exercise
def check_data_begin(
    data_begin: Callable[[bytes], int], *, files: Iterable[tuple[int, int]]
) -> str:
    """Check a function that finds where the data of an ``.npy`` file begin.

    `data_begin` takes the bytes of a file and returns the place of the first one of the data;
    `files` has the format's version and the number of named fields of each file, which make a
    header long.
    """
    for version, fields in files:
        array = np.zeros(3, [(f"field {place}", "f4") for place in range(fields)])
        file = io.BytesIO()
        np.lib.format.write_array(file, array, version=(version, 0))
        wanted = len(file.getvalue()) - array.nbytes
        name = f"data_begin for version {version} and {several(fields, 'named field')}"
        found = whole(call(data_begin, file.getvalue()), name)
        if found != wanted:
            raise Wrong(f"{name} gives {found}, expected {wanted}")
    return "wherever the header ends"


@exercise
def check_whose(whose: Callable[[int, str], tuple[str, int] | None]) -> str:
    """Check a function that finds the file behind an address.

    `whose` takes an address and the text of ``/proc/PID/maps``, and returns the file and the place
    in it, or None.
    """
    for address, (wanted, why) in PLACES.items():
        found = call(whose, address, MAPS, returns=False)
        if (tuple(found) if found else None) != wanted:
            right, given = (f"({at[0]!r}, {at[1]:#x})" if at else "None" for at in (wanted, found))
            lines = MAPS.replace("\n", "\n  ")
            raise Wrong(f"{address:#x} is {right}, and whose gives {given}: {why}\n  {lines}")
    return "every address has its file"


@exercise
def check_holes(fields: str, *, size: int) -> str:
    """Check the fields of a C++ struct, ordered so that it has no holes.

    `fields` are the declarations, as they stand between the braces, and `size` is the bytes of the
    fields, and so of the smallest struct.
    """
    for name in TYPES:
        if not re.search(rf"\b{name}\b", fields):
            raise Wrong(f"the field {name} is missing")
    # The address of a member tells its type; a bit field has no address.
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
    if not typed:
        raise Wrong("a field has another type than it had")
    if not aligned:
        raise Wrong("a field lies where the processor does not like it: the struct is packed")
    if found != size:
        raise Wrong(f"{found} bytes, of which {found - size} are holes")
    return f"{size} bytes"


@exercise
def check_gain(gain: Callable[[float, float], float]) -> str:
    """Check how much a faster function gains for the whole.

    `gain` takes the share of the time that a function takes, and how many times as fast it is made,
    and returns how many times as fast the whole is then.
    """
    for share, times in SHARES:
        wanted = 1 / (1 - share + share / times)
        found = call(gain, share, times)
        if not math.isclose(found, wanted, rel_tol=CLOSE):
            raise Wrong(
                f"gain({share}, {times}) is {found:.6g}, expected {wanted:.6g}: of 1 second "
                f"{1 - share:g} stay, and {share:g} become {share / times:g}"
            )
    return "the promise holds"
