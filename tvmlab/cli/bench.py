"""``tvmlab bench``: programs timed in turn."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Container
from functools import partial
from typing import Any

from . import arguments, inputs
from .answer import Answer
from .stage import stage

__all__ = ["add"]

ABOUT = """Time packages and models in turn, round by round.

On this machine; on another one `tvmlab run --print-time` times a package. Calls include copying
inputs in and outputs out. Every program gets the same numbers, and TVM's
number of threads. A program that is named twice is timed twice."""
EXAMPLE = """tvmlab bench digits_resnet
tvmlab compile digits_resnet --target llvm -o plain.tar
tvmlab bench plain.tar digits_resnet --repeat 5 --json"""


def add(commands: arguments.Commands) -> None:
    """Add the command."""
    parser = arguments.command(commands, "bench", run, ABOUT, EXAMPLE)
    arguments.add_program(parser, nargs="+")
    inputs.add_inputs(parser, fill="random")
    arguments.add_timing(parser)
    parser.add_argument(
        "--peer",
        metavar="FILE",
        help="an .onnx model that ONNX Runtime runs beside them, on the first program's inputs",
    )


def run(told: argparse.Namespace) -> Answer:
    """Time."""
    from .. import bench

    inputs.expect_file(told)
    rivals: dict[str, Callable[[], Any]] = {}
    first: list[Any] = []
    for name in told.program:
        program = arguments.program(name, told.input_shapes)
        given = inputs.arrays(told, program.signature.inputs)
        first = first or given
        rivals[_apart(name, rivals)] = partial(program, *given)
    if told.peer:
        rivals[_apart("ONNX Runtime", rivals)] = partial(bench.OnnxRuntime(told.peer), *first)
    with stage("measure"):
        found = bench.compare(rivals, repeats=told.repeat)
    one = next(iter(found.runs.values()))
    data = {
        name: {"median": of.median, "spread": of.spread, "samples": list(of.samples)}
        for name, of in found.runs.items()
    }
    return Answer(str(found if len(rivals) > 1 else one), {"seconds": data})


def _apart(name: str, taken: Container[str]) -> str:
    """Number a name that was given before: a program against itself says what noise there is."""
    numbered = (f"{name} ({number})" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in taken)
