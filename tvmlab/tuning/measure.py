"""What it means to measure a kernel: how, what comes out, and who can do it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import tvm
from tvm.ir import IRModule

from ..errors import TuningError

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

    Raises
    ------
    TuningError
        A value is of another type, or out of its range.
    """

    number: int = 1
    repeat: int = 8
    min_repeat_ms: int = 0
    timeout: float = 10.0
    build_timeout: float = 10.0
    cache_flush: bool = True

    def __post_init__(self) -> None:
        """Refuse what no kernel can be measured with."""
        for name, least in (("number", 1), ("repeat", 1), ("min_repeat_ms", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise _wrong(name, value, f"a whole number of at least {least}")
        for name in ("timeout", "build_timeout"):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not 0 < value < math.inf:
                raise _wrong(name, value, "a number of seconds above 0, not infinite")
        if not isinstance(self.cache_flush, bool):
            raise _wrong("cache_flush", self.cache_flush, "True or False")


def _wrong(name: str, value: object, wanted: str) -> TuningError:
    return TuningError(
        f"Measure's {name} is {value!r}, not {wanted}.",
        where=f"Measure({name}={value!r})",
        fix=f"give {wanted}, or leave it out",
    )


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
    cpu : str
        The processor that it ran on, by its maker's name, where that is another machine's; empty
        where it is this one's, or an RPC server does not tell.
    """

    times: tuple[float, ...] = ()
    error: str = ""
    answer: tuple[float, ...] = ()
    cpu: str = ""


class Measurer(Protocol):
    """Builds kernels and measures them, on this machine or on others.

    A kernel is a module with one scheduled TIR function ``main``.
    """

    def measure(self, kernels: Sequence[IRModule]) -> Iterator[tuple[int, Outcome]]:
        """Build and measure some kernels; yield each one's place and outcome when it is known."""
        ...

    def duel(self, kernels: Sequence[IRModule], rounds: int) -> list[Outcome]:
        """Measure some kernels alternately, a sample of each a round, in one process.

        If no machine can measure, nothing is raised: all outcomes have an error.
        """
        ...

    def close(self) -> None:
        """End all workers; what is being measured is dropped."""
        ...

    @property
    def options(self) -> Measure:
        """How it measures."""
        ...

    @property
    def processor(self) -> str:
        """The processor it measures on, by its maker's name; empty where that is not known yet."""
        ...

    @property
    def target(self) -> tvm.target.Target:
        """What is compiled for."""
        ...


def how(measure: Measure) -> str:
    """Say what was asked of the clock: results that differ in it do not compare."""
    flushed = "flushed" if measure.cache_flush else "warm"
    return f"number {measure.number}, {measure.min_repeat_ms} ms, {flushed}"
