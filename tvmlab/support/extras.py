"""Optional dependencies, imported on first use."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import ToolchainError


def need(module: str, *, extra: str) -> Any:
    """Import a module such as ``"onnx"`` that the package's extra `extra` installs.

    Raises `ToolchainError` with the install command if the module is missing.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        what = f"the Python package {error.name!r} is not installed"
        fix = f"pip install 'tvmlab[{extra}]'"
        raise ToolchainError(what, where=f"needed for {module}", fix=fix) from error
