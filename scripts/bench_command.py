"""What the command costs beside Python: its start, and a compilation by it and by the functions."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench_found import Effort, Found
from bench_report import COMMAND, COMMAND_COMPILES

_STARTS = 11
# What `tvmlab compile` does, and nothing else.
_FUNCTIONS = """
import sys, tvmlab
mod = tvmlab.load(getattr(tvmlab.models, sys.argv[1])())
tvmlab.compile(mod).save(sys.argv[2])
"""


def command(name: str, effort: Effort) -> Found:
    """Start the command, and compile a network by it and by the functions, in turn."""
    starts = [_seconds([sys.executable, "-m", "tvmlab", "--help"]) for _ in range(_STARTS)]
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "network.tar")
        ours = [sys.executable, "-m", "tvmlab", "compile", name, "-o", path]
        theirs = [sys.executable, "-c", _FUNCTIONS, name, path]
        for _ in range(min(3, effort.rounds)):
            ratios.append(_seconds(ours) / _seconds(theirs))
    values = {
        COMMAND: statistics.median(starts),
        COMMAND_COMPILES.format(name): statistics.median(ratios),
    }
    print("\n".join(f"{what}: {value:.3f}" for what, value in values.items()), flush=True)
    return Found(values, {"start_seconds": starts, "ratios": ratios})


def _seconds(line: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start
