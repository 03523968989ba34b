"""Measure the workbook's networks against other runtimes: tables, and a JSON file.

    python scripts/bench.py                              # everything
    python scripts/bench.py digits_resnet                # on this network
    python scripts/bench.py --sections networks,batch    # some of the sections
    python scripts/bench.py --quick                      # few rounds, to see that it runs
    python scripts/bench.py --readme                     # measure nothing, quote the last figures

The figures go to build/bench.json, beside those of other sections that were measured at the same
commit on the same machine. `--readme` takes from there what README quotes to docs/bench.json, and
writes it into README. The exit status is 1 where something failed; to miss a bar is no failure.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import bench_report as report_
from bench_process import ChildError, Noise
from bench_sections import QUICK, SECTIONS, Effort
from bench_work import NETWORKS

import tvmlab
from tvmlab import bench
from tvmlab._files import whole

ROOT = Path(__file__).resolve().parent.parent
OUTPUT, QUOTED = ROOT / "build" / "bench.json", ROOT / "docs" / "bench.json"
# The part of the machine that other programs can take before the section says so, and before README
# does not quote the figures.
NOISY, TOO_NOISY = 0.05, 0.2
PACKAGES = ("apache-tvm", "numpy", "onnxruntime", "openvino", "torch", "ai-edge-litert")
#: The sections that run over every network; the others run over one.
_EVERY = ("networks", "int8")


def plan(sections: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    """List what to measure, a section and a network each.

    Sections about a single network take the first of `names` in the order of NETWORKS, which is the
    largest; no names are all of them.
    """
    chosen = [name for name in NETWORKS if name in names or not names]
    return [
        (section, name)
        for section in SECTIONS
        if section in sections
        for name in (chosen if section in _EVERY else chosen[:1])
    ]


def machine(quick: bool) -> dict[str, Any]:
    """Say what is measured, and on what."""
    target = json.loads(str(tvmlab.host_target()))
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    installed = {each.metadata["Name"] for each in metadata.distributions()}
    return {
        "commit": _git("rev-parse", "--short", "HEAD") + (" with changes" if _changed() else ""),
        "cpu": cpu[1] if cpu else platform.machine(),
        "mcpu": target.get("mcpu", ""),
        "threads": bench.peer_threads(),
        "onnxruntime_threads": bench.onnxruntime_threads(),
        "versions": {
            "Python": platform.python_version(),
            **{name: metadata.version(name) for name in PACKAGES if name in installed},
        },
        "quick": quick,
    }


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def _changed() -> bool:
    """Whether something is changed that is measured: figures and prose are not."""
    said = _git("status", "--porcelain", "--", "tvmlab", "scripts", "pyproject.toml")
    return said not in ("", "unknown")


def quote() -> int:
    """Take what README quotes from the last figures, and write it there; the exit status."""
    import readme

    data = report_.quoted(json.loads(OUTPUT.read_text(encoding="utf-8")))
    if data["taken_by_others"] > TOO_NOISY:
        taken = f"other programs took {data['taken_by_others']:.0%} of the machine"
        print(f"not quoted: {taken}. Run `make bench` on a quiet machine.", file=sys.stderr)
        return 1
    text = json.dumps(data, indent=1, ensure_ascii=False)
    QUOTED.write_text(text + "\n", encoding="utf-8")
    return readme.main(check=False)


def main(arguments: list[str]) -> int:
    """Measure what the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--sections", default=",".join(SECTIONS), help="default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--readme", action="store_true", help="quote the last figures in README")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args(arguments)
    if options.readme:
        return quote()
    sections = options.sections.split(",")
    for given, known in ((options.names, NETWORKS), (sections, SECTIONS)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"no {' or '.join(unknown)}; there are {', '.join(known)}")
    # This sets the number of threads in the environment, which the children inherit.
    facts = machine(options.quick)
    old = json.loads(options.output.read_text()) if options.output.is_file() else {}
    same = not _changed() and all(old.get(name) == value for name, value in facts.items())
    kept = old if same else {"sections": {}, "values": {}, "peak_flops": 0.0, "seconds": 0.0}
    report: dict[str, Any] = kept | facts | {"date": time.strftime("%Y-%m-%d")}
    print(f"{report['cpu']} (LLVM: {report['mcpu']}), commit {report['commit']}")
    print(report_.settings(report["threads"], report["onnxruntime_threads"]), flush=True)
    failures, start = [], time.perf_counter()
    for section, name in plan(sections, options.names):
        print(f"\n{section}, {name}", flush=True)
        began, noise = time.perf_counter(), Noise()
        try:
            found = SECTIONS[section](name, QUICK if options.quick else Effort())
        except ChildError as error:
            failures.append(f"{section}, {name}: {error}")
            print(f"failed: {error}", file=sys.stderr, flush=True)
            continue
        others = noise.share()
        if others > NOISY:
            print(f"noisy: other processes took {others:.0%} of the machine", flush=True)
        report["values"] |= found.values
        report["sections"].setdefault(section, {})[name] = found.figures | {
            "measured_in_seconds": time.perf_counter() - began,
            "taken_by_others": others,
        }
        report["peak_flops"] = max(report["peak_flops"], found.peak)
    report["measures"] = report_.verdicts(report["values"])
    report["failures"] = failures
    report["seconds"] += time.perf_counter() - start
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with whole(options.output) as part:
        part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if report["peak_flops"]:
        print(f"\nthe machine's peak: {report['peak_flops'] / 1e9:.0f} GFLOP/s")
    print(f"\n{report_.table(report['measures'])}")
    print(f"{time.perf_counter() - start:.0f} s; everything is in {options.output}")
    for failure in failures:
        print(f"failed: {failure.splitlines()[0]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
