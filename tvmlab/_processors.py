"""The processors that this process may use, asked while nothing has changed them.

A thread pool of TVM's that has started ties its thread to some cores, and who asks later is told of
these alone. The package imports this at once, and it imports nothing but `os`.
"""

from __future__ import annotations

import os

__all__ = ["PROCESSORS", "allowed"]


def allowed() -> tuple[int, ...]:
    """List the logical processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))  # macOS and Windows tell no affinity


PROCESSORS = allowed()
