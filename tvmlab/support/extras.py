"""Optional dependencies, imported when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import ToolchainError


def need(module: str, *, extra: str) -> Any:
    """Import a module that belongs to one of the package's extras.

    Parameters
    ----------
    module : str
        The module, for example ``"onnx"``.
    extra : str
        The extra that installs it.

    Returns
    -------
    module

    Raises
    ------
    ToolchainError
        It is not installed; the error says how to get it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ToolchainError(
            f"the Python package {error.name!r} is not installed",
            where=f"needed for {module}",
            fix=f"pip install 'tvmlab[{extra}]'",
        ) from error
