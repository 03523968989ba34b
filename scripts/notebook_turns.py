"""Turns of cells that run in several processes: beside each other, or alone.

A cell that measures a time runs alone. Who waits for that lets nobody else begin.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nbformat import NotebookNode
from notebook_form import IGNORED

__all__ = ["DOOR", "MEASURED_HERE", "MEASURING", "ROOM", "measures", "turn"]

# For each user and checkout, so that a run which is stopped holds up none elsewhere. They are no
# files of the checkout, which may be on NFS, where who only reads a file cannot have it alone.
OWN = f"{os.getuid()}-{zlib.crc32(str(Path(__file__).resolve()).encode()):08x}"
DOOR, ROOM = (
    Path(tempfile.gettempdir()) / f"tvmlab-{name}-{OWN}.lock" for name in ("door", "room")
)
# The notebooks that hold times against each other, in the cells whose output nbval ignores, ...
MEASURING = ("02", "03", "04", "05")
# ... and other cells, by their ids, in which a time is measured that the notebook holds to. What 07
# and 09 only count or only draw may have others beside it, and so may a tuner: its verdicts are
# duels, of which company slows both sides.
MEASURED_HERE = {
    "01": {"objects"},
    "03": {"kernels"},
    "07": {"measurer", "grid", "times", "machines-run"},
    "08": {"bench-check"},
    "09": {"question", "kernel", "perf", "profile", "callgrind", "gain", "after"},
    "11": {"profile-rivals"},
}


def measures(name: str, cell: NotebookNode) -> bool:
    """Say whether a code cell of the notebook `name` measures a time that counts."""
    number = name[:2]
    if number in MEASURING and IGNORED in cell.metadata.get("tags", []):
        return True
    return cell.get("id") in MEASURED_HERE.get(number, ())


@contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Wait until a cell may run, and keep others waiting while it does.

    The locks are the system's: they end with the process.

    Parameters
    ----------
    alone : bool
        Whether nothing may run beside it.
    """
    with DOOR.open("a") as door, ROOM.open("a") as room:
        # Who waits to be alone holds the door: else others would come and go and never be gone.
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
