"""Measure the time of each function of a compiled network.

TVM 0.27's virtual machine calls an *instrument* function before and after each of its calls.
The instrument is in C++ (`tvmlab/native/recorder`), because a Python function would convert all
arguments within the measured time. Timing the functions one by one is no alternative: each would
find its inputs in the caches, and the sum would be too small.
"""

from __future__ import annotations

import json
import os
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plot
from ..errors import InputError, TargetError, TvmlabError
from ..schedule import Work
from ..support import toolchain
from ..support.files import written
from ..support.wording import table
from .library import SIMULATED, modules
from .timing import Measurement, expect_counts, peak_bandwidth, peak_flops, unit_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .executable import Executable

__all__ = ["MACHINE", "SOURCE", "Event", "Profile", "Row", "events", "profile"]

#: The row of the virtual machine itself: input checks, allocation, dispatch.
MACHINE = "virtual machine"
#: The recorder's source.
SOURCE = Path(__file__).resolve().parents[1] / "native" / "recorder" / "recorder.cc"

_BUILTIN = "vm.builtin."
# Short runs are repeated this long, but at most this often; the median counts.
_SAMPLE_NANOSECONDS, _MOST_RUNS = 2_000_000, 100
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
        The rule that scheduled it, ``"accelerator"`` (with the time of its simulator on this
        processor), ``"virtual machine"``, or ``"other"``.
    calls : int
        Calls per run.
    seconds, share : float
        The median over the runs, and its share of the total time of a run, 0 to 1.
    operations, dtype : int or None, str
        Arithmetic on elements (`tvmlab.schedule.Work`), and the dtype of most of it.
    bytes : int
        Inputs, weights and outputs of each call, counted as whole tensors.
    of_peak, of_bandwidth : float or None
        The shares of this machine's operations and bytes per second; the latter exceeds 1 if the
        data was in a cache. None if there are none, or if the peak of the dtype is not measured.
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
    """The time of each function of a compiled network; print it for a table.

    Attributes
    ----------
    rows : tuple of Row
        The rows with the longest times first.
    whole, watched : tvmlab.bench.Measurement
        Runs without the recorder, and with it, interleaved.
    target : str
        The target that the network was compiled for.
    peaks, bandwidth : dict of str to float, float
        This machine's peak operations per second by dtype, and its memory bytes per second.
    run : tuple of tvmlab.profiling.Event
        The recorded run with the median time: the run itself, then its calls in order.
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
        """The median time of the runs without the recorder."""
        return self.whole.median

    @property
    def overhead(self) -> float:
        """The median share that the recorder adds to the time of a run."""
        pairs = zip(self.watched.samples, self.whole.samples, strict=True)
        return statistics.median(watched / plain for watched, plain in pairs) - 1

    @property
    def covered(self) -> float:
        """The sum of the rows over the total time: about 1 on a quiet machine."""
        return sum(row.seconds for row in self.rows) / self.seconds

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of each row by its name."""
        return {row.name: row.kind for row in self.rows}

    def __str__(self) -> str:
        time = unit_of(self.seconds)
        size = unit_of(max(row.bytes for row in self.rows), _SIZES)
        speeds = ["GFLOP/s", "of peak", size[1], "GB/s", "of mem."]
        head = ["function", "output", "calls", time[1], "share", *speeds]
        rows = [_cells(row, time[0], size[0]) for row in self.rows]
        return "\n".join([table(head, rows), *_below(self)])

    def data(self) -> dict[str, Any]:
        """Return all fields except the run as plain values for JSON, by the names of attributes."""
        more = {name: getattr(self, name) for name in ("seconds", "overhead", "covered")}
        return asdict(replace(self, run=())) | more

    def trace(self, path: str | os.PathLike[str]) -> Path:
        """Write the median run as JSON that Perfetto (ui.perfetto.dev) and Chrome open.

        Raises `TvmlabError` if the file cannot be written; it is written completely or not at all.
        """
        about = {"target": self.target, "seconds": self.seconds}
        content = {"traceEvents": events(self), "displayTimeUnit": "ms", "otherData": about}
        return _save(path, json.dumps(content, indent=1, allow_nan=False))

    def flame(self, path: str | os.PathLike[str]) -> Path:
        """Write the median run as folded stacks, the text format of flame graphs.

        Each line has a call, below its callers, and the nanoseconds that it spends in itself.
        Open the file in speedscope (www.speedscope.app), or draw it with Gregg's flamegraph.pl.
        Raises `TvmlabError` if the file cannot be written; it is written completely or not at all.
        """
        stack: list[str] = []
        own: Counter[str] = Counter()
        for event in self.run:
            del stack[event.depth :]
            if stack:
                own[";".join(stack)] -= event.nanoseconds
            stack.append("".join(c if c.isprintable() and c != ";" else "?" for c in event.name))
            own[";".join(stack)] += event.nanoseconds
        return _save(path, "".join(f"{calls} {max(time, 0)}\n" for calls, time in own.items()))

    def bars(self, most: int = 12) -> Figure:
        """Draw the longest `most` rows as bars, and all other rows as one bar."""
        shown, rest = self.rows[:most], self.rows[most:]
        factor, unit = unit_of(self.seconds)
        # The index distinguishes rows whose shortened names are equal.
        values = {
            f"{place}. {row.name}"[:_WIDTH]: row.seconds / factor
            for place, row in enumerate(shown, 1)
        }
        if rest:
            values[f"{len(rest)} more"] = sum(row.seconds for row in rest) / factor
        return plot.bars(values, unit=unit, title="Where the time goes")

    def roofline(self) -> Figure:
        """Draw the rows of the dtype with the most operations in this machine's roofline.

        Raises `InputError` if no row computes in a dtype whose peak is measured.
        """
        rows = [row for row in self.rows if row.of_peak and row.operations]
        if not rows:
            what = "no function computes in a dtype whose peak is measured"
            fix = "profile a network that computes in float32, float64 or int8"
            raise InputError(what, where="Profile.roofline", fix=fix)
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
    factor, unit = unit_of(profile.seconds)
    lines = [
        f"whole run {profile.seconds / factor:,.3f} {unit}; rows add up to {profile.covered:.1%} "
        f"of it; watching added {profile.overhead:+.1%}",
        f"limits of this machine: {limits}",
    ]
    if any((row.of_bandwidth or 0) > 1 for row in profile.rows):
        lines += ["above 100% of mem.: what such a row reads was still in a cache, which is faster"]
    if "accelerator" in profile.kinds.values():
        lines += ["the accelerator is simulated: its rows have its simulator's times"]
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


