"""Files that are downloaded or fetched beforehand: checked by SHA-256, kept in a folder."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from ..errors import ChecksumError, DataError, ToolchainError

_TINY = (
    "https://raw.githubusercontent.com/mlcommons/tiny/25ecd962b8ba901a2f93af10697a359758f5b4ca"
    "/benchmark/training/image_classification/trained_models"
)


class Entry(NamedTuple):
    """A file that `fetch` can download; `size` is in bytes, `licence` an SPDX identifier."""

    name: str
    url: str
    size: int
    sha256: str
    licence: str = "Apache-2.0"


#: Every file that `fetch` knows, by name.
REGISTRY: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "resnet50-v2-7.onnx",
            "https://media.githubusercontent.com/media/onnx/models"
            "/b9a54e89508f101a1611cd64f4ef56b9cb62c7cf"
            "/vision/classification/resnet/model/resnet50-v2-7.onnx",
            102_442_450,
            "1e80e8a7c8eec8e8b20c440d7dd7f2f8590779c7c2859dc4514870dc463845d3",
        ),
        Entry(
            "resnet8_float.tflite",
            f"{_TINY}/pretrainedResnet.tflite",
            318_144,
            "b5c0046d6e0328b4956afd6baa29555a29b1f1c65bdd45aaed75b7cd484d9f79",
        ),
        Entry(
            "resnet8_int8.tflite",
            f"{_TINY}/pretrainedResnet_quant.tflite",
            98_496,
            "3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415",
        ),
    )
}


def cache_dir() -> Path:
    """Return the folder of the downloads: TVMLAB_CACHE, or `tvmlab` in the user's cache folder."""
    if own := os.environ.get("TVMLAB_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tvmlab").expanduser()


def cached(name: str) -> Path | None:
    """Return the path of a file in `REGISTRY` if the cache holds it with the right SHA-256."""
    path = cache_dir() / name
    return path if _holds(path, REGISTRY[name].sha256) else None


def fetch(name: str) -> Path:
    """Return the path of a file, and download the file first if needed.

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
        The address returned other bytes, which are deleted.
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
    fix = (
        f"Bring the file by other means: from {entry.url}, {entry.size} bytes, sha256 "
        f"{entry.sha256}, to {path}; or try again with a network, or with TVMLAB_CACHE set to a "
        "folder that can be written."
    )
    if os.environ.get("TVMLAB_OFFLINE", "") not in ("", "0"):
        raise DataError("The network is closed by TVMLAB_OFFLINE.", where=str(path), fix=fix)
    with warnings.catch_warnings(action="ignore"):  # tqdm's, of a notebook without widgets
        import pooch  # Here, because most processes download nothing.

    pooch.get_logger().setLevel("WARNING")  # else it writes a line for each attempt
    bar = sys.stderr.isatty() and find_spec("tqdm") is not None
    # Seconds to wait for a connection, and for the next bytes of a transfer.
    downloader = pooch.HTTPDownloader(bar, timeout=(3.0, 15.0))
    try:
        # It writes to a temporary file, which becomes `path` if the SHA-256 is right.
        pooch.retrieve(entry.url, entry.sha256, name, path.parent, downloader=downloader)
    except (OSError, ValueError) as error:  # of the network and the folder; of the SHA-256
        kind = DataError if isinstance(error, OSError) else ChecksumError
        raise kind(f"{name} could not be downloaded: {error}", where=str(path), fix=fix) from error
    return path


def fetched(name: str, sha256: str, fix: str) -> Path:
    """Return the path of a file in ``share/tvmlab`` beside the running Python, put there by `make`.

    Raises `ToolchainError` with the advice `fix` if the file is missing or has another SHA-256.
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
