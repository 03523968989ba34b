"""A worker, seen from the process that starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from ...errors import TuningError
from .wire import receive, send

__all__ = ["KernelError", "Process", "WorkerLost"]

# Importing tvm takes two seconds; more where a machine is busy or its disk is slow.
START_SECONDS = 120.0
_LAST_LINES = 8
# `import tvmlab` imports tvm with everything that it finds installed, PyTorch too, and the whole
# package; a worker needs TVM and NumPy alone. So the packages around its module are empty ones with
# the right folders, and PyTorch, which tvm-ffi imports where it is installed, is left out. Garbage
# is looked for later, and not among what was imported: each fork would have to copy all of that.
_START = """
import gc, sys, types
gc.disable()
sys.modules["torch"] = None
for name in ("tvmlab", "tvmlab.tuning", "tvmlab.tuning.measuring"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = ["/".join([sys.argv[1], *name.split(".")])]
from tvmlab.tuning.measuring.worker import main
gc.freeze()
gc.enable()
sys.exit(main(sys.argv[2:]))
"""


class KernelError(Exception):
    """A worker says why a kernel failed; the worker lives.

    Attributes
    ----------
    late : bool
        Whether it took too long.
    """

    def __init__(self, why: str, late: bool = False) -> None:
        self.late = late
        super().__init__(why)


class WorkerLost(Exception):
    """A worker died, or was ended because it took too long."""


class Process:
    """A worker process; it ends when this process does.

    Parameters
    ----------
    threads : int
        Threads of TVM's pool in it.
    memory : int
        Bytes that it may have; 0 for all there are.
    """

    def __init__(self, threads: int, memory: int = 0) -> None:
        self._channel, theirs = socket.socketpair()
        # Appended to by the worker wherever it is read here.
        self._said = tempfile.TemporaryFile("a+b")  # noqa: SIM115  (`kill` closes it)
        # The signal at a parent's end comes at the end of the thread that started the child.
        lasting = threading.current_thread() is threading.main_thread()
        parent = os.getpid() if lasting else 0
        folder = str(Path(__file__).resolve().parents[3])
        self._lock = threading.Lock()
        self._ready = False
        try:
            self._process = subprocess.Popen(
                # -P: what lies in the current folder is not what `import` finds.
                [sys.executable, "-P", "-c", _START, folder, str(memory), str(parent)],
                stdin=theirs.fileno(),
                stdout=self._said,
                stderr=self._said,
                # A process that forks should have no threads, of which the fork has none.
                env={
                    **os.environ,
                    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
                    "TVM_NUM_THREADS": str(threads),
                },
                start_new_session=True,  # Ctrl-C is for us; and so that `kill` reaches all of it
            )
        except OSError as error:
            self._channel.close()
            self._said.close()
            raise TuningError(
                f"A process to measure in cannot start: {error.strerror}", where=sys.executable
            ) from error
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The number of the process."""
        number: int = self._process.pid
        return number

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def ask(self, op: str, *, wait: float, **arguments: Any) -> Any:
        """Ask for something and wait for the answer.

        Parameters
        ----------
        op : str
            One of the operations of `tvmlab.tuning.measuring.worker.Worker`.
        wait : float
            Seconds; then the process is ended.
        **arguments
            The operation's own.

        Returns
        -------
        object
            What the operation returns.

        Raises
        ------
        KernelError
            The operation failed.
        WorkerLost
            The process died, or took too long and was ended.
        TuningError
            It could not start.
        """
        self.wait_until_ready()
        try:
            deadline = time.monotonic() + wait
            send(self._channel, {"op": op, **arguments}, deadline)
            told = receive(self._channel, deadline)
        except TimeoutError:
            self.kill()
            raise WorkerLost(f"it took longer than {wait:g} s and was stopped") from None
        except (EOFError, OSError):
            raise WorkerLost(self._last_words()) from None
        except BaseException:  # interrupted by the user: its answer would be taken for another's
            self.kill()
            raise
        if "failed" in told:
            raise KernelError(told["failed"], bool(told.get("late")))
        return told["done"]

    def wait_until_ready(self) -> None:
        """Wait until it has started.

        Raises
        ------
        TuningError
            It died, or was not ready in time.
        """
        with self._lock:
            if self._ready:
                return
            try:
                told = receive(self._channel, time.monotonic() + START_SECONDS)
                why = str(told.get("failed", ""))
            except TimeoutError:
                why = f"It was not ready after {START_SECONDS:g} s."
                os.killpg(self._process.pid, signal.SIGKILL)
            except (EOFError, OSError):
                why = ""
            except BaseException:
                self.kill()
                raise
            else:
                self._ready = not why
            if self._ready:
                return
            words = self._last_words()
            self.kill()
        raise TuningError(
            f"A process to measure in cannot start. {why}".rstrip() + f"\n{words}",
            where=sys.executable,
            fix="Read what it said, above; check the installation with `python -c 'import tvm'`.",
        )

    def _last_words(self) -> str:
        """How it ended, and the end of what it wrote."""
        try:
            code: int | None = self._process.wait(5)
        except subprocess.TimeoutExpired:
            code = None
        try:
            size = os.fstat(self._said.fileno()).st_size
            tail = os.pread(self._said.fileno(), 4096, max(0, size - 4096))
        except ValueError:  # `kill` closed it
            tail = b""
        self.kill()
        how = "did not end" if code is None else _ended(code)
        lines = tail.decode(errors="replace").strip().splitlines()[-_LAST_LINES:]
        return "\n".join([f"The process {how}.", *(f"    {line}" for line in lines)])

    def kill(self) -> None:
        """End the process and all that it started."""
        if self._process.returncode is None:
            # Its own group still has its number: no wait has returned it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._channel.close()
        self._said.close()


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"
