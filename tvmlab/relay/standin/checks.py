"""What tests of Relay's time import: pytest marks of ``tvm.testing``, and `TempOpAttr`."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tvm

from .. import op

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


@contextmanager
def TempOpAttr(op_name: str, attr_key: str, attr_value: Any) -> Iterator[None]:
    """Change an attribute of an operator while a ``with`` block runs.

    Parameters
    ----------
    op_name : str
        Relay's name of the operator.
    attr_key : str
        The attribute. Today's TVM reads no attribute that begins with ``FTVM``. Such an attribute
        only causes a warning, because it changes how an operator is computed and not its result.
    attr_value : object
        The value inside the block.
    """
    if attr_key.startswith("FTVM"):
        warnings.warn(f"today's TVM does not read the attribute {attr_key!r}", stacklevel=3)
    operator = op.get(op_name)
    before = operator.get_attr(attr_key) if operator.has_attr(attr_key) else None
    operator.reset_attr(attr_key)
    operator.set_attr(attr_key, attr_value)
    try:
        yield
    finally:
        operator.reset_attr(attr_key)
        if before is not None:
            operator.set_attr(attr_key, before)
