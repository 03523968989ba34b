"""Processes that are forked to run one kernel, and how they end."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

__all__ = ["DIED", "doomed", "end_with", "how_it_died"]

#: How `how_it_died` begins.
DIED = "the kernel ended its process"

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> bool:
    """Have Linux kill this process when its parent ends; return whether the parent still runs."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def doomed(parent: int, seconds: float) -> None:
    """Make sure that this process, which was just forked, ends whatever runs in it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    if not end_with(parent):
        os._exit(70)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # TVM's handlers would first look up the names of all functions on the stack.
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def how_it_died(code: int) -> str:
    """Describe the exit code of a process that ran a kernel, negative for a signal."""
    if code >= 0:
        return f"{DIED} with exit code {code}"
    name = signal.Signals(-code).name
    why = {
        "SIGSEGV": ": it reached outside of its tensors",
        "SIGBUS": ": it reached outside of its tensors",
        "SIGILL": ": this processor lacks an instruction that it uses",
        "SIGKILL": ": the system may have run out of memory",
    }.get(name, "")
    return f"{DIED} with {name}{why}"
