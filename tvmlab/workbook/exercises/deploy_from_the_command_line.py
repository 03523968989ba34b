"""The checks of notebook 08, Deploy from the command line."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from ... import cli
from ...errors import ToolchainError
from ...support import toolchain
from ...support.wording import several
from .judge import Wrong, call, complaint, exercise, whole


@exercise
def check_words(options: str, folder: Path, *, target: str, shapes: str, linker: str) -> str:
    """Check a piece of a command line that a shell cuts into words.

    Parameters
    ----------
    options : str
        The piece.
    folder : Path
        Where the shell runs; files are made whose names are like pieces of the shapes.
    target, shapes, linker : str
        What the command has to read: the target, the shapes, and the linker's one option.
    """
    files = [f"{name}:{size}" for name in ("data", "mask") for size in ("8", "n")]
    for name in files:
        (folder / name).touch()
    line = rf"printf '%s\n' compile MODEL {options}"
    try:
        cut = toolchain.run(line, cwd=folder).output.splitlines()
    except ToolchainError as error:
        raise Wrong(f"the shell cannot read it: {complaint(error)}") from error
    shown = "\n  ".join(["", *cut[2:]])
    if set(files) & set(cut):
        raise Wrong(f"the shell put names of files in the place of brackets:{shown}")
    if not {target, f"--target={target}"} & set(cut):
        raise Wrong(f"the target is not one word:{shown}")
    if not {shapes, f"--input-shapes={shapes}"} & set(cut):
        raise Wrong(f"the shapes are not one word:{shown}")
    if f"--cross-compiler-options={linker}" not in cut:
        raise Wrong(f"the linker's option is not tied to --cross-compiler-options:{shown}")
    args = cli.parser().parse_args(cut)
    return f"{args.target} {args.input_shapes} {args.cross_compiler_options}"


@exercise
def check_damaged_files(
    damaged_files: Callable[[Mapping[str, bytes]], Iterable[str]], package: Path
) -> str:
    """Check a function that finds damaged packages by their checksums.

    Parameters
    ----------
    damaged_files : callable
        Takes the content of files by their names; returns the names of damaged files.
    package : Path
        A package that is not damaged.
    """
    content = package.read_bytes()
    damaged = {
        "cut.so": content[:-1000],
        "description.so": _turned(content, len(content) - 40),
        "library.so": _turned(content, len(content) // 2),
    }
    found = sorted(call(damaged_files, {package.name: content, **damaged}))
    if found != sorted(damaged):
        raise Wrong(f"{', '.join(damaged)} are damaged, and damaged_files finds {found}")
    return "it finds each damaged file, and no other"


def _turned(content: bytes, place: int) -> bytes:
    """Turn one bit of a byte."""
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@exercise
def check_data_begin(
    data_begin: Callable[[bytes], int], *, files: Iterable[tuple[int, int]]
) -> str:
    """Check a function that finds where the data of an ``.npy`` file begin.

    Parameters
    ----------
    data_begin : callable
        Takes the file's bytes; returns the place of the first one of the data.
    files : iterable of (int, int)
        For each file that is tried, the format's version and how many named fields a number has:
        names make the header long.
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
