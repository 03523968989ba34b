"""Numbers, strings, lists, types and names in Relay text, written and read.

A function that reads raises an error without a position; the parser adds the token's position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from ...errors import RelayError

DTYPES = frozenset(
    ["bool", "float16", "float32", "float64", "bfloat16"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""The dtypes that a tensor can have."""

MAX_RANK = 64
"""The largest number of axes of a tensor."""

MAX_NUMBERS = 10_000
"""The largest number of values in an attribute, such as the indices at which ``split`` cuts."""

# The suffix of a number, by its dtype.
_INTEGERS = {"int16": "i16", "int32": "", "int64": "i64"}
_FLOATS = {"float16": "f16", "float32": "f", "float64": "f64"}


def error_at(text: str, position: int, what: str, fix: str | None = None) -> RelayError:
    """Make an error with a position in the text: the line, the column, and the text around it."""
    position = min(position, len(text))
    line = text.count("\n", 0, position) + 1
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    left, right = max(start, position - 40), min(end, position + 60)
    shown = ("..." if left > start else "") + text[left:right] + ("..." if right < end else "")
    column = position - start + 1
    made = RelayError(what, where=f"line {line}, column {column}: {shown.strip()}", fix=fix)
    made.line, made.column = line, column
    return made


def write_scalar(value: np.ndarray[Any, Any]) -> str | None:
    """Write a constant without dimensions inline, so that it reads back as the same bits.

    Returns None for a constant that belongs in the metadata section: a dtype for which Relay has no
    literal (such as int8), an integer that Relay's reader treats as an overflow, and unusual NaNs.
    `src/support/scalars.cc` of TVM 0.18 prints six digits; this function prints as many as needed.
    """
    dtype = str(value.dtype)
    if dtype == "bool":
        return str(bool(value))
    if dtype in _INTEGERS and int(value) != -(2**63):
        return f"{int(value)}{_INTEGERS[dtype]}"
    unusual = np.isnan(value) and value.tobytes() != np.array(np.nan, dtype).tobytes()
    return None if dtype not in _FLOATS or unusual else _shortest(value[()]) + _FLOATS[dtype]


def write_attribute(value: Any) -> str | None:
    """Write the value of an attribute, or return None if Relay text has no form for it."""
    if value is None or isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, str):  # as UTF-8, with escapes for unprintable bytes
        return '"' + "".join(_ESCAPED.get(byte, chr(byte)) for byte in value.encode()) + '"'
    if isinstance(value, float):  # stored by Relay in 64 bits, with the suffix f
        return _shortest(np.float64(value)) + "f"
    if isinstance(value, (list, tuple)):
        items = _all(map(write_attribute, value))
        return None if items is None else f"[{', '.join(items)}]"
    return None


def _all(texts: Iterable[str | None]) -> list[str] | None:
    found = list(texts)
    return None if None in found else [text for text in found if text is not None]


def _shortest(value: Any) -> str:
    """Write the fewest digits that read back as the same bits, but at least six as in C++."""
    digits = np.format_float_scientific(value, trim="-").partition("e")[0]
    return f"{value:.{max(6, sum(map(str.isdigit, digits)))}g}"


def write_type(ty: ir.Type | None) -> str | None:
    """Write a type as Relay does, such as ``(Tensor[(3), float32], fn (int8) -> int8)``.

    An unknown dimension is ``?``. Returns None if the dtype or the number of dimensions is unknown,
    and for Relax's other types.
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
    """Put parts in parentheses; a single part gets the comma that makes it a tuple."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def read_literal(text: str) -> ir.GenericConst:
    """Read a literal such as ``1.5f16``, ``-300i16``, ``70000`` or ``True``.

    The suffix ``f`` is float32. A number without a suffix is int32, or int64 if it does not fit
    int32, or float32 if it has a fraction.
    """
    if text in ("True", "False"):
        return relax.const(text == "True", "bool")
    value, suffix = _read(text)
    if isinstance(value, float):
        dtype = f"float{suffix[1:] or 32}"
        most = np.finfo(dtype).max
        # The shortest digits of the largest float32 are a little larger than it.
        fits = abs(value) <= max(float(most), float(str(most))) or "n" in text
        with np.errstate(over="ignore"):
            value = np.dtype(dtype).type(value)
    else:
        small = suffix == "i" or -(2**31) <= value < 2**31
        dtype = f"int{suffix[1:]}" if suffix[1:] else "int32" if small else "int64"
        fits = np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    if not fits:
        raise RelayError(f"{text} does not fit {dtype}", fix=_FITS)
    return relax.const(value, dtype)


