"""What it means to measure a kernel: how, what comes out, and who can do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import tvm
from tvm.ir import IRModule

__all__ = ["Measure", "Measurer", "Outcome", "how"]


@dataclass(frozen=True)
class Measure:
    """How kernels are measured: the options of AutoTVM's ``LocalRunner`` and ``LocalBuilder``.

    Attributes
    ----------
    number : int
        Calls in a sample.
    repeat : int
        Samples of a kernel.
    min_repeat_ms : int
        Milliseconds that a sample takes at least; `number` is raised until it does.
    timeout : float
        Seconds until a kernel that runs is given up.
    build_timeout : float
        Seconds until a kernel that is being compiled is given up.
    cache_flush : bool
        Whether all arguments but the first are flushed from the caches before each sample, as a
        layer in the middle of a network finds them (``enable_cpu_cache_flush``). The first sample
        call is then the only one that is cold, so `number` should be 1.
    """

    number: int = 1
    repeat: int = 8
    min_repeat_ms: int = 0
    timeout: float = 10.0
    build_timeout: float = 30.0
    cache_flush: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of one kernel.

    Attributes
    ----------
    times : tuple of float
        Seconds a call, one number a sample; empty where the kernel failed.
    error : str
        Why it failed, in a line or a few; else empty.
    answer : tuple of float
        A fingerprint of what the kernel computed from seeded inputs: two numbers an output, the sum
        of its magnitudes and a sum weighted by seeded signs, in float64. Kernels of the same
        function agree up to rounding. Empty where it was not computed.
    """

    times: tuple[float, ...] = ()
    error: str = ""
    answer: tuple[float, ...] = ()
    cpu: str = ""


class Measurer(Protocol):
    """Whoever builds kernels and measures them: this machine, or others.

    A kernel is a module with one scheduled TIR function ``main``.
    """

    def measure(self, kernels: Sequence[IRModule]) -> Iterator[tuple[int, Outcome]]:
        """Build and measure some kernels; yield each one's place and outcome when it is known."""
        ...

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Measure some kernels in turn, a sample of each a round, in one process."""
        ...

    def close(self) -> None:
        """End all workers; what is being measured is dropped."""
        ...

    @property
    def options(self) -> Measure:
        """How it measures."""
        ...

    @property
    def target(self) -> tvm.target.Target:
        """What is compiled for."""
        ...


def how(measure: Measure) -> str:
    """Say what was asked of the clock: results that differ in it do not compare."""
    flushed = "flushed" if measure.cache_flush else "warm"
    return f"number {measure.number}, {measure.min_repeat_ms} ms, {flushed}"
