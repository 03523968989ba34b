"""Files that `make` fetched beforehand, for use without a network."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from .errors import ToolchainError

__all__ = ["fetched", "fetched_folder"]


def fetched_folder() -> Path:
    """Name the folder that they are in: it goes with the Python that runs."""
    return Path(sys.prefix) / "share" / "tvmlab"


def fetched(name: str, sha256: str, *, what: str, fix: str) -> Path:
    """Find one of them, and check it.

    Parameters
    ----------
    name : str
        The file's, in `fetched_folder`.
    sha256 : str
        Its checksum, 64 hexadecimal digits.
    what : str
        What it is, as the beginning of a sentence, such as ``"The source of tvm-ffi"``.
    fix : str
        A sentence: how to get it.

    Returns
    -------
    pathlib.Path
        The file, its checksum compared just now.

    Raises
    ------
    ToolchainError
        It is missing or is another file.
    """
    path = fetched_folder() / name
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ToolchainError(f"{what} is not here.", where=str(path), fix=fix) from error
    if digest != sha256:
        raise ToolchainError(
            f"{what} is not the file that it should be.",
            where=f"{path}: its SHA-256 is {digest}, not {sha256}",
            fix=f"Delete it. {fix}",
        )
    return path
