"""The processes of the bench: a candidate in each, of which only one computes at a time.

`Child` starts this file as a program and talks to it, one line of JSON each way: a request names
one of the JOBS and its arguments, the answer is {"done": value} or {"failed": reason}. Where the
parent ends, the child does, too.

Idle threads spin before they sleep, in case work comes. In one process, or in two that run at once,
they take the cores of the candidate that is being measured. Here each candidate has a process and
its runtime's own default, and the race waits before each turn until all processes are idle.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bench_work
import numpy as np

from tvmlab.bench import Comparison, PeakLoop, interleave
from tvmlab.errors import TvmlabError

SCRIPT = Path(__file__).resolve()
# A turn lasts at least this long, so that what happens once in a while happens in each.
TURN_SECONDS = 0.05
# No job takes longer: `torch.compile` is the slowest, with half a minute.
TIMEOUT = 900.0
# The length of one look whether the children are idle, and how many looks are enough.
_LOOK_SECONDS = 0.01
_LOOKS = 50
# Fields of /proc/stat that are no work: idle and waiting for a disk. Guests' time is counted twice.
_IDLE, _GUESTS = (3, 4), 8

# What a child holds.
Function = Callable[[], object]
FUNCTIONS: dict[str, Function] = {}
# Calls per turn, by function: as many as fill the time that a turn lasts.
NUMBERS: dict[str, int] = {}
# What tvmlab compiled, by function.
EXECUTABLES: dict[str, Any] = {}
# Before the calls of a turn are timed, calls run for so long, at least one: the threads are awake
# then, and the caches are warm, as they are where one image follows another.
WARMUP_SECONDS = 0.005


class ChildError(TvmlabError):
    """A process of the bench failed, or ended before it was told to."""


class Child:
    """A process that runs this file.

    Parameters
    ----------
    name : str
        What to call it where it fails.
    command : sequence of str, optional
        Another program that speaks the same language; for the tests.
    """

    def __init__(self, name: str, command: Sequence[str] = (sys.executable, str(SCRIPT))) -> None:
        self.name = name
        self._job = "its start"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (`close` closes it)
        # PyTorch starts a process for each core to compile in, which would outlive a killed child.
        variables = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=variables | dict(os.environ),
            text=True,
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def do(self, job: str, timeout: float = TIMEOUT, **arguments: Any) -> Any:
        """Have a job done: `ask`, then `answer`."""
        self.ask(job, **arguments)
        return self.answer(timeout)

    def ask(self, job: str, **arguments: Any) -> None:
        """Say what to do, and do not wait for it.

        Parameters
        ----------
        job : str
            One of `JOBS`.
        **arguments
            The job's own.
        """
        assert self._process.stdin is not None
        self._job = job
        with contextlib.suppress(BrokenPipeError):  # it is dead; `answer` says how it died
            print(json.dumps({"job": job, **arguments}), file=self._process.stdin, flush=True)

    def answer(self, timeout: float = TIMEOUT) -> Any:
        """Wait for the job that was asked for.

        Parameters
        ----------
        timeout : float
            Seconds after which the process is ended.

        Returns
        -------
        object
            What the job returns.

        Raises
        ------
        ChildError
            The job raised an exception, or the process ended or did not answer; with the last
            lines of its standard error.
        """
        assert self._process.stdout is not None
        where = f"the process of {self.name}, at {self._job}"
        late = threading.Event()
        timer = threading.Timer(timeout, lambda: (late.set(), self._process.kill()))
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            code = self._process.wait()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            how = f"no answer in {timeout:g} s" if late.is_set() else how
            raise ChildError(f"{self.name} ended: {how}{self._last_lines()}", where=where)
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise ChildError(f"{self.name} answered {line!r}", where=where) from error
        if "failed" in answer:
            raise ChildError(f"{answer['failed']}{self._last_lines()}", where=where)
        return answer["done"]

    def cpu_seconds(self) -> float:
        """Tell the processor time that all threads of the process have used."""
        # Linux's number of the clock of another process (clock_getcpuclockid). /proc has the same
        # time in steps of 10 ms, too coarse for a look that takes as long.
        return time.clock_gettime((~self.pid << 3) | 2)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]

    def _last_lines(self, most: int = 12) -> str:
        """What it wrote to standard error last, to be put behind a message."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return "".join(f"\n    {line}" for line in lines[-most:])


@contextlib.contextmanager
def children(names: Sequence[str]) -> Iterator[dict[str, Child]]:
    """Start a process for each name, and end them all when the block ends."""
    with contextlib.ExitStack() as stack:
        started = {}
        for name in names:
            started[name] = Child(name)
            stack.callback(started[name].close)
        yield started


