"""What comes with TVM: TVMScript reads operators of ours from the moment that both are imported.

A module that was printed with ``R.qnn.conv2d(...)`` is read again by a process that has imported
`tvm` and `tvmlab`, whichever came first, and neither has to wait for the other.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["follow"]

_DIALECT = f"{__package__}.dialect"


def follow() -> None:
    """Import our operators' dialect: now if TVM is there, else when TVM has been imported."""
    if sys.modules.get("tvm"):
        importlib.import_module(_DIALECT)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds TVM where the others find it, once, and has the dialect follow."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "tvm":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_both(module: ModuleType) -> None:
                execute(module)
                importlib.import_module(_DIALECT)

            spec.loader.exec_module = execute_both  # type: ignore[method-assign]
        return spec
