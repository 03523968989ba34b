"""Run a script of Relay's time, in this process alone: ``python -m tvmlab.relay SCRIPT.py``."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

from . import compat

USAGE = """usage: python -m tvmlab.relay SCRIPT.py [arguments]
       python -m tvmlab.relay -m MODULE [arguments]

Runs a script, or a module, that was written for the TVM of Relay's time. tvm.relay,
tvm.contrib.graph_executor, tvm.nd and their like stand in for what today's TVM has not; a name that
is gone says so, with its counterpart today."""


def main(arguments: list[str]) -> int:
    """Run a script or module with the stand-in, and return the exit code."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if arguments in ([], ["-m"]):
        print(USAGE, file=sys.stderr)
        return 2
    if arguments[0] == "-m":
        compat.install()
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    path = arguments[0]
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        print(f"{sys.executable}: can't open file {path!r}: {error}", file=sys.stderr)
        return 2
    compat.install()
    sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.abspath(path))
    script = sys.modules["__main__"] = ModuleType("__main__")
    script.__file__ = path
    try:
        exec(compile(source, path, "exec"), script.__dict__)
    except Exception as error:
        trace = error.__traceback__  # which begins in the script, as Python's own does
        while trace is not None and trace.tb_frame.f_globals is not script.__dict__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
