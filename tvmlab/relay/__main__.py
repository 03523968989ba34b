"""Run a script of Relay's time, in this process alone: ``python -m tvmlab.relay SCRIPT.py``."""

from __future__ import annotations

import io
import os
import runpy
import sys
from types import ModuleType

from . import compat

USAGE = """usage: python -m tvmlab.relay SCRIPT.py [arguments]
       python -m tvmlab.relay -m MODULE [arguments]

Runs a script, or a module, that was written for the TVM of Relay's time. tvm.relay,
tvm.contrib.graph_executor, tvm.nd and their like stand in for what today's TVM has not; a name that
is gone says so, with its counterpart today."""


def main(arguments: list[str]) -> int:
    """Run a script or module with the stand-in, and return the exit code."""
    if arguments in ([], ["-m"]) or arguments[0] in ("-h", "--help"):
        wrong = arguments in ([], ["-m"])
        print(USAGE, file=sys.stderr if wrong else sys.stdout)
        return 2 if wrong else 0
    if arguments[0] == "-m":
        compat.install()
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    path = arguments[0]
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
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
