"""Run a script of the Relay era in this process: ``python -m tvmlab.relay SCRIPT.py``."""

from __future__ import annotations

import os
import runpy
import sys

from . import compat

USAGE = """usage: python -m tvmlab.relay SCRIPT.py [arguments]
       python -m tvmlab.relay -m MODULE [arguments]

Runs a script, or a module, that was written for TVM with Relay. tvmlab provides tvm.relay,
tvm.contrib.graph_executor, tvm.nd and similar modules; a removed name raises an error
that names its counterpart in today's TVM."""


def main(arguments: list[str]) -> None:
    """Run a script or module with tvmlab's replacements; its exceptions are not caught."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return
    is_module = arguments[:1] == ["-m"]
    script = arguments[is_module:]
    if not script:
        print(USAGE, file=sys.stderr)
        sys.exit(2)
    sys.argv = script
    if is_module:
        compat.install()
        runpy.run_module(script[0], run_name="__main__", alter_sys=True)
    elif not os.path.isfile(script[0]):
        print(f"{sys.executable}: can't open file {script[0]!r}: no such file", file=sys.stderr)
        sys.exit(2)
    else:
        compat.install()
        sys.path[0] = os.path.dirname(os.path.abspath(script[0]))
        runpy.run_path(script[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
