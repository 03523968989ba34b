"""Reading the texts of functions, by a process that may end.

TVM trusts the text of a module: a wrong index in it ends the process. Nothing in a text shows
beforehand whether it will, so another process reads it first, and this one only what that has
survived.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import s_tir
from tvm.ir import IRModule

from ..errors import RecordError
from ..support.wording import telling
from .workloads import normalized, workload_id

__all__ = ["read_modules", "serve"]

_START, _READ = 120.0, 30.0  # seconds: to import TVM on a machine that is busy, to read a text
_SERVE = f"""
from tvmlab.support.importing import leave_pytorch_out
leave_pytorch_out()
from {__name__} import serve
serve()
"""
_DIED = "TVM's reader of modules ends the process on this text"


def read_modules(texts: Sequence[str]) -> list[IRModule | str]:
    """Read functions from text that may be damaged, or made to do harm.

    Parameters
    ----------
    texts : sequence of str
        What `tvmlab.records.workloads.to_text` wrote, each of one function.

    Returns
    -------
    list of (tvm.ir.IRModule or str)
        One function ``main``; or why there is none.

    Raises
    ------
    RecordError
        The other process cannot start.
    """
    troubles: list[str] = []
    while len(troubles) < len(texts):
        with _reader() as reader:
            for text in texts[len(troubles) :]:
                trouble = _ask(reader, text)
                troubles.append(_DIED if trouble is None else trouble)
                if trouble is None:
                    break
    pairs = zip(texts, troubles, strict=True)
    return [trouble or normalized(tvm.ir.load_json(text)) for text, trouble in pairs]


@contextlib.contextmanager
def _reader() -> Iterator[subprocess.Popen[bytes]]:
    """Start the other process; end it with the block."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
        )
        try:
            if _answer(process, _START) != "ready":
                process.kill()
                said.seek(0)
                last = said.read().decode(errors="replace").strip().splitlines()[-1:]
                raise RecordError(
                    "the process that reads modules does not start: "
                    f"{' '.join(last) or 'it says nothing'} (exit code {process.wait()})",
                    where=sys.executable,
                    fix="see whether `import tvmlab` works in a Python of its own",
                )
            yield process
        finally:
            process.kill()
            with contextlib.suppress(BrokenPipeError):
                process.communicate()


def _ask(process: subprocess.Popen[bytes], text: str) -> str | None:
    """Have a text read; say what is wrong with it, None where the process ended."""
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(text).encode() + b"\n")
        process.stdin.flush()
    except OSError:
        return None
    answer = _answer(process, _READ)
    return answer if isinstance(answer, str) else None


def _answer(process: subprocess.Popen[bytes], seconds: float) -> Any:
    """Wait for a line; None where it does not come."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], seconds)[0]:
        return None
    line = process.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def serve() -> None:
    """Be the other process: read texts, a line of JSON each, and say what is wrong with each."""
    # TVM's output must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_trouble(json.loads(line))), file=answers, flush=True)


def _trouble(text: str) -> str:
    try:
        module = tvm.ir.load_json(text)
        if not isinstance(module, IRModule):
            return "a workload's text is that of no module"
        plain = normalized(module)
        workload_id(plain)
        # What others will do with it: a node of a wrong kind shows no earlier.
        s_tir.Schedule(plain, debug_mask="all")
        plain.script()
    except Exception as error:  # TVM raises several classes, by what is wrong
        return f"TVM cannot read a workload's text: {telling(error)}"[:500]
    return ""
