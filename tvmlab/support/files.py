"""Writing files that appear whole or not at all, and who else can write them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path


def only_own(path: Path) -> bool:
    """Return whether a file is there that no user but this one and root can write or replace."""
    if not path.is_file():
        return False
    found = (path.stat(), path.parent.stat())
    return all(one.st_uid in (os.geteuid(), 0) and not one.st_mode & 0o022 for one in found)


@contextlib.contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a block another file to write, and put it in the place of `path` when the block ends.

    A reader sees the old file or the new one, never a part; of several writers at once the last
    one wins. Where the block fails, `path` stays as it was and the other file is removed.

    Parameters
    ----------
    path : path
        The file to make or to replace. A symbolic link is itself replaced.

    Yields
    ------
    Path
        An empty file in the same folder, which the block fills, or removes and makes anew. It gets
        the permissions of the file that it replaces; where there is none, those that any new file
        gets.

    Raises
    ------
    OSError
        The folder is missing or cannot be written, or `path` is a folder, a device or a pipe: a
        file in the place of ``/dev/null`` would break more than one program.
    ValueError
        No path can be like this: there is a null character in it.
    """
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "A device or a pipe has this name", str(path))
    # A part of the name says whose it is, and the whole might be too long with more around it.
    part = path.parent / f".{path.name[:40]}.{os.urandom(8).hex()}.part"
    # Not `tempfile`, whose files are readable by their owner alone, whatever the umask says.
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield part
        with contextlib.suppress(FileNotFoundError):
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # what failed first is what is to be told
            part.unlink()
        raise
