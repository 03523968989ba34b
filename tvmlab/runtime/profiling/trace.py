"""A run as a file in Chrome's Trace Event Format, which Perfetto opens too.

The format: "Trace Event Format" (Duca, Sinclair, 2016), the JSON object form, with *complete*
events (``"ph": "X"``), which have a begin and a duration, and *metadata* events (``"M"``), which
name the tracks. Times are microseconds.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._caption import caption
from ._writing import written

if TYPE_CHECKING:
    from .result import Profile, Row

__all__ = ["events", "write"]

_PROCESSOR, _ACCELERATOR = 1, 2


def write(profile: Profile, path: str | os.PathLike[str]) -> Path:
    """Write a profile's median run; see `Profile.trace`."""
    content = {
        "traceEvents": events(profile),
        "displayTimeUnit": "ms",
        "otherData": {
            "target": profile.target,
            "seconds": profile.seconds,
            "shown": caption(profile),
        },
    }
    return written(path, json.dumps(content, indent=1, allow_nan=False))


def events(profile: Profile) -> list[dict[str, Any]]:
    """List the events of the median run.

    Returns
    -------
    list of dict
        The names of the tracks; the run and its calls, one inside of the other, on the track of the
        processor; and where there is an accelerator, its layers on a track of its own, by its own
        clock: it begins when it is called, and is done sooner than its simulator is.
    """
    rows = {row.name: row for row in profile.rows}
    first = profile.run[0].start
    # Viewers show the names of tracks, and what else a file says only when they are asked.
    found = [*_track(_PROCESSOR, f"this processor: {caption(profile)}", "virtual machine")]
    if profile.layers:
        found += _track(_ACCELERATOR, f"accelerator at {profile.clock_mhz} MHz", "layers")
    free = 0.0
    for event in profile.run:
        start = (event.start - first) / 1e3
        row = rows.get(event.name)
        kind = "run" if event.depth == 0 else row.kind if row else "virtual machine"
        found.append(
            _slice(_PROCESSOR, event.name, kind, start, event.nanoseconds / 1e3)
            | {"args": {"bytes": event.bytes, **(_details(row) if row else {})}}
        )
        at = max(start, free)
        for layer in profile.layers.get(event.name, ()):
            length = layer.cycles / (profile.clock_mhz or 1)  # a MHz is a cycle a microsecond
            found.append(
                _slice(_ACCELERATOR, layer.name, event.name, at, length)
                | {"args": {"cycles": layer.cycles}}
            )
            at = free = at + length
    return found


def _track(pid: int, process: str, thread: str) -> list[dict[str, Any]]:
    return [
        {"name": what, "ph": "M", "ts": 0, "pid": pid, "tid": 1, "args": {"name": name}}
        for what, name in (("process_name", process), ("thread_name", thread))
    ]


def _slice(pid: int, name: str, kind: str, start: float, length: float) -> dict[str, Any]:
    return {
        "name": name,
        "cat": kind,
        "ph": "X",
        "ts": round(start, 3),
        "dur": round(length, 3),
        "pid": pid,
        "tid": 1,
    }


def _details(row: Row) -> dict[str, Any]:
    """Say of one call what is known of it."""
    details: dict[str, Any] = {"tensors": list(row.tensors)}
    if row.operations is not None:
        details["operations"] = row.operations // row.calls
    if row.cycles is not None:
        details["cycles"] = row.cycles // row.calls
    return details
