"""How much memory a network takes: the growth of a fresh process that loads it and runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def growth(path: str, shape: tuple[int, ...], calls: int) -> dict[str, int]:
    """Load a saved executable and run it.

    Parameters
    ----------
    path : str
        What `Executable.save` wrote.
    shape : tuple of int
        Of the picture that it takes.
    calls : int
        How often it runs.

    Returns
    -------
    dict of str to int
        Bytes that the process has at most ("loading", "running") over what it had before, with
        TVM imported and its threads started.
    """
    import tvmlab
    from tvmlab import bench

    picture = np.random.default_rng(0).random(shape, dtype=np.float32)
    bench.PeakLoop()()  # code generation and threads are TVM's own, whatever the network is
    before = kib("VmRSS")
    forget_peak()
    executable = tvmlab.load_executable(path)
    loading = kib("VmHWM")
    forget_peak()
    for _ in range(calls):
        executable(picture)
    running = kib("VmHWM")
    return {"loading": 1024 * (loading - before), "running": 1024 * (running - before)}


def kib(field: str) -> int:
    """Read a number of this process's memory: VmRSS is what it has, VmHWM the most it has had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise OSError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Set VmHWM back to VmRSS."""
    Path("/proc/self/clear_refs").write_text("5")
