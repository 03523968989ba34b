"""Measure the C++ program against Python on ResNet-50: the time of a call, and of a start.

    python scripts/bench_deploy.py            # some minutes
    python scripts/bench_deploy.py --quick    # few rounds, to see that it runs

Both run the same package, each in a process of its own that ends before the other starts, in turn;
medians of the rounds' ratios. The package is in the page cache. The figures go to
build/bench_deploy.json. The exit status is 0 also where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tvmlab
from tvmlab import deploy, models
from tvmlab._files import whole

ROOT = Path(__file__).resolve().parent.parent
# The bars: C++ over Python, and seconds from the start of the process to the first result.
MOST_RATIO, MOST_SECONDS = 1.02, 1.0
CHILD = """
import sys, numpy as np, tvmlab
run = tvmlab.load_executable(sys.argv[1])
print(run.time(np.load(sys.argv[2]), repeats=int(sys.argv[3]), number=1).median * 1e3)
"""


def python(package: Path, x: Path, repeats: int) -> float:
    """Time a call in Python, in milliseconds."""
    line = [sys.executable, "-c", CHILD, str(package), str(x), str(repeats)]
    return float(subprocess.run(line, capture_output=True, text=True, check=True).stdout)


def without(package: Path, x: Path, repeats: int) -> float:
    """Time a call in the C++ program, in milliseconds."""
    line = [deploy.program(), package, x, "--repeats", str(repeats)]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    (found,) = re.findall(r"^([\d.]+) ms a call", done.stdout, re.MULTILINE)
    return float(found)


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
    rounds, repeats = (2, 5) if told.quick else (9, 50)
    executable = tvmlab.compile(tvmlab.load(models.resnet50_v2()))
    with tempfile.TemporaryDirectory() as folder:
        package = executable.save(Path(folder) / "resnet50.tar")
        x = Path(folder) / "x.npy"
        shape = executable.signature.inputs[0].shape
        np.save(x, np.random.default_rng(0).standard_normal(shape).astype("float32"))
        pairs = [(without(package, x, repeats), python(package, x, repeats)) for _ in range(rounds)]
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
