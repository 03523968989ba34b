"""Lines of a record file: JSON objects that carry a checksum of themselves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["START", "Raw", "decode", "encode"]

#: How every line begins: a part of it at the end of a file shows that we wrote it.
START = b'{"check":"'
_LINE = re.compile(rb'\{"check":"([0-9a-f]{16})",(.*)\}', re.DOTALL)


def encode(fields: Mapping[str, Any]) -> bytes:
    """Write a line.

    Parameters
    ----------
    fields : mapping
        What JSON can say; numbers are finite.

    Returns
    -------
    bytes
        UTF-8, with the newline. ``check`` is the first 16 hexadecimal digits of the SHA-256 of the
        object without it, written with sorted keys and no spaces.

    Raises
    ------
    ValueError
        A number is not finite, or a text is no Unicode.
    TypeError
        A value has no form in JSON.
    """
    text = _canonical(fields)
    return START + _check(text).encode() + b'",' + text[1:] + b"\n"


class Raw(str):
    """JSON that has not been read yet."""


def decode(line: bytes) -> dict[str, Any]:
    """Read a line.

    Parameters
    ----------
    line : bytes
        With or without its newline.

    Returns
    -------
    dict
        The fields but for ``check``. A trace, which makes up most of a line, is left as `Raw` where
        the line stands as `encode` wrote it.

    Raises
    ------
    ValueError
        It is no JSON object in UTF-8, or is not what it was when its checksum was made.
    """
    line = line.strip()
    written = _LINE.fullmatch(line)
    if written and _check(b"{" + written[2] + b"}") == written[1].decode():
        # Quotes within a text are escaped: this is no part of one.
        before, _, rest = written[2].partition(b',"trace":')
        trace, found, after = rest.rpartition(b',"tuner":')
        if found:
            fields = _object(b"{" + before + found + after + b"}")
            return {**fields, "trace": Raw(_text(trace))}
        return _object(b"{" + written[2] + b"}")
    fields = _object(line)
    check = fields.pop("check", None)
    if check is None:
        raise ValueError("it has no checksum")
    try:
        same = _check(_canonical(fields)) == check
    except (ValueError, RecursionError):
        same = False
    if not same:
        raise ValueError("its checksum is wrong")
    return fields


def _text(given: bytes) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None


def _object(given: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(_text(given), parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except json.JSONDecodeError:
        raise ValueError("it is no JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    return fields


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON's")


def _canonical(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(
        fields, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return text.encode()


def _check(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
