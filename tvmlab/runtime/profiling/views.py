"""A profile as text, as figures, and as a trace file.

The trace has Chrome's Trace Event Format (Duca, Sinclair, 2016), which Perfetto opens, too: a JSON
object with *complete* events (``"ph": "X"``), which have a begin and a duration in microseconds,
and *metadata* events (``"M"``), which name the tracks.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import plot
from ...errors import InputError, TvmlabError
from ...support.files import whole
from ...support.wording import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .result import Profile, Row

__all__ = ["bars", "caption", "events", "roofline", "save", "text", "trace"]

# Units, the largest first.
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_WIDTH = 40
_PROCESSOR, _ACCELERATOR = 1, 2


def _unit(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """Return the largest unit that is not larger than the value, or the smallest one."""
    return next((unit for unit in units if unit[0] <= value), units[-1])


def caption(profile: Profile) -> str:
    """Describe the single run that a picture shows, which took longer because it was watched."""
    factor, unit = _unit(profile.seconds, _TIMES)
    shown = profile.run[0].nanoseconds / 1e9
    return (
        f"one watched run, {shown / factor:,.3f} {unit}; "
        f"the median without watching is {profile.seconds / factor:,.3f} {unit}"
    )


def save(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file, whole or not at all."""
    path = Path(path)
    try:
        with whole(path) as part:
            part.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: the path has a null character
        raise TvmlabError(
            f"the file cannot be written: {getattr(error, 'strerror', error)}",
            where=str(path),
            fix="choose an existing folder that you may write to and that has space",
        ) from error
    return path


def text(profile: Profile) -> str:
    """Return the table of the rows, then the whole run and the limits of the machine."""
    cycles = any(row.cycles is not None for row in profile.rows)
    time = _unit(profile.seconds, _TIMES)
    size = _unit(max(row.bytes for row in profile.rows), _SIZES)
    heads = ["output", "calls", time[1], "share", "GFLOP/s", "of peak", size[1], "GB/s", "of mem."]
    rows = [
        [_cut(row.name), *_cells(row, time[0], size[0]), *_cycles(row, cycles)]
        for row in profile.rows
    ]
    head = ["function", *heads, *(["cycles"] if cycles else [])]
    return "\n".join([table(head, rows), *_below(profile)])


def _cells(row: Row, time: float, size: float) -> list[str]:
    return [
        row.tensors[-1].rpartition(" ")[2] if row.tensors else "",
        f"{row.calls:,}",
        f"{row.seconds / time:,.3f}",
        f"{row.share:.1%}",
        _number(row.gflops) if row.operations else "",
        _share(row.of_peak),
        f"{row.bytes / size:,.2f}" if row.of_bandwidth is not None else "",
        _number(row.gigabytes) if row.of_bandwidth is not None else "",
        _share(row.of_bandwidth),
    ]


def _cycles(row: Row, wanted: bool) -> list[str]:
    return [("" if row.cycles is None else f"{row.cycles:,}")] if wanted else []


def _below(profile: Profile) -> list[str]:
    """Return the lines below the table."""
    peaks = [f"{value / 1e9:,.0f} GFLOP/s {dtype}" for dtype, value in profile.peaks.items()]
    limits = ", ".join([*peaks, f"{profile.bandwidth / 1e9:,.0f} GB/s"])
    factor, unit = _unit(profile.seconds, _TIMES)
    lines = [
        f"whole run {profile.seconds / factor:,.3f} {unit}; rows add up to {profile.covered:.1%} "
        f"of it; watching added {profile.overhead:+.1%}",
        f"limits of this machine: {limits}",
    ]
    here = [row for row in profile.rows if row.cycles is None and row.of_bandwidth is not None]
    without = [row for row in here if row.operations and row.of_peak is None]
    if without:
        lines.append(
            f"without a share of the peak {len(without)} of {len(profile.rows)} rows: no loop "
            f"measures that of {', '.join(sorted({row.dtype for row in without}))}"
        )
    if any((row.of_bandwidth or 0) > 1 for row in here):
        lines.append(
            "above 100% of mem.: what such a row reads was still in a cache, which is faster"
        )
    unknown = [row for row in here if row.operations is None]
    if unknown:
        lines.append(
            f"operations are not known of {len(unknown)} of {len(profile.rows)} rows: their sizes "
            "show only when they run, they call other code, or the file does not say"
        )
    cycles = sum(row.cycles or 0 for row in profile.rows)
    if cycles and profile.clock_mhz:
        lines.append(
            f"accelerator: {cycles:,} cycles, {cycles / profile.clock_mhz / 1e3:.3f} ms at "
            f"{profile.clock_mhz} MHz; the times of its rows are its simulator's on this processor"
        )
    if profile.note:
        lines.append(f"note: {profile.note}")
    return lines


