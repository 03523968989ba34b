"""The checks of notebook 09, Find where the time goes."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from ...support import toolchain
from .judge import Wrong, call, exercise

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
TYPES = {
    "relu": "bool",
    "scale": "double",
    "channels": "short",
    "weights": "void*",
    "stride": "int",
    "pad": "char",
}
# A share of the time, and how many times as fast that is made.
SHARES = [(0.5, 2), (0.9, 10), (0.9, math.inf), (0.25, 1), (0.1, 0.5)]
CLOSE = 1e-6  # a part of the gain: what float32 has to spare


@exercise
def check_whose(whose: Callable[[int, str], tuple[str, int] | None]) -> str:
    """Check a function that finds the file behind an address.

    Parameters
    ----------
    whose : callable
        Takes an address and the text of ``/proc/PID/maps``; returns the file and the place in it,
        or None.
    """
    for address, (wanted, why) in PLACES.items():
        found = call(whose, address, MAPS, returns=False)
        if (tuple(found) if found else None) != wanted:
            right, given = (f"({at[0]!r}, {at[1]:#x})" if at else "None" for at in (wanted, found))
            lines = "\n  ".join(MAPS.splitlines())
            raise Wrong(f"{address:#x} is {right}, and whose gives {given}: {why}\n  {lines}")
    return "every address has its file"


@exercise
def check_holes(fields: str, *, size: int) -> str:
    """Check the fields of a C++ struct, ordered so that it has no holes.

    Parameters
    ----------
    fields : str
        The declarations, as they stand between the braces.
    size : int
        Bytes of the fields, and so of the smallest struct.
    """
    for name in TYPES:
        if not re.search(rf"\b{name}\b", fields):
            raise Wrong(f"the field {name} is missing")
    # The address of a member tells its type; a bit field has no address.
    same = " && ".join(
        f"is_same_v<decltype(&Layer::{name}), {TYPES[name]} Layer::*>" for name in TYPES
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

    Parameters
    ----------
    gain : callable
        Takes the share of the time that a function takes, and how many times as fast it is made;
        returns how many times as fast the whole is then.
    """
    for share, times in SHARES:
        wanted = 1 / (1 - share + share / times)
        name = f"gain({share}, {times})"
        found = call(gain, share, times)
        if not math.isclose(found, wanted, rel_tol=CLOSE):
            raise Wrong(
                f"{name} is {found:.6g}, expected {wanted:.6g}: of 1 second "
                f"{1 - share:g} stay, and {share:g} become {share / times:g}"
            )
    return "the promise holds"
