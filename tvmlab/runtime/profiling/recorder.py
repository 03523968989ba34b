"""Running the virtual machine with a clock beside it.

TVM 0.27's virtual machine has no profiler any more, but calls an *instrument*, a function, before
and after each of its calls. The instrument is in C++ (`tvmlab/native/recorder`), because one in
Python converts all arguments within the time that is measured. Timing the functions one by one is
no alternative: each would find its inputs in the caches, and the sum would be too small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...support import toolchain

__all__ = ["SOURCE", "Event", "Recording", "record"]

#: The recorder's source.
SOURCE = Path(__file__).resolve().parents[2] / "native" / "recorder" / "recorder.cc"

# A sample takes at least this long where the runs are short, so that there are many to take the
# median of; but no more than so many runs.
_SAMPLE_NANOSECONDS = 2_000_000
_MOST_RUNS = 100


@dataclass(frozen=True)
class Event:
    """One call of the virtual machine, or the run itself.

    Attributes
    ----------
    name : str
        The function; ``"main"`` for the run.
    depth : int
        The number of enclosing calls, 0 for the run.
    start, end : int
        Nanoseconds of a monotonic clock.
    bytes : int
        The size of its tensors, each counted once: inputs, weights and outputs.
    """

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
class Recording:
    """The times and the events of several runs.

    Attributes
    ----------
    plain : tuple of int
        Nanoseconds of the runs without the clock.
    watched : tuple of tuple of Event
        As many runs with the clock, interleaved with the others: the run itself first, then its
        calls in the order in which they began.
    tensors : dict of str to tuple of str
        Dtype and shape of each tensor of a function's first call, such as
        ``"float32 1x3x224x224"``; outputs come last.
    """

    plain: tuple[int, ...]
    watched: tuple[Run, ...]
    tensors: dict[str, tuple[str, ...]] = field(default_factory=dict)


@cache
def _library() -> Any:
    """Build (once) and load the recorder."""
    return toolchain.load_extension(toolchain.build_extension([SOURCE], name="recorder"))


def record(machine: Any, main: Any, tensors: Sequence[Any], *, repeats: int) -> Recording:
    """Run a function of a virtual machine, alternately with and without the clock.

    Parameters
    ----------
    machine : tvm.relax.VirtualMachine
        The machine, which has no instrument afterwards.
    main : tvm_ffi.Function
        The function.
    tensors : sequence of tvm.runtime.Tensor
        Its arguments.
    repeats : int
        Samples of each kind, at least 1. A sample of a short function is several runs.

    Raises
    ------
    ToolchainError
        The recorder cannot be built.
    """
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
