"""Tensors as TVM saves them: in the metadata section of Relay's text, and in ``.params`` files.

A header of 8-byte magic, 8 reserved bytes, device, number of dimensions and dtype; the dimensions;
the number of bytes; the bytes. The format is that of `SaveDLTensor` in TVM's `tensor.h`.

TVM's own reader of parameter files hangs on a damaged one, which is why there is one here.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from ...errors import RelayError

Array = np.ndarray[Any, np.dtype[Any]]

_MAGIC = 0xDD5E40F096B4A13F
_PARAMS_MAGIC = 0xF7E58D4F05049CB7
_HEADER = struct.Struct("<QQiiiBBH")
_CPU = 1
_MOST_DIMENSIONS = 32  # more than any operator takes, and no more than any NumPy takes
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
    """Make what Relay writes before the bytes of a tensor."""
    code = _CODES.get(array.dtype)
    if code is None:
        raise RelayError(
            f"Relay has no tensors of {array.dtype}",
            fix="cast it to one of " + ", ".join(sorted(str(dtype) for dtype in _CODES)),
        )
    start = _HEADER.pack(_MAGIC, 0, _CPU, 0, array.ndim, *code, 1)
    return start + struct.pack(f"<{array.ndim + 1}q", *array.shape, array.nbytes)


def read(data: bytes, start: int = 0) -> tuple[Array, int]:
    """Read a tensor at an index, as a read-only view of the data, and return where it ends.

    A damaged one is refused with ValueError or struct.error: a header cannot ask for more memory
    than the data has.
    """
    magic, _, _, _, ndim, kind, bits, lanes = _HEADER.unpack_from(data, start)
    start += _HEADER.size
    if magic != _MAGIC:
        raise ValueError(f"A tensor starts with {_MAGIC:016x}, not with {magic:016x}")
    dtype = _DTYPES.get((kind, bits))
    if dtype is None or lanes != 1:
        raise ValueError(f"No dtype has the code {kind} with {bits} bits and {lanes} lanes")
    if not 0 <= ndim <= _MOST_DIMENSIONS:
        raise ValueError(f"A tensor cannot have {ndim} dimensions")
    *shape, stated = struct.unpack_from(f"<{ndim + 1}q", data, start)
    start += 8 * (ndim + 1)
    count = math.prod(shape)
    end = start + count * dtype.itemsize
    if min(shape, default=0) < 0 or stated != end - start:
        raise ValueError(f"A tensor of {dtype} with the shape {shape} cannot have {stated} bytes")
    if end > len(data):
        raise ValueError(f"A tensor has {stated} bytes, and {len(data) - start} are left")
    return np.frombuffer(data, dtype, count, start).reshape(shape), end


def load_params(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a file of parameters, which `tvm.runtime.save_param_dict` wrote.

    Raises
    ------
    RelayError
        The file is missing, cannot be read, is damaged or holds something else.
    """
    fix = "save it again with tvm.runtime.save_param_dict, and copy it as binary"
    try:
        return _read_params(Path(path).read_bytes())
    except OSError as wrong:
        what, fix = f"The parameters cannot be read: {wrong}", "give the path of a .params file"
    except (ValueError, struct.error) as wrong:
        what = f"The parameters cannot be read: {wrong}"
    raise RelayError(what, where=str(path), fix=fix)


def _read_params(data: bytes) -> dict[str, Array]:
    """Read 8-byte magic, 8 reserved bytes, a list of names and a list of tensors."""
    magic, _, count = struct.unpack_from("<QQQ", data)
    if magic != _PARAMS_MAGIC:
        raise ValueError(f"Parameters start with {_PARAMS_MAGIC:016x}, and these with {magic:016x}")
    position = 24
    names: list[str] = []
    for _ in range(count):  # ends with the data at the latest: a name has eight bytes or more
        (size,) = struct.unpack_from("<Q", data, position)
        position += 8 + size
        if position > len(data):
            raise ValueError(f"A name has {size} bytes, more than are left")
        names.append(data[position - size : position].decode())
    (tensors,) = struct.unpack_from("<Q", data, position)
    position += 8
    if tensors != count or len(set(names)) != count:
        raise ValueError(f"There are {count} names, {len(set(names))} of them different, and "
                         f"{tensors} tensors")  # fmt: skip
    params: dict[str, Array] = {}
    for name in names:
        params[name], position = read(data, position)
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes follow behind the last parameter")
    return params
