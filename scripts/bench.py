"""Measure the workbook's networks against ONNX Runtime and PyTorch: tables, and a JSON file.

    python scripts/bench.py                              # everything
    python scripts/bench.py digits_resnet                # on this network
    python scripts/bench.py --sections networks,batch    # some of the parts
    python scripts/bench.py --quick                      # few rounds, to see that it runs

As many threads as cores on every side, every rival in a process of its own, rounds interleaved,
medians. The figures go to build/bench.json. The exit status is 1 where something failed; to miss a
bar is no failure.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import tvm
from bench_noise import Noise
from bench_race import ChildError
from bench_report import table, verdicts
from bench_sections import NETWORKS, SECTIONS, Effort, plan

import tvmlab
from tvmlab._files import whole
from tvmlab.bench import peer_threads

ROOT = Path(__file__).resolve().parent.parent
# What others may take of the machine before it is said.
NOISY = 0.05
QUICK = Effort(rounds=3, budget=10.0)


def machine() -> dict[str, Any]:
    """Say what is measured, and on what."""
    packages = ("apache-tvm", "numpy", "onnxruntime", "torch")
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": {
            "python": platform.python_version(),
            "tvmlab": tvmlab.__version__,
            "tvm": tvm.__version__,
            **{name: _version(name) for name in packages},
        },
        # This sets the number of threads in the environment, which the children inherit.
        "target": json.loads(str(tvmlab.host_target())),
        "threads": peer_threads(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main(arguments: list[str]) -> int:
    """Measure what the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--sections", default=",".join(SECTIONS), help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench.json")
    options = parser.parse_args(arguments)
    sections = options.sections.split(",")
    for given, known in ((options.names, NETWORKS), (sections, SECTIONS)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"no {' or '.join(unknown)}; there are {', '.join(known)}")
    report = machine() | {"quick": options.quick, "peak_flops": 0.0}
    print(f"threads: {report['threads']}, processor: {report['target'].get('mcpu')}", flush=True)
    values: dict[str, float] = {}
    failures = []
    start = time.perf_counter()
    for section, name in plan(sections, options.names):
        print(f"\n{section}, {name}", flush=True)
        began, noise = time.perf_counter(), Noise()
        try:
            found = SECTIONS[section](name, QUICK if options.quick else Effort())
        except ChildError as error:
            failures.append(f"{section}, {name}: {error}")
            print(f"failed: {error}", file=sys.stderr, flush=True)
            continue
        values |= found.values
        others = noise.share()
        if others > NOISY:
            print(f"noisy: other processes took {others:.0%} of the machine", flush=True)
        report.setdefault(section, {})[name] = found.figures | {
            "measured_in_seconds": time.perf_counter() - began,
            "taken_by_others": others,
        }
        report["peak_flops"] = max(report["peak_flops"], found.peak)
    report["measures"] = verdicts(values)
    report["failures"] = failures
    report["seconds"] = time.perf_counter() - start
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with whole(options.output) as part:
        part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if report["peak_flops"]:
        print(f"\nthe machine's peak: {report['peak_flops'] / 1e9:.0f} GFLOP/s")
    print(f"\n{table(report['measures'])}")
    print(f"{report['seconds']:.0f} s; everything is in {options.output}")
    for failure in failures:
        print(f"failed: {failure.splitlines()[0]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
