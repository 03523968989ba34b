"""How busy others keep the machine while it is measured."""

from __future__ import annotations

import os
import time
from pathlib import Path

# Fields of /proc/stat that are no work: idle and waiting for a disk. Guests' time is counted twice.
_IDLE, _GUESTS = (3, 4), 8


class Noise:
    """Counts the processor time that is not this process's, nor its ended children's."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._busy, self._own = _busy_seconds(), _own_seconds()

    def share(self) -> float:
        """Tell which part of all processors others have taken since, 0 to 1.

        The children must have ended: Linux adds their time to ours only then.
        """
        elapsed = time.perf_counter() - self._start
        others = _busy_seconds() - self._busy - (_own_seconds() - self._own)
        return min(1.0, max(0.0, others / elapsed / (os.cpu_count() or 1)))


def _busy_seconds() -> float:
    """Read the time that all processors have worked, and that a host has taken from them."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = sum(int(n) for i, n in enumerate(fields[:_GUESTS]) if i not in _IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    return sum(os.times()[:4])
