"""``tvmlab run``: a package or a model, on arrays or a picture."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from . import arguments, inputs
from .answer import Answer
from .outputs import expect_outputs
from .stage import stage

if TYPE_CHECKING:
    from ..bench import Measurement
    from ..executable import Executable
    from ..remote import RemoteExecutable

__all__ = ["add"]

ABOUT = """Run a package or a model.

On arrays from a file, a picture (resized and normalised as ImageNet's networks want it), or
numbers that are made up."""
EXAMPLE = """tvmlab compile digits_resnet -o digits.tar
tvmlab run digits.tar --fill random --print-top 3 --print-time -o result.npz"""


def add(commands: arguments.Commands) -> None:
    """Add the command."""
    parser = arguments.command(commands, "run", run, ABOUT, EXAMPLE)
    arguments.add_program(parser)
    inputs.add_inputs(parser)
    parser.add_argument(
        "-o",
        "--outputs",
        "--output",  # as tvmc's tutorial wrote it: tvmc took any beginning of an option
        metavar="FILE",
        help="write what it returns to this .npz file, by the names of the model's outputs; as "
        "output_0, output_1, ... where it has none",
    )
    parser.add_argument(
        "--print-top",
        type=arguments.counted,
        metavar="N",
        help="print the N greatest values along the first output's last axis, and their places",
    )
    parser.add_argument("--print-time", action="store_true", help="time it, and print that")
    arguments.add_timing(parser, default=None)
    there = parser.add_mutually_exclusive_group()
    there.add_argument(
        "--rpc-tracker", metavar="HOST:PORT", help="run on a server that this tracker knows"
    )
    there.add_argument("--rpc-server", metavar="HOST:PORT", help="run on this very server")
    parser.add_argument("--rpc-key", metavar="KEY", help=f"the server's key ({arguments.KEY})")


def run(told: argparse.Namespace) -> Answer:
    """Run."""
    there = told.rpc_tracker or told.rpc_server
    arguments.expect_use("--repeat", told.repeat, told.print_time, "--print-time")
    arguments.expect_use("--rpc-key", told.rpc_key, there, "--rpc-tracker or --rpc-server")
    expect_outputs([told.outputs], [told.program, told.inputs])
    inputs.expect_file(told)
    timed: Measurement | None = None
    with _program(told) as program:
        arrays = inputs.arrays(told, program.signature.inputs)
        with stage(f"run {told.program}"):
            named = inputs.named(program(*arrays), program.signature.outputs)
            if told.print_time:
                timed = program.time(*arrays, repeats=told.repeat or arguments.REPEATS)
    if told.outputs:
        inputs.save(told.outputs, named)
    return _answer(told, named, timed)


def _program(told: argparse.Namespace) -> AbstractContextManager[Executable | RemoteExecutable]:
    """Load a program here, or send it to a server, which lets go of it at the end."""
    if not (told.rpc_tracker or told.rpc_server):
        return nullcontext(arguments.program(told.program, told.input_shapes))
    from ..remote import RemoteExecutable

    if not arguments.is_package(told.program) or told.input_shapes:
        raise InputError(
            "a server runs packages, with the input shapes that they were compiled for",
            where=told.program,
            fix="`tvmlab compile` it first, and leave --input-shapes out here",
        )
    with stage(f"send {told.program}"):
        return RemoteExecutable(
            told.program,
            tracker=told.rpc_tracker,
            server=told.rpc_server,
            key=told.rpc_key or arguments.KEY,
        )


def _answer(told: argparse.Namespace, named: dict[str, Any], timed: Measurement | None) -> Answer:
    lines: list[str] = []
    data: dict[str, Any] = {}
    data["outputs"] = [
        {"name": name, "shape": list(array.shape), "dtype": str(array.dtype)}
        for name, array in named.items()
    ]
    if told.outputs:
        data["written"] = told.outputs
        lines.append(f"{told.outputs}: {', '.join(named)}")
    else:
        lines += [_glance(name, array) for name, array in named.items()]
    if told.print_top and named:
        data["top"] = top = _top(next(iter(named.values())), told.print_top)
        several = top and top[-1]["row"] > 0
        lines += [
            (f"row {one['row']:<4} " if several else "")
            + f"{one['value']:12.6g}  {one['class']:4} {one['name']}".rstrip()
            for one in top
        ]
    if timed is not None:
        data["seconds"] = {"median": timed.median, "spread": timed.spread}
        data["seconds"]["samples"] = list(timed.samples)
        lines.append(f"time: {timed}")
    return Answer("\n".join(lines), data)


def _glance(name: str, array: Any) -> str:
    """Say what an array is, and its range."""
    shape = ", ".join(map(str, array.shape))
    text = f"{name}: {array.dtype}[{shape}]"
    if array.size:
        text += f", from {float(array.min()):.6g} to {float(array.max()):.6g}"
    return text


def _top(array: Any, count: int) -> list[dict[str, Any]]:
    """List the greatest values of each row; of ImageNet's 1000 classes, with their names."""
    import numpy as np

    from ..models import imagenet_labels

    rows = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    names = imagenet_labels() if rows.shape[1] == 1000 else ()
    return [
        {
            "row": number,
            "class": int(place),
            "value": row[place].item(),
            "name": names[place] if names else "",
        }
        for number, row in enumerate(rows)
        for place in np.argsort(-row.astype(np.float64), kind="stable")[:count]
    ]
