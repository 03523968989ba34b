"""What stands for itself in Relay text: literals, types, and the values of attributes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from .lexer import Token, error
from .syntax import Node

DROPPED = object()
"""An attribute's value that says where something lies or who runs it: Relax has its own ways."""

MAX_RANK = 64
"""How many axes a tensor may have, and how many numbers stand for axes in an attribute."""

MAX_NUMBERS = 10_000
"""How many numbers an attribute may hold: the places where ``split`` cuts, at most."""


class BoxedIndex:
    """A reference to the metadata section as an attribute's value: ``meta[runtime.BoxInt][0]``."""

    def __init__(self, token: Token) -> None:
        self.token = token


def literal(text: str, token: Token, *, negative: bool = False) -> ir.GenericConst:
    """Read a literal such as ``1.5f16``, ``-300i16``, ``70000`` or ``True``.

    Returns
    -------
    ir.GenericConst
        A tensor of shape () with the dtype that the suffix says: ``f`` is float32, none is int32,
        or int64 where int32 is too small.

    Raises
    ------
    RelayError
        Where the suffix is unknown or the number does not fit its dtype.
    """
    if token.type == "BOOL":
        return relax.const(token.value == "True", "bool")
    digits, suffix = _parts(text, token)
    sign = "-" if negative else ""
    if suffix.startswith("f") or (not suffix and not digits.isdigit()):
        dtype = {"": "float32", "f": "float32"}.get(suffix, f"float{suffix[1:]}")
        number = float(sign + digits)
        with np.errstate(over="ignore"):
            value = np.dtype(dtype).type(number)
        if np.isinf(value) and "inf" not in digits:
            raise error(text, token.start, f"{token.value} does not fit {dtype}", fix=_FITS)
        return relax.const(value, dtype)
    if not digits.isdigit() or len(digits) > 40:
        raise error(text, token.start, f"{_short(token)} is no integer", fix=_FITS)
    whole = int(sign + digits)
    small = -(2**31) <= whole < 2**31
    dtype = f"int{suffix[1:]}" if suffix[1:] else "int32" if small or suffix else "int64"
    limits = np.iinfo(dtype)
    if not limits.min <= whole <= limits.max:
        raise error(text, token.start, f"{token.value} does not fit {dtype}", fix=_FITS)
    return relax.const(whole, dtype)


def read_type(text: str, node: Node | None) -> ir.Type | None:
    """Read a type.

    Returns
    -------
    tvm.ir.Type or None
        A tensor type with int64 extents, of rank 0 for a bare dtype; a tuple's or a function's;
        None for ``_`` and where nothing stands.
    """
    if node is None:
        return None
    if node.kind == "tuple_type":
        return relax.TupleType([read_type(text, item) or relax.AnyType() for item in node.items])
    if node.kind == "function_type":
        *parameters, result = [read_type(text, item) or relax.AnyType() for item in node.items]
        return relax.FuncType(parameters, result)
    token = node.token
    if token.type == "TENSOR":
        return _tensor_type(text, token)
    if token.value == "_":
        return None
    if token.value not in DTYPES:
        raise error(text, token.start, f"There is no type {token.value}", fix=_TYPES)
    return relax.TensorType([], token.value)


def attribute(text: str, node: Node) -> tuple[str, Any]:
    """Read an attribute's name and value: int, float, bool, str, None, list or `BoxedIndex`."""
    if node.items:
        return node.token.value, _value(text, node.items[0])
    name, _, value = node.token.value.partition("=")
    negative = value.startswith("-")
    kind = _KINDS.get(value[0], "NUMBER")
    start = node.token.start + len(name) + 1 + negative
    return name, _single(text, Token(kind, value[negative:], start), negative)


def _value(text: str, node: Node) -> Any:
    if node.kind == "object":
        return DROPPED
    if node.kind == "list":
        return [_value(text, item) for item in node.items]
    return _single(text, node.token, node.items[0])


