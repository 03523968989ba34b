"""Processes forked off to run a kernel: how they end."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

__all__ = ["PR_SET_PDEATHSIG", "doomed", "end_with", "how_it_died"]

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> bool:
    """Have the system end this process with its parent, where it can.

    Parameters
    ----------
    parent : int
        The parent. On Linux, the end of the thread that forked counts.

    Returns
    -------
    bool
        Whether the parent is still there.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def doomed(parent: int, seconds: float) -> None:
    """See to it that this process, just forked, ends whatever runs in it.

    Parameters
    ----------
    parent : int
        The process that forked.
    seconds : float
        When the system ends it at the latest; 0 for never.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    if not end_with(parent):
        os._exit(70)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # TVM's own would look for the names of all functions first. Those of Python's are not ours.
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def how_it_died(status: int) -> str:
    """Say in words what `os.waitpid` tells of a process that ran a kernel.

    Parameters
    ----------
    status : int
        From `os.waitpid`.

    Returns
    -------
    str
        A sentence without its full stop.
    """
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
