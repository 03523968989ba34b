"""A profile: its rows, the whole run, and one run in detail; as text, figures and a trace file.

The trace has Chrome's Trace Event Format (Duca, Sinclair, 2016), which Perfetto opens, too: a JSON
object with *complete* events (``"ph": "X"``), which have a begin and a duration in microseconds,
and *metadata* events (``"M"``), which name the tracks.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import plot
from ...errors import InputError, TvmlabError
from ...support.files import written
from ...support.wording import table
from ..timing import Measurement
from . import flame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["MACHINE", "Event", "Profile", "Row", "Run", "events"]

#: The row of the virtual machine itself: checking inputs, allocating, dispatching.
MACHINE = "virtual machine"
# Units, the largest first.
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_WIDTH = 40


@dataclass(frozen=True)
class Event:
    """One call of the virtual machine, or the run itself."""

    name: str
    depth: int
    start: int
    end: int
    bytes: int

    @property
    def nanoseconds(self) -> int:
        """The duration."""
        return self.end - self.start


Run = tuple[Event, ...]


@dataclass(frozen=True)
class Row:
    """A function of the compiled network, with all its calls in one run.

    Attributes
    ----------
    name : str
        The function, or `MACHINE` for the virtual machine itself.
    kind : str
        The rule that scheduled it, ``"accelerator"`` (the time is then its simulator's on this
        processor), ``"virtual machine"``, or ``"other"``.
    calls : int
        Calls per run.
    seconds, share : float
        The median over the runs, and its share of the whole run's time, 0 to 1.
    operations, dtype : int or None, str
        Arithmetic on elements (`tvmlab.schedule.Work`), and the dtype of most of it.
    bytes : int
        Inputs, weights and outputs of each call, as whole tensors.
    of_peak, of_bandwidth : float or None
        The shares of this machine's operations and bytes per second; the latter is above 1 if the
        data was in a cache. None if there are none, or the peak of the dtype is not measured.
    tensors : tuple of str
        Dtype and shape of each tensor of the first call, such as ``"float32 1x3x224x224"``;
        outputs come last.
    """

    name: str
    kind: str
    calls: int
    seconds: float
    share: float
    operations: int | None
    dtype: str
    bytes: int
    of_peak: float | None
    of_bandwidth: float | None
    tensors: tuple[str, ...] = ()

    @property
    def gflops(self) -> float | None:
        """Billions of operations per second; None if they are unknown."""
        return None if self.operations is None else self.operations / self.seconds / 1e9

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None if they are unknown or there are no bytes."""
        return self.operations / self.bytes if self.operations is not None and self.bytes else None


@dataclass(frozen=True)
class Profile:
    """Where the time of a compiled network goes; print it for a table.

    Attributes
    ----------
    rows : tuple of Row
        The longest first.
    whole, watched : tvmlab.bench.Measurement
        Runs without the clock, and with it, interleaved.
    target : str
        The target that it was compiled for.
    peaks, bandwidth : dict of str to float, float
        The most operations per second of this machine by dtype, and bytes of its memory.
    run : tuple of tvmlab.profiling.Event
        The watched run with the median time: itself, then its calls in order.
    """

    rows: tuple[Row, ...]
    whole: Measurement
    watched: Measurement
    target: str
    peaks: dict[str, float]
    bandwidth: float
    run: tuple[Event, ...] = field(repr=False)

    @property
    def seconds(self) -> float:
        """The median time of the runs without the clock."""
        return self.whole.median

    @property
    def overhead(self) -> float:
        """The median share that the clock adds to the time of a run."""
        pairs = zip(self.watched.samples, self.whole.samples, strict=True)
        return statistics.median(watched / plain for watched, plain in pairs) - 1

    @property
    def covered(self) -> float:
        """The sum of the rows over the whole: about 1 on a quiet machine."""
        return sum(row.seconds for row in self.rows) / self.seconds

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each row by its name."""
        return {row.name: row.kind for row in self.rows}

    def __str__(self) -> str:
        time = _unit(self.seconds, _TIMES)
        size = _unit(max(row.bytes for row in self.rows), _SIZES)
        speeds = ["GFLOP/s", "of peak", size[1], "GB/s", "of mem."]
        head = ["function", "output", "calls", time[1], "share", *speeds]
        rows = [_cells(row, time[0], size[0]) for row in self.rows]
        return "\n".join([table(head, rows), *_below(self)])

    def data(self) -> dict[str, Any]:
        """Return everything but the run as plain values for JSON, by the names of attributes."""
        more = {name: getattr(self, name) for name in ("seconds", "overhead", "covered")}
        return asdict(replace(self, run=())) | more

    def trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the median run as JSON that Perfetto (ui.perfetto.dev) and Chrome open.

        Raises `TvmlabError` if the file, which appears whole or not at all, cannot be written.
        """
        about = {"target": self.target, "seconds": self.seconds}
        content = {"traceEvents": events(self), "displayTimeUnit": "ms", "otherData": about}
        return _save(path, json.dumps(content, indent=1, allow_nan=False))

    def flame(self, path: str | os.PathLike[str]) -> Path:
        """Write the median run as a flame graph: each call on its caller, as wide as its time.

        Raises `TvmlabError` if the file, which appears whole or not at all, cannot be written.
        """
        root = flame.frames(self.run, self.kinds)
        return _save(path, flame.svg(root))

    def bars(self, most: int = 12) -> Figure:
        """Draw the longest `most` rows as bars, and the others as one bar."""
        shown = self.rows[:most]
        factor, unit = _unit(self.seconds, _TIMES)
        # Its place keeps a row apart from others whose names begin alike.
        values = {
            f"{place}. {row.name}"[:_WIDTH]: row.seconds / factor
            for place, row in enumerate(shown, 1)
        }
        rest = self.rows[most:]
        if rest:
            values[f"{len(rest)} more"] = sum(row.seconds for row in rest) / factor
        return plot.bars(values, unit=unit, title="Where the time goes")

    def roofline(self) -> Figure:
        """Draw the rows of the dtype with the most operations below the limits of this machine.

        Raises `InputError` if no row computes in a dtype whose peak is measured.
        """
        rows = [row for row in self.rows if row.of_peak and row.operations]
        if not rows:
            raise InputError(
                "no function computes in a dtype whose peak is measured",
                where="Profile.roofline",
                fix="profile a network whose sums are float32, float64 or products of int8",
            )
        done: Counter[str] = Counter()
        for row in rows:
            done[row.dtype] += row.operations or 0
        dtype = done.most_common(1)[0][0]
        groups: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row.dtype == dtype:
                groups.setdefault(row.kind, []).append((row.intensity or 0, row.gflops or 0))
        return plot.roofline(
            groups,
            peak=self.peaks[dtype] / 1e9,
            bandwidth=self.bandwidth / 1e9,
            title=f"The functions that compute in {dtype}",
        )


