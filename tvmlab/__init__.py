"""A workbook about Apache TVM, and the small package behind it.

The way data flows: `load` a model into Relax, rewrite it with any pass, `compile` it, call it;
`tune` it first to compile with what was measured.
"""

from importlib import import_module
from typing import Any

from . import bench, data, errors, models, native, plot, schedule, target, toolchain, tuning
from .compiler import compile
from .executable import Executable, load_executable
from .frontend import load
from .target import host_target
from .tuning import tune

__version__ = "0.1.0"
__all__ = [
    "Executable",
    "bench",
    "compile",
    "data",
    "errors",
    "host_target",
    "load",
    "load_executable",
    "models",
    "native",
    "plot",
    "schedule",
    "target",
    "toolchain",
    "tune",
    "tuning",
]


def __getattr__(name: str) -> Any:
    """Import, when they are first asked for, the packages that not everybody needs."""
    if name in ("npu", "profiling", "relay"):
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
