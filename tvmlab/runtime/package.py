"""The file of a saved executable: one tar archive of three members, each with its checksum.

``metadata.json`` comes first: what the executable takes and gives, what it was compiled for and
with, and of each other member its size and SHA-256. Before all that stands the SHA-256 of the text
that follows it. ``lib.so`` is machine code alone. ``program.vm`` is what the virtual machine reads:
its instructions and the constants. Upstream's `export_library` would link these into the library,
where they stay in memory beside the copy that runs.

Nothing here needs TVM, and nothing that is read runs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import PackageError
from ..ir.values import Input, Output
from ..support.files import whole
from .archive import expect, pieces

__all__ = [
    "LIBRARY",
    "PROGRAM",
    "Description",
    "Member",
    "damaged",
    "describe",
    "is_package",
    "pack",
    "unpack",
]

METADATA, LIBRARY, PROGRAM = "metadata.json", "lib.so", "program.vm"
_FORMAT = 4
# What the metadata begin with: the checksum of what comes after it, in 64 hexadecimal digits.
_BEFORE = b'{"sha256": "'
_AFTER = len(_BEFORE) + 64
# More than any model that fits; a damaged header cannot ask for more.
_MOST_BYTES = 4 << 30
_MOST_METADATA = 1 << 20
# A terminal does what they say: a name with them can clear the screen, or fake a line.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Member:
    """A file in a package.

    Attributes
    ----------
    bytes : int
        Its size.
    sha256 : str
        Its checksum, 64 hexadecimal digits.
    """

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Description:
    """What a package says of itself; `print` it for a table.

    Attributes
    ----------
    inputs : tuple of Input
        What a call takes.
    outputs : tuple of Output
        What a call gives.
    target : dict
        What it was compiled for, as TVM writes targets in JSON.
    versions : dict of str to str
        What compiled it: of ``tvmlab``, ``tvm`` and ``tvm_ffi``.
    runtimes : tuple of str
        The kinds of modules in it that need a library of their own, as ``"tvmlab_npu"``.
    work : dict of str to object
        What each function computes, the fields of a `tvmlab.schedule.Work`, not checked yet.
    members : dict of str to Member
        The library and the virtual machine's program.
    """

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    target: dict[str, Any]
    versions: dict[str, str]
    runtimes: tuple[str, ...]
    work: dict[str, Any]
    members: dict[str, Member]

    def __str__(self) -> str:
        """Lay it out, one fact a line."""
        rows = [
            *(("input", str(value)) for value in self.inputs),
            *(("output", str(value)) for value in self.outputs),
            ("target", json.dumps(self.target)),
            *(("runtime", kind) for kind in self.runtimes),
            *((name, f"version {version}") for name, version in self.versions.items()),
            *(
                (name, f"{member.bytes} bytes, SHA-256 {member.sha256}")
                for name, member in self.members.items()
            ),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def describe(path: str | os.PathLike[str]) -> Description:
    """Check a package, every byte of it, and say what is in it; nothing of it is loaded.

    Parameters
    ----------
    path : path
        What `tvmlab.Executable.save` wrote.

    Returns
    -------
    Description

    Raises
    ------
    PackageError
        The file is missing, damaged or of another format.
    """
    return _read(Path(path), None)


def is_package(path: str | os.PathLike[str]) -> bool:
    """Say whether a file begins as packages do; the rest of it can be damaged."""
    try:
        with open(path, "rb") as archive:
            expect(archive, METADATA, _MOST_METADATA)
    except (OSError, ValueError):
        return False
    return True


def unpack(path: Path, folder: Path) -> Description:
    """Check a package and unpack it; nothing of it is loaded.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    folder : pathlib.Path
        An empty folder, where the library and the program go.

    Returns
    -------
    Description

    Raises
    ------
    PackageError
        The file is missing, damaged or of another format, or there is no space.
    """
    return _read(path, folder)


def pack(
    path: Path,
    folder: Path,
    *,
    inputs: tuple[Input, ...],
    outputs: tuple[Output, ...],
    target: Mapping[str, Any],
    versions: Mapping[str, str],
    runtimes: list[str],
    work: Mapping[str, Any],
) -> None:
    """Write a package, whole or not at all.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    folder : pathlib.Path
        Where the library and the program are.
    inputs, outputs, target, versions, runtimes, work
        As of `Description`.

    Raises
    ------
    PackageError
        The file cannot be written, or could not be read again: something is too large, or has a
        name with control characters.
    """
    try:
        said: dict[str, Any] = {
            "format": _FORMAT,
            "versions": dict(versions),
            "target": dict(target),
            "inputs": [asdict(value) for value in inputs],
            "outputs": [asdict(value) for value in outputs],
            "runtimes": runtimes,
            "work": dict(work),
            "files": {name: asdict(_measure(folder / name)) for name in (LIBRARY, PROGRAM)},
        }
        sealed = _sealed(said)
        _expect_readable(path, said, {METADATA: len(sealed), **_sizes(said)})
        (folder / METADATA).write_bytes(sealed)
        with whole(path) as part, tarfile.open(part, "w") as archive:
            for name in (METADATA, LIBRARY, PROGRAM):
                entry = tarfile.TarInfo(name)
                with (folder / name).open("rb") as content:
                    entry.size = os.fstat(content.fileno()).st_size
                    archive.addfile(entry, content)
    except (OSError, ValueError) as error:  # ValueError: no path has a null character
        raise PackageError(
            f"the file cannot be written: {getattr(error, 'strerror', error)}",
            where=str(path),
            fix="choose an existing folder that you may write to and that has space",
        ) from error


def _sizes(said: Mapping[str, Any]) -> dict[str, int]:
    return {name: member["bytes"] for name, member in said["files"].items()}


def _expect_readable(path: Path, said: Any, sizes: Mapping[str, int]) -> None:
    """Refuse to write what would be refused when it is read."""
    if any(map(_CONTROL.search, _texts(said))):
        raise PackageError(
            "the network has names with control characters",
            where=str(path),
            fix="give its inputs and outputs other names",
        )
    for name, size in sizes.items():
        most = _MOST_METADATA if name == METADATA else _MOST_BYTES
        if size > most:
            raise PackageError(
                f"{name} would have {size:,} bytes; at most {most:,} are read",
                where=str(path),
                fix="compile a smaller model, or a part of it",
            )


def damaged(path: Path, error: Exception) -> PackageError:
    """Say that a file is not what it should be."""
    return PackageError(
        f"this is not a file that Executable.save wrote, or it is damaged: {error}",
        where=str(path),
        fix="save the executable again",
    )


def _read(path: Path, folder: Path | None) -> Description:
    """Check a package; unpack it where there is a folder."""
    try:
        with path.open("rb") as archive:
            text = b"".join(pieces(archive, expect(archive, METADATA, _MOST_METADATA)))
            said = _parsed(text)
            if said["format"] != _FORMAT:
                raise PackageError(
                    f"the file's format is {said['format']!r}, this tvmlab reads {_FORMAT}",
                    where=str(path),
                    fix="save the executable again with this version",
                )
            whole_ones = text == _sealed_text(text[_AFTER:]) and all(
                _extract(archive, name, folder) == Member(**said["files"][name])
                for name in (LIBRARY, PROGRAM)
            )
            found = _described(said) if whole_ones else None
    except FileNotFoundError as error:
        raise PackageError(
            "there is no such file", where=str(path), fix="check the path"
        ) from error
    except (PermissionError, IsADirectoryError) as error:
        raise PackageError(
            f"the file cannot be read: {error.strerror}",
            where=str(path),
            fix="give a file that you may read",
        ) from error
    except (
        *(OSError, ValueError, KeyError, TypeError),
        *(AttributeError, OverflowError, RecursionError),
    ) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PackageError(
                f"there is no space to unpack it: {error.strerror}",
                where=f"{path}, to {folder.parent if folder else ''}",
                fix="make space there, or let TMPDIR name another folder",
            ) from error
        raise damaged(path, error) from error
    if found is None:
        raise PackageError(
            "the checksum is wrong: the file is damaged",
            where=str(path),
            fix="save or copy it again",
        )
    return found


def _parsed(text: bytes) -> Any:
    """Read metadata that may be damaged; what is raised says where, and not in a parser's words."""
    try:
        said = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"the metadata are damaged in line {error.lineno}, column {error.colno}"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the metadata are damaged at byte {error.start}") from error
    if not isinstance(said, dict) or "format" not in said:
        raise ValueError("the metadata are damaged: they do not say their format")
    return said


