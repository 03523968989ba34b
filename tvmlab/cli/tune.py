"""``tvmlab tune``: search better schedules for a model, by measuring."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from . import arguments
from .answer import Answer

if TYPE_CHECKING:
    from ..tuning.report import Report

__all__ = ["add"]

ABOUT = """Search better schedules for a model, by measuring.

What is found goes to a file of records, for `tvmlab compile --tuning-records`. Tuning that was
interrupted goes on where it was: call it again."""
EXAMPLE = """tvmlab tune digits_resnet -o digits.jsonl --total-trials 8 --tuner random
tvmlab compile digits_resnet --tuning-records digits.jsonl -o digits.tar"""


def add(commands: arguments.Commands) -> None:
    """Add the command."""
    parser = arguments.command(commands, "tune", run, ABOUT, EXAMPLE)
    arguments.add_model(parser)
    arguments.add_target(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the records; they are added to it"
    )
    count = arguments.counted
    parser.add_argument(
        "--trials",
        type=count,
        default=64,
        metavar="N",
        help="candidates to measure for each task at most (%(default)s)",
    )
    parser.add_argument(
        "--total-trials", type=count, metavar="N", help="and over all tasks at most"
    )
    parser.add_argument(
        "--tuner",
        choices=("xgb", "ga", "random", "gridsearch"),
        default="xgb",
        help="how candidates are chosen (%(default)s)",
    )
    parser.add_argument(
        "--early-stopping", type=count, metavar="N", help="trials without a better one that end it"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="decide again, too, about what was decided on before; with --trials 1 nothing else",
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="how long all of it may take")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of what is random (%(default)s)"
    )
    parser.add_argument(
        "--rpc-tracker", metavar="HOST:PORT", help="measure on the servers that this tracker knows"
    )
    parser.add_argument("--rpc-key", metavar="KEY", help=f"the servers' key ({arguments.KEY})")


def run(told: argparse.Namespace) -> Answer:
    """Tune."""
    from .. import tune

    arguments.expect_use("--rpc-key", told.rpc_key, told.rpc_tracker, "--rpc-tracker")
    try:
        report = tune(
            arguments.model(told),
            told.target,
            records=told.output,
            trials=told.trials,
            total_trials=told.total_trials,
            tuner=told.tuner,
            early_stopping=told.early_stopping,
            seconds=told.seconds,
            seed=told.seed,
            again=told.again,
            tracker=told.rpc_tracker,
            key=told.rpc_key or arguments.KEY,
        )
    except KeyboardInterrupt as stopped:
        if not os.path.exists(told.output):
            raise
        kept = f"what was measured is in {told.output}, and the same command goes on from there"
        raise KeyboardInterrupt(kept) from stopped
    tasks = [
        {
            "name": task.name,
            "calls": task.calls,
            "trials": task.trials,
            "errors": len(task.errors),
            "rule_seconds": task.rule,
            "tuned_seconds": task.tuned,
            "layout": task.layout,
            "ended": task.ended,
            "decided": task.decided,
        }
        for task in report.tasks
    ]
    data = {
        "records": told.output,
        "seconds": report.seconds,
        "measured": report.measured,
        "before_seconds": report.before,
        "after_seconds": report.after,
        "tasks": tasks,
    }
    return Answer("\n".join([repr(report), *_meaning(told, report)]), data)


def _meaning(told: argparse.Namespace, report: Report) -> list[str]:
    """Say what was decided, and what can be done next."""
    import shlex

    from .._telling import several

    decided = [task for task in report.tasks if task.decided]
    won = [task for task in decided if task.tuned < task.rule]
    said = f"of {several(len(report.tasks), 'function')} {len(won)} got a faster schedule"
    if left := len(report.tasks) - len(decided):
        said += f", and of {left} nothing is decided yet: more --trials go on where these ended"
    elif not won:
        said += ": the rules' schedules stay; more --trials look further"
    if not won:
        return [said]
    target = ["--target", told.target] if told.target else []
    words = ["tvmlab", "compile", told.model, *target, "--tuning-records", told.output]
    return [said, f"next: {shlex.join(words)}"]
