"""What the real Relay computed and rewrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import helpers_qnn_golden as golden
import numpy as np
import tvm
from helpers_qnn_graphs import equal
from helpers_relay_patterns import quantized_convolution
from referee_report import Measure, Size, absent, holds

import tvmlab
from tvmlab import relay
from tvmlab.qnn.config import requantize_config
from tvmlab.qnn.transform import QnnQuantizeConstFold, RemoveClipAfterRequantize

BITS = "bit-exact"
FRONTENDS = ("torch", "tflite")


def _agrees(case: golden.Case, found: np.ndarray) -> bool:
    try:
        golden.check(case, found)
    except AssertionError:
        return False
    return True


def qnn(size: Size) -> list[Measure]:
    """Compute Relay's cases by the reference, and compiled with our schedules and without."""
    folder = size.golden / "qnn"
    if not (folder / "cases.json").exists():
        return [absent("Relay's quantized operators", BITS)]
    groups = golden.by_configuration(folder)
    cases = [case for group in groups for case in group]
    ways = {"reference": [(case, golden.computed(case)) for case in cases]}
    for name, schedule in (("compiled", True), ("compiled, unscheduled", False)):
        pairs = []
        for group in groups:
            pairs += zip(group, golden.compiled(group, schedule), strict=True)
        ways[name] = pairs
    found = []
    for name, pairs in ways.items():
        wrong = [case.name for case, result in pairs if not _agrees(case, result)]
        text = f"{len(cases) - len(wrong)} of {len(cases)} cases"
        said = f"Relay's quantized operators, {name}"
        found.append(holds(said, text, BITS, not wrong, wrong=wrong))
    return found


def rewrite(size: Size) -> list[Measure]:
    """Rewrite the customer's convolution in both frontends' forms, as Relay did."""
    name = "the customer's convolution, {}"
    places = [size.golden / "rewrite", size.golden / "relay" / "rewrite"]
    folder = next((place for place in places if (place / "facts.json").exists()), None)
    if folder is None:
        return [absent(name.format("rewritten"), "structurally equal")]
    facts = json.loads((folder / "facts.json").read_text())
    passes = tvm.transform.Sequential([QnnQuantizeConstFold(), RemoveClipAfterRequantize()])
    read = {
        f"{frontend}_{when}": relay.fromtext((folder / f"{frontend}_{when}.relay").read_text())
        for frontend in FRONTENDS
        for when in ("before", "after")
    }
    made = {frontend: passes(read[f"{frontend}_before"]) for frontend in FRONTENDS}

    def same(said: str, holds_: bool) -> Measure:
        text = "structurally equal" if holds_ else "they differ"
        return holds(name.format(said), text, "structurally equal", holds_)

    found = [
        same(f"{frontend}'s rewritten, and Relay's", equal(mod, read[f"{frontend}_after"]))
        for frontend, mod in made.items()
    ]
    found.append(same("both frontends' rewritten", equal(*made.values())))
    wanted = {key: facts[_fact(key)] for key in read}
    matches = {
        key: bool(quantized_convolution().match(mod["main"].body))
        for key, mod in (read | {f"{k}_after": mod for k, mod in made.items()}).items()
    }
    story = "; ".join(f"{key.replace('_', ' ')} {'yes' if wanted[key] else 'no'}" for key in wanted)
    text = "as in Relay" if matches == wanted else str(matches)
    found.append(holds(name.format("matches"), text, story, matches == wanted))
    return [*found, *_outputs(folder, {**read, **{f"{k}_made": m for k, m in made.items()}})]


def _fact(key: str) -> str:
    frontend, when = key.split("_")
    return f"{frontend}_matches_{when}"


def _outputs(folder: Path, mods: dict[str, Any]) -> list[Measure]:
    """Run the modules before and after, and what the passes made, on Relay's input."""
    name = "the customer's convolution, outputs"
    if not (folder / "io.npz").exists():
        return [absent(name, BITS)]
    wrong = []
    with np.load(folder / "io.npz") as arrays:
        for key, mod in mods.items():
            for compute_dtype in ("int64", "float32"):
                frontend, when = key.split("_")
                named = frontend if when == "before" else f"{frontend}_after"
                with requantize_config(compute_dtype=compute_dtype):
                    run = tvmlab.compile(mod)
                if not np.array_equal(run(arrays["in_input"]), arrays[f"{named}_{compute_dtype}"]):
                    wrong.append(f"{key} {compute_dtype}")
    text = f"{2 * len(mods) - len(wrong)} of {2 * len(mods)} modules"
    return [holds(name, text, BITS, not wrong, wrong=wrong)]
