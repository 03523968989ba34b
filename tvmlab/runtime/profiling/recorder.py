"""Running the virtual machine with a clock beside it.

TVM 0.27's machine has no profiler of its own any more. It offers an *instrument*: a function that
it calls before and after each of its calls. Three ways were weighed:

- An instrument in Python: each of its calls turns all arguments into Python objects, in part
  within the time that is measured.
- Timing the functions one by one: each finds its inputs and weights in the caches, where the
  function before it in the network would have left others. Sums of such times are too small.
- An instrument in C++ (`tvmlab/native/recorder`): `Profile.overhead` says what it costs, and the
  section "profiling" of `make bench` holds that to a bar. Nothing sleeps meanwhile, so the threads
  of TVM's pool are as awake as without it. That is what is done here; it needs a C++ compiler once.
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
    """One call that the machine made, or the run itself.

    Attributes
    ----------
    name : str
        Of the function that was called; ``"main"`` for the run.
    depth : int
        How many calls it stands in: 0 for the run.
    start, end : int
        In nanoseconds, by a clock that never goes back.
    bytes : int
        Of the tensors that it was given, each counted once: inputs, weights and outputs.
    """

    name: str
    depth: int
    start: int
    end: int
    bytes: int

    @property
    def nanoseconds(self) -> int:
        """How long it took."""
        return self.end - self.start


Run = tuple[Event, ...]


@dataclass(frozen=True)
class Recording:
    """What was seen of some runs.

    Attributes
    ----------
    plain : tuple of int
        Nanoseconds of runs that nobody watched.
    watched : tuple of tuple of Event
        As many runs, taken in turn with the plain ones: the run itself first, then its calls in the
        order in which they began.
    tensors : dict of str to tuple of str
        What each function was given when it was first called: dtype and shape of each tensor, as
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
    """Run a function of a virtual machine, watched and not, in turn.

    Parameters
    ----------
    machine : tvm.relax.VirtualMachine
        The machine; nothing instruments it afterwards.
    main : tvm_ffi.Function
        Its function.
    tensors : sequence of tvm.runtime.Tensor
        What to call that with.
    repeats : int
        Samples of each kind, at least 1. Of short functions a sample is several runs.

    Returns
    -------
    Recording

    Raises
    ------
    ToolchainError
        The recorder has to be built first, and cannot be.
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
        take()  # of a run that failed: it would hold its events for nobody
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
