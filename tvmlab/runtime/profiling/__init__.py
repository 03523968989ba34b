"""Where the time of a compiled network goes, function by function.

TVM 0.27's virtual machine calls an *instrument*, a function, before and after each of its calls.
The instrument is in C++ (`tvmlab/native/recorder`), because one in Python converts all arguments
within the time that is measured. Timing the functions one by one is no alternative: each would find
its inputs in the caches, and the sum would be too small.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, TargetError
from ...schedule import Work
from ...support import toolchain
from ..library import SIMULATED, modules
from ..timing import Measurement, expect_counts, peak_bandwidth, peak_flops
from .result import MACHINE, Event, Profile, Row, Run

if TYPE_CHECKING:
    from ..executable import Executable

__all__ = ["MACHINE", "SOURCE", "Event", "Profile", "Row", "profile"]

_BUILTIN = "vm.builtin."
#: The recorder's source.
SOURCE = Path(__file__).resolve().parents[2] / "native" / "recorder" / "recorder.cc"

# A sample takes at least this long where the runs are short, so that there are many to take the
# median of; but no more than so many runs.
_SAMPLE_NANOSECONDS = 2_000_000
_MOST_RUNS = 100


def profile(executable: Executable, /, *inputs: Any, repeats: int = 10, **named: Any) -> Profile:
    """Measure the time of each function of an executable's ``main``.

    Parameters
    ----------
    executable : tvmlab.Executable
        From `tvmlab.compile` or `tvmlab.load_executable`, for a CPU.
    *inputs, **named : array
        As in a call of it.
    repeats : int
        Samples with the clock, interleaved with as many without. A sample of a network that takes
        less than 2 ms is several runs, at most 100.

    Returns
    -------
    Profile
        A row for each function, and one for the virtual machine. Print it.

    Raises
    ------
    InputError
        An input does not fit, or `repeats` is below 1.
    TargetError
        The executable is for a GPU, or for another processor than this one.
    ToolchainError
        There is no C++ compiler to build the recorder with.

    Notes
    -----
    The machine's limits are measured the first time that a process profiles. No row includes what
    the clock costs (`Profile.overhead`). The rows add up to less than the whole if other programs
    disturb different functions in different runs (`Profile.covered`).
    """
    expect_counts(repeats=repeats)
    if executable.target.kind.name != "llvm":
        raise TargetError(
            f"only a CPU's functions are timed one by one, not those of {executable.target.kind}",
            where=repr(executable),
            fix="use the profiler of the device's maker, or compile for the CPU",
        )
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
    """Measure this machine's operations per second once; None if no loop measures the dtype."""
    try:
        return peak_flops(dtype)
    except InputError:
        return None


bandwidth = cache(peak_bandwidth)


def _middle(runs: tuple[Run, ...]) -> Run:
    """Return the run with the median time, the shorter one of two."""
    return sorted(runs, key=lambda run: run[0].nanoseconds)[(len(runs) - 1) // 2]


def _rows(
    recording: Recording, work: Mapping[str, Work], simulated: Collection[str]
) -> tuple[Row, ...]:
    """Add up each function's calls in each run, and take the medians."""
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
        # A clock that stood still has seen less than its step.
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
    """Return the nanoseconds of the virtual machine itself: a run without its functions."""
    watched = min(run[0].nanoseconds for run in recording.watched) - min(recording.plain)
    left = statistics.median(
        run[0].nanoseconds - sum(event.nanoseconds for event in _functions(run))
        for run in recording.watched
    )
    return max(left - max(watched, 0), 0.0)


def _functions(run: Run) -> list[Event]:
    """Leave out the run, functions of Relax, which only call, and the machine's builtins."""
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


def record(machine: Any, main: Any, tensors: Sequence[Any], *, repeats: int) -> Recording:
    """Run a function of a virtual machine, alternately with and without the clock."""
    tell, run, take = _library().make()
    shapes: dict[str, tuple[str, ...]] = {}

    def runs(instrument: Any, number: int) -> list[Run]:
        machine.set_instrument(instrument)
        for _ in range(number):
            run(main, *tensors)
        names, given, data = take()
        texts = [str(name) for name in names]
        shapes.update(zip(texts, (tuple(map(str, each)) for each in given), strict=True))
        return _runs(texts, data)

    try:
        # The first run of each kind does more than the others: it allocates.
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
        take()  # of a run that failed: its events would stay in memory
    return Recording(tuple(one[0].nanoseconds for one in plain), tuple(watched), shapes)


def _runs(names: Sequence[str], data: bytes) -> list[Run]:
    """Read the recorder's events, five numbers each, the first of them that of a name."""
    found: list[list[Event]] = []
    for name, depth, start, end, size in np.frombuffer(data, np.int64).reshape(-1, 5).tolist():
        if depth == 0:
            found.append([])
        found[-1].append(Event(names[name], depth, start, end, size))
    return [tuple(one) for one in found]