def _single(text: str, token: Token, negative: bool) -> Any:
    if token.value in _WORDS:
        return _WORDS[token.value]
    if token.type == "STRING":
        return _string(token.value[1:-1])
    if token.type == "INTS":
        items = token.value[1:-1].split(",")
        if len(items) > MAX_NUMBERS:
            raise error(
                text, token.start, f"An attribute has {MAX_NUMBERS} numbers at most", fix=_FITS
            )
        return [_whole(text, token, item) for item in items]
    if token.type == "META":
        return BoxedIndex(token)
    if token.type == "NAME":
        return token.value
    digits, suffix = _parts(text, token)
    sign = "-" if negative else ""
    if suffix.startswith("f") or not digits.isdigit():
        return float(sign + digits)
    return _whole(text, token, sign + digits)


def _string(quoted: str) -> str:
    r"""Undo escapes: Relay writes the bytes of UTF-8 that are not ASCII as ``\xC3\xA9``."""
    if "\\" not in quoted:
        return quoted

    def plain(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes([int(code[1:], 16)]) if len(code) == 3 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(plain, quoted.encode(errors="surrogatepass")).decode(errors="replace")


def _tensor_type(text: str, token: Token) -> relax.TensorType:
    shape, _, dtype = token.value[token.value.index("[") + 1 : -1].rpartition(",")
    if dtype.strip() not in DTYPES:
        raise error(text, token.start, f"There is no dtype {dtype.strip()}", fix=_TYPES)
    extents = [extent.strip() for extent in shape.strip()[1:-1].split(",")]
    if extents and not extents[-1]:
        extents.pop()
    if len(extents) > MAX_RANK:
        raise error(text, token.start, f"A tensor has {MAX_RANK} axes at most", fix="flatten it")
    return relax.TensorType([_extent(text, token, one) for one in extents], dtype.strip())


def _extent(text: str, token: Token, extent: str) -> Any:
    if extent == "?":
        return tvm.tirx.Var("n", "int64")
    if extent.isidentifier():
        what = f"The extent {extent} is no integer"
        raise error(text, token.start, what, fix="a size that is not known is written ?")
    size = _whole(text, token, extent)
    if size < 0:
        raise error(text, token.start, f"A tensor has no extent {size}", fix="write 0 or more")
    return size


def _whole(text: str, token: Token, digits: str) -> int:
    digits = digits.strip()
    if _WHOLE.fullmatch(digits) is None:
        raise error(text, token.start, f"{digits[:40]!r} is no integer here", fix=_FITS)
    value = int(digits)
    if not -(2**63) <= value < 2**63:
        raise error(text, token.start, f"{digits} does not fit int64", fix=_FITS)
    return value


def _parts(text: str, token: Token) -> tuple[str, str]:
    found = _LITERAL.fullmatch(token.value)
    if found is None:
        raise error(text, token.start, f"{_short(token)} is no literal of Relay", fix=_SUFFIXES)
    return found[1], found[2] or ""


def _short(token: Token) -> str:
    return token.value if len(token.value) <= 40 else f"{token.value[:37]}..."


DTYPES = frozenset(
    ["bool", "float16", "float32", "float64", "bfloat16"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""The dtypes that a tensor's type may have."""

_LITERAL = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|inf|nan)(f|f16|f32|f64|i|i8|i16|i32|i64)?")
_KINDS = {'"': "STRING", "[": "INTS", "T": "BOOL", "F": "BOOL", "N": "NONE"}
_WORDS = {"True": True, "False": False, "None": None}
_WHOLE = re.compile(r"[+-]?\d{1,40}")
_ESCAPE = re.compile(rb"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r"}
_FITS = "write a number that fits"
_SUFFIXES = "Relay's suffixes are f, f16, f32, f64 and i, i8, i16, i32, i64"
_TYPES = "write a dtype such as float32, Tensor[(1, 3), float32], a tuple (...) or fn (...) -> ..."
