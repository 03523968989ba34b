"""One process of the bench: it holds functions by name, and runs them when it is told to.

`bench_race.Child` starts it and talks to it, one line of JSON each way: a request names one of the
JOBS and its arguments, the answer is {"done": value} or {"failed": reason}. Where the parent ends,
the child does, too.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[[], object]
FUNCTIONS: dict[str, Function] = {}
# Calls in a turn, by function: as many as fill the time that a turn shall last.
NUMBERS: dict[str, int] = {}
# What is saved for another process, by function.
EXECUTABLES: dict[str, Any] = {}
# Before a turn's calls are timed, calls run for so long, at least one: the threads are awake then,
# and the caches are warm, as they are where one picture follows another.
WARMUP_SECONDS = 0.005


def network(key: str, rival: str, name: str, batch: int = 1) -> dict[str, Any]:
    """Get a network ready on one of the rivals; say how long that took, and its first answer."""
    import bench_rivals

    made = bench_rivals.network(rival, name, batch)
    FUNCTIONS[key] = made.call
    if made.executable is not None:
        EXECUTABLES[key] = made.executable
    output = np.asarray(made.call())  # torch.compile compiles here
    return {
        "compile_seconds": made.seconds,
        "output": output.ravel().tolist(),
        "weights": made.weights,
        "weight_bytes": made.weight_bytes,
    }


def convolution(key: str, shape: dict[str, int]) -> dict[str, Any]:
    """Compile a module of a single convolution with its bias and ReLU."""
    import bench_convolution

    FUNCTIONS[key], said = bench_convolution.ready(**shape)
    return said


def quantize(name: str, path: str) -> None:
    """Quantize a network, for the rivals to read."""
    import bench_quantized

    bench_quantized.write(name, path)


def quantized(key: str, rival: str, name: str, path: str) -> dict[str, Any]:
    """Get a quantized network, or its float32 form, ready on one of the rivals."""
    import bench_quantized

    FUNCTIONS[key], said = bench_quantized.ready(rival, name, path)
    return said


def peak(key: str) -> dict[str, Any]:
    """Get the machine's peak loop ready."""
    from tvmlab import bench

    loop = bench.PeakLoop()
    FUNCTIONS[key] = loop
    return {"flops": loop.flops}


def turn(key: str, seconds: float) -> dict[str, Any]:
    """Warm up, then time as many calls as fill these seconds; the seconds of one call."""
    fn = FUNCTIONS[key]
    start = time.perf_counter()
    fn()
    while time.perf_counter() - start < WARMUP_SECONDS:
        fn()
    number = NUMBERS.get(key, 1)
    taken = _batch(fn, number)
    while key not in NUMBERS and taken < seconds:
        number = max(2 * number, min(round(number * seconds / max(taken, 1e-9)), 100 * number))
        taken = _batch(fn, number)
    NUMBERS[key] = number
    return {"seconds": taken / number, "calls": number}


def forget(key: str) -> None:
    """Drop a function."""
    for table in (FUNCTIONS, NUMBERS, EXECUTABLES):
        table.pop(key, None)  # type: ignore[attr-defined]


def save(key: str, path: str) -> None:
    """Save a compiled network for another process."""
    EXECUTABLES[key].save(path)


def memory(path: str, shape: list[int], calls: int) -> dict[str, int]:
    """Load a saved network and run it; the bytes that this process grew by."""
    import bench_memory

    return bench_memory.growth(path, tuple(shape), calls)


def relay_calls(number: int) -> dict[str, float]:
    """Print and read so many calls as Relay text; the seconds."""
    import bench_relay

    return bench_relay.calls(number)


def relay_write(name: str, path: str) -> dict[str, float]:
    """Print a network with its weights as Relay text; the seconds and the size."""
    import bench_relay

    return bench_relay.write(name, path)


def relay_read(path: str) -> dict[str, float]:
    """Read a network's Relay text; the seconds, and the bytes that this process grew by."""
    import bench_relay

    return bench_relay.read(path)


def tuning(rival: str, number: int) -> dict[str, float]:
    """Compile and measure so many candidates, by us or by MetaSchedule's defaults; the seconds."""
    import bench_tuning

    return {"tvmlab": bench_tuning.ours, "MetaSchedule": bench_tuning.upstream}[rival](number)


def records(name: str) -> list[dict[str, Any]]:
    """Let the shipped schedules of a network's functions meet those of the rules."""
    import bench_tuned

    return bench_tuned.layers(name)


def product(size: int) -> dict[str, Any]:
    """Tune a matrix product from nothing, and race it against NumPy's BLAS."""
    import bench_tuned

    return bench_tuned.product(size)


def profile(key: str, name: str, repeats: int) -> dict[str, Any]:
    """Profile a compiled network, on one picture; the table, and its figures."""
    from tvmlab.models.cost import ARCHITECTURES

    executable = EXECUTABLES[key]
    shape = (1, *ARCHITECTURES[name].image)
    found = executable.profile(np.random.default_rng(0).random(shape, "f"), repeats=repeats)
    figures = {"overhead": found.overhead, "covered": found.covered}
    return {"table": str(found), "data": found.data()} | figures


JOBS: dict[str, Callable[..., Any]] = {
    **{job.__name__: job for job in (network, convolution, peak, turn, forget, save, memory)},
    **{job.__name__: job for job in (relay_calls, relay_write, relay_read)},
    **{job.__name__: job for job in (quantize, quantized, tuning, records, product, profile)},
}


def _batch(fn: Function, number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        fn()
    return time.perf_counter() - start


def serve() -> None:
    """Answer requests until there are no more."""
    # Whatever a library prints goes to standard error: the pipe is for answers alone.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"done": JOBS[request.pop("job")](**request)}
        except Exception as error:
            traceback.print_exc()
            lines = str(error).strip().splitlines()
            answer = {"failed": f"{type(error).__name__}: {lines[0] if lines else ''}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    # The end of the requests ends the child, but a child that compiles does not look.
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() == parent:
        serve()
