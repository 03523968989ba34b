"""Rivals in processes of their own, driven in turn.

Threads that have nothing to do spin before they sleep, in case work comes. In one process, or in
two that run at once, they take the cores of whoever is measured. Here each rival has a process and
its own default, and before each turn the race waits until all processes are idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tvmlab.bench import Comparison, Measurement
from tvmlab.errors import TvmlabError

SCRIPT = Path(__file__).resolve().parent / "bench_child.py"
# A turn lasts at least this long, so that what happens once in a while happens in each.
TURN_SECONDS = 0.05
# No job takes longer: `torch.compile` is the slowest, with half a minute.
TIMEOUT = 900.0
# One look whether the children are idle, and how many looks are enough.
_LOOK_SECONDS = 0.01
_LOOKS = 50


class ChildError(TvmlabError):
    """A process of the bench failed, or ended before it was told to."""


class Child:
    """A process that runs `bench_child.py`.

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
            One of `bench_child.JOBS`.
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
    """Time functions of several processes in turn: one turn of each, then the next round.

    Parameters
    ----------
    runners : mapping of str to (Child, str)
        The process of each, and the name of the function there.
    rounds : int
        Rounds that count; one before them, in which each finds its number of calls, does not.
    budget : float
        Seconds: where the rounds would take longer there are fewer, at least three (or as many as
        `rounds`, if that is less).
    turn_seconds : float
        What a turn lasts at least.

    Returns
    -------
    Comparison
        Seconds a call.

    Raises
    ------
    ChildError
        One of them failed.
    """
    crowd = list({child.pid: child for child, _ in runners.values()}.values())

    def round_of(number: int = 0) -> dict[str, float]:
        taken = {}
        # Each begins a round in its turn: who comes after a rest may find a faster clock.
        first = number % len(runners)
        order = list(runners)[first:] + list(runners)[:first]
        for name in order:
            child, key = runners[name]
            if len(crowd) > 1:  # the threads of a single process are whoever's turn it is
                settle(crowd)
            taken[name] = float(child.do("turn", key=key, seconds=turn_seconds)["seconds"])
        return taken

    round_of()  # finds the numbers of calls, and costs more than the others
    start = time.perf_counter()
    found = [round_of()]
    each = time.perf_counter() - start
    rounds = min(rounds, max(3, int(budget / each)))
    found += [round_of(number) for number in range(1, rounds)]
    return Comparison(
        {name: Measurement(tuple(taken[name] for taken in found)) for name in runners}
    )
