"""A file of lines that grows, and keeps every line that was written whole.

One call appends each line while no other process writes or reads, so two processes can use one
file. A process that is killed during a write leaves a torn line, which the next writer removes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import RecordError
from .lines import START, decode

__all__ = ["Journal"]

_BLOCK = 1 << 16


@dataclass
class Journal:
    """A file of lines, and how far it has been read.

    Attributes
    ----------
    path : Path
        The file; it may be missing.
    number : int
        Lines that have been read.
    torn : bytes
        What stands behind the last whole line: somebody was killed while he wrote it.
    """

    path: Path
    number: int = 0
    torn: bytes = b""
    _offset: int = 0
    _inode: int = field(default=0, repr=False)

    def unread(self) -> tuple[bool, list[tuple[int, bytes]]]:
        """Give the lines that were written since the last call.

        Returns
        -------
        tuple of (bool, list of (int, bytes))
            Whether the file was read from its start, for it is new, was replaced, or is gone; and
            the lines, with their numbers from 1.

        Raises
        ------
        RecordError
            The file is a folder, cannot be read, or is a device.
        """
        with self._opened(os.O_RDONLY, fcntl.LOCK_SH) as handle:
            found = None if handle is None else os.fstat(handle)
            inode, size = (0, 0) if found is None else (found.st_ino, found.st_size)
            anew = inode != self._inode or size < self._offset
            if anew:
                self.number, self._offset, self._inode = 0, 0, inode
            rest = b""
            if handle is not None:
                os.lseek(handle, self._offset, os.SEEK_SET)
                rest = b"".join(iter(lambda: os.read(handle, 1 << 22), b""))
        # Without a newline the last one is torn, or written by an editor that leaves it out.
        *lines, self.torn = rest.split(b"\n")
        self._offset += len(rest) - len(self.torn)
        first, self.number = self.number + 1, self.number + len(lines)
        return anew, [(at, line) for at, line in enumerate(lines, first) if line.strip()]

    def append(self, data: bytes) -> None:
        """Write some lines at once behind the last whole one, and see them to the disk.

        Parameters
        ----------
        data : bytes
            Lines that end in a newline.

        Raises
        ------
        RecordError
            The file cannot be written, or the disk is full; then the file is as it was.
        """
        with self._opened(os.O_RDWR | os.O_APPEND | os.O_CREAT, fcntl.LOCK_EX) as handle:
            assert handle is not None
            size, whole = os.fstat(handle).st_size, self._whole(handle)
            if whole < 0:  # a last line without its newline
                data = b"\n" + data
            elif whole < size:
                os.ftruncate(handle, whole)
                size = whole
            try:
                written = os.write(handle, data)
                if written < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, size)
                raise self._error("written", error) from error

    def _whole(self, handle: int) -> int:
        """Find where the last whole line ends; -1 where it lacks but the newline."""
        size = end = os.fstat(handle).st_size
        tail = b""
        while end > 0:
            start = max(0, end - _BLOCK)
            block = os.pread(handle, end - start, start)
            at = block.rfind(b"\n")
            tail = block[at + 1 :] + tail
            end = start
            if at >= 0:
                end = start + at + 1
                break
        if not tail:
            return size
        with contextlib.suppress(ValueError):
            decode(tail)
            return -1
        if not START.startswith(tail[: len(START)]):
            return -1  # not begun by us: it is damaged, and not ours to remove
        return end

    @contextlib.contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int | None]:
        """Open the file and wait until it is ours; None where it is missing."""
        handle = None
        try:
            while True:
                try:
                    # Opening a pipe would wait for somebody at its other end.
                    handle = os.open(self.path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
                except FileNotFoundError:
                    if flags & os.O_CREAT:
                        raise
                    break
                found = os.fstat(handle)
                if not stat.S_ISREG(found.st_mode):
                    raise OSError(errno.EINVAL, "it is no regular file")
                fcntl.flock(handle, lock)
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(found, os.stat(self.path)):
                        break
                os.close(handle)  # somebody replaced it while we waited
                handle = None
        except (OSError, ValueError) as error:
            if handle is not None:
                os.close(handle)
            what = "written" if flags & os.O_CREAT else "read"
            raise self._error(what, error) from error
        try:
            yield handle
        finally:
            if handle is not None:
                os.close(handle)  # ends the lock

    def _error(self, what: str, error: Exception) -> RecordError:
        told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return RecordError(
            f"the file of tuning records cannot be {what}: {told}",
            where=str(self.path),
            fix="give the path of a file, in a folder that is there and can be written",
        )