def _save(path: str | os.PathLike[str], text: str) -> Path:
    with written(path, TvmlabError) as part:
        part.write_text(text, encoding="utf-8")
    return Path(path)


def _unit(value: float, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """Return the largest unit that is not larger than the value, or the smallest one."""
    return next((unit for unit in units if unit[0] <= value), units[-1])


def _cells(row: Row, time: float, size: float) -> list[str]:
    moved = None if row.of_bandwidth is None else row.bytes
    return [
        row.name if len(row.name) <= _WIDTH else f"{row.name[: _WIDTH - 3]}...",
        row.tensors[-1].rpartition(" ")[2] if row.tensors else "",
        f"{row.calls:,}",
        f"{row.seconds / time:,.3f}",
        f"{row.share:.1%}",
        _known(row.gflops if row.operations else None, ",.1f"),
        _known(row.of_peak, ".0%"),
        _known(moved and moved / size, ",.2f"),
        _known(moved and moved / row.seconds / 1e9, ",.1f"),
        _known(row.of_bandwidth, ".0%"),
    ]


def _below(profile: Profile) -> list[str]:
    peaks = [f"{value / 1e9:,.0f} GFLOP/s {dtype}" for dtype, value in profile.peaks.items()]
    limits = ", ".join([*peaks, f"{profile.bandwidth / 1e9:,.0f} GB/s"])
    factor, unit = _unit(profile.seconds, _TIMES)
    lines = [
        f"whole run {profile.seconds / factor:,.3f} {unit}; rows add up to {profile.covered:.1%} "
        f"of it; watching added {profile.overhead:+.1%}",
        f"limits of this machine: {limits}",
    ]
    if any((row.of_bandwidth or 0) > 1 for row in profile.rows):
        lines.append(
            "above 100% of mem.: what such a row reads was still in a cache, which is faster"
        )
    if "accelerator" in profile.kinds.values():
        lines.append(
            "the accelerator is simulated: times of its rows are its simulator's on this processor"
        )
    return lines


def _known(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def events(profile: Profile) -> list[dict[str, Any]]:
    """List the events of the median run."""
    rows = {row.name: row for row in profile.rows}
    first = profile.run[0].start
    track = {"pid": 1, "tid": 1}
    named = {"name": "thread_name", "ph": "M", "ts": 0, **track, "args": {"name": MACHINE}}
    found: list[dict[str, Any]] = [named]
    for event in profile.run:
        args: dict[str, Any] = {"bytes": event.bytes}
        kind = MACHINE if event.depth else "run"
        if row := rows.get(event.name):
            kind = row.kind
            args["tensors"] = list(row.tensors)
            if row.operations is not None:
                args["operations"] = row.operations // row.calls
        times = {"ts": (event.start - first) / 1e3, "dur": event.nanoseconds / 1e3}
        found.append({"name": event.name, "cat": kind, "ph": "X", **track, **times, "args": args})
    return found
