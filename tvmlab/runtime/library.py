"""Link the shared library of an executable, write it as a package, and load it again."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm.support import cc

from ..errors import PackageError, ToolchainError
from ..support.files import written
from ..support.host import other_processor, triple_of
from ..support.target import as_target, spelled
from ..support.toolchain import cross_linker
from .package import Description, append

__all__ = ["SIMULATED", "load", "load_runtimes", "modules", "runtimes", "write"]

#: The kind of the modules that run on the simulated accelerator.
SIMULATED = "tvmlab_npu"
_MADV_PAGEOUT = 21  # of Linux's madvise, which Python's mmap does not name
# File descriptor 2 belongs to the whole process: without the lock, two threads that redirect it at
# the same time could each restore the other's file.
_STDERR_LOCK = threading.Lock()


def write(
    built: Any, path: Path, description: Description, compiler: str | None, options: str
) -> None:
    """Link an executable and write it as a package, completely or not at all."""
    with written(path, PackageError) as part:
        try:
            words = shlex.split(options)
            with _without_scope_lines():
                built.export_library(
                    str(part), fcompile=cc.create_shared, cc=compiler, options=words
                )
        except Exception as error:
            raise _not_linked(path, description, compiler, str(error)) from error
        append(part, description)


def _not_linked(
    path: Path, description: Description, compiler: str | None, output: str
) -> ToolchainError:
    target = as_target(description.target)
    fix = "install a C++ compiler (Debian: apt-get install g++)"
    if compiler:
        fix = "name a C++ compiler for that target, and options that it knows"
    elif target.kind.name == "llvm" and other_processor(target):
        name = cross_linker(triple_of(target))
        debian = f"apt-get install g++-{name.removesuffix('-g++').replace('_', '-')}"
        fix = f'pass cross_compiler="{name}", or --cross-compiler {name} (Debian: {debian})'
    reason = next((line for line in output.splitlines() if ": " in line), output)
    if not (compiler or cc.get_cc()):  # TVM reports a misleading type error
        reason = "there is no C++ compiler"
    what = f"the library could not be linked: {reason}"
    return ToolchainError(what, where=f"{path}, for {spelled(target)}", fix=fix)


def load(path: str | os.PathLike[str]) -> tvm.runtime.Module:
    """Load the library of a package after `tvmlab.package.describe` has checked it."""
    with tempfile.TemporaryDirectory() as folder, _without_scope_lines():
        copy = shutil.copyfile(path, Path(folder) / "package.so")
        module = tvm_ffi.load_module(str(copy), keep_module_alive=False)
        _page_out(copy)
        return module


def _page_out(library: Path) -> None:
    """Drop a library's pages from memory, because TVM has copied the constants from them."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(library)):
            first, last = (int(address, 16) for address in line.split()[0].split("-"))
            # A kernel before Linux 5.4 returns an error, and the pages stay.
            length = ctypes.c_size_t(last - first)
            ctypes.CDLL(None).madvise(ctypes.c_void_p(first), length, _MADV_PAGEOUT)


def modules(built: Any) -> Iterator[tvm.runtime.Module]:
    """Yield all modules in a compiled or loaded executable."""
    left = list(getattr(built, "mod", built).imports)
    while left:
        yield (module := left.pop())
        left.extend(module.imports)


def runtimes(built: Any) -> list[str]:
    """List the kinds of an executable's modules that need a library of their own to be loaded."""
    return sorted({SIMULATED} & {str(module.kind) for module in modules(built)})


def load_runtimes(kinds: Iterable[str]) -> None:
    """Load the libraries that an executable's modules need."""
    if SIMULATED in kinds:
        from ..npu import simulator  # imported here, because most executables do not need it

        simulator.load()


@contextlib.contextmanager
def _without_scope_lines() -> Iterator[None]:
    """Drop two lines that TVM writes to standard error for every executable with constants."""
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
