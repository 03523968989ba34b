"""What memory delivers when nothing else limits it."""

from __future__ import annotations

import numpy as np
import tvm
from tvm.script import tirx as T

from ._peak import shortest
from .schedule.machine import Machine
from .target import host_target, runtime_threads

__all__ = ["TriadLoop", "peak_bandwidth"]

# 64 MiB an array: beyond the caches of most processors.
_FLOATS = 1 << 24
_WARMUP, _SAMPLES = 2, 20


class TriadLoop:
    """A compiled loop that reads two long arrays and writes a third; calling it runs it once.

    It computes ``c = a + 2 b``, the triad of the STREAM benchmark (McCalpin, 1995), on float32 with
    all threads of TVM's pool.

    Attributes
    ----------
    bytes : int
        Bytes that one call reads and writes. Processors that read a line of the cache before they
        write to it move a third more, which is not counted.
    """

    def __init__(self) -> None:
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

        self.bytes = 3 * 4 * threads * steps * lanes
        # Ones, not zeros: pages that nobody has written to are all the same page.
        self._arrays = [tvm.runtime.tensor(np.ones(shape, "float32")) for _ in "abc"]
        self._triad = tvm.compile(triad, target)["triad"]

    def __call__(self) -> None:
        """Run the loop once."""
        self._triad(*self._arrays)


def peak_bandwidth() -> float:
    """Measure what memory delivers to all of TVM's threads.

    Returns
    -------
    float
        Bytes a second, of the best of some samples.
    """
    loop = TriadLoop()
    return loop.bytes / shortest(loop, warmup=_WARMUP, samples=_SAMPLES)
