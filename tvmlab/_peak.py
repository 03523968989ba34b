"""The machine's peak: what the arithmetic units do when nothing else limits them."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tvm
from tvm.script import tirx as T

from .errors import InputError
from .schedule.machine import Machine
from .target import host_target, runtime_threads

# About the length of one call: long beside the few microseconds that waking the threads takes, and
# short enough that some of the samples fall between whatever else the machine does.
_STEPS = 100_000
_WARMUP, _SAMPLES = 5, 50


class PeakLoop:
    """A compiled loop of nothing but fused multiply-adds on registers; calling it runs it once.

    Each thread of TVM's pool holds some vectors in registers and replaces each by its half plus a
    half, over and over: memory is not touched. A fused multiply-add takes about four cycles and two
    can begin in each, on some processors four, so that eight or sixteen independent ones keep the
    units busy. There are 12 vectors where the processor has 16 vector registers, and 24 where it
    has 32.

    Parameters
    ----------
    dtype : {"float32", "float64"}, optional
        What is computed on.

    Attributes
    ----------
    flops : int
        Floating-point operations of one call, all threads together; a fused multiply-add is two.

    Raises
    ------
    InputError
        The dtype is another one.
    """

    def __init__(self, dtype: str = "float32") -> None:
        if dtype not in ("float32", "float64"):
            raise InputError(
                f"there is no peak loop for {dtype!r}", fix='use "float32" or "float64"'
            )
        target = host_target()
        machine = Machine.of(target)
        # The pool has the threads that it started with, whatever the target says.
        threads, steps = runtime_threads(), _STEPS
        chains = machine.registers // 4 * 3
        lanes = machine.lanes(dtype)

        @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
        def spin(
            before: T.Buffer((threads, chains, lanes), dtype),  # type: ignore[valid-type]
            after: T.Buffer((threads, chains, lanes), dtype),  # type: ignore[valid-type]
        ) -> None:
            for thread in T.parallel(threads):
                held = T.alloc_buffer((chains, lanes), dtype)
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        held[chain, lane] = before[thread, chain, lane]
                for _step in range(steps):
                    for chain in T.unroll(chains):
                        for lane in T.vectorized(lanes):
                            held[chain, lane] = held[chain, lane] * T.cast(0.5, dtype) + T.cast(
                                0.5, dtype
                            )
                for chain in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        after[thread, chain, lane] = held[chain, lane]

        shape = (threads, chains, lanes)
        self.flops = 2 * threads * chains * lanes * steps
        self._before = tvm.runtime.tensor(np.random.default_rng(0).random(shape).astype(dtype))
        self._after = tvm.runtime.tensor(np.zeros(shape, dtype))
        self._spin = tvm.compile(spin, target)["spin"]

    def __call__(self) -> None:
        """Run the loop once."""
        self._spin(self._before, self._after)


def peak_flops(dtype: str = "float32") -> float:
    """Measure the machine's peak, with all of TVM's threads.

    Parameters
    ----------
    dtype : {"float32", "float64"}, optional
        What is computed on.

    Returns
    -------
    float
        Floating-point operations a second, of the best of many samples of about a millisecond. A
        machine's clock drifts: for a share of the peak, time `PeakLoop` in turn with what is to be
        compared.

    Raises
    ------
    InputError
        The dtype is another one.
    """
    loop = PeakLoop(dtype)
    return loop.flops / shortest(loop, warmup=_WARMUP, samples=_SAMPLES)


def shortest(loop: Callable[[], None], *, warmup: int, samples: int) -> float:
    """Time a loop, and give the seconds of its fastest call.

    Parameters
    ----------
    loop : callable
        Called without arguments.
    warmup, samples : int
        Calls that are not counted, and those after them that are.

    Returns
    -------
    float
        Seconds. Whatever else the machine does makes a call longer: for a bound the best one
        counts.
    """
    best = float("inf")
    for sample in range(warmup + samples):
        start = time.perf_counter()
        loop()
        taken = time.perf_counter() - start
        if sample >= warmup:
            best = min(best, taken)
    return best
