"""Comparable timing: warm-up, repeats, medians, and candidates interleaved in one run.

The speed of a machine drifts, so two programs timed one after the other are not comparable.
`compare` interleaves the candidates and computes the ratio within each round. Before each sample,
it waits until the idle threads of TVM, ONNX Runtime and OpenBLAS are asleep.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from ..errors import InputError
from ..schedule.machine import Dot, Machine
from ..support.host import host_target, runtime_threads
from ..support.wording import table

#: Units of time, the largest first.
TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
SAME_FORM = "every candidate takes and returns NumPy arrays"
# A sample takes at least this long, so that the clock's resolution does not count.
_SAMPLE_SECONDS = 2e-3
# The duration of one check whether the process is idle, and the largest number of checks: a program
# with a busy thread of its own is never idle.
_LOOK_SECONDS, _LOOKS = 0.01, 50
# The loop makes a call long compared with the microseconds for waking the threads, but short
# enough that some samples are not interrupted by other programs.
_STEPS = 100_000
_WEIGHT = 3  # the constant factor in the loop of dot products
_FLOATS = 1 << 24  # 64 MiB for each array, more than the caches of most processors hold


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
        """The interquartile range over the median, a measure of noise."""
        if len(self.samples) < 2:
            return 0.0
        quarters = statistics.quantiles(self.samples, n=4, method="inclusive")
        return (quarters[2] - quarters[0]) / self.median

    def __str__(self) -> str:
        return f"{_time(self.median)} (spread {self.spread:.0%}, {len(self.samples)} samples)"


@dataclass(frozen=True)
class Comparison:
    """Times of several candidates, interleaved in one run.

    `runs` has a `Measurement` per candidate, whose sample ``i`` was taken in round ``i``; `heading`
    is the line above the table.
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
        """Format the results as a table: median, spread, and the ratio to the last candidate."""
        last = list(self.runs)[-1]
        rows = [
            (name, _time(run.median), f"{run.spread:.0%}", f"{self.ratio(name, last):.2f}")
            for name, run in self.runs.items()
        ]
        found = table(("", "median", "spread", f"over {last}"), rows, left=(0, 3))
        return f"{self.heading}\n{found}" if self.heading else found


def measure(
    fn: Callable[[], object], *, warmup: int = 1, repeats: int = 10, number: int | None = None
) -> Measurement:
    """Time a function without arguments; parameters and samples are those of `compare`."""
    return compare({"run": fn}, warmup=warmup, repeats=repeats, number=number).runs["run"]


def compare(
    candidates: Mapping[str, Callable[..., object]],
    *inputs: np.ndarray,
    warmup: int = 1,
    repeats: int = 10,
    number: int | None = None,
) -> Comparison:
    """Time several functions, interleaved: one sample of each per round.

    To compare the values of a model layer by layer, use `tvmlab.compare`.

    Parameters
    ----------
    candidates : mapping of str to callable
        The functions. All of them should use the same number of threads.
    *inputs : ndarray
        The NumPy arrays that each candidate is called with; it has to return NumPy arrays, so that
        conversions count for all candidates.
    warmup : int
        Calls of each candidate before the timing begins.
    repeats : int
        Rounds.
    number : int, optional
        Calls per sample; by default, each candidate's number is doubled until its calls take 2 ms.

    Raises
    ------
    InputError
        A number is too small, or an input or a result is not a NumPy array.
    """
    if not candidates:
        raise InputError("there is nothing to compare", fix="pass at least one candidate")
    expect_counts(repeats=repeats, number=number, warmup=warmup)
    _expect_arrays("an input", inputs)
    calls = {name: partial(fn, *inputs) for name, fn in candidates.items()}
    for name, fn in calls.items():
        _settle()
        if inputs:
            _expect_arrays(f"what {name} returns", fn())
        for _ in range(warmup):
            fn()
    # Not taken from a warm-up call, because the first call of a function is often slower.
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
    """Take one sample of each candidate per round.

    Each round begins with another candidate, because a pause can speed up the next sample.
    """
    names = list(turns)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            settle()
            samples[name].append(turns[name]())
    return Comparison({name: Measurement(tuple(taken)) for name, taken in samples.items()})


def expect_counts(*, repeats: int, number: int | None = None, warmup: int = 0) -> None:
    """Reject numbers of calls and samples that are too small."""
    counts = {"warmup": (warmup, 0), "repeats": (repeats, 1), "number": (number, 1)}
    for name, (value, least) in counts.items():
        if value is not None and value < least:
            fix = f"pass at least {least}"
            raise InputError(f"{name} is {value}", where="the samples to take", fix=fix)


def _expect_arrays(what: str, values: object) -> None:
    for value in values if isinstance(values, tuple) else (values,):
        if not isinstance(value, np.ndarray):
            what += f" is a {type(value).__name__}, not a NumPy array"
            fix = "pass NumPy arrays, and let every candidate return NumPy arrays"
            raise InputError(what, where="bench.compare", fix=fix)


