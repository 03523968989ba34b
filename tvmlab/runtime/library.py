"""The machine code and the program of an executable: linked and written, and loaded again."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import tvm

from ..errors import PackageError
from .package import LIBRARY, PROGRAM

__all__ = ["link", "load", "load_runtimes", "runtimes", "write_program"]

_KIND = "relax.VMExecutable"
# What loads the library of a kind of modules.
_RUNTIMES = {"tvmlab_npu": "tvmlab.npu.simulator"}
# Standard error is the whole process's: who swaps it while another thread has swapped it would
# put back that thread's file.
_STDERR_LOCK = threading.Lock()


def link(
    built: Any, folder: Path, compiler: str | None = None, options: Sequence[str] = ()
) -> None:
    """Link the machine code of an executable into a library.

    Parameters
    ----------
    built : tvm.relax.VMExecutable
        What was compiled.
    folder : pathlib.Path
        Where the library goes.
    compiler : str, optional
        The C++ compiler to link with; the system's where it is left out.
    options : sequence of str
        More of its options.

    Raises
    ------
    Exception
        Whatever upstream and the linker raise.
    """
    # Who only loads, as an RPC server does, needs neither.
    from tvm import relax
    from tvm.support import cc

    # An executable without a program stands in for the one that has it, and its constants.
    empty = relax.ExecBuilder().get()
    for module in built.mod.imports:
        empty.mod.import_module(module)
    with _without_scope_lines():
        empty.export_library(
            str(folder / LIBRARY), fcompile=cc.create_shared, cc=compiler, options=[*options]
        )


def write_program(built: Any, folder: Path) -> None:
    """Write what the virtual machine reads: its instructions and the constants.

    Parameters
    ----------
    built : tvm.relax.VMExecutable
        What was compiled.
    folder : pathlib.Path
        Where the file goes.

    Raises
    ------
    OSError
        The folder cannot be written.
    """
    program = folder / PROGRAM
    program.touch()  # so that a full disk or the like is an OSError
    with _without_scope_lines():
        built.mod.write_to_file(str(program), _KIND)


def load(folder: Path) -> tvm.runtime.Module:
    """Load what `tvmlab.package.unpack` has unpacked and checked.

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
        library = tvm.runtime.load_module(str(folder / LIBRARY))
        read = tvm.get_global_func(f"ffi.Module.load_from_file.{_KIND}")
        program: tvm.runtime.Module = read(str(folder / PROGRAM))
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


def load_runtimes(path: Path, kinds: Iterable[str]) -> None:
    """Load the libraries that an executable's modules need.

    Parameters
    ----------
    path : pathlib.Path
        The executable's file, for errors.
    kinds : iterable of str
        What `runtimes` gave.

    Raises
    ------
    PackageError
        A kind is unknown.
    ToolchainError
        A library has to be built first, and cannot be.
    """
    for kind in kinds:
        if kind not in _RUNTIMES:
            raise PackageError(
                f"it has parts for {kind!r}, which this tvmlab does not know",
                where=str(path),
                fix="load it with the version that saved it",
            )
        import_module(_RUNTIMES[kind]).load()


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
