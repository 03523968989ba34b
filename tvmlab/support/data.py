"""Downloaded files, checked by SHA-256 and kept in a cache folder."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..errors import ChecksumError, DataError, ToolchainError

_LIST = (Path(__file__).parents[1] / "assets" / "downloads.txt").read_text(encoding="utf-8")


class Entry(NamedTuple):
    """A file that `fetch` can download; `size` is in bytes, `licence` an SPDX identifier."""

    name: str
    url: str
    size: int
    sha256: str
    licence: str = "Apache-2.0"


#: All files that `fetch` can download, by name.
REGISTRY: dict[str, Entry] = {
    name: Entry(name, url, int(size), sha256)
    for name, size, sha256, url in map(str.split, _LIST.splitlines()[1:])
}


def cache_dir() -> Path:
    """Return the cache folder: TVMLAB_CACHE, or `tvmlab` in the user's cache folder."""
    if own := os.environ.get("TVMLAB_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tvmlab").expanduser()


def cached(name: str) -> Path | None:
    """Return the path of a file in `REGISTRY` if the cache contains it with the right SHA-256."""
    path = cache_dir() / name
    return path if _holds(path, REGISTRY[name].sha256) else None


def fetch(name: str) -> Path:
    """Return the path of a file, after downloading the file if necessary.

    Parameters
    ----------
    name : str
        A name in `REGISTRY`.

    Returns
    -------
    Path

    Raises
    ------
    ChecksumError
        The download has another SHA-256; it is deleted.
    DataError
        The name is unknown, TVMLAB_OFFLINE is set, the address cannot be reached, or the cache
        folder cannot be written. The message says where to put the file.
    """
    if name not in REGISTRY:
        fix = f"Use one of: {', '.join(sorted(REGISTRY))}."
        raise DataError(f"There is no file named {name!r}.", where="tvmlab.data.REGISTRY", fix=fix)
    if (path := cached(name)) is not None:
        return path
    entry, path = REGISTRY[name], cache_dir() / name
    facts = f"from {entry.url}, {entry.size} bytes, sha256 {entry.sha256}, to {path}"
    fix = f"Copy the file there by other means: {facts}; or try again with a network, or with "
    fix += "TVMLAB_CACHE set to a folder that can be written."
    if os.environ.get("TVMLAB_OFFLINE", "") not in ("", "0"):
        raise DataError("TVMLAB_OFFLINE forbids downloads.", where=str(path), fix=fix)
    with warnings.catch_warnings(action="ignore"):  # tqdm warns in a notebook without widgets
        import pooch  # imported here, because most processes download nothing

    pooch.get_logger().setLevel("WARNING")  # by default it logs a line per attempt
    bar = sys.stderr.isatty() and find_spec("tqdm") is not None
    # Seconds to wait for a connection, and for the next bytes of a transfer.
    downloader = pooch.HTTPDownloader(bar, timeout=(3.0, 15.0))
    try:
        # Downloads to a temporary file, which is renamed to `path` if the SHA-256 is right.
        pooch.retrieve(entry.url, entry.sha256, name, path.parent, downloader=downloader)
    except (OSError, ValueError) as error:  # OSError: network or folder; ValueError: SHA-256
        kind = DataError if isinstance(error, OSError) else ChecksumError
        raise kind(f"{name} could not be downloaded: {error}", where=str(path), fix=fix) from error
    return path


def fetched(name: str, sha256: str, fix: str) -> Path:
    """Return the path of a file that `make` put in ``share/tvmlab`` beside the running Python.

    Raises `ToolchainError` with the fix `fix` if the file is missing or has another SHA-256.
    """
    path = Path(sys.prefix) / "share" / "tvmlab" / name
    if not _holds(path, sha256):
        raise ToolchainError(f"{name} is missing or damaged.", where=str(path), fix=fix)
    return path


def _holds(path: Path, sha256: str) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except OSError:
        return False
