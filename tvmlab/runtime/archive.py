"""Reading a package's archive: members that are expected, one after the other, and nothing else.

`tarfile` follows what the headers say: extensions, links, sparse files, sizes below 0, which lead
before Python 3.11.14 back to the same header for ever (CVE-2025-8194), and as many headers as there
are. A package needs nothing of that. What is taken here is what the C++ program takes
(``native/deploy/archive.cc``): POSIX's *ustar* headers of plain files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["expect", "pieces"]

_BLOCK = 512
# Where the fields of a header are (POSIX.1-2017, pax, "ustar Interchange Format").
_NAME, _SIZE, _SUM = slice(0, 100), slice(124, 136), slice(148, 156)
_KIND, _PREFIX = slice(156, 157), slice(345, 500)
_OCTAL = re.compile(rb" *([0-7]+)[ \0]")
_CHUNK = 1 << 20


def expect(file: BinaryIO, name: str, most: int) -> int:
    """Read the header of a member, which has to be the next.

    Parameters
    ----------
    file : binary file
        Which stands at the header, and afterwards at the content.
    name : str
        The member's, in ASCII.
    most : int
        Bytes that it may have.

    Returns
    -------
    int
        Bytes that the header says it has.

    Raises
    ------
    ValueError
        There is no header, it is damaged, or that of something else.
    """
    header = file.read(_BLOCK)
    # The checksum counts as spaces in the sum that it is of.
    said, total = _octal(header[_SUM]), sum(header) - sum(header[_SUM]) + 8 * ord(" ")
    named = header[_NAME].partition(b"\0")[0] == name.encode() and not any(header[_PREFIX])
    if len(header) < _BLOCK or said != total or not named or header[_KIND] not in (b"0", b"\0"):
        raise ValueError(f"there is no file {name} where it should be")
    size = _octal(header[_SIZE])
    if size is None or size > most:
        raise ValueError(f"{name} is not a file of at most {most} bytes")
    return size


def pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Read the content of a member, piece by piece, and go on to where the next header is.

    Parameters
    ----------
    file : binary file
        As `expect` left it.
    size : int
        What `expect` gave.

    Yields
    ------
    bytes
        At most a mebibyte.

    Raises
    ------
    ValueError
        The file ends before that.
    """
    left = size
    while left:
        piece = file.read(min(left, _CHUNK))
        if not piece:
            raise ValueError("it is cut off")
        left -= len(piece)
        yield piece
    file.seek(-size % _BLOCK, 1)


def _octal(field: bytes) -> int | None:
    """Read an octal number, spaces before and a space or a null character after it."""
    found = _OCTAL.match(field)
    return int(found[1], 8) if found else None
