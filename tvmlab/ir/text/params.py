"""Read files of parameters, which `tvm.runtime.save_param_dict` writes as Relay did.

An 8-byte magic, 8 reserved bytes, a list of names, a list of tensors; `src/runtime/file_utils.cc`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...errors import RelayError
from . import tensors
from .tensors import Array

_MAGIC = 0xF7E58D4F05049CB7
_START = struct.Struct("<QQQ")
_COUNT = struct.Struct("<Q")


def load_param_dict(data: bytes | bytearray, where: str | None = None) -> dict[str, Array]:
    """Read parameters that TVM or Relay wrote.

    Parameters
    ----------
    data : bytes or bytearray
        The content of a ``.params`` file.
    where : str, optional
        What an error names; the file.

    Returns
    -------
    dict of str to numpy.ndarray
        Views of `data`, in its order.

    Raises
    ------
    RelayError
        Something else stands there, or a part of it: no name or tensor is taken for longer than
        what is left, however long it says that it is.
    """
    data = bytes(data)

    def fail(what: str, name: str | None = None) -> RelayError:
        what = what if name is None else f"Parameter {name!r}: {what}"
        return RelayError(
            what,
            where=where,
            fix="save it again with tvm.runtime.save_param_dict, and copy it as binary",
        )

    if len(data) < _START.size:
        raise fail(f"Parameters have {_START.size} bytes at least, and these have {len(data)}")
    magic, _, count = _START.unpack_from(data)
    if magic != _MAGIC:
        raise fail(f"Parameters start with {_MAGIC:016x}, and these with {magic:016x}")
    position = _START.size
    names: list[str] = []
    for _ in range(count):  # ends with the data at the latest: a name has eight bytes or more
        size, position = _count(data, position, fail)
        if size > len(data) - position:
            raise fail(f"A name has {size} bytes, and {len(data) - position} are left")
        try:
            names.append(data[position : position + size].decode())
        except UnicodeDecodeError as wrong:
            raise fail(f"A name is not UTF-8: {wrong}") from None
        position += size
    if len(set(names)) != count:
        raise fail("Two parameters have the same name")
    held, position = _count(data, position, fail)
    if held != count:
        raise fail(f"There are {count} names and {held} tensors")
    params: dict[str, Array] = {}
    for name in names:
        params[name], position = tensors.read(data, position, partial(fail, name=name))
    if position != len(data):
        raise fail(f"{len(data) - position} bytes follow behind the last parameter")
    return params


def load_params(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a file of parameters.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    dict of str to numpy.ndarray
        As `load_param_dict` gives them.

    Raises
    ------
    RelayError
        The file is missing, cannot be read, or holds something else.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as wrong:
        raise RelayError(
            f"The parameters cannot be read: {wrong}",
            where=str(path),
            fix="give the path of a .params file",
        ) from wrong
    return load_param_dict(data, str(path))


def _count(data: bytes, position: int, fail: Callable[[str], RelayError]) -> tuple[int, int]:
    if len(data) - position < _COUNT.size:
        raise fail(f"The parameters end after {len(data)} bytes, in the middle of the names")
    return _COUNT.unpack_from(data, position)[0], position + _COUNT.size
