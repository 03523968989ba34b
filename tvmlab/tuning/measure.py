"""How a kernel is measured, and what comes out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import TuningError

__all__ = ["Measure", "Outcome", "how"]

# Options, their types, and the least that each can be.
_LIMITS: tuple[tuple[str, Any, float], ...] = (
    ("number", int, 1),
    ("repeat", int, 1),
    ("min_repeat_ms", int, 0),
    ("timeout", int | float, 1e-3),
    ("build_timeout", int | float, 1e-3),
)


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
        for name, kind, least in _LIMITS:
            value = getattr(self, name)
            # A number that is not finite is not in the range either.
            if isinstance(value, bool) or not (
                isinstance(value, kind) and least <= value < math.inf
            ):
                wanted = "a whole number" if kind is int else "a number of seconds"
                raise TuningError(
                    f"Measure's {name} is {value!r}, not {wanted} of at least {least:g}.",
                    where=f"Measure({name}={value!r})",
                    fix=f"give {wanted} of at least {least:g}, or leave it out",
                )


@dataclass(frozen=True)
class Outcome:
    """What became of one kernel.

    Attributes
    ----------
    times : tuple of float
        Seconds per call, one number per sample; empty where the kernel failed.
    error : str
        Why it failed, in a line or a few; else empty.
    answer : tuple of float
        A fingerprint of what the kernel computed from seeded inputs, by which kernels of the same
        function agree up to rounding: two numbers per output, see
        `tvmlab.tuning.kernels.fingerprint`. Empty where it was not computed.
    cpu : str
        The processor that it ran on, by its maker's name; empty where that is this machine's, or
        an RPC server does not tell.
    """

    times: tuple[float, ...] = ()
    error: str = ""
    answer: tuple[float, ...] = ()
    cpu: str = ""


def how(measure: Measure) -> str:
    """Say what was asked of the clock: results that differ in it do not compare."""
    flushed = "flushed" if measure.cache_flush else "warm"
    return f"number {measure.number}, {measure.min_repeat_ms} ms, {flushed}"
