"""Numbers, strings, lists, types and names as Relay's text has them, written and read.

A function that reads raises an error without a place; the parser adds the place of the token.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from ...errors import RelayError

DTYPES = frozenset(
    ["bool", "float16", "float32", "float64", "bfloat16"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""The dtypes that a tensor's type can have."""

MAX_RANK = 64
"""The largest number of axes of a tensor."""

MAX_NUMBERS = 10_000
"""The largest number of numbers in an attribute, such as the places where ``split`` cuts."""

# The mark behind a number, and for a float the code of its bytes and how many digits always do.
_INTEGERS = {"int16": "i16", "int32": "", "int64": "i64"}
_FLOATS = {"float16": ("f16", "<e", 5), "float32": ("f", "<f", 9), "float64": ("f64", "<d", 17)}


def write_scalar(value: np.ndarray[Any, Any]) -> str | None:
    """Write a constant without dimensions in its inline form, which reads back as the same bits.

    The result is None for what belongs into the metadata section: a dtype for which Relay has no
    literal (int8 is one), an integer that Relay's reader takes for an overflow, and unusual NaNs.

    Notes
    -----
    The forms are those of `src/support/scalars.cc` of TVM 0.18, which prints six digits. Here a
    number has as many digits as it needs, and six at least.
    """
    dtype = str(value.dtype)
    if dtype == "bool":
        return str(bool(value))
    if dtype in _INTEGERS and int(value) != -(2**63):
        return f"{int(value)}{_INTEGERS[dtype]}"
    if dtype not in _FLOATS:
        return None
    suffix, code, most = _FLOATS[dtype]
    if np.isnan(value) and value.tobytes() != struct.pack(code, math.nan):
        return None
    return _shortest(float(value), code, most) + suffix


def write_float(value: float) -> str:
    """Write an attribute that is a real number: Relay keeps it in 64 bits and marks it with f."""
    return _shortest(value, "<d", 17) + "f"


def write_attribute(value: Any) -> str | None:
    """Write the value of an attribute; return None if Relay's text has no form for it."""
    if value is None or isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, str):  # as UTF-8, where what is not printable is escaped
        return '"' + "".join(_ESCAPED.get(byte, chr(byte)) for byte in value.encode()) + '"'
    if isinstance(value, float):
        return write_float(value)
    if isinstance(value, (list, tuple)):
        items = _all(map(write_attribute, value))
        return None if items is None else f"[{', '.join(items)}]"
    return None


def _all(texts: Iterable[str | None]) -> list[str] | None:
    found = list(texts)
    return None if None in found else [text for text in found if text is not None]


def _shortest(value: float, code: str, most: int) -> str:
    """Find the fewest digits, six at least as in C++, that stand for the same bits."""
    for digits in range(6, most):
        written = f"{value:.{digits}g}"
        try:
            if struct.unpack(code, struct.pack(code, float(written)))[0] == value:
                return written
        except OverflowError:  # rounded up to beyond the largest number
            continue
    return f"{value:.{max(most, 6)}g}"


def write_type(ty: ir.Type | None) -> str | None:
    """Write a type as Relay does, such as ``(Tensor[(3), float32], fn (int8) -> int8)``.

    A dimension that is no number is ``?``. The result is None where the dtype or the number of
    dimensions is unknown, and for Relax's other types.
    """
    if isinstance(ty, relax.TensorType):
        if ty.dtype is None or str(ty.dtype) in ("", "void") or (ty.shape is None and ty.ndim < 0):
            return None
        extents = ty.shape.values if isinstance(ty.shape, relax.ShapeExpr) else [None] * ty.ndim
        sizes = [str(one.value) if isinstance(one, tirx.IntImm) else "?" for one in extents]
        return f"Tensor[({', '.join(sizes)}), {ty.dtype}]" if sizes else str(ty.dtype)
    if isinstance(ty, ir.TupleType):
        fields = _all(map(write_type, ty.fields))
        return None if fields is None else write_tuple(fields)
    if isinstance(ty, relax.FuncType) and ty.params is not None:
        params, result = _all(map(write_type, ty.params)), write_type(ty.ret)
        if params is not None and result is not None:
            return f"fn ({', '.join(params)}) -> {result}"
    return None


