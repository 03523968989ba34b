"""Lines of a record file: JSON objects that carry a checksum of themselves."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

__all__ = ["START", "decode", "encode"]

#: How every line begins: whoever finds this at the end of a file knows who wrote it.
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


def decode(line: bytes) -> dict[str, Any]:
    """Read a line.

    Parameters
    ----------
    line : bytes
        With or without its newline.

    Returns
    -------
    dict
        The fields but for ``check``.

    Raises
    ------
    ValueError
        It is no JSON object in UTF-8, or is not what it was when its checksum was made.
    """
    line = line.strip()
    try:
        fields = json.loads(line.decode(), parse_constant=_no_number)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except ValueError:
        raise ValueError("it is no JSON") from None
    if not isinstance(fields, dict) or not isinstance(check := fields.pop("check", None), str):
        raise ValueError("it has no checksum")
    written = _LINE.fullmatch(line)
    # Nearly always the line stands as it was written, and need not be written again to check it.
    if written and _check(b"{" + written[2] + b"}") == check:
        return fields
    try:
        if _check(_canonical(fields)) == check:
            return fields
    except (ValueError, RecursionError):
        pass
    raise ValueError("its checksum is wrong")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON's")


def _canonical(fields: Mapping[str, Any]) -> bytes:
    text = json.dumps(
        fields, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )
    return text.encode()


def _check(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]