def _described(said: Mapping[str, Any]) -> Description:
    """Put into form what the metadata say; what is raised says what is wrong with them."""
    if any(map(_CONTROL.search, _texts(said))):
        raise ValueError("there are control characters in its names")
    return Description(
        inputs=tuple(
            Input(str(value["name"]), _shape(value["shape"]), str(value["dtype"]))
            for value in said["inputs"]
        ),
        outputs=tuple(
            Output(
                str(value["name"]),
                None if value["shape"] is None else _shape(value["shape"]),
                str(value["dtype"]),
            )
            for value in said["outputs"]
        ),
        target=dict(said["target"]),
        versions={str(name): str(text) for name, text in said["versions"].items()},
        runtimes=tuple(map(str, said["runtimes"])),
        work=dict(said["work"]),
        members={name: Member(**said["files"][name]) for name in (LIBRARY, PROGRAM)},
    )


def _texts(tree: Any) -> Iterator[str]:
    """List all names and texts in what JSON can hold."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, list | Mapping):
        for part in tree:
            yield from _texts(part)
        if isinstance(tree, Mapping):
            yield from _texts([*tree.values()])


def _shape(sizes: Any) -> tuple[int | str, ...]:
    if not isinstance(sizes, list) or not all(isinstance(size, int | str) for size in sizes):
        raise TypeError(f"{sizes!r} is no shape")
    return tuple(sizes)


def _sealed(said: Mapping[str, Any]) -> bytes:
    """Write metadata, their checksum first."""
    return _sealed_text(b'",\n' + json.dumps(said, indent=1).encode()[2:])


def _sealed_text(rest: bytes) -> bytes:
    return _BEFORE + hashlib.sha256(rest).hexdigest().encode() + rest


def _measure(path: Path) -> Member:
    """Say what the metadata say of a file."""
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256")
        return Member(content.tell(), digest.hexdigest())


def _extract(archive: BinaryIO, name: str, folder: Path | None) -> Member:
    """Read one member piece by piece, and write it under a name that is ours; say what it is."""
    size, digest = expect(archive, name, _MOST_BYTES), hashlib.sha256()
    with open(os.devnull if folder is None else folder / name, "wb") as file:
        for piece in pieces(archive, size):
            digest.update(piece)
            file.write(piece)
    return Member(size, digest.hexdigest())
