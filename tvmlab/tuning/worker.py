"""The process that compiles kernels and runs them; `tvmlab.tuning.process` starts it.

It speaks `tvmlab.tuning.wire` over the socket that it finds as its standard input: a request has
an ``op`` and its arguments, an answer is ``{"done": ...}`` or ``{"failed": reason}``.

Each kernel runs in a process forked for it. One that writes where it may not, or never ends, takes
only that one along, not what was compiled; and the threads that TVM's pool leaves spinning, in case
there is more to do, end with it instead of disturbing what is compiled or measured next.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from .wire import receive, send

# What it takes besides the time that was asked for: inputs, the first call, a loaded machine.
SLACK_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


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
            "duel": self.duel,
            "drop": self.drop,
        }
        return operations[request.pop("op")](**request)

    def build(self, module: str, target: dict[str, Any], seconds: float) -> int:
        """Compile a kernel in memory; its number."""
        from . import kernels

        # Should whoever asked be gone, nobody else ends a compiler that never does.
        signal.setitimer(signal.ITIMER_REAL, seconds + SLACK_SECONDS)
        try:
            made = kernels.build(module, target)
            made.module.get_function("main")  # LLVM makes the machine code here
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._count += 1
        self._kernels[self._count] = made
        return self._count

    def measure(self, kernel: int, plan: dict[str, Any], seconds: float) -> Any:
        """Run and time a kernel."""
        from . import kernels

        made = self._kernels[kernel]
        kernels.inputs(made.arguments)  # made once, here, for all processes forked off
        return self._apart(lambda: kernels.measure(made, kernels.Plan(**plan)), seconds)

    def duel(self, which: list[int], plan: dict[str, Any], rounds: int, seconds: float) -> Any:
        """Time kernels in turn."""
        from . import kernels

        made = [self._kernels[number] for number in which]
        return self._apart(lambda: kernels.duel(made, kernels.Plan(**plan), rounds), seconds)

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
                _doomed(worker, seconds)
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
            raise RuntimeError(_how_it_died(status))
        told = json.loads(text)
        if "failed" in told:
            raise RuntimeError(told["failed"])
        return told["done"]

    def _heard(self, pipe: int, deadline: float) -> tuple[bytes, bool]:
        """Read all that is told through a pipe; whether the time was over first."""
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
                    raise EOFError  # nobody asks two things at once: whoever asked is gone
                piece = os.read(pipe, 1 << 16)
                if not piece:
                    return text, False
                text += piece


def _doomed(worker: int, seconds: float) -> None:
    """See to it that this process ends, whatever runs in it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + SLACK_SECONDS)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:
        os._exit(70)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        signal.signal(number, signal.SIG_DFL)  # TVM's would look for the names of all functions


def _tell(pipe: int, job: Callable[[], Any]) -> None:
    """Do a job and write what came of it to a pipe: a line."""
    try:
        told = {"done": job()}
    except Exception as error:
        told = {"failed": _words(error)}
    text = json.dumps(told).encode() + b"\n"
    while text:
        text = text[os.write(pipe, text) :]


def _how_it_died(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"the kernel ended its process with exit code {code}"
    name = signal.Signals(-code).name
    why = {
        "SIGSEGV": ": it reached outside of its tensors",
        "SIGBUS": ": it reached outside of its tensors",
        "SIGILL": ": this processor lacks an instruction that it uses",
        "SIGKILL": ": the system may have run out of memory",
    }.get(name, "")
    return f"the kernel ended its process with {name}{why}"


def _words(error: Exception) -> str:
    from .._telling import telling

    text = telling(error)
    return text if isinstance(error, TimeoutError | RuntimeError) else f"{_name(error)}: {text}"


def _name(error: Exception) -> str:
    return type(error).__name__


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


def main(memory: int, parent: int) -> None:
    """Answer requests until there are no more.

    Parameters
    ----------
    memory : int
        Bytes that this process may have; 0 for all there are.
    parent : int
        The process that started this one, if its end shall be the end of this one at once; else 0.
    """
    if parent and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # whatever a library prints goes to standard error
    _limits(memory)
    # tvm-ffi imports PyTorch where it is installed, for four seconds. No kernel needs it.
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        from . import kernels  # noqa: F401
    except Exception as error:
        traceback.print_exc()
        send(channel, {"failed": _words(error)})
        return
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
                told = {"failed": _words(error)}
            send(channel, told)
    except (EOFError, OSError):
        return  # nobody asks any more
