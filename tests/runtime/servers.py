"""A real tracker and real servers, on free ports of this machine."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

from tvmlab.runtime.tracker import Tracker

KEY = "test-machine"
SECONDS = 60.0


class Running:
    """A process whose lines are read as they come."""

    def __init__(self, line: list[str], threads: int = 1) -> None:
        self.process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TVM_NUM_THREADS": str(threads)},
        )
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self.process.stdout is not None
        threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()

    def _read(self, output: IO[str]) -> None:
        with contextlib.suppress(ValueError):
            for line in output:
                self.lines.put(line.rstrip())

    def until(self, word: str, seconds: float = SECONDS) -> str:
        """Wait for a line that has the word."""
        while word not in (line := self.lines.get(timeout=seconds)):
            pass
        return line

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> None:
        self.send(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def tracker(port: int = 0) -> tuple[Running, str]:
    """Start a tracker; return its address, too."""
    running = Running([sys.executable, "-m", "tvmlab", "rpc-tracker", "--port", str(port)])
    line = running.until("tracking at")
    return running, line.removeprefix("tracking at ")


def command(address: str | None, key: str = KEY, *options: str) -> list[str]:
    tracker = ["--tracker", address] if address else []
    return [sys.executable, "-m", "tvmlab", "rpc-server", "--key", key, *tracker, *options]


def server(address: str | None, *options: str) -> Running:
    """Start a server; `known` waits until the tracker lists it."""
    return Running(command(address, KEY, *options))


@contextlib.contextmanager
def upstream(address: str, key: str = KEY) -> Iterator[None]:
    """Run TVM's own server."""
    line = [sys.executable, "-m", "tvm.exec.rpc_server", "--tracker", address, "--key", key]
    # A group, because it starts processes that outlive it.
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + SECONDS
        while not Tracker(address, key).servers():
            assert time.monotonic() < end
            time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def known(running: Running) -> None:
    running.until("the tracker knows")


@contextlib.contextmanager
def farm(count: int) -> Iterator[tuple[str, list[Running]]]:
    """Run a tracker and servers; yield the tracker's address, and the servers, the tracker last."""
    running, address = tracker()
    servers = [server(address) for _ in range(count)]
    try:
        for each in servers:
            known(each)
        assert Tracker(address, KEY).servers() == count
        yield address, [*servers, running]
    finally:
        for each in [*servers, running]:
            each.end()
