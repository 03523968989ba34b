"""Run packages without Python: the C++ program of `native/deploy`, for any processor.

The program needs the headers and the library of tvm-ffi, and TVM's runtime, from pip's wheels.
"""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

from ..errors import ToolchainError
from ..support import toolchain
from ..support.data import cache_dir

__all__ = ["NATIVE", "packages", "program"]

#: The folder of the program's sources and CMakeLists.txt.
NATIVE = Path(__file__).resolve().parents[1] / "native" / "deploy"

_WANTED = ("tvm/lib/libtvm_runtime.so", "tvm_ffi/lib/libtvm_ffi.so", "tvm_ffi/include/")


def program(
    name: str = "deploy",
    *,
    cross_compiler: str | None = None,
    packages: Path | str | None = None,
    folder: Path | str | None = None,
) -> Path:
    """Build a program that runs packages, or reuse an earlier build; return its path.

    Parameters
    ----------
    name : {"deploy", "smallest"}
        ``"deploy"`` checks a package, reads inputs from ``.npy`` files and prints the top classes
        and the time; ``"smallest"`` is a minimal program to copy and extend.
    cross_compiler : str, optional
        The C++ compiler for another kind of processor, such as ``"aarch64-linux-gnu-g++"``.
    packages : path, optional
        The folder with ``tvm`` and ``tvm_ffi`` for the processor, see `packages`; by default
        those that this Python uses.
    folder : path, optional
        Where programs are kept, as in `tvmlab.toolchain.build_with_cmake`.

    Raises
    ------
    ToolchainError
        A compiler, CMake or Ninja is missing, or building fails.
    """
    options = []
    if packages is not None:
        options.append(f"-DPACKAGES={Path(packages).resolve()}")
    if cross_compiler is not None:
        tool = toolchain.find_tool(cross_compiler)
        # A system name that differs from this machine's tells CMake not to run what it builds.
        processor = tool.path.name.partition("-")[0]
        options += [
            f"-DCMAKE_CXX_COMPILER={tool.path}",
            "-DCMAKE_SYSTEM_NAME=Linux",
            f"-DCMAKE_SYSTEM_PROCESSOR={processor}",
        ]
    return toolchain.build_with_cmake(
        NATIVE, name=name, options=options, folder=folder, program=True
    )


def packages(processor: str, *, folder: Path | str | None = None) -> Path:
    """Unpack TVM's runtime for another processor out of the wheels that `make cross` fetched.

    Returns the folder with ``tvm/lib``, ``tvm_ffi/lib`` and ``tvm_ffi/include``.

    Parameters
    ----------
    processor : str
        The first part of its triple: ``"aarch64"``.
    folder : path, optional
        Where to unpack; in the cache folder (`tvmlab.data.cache_dir`) if not given.

    Raises
    ------
    ToolchainError
        A wheel is missing or damaged, or the folder cannot be written.
    """
    fetched = Path(sys.prefix, "share", "tvmlab")
    versions = {name: version(name.replace("_", "-")) for name in ("apache_tvm", "apache_tvm_ffi")}
    names = [f"{name}-{number}-*_{processor}.whl" for name, number in versions.items()]
    wheels = [path for name in names for path in fetched.glob(name)]
    if len(wheels) != 2:
        what = f"TVM's runtime for the processor {processor!r} is missing."
        fix = "Run `make cross`, which fetches that of aarch64; this machine's own is installed."
        raise ToolchainError(what, where=str(fetched), fix=fix)
    # The name contains the checksum of the contents, so that they are unpacked only once.
    place = Path(folder or cache_dir() / "runtime") / wheels[0].stem
    try:
        if not (place / "whole").is_file():
            for wheel in wheels:
                with zipfile.ZipFile(wheel) as archive:
                    wanted = [name for name in archive.namelist() if name.startswith(_WANTED)]
                    archive.extractall(place, wanted)
            (place / "whole").touch()
    except (OSError, zipfile.BadZipFile) as error:
        what = f"The runtime cannot be unpacked: {error}"
        fix = "Run `make cross` again, and set TVMLAB_CACHE to a folder that can be written."
        raise ToolchainError(what, where=str(place), fix=fix) from error
    return place
