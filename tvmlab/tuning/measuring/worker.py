"""The process that compiles kernels and runs them; `process` starts it.

It speaks `wire` over the socket that it finds as its standard input: a request has an ``op`` and
its arguments, an answer is ``{"done": ...}`` or ``{"failed": reason}``.

Each kernel runs in a process forked for it. One that writes where it may not, or never ends, takes
only that one along, not what was compiled; and the threads that TVM's pool leaves spinning, in case
there is more to do, end with it instead of disturbing what is compiled or measured next.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from ...runtime.forked import doomed, end_with, how_it_died
from .wire import receive, send

# What it takes besides the time that was asked for: inputs, the first call, a loaded machine.
SLACK_SECONDS = 10.0


class Worker:
    """Holds compiled kernels by number, and answers requests about them.

    Parameters
    ----------
    channel : socket.socket
        To the process that asks.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._kernels: dict[int, Any] = {}
        self._count = 0

    def answer(self, request: dict[str, Any]) -> Any:
        """Do what a request asks for."""
        operations: dict[str, Callable[..., Any]] = {
            "build": self.build,
            "measure": self.measure,
            "export": self.export,
            "remote": self.remote,
            "drop": self.drop,
        }
        return operations[request.pop("op")](**request)

    def build(self, module: str, target: dict[str, Any], seconds: float) -> int:
        """Compile a kernel in memory; its number."""
        from . import kernels

        with _ending(seconds):
            made = kernels.build(module, target)
            made.module.get_function("main")  # LLVM makes the machine code here
        self._count += 1
        self._kernels[self._count] = made
        return self._count

    def measure(self, which: list[int], plan: dict[str, Any], rounds: int, seconds: float) -> Any:
        """Run and time kernels, one after the other or alternately."""
        from . import kernels

        made = [self._kernels[number] for number in which]
        for kernel in made:
            # Made once, here, for all processes forked off.
            kernels.inputs(kernel.arguments, kernel.outputs)
        return self._apart(lambda: kernels.measure(made, kernels.Plan(**plan), rounds), seconds)

    def export(
        self, module: str, target: dict[str, Any], path: str, linker: str, seconds: float
    ) -> Any:
        """Compile a kernel into a file."""
        from . import remote_session

        with _ending(seconds):
            return remote_session.export(module, target, path, linker)

    def remote(
        self,
        server: list[Any],
        target: dict[str, Any],
        kernels: list[dict[str, Any]],
        plan: dict[str, Any],
        rounds: int,
        session_seconds: float,
        seconds: float,
    ) -> Any:
        """Measure kernels on a server."""
        from . import remote_session
        from .kernels import Plan

        host, port, key = server
        return self._apart(
            lambda: remote_session.run(
                (host, port, key), target, kernels, Plan(**plan), rounds, session_seconds
            ),
            seconds,
        )

    def drop(self) -> None:
        """Forget all kernels."""
        self._kernels.clear()

    def _apart(self, job: Callable[[], Any], seconds: float) -> Any:
        """Do something in a process of its own that may die or take too long."""
        ours, theirs = os.pipe()
        worker = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                self._channel.close()
                doomed(worker, seconds + SLACK_SECONDS)
                _tell(theirs, job)
            finally:
                os._exit(70)
        os.close(theirs)
        try:
            text, late = self._heard(ours, time.monotonic() + seconds)
        finally:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            os.close(ours)
        if late:
            raise TimeoutError(f"it ran for longer than {seconds:g} s and was stopped")
        if not text.endswith(b"\n"):
            raise RuntimeError(how_it_died(os.waitstatus_to_exitcode(status)))
        told = json.loads(text)
        if "failed" in told:
            raise RuntimeError(told["failed"])
        return told["done"]

    def _heard(self, pipe: int, deadline: float) -> tuple[bytes, bool]:
        """Read a pipe to its end; return the bytes and whether the time ran out first."""
        text = b""
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        poll.register(self._channel, select.POLLIN)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return text, True
            for file, _ in poll.poll(1e3 * left):
                if file != pipe:
                    raise EOFError  # one question at a time: the asking process is gone
                piece = os.read(pipe, 1 << 16)
                if not piece:
                    return text, False
                text += piece


@contextlib.contextmanager
def _ending(seconds: float) -> Iterator[None]:
    """Have the system end this process where a block takes much too long.

    If the asking process is gone, only the alarm ends a compiler that hangs.
    """
    signal.setitimer(signal.ITIMER_REAL, seconds + SLACK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _tell(pipe: int, job: Callable[[], Any]) -> None:
    """Do a job and write what came of it to a pipe: a line."""
    try:
        told = {"done": job()}
    except Exception as error:
        told = {"failed": _words(error)}
    text = json.dumps(told).encode() + b"\n"
    while text:
        text = text[os.write(pipe, text) :]


def _words(error: Exception) -> str:
    from ...support.wording import telling

    text = telling(error)
    told = isinstance(error, TimeoutError | RuntimeError)  # in words; others in a name and a value
    return text if told else f"{type(error).__name__}: {text}"


def _limits(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        # Data, not addresses: libraries and the stacks of threads take many that they never use.
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if sys.platform == "linux":
        try:
            # Where the system runs out of memory all the same, let it end this process first.
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
        except OSError:
            pass


def main(arguments: list[str]) -> int:
    """Answer requests until there are no more.

    Parameters
    ----------
    arguments : list of str
        The bytes that this process may have, 0 for all there are; and the process that started
        this one, if its end must end this one at once, else 0.

    Returns
    -------
    int
        The exit status.
    """
    memory, parent = map(int, arguments)
    if parent and not end_with(parent):
        return 1
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    _limits(memory)
    try:
        from . import kernels  # noqa: F401
    except Exception as error:
        traceback.print_exc()
        send(channel, {"failed": _words(error)})
        return 1
    send(channel, {"done": os.getpid()})
    worker = Worker(channel)
    try:
        while True:
            request = receive(channel)
            try:
                told = {"done": worker.answer(request)}
            except EOFError:
                raise
            except Exception as error:
                told = {"failed": _words(error), "late": isinstance(error, TimeoutError)}
            send(channel, told)
    except (EOFError, OSError):
        return 0  # the asking process is gone
