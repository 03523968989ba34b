"""Files that are downloaded or fetched beforehand: checked by SHA-256, kept in a folder.

`fetch` returns the path of a file in `REGISTRY` and downloads it to the cache folder first if
needed. `fetched` returns the path of a file that `make` put beside the running Python.
"""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from ..errors import ChecksumError, DataError, ToolchainError

__all__ = ["REGISTRY", "Entry", "cache_dir", "cached", "fetch", "fetched", "fetched_folder"]

# Seconds to wait for a connection, and for the next bytes of a transfer.
_TIMEOUT = (3.0, 15.0)
_TINY = (
    "https://raw.githubusercontent.com/mlcommons/tiny/25ecd962b8ba901a2f93af10697a359758f5b4ca"
    "/benchmark/training/image_classification/trained_models"
)


@dataclass(frozen=True)
class Entry:
    """A file that `fetch` can download.

    Parameters
    ----------
    name : str
        The name of the file in the cache folder.
    url : str
        The address.
    size : int
        The length in bytes.
    sha256 : str
        The SHA-256, 64 hexadecimal digits.
    licence : str
        The licence, as an SPDX identifier.
    mirrors : tuple of str
        Other addresses of the same bytes, tried in order if the first address fails.
    """

    name: str
    url: str
    size: int
    sha256: str
    licence: str
    mirrors: tuple[str, ...] = ()


#: Every file that `fetch` knows, by name.
REGISTRY: MappingProxyType[str, Entry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Entry(
                name="resnet50-v2-7.onnx",
                url="https://media.githubusercontent.com/media/onnx/models"
                "/b9a54e89508f101a1611cd64f4ef56b9cb62c7cf"
                "/vision/classification/resnet/model/resnet50-v2-7.onnx",
                mirrors=(
                    "https://huggingface.co/onnxmodelzoo/resnet50-v2-7/resolve/main"
                    "/resnet50-v2-7.onnx",
                ),
                size=102_442_450,
                sha256="1e80e8a7c8eec8e8b20c440d7dd7f2f8590779c7c2859dc4514870dc463845d3",
                licence="Apache-2.0",
            ),
            Entry(
                name="resnet8_float.tflite",
                url=f"{_TINY}/pretrainedResnet.tflite",
                size=318_144,
                sha256="b5c0046d6e0328b4956afd6baa29555a29b1f1c65bdd45aaed75b7cd484d9f79",
                licence="Apache-2.0",
            ),
            Entry(
                name="resnet8_int8.tflite",
                url=f"{_TINY}/pretrainedResnet_quant.tflite",
                size=98_496,
                sha256="3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415",
                licence="Apache-2.0",
            ),
        )
    }
)


