"""The checks of notebook 08, Deploy from the command line."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import cli
from ..support import toolchain
from ..support.wording import several
from .judge import Wrong, call, exercise, listed, of_type, reading, whole

__all__ = ["check_damaged_files", "check_data_begin", "check_words"]

DAMAGES: list[list[str]] = [[], ["lib.so"], ["program.vm"], ["lib.so", "program.vm"]]


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
    of_type(options, str, "options", "a text")
    files = [f"{name}:{size}" for name in ("data", "mask") for size in ("8", "n")]
    for name in files:
        (folder / name).touch()
    line = rf"printf '%s\n' compile MODEL {options}"
    with reading("the shell cannot read it"):
        cut = toolchain.run(line, cwd=folder).output.splitlines()
    shown = "\n  ".join(["", *cut[2:]])
    if set(files) & set(cut):
        raise Wrong(f"the shell put names of files in the place of brackets:{shown}")
    if not {target, f"--target={target}"} & set(cut):
        raise Wrong(f"the target is not one word:{shown}")
    if not {shapes, f"--input-shapes={shapes}"} & set(cut):
        raise Wrong(f"the shapes are not one word:{shown}")
    if f"--cross-compiler-options={linker}" not in cut:
        raise Wrong(f"the linker's option is not tied to --cross-compiler-options:{shown}")
    args = _read(cut)
    return f"{args.target} {args.input_shapes} {args.cross_compiler_options}"


def _read(words: list[str]) -> argparse.Namespace:
    """Have the command's parser read the words of a command line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return cli.parser().parse_args(words)
    except SystemExit as error:
        last = said.getvalue().splitlines()[-1:]
        raise Wrong(f"the command does not read it: {''.join(last)}") from error


@exercise
def check_damaged_files(
    damaged_files: Callable[[tarfile.TarFile, Mapping[str, Any]], Iterable[str]], package: Path
) -> str:
    """Check a function that finds the damaged files of a package.

    Parameters
    ----------
    damaged_files : callable
        Takes the open archive and what the metadata say of its files, by name; returns names.
    package : Path
        A package that is whole; copies of it are damaged, a bit in a file.
    """
    for names in DAMAGES:
        found = _found(damaged_files, package.read_bytes(), names)
        if found != names:
            held = f"in {' and '.join(names)} a bit is turned" if names else "nothing is damaged"
            raise Wrong(f"{held}, and damaged_files finds {found}")
    return "each is found, and nothing else"


def _found(
    damaged_files: Callable[..., Iterable[str]], package: bytes, names: Iterable[str]
) -> list[str]:
    """Turn a bit in the middle of each of these files, and ask; return the answer, sorted."""
    content = bytearray(package)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        metadata = archive.extractfile("metadata.json")
        assert metadata is not None
        said = json.load(metadata)["files"]
        for name in names:
            content[archive.getmember(name).offset_data + said[name]["bytes"] // 2] ^= 1
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return sorted(map(str, listed(damaged_files, archive, said)))


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
