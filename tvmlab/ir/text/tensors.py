"""Tensors as TVM saves them: in the metadata section of Relay's text, and in files of parameters.

A header of 8-byte magic, 8 reserved bytes, device, number of dimensions and dtype; the dimensions;
the number of bytes; the bytes. What says so in TVM is `SaveDLTensor` in `tensor.h` (`ndarray.h` up
to 0.20).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from ...errors import RelayError

Array = np.ndarray[Any, np.dtype[Any]]

_MAGIC = 0xDD5E40F096B4A13F
_HEADER = struct.Struct("<QQiiiBBH")
_SIZE = struct.Struct("<q")
_CPU = 1
_MOST_DIMENSIONS = 32  # more than any operator knows, and no more than any NumPy takes
_DTYPES: dict[tuple[int, int], np.dtype[Any]] = {
    **{(0, bits): np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{(1, bits): np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{(2, bits): np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (6, 8): np.dtype(bool),
    # Relay's bool is an integer of one bit. It stands last, so that `header` writes it.
    (1, 1): np.dtype(bool),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


def header(array: Array) -> bytes:
    """Make what Relay writes before the bytes of a tensor.

    Parameters
    ----------
    array : numpy.ndarray
        The tensor.

    Raises
    ------
    RelayError
        The dtype is none of Relay's.
    """
    code = _CODES.get(array.dtype)
    if code is None:
        raise RelayError(
            f"Relay has no tensors of {array.dtype}",
            fix="cast it to one of " + ", ".join(sorted(str(dtype) for dtype in _CODES)),
        )
    start = _HEADER.pack(_MAGIC, 0, _CPU, 0, array.ndim, *code, 1)
    return start + struct.pack(f"<{array.ndim}q", *array.shape) + _SIZE.pack(array.nbytes)


def read(data: bytes, start: int, fail: Callable[[str], RelayError]) -> tuple[Array, int]:
    """Read a tensor.

    Parameters
    ----------
    data : bytes
        What holds it.
    start : int
        Where in it the tensor starts.
    fail : callable
        ``fail(what)`` makes the error to raise.

    Returns
    -------
    array : numpy.ndarray
        A view of `data`, which cannot be written to: nothing is allocated because a header says so.
    end : int
        Where it ends.
    """
    if len(data) - start < _HEADER.size:
        raise fail(f"A tensor's header has {_HEADER.size} bytes, and {len(data) - start} are left")
    magic, _, _, _, ndim, kind, bits, lanes = _HEADER.unpack_from(data, start)
    start += _HEADER.size
    if magic != _MAGIC:
        raise fail(f"A tensor starts with {_MAGIC:016x}, not with {magic:016x}")
    dtype = _DTYPES.get((kind, bits))
    if dtype is None or lanes != 1:
        raise fail(f"No dtype has the code {kind} with {bits} bits and {lanes} lanes")
    if not 0 <= ndim <= _MOST_DIMENSIONS:
        raise fail(f"A tensor cannot have {ndim} dimensions")
    if len(data) - start < (ndim + 1) * _SIZE.size:
        raise fail(f"A tensor of {ndim} dimensions ends before it has said them")
    *shape, stated = struct.unpack_from(f"<{ndim + 1}q", data, start)
    start += (ndim + 1) * _SIZE.size
    count = math.prod(shape)
    needed = count * dtype.itemsize
    if min(shape, default=0) < 0 or stated != needed:
        raise fail(f"A tensor of {dtype} with the shape {shape} cannot have {stated} bytes")
    if len(data) - start < needed:
        raise fail(f"A tensor has {needed} bytes, and {len(data) - start} are left")
    return np.frombuffer(data, dtype, count, start).reshape(shape), start + needed