def _batch(fn: Callable[[], object], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        fn()
    return time.perf_counter() - start


def _settle() -> None:
    """Wait until the idle threads of the last run are asleep."""
    for _ in range(_LOOKS):
        before = time.process_time()
        time.sleep(_LOOK_SECONDS)
        if time.process_time() - before < 0.2 * _LOOK_SECONDS:
            return


def unit_of(value: float, units: tuple[tuple[float, str], ...] = TIMES) -> tuple[float, str]:
    """Return the largest unit that is not larger than the value, or the smallest one."""
    return next((unit for unit in units if unit[0] <= value), units[-1])


def _time(seconds: float) -> str:
    factor, unit = unit_of(seconds)
    number = seconds / factor
    return f"{number:.3g} {unit}" if number < 1000 else f"{number:.0f} {unit}"


# The limits of the machine.


class PeakLoop:
    """A compiled loop of multiply-adds on registers; a call runs the loop once.

    Each thread of TVM's pool computes ``x * 0.5 + 0.5`` for 12 or 24 vectors in registers,
    repeatedly and without memory accesses: this many independent vectors saturate the units.
    For narrow integers the loop uses the dot-product instruction of the schedules.

    `flops` is the number of operations per call; a multiply-add counts as two.

    Parameters
    ----------
    dtype : {"float32", "float64", "int8", "int16"}, optional
        The dtype of the factors.

    Raises
    ------
    InputError
        The dtype is not supported, or the processor has no instruction for it.
    """

    def __init__(self, dtype: str = "float32") -> None:
        target = host_target()
        machine = Machine.of(target)
        dot = {"int8": machine.dot8 or machine.dot16, "int16": machine.dot16}.get(dtype)
        if dot is None and dtype not in ("float32", "float64"):
            what = f"there is no peak loop for {dtype!r} on this processor"
            raise InputError(what, fix='use "float32" or "float64"')
        held = "int32" if dot else dtype
        # The number of threads is fixed when the pool starts, whatever the target specifies.
        lanes = dot.lanes if dot else machine.lanes(dtype)
        shape = (runtime_threads(), machine.registers // 4 * 3, lanes)
        self.flops = 2 * math.prod(shape) * _STEPS * (dot.depth if dot else 1)
        before = np.random.default_rng(0).random(shape) * (100 if dot else 1)
        self._before = tvm.runtime.tensor(before.astype(held))
        self._after = tvm.runtime.tensor(np.zeros(shape, held))
        loop = _loop(shape, held, partial(_dot_product, dot) if dot else lambda x: x * 0.5 + 0.5)
        self._spin = tvm.compile(loop, target)["spin"]

    def __call__(self) -> None:
        """Run the loop once."""
        self._spin(self._before, self._after)


def _loop(shape: tuple[int, int, int], dtype: str, step: Callable[[Any], Any]) -> tirx.PrimFunc:
    """Return the loop that repeatedly replaces each vector by `step` of that vector."""
    (threads, chains, lanes), steps = shape, _STEPS
    every = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), lanes)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def spin(
        before: T.Buffer((threads, chains, lanes), dtype),  # type: ignore[valid-type]
        after: T.Buffer((threads, chains, lanes), dtype),  # type: ignore[valid-type]
    ) -> None:
        for thread in T.parallel(threads):
            held = T.alloc_buffer((chains, lanes), dtype)
            for chain in T.unroll(chains):
                held[chain, every] = before[thread, chain, every]
            for _step in range(steps):
                for chain in T.unroll(chains):
                    held[chain, every] = step(held[chain, every])
            for chain in T.unroll(chains):
                after[thread, chain, every] = held[chain, every]

    return spin


def _dot_product(dot: Dot, sums: Any) -> Any:
    """Add dot products of the sums with themselves."""
    lanes = dot.lanes * dot.depth
    weights = T.broadcast(tirx.const(_WEIGHT, dot.weight), lanes)
    return dot.added(sums, T.reinterpret(sums, dtype=f"{dot.data}x{lanes}"), weights)


def peak_flops(dtype: str = "float32") -> float:
    """Measure the machine's operations per second with `PeakLoop` on all of TVM's threads.

    The fastest of 500 calls counts: other programs only make calls longer, and at first two threads
    can share a core.
    """
    loop = PeakLoop(dtype)
    return loop.flops / min(measure(loop, warmup=5, repeats=500, number=1).samples)


def triad() -> tuple[Callable[[], object], int]:
    """Return the triad of the STREAM benchmark, ``a + 2 b``, and the bytes that it moves."""
    target, threads = host_target(), runtime_threads()
    lanes = Machine.of(target).lanes("float32")
    shape = (threads, _FLOATS // (threads * lanes), lanes)
    a, b = (te.placeholder(shape, name=name) for name in "ab")
    total = te.compute(shape, lambda *at: a[at] + tirx.const(2.0, "float32") * b[at], name="c")
    schedule = Schedule(te.create_prim_func([a, b, total]))
    outer, _, inner = schedule.get_loops(schedule.get_sblock("c"))
    schedule.parallel(outer)
    schedule.vectorize(inner)
    # Ones, because the system can map all pages of zeros to a single page.
    arrays = [tvm.runtime.tensor(np.ones(shape, "float32")) for _ in "abc"]
    loop = partial(tvm.compile(schedule.mod, target)["main"], *arrays)
    return loop, 3 * 4 * math.prod(shape)


def peak_bandwidth() -> float:
    """Measure the memory's bytes per second: those of the fastest `triad` of 20."""
    loop, moved = triad()
    return moved / min(measure(loop, warmup=2, repeats=20, number=1).samples)
