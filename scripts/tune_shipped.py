"""Make the records that ship with the package: `make records`.

The networks of the notebooks are tuned on this machine for generic processors; what decides goes
into ``tvmlab/assets``. All measurements stay in ``build/records``: who runs it again goes on there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tvm

import tvmlab
from tvmlab.tuning import Measure, Records, best_of

PROCESSORS = ("x86-64-v4", "x86-64-v3")
NETWORKS = ("digits_resnet", "resnet50_v2")
ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processors", nargs="+", choices=PROCESSORS, default=PROCESSORS)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=NETWORKS)
    parser.add_argument("--threads", type=int, default=2, help="of the target (default: 2)")
    parser.add_argument("--trials", type=int, default=64, help="of a task (default: 64)")
    told = parser.parse_args()
    folder = ROOT / "build" / "records"
    folder.mkdir(parents=True, exist_ok=True)
    for processor in told.processors:
        target = tvm.target.Target({"kind": "llvm", "mcpu": processor, "num-cores": told.threads})
        everything = Records(folder / f"{processor}.jsonl", mixed=True)
        for network in told.networks:
            mod = tvmlab.load(getattr(tvmlab.models, network)())
            print(f"{network} for {processor}, {told.threads} threads", flush=True)
            report = tvmlab.tune(
                mod, target, records=everything, trials=told.trials, measure=Measure(repeat=10)
            )
            print(report, flush=True)
        kept = ROOT / "tvmlab" / "assets" / f"{processor}.jsonl"
        kept.unlink(missing_ok=True)
        best_of(everything.path, kept, texts=False)
        print(f"{kept}: {kept.stat().st_size} bytes", flush=True)


if __name__ == "__main__":
    main()
