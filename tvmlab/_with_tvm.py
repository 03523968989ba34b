"""What comes with TVM: TVMScript reads operators of ours from the moment that both are imported.

A module that was printed with ``R.qnn.conv2d(...)`` is read again by a process that has imported
`tvm` and `tvmlab`, whichever came first, and neither has to wait for the other.

And what need not come with it: PyTorch.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["follow", "leave_pytorch_out"]

_DIALECT = f"{__package__}.dialect"
_left_out = False


def leave_pytorch_out() -> None:
    """Have TVM imported without PyTorch, so that the import takes less time.

    ``tvm_ffi/__init__.py`` imports PyTorch wherever it is installed, to take its tensors as they
    are. That is for the user's own processes: a command and the reader of records take none
    (workers and servers, in `_bare`, never have it). PyTorch can still be imported after TVM, and
    its tensors go through DLPack.
    """
    global _left_out
    _left_out = True


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
                with _pytorch_hidden(), _nothing_collected():
                    execute(module)
                importlib.import_module(_DIALECT)

            spec.loader.exec_module = execute_both  # type: ignore[method-assign]
        return spec


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """Look for no garbage in the block: an import makes little, and a sixth of its time is that."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _pytorch_hidden() -> Iterator[None]:
    """Have ``import torch`` fail in the block, if it is to be left out and is not there."""
    if not _left_out or "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # what Python has for such a module
    try:
        yield
    finally:
        del sys.modules["torch"]
