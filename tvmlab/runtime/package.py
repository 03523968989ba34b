"""The file of a saved executable: TVM's shared library with a description at its end.

`tvmlab.Executable.save` appends four fields to the library that TVM's ``export_library`` links. The
system's loader ignores them, so ``tvm.runtime.load_module`` loads the file like any other library.

===========  =======  ==============================================================
description  JSON     inputs, outputs, most, target, versions, runtimes, work
length       8 bytes  the size of the description
checksum     4 bytes  CRC-32 of everything before it
magic        8 bytes  ``TVMLAB``, a null character and the number of the format
===========  =======  ==============================================================

Numbers are little-endian. This module does not import TVM, and executes nothing that it reads.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import PackageError
from ..support.wording import table
from .signature import Input, Output

__all__ = ["Description", "append", "check_name", "describe"]

_LENGTH, _END = struct.Struct("<Q"), struct.Struct("<I7sB")
_MAGIC, _FORMAT = b"TVMLAB\0", 6


@dataclass(frozen=True)
class Description:
    """The contents of a package; `print` it for a table.

    Attributes
    ----------
    inputs, outputs : tuple of Input, tuple of Output
        The inputs and outputs of a call.
    most : dict of str to int
        The largest sizes that the model was exported for, by name; empty if none is bounded.
    target : dict
        The target that the model was compiled for, as TVM writes targets in JSON.
    versions : dict of str to str
        The versions of ``tvmlab``, ``tvm`` and ``tvm_ffi`` that compiled it.
    runtimes : tuple of str
        The kinds of modules in it that need a library of their own, such as ``"tvmlab_npu"``.
    work : dict of str to object
        The fields of each function's `tvmlab.schedule.Work`.
    bytes, crc32 : int, str
        The size of the file, and its checksum in hexadecimal digits.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    most: dict[str, int]
    target: dict[str, Any]
    versions: dict[str, str]
    runtimes: tuple[str, ...]
    work: dict[str, Any]
    bytes: int = 0
    crc32: str = ""

    def __str__(self) -> str:
        rows = [
            *(("input", str(value)) for value in self.inputs),
            *(("output", str(value)) for value in self.outputs),
            *(("size", f"{name} is at most {most}") for name, most in self.most.items()),
            ("target", json.dumps(self.target)),
            *(("runtime", kind) for kind in self.runtimes),
            *((name, f"version {version}") for name, version in self.versions.items()),
            ("file", f"{self.bytes} bytes, CRC-32 {self.crc32}"),
        ]
        return table(rows[0], rows[1:], left=(0, 1))


def check_name(path: Path) -> None:
    """Reject a name that does not end in ``.so``, from which TVM infers the file's format."""
    if path.suffix != ".so":
        what = "a package is a shared library, so its name has to end in .so"
        better = path.with_suffix(".so").name if path.name else "model.so"
        raise PackageError(what, where=str(path), fix=f'save it as "{better}"')


def append(path: Path, description: Description) -> None:
    """Append a description to a library."""
    fields = asdict(description)
    del fields["bytes"], fields["crc32"]
    text = json.dumps(fields).encode()
    content = path.read_bytes() + text + _LENGTH.pack(len(text))
    path.write_bytes(content + _END.pack(zlib.crc32(content), _MAGIC, _FORMAT))


def describe(path: str | os.PathLike[str]) -> Description:
    """Check every byte of a package and return its description, without loading the library.

    Raises
    ------
    PackageError
        The file is missing, damaged or of another format.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character
        why, fix = getattr(error, "strerror", error), "check the permissions of the file"
        what = f"the file cannot be read: {why}"
        if isinstance(error, FileNotFoundError):
            what, fix = "there is no such file", "check the path"
        raise PackageError(what, where=str(path), fix=fix) from error
    size, ends = len(content), _LENGTH.size + _END.size
    tail = content[-ends:].rjust(ends, b"\0")
    length, (checksum, magic, number) = _LENGTH.unpack_from(tail)[0], _END.unpack(tail[8:])
    problem = ""
    if magic != _MAGIC and content.startswith(b"\x7fELF"):
        problem = (
            "the library has no description at its end: the file was cut off, or Executable.save "
            "did not write it"
        )
    elif magic != _MAGIC:
        problem = "this is not a file that Executable.save wrote"
    elif number != _FORMAT:
        problem = f"the file's format is {number}, this tvmlab reads {_FORMAT}"
    elif zlib.crc32(memoryview(content)[: -_END.size]) != checksum:
        problem = "the checksum is wrong: the file is damaged"
    if problem:
        fix = "copy the file again, or save the executable again"
        raise PackageError(problem, where=str(path), fix=fix)
    fields = json.loads(content[size - ends - length : size - ends])
    for name, kind in (("inputs", Input), ("outputs", Output)):
        for one in fields[name]:  # JSON has lists for tuples
            one["shape"] = None if one["shape"] is None else tuple(one["shape"])
        fields[name] = tuple(kind(**one) for one in fields[name])
    fields["runtimes"] = tuple(fields["runtimes"])
    return Description(**fields, bytes=size, crc32=f"{checksum:08x}")
