"""What `import tvmlab` sets up: what it does when TVM is imported, and where modules are found.

TVMScript can read ``R.qnn.conv2d(...)`` as soon as a process has imported `tvm` and `tvmlab`, in
either order. This module imports our operators right after TVM, so that `import tvmlab`
alone stays fast.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["PROCESSORS", "alias", "follow", "leave_pytorch_out", "usable"]

_DIALECT = "tvmlab.ir.dialect"

#: Public modules by the room that they are in: ``tvmlab.bench`` is ``tvmlab.measure.bench``.
ROOMS = {
    "batch_norm": "ir",
    "bench": "measure",
    "data": "support",
    "deploy": "runtime",
    "executable": "runtime",
    "lab_tools": "support",
    "operators": "measure",
    "package": "runtime",
    "profiling": "runtime",
    "remote": "runtime",
    "target": "support",
    "toolchain": "support",
}
_left_out = False


def usable() -> tuple[int, ...]:
    """Return the numbers of the logical processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))  # macOS and Windows have no affinity


#: Read at import, because TVM's thread pool ties the main thread to some of them when it starts.
PROCESSORS = usable()


def leave_pytorch_out() -> None:
    """Import TVM without PyTorch, which saves about three seconds.

    ``tvm_ffi/__init__.py`` imports PyTorch if it is installed, so that TVM takes its tensors
    directly. The command and the reader of records take no such tensors. PyTorch can still be
    imported after TVM; its tensors then go through DLPack.
    """
    global _left_out
    _left_out = True


def follow() -> None:
    """Import our operators' dialect, now or when TVM is imported."""
    if sys.modules.get("tvm"):
        importlib.import_module(_DIALECT)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds TVM once, and imports the dialect after it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "tvm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_both(module: ModuleType) -> None:
                hidden = _left_out and "torch" not in sys.modules
                if hidden:
                    sys.modules["torch"] = None  # type: ignore[assignment]  # `import` then fails
                collects = gc.isenabled()
                gc.disable()  # Collecting garbage takes a sixth of the time of the import.
                try:
                    execute(module)
                finally:
                    if collects:
                        gc.enable()
                    if hidden:
                        del sys.modules["torch"]
                importlib.import_module(_DIALECT)

            spec.loader.exec_module = execute_both  # type: ignore[method-assign]
        return spec


def alias() -> None:
    """Let the modules of `ROOMS` be imported by their short names too."""
    sys.meta_path.insert(0, _Alias())


class _Alias:
    """Finds a module under its short name, as the very module that has the long one."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        if package != "tvmlab" or rest.partition(".")[0] not in ROOMS:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]  # two methods of it suffice

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an empty module; `exec_module` replaces it."""

    def exec_module(self, module: ModuleType) -> None:
        package, _, rest = module.__name__.partition(".")
        long = f"{package}.{ROOMS[rest.partition('.')[0]]}.{rest}"
        sys.modules[module.__name__] = importlib.import_module(long)