def cache_dir() -> Path:
    """Return the folder of the downloads.

    Returns
    -------
    Path
        TVMLAB_CACHE if it is set, else `tvmlab` in XDG_CACHE_HOME or `~/.cache`. The folder may
        not exist yet.
    """
    if own := os.environ.get("TVMLAB_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "tvmlab").expanduser()


def cached(name: str | Entry) -> Path | None:
    """Return the path of a file if the cache folder holds it with the right content.

    Parameters
    ----------
    name : str or Entry
        A name in `REGISTRY`, or an entry.

    Returns
    -------
    Path or None
        The path, whose SHA-256 was compared by this call, or None.

    Raises
    ------
    DataError
        If the name is unknown.
    """
    entry = _entry(name)
    path = cache_dir() / entry.name
    try:
        return path if _sha256(path) == entry.sha256 else None
    except OSError:
        return None


def fetch(name: str | Entry) -> Path:
    """Return the path of a file, and download the file first if needed.

    Parameters
    ----------
    name : str or Entry
        A name in `REGISTRY`, or an entry.

    Returns
    -------
    Path
        A file with the SHA-256 of the entry.

    Raises
    ------
    ChecksumError
        If an address returned other bytes, and no address the right ones. The bytes are deleted.
    DataError
        If the name is unknown, TVMLAB_OFFLINE is set, no address can be reached, or the cache
        folder cannot be written. The message says where to put the file.
    """
    entry = _entry(name)
    if (path := cached(entry)) is not None:
        return path
    path = cache_dir() / entry.name
    if os.environ.get("TVMLAB_OFFLINE", "") not in ("", "0"):
        wrong = " The file in the cache has a wrong SHA-256." if path.exists() else ""
        raise _failure(DataError, entry, path, f"The network is closed by TVMLAB_OFFLINE.{wrong}")
    with warnings.catch_warnings(action="ignore"):  # tqdm's, of a notebook without widgets
        import pooch  # Here, because most processes download nothing.
    import requests

    pooch.get_logger().setLevel("WARNING")  # else it writes a line for each attempt
    kind: type[DataError] = DataError
    reasons = []
    bar = sys.stderr.isatty() and find_spec("tqdm") is not None
    for url in (entry.url, *entry.mirrors):
        downloader = pooch.HTTPDownloader(bar, chunk_size=1 << 18, timeout=_TIMEOUT)
        try:
            # It writes to a temporary file, which becomes `path` if the SHA-256 is right.
            pooch.retrieve(url, entry.sha256, entry.name, path.parent, downloader=downloader)
            return path
        except requests.HTTPError as error:
            reasons.append(f"{urlsplit(url).hostname}: HTTP {error.response.status_code}")
        except requests.RequestException as error:
            reasons.append(f"{urlsplit(url).hostname} cannot be reached ({type(error).__name__})")
        except ValueError:
            kind = ChecksumError
            reasons.append(f"{urlsplit(url).hostname} sent wrong content, which is deleted")
        except OSError as error:
            raise DataError(
                f"The cache folder cannot be written: {error.strerror or error}.",
                where=str(error.filename or path.parent),
                fix="Free space or rights there, or set TVMLAB_CACHE to a folder that can be "
                "written.",
            ) from error
    what = f"{entry.name} could not be downloaded: {'; '.join(reasons)}."
    raise _failure(kind, entry, path, what)


def fetched_folder() -> Path:
    """Return the folder of the files that `make` fetched beforehand."""
    return Path(sys.prefix) / "share" / "tvmlab"


def fetched(name: str, sha256: str, *, what: str, fix: str) -> Path:
    """Return the path of a file that `make` fetched beforehand.

    Parameters
    ----------
    name : str
        The name of the file in `fetched_folder`.
    sha256 : str
        The SHA-256, 64 hexadecimal digits.
    what : str
        The subject of an error message, such as ``"The source of tvm-ffi"``.
    fix : str
        A sentence that says how to get the file.

    Returns
    -------
    pathlib.Path
        The path, whose SHA-256 was compared by this call.

    Raises
    ------
    ToolchainError
        If the file is missing or has another SHA-256.
    """
    path = fetched_folder() / name
    try:
        digest = _sha256(path)
    except OSError as error:
        raise ToolchainError(f"{what} is not here.", where=str(path), fix=fix) from error
    if digest != sha256:
        raise ToolchainError(
            f"{what} is not the file that it should be.",
            where=f"{path}: its SHA-256 is {digest}, not {sha256}",
            fix=f"Delete it. {fix}",
        )
    return path


def _entry(name: str | Entry) -> Entry:
    if isinstance(name, Entry):
        return name
    if name not in REGISTRY:
        raise DataError(
            f"There is no file named {name!r} in the registry.",
            where="tvmlab.data.REGISTRY",
            fix=f"Use one of: {', '.join(sorted(REGISTRY))}.",
        )
    return REGISTRY[name]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _failure(kind: type[DataError], entry: Entry, path: Path, what: str) -> DataError:
    """Return the error that says which file to put where."""
    return kind(
        what,
        where=str(path),
        fix=f"Bring the file by other means: from {entry.url}, {entry.size} bytes, sha256 "
        f"{entry.sha256}, to {path}; or try again with a network.",
    )