def _cut(name: str) -> str:
    return name if len(name) <= _WIDTH else f"{name[: _WIDTH - 3]}..."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def bars(profile: Profile, most: int) -> Figure:
    """Draw the longest rows; see `Profile.bars`."""
    if most < 1:
        raise InputError(
            f"{most} bars cannot be drawn", where="Profile.bars", fix="give at least 1"
        )
    shown = profile.rows[:most]
    factor, unit = _unit(profile.seconds, _TIMES)
    values: dict[str, float] = {}
    for place, row in enumerate(shown, 1):
        name = row.name
        if len(name) > _WIDTH or name in values:
            # Its place keeps it apart from others that begin alike.
            name = f"{place}. {name[: _WIDTH - 7]}..."
        values[name] = row.seconds / factor
    rest = profile.rows[most:]
    if rest:
        values[f"{len(rest)} more"] = sum(row.seconds for row in rest) / factor
    return plot.bars(values, unit=unit, title="Where the time goes")


def roofline(profile: Profile) -> Figure:
    """Draw the rows below the machine's limits; see `Profile.roofline`."""
    done: Counter[str] = Counter()
    for row in profile.rows:
        if row.of_peak is not None:
            done[row.dtype] += row.operations or 0
    dtype = max(done, key=done.__getitem__, default="")
    groups: dict[str, list[tuple[float, float]]] = {}
    for row in profile.rows:
        if row.dtype == dtype and row.of_peak is not None and row.intensity and row.gflops:
            groups.setdefault(row.kind, []).append((row.intensity, row.gflops))
    if not groups:
        raise InputError(
            "no function computes in a dtype whose peak is measured",
            where="Profile.roofline",
            fix="profile a network whose sums are float32, float64 or products of int8",
        )
    return plot.roofline(
        groups,
        peak=profile.peaks[dtype] / 1e9,
        bandwidth=profile.bandwidth / 1e9,
        title=f"The functions that compute in {dtype}",
    )


def trace(profile: Profile, path: str | os.PathLike[str]) -> Path:
    """Write the median run; see `Profile.trace`."""
    content = {
        "traceEvents": events(profile),
        "displayTimeUnit": "ms",
        "otherData": {
            "target": profile.target,
            "seconds": profile.seconds,
            "shown": caption(profile),
        },
    }
    return save(path, json.dumps(content, indent=1, allow_nan=False))


def events(profile: Profile) -> list[dict[str, Any]]:
    """List the events of the median run.

    The run and its calls are on the processor's track. An accelerator's layers are on a track of
    their own, in the accelerator's time, which starts with the call of their region.
    """
    rows = {row.name: row for row in profile.rows}
    first = profile.run[0].start
    # Viewers show the names of tracks, but hide `otherData`.
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
    details: dict[str, Any] = {"tensors": list(row.tensors)}
    if row.operations is not None:
        details["operations"] = row.operations // row.calls
    if row.cycles is not None:
        details["cycles"] = row.cycles // row.calls
    return details
