"""Timing that can be compared: warm-up, repeats, medians, and candidates interleaved in one run.

The speed of a machine drifts: a laptop heats up, a neighbour starts a job. Two programs timed one
after the other are therefore not comparable. `compare` interleaves the candidates round by round,
begins each round with another candidate, and takes the ratio within each round.

Idle threads of TVM's pool (``TVM_THREAD_POOL_SPIN_COUNT``), of ONNX Runtime and of OpenBLAS spin
before they sleep. Each candidate keeps its runtime's default here, and
`compare` waits before each turn until the process uses next to no processor time, so that no
candidate spins into the time of another.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .. import plot
from ..errors import InputError
from ..support.wording import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAME_FORM = "every candidate takes and returns NumPy arrays"
# A sample takes at least this long, so that the clock's resolution does not count.
_SAMPLE_SECONDS = 2e-3
# How long one look takes whether the process is idle, and how many looks are enough: a program
# with a busy thread of its own never is.
_LOOK_SECONDS = 0.01
_LOOKS = 50


@dataclass(frozen=True)
class Measurement:
    """Times of one function: `samples` holds seconds per call, in the order they were taken."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """The interquartile range over the median: how noisy the machine was."""
        if len(self.samples) < 2:
            return 0.0
        quarters = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (quarters[2] - quarters[0]) / self.median

    def __str__(self) -> str:
        """Say the median, the spread and the number of samples."""
        return f"{_time(self.median)} (spread {self.spread:.0%}, {len(self.samples)} samples)"


@dataclass(frozen=True)
class Comparison:
    """Times of several candidates, interleaved in one run.

    Attributes
    ----------
    runs : dict of str to Measurement
        One measurement per candidate; sample ``i`` of each was taken in round ``i``.
    heading : str
        The line above the table; empty for none.
    """

    runs: dict[str, Measurement]
    heading: str = ""

    @property
    def medians(self) -> dict[str, float]:
        """Each candidate's median, in seconds per call."""
        return {name: run.median for name, run in self.runs.items()}

    def ratio(self, name: str, to: str) -> float:
        """Return the median over the rounds of time of `name` / time of `to`."""
        pairs = zip(self.runs[name].samples, self.runs[to].samples, strict=True)
        return statistics.median(a / b for a, b in pairs)

    def __str__(self) -> str:
        """Lay the results out as a table: median, spread, and the ratio to the last candidate."""
        last = list(self.runs)[-1]
        rows = [
            (name, _time(run.median), f"{run.spread:.0%}", f"{self.ratio(name, last):.2f}")
            for name, run in self.runs.items()
        ]
        found = table(("", "median", "spread", f"over {last}"), rows, left=(0, 3))
        return f"{self.heading}\n{found}" if self.heading else found

    def plot(self, title: str = "") -> Figure:
        """Draw every candidate's samples, in milliseconds."""
        runs = {name: [1e3 * s for s in run.samples] for name, run in self.runs.items()}
        return plot.samples(runs, unit="ms a call", title=title)


def measure(
    fn: Callable[[], object], *, warmup: int = 1, repeats: int = 10, number: int | None = None
) -> Measurement:
    """Time a function without arguments; the numbers of calls are those of `compare`.

    Returns
    -------
    Measurement
        Seconds per call.
    """
    return compare({"run": fn}, warmup=warmup, repeats=repeats, number=number).runs["run"]


def compare(
    candidates: Mapping[str, Callable[..., object]],
    *inputs: np.ndarray,
    warmup: int = 1,
    repeats: int = 10,
    number: int | None = None,
) -> Comparison:
    """Time several functions, interleaved: one sample of each per round.

    Each round begins with another candidate, because the candidate that follows a rest can find a
    faster clock.

    Parameters
    ----------
    candidates : mapping of str to callable
        The functions. Give all of them the same number of threads.
    *inputs : ndarray
        The NumPy arrays that each candidate is called with, and has to return others for, so that
        what a runtime spends on its own tensors counts for all of them or for none.
    warmup : int
        Calls of each candidate that are not counted.
    repeats : int
        Rounds.
    number : int, optional
        Calls per sample, the same for all; left out, each candidate's is doubled until its calls
        fill 2 ms.

    Returns
    -------
    Comparison

    Raises
    ------
    InputError
        A number is too small, an input is not a NumPy array, or a candidate returns something else
        for it.
    """
    if not candidates:
        raise InputError("there is nothing to compare", fix="give at least one candidate")
    expect_counts(repeats=repeats, number=number, warmup=warmup)
    if inputs:
        _expect_arrays("an input", inputs)
        for name, fn in candidates.items():
            _settle()
            _expect_arrays(f"what {name} returns", fn(*inputs))
    calls = {name: partial(fn, *inputs) if inputs else fn for name, fn in candidates.items()}
    for fn in calls.values():
        _settle()
        for _ in range(warmup):
            fn()
    # Not taken from a warm-up call: the first call of a function often does more than the others.
    numbers = dict.fromkeys(calls, number or 1)

    def sample(name: str) -> float:
        taken = _batch(calls[name], numbers[name])
        while number is None and taken < _SAMPLE_SECONDS:
            numbers[name] *= 2
            taken = _batch(calls[name], numbers[name])
        return taken / numbers[name]

    turns = {name: partial(sample, name) for name in calls}
    found = interleave(turns, repeats, _settle if len(calls) > 1 else lambda: None)
    return replace(found, heading=SAME_FORM if inputs and len(calls) > 1 else "")


def interleave(
    turns: Mapping[str, Callable[[], float]], rounds: int, settle: Callable[[], object]
) -> Comparison:
    """Take one sample of each candidate per round, each round beginning with the next candidate."""
    names = list(turns)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            settle()
            samples[name].append(turns[name]())
    return Comparison({name: Measurement(tuple(taken)) for name, taken in samples.items()})


def expect_counts(*, repeats: int, number: int | None = None, warmup: int = 0) -> None:
    """Refuse numbers of calls and samples that nothing can be measured with."""
    counts = {"warmup": (warmup, 0), "repeats": (repeats, 1), "number": (number, 1)}
    for name, (value, least) in counts.items():
        if value is not None and value < least:
            raise InputError(
                f"{name} is {value}", where="the samples to take", fix=f"give at least {least}"
            )


def _expect_arrays(what: str, values: object) -> None:
    for value in values if isinstance(values, tuple) else (values,):
        if not isinstance(value, np.ndarray):
            raise InputError(
                f"{what} is a {type(value).__name__}, not a NumPy array",
                where="bench.compare",
                fix="give every candidate NumPy arrays, and let it return NumPy arrays",
            )


def _batch(fn: Callable[[], object], number: int) -> float:
    """Call a function some times; the seconds of all calls together."""
    start = time.perf_counter()
    for _ in range(number):
        fn()
    return time.perf_counter() - start


def _settle() -> None:
    """Wait until the idle threads of the last run have gone to sleep."""
    for _ in range(_LOOKS):
        before = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - before < 0.2 * _LOOK_SECONDS:
            return


def _time(seconds: float) -> str:
    """Write a time in the unit that fits."""
    units = ((1.0, "s"), (1e3, "ms"), (1e6, "us"))
    factor, unit = next((pair for pair in units if seconds * pair[0] >= 1), units[-1])
    number = seconds * factor
    return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"
