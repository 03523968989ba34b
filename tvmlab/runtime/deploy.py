"""Running packages without Python: the C++ program of `native/deploy`, for any processor.

The program needs the headers of tvm-ffi, its library, and TVM's runtime, which the wheels that
`pip` installs contain. For another processor they come from the wheels for that processor.
"""

from __future__ import annotations

import hashlib
import platform
import zipfile
from pathlib import Path

from ..errors import ToolchainError
from ..support import toolchain
from ..support.data import cache_dir, fetched

__all__ = ["NATIVE", "packages", "program"]

#: The folder of the program's sources and CMakeLists.txt.
NATIVE = Path(__file__).resolve().parents[1] / "native" / "deploy"

#: The wheels for another processor, by the first part of its triple, with their SHA-256. Which
#: Python the second one is for does not matter: only its headers and its library are used.
WHEELS = {
    "aarch64": {
        "apache_tvm-0.27.0.post1-py3-none-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl": (
            "4acfdb7653e4e1ba7a707bdf2833db72eb8fda7d04d99141f2a4e1da43171fb7"
        ),
        "apache_tvm_ffi-0.1.14.post1-cp312-cp312-manylinux_2_24_aarch64.manylinux_2_28_aarch64"
        ".whl": "3fd2255a2e363a40c51ec1eeedb1110a2c74e443f95ae351ee5a81b5ff6808cf",
    }
}
_WANTED = ("tvm/lib/libtvm_runtime.so", "tvm_ffi/lib/libtvm_ffi.so", "tvm_ffi/include/")


def program(
    name: str = "deploy",
    *,
    cross_compiler: str | None = None,
    packages: Path | str | None = None,
    folder: Path | str | None = None,
) -> Path:
    """Build a program that runs packages; reuse what was built before.

    Parameters
    ----------
    name : {"deploy", "smallest"}
        ``"deploy"`` checks a package, reads inputs from ``.npy`` files and prints the top classes
        and the time; without arguments it prints its options. ``"smallest"`` is the least that
        works, to be copied.
    cross_compiler : str, optional
        The C++ compiler for another kind of processor, such as ``"aarch64-linux-gnu-g++"``.
    packages : path, optional
        The folder with ``tvm`` and ``tvm_ffi`` for the processor, see `packages`; those that this
        Python uses where it is left out.
    folder : path, optional
        Where programs are kept, as of `tvmlab.toolchain.build_with_cmake`.

    Returns
    -------
    pathlib.Path
        The program. It finds TVM's libraries where they are now.

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
        # That it differs from this machine's is how CMake knows not to run what it builds.
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

    Parameters
    ----------
    processor : str
        The first part of its triple: ``"aarch64"``.
    folder : path, optional
        Where to unpack; in the cache folder (`tvmlab.data.cache_dir`) if not given.

    Returns
    -------
    pathlib.Path
        A folder with ``tvm/lib``, ``tvm_ffi/lib`` and ``tvm_ffi/include``.

    Raises
    ------
    ToolchainError
        A wheel is missing or is another file, or the folder cannot be written.
    """
    if processor not in WHEELS:
        raise ToolchainError(
            f"There is no runtime to fetch for the processor {processor!r}.",
            where="tvmlab.deploy.packages",
            fix=f"Choose one of {', '.join(WHEELS)}; this machine's own ({platform.machine()}) "
            "is installed.",
        )
    if folder is None:
        folder = cache_dir() / "runtime"
    # Named after what is in it: unpacked once.
    digest = hashlib.sha256(repr((WHEELS[processor], _WANTED)).encode()).hexdigest()[:16]
    place = Path(folder) / f"{processor}-{digest}"
    if (place / "whole").is_file():
        return place
    try:
        for name, sha256 in WHEELS[processor].items():
            _unpack(fetched(name, sha256, fix="Run `make cross`, which fetches it."), place)
        (place / "whole").touch()
    except (OSError, zipfile.BadZipFile) as error:
        raise ToolchainError(
            f"The runtime cannot be unpacked: {error}",
            where=str(place),
            fix="Make the folder writable, or set TVMLAB_CACHE to another one.",
        ) from error
    return place


def _unpack(wheel: Path, place: Path) -> None:
    """Unpack the wanted files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        wanted = [name for name in archive.namelist() if name.startswith(_WANTED)]
        archive.extractall(place, wanted)
