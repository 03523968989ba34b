"""The machine's peak: what the arithmetic units do when nothing else limits them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.script import tirx as T

from .errors import InputError
from .schedule.dot_intrinsics import Dot
from .schedule.machine import Machine
from .target import host_target, runtime_threads

# About the length of one call: long beside the few microseconds that waking the threads takes, and
# short enough that some of the samples fall between whatever else the machine does.
_STEPS = 100_000
# What the loop of dot products multiplies with.
_WEIGHT = 3
_WARMUP, _SAMPLES = 5, 50


class PeakLoop:
    """A compiled loop of nothing but multiply-adds on registers; calling it runs it once.

    Each thread of TVM's pool holds some vectors in registers and replaces each by its half plus a
    half, over and over: memory is not touched. A fused multiply-add takes about four cycles and two
    can begin in each, on some processors four, so that eight or sixteen independent ones keep the
    units busy. There are 12 vectors where the processor has 16 vector registers, and 24 where it
    has 32.

    Of narrow integers the vectors hold int32 sums, to which the processor's dot product adds the
    products of their own bytes with a constant: the instruction that the schedules use
    (`tvmlab.schedule`), for int8 that of int16 where there is no other.

    Parameters
    ----------
    dtype : {"float32", "float64", "int8", "int16"}, optional
        What is multiplied.

    Attributes
    ----------
    flops : int
        Operations of one call, all threads together; a multiply-add is two.

    Raises
    ------
    InputError
        The dtype is another one, or the processor has no instruction for it.
    """

    def __init__(self, dtype: str = "float32") -> None:
        target = host_target()
        machine = Machine.of(target)
        dot = {"int8": machine.dot8 or machine.dot16, "int16": machine.dot16}.get(dtype)
        if dot is None and dtype not in ("float32", "float64"):
            raise InputError(
                f"there is no peak loop for {dtype!r} on this processor",
                fix='use "float32" or "float64"',
            )
        held = "int32" if dot else dtype
        # The pool has the threads that it started with, whatever the target says.
        lanes = dot.lanes if dot else machine.lanes(dtype)
        shape = (runtime_threads(), machine.registers // 4 * 3, lanes)
        made = _products(shape, dot) if dot else _halves(shape, dtype)
        self.flops = 2 * math.prod(shape) * _STEPS * (dot.depth if dot else 1)
        before = np.random.default_rng(0).random(shape) * (100 if dot else 1)
        self._before = tvm.runtime.tensor(before.astype(held))
        self._after = tvm.runtime.tensor(np.zeros(shape, held))
        self._spin = tvm.compile(made, target)["spin"]

    def __call__(self) -> None:
        """Run the loop once."""
        self._spin(self._before, self._after)


def _halves(shape: tuple[int, int, int], dtype: str) -> tirx.PrimFunc:
    """Write the loop of fused multiply-adds."""
    (threads, chains, lanes), steps = shape, _STEPS

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

    return spin


def _products(shape: tuple[int, int, int], dot: Dot) -> tirx.PrimFunc:
    """Write the loop of dot products.

    What is multiplied are the sums themselves: products that stay the same would be taken out of
    the loop.
    """
    (threads, chains, lanes), steps = shape, _STEPS
    number = T.llvm_lookup_intrinsic_id(dot.llvm)
    many, sums = f"{dot.data}x{lanes * dot.depth}", f"int32x{lanes}"
    weights = T.broadcast(tirx.const(_WEIGHT, dot.weight), lanes * dot.depth)

    def value(held: Any, chain: Any) -> Any:
        before = held.vload([chain, 0], sums)
        given = (T.reinterpret(before, dtype=many), weights)
        if dot.adds:
            return T.call_llvm_pure_intrin(number, before, *given, dtype=sums)
        return before + T.call_llvm_pure_intrin(number, *given, dtype=sums)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def spin(
        before: T.Buffer((threads, chains, lanes), "int32"),  # type: ignore[valid-type]
        after: T.Buffer((threads, chains, lanes), "int32"),  # type: ignore[valid-type]
    ) -> None:
        for thread in T.parallel(threads):
            held = T.alloc_buffer((chains, lanes), "int32")
            for chain in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    held[chain, lane] = before[thread, chain, lane]
            for _step in range(steps):
                for chain in T.unroll(chains):
                    held[chain, T.ramp(0, 1, lanes)] = value(held, chain)
            for chain in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    after[thread, chain, lane] = held[chain, lane]

    return spin


def peak_flops(dtype: str = "float32") -> float:
    """Measure the machine's peak, with all of TVM's threads.

    Parameters
    ----------
    dtype : {"float32", "float64", "int8", "int16"}, optional
        What is multiplied.

    Returns
    -------
    float
        Operations a second, of the best of many samples of about a millisecond. A
        machine's clock drifts: for a share of the peak, time `PeakLoop` in turn with what is to be
        compared.

    Raises
    ------
    InputError
        The dtype is another one, or the processor has no instruction for it.
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
