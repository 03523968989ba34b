"""Find compilers and build tools, and build C++ extensions for TVM's foreign function interface.

Tools beside the running Python take precedence over those on PATH, because a virtual environment
has its own `cmake` and `ninja`, whether or not it has been activated.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ToolchainError
from .data import cache_dir, fetched
from .files import whole
from .wording import several, table, telling

#: Flags of every extension.
FLAGS = ("-shared", "-fPIC", "-O2")

#: tvm-ffi's source package, in the version that TVM's wheel requires.
FFI_SOURCE = "apache_tvm_ffi-0.1.14.post1.tar.gz"
FFI_SHA256 = "8ebd92dc97cdcb22ab494aa252c868ddd6a9b6c89be69188562e0f236652429f"

# The tools and packages in the report of `machine`.
_TOOLS = ("g++", "make", "cmake", "ninja")
_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "onnxruntime", "torch")
_DEVICES = ("cuda", "rocm", "opencl", "metal", "vulkan")

_INSTALL = {"g++": "apt install g++", "cmake": "pip install 'cmake>=3.26'"}
_INSTALL |= {"ninja": "pip install ninja"}


class Tool(NamedTuple):
    """A program, and the first dotted number in its ``--version`` output, or an empty string."""

    path: Path
    version: str


class Completed(NamedTuple):
    """The combined standard output and errors of a command, and its duration."""

    output: str
    seconds: float


def _environment() -> dict[str, str]:
    """Return the environment for build commands: that of this process, with changes.

    Messages are in English and without colours. The variables of a parent make are removed,
    because each nested make would obey them.
    """
    # Not resolved, because the interpreter of a virtual environment is a link to another folder.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    own = {"PATH": path, "LC_ALL": "C", "TERM": "dumb"}
    if sys.prefix != sys.base_prefix:
        own["VIRTUAL_ENV"] = sys.prefix  # CMake's FindPython uses it
    # Jupyter sets these three for its kernels, and CMake, Ninja and compilers obey them.
    colour = ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR")
    above = ("MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
    return {name: text for name, text in os.environ.items() if name not in colour + above} | own


def find_tool(name: str) -> Tool:
    """Find a program, such as `g++` or `cmake`, beside the running Python or on PATH.

    Raises `ToolchainError` with the install command if it is missing.
    """
    path = shutil.which(name, path=_environment()["PATH"])
    if path is None:
        how = _INSTALL.get(name, "put its folder on PATH")
        if name.endswith("-linux-gnu-g++"):
            how = f"apt install g++-{name.removesuffix('-g++').replace('_', '-')}"
        raise ToolchainError(f"{name} is not installed.", where="PATH", fix=f"Install it: {how}.")
    try:
        found = re.search(r"\d+(\.\d+)+", run([path, "--version"], timeout=30).output)
    except ToolchainError:  # the program has no such option
        found = None
    return Tool(Path(path), found[0] if found else "")


def compiler() -> Tool:
    """Find the C++ compiler: `CXX` if it is set, else g++."""
    return find_tool(os.environ.get("CXX") or "g++")


def linker(triple: str) -> Path:
    """Find the C++ compiler that links for a triple, such as ``aarch64-none-linux-gnu``."""
    own = triple.partition("-")[0] == platform.machine()
    return compiler().path if own else find_tool(cross_linker(triple)).path


def cross_linker(triple: str) -> str:
    """Return the name of the cross compiler for a triple, such as ``aarch64-linux-gnu-g++``."""
    words = [word for word in triple.split("-") if word not in ("unknown", "pc", "none")]
    return "-".join([*words, "g++"])


def run(
    command: str | Sequence[str | Path],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> Completed:
    """Run a build command and return its output.

    Parameters
    ----------
    command : str or sequence of str
        A line for the shell (`/bin/sh`), or a program and its arguments.
    cwd : path, optional
        The folder to run in.
    env : mapping of str to str, optional
        Variables to set besides those of this process.
    timeout : float
        Seconds until the command is killed, with all its child processes.

    Returns
    -------
    Completed

    Raises
    ------
    ToolchainError
        The command cannot start, exits with another code than 0, or takes too long. The error has
        the command, the exit code and the last lines.
    """
    line = command if isinstance(command, str) else shlex.join(map(str, command))
    start = time.perf_counter()
    # A temporary file instead of a pipe: a grandchild that outlives the timeout would keep
    # a pipe open, and this process waiting.
    with tempfile.TemporaryFile() as sink:
        try:
            process = subprocess.Popen(
                command,
                shell=isinstance(command, str),
                cwd=cwd,
                env={**_environment(), **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolchainError(f"A command cannot start: {error}", where=line) from error
        try:
            how = f"with exit code {process.wait(timeout)}"
        except subprocess.TimeoutExpired:
            how = f"after {timeout:g} s, the time limit"
        finally:
            if process.returncode is None:  # timed out, or interrupted by the user
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        sink.seek(0)
        output = sink.read().decode(errors="replace")
    if process.returncode != 0:
        tail = "".join(f"\n    {text}" for text in output.splitlines()[-20:])
        what = f"A build command failed {how}{':' if tail else '.'}{tail}"
        fix = "Read the last lines of its output, above, or run the command in a shell to see all."
        raise ToolchainError(what, where=line, fix=fix)
    return Completed(output, time.perf_counter() - start)


def ffi_flags() -> tuple[list[str], list[str]]:
    """Return the compile flags and link flags, as `tvm-ffi-config` prints them."""
    from tvm_ffi import libinfo  # imported here, because it can import PyTorch

    folder = Path(libinfo.find_libtvm_ffi()).parent
    includes = [f"-I{path}" for path in libinfo.include_paths()]
    return ["-std=c++17", *includes], [f"-L{folder}", "-ltvm_ffi"]


def build_extension(
    sources: Iterable[Path | str], *, name: str = "extension", folder: Path | str | None = None
) -> Path:
    """Compile and link C++ sources against tvm-ffi in one command, or reuse an earlier build.

    Parameters
    ----------
    sources : iterable of path
        C++ files. Headers beside them count as sources, too.
    name : str
        The library's name, without `lib` and ending.
    folder : path, optional
        Where libraries are kept; by default `native` in `tvmlab.data.cache_dir`.

    Returns
    -------
    Path
        The shared library, in a folder whose name depends on contents, flags, compiler and tvm-ffi.
        If several processes request a library at once, one of them builds it and the others wait.

    Raises
    ------
    ToolchainError
        A compiler is missing, the folder cannot be written, or compiling fails.
    OSError
        A source cannot be read.
    """
    files = [Path(source).resolve() for source in sources]
    headers = sorted({header for file in files for header in file.parent.glob("*.h*")})
    cxx = compiler()
    compile_flags, link_flags = ffi_flags()

    def build(library: Path) -> None:
        run([cxx.path, *FLAGS, *compile_flags, *files, "-o", library, *link_flags])

    return _reused([*files, *headers], (FLAGS, cxx, compile_flags), folder, f"{name}.so", build)


def build_with_cmake(
    source: Path | str,
    *,
    name: str,
    options: Sequence[str] = (),
    folder: Path | str | None = None,
    program: bool = False,
) -> Path:
    """Build a CMake project against tvm-ffi, or reuse a build as `build_extension` does.

    `name` is a target in the CMakeLists.txt of the folder `source`: a library without `lib`, or a
    `program`. All files in the folder count as sources. `options` are further CMake options.
    """
    cxx, cmake, ninja = compiler(), find_tool("cmake"), find_tool("ninja")
    file = name if program else f"{name}.so"

    def build(made: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            # On the command line, so that environment variables cannot change the build.
            tools = [f"-DCMAKE_CXX_COMPILER={cxx.path}", f"-DCMAKE_MAKE_PROGRAM={ninja.path}"]
            tools += ["-DCMAKE_BUILD_TYPE=Release"]
            run([cmake.path, "-S", source, "-B", work, "-G", "Ninja", *tools, *options])
            run([cmake.path, "--build", work, "--target", name])
            shutil.copy(Path(work) / file, made)  # with its mode, so that programs are executable

    facts = (*options, cxx, cmake.version, sys.prefix)
    return _reused(sorted(Path(source).resolve().glob("*")), facts, folder, file, build)


def _reused(
    files: Sequence[Path],
    facts: tuple[object, ...],
    folder: Path | str | None,
    name: str,
    build: Callable[[Path], None],
) -> Path:
    """Return an earlier build of the same files and facts, or build it."""
    digest = hashlib.sha256(repr((metadata.version("apache-tvm-ffi"), facts)).encode())
    for source in files:
        content = source.read_bytes()
        digest.update(f"{source.name} {len(content)} ".encode() + content)
    made = Path(folder or cache_dir() / "native") / digest.hexdigest()[:24] / name
    if made.is_file():
        return made
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        with (made.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed
            if not made.is_file():  # otherwise another process built it in the meantime
                with whole(made) as part:
                    build(part)
                    part.chmod(0o755)
    except OSError as error:
        what = f"The folder for built libraries cannot be written: {error.strerror}."
        fix = "Make it writable, or set TVMLAB_CACHE to another folder."
        raise ToolchainError(what, where=str(made.parent), fix=fix) from error
    return made


def load_extension(path: Path | str) -> Any:
    """Load a shared library whose functions were exported with tvm-ffi's macros.

    Parameters
    ----------
    path : path
        The library. A process reads the same path only once, even if the file has changed.

    Returns
    -------
    tvm_ffi.Module
        The exported functions are its attributes.

    Raises
    ------
    ToolchainError
        The file is missing, damaged, or needs a library that cannot be found.
    """
    import tvm_ffi

    try:
        return tvm_ffi.load_module(Path(path).resolve())
    except Exception as error:  # dlopen's error, in one of tvm-ffi's classes
        what, fix = f"The library cannot be loaded: {telling(error)}", "Build it again, here."
        raise ToolchainError(what, where=str(path), fix=fix) from error


def tvm_ffi_source() -> Path:
    """Find the source package of tvm-ffi that `make setup` fetched, and check its SHA-256.

    Raises `ToolchainError` if it is missing, or has another SHA-256.
    """
    return fetched(FFI_SOURCE, FFI_SHA256, fix="Run `make setup`, which fetches it.")


def unpack(archive: Path | str, folder: Path | str) -> Path:
    """Unpack a source archive ``NAME.tar.gz`` that you trust; return the unpacked folder ``NAME``.

    Raises `ToolchainError` if the archive is damaged, or the folder cannot be written.
    """
    try:
        shutil.unpack_archive(archive, folder)
    except (OSError, EOFError) as error:
        raise ToolchainError(
            f"The archive cannot be unpacked: {error}", where=str(archive), fix="Fetch it again."
        ) from error
    return Path(folder) / Path(archive).name.removesuffix(".tar.gz")


def machine() -> str:
    """Report the processor, memory, GPUs, build tools and packages as a table.

    A missing tool or package is a line of the report, not an error.
    """
    import tvm  # imported here and below, because the rest of this module works without TVM
    from tvm.target import codegen

    from .host import main_memory, physical_cores

    gpus = [name for name in _DEVICES if tvm.device(name, 0).exist]
    packages = {one.name: one.version for one in metadata.distributions()}
    rows = {
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "processor": f"{codegen.llvm_get_system_cpu()}, {several(physical_cores(), 'core')}",
        "memory": f"{main_memory() / 2**30:.1f} GiB",
        "free disk": f"{shutil.disk_usage(tempfile.gettempdir()).free / 2**30:.1f} GiB",
        "GPU": ", ".join(gpus) or "none that TVM can use",
        **{name: _tool(name) for name in _TOOLS},
        **{name: packages.get(name, "not installed") for name in _PACKAGES},
    }
    first, *others = rows.items()
    return table(first, others, left=(0, 1))


def _tool(name: str) -> str:
    try:
        return find_tool(name).version
    except ToolchainError as error:
        return f"{error.what} {error.fix}"
