"""Where the time of a compiled network goes, function by function.

`profile` runs an executable with and without a clock beside the virtual machine, and compares the
time of each function with its operations, its bytes and the limits of this machine.

TVM 0.27's virtual machine has no profiler any more, but calls an *instrument*, a function, before
and after each of its calls. The instrument is in C++ (`tvmlab/native/recorder`), because one in
Python converts all arguments within the time that is measured. Timing the functions one by one is
no alternative: each would find its inputs in the caches, and the sum would be too small.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, TargetError
from ...schedule import Work
from ...support import toolchain
from ..peak import peak_bandwidth, peak_flops
from ..timing import Measurement, expect_counts
from .result import Event, Layer, Profile, Row, Run

if TYPE_CHECKING:
    from ...npu.report import Table
    from ..executable import Executable

__all__ = ["MACHINE", "SOURCE", "Event", "Layer", "Profile", "Row", "profile"]

#: The row of the virtual machine itself: checking inputs, allocating, dispatching.
MACHINE = "virtual machine"

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
        A row for each function, and one for the rest of the run, which the virtual machine takes.
        Print it.

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
    The machine's limits are measured the first time that a process profiles. The clock costs time
    at each call of the virtual machine, which no row includes (`Profile.overhead`). The medians of
    the rows add up to less than the median of the whole if other programs disturb different
    functions in different runs (`Profile.covered`).
    """
    expect_counts(repeats=repeats)
    if executable.target.kind.name != "llvm":
        raise TargetError(
            f"only a CPU's functions are timed one by one, not those of {executable.target.kind}",
            where=repr(executable),
            fix="use the profiler of the device's maker, or compile for the CPU",
        )
    regions = _regions(executable.vm_executable)
    with executable._ready(inputs, named) as (running, tensors):
        recording = record(running.machine, running.main, tensors, repeats=repeats)
    rows = _rows(recording, executable.work, regions)
    dtypes = sorted({row.dtype for row in rows if row.of_peak is not None})
    clocks = [table.config.clock_mhz for table in regions.values()]
    return Profile(
        rows,
        Measurement(tuple(time / 1e9 for time in recording.plain)),
        Measurement(tuple(run[0].nanoseconds / 1e9 for run in recording.watched)),
        str(executable.target),
        {dtype: most for dtype in dtypes if (most := peak(dtype)) is not None},
        bandwidth(),
        _middle(recording.watched),
        {
            name: tuple(Layer(row.name, row.cycles) for row in table.layers)
            for name, table in regions.items()
        },
        clocks[0] if clocks else None,
    )


@cache
def peak(dtype: str) -> float | None:
    """Measure this machine's operations per second once; None if no loop measures the dtype."""
    try:
        return peak_flops(dtype)
    except InputError:
        return None


@cache
def bandwidth() -> float:
    """Measure the memory's bytes per second once."""
    return peak_bandwidth()


def _regions(built: Any) -> dict[str, Table]:
    """Count the cycles of each accelerator region in a compiled or loaded module, by name."""
    found: dict[str, Table] = {}
    left = list(getattr(built, "mod", built).imports)
    while left:
        module = left.pop()
        left.extend(module.imports)
        if str(module.kind) == "tvmlab_npu":
            # Here: most executables need no accelerator.
            from ...npu import report, simulator
            from ...npu.program import Program

            name, program = simulator.described(module)
            (found[name],) = report(Program.from_bytes(program)).regions
    return found


def _middle(runs: tuple[Run, ...]) -> Run:
    """Return the run with the median time, the shorter one of two."""
    return sorted(runs, key=lambda run: run[0].nanoseconds)[(len(runs) - 1) // 2]


def _rows(
    recording: Recording, work: Mapping[str, Work], regions: Mapping[str, Table]
) -> tuple[Row, ...]:
    """Add up each function's calls in each run, and take the medians."""
    sums: dict[str, list[tuple[int, int, int]]] = {}  # a run's calls, nanoseconds and bytes
    for run in recording.watched:
        alone: dict[str, list[Event]] = {}
        for event in _functions(run):
            alone.setdefault(event.name, []).append(event)
        for name, events in alone.items():
            sums.setdefault(name, []).append(
                (len(events), sum(e.nanoseconds for e in events), sum(e.bytes for e in events))
            )
    whole = statistics.median(recording.plain) / 1e9
    rows = []
    for name, runs in sums.items():
        calls, time, size = map(statistics.median, zip(*runs, strict=True))
        # A clock that stood still has seen less than its step.
        seconds = max(time, 1) / 1e9
        about = recording.tensors.get(name, ()), work.get(name), regions.get(name)
        rows.append(_row(name, round(calls), seconds, whole, round(size), *about))
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


def _row(
    name: str,
    calls: int,
    seconds: float,
    whole: float,
    size: int,
    tensors: tuple[str, ...],
    work: Work | None,
    region: Table | None,
) -> Row:
    """Compare a function's time with its work and with the limits of the machine."""
    operations = None if work is None or work.operations is None else calls * work.operations
    dtype, kind = ("", "other") if work is None else (work.dtype, work.rule or "other")
    cycles = None
    if region is not None:
        counted = region.total.counters
        macs = counted["array_macs"] + counted["vector_macs"]
        operations, dtype, kind = 2 * calls * macs, "int8", "accelerator"
        cycles = calls * region.total.cycles
    # A simulator's speed is no share of what its processor does.
    most = peak(dtype) if operations and region is None else None
    of_peak = operations / seconds / most if operations and most else None
    of_bandwidth = size / seconds / bandwidth()
    share = seconds / whole
    return Row(
        *(name, kind, calls, seconds, share, operations, dtype, size, of_peak, of_bandwidth),
        tensors,
        cycles,
    )


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
        number, taken = 1, runs(None, 1)
        while number < _MOST_RUNS and _length(taken) < _SAMPLE_NANOSECONDS:
            number = min(2 * number, _MOST_RUNS)
            taken = runs(None, number)
        plain: list[Run] = []
        watched: list[Run] = []
        for _ in range(repeats):
            plain += runs(None, number)
            watched += runs(tell, number)
    finally:
        machine.set_instrument(None)
        take()  # of a run that failed: its events would stay in memory
    return Recording(tuple(one[0].nanoseconds for one in plain), tuple(watched), shapes)


def _length(runs: Sequence[Run]) -> int:
    return sum(one[0].nanoseconds for one in runs)


def _runs(names: Sequence[str], data: bytes) -> list[Run]:
    """Read the recorder's events, five numbers each, the first of them that of a name."""
    found: list[list[Event]] = []
    for name, depth, start, end, size in np.frombuffer(data, np.int64).reshape(-1, 5).tolist():
        if depth == 0:
            found.append([])
        found[-1].append(Event(names[name], depth, start, end, size))
    return [tuple(one) for one in found]
