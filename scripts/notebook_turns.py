"""Turns of cells that run in several processes: beside each other, or alone.

A cell that measures a time runs alone. Who waits for that lets nobody else begin.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["turn"]

HERE = Path(__file__)


@contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Wait until a cell may run, and keep others waiting while it does.

    The locks are the system's, on two files of the repository: they end with the process.

    Parameters
    ----------
    alone : bool
        Whether nothing may run beside it.
    """
    with HERE.open() as door, (HERE.parent / "notebooks.py").open() as room:
        # Who waits to be alone holds the door: else others would come and go and never be gone.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
