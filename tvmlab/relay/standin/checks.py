"""What ``tvm.testing`` had for tests of Relay's time: marks and parameters for pytest."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import tvm

__all__ = [
    "exclude_targets",
    "known_failing_targets",
    "parametrize_targets",
    "requires_cuda",
    "requires_gpu",
    "requires_llvm",
    "requires_package",
    "uses_gpu",
]


def _mark(condition: bool, reason: str, *given: Any) -> Any:
    """Skip a test where a condition holds; with or without brackets behind the name."""
    import pytest

    mark = pytest.mark.skipif(condition, reason=reason)
    return mark(given[0]) if given else mark


def requires_llvm(*given: Any) -> Any:
    """Need LLVM, which every wheel has."""
    return _mark(False, "", *given)


def requires_gpu(*given: Any) -> Any:
    """Need a GPU."""
    return _mark(not tvm.cuda().exist, "there is no GPU", *given)


requires_cuda = requires_gpu


def uses_gpu(*given: Any) -> Any:
    """Say that a test may use a GPU."""
    return _mark(False, "", *given)


def requires_package(*packages: str) -> Callable[[Any], Any]:
    """Need Python packages."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    mark: Callable[[Any], Any] = _mark(bool(missing), f"missing: {', '.join(missing)}")
    return mark


def parametrize_targets(*given: Any) -> Any:
    """Run a test for each target: here for ``llvm``, and for what this machine has of those named.

    The test takes ``target``, and ``dev``, as parameters.
    """
    import pytest

    names = [name for name in given if isinstance(name, str)] or ["llvm"]
    usable = [name for name in names if tvm.testing.device_enabled(name.partition(" ")[0])]
    pairs = [(name, tvm.device(name.partition(" ")[0])) for name in usable or ["llvm"]]
    mark = pytest.mark.parametrize(("target", "dev"), pairs)
    return mark(given[0]) if given and callable(given[0]) else mark


def exclude_targets(*_: str) -> Callable[[Any], Any]:
    """Leave targets out: here there is ``llvm`` alone."""
    return lambda function: function


known_failing_targets = exclude_targets