# Measuring.


def profile(executable: Executable, /, *inputs: Any, repeats: int = 10, **named: Any) -> Profile:
    """Measure the time of each function of an executable's ``main``.

    The machine's limits are measured the first time that a process profiles. No row includes the
    overhead of the recorder (`Profile.overhead`).

    Parameters
    ----------
    executable : tvmlab.Executable
        From `tvmlab.compile` or `tvmlab.load_executable`, for a CPU.
    *inputs, **named : array
        The inputs, as in a call.
    repeats : int
        Samples with the recorder, interleaved with as many without. A sample of a network that
        takes less than 2 ms is several runs, at most 100.

    Raises
    ------
    InputError
        An input does not match, or `repeats` is below 1.
    TargetError
        The executable is for a GPU, or for another processor than this one.
    ToolchainError
        There is no C++ compiler to build the recorder with.
    """
    expect_counts(repeats=repeats)
    if executable.target.kind.name != "llvm":
        what = f"the profiler supports only CPUs, not the target kind {executable.target.kind}"
        fix = "use the profiler of the device's vendor, or compile for the CPU"
        raise TargetError(what, where=repr(executable), fix=fix)
    with executable._ready(inputs, named) as (running, tensors):
        recording = record(running.machine, running.main, tensors, repeats=repeats)
    simulated = [
        name
        for module in modules(executable.vm_executable)
        if module.kind == SIMULATED
        for name in recording.tensors
        if module.implements_function(name)
    ]
    rows = _rows(recording, executable.work, simulated)
    return Profile(
        rows,
        Measurement(tuple(time / 1e9 for time in recording.plain)),
        Measurement(tuple(run[0].nanoseconds / 1e9 for run in recording.watched)),
        str(executable.target),
        {row.dtype: peak(row.dtype) or 0 for row in rows if row.of_peak is not None},
        bandwidth(),
        _middle(recording.watched),
    )


@cache
def peak(dtype: str) -> float | None:
    """Measure this machine's operations per second once; None if there is no loop for the dtype."""
    try:
        return peak_flops(dtype)
    except InputError:
        return None


bandwidth = cache(peak_bandwidth)


