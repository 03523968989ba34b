"""``tvmlab profile``: where a program's time goes."""

from __future__ import annotations

import argparse

from . import arguments, inputs
from .answer import Answer
from .outputs import expect_outputs
from .stage import stage

__all__ = ["add"]

ABOUT = """Say where a program's time goes, function by function.

On this machine; on another one `tvmlab run --print-time` times the whole."""
EXAMPLE = """tvmlab profile digits_resnet --repeat 5 --trace trace.json --flame flame.svg"""


def add(commands: arguments.Commands) -> None:
    """Add the command."""
    parser = arguments.command(commands, "profile", run, ABOUT, EXAMPLE)
    arguments.add_program(parser)
    inputs.add_inputs(parser, fill="random")
    arguments.add_timing(parser)
    parser.add_argument(
        "--trace", metavar="FILE", help="write a trace that Chrome and Perfetto open (.json)"
    )
    parser.add_argument("--flame", metavar="FILE", help="write a flame graph (.svg)")


def run(told: argparse.Namespace) -> Answer:
    """Profile."""
    from ..profiling import profile

    expect_outputs([told.trace, told.flame], [told.program, told.inputs])
    inputs.expect_file(told)
    program = arguments.program(told.program, told.input_shapes)
    arrays = inputs.arrays(told, program.signature.inputs)
    with stage(f"profile {told.program}"):
        found = profile(program, *arrays, repeats=told.repeat)
    files = {"trace": (told.trace, found.trace), "flame": (told.flame, found.flame)}
    written = {name: str(write(path)) for name, (path, write) in files.items() if path}
    lines = [str(found), *(f"{path}: written" for path in written.values())]
    return Answer("\n".join(lines), {**found.data(), "written": written})