def settle(crowd: Sequence[Child]) -> bool:
    """Wait until the processes use next to no processor time; False if they always do."""
    for _ in range(_LOOKS):
        before = sum(child.cpu_seconds() for child in crowd)
        time.sleep(_LOOK_SECONDS)
        if sum(child.cpu_seconds() for child in crowd) - before < 0.2 * _LOOK_SECONDS:
            return True
    return False


def race(
    runners: Mapping[str, tuple[Child, str]],
    *,
    rounds: int,
    budget: float,
    turn_seconds: float = TURN_SECONDS,
) -> Comparison:
    """Time functions of several processes, interleaved: `tvmlab.bench.interleave` over processes.

    Parameters
    ----------
    runners : mapping of str to (Child, str)
        The process of each, and the name of the function there.
    rounds : int
        Rounds that count. Two rounds before them do not: in the first each process finds its number
        of calls, and the second says how long a round takes.
    budget : float
        Seconds: where the rounds would take longer there are fewer, at least three (or as many as
        `rounds`, if that is less).
    turn_seconds : float
        What a turn lasts at least.

    Returns
    -------
    Comparison
        Seconds per call.

    Raises
    ------
    ChildError
        One of them failed.
    """
    crowd = list({child.pid: child for child, _ in runners.values()}.values())

    def turn(child: Child, key: str) -> float:
        return float(child.do("turn", key=key, seconds=turn_seconds)["seconds"])

    turns = {name: partial(turn, child, key) for name, (child, key) in runners.items()}
    # The threads of a single process belong to whichever of its functions runs.
    wait = partial(settle, crowd) if len(crowd) > 1 else lambda: True
    interleave(turns, 1, wait)
    start = time.perf_counter()
    interleave(turns, 1, wait)
    each = time.perf_counter() - start
    return interleave(turns, min(rounds, max(3, int(budget / each))), wait)


class Noise:
    """Counts the processor time that is not this process's, nor its ended children's."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._busy, self._own = _busy_seconds(), sum(os.times()[:4])

    def share(self) -> float:
        """Return the part of all processors that others have taken since, 0 to 1.

        The children must have ended: Linux adds their time to ours only then.
        """
        elapsed = time.perf_counter() - self._start
        others = _busy_seconds() - self._busy - (sum(os.times()[:4]) - self._own)
        return min(1.0, max(0.0, others / elapsed / (os.cpu_count() or 1)))


def _busy_seconds() -> float:
    """Read the time that all processors have worked, and that a host has taken from them."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    ticks = sum(int(n) for i, n in enumerate(fields[:_GUESTS]) if i not in _IDLE)
    return ticks / os.sysconf("SC_CLK_TCK")


# What a child does.


def ready(key: str, runtime: str, **model: Any) -> dict[str, Any]:
    """Get a model file ready on a runtime; return its first result, and the seconds until then."""
    start = time.perf_counter()
    FUNCTIONS[key], made = bench_work.ready(runtime, **model)
    result = FUNCTIONS[key]()  # torch.compile compiles here
    seconds = time.perf_counter() - start
    if runtime.startswith("tvmlab"):
        EXECUTABLES[key] = made
    assert isinstance(result, np.ndarray), "every candidate takes and returns NumPy arrays"
    return {"ready_seconds": seconds, "output": result.ravel().astype(float).tolist()}


def convolution(key: str, shape: dict[str, int]) -> dict[str, Any]:
    """Compile a module of a single convolution with its bias and ReLU."""
    FUNCTIONS[key], said = bench_work.convolution(**shape)
    return said


def product(key: str, runtime: str, size: int) -> dict[str, Any]:
    """Get a matrix product ready: by our tuner, from nothing, or NumPy's BLAS."""
    FUNCTIONS[key], said = bench_work.product(runtime, size)
    return said


def peak(key: str) -> dict[str, Any]:
    """Get the machine's peak loop ready."""
    loop = PeakLoop()
    FUNCTIONS[key] = loop
    return {"flops": loop.flops}


def turn(key: str, seconds: float) -> dict[str, Any]:
    """Warm up, then time as many calls as fill these seconds; the seconds per call."""
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


def profile(key: str, shape: list[int], repeats: int) -> dict[str, Any]:
    """Profile a compiled network on one image; the table, and its figures."""
    x = np.random.default_rng(0).random(shape, "f")
    found = EXECUTABLES[key].profile(x, repeats=repeats)
    figures = {"overhead": found.overhead, "covered": found.covered}
    return {"table": str(found), "data": found.data()} | figures


JOBS: dict[str, Callable[..., Any]] = {
    **{
        job.__name__: job
        for job in (ready, convolution, product, peak, turn, forget, save, profile)
    },
    **{job: getattr(bench_work, job) for job in ("write", "memory", "candidates")},
    **{job: getattr(bench_work, job) for job in ("relay_calls", "relay_write", "relay_read")},
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
