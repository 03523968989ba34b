"""Hold quantized networks against those who define what comes out of them, in full size.

    python scripts/referee.py                          # every row
    python scripts/referee.py --rows litert random     # some
    python scripts/referee.py --inputs 10              # few inputs, for a quick look
    python scripts/referee.py --golden FOLDER          # all of Relay's results, not the selection

The tests compare the same in short. The figures go to build/referee.json. The exit status is 1
where a bar is missed or a row fails.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from pathlib import Path

from referee_report import Measure, Size, table

from tvmlab._files import whole

ROOT = Path(__file__).resolve().parent.parent
#: Each compares one thing with one judge: a function of a module beside this one.
ROWS = {
    "passes": "referee_passes.passes",
    "litert-layers": "referee_litert.layers",
    "litert": "referee_litert.network",
    "qnn": "referee_golden.qnn",
    "rewrite": "referee_golden.rewrite",
    "random": "referee_random.graphs",
    "digits": "referee_networks.digits",
    "mobilenet": "referee_networks.mobilenet",
    "resnet50-qdq": "referee_networks.resnet50_qdq",
    "resnet50-qoperator": "referee_networks.resnet50_qoperator",
    "npu-digits": "referee_npu.digits",
    "npu-resnet8": "referee_npu.resnet8",
    "npu-resnet50": "referee_npu.resnet50",
    "npu-random": "referee_npu.drawn",
    "npu-linear": "referee_npu.linear",
}


def compare(row: str, size: Size) -> list[Measure]:
    """Compare what a row of ROWS names."""
    # What the tests and this share lies with the tests.
    if (tests := str(ROOT / "tests")) not in sys.path:
        sys.path.append(tests)
    module, name = ROWS[row].split(".")
    found: list[Measure] = getattr(importlib.import_module(module), name)(size)
    return found


def main(arguments: list[str]) -> int:
    """Compare what the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW",
                        help=", ".join(ROWS))  # fmt: skip
    parser.add_argument("--inputs", type=int, metavar="N", help="at most so many inputs")
    parser.add_argument("--golden", type=Path, default=ROOT / "tests" / "data",
                        help="a folder with Relay's results, qnn and rewrite")  # fmt: skip
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "referee.json")
    options = parser.parse_args(arguments)
    if options.inputs is not None and options.inputs < 1:
        parser.error("--inputs takes one or more")
    if not options.golden.is_dir():
        parser.error(f"there is no folder {options.golden}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    size = Size(options.golden, options.inputs)
    report = []
    start = time.perf_counter()
    for name in options.rows:
        began = time.perf_counter()
        try:
            found = compare(name, size)
        except Exception as error:  # one row's failure is said, and the others still run
            traceback.print_exc()
            found = [Measure(name, f"failed: {type(error).__name__}", "", False)]
        seconds = time.perf_counter() - began
        print(f"{name}: {seconds:.0f} s", flush=True)
        report += [measure.row(name) | {"row_seconds": seconds} for measure in found]
        # After each row: who ends a long run early keeps what was found.
        with whole(options.output) as part:
            part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\n{table(report)}")
    print(f"{time.perf_counter() - start:.0f} s; everything is in {options.output}")
    return int(any(row["met"] is False for row in report))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
