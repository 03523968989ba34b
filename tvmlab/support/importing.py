"""What `import tvmlab` sets up: the processors it may use, and the short names of modules."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Public modules by the room that they are in: ``tvmlab.bench`` is ``tvmlab.measure.bench``.
ROOMS = {"batch_norm": "ir", "bench": "measure", "data": "support", "deploy": "runtime"}
ROOMS |= {"exercises": "workbook", "operators": "measure"}
ROOMS |= {"package": "runtime", "profiling": "runtime", "remote": "runtime"}
ROOMS |= {"target": "support", "toolchain": "support"}

#: The logical processors that this process may use. They are read at import, because TVM's thread
#: pool ties the main thread to some of them when it starts.
PROCESSORS = tuple(sorted(os.sched_getaffinity(0)))


def leave_pytorch_out() -> None:
    """Import TVM without PyTorch, which ``tvm_ffi`` imports if it is there: about three seconds.

    PyTorch can still be imported after TVM; its tensors then go through DLPack.
    """
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]  # `import` then fails
    gc.disable()  # Collecting garbage takes a sixth of the time of the import.
    try:
        importlib.import_module("tvm")
    finally:
        gc.enable()
        if hidden:
            del sys.modules["torch"]


class Alias:
    """Finds the modules of `ROOMS` under their short names; an instance is in `sys.meta_path`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how to import a module, or None if it is not one of `ROOMS`."""
        package, _, rest = name.partition(".")
        if package != "tvmlab" or rest.partition(".")[0] not in ROOMS:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]  # two methods of it suffice

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make an empty module; `exec_module` replaces it."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of the long name in the place of the empty one."""
        package, _, rest = module.__name__.partition(".")
        long = f"{package}.{ROOMS[rest.partition('.')[0]]}.{rest}"
        sys.modules[module.__name__] = importlib.import_module(long)
