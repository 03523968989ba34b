"""A virtual machine at work: arrays copied in to where it reads them, results copied out."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..ir import dialect as _dialect  # noqa: F401  It registers the errors that compiled code raises.
from ..ir.signature import Signature

__all__ = ["Running", "give_memory_back"]


class Running:
    """A virtual machine that has started: `main`, its device, and a place for each input.

    Parameters
    ----------
    built : tvm.relax.VMExecutable or tvm.runtime.Module
        What it runs.
    device : tvm.runtime.Device
        Where.
    signature : Signature
        What ``main`` takes.
    """

    def __init__(self, built: Any, device: Any, signature: Signature) -> None:
        self.device = device
        self.machine = relax.VirtualMachine(built, device)
        # Looked up once: a look-up costs more than the rest of a small network's call in Python.
        self.main = self.machine["main"]
        self._on_cpu = device.dlpack_device_type() == tvm.cpu().dlpack_device_type()
        self._places = [_Place(value.dtype, device, self._on_cpu) for value in signature.inputs]

    def __call__(self, arrays: list[np.ndarray]) -> Any:
        """Run ``main``: arrays in, arrays out."""
        return self._copied(self.main(*self.place(arrays)))

    def place(self, arrays: list[np.ndarray]) -> list[Any]:
        """Copy arrays to where ``main`` reads them: tensors that the next call overwrites."""
        return [place.fill(array) for place, array in zip(self._places, arrays, strict=True)]

    def _copied(self, value: Any) -> Any:
        """Copy what ``main`` returned to NumPy; tuples stay tuples, numbers numbers."""
        if isinstance(value, tvm.runtime.Tensor):
            # A copy even on the CPU: it may be an input, a constant, or in a tuple twice.
            seen = _seen_by_numpy(value) if self._on_cpu else None
            return value.numpy() if seen is None else seen.copy()
        if isinstance(value, (int, float)):
            return value
        return tuple(self._copied(item) for item in value)


class _Place:
    """Where ``main`` reads one input, call after call.

    Compiled code takes for granted that its data begins at a multiple of 64 bytes, which NumPy
    does not promise (large arrays never do), so there is hardly an array to be read where it
    is. A tensor that stays costs a small network less than a new one for each call.
    """

    def __init__(self, dtype: str, device: Any, on_cpu: bool) -> None:
        self._dtype, self._device, self._on_cpu = dtype, device, on_cpu
        self._shape: tuple[int, ...] | None = None
        self._tensor: Any = None
        self._seen: np.ndarray | None = None

    def fill(self, array: np.ndarray) -> Any:
        """Copy an array of any strides in; get the tensor."""
        if array.shape != self._shape:
            self._tensor = tvm.runtime.empty(array.shape, self._dtype, self._device)
            self._seen = _seen_by_numpy(self._tensor) if self._on_cpu else None
            self._shape = array.shape
        if self._seen is None:
            return self._tensor.copyfrom(array)
        np.copyto(self._seen, array)
        return self._tensor


def _seen_by_numpy(tensor: Any) -> np.ndarray | None:
    """Look at a tensor on the CPU as an array; None where NumPy cannot, as at bfloat16."""
    try:
        array = np.from_dlpack(tensor)
    except (RuntimeError, BufferError):
        return None
    return array if array.flags.writeable else None  # NumPy 2.0 gives arrays to read only


def give_memory_back() -> None:
    """Return to the system what compiling and loading freed and the C library keeps for later.

    For ResNet-50 that is four times its weights. Only glibc has the function, and needs it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
