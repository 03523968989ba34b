"""Numbers, strings and lists as Relay writes them: ``1.5f``, ``3i64``, ``"NCHW"``, ``[1, 1]``."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

# The mark behind a number, and for a float the code of its bytes and how many digits always do.
_INTEGERS = {"int16": "i16", "int32": "", "int64": "i64"}
_FLOATS = {"float16": ("f16", "<e", 5), "float32": ("f", "<f", 9), "float64": ("f64", "<d", 17)}


def scalar(value: np.generic[Any] | np.ndarray[Any, Any]) -> str | None:
    """Write a constant without dimensions the way that stands inline.

    Parameters
    ----------
    value : numpy.generic or numpy.ndarray
        One number.

    Returns
    -------
    str or None
        Text that reads back as the same bits; None for what belongs into the metadata section: the
        dtypes for which Relay has no literal (int8 among them), an integer that Relay's reader
        takes for an overflow, and those not-a-numbers that are not the usual one.

    Notes
    -----
    The forms are those of `src/support/scalars.cc` of TVM 0.18, which prints six digits. Here are
    as many as the number needs, six at least.
    """
    dtype = str(value.dtype)
    if dtype == "bool":
        return str(bool(value))
    if dtype in _INTEGERS:
        number = int(value)
        return None if number == -(2**63) else f"{number}{_INTEGERS[dtype]}"
    if dtype not in _FLOATS:
        return None
    suffix, code, most = _FLOATS[dtype]
    written = _shortest(float(value), code, most)
    if written == "nan" and value.tobytes() != struct.pack(code, math.nan):
        return None
    return written + suffix


def real(value: float) -> str:
    """Write an attribute that is a real number: Relay keeps it in 64 bits and marks it with f."""
    return _shortest(value, "<d", 17) + "f"


def attribute(value: Any) -> str | None:
    """Write the value of an attribute; None where it is nothing that Relay's text can say."""
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return real(value)
    if isinstance(value, list | tuple):
        items = [attribute(item) for item in value]
        return None if None in items else f"[{', '.join(str(item) for item in items)}]"
    return None


def string(value: str) -> str:
    r"""Write a string in quotes: what is not printable ASCII as the bytes of UTF-8, ``\xC3``."""
    if value.isascii() and value.isprintable() and not _SPECIAL & set(value):
        return f'"{value}"'
    return '"' + "".join(_ESCAPED.get(byte, chr(byte)) for byte in value.encode()) + '"'


def _shortest(value: float, code: str, most: int) -> str:
    """Give the fewest digits, six at least as in C++, that stand for the same bits."""
    for digits in range(6, most):
        written = f"{value:.{digits}g}"
        try:
            if struct.unpack(code, struct.pack(code, float(written)))[0] == value:
                return written
        except OverflowError:  # rounded up to beyond the largest number
            continue
    return f"{value:.{max(most, 6)}g}"


_SPECIAL = {'"', "\\"}
_ESCAPED = {byte: f"\\x{byte:02X}" for byte in range(256) if not 32 <= byte < 127}
_ESCAPED |= {
    ord(a): f"\\{b}" for a, b in {'"': '"', "\\": "\\", "\t": "t", "\r": "r", "\n": "n"}.items()
}
