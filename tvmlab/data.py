"""Checked downloads with a cache.

`fetch(name)` gives the path of a file that is known to be right: its size and its SHA-256 stand in
the registry below, and nothing that differs from them is ever handed out. A transfer that breaks is
taken up again where it stopped. Two processes that want the same file wait for one another.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ._download import LOOPBACK, Broken, Unreachable, download
from ._files import make_own
from .errors import ChecksumError, DataError

__all__ = ["REGISTRY", "Entry", "cache_dir", "cached", "fetch", "offline"]

_TINY = (
    "https://raw.githubusercontent.com/mlcommons/tiny/25ecd962b8ba901a2f93af10697a359758f5b4ca"
    "/benchmark/training/image_classification/trained_models"
)


@dataclass(frozen=True)
class Entry:
    """One file that `fetch` knows.

    Parameters
    ----------
    name : str
        The file's name in the cache; no folders.
    url : str
        Where it comes from. Only https, or plain http from this machine itself (for tests).
    size : int
        Its length in bytes.
    sha256 : str
        Its SHA-256, 64 hexadecimal digits.
    licence : str
        The licence its owner gives it, as an SPDX identifier.
    mirrors : tuple of str
        Other addresses of the same bytes, tried in order when the first one fails.

    Raises
    ------
    DataError
        If a field cannot be right: a name with a folder in it, an address that is not https.
    """

    name: str
    url: str
    size: int
    sha256: str
    licence: str
    mirrors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name):
            raise DataError("A file's name in the registry is not a plain name.", where=self.name)
        if not re.fullmatch(r"[0-9a-f]{64}", self.sha256) or self.size <= 0:
            raise DataError("A registry entry lacks its size or SHA-256.", where=self.name)
        for url in self.urls:
            parts = urllib.parse.urlsplit(url)
            local = parts.scheme == "http" and parts.hostname in LOOPBACK
            if parts.scheme != "https" and not local:
                raise DataError(
                    "An address in the registry is not https.",
                    where=f"{self.name}: {url}",
                    fix="Use an https address.",
                )

    @property
    def urls(self) -> tuple[str, ...]:
        """Every address of the file, the first choice first."""
        return (self.url, *self.mirrors)


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


def offline() -> bool:
    """Whether TVMLAB_OFFLINE closes the network to this package.

    Returns
    -------
    bool
        True when the variable is set to anything but nothing or 0.
    """
    return os.environ.get("TVMLAB_OFFLINE", "") not in ("", "0")


def cache_dir() -> Path:
    """The folder that downloads are kept in.

    Returns
    -------
    Path
        TVMLAB_CACHE where it is set; else `tvmlab` under XDG_CACHE_HOME or `~/.cache`. It need not
        exist yet.

    Raises
    ------
    DataError
        If neither variable is set and there is no home folder.
    """
    if own := os.environ.get("TVMLAB_CACHE"):
        return Path(own).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "tvmlab"
    try:
        return Path.home() / ".cache" / "tvmlab"
    except RuntimeError as error:
        raise DataError(
            "There is no home folder to keep downloads in.",
            fix="Set TVMLAB_CACHE to a folder that can be written.",
        ) from error


def cached(name: str | Entry) -> Path | None:
    """The file's path where the cache holds it whole and right, else None.

    Parameters
    ----------
    name : str or Entry
        A name in `REGISTRY`, or an entry of one's own.

    Returns
    -------
    Path or None
        The path, its size and SHA-256 checked just now. A file with the wrong content counts as
        missing here; `fetch` replaces it.

    Raises
    ------
    DataError
        If the name is unknown, or the file is there and cannot be read.
    """
    entry = _entry(name)
    path = cache_dir() / entry.name
    return path if _complaint(path, entry) is None else None


def fetch(name: str | Entry) -> Path:
    """Give the path of a registered file, downloading it first where needed.

    Parameters
    ----------
    name : str or Entry
        A name in `REGISTRY`, or an entry of one's own.

    Returns
    -------
    Path
        A file whose size and SHA-256 are those of the registry.

    Raises
    ------
    ChecksumError
        If an address gave other bytes, and no other one the right ones; they are deleted.
    DataError
        If the name is unknown, the network is closed or fails, or the cache cannot be written.
        The message says which file to put where.

    Notes
    -----
    A download is written to `NAME.part` and renamed when it is right, so a file under its own name
    is never half a file. Progress goes to standard error.
    """
    entry = _entry(name)
    folder = cache_dir()
    path = folder / entry.name
    # Without the lock first: a cache that is complete may well be read-only.
    complaint = _complaint(path, entry)
    if complaint is None:
        return path
    with _cache_errors(folder):
        make_own(folder)  # built libraries are kept below it
        with _lock(folder / f"{entry.name}.lock"):
            complaint = _complaint(path, entry)  # another process may have brought it meanwhile
            if complaint is None:
                return path
            said = ""
            if complaint != "missing":
                path.unlink()
                said = f" The file in the cache was wrong ({complaint}) and is deleted."
            if offline():
                raise _advice(entry, path, f"The network is closed by TVMLAB_OFFLINE.{said}")
            _download_checked(entry, path, said)
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


def _complaint(path: Path, entry: Entry) -> str | None:
    """Say what is wrong with the file at `path`; None where nothing is."""
    try:
        size = path.stat().st_size
        if size != entry.size:
            return f"{size} bytes instead of {entry.size}"
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError as error:
        raise DataError(
            f"The file in the cache cannot be read: {error.strerror}.",
            where=str(path),
            fix="Make it readable, or set TVMLAB_CACHE to another folder.",
        ) from error
    return None if digest == entry.sha256 else f"its SHA-256 is {digest}, not {entry.sha256}"


def _download_checked(entry: Entry, path: Path, said: str) -> None:
    """Bring `path` from the first address that has the right bytes."""
    part = path.with_name(f"{path.name}.part")
    troubles: list[str] = []
    reason, kind = "", DataError
    for url in entry.urls:
        try:
            # A wrong sum after a resumed transfer may only mean that two halves of different
            # files met, so such a part gets a second chance from its first byte.
            for _ in range(2):
                resumed = download(url, part, entry.size, label=entry.name)
                complaint = _complaint(part, entry)
                if complaint is None:
                    os.replace(part, path)
                    return
                part.unlink()
                if not resumed:
                    break
            reason, kind = "wrong content", ChecksumError
            troubles.append(f"{url}: wrong content ({complaint}); what came is deleted")
        except (Unreachable, Broken) as error:
            reason = reason or str(error)
            troubles.append(f"{url}: {error}")
    what = f"{entry.name} could not be downloaded: {reason}.{said}"
    raise _advice(entry, path, what, troubles, kind)


def _advice(
    entry: Entry,
    path: Path,
    what: str,
    troubles: Sequence[str] = (),
    kind: type[DataError] = DataError,
) -> DataError:
    """Build the error that tells a reader without network what to put where."""
    reasons = "".join(f"\n    {line}" for line in troubles)
    return kind(
        what + reasons,
        where=str(path),
        fix=(
            f"Bring the file by other means: from {entry.url}, {entry.size} bytes, sha256 "
            f"{entry.sha256}, to {path}; or try again with a network."
        ),
    )


@contextlib.contextmanager
def _cache_errors(folder: Path) -> Iterator[None]:
    """Say in words what the operating system refuses in the cache folder."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"The cache folder cannot be written: {error.strerror or error}.",
            where=str(error.filename or folder),
            fix="Free space or rights there, or set TVMLAB_CACHE to a folder that can be written.",
        ) from error


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold `path` as a lock. The kernel lets go of it when the process dies."""
    import fcntl

    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
