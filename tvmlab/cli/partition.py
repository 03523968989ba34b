"""``tvmlab partition``: what the accelerator takes of a model, and what that costs."""

from __future__ import annotations

import argparse
from typing import Any

from . import arguments
from .answer import Answer
from .outputs import expect_outputs
from .stage import stage

__all__ = ["add"]

ABOUT = """Cut a quantized model for the accelerator of the workbook.

It says what the accelerator takes, why it does not take the rest, and what its part costs. To
compile the model so: `tvmlab compile --target "npu, llvm"`."""
EXAMPLE = """tvmlab partition resnet8 -o resnet8.relax
tvmlab compile resnet8 --target "npu, llvm" -o resnet8.tar"""


def add(commands: arguments.Commands) -> None:
    """Add the command."""
    parser = arguments.command(commands, "partition", run, ABOUT, EXAMPLE)
    arguments.add_model(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write what was made of the model, as TVMScript, "
        "which tvm.script.from_source reads in Python",
    )


def run(told: argparse.Namespace) -> Answer:
    """Partition."""
    from dataclasses import asdict

    from .. import npu

    expect_outputs([told.output], [told.model])
    mod = arguments.integers(arguments.model(told))
    with stage(f"partition {told.model}"):
        cut = npu.partition(mod)
        found = npu.coverage(cut)
    data: dict[str, Any] = {
        "regions": found.regions,
        "operators_share": found.operators_share,
        "macs_share": found.macs_share,
        "operators": [asdict(one) for one in found.operators],
    }
    lines = [str(found)]
    if found.regions:
        with stage("count cycles"):
            cost = npu.report(cut)
        lines.append(str(cost))
        data["cycles"] = cost.cycles
        data["layers"] = [
            {"name": row.name, "cycles": row.cycles, "moved_bytes": row.moved}
            for row in cost.layers
        ]
    if told.output:
        arguments.write(told.output, cut.script(show_meta=True))
        lines.append(f"{told.output}: written")
        data["written"] = told.output
    return Answer("\n".join(lines), data)
