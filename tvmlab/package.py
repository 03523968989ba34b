"""The file of a saved executable: one tar archive of three members, each with its checksum.

``metadata.json`` comes first: what `Executable.save` says of the executable, and of each other
member its size and SHA-256. ``lib.so`` is machine code alone. ``program.vm`` is what the virtual
machine reads: its instructions and the constants. Upstream's `export_library` would link these into
the library, where they stay in memory beside the copy that runs.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from ._files import whole
from .errors import PackageError

__all__ = ["damaged", "link", "load", "load_runtimes", "pack", "runtimes", "unpack"]

_FORMAT = 2
_METADATA, _LIBRARY, _PROGRAM = "metadata.json", "lib.so", "program.vm"
_KIND = "relax.VMExecutable"
# What loads the library of a kind of modules.
_RUNTIMES = {"tvmlab_npu": "tvmlab.npu.simulator"}
# More than any model that fits; a damaged header cannot ask for more.
_MOST_BYTES = 4 << 30
_MOST_METADATA = 1 << 20
_CHUNK = 1 << 20
# Standard error is the whole process's: who swaps it while another thread has swapped it would
# put back that thread's file.
_STDERR_LOCK = threading.Lock()


def link(built: Any, folder: Path) -> None:
    """Link the machine code of an executable into a library.

    Parameters
    ----------
    built : tvm.relax.VMExecutable
        What was compiled.
    folder : pathlib.Path
        Where the library goes.

    Raises
    ------
    Exception
        Whatever upstream and the linker raise.
    """
    # An executable without a program stands in for the one that has it, and its constants.
    empty = relax.ExecBuilder().get()
    for module in built.mod.imports:
        empty.mod.import_module(module)
    with _without_scope_lines():
        empty.export_library(str(folder / _LIBRARY))


def pack(path: Path, folder: Path, built: Any, metadata: Mapping[str, Any]) -> None:
    """Write an executable's file, whole or not at all.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    folder : pathlib.Path
        Where `link` has put the library; the program is written there first.
    built : tvm.relax.VMExecutable
        What was compiled.
    metadata : mapping
        What else the file says.

    Raises
    ------
    PackageError
        The file cannot be written.
    """
    try:
        program = folder / _PROGRAM
        program.touch()  # so that a full disk or the like is an OSError
        with _without_scope_lines():
            built.mod.write_to_file(str(program), _KIND)
        said: dict[str, Any] = {"format": _FORMAT, "tvm": tvm.__version__, **metadata}
        said["files"] = {name: _measure(folder / name) for name in (_LIBRARY, _PROGRAM)}
        said["sha256"] = _checksum(said)
        (folder / _METADATA).write_text(json.dumps(said, indent=1), encoding="utf-8")
        with whole(path) as part, tarfile.open(part, "w") as archive:
            for name in (_METADATA, _LIBRARY, _PROGRAM):
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


def unpack(path: Path, folder: Path) -> dict[str, Any]:
    """Check an executable's file and unpack it; nothing of it is loaded.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    folder : pathlib.Path
        An empty folder, where the library and the program go.

    Returns
    -------
    dict
        The metadata.

    Raises
    ------
    PackageError
        The file is missing, damaged or of another format.
    """
    try:
        with tarfile.open(path, "r:") as archive:
            metadata: dict[str, Any] = _metadata(archive)
            if metadata["format"] != _FORMAT:
                raise PackageError(
                    f"the file's format is {metadata['format']!r}, this tvmlab reads {_FORMAT}",
                    where=str(path),
                    fix="save the executable again with this version",
                )
            whole_ones = metadata.pop("sha256") == _checksum(metadata) and all(
                _extract(archive, name, folder / name) == metadata["files"][name]
                for name in (_LIBRARY, _PROGRAM)
            )
    except FileNotFoundError as error:
        raise PackageError(
            "there is no such file", where=str(path), fix="check the path"
        ) from error
    except (
        *(OSError, tarfile.TarError, ValueError, KeyError, TypeError),
        *(AttributeError, OverflowError, RecursionError),
    ) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PackageError(
                f"there is no space to unpack it: {error.strerror}",
                where=f"{path}, to {folder.parent}",
                fix="make space there, or let TMPDIR name another folder",
            ) from error
        raise damaged(path, error) from error
    if not whole_ones:
        raise PackageError(
            "the checksum is wrong: the file is damaged",
            where=str(path),
            fix="save or copy it again",
        )
    return metadata


def load(folder: Path) -> tvm.runtime.Module:
    """Load what `unpack` has unpacked and checked.

    Parameters
    ----------
    folder : pathlib.Path
        Where that was; it can be removed afterwards.

    Returns
    -------
    tvm.runtime.Module
        What a `tvm.relax.VirtualMachine` takes.

    Raises
    ------
    Exception
        Whatever upstream and the system's loader raise.
    """
    with _without_scope_lines():
        library = tvm.runtime.load_module(str(folder / _LIBRARY))
        read = tvm.get_global_func(f"ffi.Module.load_from_file.{_KIND}")
        program: tvm.runtime.Module = read(str(folder / _PROGRAM))
    for module in library.imports:
        program.import_module(module)
    return program


def runtimes(built: Any) -> list[str]:
    """List the kinds of an executable's modules that need a library of their own to be loaded.

    Parameters
    ----------
    built : tvm.relax.VMExecutable or tvm.runtime.Module
        What was compiled, or loaded.

    Returns
    -------
    list of str
        Of `_RUNTIMES`.
    """
    kinds, left = set(), list(getattr(built, "mod", built).imports)
    while left:
        module = left.pop()
        kinds.add(str(module.kind))
        left.extend(module.imports)
    return sorted(kinds & _RUNTIMES.keys())


def load_runtimes(path: Path, kinds: Any) -> None:
    """Load the libraries that an executable's modules need.

    Parameters
    ----------
    path : pathlib.Path
        The executable's file, for errors.
    kinds : list of str
        What `runtimes` gave.

    Raises
    ------
    PackageError
        A kind is unknown.
    ToolchainError
        A library has to be built first, and cannot be.
    """
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _RUNTIMES:
            raise PackageError(
                f"it has parts for {kind!r}, which this tvmlab does not know",
                where=str(path),
                fix="load it with the version that saved it",
            )
        import_module(_RUNTIMES[kind]).load()


def damaged(path: Path, error: Exception) -> PackageError:
    """Say that a file is not what it should be."""
    return PackageError(
        f"this is not a file that Executable.save wrote, or it is damaged: {error}",
        where=str(path),
        fix="save the executable again",
    )


def _checksum(metadata: Mapping[str, Any]) -> str:
    """Compute what the metadata say of themselves: SHA-256 over all the rest of them."""
    return hashlib.sha256(json.dumps(metadata, sort_keys=True).encode()).hexdigest()


def _measure(path: Path) -> dict[str, Any]:
    """Say what the metadata say of a file."""
    with path.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256")
        return {"bytes": content.tell(), "sha256": digest.hexdigest()}


def _metadata(archive: tarfile.TarFile) -> Any:
    entry, content = _member(archive, _METADATA, _MOST_METADATA)
    data = content.read()
    if len(data) != entry.size:
        raise ValueError(f"{_METADATA} is cut off")
    return json.loads(data)


def _extract(archive: tarfile.TarFile, name: str, to: Path) -> dict[str, Any]:
    """Unpack one member under a name that is ours, piece by piece; say what `_measure` says."""
    _, content = _member(archive, name, _MOST_BYTES)
    digest, size = hashlib.sha256(), 0
    with to.open("wb") as file:
        while piece := content.read(_CHUNK):
            digest.update(piece)
            size += file.write(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _member(archive: tarfile.TarFile, name: str, most: int) -> tuple[tarfile.TarInfo, Any]:
    entry = archive.getmember(name)
    # A sparse member of a few bytes could ask for any size on the disk.
    plain = entry.isreg() and not entry.issparse() and entry.size <= most
    content = archive.extractfile(entry) if plain else None
    if content is None:
        raise ValueError(f"{name} is not a file of at most {most} bytes")
    return entry, content


@contextlib.contextmanager
def _without_scope_lines() -> Iterator[None]:
    """Drop two lines of TVM's that are no warnings.

    Its executable.cc logs "Warning: Scope Saving:" and "Scope Loaded:" whenever constants are
    written or read, straight to the process's standard error. Everything else passes through,
    when the block ends; a second thread waits until then.
    """
    with _STDERR_LOCK, tempfile.TemporaryFile() as caught:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            for line in caught:
                if b"Warning: Scope Saving:" not in line and b"Warning: Scope Loaded:" not in line:
                    os.write(2, line)
