"""Write files atomically: completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import TvmlabError


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename the file to `path` when the block ends.

    A reader sees either the old file or the new one. If the block fails, `path` stays unchanged.
    The file gets the permissions of the file that it replaces, or those of a new file.
    Raises OSError if the folder cannot be written, or if `path` is a folder, a device or a pipe.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "A device or a pipe has this name", str(path))
    part = path.parent / f".{path.name[:40]}.{os.urandom(8).hex()}.part"
    # Not `tempfile`, whose files only their owner can read, whatever the umask is.
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield part
        with contextlib.suppress(FileNotFoundError):
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def written(path: str | os.PathLike[str], error: type[TvmlabError]) -> Iterator[Path]:
    """Do the same as `whole`, but raise `error` if the file cannot be written."""
    try:
        with whole(path) as part:
            yield part
    except (OSError, ValueError) as reason:  # ValueError: a path with a null character
        raise error(
            f"the file cannot be written: {getattr(reason, 'strerror', reason)}",
            where=str(path),
            fix="choose an existing folder that you may write to and that has space",
        ) from reason
