"""``tvm.nd``: arrays of Relay's time, which are today's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm.runtime import Tensor, cpu, cuda, device, from_dlpack

__all__ = ["NDArray", "array", "cpu", "cuda", "device", "empty", "from_dlpack", "gpu",
           "numpyasarray"]  # fmt: skip

NDArray = Tensor
gpu = cuda


def array(arr: Any, device: Any = None, mem_scope: str | None = None, **old: Any) -> Tensor:
    """Make a tensor of an array.

    Parameters
    ----------
    arr : numpy.ndarray, tvm.runtime.Tensor, number or sequence
        What is copied.
    device : tvm.runtime.Device, optional
        Where to; the CPU where it is left out. Until 2021 it was called ``ctx``.
    mem_scope : str, optional
        The memory.
    """
    return tvm.runtime.tensor(arr, device or old.pop("ctx", None) or cpu(), mem_scope, **old)


def empty(
    shape: Sequence[int], dtype: str = "float32", device: Any = None, mem_scope: str | None = None
) -> Tensor:
    """Make a tensor whose content is not set."""
    return tvm.runtime.empty(tuple(shape), dtype, device or cpu(), mem_scope)


def numpyasarray(np_data: Any) -> Tensor:
    """Make a tensor of a NumPy array."""
    return array(np_data)