def read_number(text: str) -> int | float:
    """Read an attribute that is a number."""
    return _read(text)[0]


def _read(text: str) -> tuple[int | float, str]:
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise RelayError(f"{text[:40]} is not a Relay literal", fix=_SUFFIXES)
    digits, suffix = found[1], found[2] or ""
    if suffix.startswith("f") or not digits.lstrip("-").isdigit():
        return float(digits), suffix
    return read_integer(digits), suffix


def read_integer(digits: str) -> int:
    """Read a 64-bit integer."""
    if _INTEGER.fullmatch(digits.strip()) is None:
        raise RelayError(f"{digits[:40]!r} is not a valid integer", fix=_FITS)
    value = int(digits)
    if not -(2**63) <= value < 2**63:
        raise RelayError(f"{digits} does not fit int64", fix=_FITS)
    return value


def read_integers(text: str) -> list[int]:
    """Read a list of integers: ``[1, -2]``."""
    return [read_integer(item) for item in checked_list(text[1:-1].split(","))]


def checked_list(values: list[Any]) -> list[Any]:
    """Return the values of an attribute, or refuse too many values."""
    if len(values) > MAX_NUMBERS:
        raise RelayError(f"An attribute has at most {MAX_NUMBERS} values", fix="write fewer")
    return values


def read_string(quoted: str) -> str:
    r"""Replace the escapes in a string; Relay writes ``\xC3\xA9`` for the bytes of UTF-8."""

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
    """Read the type of a tensor, ``Tensor[(1, ?), float32]``, with extents as int64."""
    shape, _, dtype = text[text.index("[") + 1 : -1].rpartition(",")
    extents = [extent.strip() for extent in shape.strip()[1:-1].split(",")]
    if not extents[-1]:
        extents.pop()
    if len(extents) > MAX_RANK:
        raise RelayError(f"A tensor has at most {MAX_RANK} axes", fix="flatten it")
    return relax.TensorType([_read_extent(one) for one in extents], read_dtype(dtype.strip()))


def _read_extent(extent: str) -> Any:
    if extent == "?":
        return tirx.Var("n", "int64")
    if extent.isidentifier():
        raise RelayError(f"The extent {extent} is no integer", fix="write ? for an unknown size")
    size = read_integer(extent)
    if size < 0:
        raise RelayError(f"A tensor cannot have the extent {size}", fix="write 0 or more")
    return size


class Names:
    """Unique names like those of Relay's printer: a hint, with a number if it is taken."""

    def __init__(self) -> None:
        self.given: set[str] = set()
        self._numbers: dict[str, int] = {}

    def local(self, hint: str) -> str:
        """Return a variable's name with a % in front, based on its name in Relax.

        Letters, digits, underscores, dots and slashes stay; other characters become underscores,
        and a name that does not start with a letter gets a ``v`` in front.
        """
        name = _UNWRITTEN.sub("_", hint)
        return self._unique(f"%{name}" if name[:1].isalpha() else f"%v{name}")

    def function(self, hint: str) -> str:
        """Return the name of a module's function with an @ in front, without slashes."""
        name = _UNWRITTEN.sub("_", hint).replace("/", "_")
        return self._unique(f"@{name}" if _WORD.match(name) else f"@v{name}")

    def _unique(self, name: str) -> str:
        unique = name
        while unique in self.given:
            self._numbers[name] = self._numbers.get(name, 0) + 1
            unique = f"{name}{self._numbers[name]}"
        self.given.add(unique)
        return unique


_ESCAPED = {byte: f"\\x{byte:02X}" for byte in range(256) if not 32 <= byte < 127}
_ESCAPED |= {
    ord(a): f"\\{b}" for a, b in {'"': '"', "\\": "\\", "\t": "t", "\r": "r", "\n": "n"}.items()
}
_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_NUMBER = re.compile(
    r"(-?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|inf|nan))(f(?:16|32|64)?|i(?:8|16|32|64)?)?"
)
_INTEGER = re.compile(r"[+-]?\d{1,40}")
_FITS = "write a number that fits"
_SUFFIXES = "Relay's suffixes are f, f16, f32, f64 and i, i8, i16, i32, i64"
# A dot or slash separates parts of a name; it is never at an end or next to another.
_UNWRITTEN = re.compile(r"[^A-Za-z0-9_./]|[./](?![A-Za-z0-9_])|^[./]")
_WORD = re.compile(r"[A-Za-z_]")
