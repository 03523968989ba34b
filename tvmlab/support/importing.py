"""Set up `import tvmlab`: the processors that it can use, and the short names of modules."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Public modules by room: ``tvmlab.bench`` is ``tvmlab.measure.bench``.
ROOMS = {"batch_norm": "ir", "bench": "measure", "data": "support", "deploy": "runtime"}
ROOMS |= {"exercises": "workbook", "operators": "measure"}
ROOMS |= {"package": "runtime", "profiling": "runtime", "remote": "runtime"}
ROOMS |= {"target": "support", "toolchain": "support"}

#: The logical processors that this process can use. They are read at import, because TVM's thread
#: pool pins the main thread to some of them when it starts.
PROCESSORS = tuple(sorted(os.sched_getaffinity(0)))


def leave_pytorch_out() -> None:
    """Import TVM without PyTorch, whose import by ``tvm_ffi`` takes about three seconds.

    PyTorch can still be imported after TVM; its tensors then go through DLPack.
    """
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]  # `import` then fails
    gc.disable()  # Garbage collection takes a sixth of the import time.
    try:
        importlib.import_module("tvm")
    finally:
        gc.enable()
        if hidden:
            del sys.modules["torch"]


class Alias:
    """Find the modules of `ROOMS` by their short names; an instance is in `sys.meta_path`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module, or None if it is not one of `ROOMS`."""
        package, _, rest = name.partition(".")
        if package != "tvmlab" or rest.partition(".")[0] not in ROOMS:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]  # two methods of it suffice

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python create an empty module; `exec_module` replaces it."""

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module with the module of the long name."""
        package, _, rest = module.__name__.partition(".")
        long = f"{package}.{ROOMS[rest.partition('.')[0]]}.{rest}"
        sys.modules[module.__name__] = importlib.import_module(long)
