"""Loops that measure the peak arithmetic rate and the peak memory bandwidth of the machine."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.script import tirx as T

from ..errors import InputError
from ..schedule.machine import Dot, Machine
from ..support.host import host_target, runtime_threads
from .timing import measure

# It makes a call long compared with the microseconds that waking the threads takes, and short
# enough that some samples are not interrupted by other programs.
_STEPS = 100_000
_WEIGHT = 3  # the constant factor in the loop of dot products
_FLOATS = 1 << 24  # 64 MiB for each array, more than the caches of most processors hold


class PeakLoop:
    """A compiled loop of multiply-adds on registers; a call runs the loop once.

    Each thread of TVM's pool holds vectors in registers and computes ``x * 0.5 + 0.5`` for each,
    again and again, without access to memory. A fused multiply-add takes about four cycles, and two
    to four can start in each cycle, so that eight to sixteen independent ones keep the units busy.
    The loop has 12 vectors on a processor with 16 vector registers, and 24 on one with 32.

    For narrow integers the vectors hold int32 sums, and the loop uses the dot-product instruction
    of the schedules (`tvmlab.schedule`); for int8 that of int16 if there is no other.

    Parameters
    ----------
    dtype : {"float32", "float64", "int8", "int16"}, optional
        The type of the factors.

    Attributes
    ----------
    flops : int
        Operations per call, all threads together; a multiply-add counts as two.

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
        # The number of threads is fixed when the pool starts, whatever the target says.
        lanes = dot.lanes if dot else machine.lanes(dtype)
        shape = (runtime_threads(), machine.registers // 4 * 3, lanes)
        self.flops = 2 * math.prod(shape) * _STEPS * (dot.depth if dot else 1)
        before = np.random.default_rng(0).random(shape) * (100 if dot else 1)
        self._before = tvm.runtime.tensor(before.astype(held))
        self._after = tvm.runtime.tensor(np.zeros(shape, held))
        loop = _loop(shape, held, partial(_dot_product, dot) if dot else _halved)
        self._spin = tvm.compile(loop, target)["spin"]

    def __call__(self) -> None:
        """Run the loop once."""
        self._spin(self._before, self._after)


def _loop(shape: tuple[int, int, int], dtype: str, step: Callable[[Any], Any]) -> tirx.PrimFunc:
    """Return the loop that replaces each vector by the step of it, again and again."""
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


def _halved(vector: Any) -> Any:
    return vector * 0.5 + 0.5


def _dot_product(dot: Dot, sums: Any) -> Any:
    """Add dot products of the sums themselves."""
    number, lanes = T.llvm_lookup_intrinsic_id(dot.llvm), dot.lanes * dot.depth
    weights = T.broadcast(tirx.const(_WEIGHT, dot.weight), lanes)
    given = (T.reinterpret(sums, dtype=f"{dot.data}x{lanes}"), weights)
    dtype = f"int32x{dot.lanes}"
    if dot.adds:
        return T.call_llvm_pure_intrin(number, sums, *given, dtype=dtype)
    return sums + T.call_llvm_pure_intrin(number, *given, dtype=dtype)


def peak_flops(dtype: str = "float32") -> float:
    """Measure the machine's peak with `PeakLoop` on all of TVM's threads.

    Returns
    -------
    float
        Operations per second, of the fastest of 50 calls of about a millisecond, because other
        programs only make calls longer. The clock of a machine drifts: for a share of the peak,
        interleave calls of `PeakLoop` with the calls of the function to compare.
    """
    loop = PeakLoop(dtype)
    return loop.flops / min(measure(loop, warmup=5, repeats=50, number=1).samples)


def peak_bandwidth() -> float:
    """Measure the memory's bytes per second on all of TVM's threads.

    The loop is the triad ``c = a + 2 b`` of the STREAM benchmark (McCalpin, 1995), on float32.
    """
    target = host_target()
    threads, lanes = runtime_threads(), Machine.of(target).lanes("float32")
    steps = _FLOATS // (threads * lanes)
    shape = (threads, steps, lanes)

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def triad(
        a: T.Buffer(shape, "float32"),  # type: ignore[valid-type]
        b: T.Buffer(shape, "float32"),  # type: ignore[valid-type]
        c: T.Buffer(shape, "float32"),  # type: ignore[valid-type]
    ) -> None:
        for thread in T.parallel(threads):
            for step in range(steps):
                for lane in T.vectorized(lanes):
                    c[thread, step, lane] = (
                        a[thread, step, lane] + T.float32(2.0) * (b[thread, step, lane])
                    )

    # Ones, because all pages of zeros can be one page of memory.
    arrays = [tvm.runtime.tensor(np.ones(shape, "float32")) for _ in "abc"]
    loop = partial(tvm.compile(triad, target)["triad"], *arrays)
    seconds = min(measure(loop, warmup=2, repeats=20, number=1).samples)
    return 3 * 4 * threads * steps * lanes / seconds
