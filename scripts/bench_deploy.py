"""Measure the C++ program against Python on ResNet-50: the time of a call, and of a start.

    python scripts/bench_deploy.py            # some minutes
    python scripts/bench_deploy.py --quick    # few rounds, to see that it runs

Both run the same package, each in a process of its own. They take turns of a third of a second: the
one whose turn it is not is stopped, so that both meet the same moments of the machine, whose speed
changes by a third within seconds. A call that a stop falls into is one of ten, which a median
leaves out. The ratio is that of the medians, and of several pairs of processes the median again.
The package is in the page cache. The figures go to build/bench_deploy.json. The exit status is 0
also where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tvmlab
from tvmlab import deploy, models
from tvmlab._files import whole

ROOT = Path(__file__).resolve().parent.parent
# The bars: C++ over Python, and seconds from the start of the process to the first result.
MOST_RATIO, MOST_SECONDS = 1.02, 1.0
# Seconds that a process runs before it is the other's turn.
TURN = 1 / 3
CHILD = """
import sys, numpy as np, tvmlab
run = tvmlab.load_executable(sys.argv[1])
print(run.time(np.load(sys.argv[2]), repeats=int(sys.argv[3]), number=1).median * 1e3)
"""


def take_turns(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Let one process after the other run for a while, until all have ended; what they wrote."""
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        while running := [process for process in processes if process.poll() is None]:
            for process in running:
                process.send_signal(signal.SIGCONT)
                time.sleep(TURN)
                process.send_signal(signal.SIGSTOP)
    finally:  # Interrupted: none stays behind stopped.
        for process in processes:
            process.kill()
    for process in processes:
        if process.returncode != 0:
            raise subprocess.CalledProcessError(process.returncode, process.args)
    return [process.stdout.read() for process in processes if process.stdout is not None]


def pair(package: Path, x: Path, repeats: int) -> tuple[float, float]:
    """Time a call in the C++ program and in Python, in milliseconds: medians of all calls."""
    lines: list[list[str | Path]] = [
        [deploy.program(), package, x, "--repeats", str(repeats)],
        [sys.executable, "-c", CHILD, package, x, str(repeats)],
    ]
    started = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in lines]
    without, python = take_turns(started)
    (found,) = re.findall(r"^([\d.]+) ms a call", without, re.MULTILINE)
    return float(found), float(python)


def start(package: Path, x: Path) -> float:
    """Time the C++ program from its start to its end, with one call, in seconds."""
    line = [str(deploy.program()), str(package), str(x), "--repeats", "0"]
    began = time.perf_counter()
    subprocess.run(line, capture_output=True, check=True)
    return time.perf_counter() - began


def main(arguments: list[str]) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench_deploy.json")
    told = parser.parse_args(arguments)
    rounds, repeats = (2, 5) if told.quick else (9, 300)
    executable = tvmlab.compile(tvmlab.load(models.resnet50_v2()))
    with tempfile.TemporaryDirectory() as folder:
        package = executable.save(Path(folder) / "resnet50.tar")
        x = Path(folder) / "x.npy"
        shape = executable.signature.inputs[0].shape
        np.save(x, np.random.default_rng(0).standard_normal(shape).astype("float32"))
        pairs = [pair(package, x, repeats) for _ in range(rounds)]
        starts = [start(package, x) for _ in range(rounds)]
    figures = {
        "cpp_ms": statistics.median(cpp for cpp, _ in pairs),
        "python_ms": statistics.median(there for _, there in pairs),
        "cpp_over_python": statistics.median(cpp / there for cpp, there in pairs),
        "start_seconds": statistics.median(starts),
    }
    print("\n".join(f"{name:16} {value:.4g}" for name, value in figures.items()))
    kept = figures["cpp_over_python"] < MOST_RATIO and figures["start_seconds"] < MOST_SECONDS
    print(f"bars (under {MOST_RATIO}, under {MOST_SECONDS} s): {'met' if kept else 'missed'}")
    told.output.parent.mkdir(parents=True, exist_ok=True)
    with whole(told.output) as part:
        part.write_text(json.dumps({**figures, "pairs": pairs, "starts": starts}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