def write_tuple(parts: Sequence[str]) -> str:
    """Put parts between parentheses; a single part gets the comma that makes it a tuple."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def read_literal(text: str, negative: bool = False) -> ir.GenericConst:
    """Read a literal such as ``1.5f16``, ``-300i16``, ``70000`` or ``True``.

    The suffix ``f`` is float32. A number without a suffix is int32, or int64 where int32 is too
    small, or float32 if it has a fraction.
    """
    if text in ("True", "False"):
        return relax.const(text == "True", "bool")
    digits, suffix = _split(text)
    signed = f"-{digits}" if negative else digits
    if suffix.startswith("f") or (not suffix and not digits.isdigit()):
        dtype = f"float{suffix[1:] or 32}"
        with np.errstate(over="ignore"):
            value = np.dtype(dtype).type(float(signed))
        if np.isinf(value) and "inf" not in digits:
            raise RelayError(f"{text} does not fit {dtype}", fix=_FITS)
        return relax.const(value, dtype)
    number = read_integer(signed)
    small = -(2**31) <= number < 2**31
    dtype = f"int{suffix[1:]}" if suffix[1:] else "int32" if small or suffix else "int64"
    limits = np.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        raise RelayError(f"{text} does not fit {dtype}", fix=_FITS)
    return relax.const(number, dtype)


def read_number(text: str, negative: bool = False) -> int | float:
    """Read an attribute that is a number."""
    digits, suffix = _split(text)
    signed = f"-{digits}" if negative else digits
    if suffix.startswith("f") or not digits.isdigit():
        return float(signed)
    return read_integer(signed)


def read_integer(digits: str) -> int:
    """Read an integer of 64 bits."""
    digits = digits.strip()
    if _INTEGER.fullmatch(digits) is None:
        raise RelayError(f"{_short(digits)!r} is no integer here", fix=_FITS)
    value = int(digits)
    if not -(2**63) <= value < 2**63:
        raise RelayError(f"{digits} does not fit int64", fix=_FITS)
    return value


def read_integers(text: str) -> list[int]:
    """Read a list of integers: ``[1, -2]``."""
    items = text[1:-1].split(",")
    if len(items) > MAX_NUMBERS:
        raise RelayError(f"An attribute has {MAX_NUMBERS} numbers at most", fix="write fewer")
    return [read_integer(item) for item in items]


def read_string(quoted: str) -> str:
    r"""Undo the escapes of a string; Relay writes ``\xC3\xA9`` for the bytes of UTF-8."""

    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes([int(code[1:], 16)]) if len(code) == 3 else _ESCAPES.get(code, code)

    content = quoted[1:-1].encode(errors="surrogatepass")
    return _ESCAPE.sub(plain, content).decode(errors="replace")


def read_dtype(name: str) -> str:
    """Return the name of a dtype, or refuse one that a tensor cannot have."""
    if name not in DTYPES:
        raise RelayError(f"There is no dtype {name}", fix="write a dtype such as float32")
    return name


def read_tensor_type(text: str) -> relax.TensorType:
    """Read the type of a tensor, ``Tensor[(1, ?), float32]``, whose extents are int64."""
    shape, _, dtype = text[text.index("[") + 1 : -1].rpartition(",")
    extents = [extent.strip() for extent in shape.strip()[1:-1].split(",")]
    if not extents[-1]:
        extents.pop()
    if len(extents) > MAX_RANK:
        raise RelayError(f"A tensor has {MAX_RANK} axes at most", fix="flatten it")
    return relax.TensorType([_read_extent(one) for one in extents], read_dtype(dtype.strip()))


def _read_extent(extent: str) -> Any:
    if extent == "?":
        return tirx.Var("n", "int64")
    if extent.isidentifier():
        raise RelayError(f"The extent {extent} is no integer", fix="write ? for an unknown size")
    size = read_integer(extent)
    if size < 0:
        raise RelayError(f"A tensor has no extent {size}", fix="write 0 or more")
    return size


def _split(text: str) -> tuple[str, str]:
    """Split a number into its digits and its suffix."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise RelayError(f"{_short(text)} is no literal of Relay", fix=_SUFFIXES)
    return found[1], found[2] or ""


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


class Names:
    """Gives out names as Relay's printer does: the hint itself, then with a number behind it."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._heads: set[str] = set()
        self._numbers: dict[str, int] = {}

    def local(self, hint: str) -> str:
        """Name a variable by the name that it has in Relax.

        The result has letters, digits, underscores, dots and slashes; other characters become
        underscores, and a name that does not start with a letter gets a ``v`` in front. No two
        names are alike, and none is another one with a field behind it: ``x`` and ``x.0``.
        """
        name = _UNWRITTEN.sub("_", hint)
        if not name[:1].isalpha():
            name = f"v{name}"
        if self._clashes(name) and _FIELDS.search(name):
            name = name.replace(".", "_")
        return self._unique(name)

    def function(self, hint: str) -> str:
        """Name a function of the module: letters, digits, underscores and dots."""
        name = _UNWRITTEN.sub("_", hint).replace("/", "_")
        return self._unique(name if _WORD.match(name) else f"v{name}")

    def _unique(self, name: str) -> str:
        unique = name
        while self._clashes(unique):
            self._numbers[name] = self._numbers.get(name, 0) + 1
            unique = f"{name}{self._numbers[name]}"
        self._given.add(unique)
        self._heads.update(_heads(unique))
        return unique

    def _clashes(self, name: str) -> bool:
        return (
            name in self._given
            or name in self._heads
            or any(head in self._given for head in _heads(name))
        )


def _heads(name: str) -> Iterator[str]:
    """Return what is left of a name without the fields that it seems to end in."""
    while found := _FIELDS.search(name):
        name = name[: found.start()]
        yield name


_ESCAPED = {byte: f"\\x{byte:02X}" for byte in range(256) if not 32 <= byte < 127}
_ESCAPED |= {
    ord(a): f"\\{b}" for a, b in {'"': '"', "\\": "\\", "\t": "t", "\r": "r", "\n": "n"}.items()
}
_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|inf|nan)(f|f16|f32|f64|i|i8|i16|i32|i64)?")
_INTEGER = re.compile(r"[+-]?\d{1,40}")
_FITS = "write a number that fits"
_SUFFIXES = "Relay's suffixes are f, f16, f32, f64 and i, i8, i16, i32, i64"
# A dot or slash stands between the parts of a name, not at its ends nor beside another.
_UNWRITTEN = re.compile(r"[^A-Za-z0-9_./]|[./](?![A-Za-z0-9_])|^[./]")
_FIELDS = re.compile(r"\.[0-9]+$")
_WORD = re.compile(r"[A-Za-z_]")
