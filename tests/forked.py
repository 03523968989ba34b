"""Fresh processes without the seconds that imports take: forks of one that has done them.

Nothing but the imports is shared: a fork has never run a kernel nor imported what it is to import
itself, it ends as an interpreter does, and what it changes ends with it.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import tvmlab

PATIENCE = 300  # seconds

# The child leaves the loop and runs to the end of the interpreter, whatever that end is.
SERVER = """
import gc, importlib, json, os, runpy, signal, sys

for module in sys.argv[1:]:
    importlib.import_module(module)
gc.freeze()  # else every fork, at its end, walks through all that was imported: most of a second
for line in sys.stdin:
    job = json.loads(line)
    if child := os.fork():
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, flush=True)
        continue
    for number, path in enumerate((os.devnull, job["stdout"], job["stderr"])):
        os.dup2(os.open(path, os.O_RDWR), number)
    signal.alarm(job["patience"])
    os.chdir(job["folder"])
    sys.path[0] = job["folder"] if job["kind"] == "-m" else ""
    sys.argv = [job["kind"], *job["arguments"]]
    break
else:
    sys.exit()
if job["kind"] == "-m":
    runpy.run_module(job["what"], run_name="__main__", alter_sys=True)
else:
    exec(compile(job["what"], "<string>", "exec"), {"__name__": "__main__"})
"""


@functools.cache
def _server(
    imported: tuple[str, ...], environment: tuple[tuple[str, str], ...]
) -> subprocess.Popen[str]:
    """Start, once, the process that has imported modules; it ends when this one does."""
    return subprocess.Popen(
        [sys.executable, "-c", SERVER, *imported],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def forked(
    kind: str,
    what: str,
    *arguments: object,
    folder: Path,
    imported: tuple[str, ...],
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE`` or ``python -c CODE`` where some modules are imported already.

    Parameters
    ----------
    kind : {"-m", "-c"}
    what : str
        The module or the code.
    arguments : object
        The words after it on the command line.
    folder : Path
        The working directory.
    imported : tuple of str
        Modules that such commands import anyway, or which are not what is tested.
    environment : mapping of str to str, optional
        This process's where it is not given.
    """
    paths = {"PYTHONPATH": str(Path(tvmlab.__file__).parents[1])}
    given = dict(os.environ) if environment is None else paths | dict(environment)
    server = _server(imported, tuple(sorted(given.items())))
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        job = {"kind": kind, "what": what, "arguments": [str(each) for each in arguments]}
        job |= {"folder": str(folder), "stdout": out.name, "stderr": err.name}
        print(json.dumps(job | {"patience": PATIENCE}), file=server.stdin, flush=True)
        status = server.stdout.readline()
        assert status, "the process that forks has ended"
        return subprocess.CompletedProcess([kind, what], int(status), out.read(), err.read())
