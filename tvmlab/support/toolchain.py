"""Compilers, build tools, and C++ extensions of TVM's foreign function interface.

Notebook 01 types the commands by hand; the rest of the package builds its C++ parts here. Tools
are looked for beside the running Python first, then on PATH: a virtual environment carries its own
`cmake`, `ninja` and `tvm-ffi-config`, whether or not it has been activated.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shlex
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ..errors import ToolchainError
from .data import cache_dir, fetched, fetched_folder
from .files import only_own, whole
from .process import Completed, Tool, compiler, environment, find_tool, run
from .wording import several

__all__ = [
    "Completed",
    "Machine",
    "Tool",
    "build_extension",
    "build_with_cmake",
    "compiler",
    "environment",
    "ffi_flags",
    "find_tool",
    "load_extension",
    "machine",
    "run",
    "tvm_ffi_source",
    "unpack",
]

#: Flags of every extension.
FLAGS = ("-shared", "-fPIC", "-O2")

# Tools that notebooks need, with the oldest version that is new enough.
_TOOLS: dict[str, tuple[int, ...]] = {"g++": (), "make": (), "cmake": (3, 26), "ninja": ()}
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "onnxruntime", "torch")
_DEVICES = ("cuda", "rocm", "opencl", "metal", "vulkan")

#: tvm-ffi's source package, the version that the wheel of TVM is pinned to.
FFI_SOURCE = "apache_tvm_ffi-0.1.14.post1.tar.gz"
FFI_SHA256 = "8ebd92dc97cdcb22ab494aa252c868ddd6a9b6c89be69188562e0f236652429f"


def ffi_flags() -> tuple[list[str], list[str]]:
    """What a compiler must be told to build against the installed tvm-ffi.

    Returns
    -------
    compile, link : list of str
        The include folders and the language standard; the library's folder and its name. The same
        as `tvm-ffi-config --cxxflags` and `tvm-ffi-config --ldflags --libs` print.

    Raises
    ------
    ToolchainError
        If tvm-ffi is not installed.
    """
    tool = str(find_tool("tvm-ffi-config").path)
    compile_line, link_line = (
        run([tool, *options]).output.strip()
        for options in (["--cxxflags"], ["--ldflags", "--libs"])
    )
    # The tool quotes nothing, so a space can belong to the name of a folder.
    return re.split(r"\s+(?=-)", compile_line), re.split(r"\s+(?=-)", link_line)


def build_extension(
    sources: Iterable[Path | str], *, name: str = "extension", folder: Path | str | None = None
) -> Path:
    """Compile and link C++ sources against tvm-ffi, in one command; reuse what was built before.

    Parameters
    ----------
    sources : iterable of path
        C++ files. A header that lies beside one of them counts as a source, too: change it, and
        the library is built anew.
    name : str
        The library's name, without `lib` and ending.
    folder : path, optional
        Where libraries are kept; `native` in the cache folder (`tvmlab.data.cache_dir`) if not
        given.

    Returns
    -------
    Path
        The shared library. Its folder is named after everything it was made from: contents, flags,
        compiler, tvm-ffi. It appears in one step, so two processes may build at once.

    Raises
    ------
    ToolchainError
        If a source or a compiler is missing, the folder cannot be written, or compiling fails.
    """
    files = [Path(source).resolve() for source in sources]
    headers = sorted({header for file in files for header in file.parent.glob("*.h*")})
    cxx = compiler()
    compile_flags, link_flags = ffi_flags()

    def build(library: Path) -> None:
        run([cxx.path, *FLAGS, *compile_flags, *files, "-o", library, *link_flags])

    facts = (FLAGS, str(cxx.path), cxx.version, compile_flags)
    return _reused([*files, *headers], facts, folder, f"{name}.so", build)


def build_with_cmake(
    source: Path | str,
    *,
    name: str,
    options: Sequence[str] = (),
    folder: Path | str | None = None,
    program: bool = False,
) -> Path:
    """Configure and build a CMake project against tvm-ffi; reuse what was built before.

    Parameters
    ----------
    source : path
        The folder of the project's CMakeLists.txt. All files in it count as sources; there are no
        folders below it.
    name : str
        The target to build, a library of the same name without `lib`, or a program.
    options : sequence of str
        More of CMake's options, such as ``"-DCMAKE_CXX_FLAGS_RELEASE=-O1"``.
    folder : path, optional
        As in `build_extension`.
    program : bool
        Whether the target is a program.

    Returns
    -------
    Path
        The shared library or the program, kept as `build_extension` keeps it; its folder is named
        after CMake's version and the flags that CMake reads from the environment, too.

    Raises
    ------
    ToolchainError
        If a compiler, CMake or Ninja is missing, the folder cannot be written, or building fails.
    """
    cxx, cmake, ninja = compiler(), find_tool("cmake", minimum=(3, 26)), find_tool("ninja")
    file = name if program else f"{name}.so"

    def build(made: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            tools = [f"-DCMAKE_CXX_COMPILER={cxx.path}", f"-DCMAKE_MAKE_PROGRAM={ninja.path}"]
            # On the command line, so that no variable of the environment changes it.
            tools.append("-DCMAKE_BUILD_TYPE=Release")
            run([cmake.path, "-S", source, "-B", work, "-G", "Ninja", *tools, *options])
            run([cmake.path, "--build", work, "--target", name])
            shutil.copy(Path(work) / file, made)  # with its mode: programs can be executed

    read = [os.environ.get(flags, "") for flags in ("CXXFLAGS", "LDFLAGS")]
    facts = (*options, str(cxx.path), cxx.version, cmake.version, sys.prefix, *read)
    return _reused(sorted(Path(source).resolve().glob("*")), facts, folder, file, build)


def _reused(
    files: Sequence[Path],
    facts: tuple[object, ...],
    folder: Path | str | None,
    name: str,
    build: Callable[[Path], None],
) -> Path:
    """Return what was built of the same files and facts before, or build it."""
    digest = hashlib.sha256(repr((metadata.version("apache-tvm-ffi"), facts)).encode())
    for source in files:
        try:
            content = source.read_bytes()
        except OSError as error:
            raise ToolchainError("A source cannot be read.", where=str(source)) from error
        digest.update(f"{source.name} {len(content)} ".encode() + content)
    made = Path(folder or cache_dir() / "native") / digest.hexdigest()[:24] / name
    if only_own(made):
        return made
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        made.parent.chmod(0o755)  # a new folder can be one that the group may write
        if made.exists() and not only_own(made):
            made.unlink()  # `whole` would give the new file the permissions of the old one
        with whole(made) as part:
            build(part)
            part.chmod(0o755)
    except OSError as error:
        raise ToolchainError(
            f"The folder for built libraries cannot be written: {error.strerror}.",
            where=str(made.parent),
            fix="Make it writable, or set TVMLAB_CACHE to another folder.",
        ) from error
    return made


def load_extension(path: Path | str) -> Any:
    """Load a shared library whose functions were exported with tvm-ffi's macros.

    Parameters
    ----------
    path : path
        The library. One that this process has loaded from the same path is not read again, even
        if the file has changed since: that is how `dlopen` works. Load a copy, or start anew.

    Returns
    -------
    tvm_ffi.Module
        The exported functions are its attributes.

    Raises
    ------
    ToolchainError
        If the file is missing, damaged, or needs a library that cannot be found.
    """
    path = Path(path).resolve()
    if not path.is_file():
        raise ToolchainError("There is no such library.", where=str(path), fix="Build it first.")
    import tvm_ffi

    try:
        return tvm_ffi.load_module(path)
    except Exception as error:  # whatever dlopen has to say, through tvm-ffi's error classes
        text = str(error).strip()
        raise ToolchainError(
            f"The library cannot be loaded: {text.splitlines()[-1] if text else error!r}",
            where=str(path),
            fix="Build it again, for this machine and this tvm-ffi.",
        ) from error


def tvm_ffi_source() -> Path:
    """Find the source package of tvm-ffi that `make setup` fetched.

    Returns
    -------
    Path
        The archive, its SHA-256 checked just now.

    Raises
    ------
    ToolchainError
        If it is missing or is another file; it says how to get it.
    """
    version = FFI_SOURCE.removeprefix("apache_tvm_ffi-").removesuffix(".tar.gz")
    return fetched(
        FFI_SOURCE,
        FFI_SHA256,
        what="The source of tvm-ffi",
        fix="Run `make setup`, or with a network: pip download --no-deps --no-binary "
        f"apache-tvm-ffi --dest {shlex.quote(str(fetched_folder()))} apache-tvm-ffi=={version}",
    )


def unpack(archive: Path | str, folder: Path | str) -> Path:
    """Unpack a source archive.

    Parameters
    ----------
    archive : path
        A tar file, compressed or not, with one folder at its top.
    folder : path
        Where the top folder goes.

    Returns
    -------
    Path
        The unpacked top folder.

    Raises
    ------
    ToolchainError
        If the archive is damaged, or the folder cannot be written.
    """
    try:
        with tarfile.open(archive) as tar:
            # Python 3.11.2, which Debian 12 has, knows no filters.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            top = Path(tar.getnames()[0]).parts[0]
            tar.extractall(folder)
    except (OSError, EOFError, IndexError, tarfile.TarError) as error:
        raise ToolchainError(
            f"The archive cannot be unpacked: {error}", where=str(archive), fix="Fetch it again."
        ) from error
    return Path(folder) / top


class Machine(dict[str, str]):
    """A report about a machine, one entry for each property; `print` it for a table."""

    def __str__(self) -> str:
        """Lay the entries out in two columns."""
        width = max(map(len, self))
        return "\n".join(f"{name:<{width}}  {value}" for name, value in self.items())


def machine() -> Machine:
    """Report the processor, the memory, the GPUs, the build tools and the packages.

    Returns
    -------
    Machine
        The report. A missing tool or package is an entry of the report, not an error.
    """
    import tvm  # Here and below, because the rest of this module works without TVM.

    from .host import main_memory, physical_cores, system_processor

    cores, memory = physical_cores(), main_memory()
    gpus = [name for name in _DEVICES if tvm.device(name, 0).exist]
    return Machine(
        {
            "system": f"{platform.system()} {platform.machine()}, "
            f"Python {platform.python_version()}",
            "processor": f"{system_processor()}, {several(cores, 'core')}",
            "memory": "unknown" if memory is None else f"{memory / 2**30:.1f} GiB",
            "free disk": f"{shutil.disk_usage(tempfile.gettempdir()).free / 2**30:.1f} GiB",
            "GPU": ", ".join(gpus) or "none that TVM can use",
            **{name: _tool(name, minimum) for name, minimum in _TOOLS.items()},
            **{name: _package(name) for name in _PACKAGES},
        }
    )


def _tool(name: str, minimum: tuple[int, ...]) -> str:
    try:
        return ".".join(map(str, find_tool(name, minimum=minimum).version))
    except ToolchainError as error:
        return f"{error.what} {error.fix}"


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
