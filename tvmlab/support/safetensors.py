"""Read and write the safetensors format: named arrays in one file, and nothing that can run.

A file is the length of its header in 8 bytes (little endian), the header in JSON, which maps each
name to its dtype, shape and place, and then the numbers, which fill the rest without gaps.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ModelError
from .files import written

__all__ = ["read", "write"]

_DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16"},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "BOOL": "bool",
}
_NAMES = {name: code for code, name in _DTYPES.items()}
# Where the numbers of a tensor begin and end.
_ENDS = 2
# The format's own limit of a header, in bytes.
_HEADER = 100_000_000


def read(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file.

    Parameters
    ----------
    path : path
        The file. Numbers of bfloat16 are returned as float32, which holds them exactly.

    Returns
    -------
    dict of str to numpy.ndarray
        Arrays that own their memory, in the order of the file.

    Raises
    ------
    ModelError
        The file is missing, is truncated, or does not follow the format.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise _bad(path, f"the file cannot be read: {error.strerror}") from error
    start = 8 + int.from_bytes(content[:8], "little")
    if len(content) < 8 or start > len(content) or start > _HEADER:
        raise _bad(path, f"the header ends at byte {start:,}, but the file has {len(content):,}")
    try:
        header = json.loads(content[8:start])
    except (ValueError, RecursionError) as error:
        raise _bad(path, "the header is not JSON") from error
    if not isinstance(header, dict):
        raise _bad(path, "the header is not a list of tensors")
    header.pop("__metadata__", None)
    entries = {name: _entry(path, name, one) for name, one in header.items()}
    end, found = 0, {}
    numbers = memoryview(content)[start:]
    for name, (code, shape, first, last) in sorted(entries.items(), key=lambda one: one[1][2:]):
        dtype = np.dtype(_DTYPES.get(code, "uint16"))
        if code not in _DTYPES and code != "BF16":
            raise _bad(path, f"tensor {name!r} has the dtype {code!r}, which is not supported")
        if first != end or last - first != math.prod(shape) * dtype.itemsize:
            raise _bad(path, f"tensor {name!r} is not where the header says")
        if last > len(numbers):
            what = f"the file is truncated: tensor {name!r} ends at byte {start + last:,}"
            raise _bad(path, f"{what}, but the file has {len(content):,}")
        array, end = np.frombuffer(numbers[first:last], dtype), last
        if code == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        found[name] = array.reshape(shape).copy()
    if end != len(numbers):
        raise _bad(path, f"{len(numbers) - end:,} bytes follow the last tensor")
    return {name: found[name] for name in entries}


def write(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a file; `ModelError` if it fails. The same arrays give the same bytes."""
    header: dict[str, Any] = {}
    parts: list[bytes] = []
    end = 0
    for name, array in arrays.items():
        parts.append(np.ascontiguousarray(array).tobytes())
        first, end = end, end + len(parts[-1])
        code = _NAMES[str(array.dtype)]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [first, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    with written(path, ModelError) as part:
        part.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *parts]))


def _entry(
    path: str | os.PathLike[str], name: str, one: Any
) -> tuple[str, tuple[int, ...], int, int]:
    """Return the dtype, the shape and the place of a tensor; raise if they are not such."""
    given = one if isinstance(one, dict) else {}
    lists = (given.get(key) for key in ("shape", "data_offsets"))
    shape, places = (found if isinstance(found, list) else [-1] for found in lists)
    whole = all(type(number) is int and number >= 0 for number in [*shape, *places])
    if not whole or len(places) != _ENDS:
        what = f"the header of tensor {name!r} lacks a shape or two places, from 0 on"
        raise _bad(path, what)
    return str(given.get("dtype")), tuple(shape), places[0], places[1]


def _bad(path: str | os.PathLike[str], what: str) -> ModelError:
    return ModelError(what, where=str(path), fix="download or write the file again")
