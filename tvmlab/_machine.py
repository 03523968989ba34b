"""What this machine has: the report of notebook 00."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ._telling import several
from .errors import ToolchainError

#: Tools that notebooks need, and the oldest version that will do.
TOOLS: dict[str, tuple[int, ...]] = {"g++": (), "make": (), "cmake": (3, 26), "ninja": ()}

PACKAGES = ("apache-tvm", "apache-tvm-ffi", "numpy", "onnx", "onnxruntime", "torch")

#: TVM's names of the devices that are looked for.
DEVICES = ("cuda", "rocm", "opencl", "metal", "vulkan")


@dataclass(frozen=True)
class Machine:
    """A report about a machine; `print` it for a table.

    Attributes
    ----------
    system : str
        Operating system, architecture, Python's version.
    cpu : str
        LLVM's name of the processor.
    cores : int
        Physical cores that this process may use.
    memory : int or None
        Bytes of main memory; None where the system does not say.
    disk : int
        Bytes free in the folder for temporary files.
    gpus : tuple of str
        Kinds of devices, by TVM's names, that this TVM sees and can use.
    tools : dict of str to str
        Version of each build tool, or what is wrong with it.
    packages : dict of str to str
        Version of each package, or "not installed".
    """

    system: str
    cpu: str
    cores: int
    memory: int | None
    disk: int
    gpus: tuple[str, ...]
    tools: dict[str, str]
    packages: dict[str, str]

    def rows(self) -> list[tuple[str, str]]:
        """The report as (name, value) pairs, in order.

        Returns
        -------
        list of (str, str)
            One pair a line of the table.
        """
        return [
            ("system", self.system),
            ("processor", f"{self.cpu}, {several(self.cores, 'core')}"),
            ("memory", "unknown" if self.memory is None else f"{self.memory / 2**30:.1f} GiB"),
            ("free disk", f"{self.disk / 2**30:.1f} GiB"),
            ("GPU", ", ".join(self.gpus) or "none that TVM can use"),
            *self.tools.items(),
            *self.packages.items(),
        ]

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def machine() -> Machine:
    """Look at this machine: processor, memory, GPU, tools and versions.

    Returns
    -------
    Machine
        The report. Nothing in it is an error: what is missing is said to be missing.
    """
    import tvm
    from tvm.target import codegen

    from .target import physical_cores

    gpus = tuple(name for name in DEVICES if tvm.device(name, 0).exist)
    return Machine(
        system=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        cpu=str(codegen.llvm_get_system_cpu()),
        cores=physical_cores(),
        memory=_memory(),
        disk=shutil.disk_usage(tempfile.gettempdir()).free,
        gpus=gpus,
        tools={name: _tool(name, minimum) for name, minimum in TOOLS.items()},
        packages={name: _package(name) for name in PACKAGES},
    )


def _memory() -> int | None:
    """Bytes of memory, the limit of a container (cgroup v2) where that is less."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def _tool(name: str, minimum: tuple[int, ...]) -> str:
    from .toolchain import find_tool

    try:
        return ".".join(map(str, find_tool(name, minimum=minimum).version))
    except ToolchainError as error:
        return f"{error.what.rstrip('.')}. {error.fix or ''}".strip()


def _package(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