def _middle(runs: tuple[Run, ...]) -> Run:
    """Return the run with the median time; of an even number, the shorter one."""
    return sorted(runs, key=lambda run: run[0].nanoseconds)[(len(runs) - 1) // 2]


def _rows(
    recording: Recording, work: Mapping[str, Work], simulated: Collection[str]
) -> tuple[Row, ...]:
    """Sum each function's calls per run, and take the medians over the runs."""
    sums: dict[str, list[tuple[int, int, int]]] = {}  # a run's calls, nanoseconds and bytes
    for run in recording.watched:
        alone: dict[str, tuple[int, int, int]] = {}
        for event in _functions(run):
            calls, time, size = alone.get(event.name, (0, 0, 0))
            alone[event.name] = calls + 1, time + event.nanoseconds, size + event.bytes
        for name, added in alone.items():
            sums.setdefault(name, []).append(added)
    whole = statistics.median(recording.plain) / 1e9
    rows = []
    for name, runs in sums.items():
        calls, time, size = map(statistics.median, zip(*runs, strict=True))
        # A measured time of 0 means less than the clock's resolution.
        seconds = max(time, 1) / 1e9
        known = work.get(name, Work(None, "", ""))
        operations = None if known.operations is None else round(calls) * known.operations
        most = peak(known.dtype) if operations else None
        row = Row(
            name,
            "accelerator" if name in simulated else known.rule or "other",
            round(calls),
            seconds,
            seconds / whole,
            operations,
            known.dtype,
            round(size),
            operations / seconds / most if operations and most else None,
            size / seconds / bandwidth(),
            recording.tensors.get(name, ()),
        )
        rows.append(row)
    left = _left(recording) / 1e9
    own = sum(event.name.startswith(_BUILTIN) for event in _middle(recording.watched))
    rows.append(Row(MACHINE, MACHINE, own, left, left / whole, None, "", 0, None, None))
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _left(recording: Recording) -> float:
    """Return the time of the virtual machine itself: that of a run without its functions."""
    watched = min(run[0].nanoseconds for run in recording.watched) - min(recording.plain)
    left = statistics.median(
        run[0].nanoseconds - sum(event.nanoseconds for event in _functions(run))
        for run in recording.watched
    )
    return max(left - max(watched, 0), 0.0)


def _functions(run: Run) -> list[Event]:
    """Leave out the run, Relax functions, which only call others, and the machine's builtins."""
    return [
        event
        for event, after in zip(run, [*run[1:], None], strict=True)
        if (after is None or after.depth <= event.depth)
        and event.depth > 0
        and not event.name.startswith(_BUILTIN)
    ]


@dataclass(frozen=True)
class Recording:
    """The times and the events of several runs."""

    plain: tuple[int, ...]
    watched: tuple[Run, ...]
    tensors: dict[str, tuple[str, ...]] = field(default_factory=dict)


@cache
def _library() -> Any:
    """Build (once) and load the recorder."""
    return toolchain.load_extension(toolchain.build_extension([SOURCE], name="recorder"))


def record(machine: Any, main: Any, inputs: Sequence[Any], *, repeats: int) -> Recording:
    """Run a function of a virtual machine, alternately with and without the recorder."""
    tell, run, take = _library().make()

    def runs(instrument: Any, number: int) -> list[Run]:
        machine.set_instrument(instrument)
        for _ in range(number):
            run(main, *inputs)
        names, _, data = take()
        return _runs([str(name) for name in names], data)

    try:
        # The first run of each kind is slower, because it allocates memory.
        runs(tell, 1)
        runs(None, 1)
        once = min(run[0].nanoseconds for run in runs(None, 3))
        number = min(1 + _SAMPLE_NANOSECONDS // max(once, 1), _MOST_RUNS)
        plain: list[Run] = []
        watched: list[Run] = []
        for _ in range(repeats):
            plain += runs(None, number)
            watched += runs(tell, number)
    finally:
        machine.set_instrument(None)
        names, tensors, _ = take()  # clears the events of a run that failed
    shapes = {str(name): tuple(map(str, each)) for name, each in zip(names, tensors, strict=True)}
    return Recording(tuple(one[0].nanoseconds for one in plain), tuple(watched), shapes)


def _runs(names: Sequence[str], data: bytes) -> list[Run]:
    """Parse the recorder's events: five numbers per event, the first one the index of a name."""
    found: list[list[Event]] = []
    for name, depth, start, end, size in np.frombuffer(data, np.int64).reshape(-1, 5).tolist():
        if depth == 0:
            found.append([])
        found[-1].append(Event(names[name], depth, start, end, size))
    return [tuple(one) for one in found]
