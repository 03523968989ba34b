"""``tvmlab compile``, ``run``, ``show`` and ``partition``: commands about one model."""

from __future__ import annotations

import argparse
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, ShapeError
from ..support.wording import table
from . import arrays, options
from .options import Answer

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..runtime.executable import Executable
    from ..runtime.remote import RemoteExecutable

__all__ = ["add"]

CODE = ("relax", "relay", "tir", "ll", "asm")
"""The formats of ``--dump-code``, which are tvmc's and ``relax``."""

COMPILE = """Compile a model to a package.

The package is one file for `tvmlab run`, for tvmlab.load_executable and for the C++ program. To
compile for another processor, name a compiler that links for it with --cross-compiler."""
COMPILE_EXAMPLE = """tvmlab compile digits_resnet -o digits.so --dump-code relax,asm
tvmlab compile digits_resnet --target "llvm -mcpu=x86-64-v3 -num-cores=2" -o v3.so"""

RUN = """Run a package or a model.

The inputs are arrays from a file, a picture (resized and normalized as networks for ImageNet need
it), or filled by --fill."""
RUN_EXAMPLE = """tvmlab compile digits_resnet -o digits.so
tvmlab run digits.so --fill random --print-top 3 --print-time -o result.npz"""

SHOW = """Show a model, or what is in a package.

Nothing in a package is loaded or run. Sizes that a model leaves open stay open, unless
--input-shapes fixes them. The screen shows a model without its weights; a file gets all of it.
tvmlab reads Relay text as a model again; Relax is TVMScript, which tvm.script.from_source reads."""
SHOW_EXAMPLE = """tvmlab show digits_resnet
tvmlab show digits_resnet --format relay -o digits.relay
tvmlab show digits.relay"""

PARTITION = """Partition a quantized model for the accelerator of the workbook.

The answer lists what the accelerator computes, why it does not compute the rest, and the cycles
that its part takes. To compile such a model: `tvmlab compile --target "npu, llvm"`."""
PARTITION_EXAMPLE = """tvmlab partition resnet8 -o resnet8.relax
tvmlab compile resnet8 --target "npu, llvm" -o resnet8.so"""


def add(commands: options.Commands) -> None:
    """Add the four commands."""
    _add_compile(options.add_command(commands, "compile", _compile, COMPILE, COMPILE_EXAMPLE))
    _add_run(options.add_command(commands, "run", _run, RUN, RUN_EXAMPLE))
    parser = options.add_command(commands, "show", _show, SHOW, SHOW_EXAMPLE)
    options.add_model(parser)
    parser.add_argument(
        "--format",
        choices=("operators", "relax", "relay"),
        default="operators",
        help="a table of operators (the default), Relax, or Relay text, which has a quantized "
        "model in integers",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the text to this file")
    parser = options.add_command(commands, "partition", _partition, PARTITION, PARTITION_EXAMPLE)
    options.add_model(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="write the result as TVMScript")


def _add_compile(parser: argparse.ArgumentParser) -> None:
    options.add_model(parser)
    options.add_target(parser)
    add = parser.add_argument
    add("-o", "--output", default="module.so", metavar="FILE", help="the package (%(default)s)")
    add("--tuning-records", metavar="FILE", help="what `tvmlab tune` wrote")
    add(
        "--desired-layout",
        choices=("NCHW", "NHWC"),
        help="convert convolutions first; the schedules for CPUs choose their own layout anyway",
    )
    add(
        "--dump-code",
        type=_formats,
        default=(),
        metavar="FORMATS",
        help=f"write FILE.FORMAT beside the package, for each of {','.join(CODE)} in the list",
    )
    add("--cross-compiler", metavar="PROGRAM", help="links, such as aarch64-linux-gnu-g++")
    add(
        "--cross-compiler-options",
        default="",
        metavar="OPTIONS",
        help='for it, after "=" and in quotes: --cross-compiler-options="-O2 -g"',
    )


def _formats(text: str) -> tuple[str, ...]:
    """Read the value of ``--dump-code``."""
    formats = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for one in formats:
        if one not in CODE:
            raise argparse.ArgumentTypeError(f"no format {one!r}; there are {', '.join(CODE)}")
    return formats


def _compile(args: argparse.Namespace) -> Answer:
    """Compile a model and write its package."""
    import json
    from collections import Counter

    from .. import compile
    from ..runtime import package
    from ..runtime.library import runtimes
    from ..support.target import as_target, split_target

    accelerator, rest = split_target(args.target)
    as_target(rest)  # a wrong target is refused before the model is imported
    options.check_files([args.model, args.tuning_records], [args.output])
    package.check_name(Path(args.output))
    mod = options.load_model(args.model, args.input_shapes)
    if args.desired_layout:
        mod = _in_layout(mod, args.desired_layout)
    if accelerator:
        mod = options.to_integers(mod)
    made = compile(mod, args.target, records=args.tuning_records)
    if accelerator and not runtimes(made.vm_executable):
        warnings.warn(
            f"{accelerator} computes no part of the model; `tvmlab partition` lists the reasons",
            stacklevel=2,
        )
    texts = {f"{args.output}.{form}": _code(form, mod, made) for form in args.dump_code}
    path = made.save(
        args.output,
        cross_compiler=args.cross_compiler,
        cross_compiler_options=args.cross_compiler_options,
    )
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")
    kernels = made.summary().kernels
    rules = Counter(kernel.rule or "no rule" for kernel in kernels)
    by = ", ".join(f"{rule} {count}" for rule, count in rules.most_common())
    lines = [
        f"{path}: {path.stat().st_size / 1e6:.1f} MB, {made!r}",
        f"{len(kernels)} functions, by the rules that scheduled them: {by}",
        *(f"{name}: written" for name in texts),
    ]
    data = {
        "output": str(path),
        "bytes": path.stat().st_size,
        "target": json.loads(str(made.target)),
        "inputs": [asdict(value) for value in made.signature.inputs],
        "outputs": [asdict(value) for value in made.signature.outputs],
        "functions": [asdict(kernel) for kernel in kernels],
        "written": list(texts),
    }
    return "\n".join(lines), data


def _in_layout(mod: IRModule, layout: str) -> IRModule:
    """Convert convolutions by TVM's own pass; inputs and outputs stay as they are."""
    from tvm import relax

    weights = {"NCHW": "OIHW", "NHWC": "OHWI"}[layout]
    return relax.transform.ConvertLayout({"relax.nn.conv2d": [layout, weights]})(mod)


def _code(form: str, mod: IRModule, made: Executable) -> str:
    """Return the text of a model or of its compiled code in one of the formats `CODE`."""
    if form == "relax":
        return str(mod.script(show_meta=True))
    if form == "relay":
        return _relay(mod)
    if form == "tir":
        return str(made.tir().script(show_meta=True))
    parts = [part for part in made.vm_executable.mod.imports if part.kind == "llvm"]
    return "\n".join(str(part.inspect_source(form)) for part in parts)


def _relay(mod: IRModule, weights: bool = True) -> str:
    """Return Relay text, which has quantized models in integers."""
    from ..ir.text.printer import astext

    return astext(options.to_integers(mod), show_meta_data=weights)


def _add_run(parser: argparse.ArgumentParser) -> None:
    options.add_program(parser)
    arrays.add_inputs(parser)
    add = parser.add_argument
    add(
        "-o",
        "--outputs",
        "--output",  # tvmc took any beginning of an option, and its tutorial wrote this one
        metavar="FILE",
        help="write the outputs to this .npz file, by the names that the model gives them, or as "
        "output_0, output_1, ...",
    )
    add(
        "--print-top",
        type=options.whole_number,
        metavar="N",
        help="print the N greatest values along the last axis of the first output",
    )
    add("--print-time", action="store_true", help="time the program")
    options.add_repeat(parser, default=None)
    add = parser.add_mutually_exclusive_group().add_argument
    add("--rpc-tracker", metavar="HOST:PORT", help="run a package on a server of this tracker")
    add("--rpc-server", metavar="HOST:PORT", help="run a package on this server")
    parser.add_argument("--rpc-key", metavar="KEY", help=f"the server's key ({options.KEY})")


def _run(args: argparse.Namespace) -> Answer:
    """Run a program here or on a server."""
    options.need(args, "repeat", "print_time")
    options.need(args, "rpc_key", "rpc_tracker", "rpc_server")
    options.check_files([args.program, args.inputs], [args.outputs])
    with _program(args) as program:
        inputs = arrays.input_arrays(args, program.signature.inputs)
        outputs = arrays.name_outputs(program(*inputs), program.signature.outputs)
        time = None
        if args.print_time:
            time = program.time(*inputs, repeats=args.repeat or options.REPEATS)
    lines = [_range(name, array) for name, array in outputs.items()]
    data: dict[str, Any] = {
        "outputs": [
            {"name": name, "shape": list(array.shape), "dtype": str(array.dtype)}
            for name, array in outputs.items()
        ]
    }
    if args.outputs:
        arrays.save_arrays(args.outputs, outputs)
        lines = [f"{args.outputs}: {', '.join(outputs)}"]
        data["written"] = args.outputs
    if args.print_top and outputs:
        data["top"] = _top(next(iter(outputs.values())), args.print_top)
        rows = [
            (one["row"], one["class"], f"{one['value']:.6g}", one["name"]) for one in data["top"]
        ]
        lines.append(table(("row", "class", "value", "name"), rows, left=(3,)))
    if time is not None:
        data["seconds"] = {"median": time.median, "spread": time.spread, "samples": time.samples}
        lines.append(f"time: {time}")
    return "\n".join(lines), data


def _program(args: argparse.Namespace) -> AbstractContextManager[Executable | RemoteExecutable]:
    """Load a program, or send a package to a server for the length of a block."""
    if not (args.rpc_tracker or args.rpc_server):
        return nullcontext(options.load_program(args.program, args.input_shapes))
    from ..runtime.remote import RemoteExecutable

    where = {"tracker": args.rpc_tracker, "server": args.rpc_server}
    return RemoteExecutable(args.program, key=args.rpc_key or options.KEY, **where)


def _range(name: str, array: Any) -> str:
    """Describe an array in one line."""
    text = f"{name}: {array.dtype}[{', '.join(map(str, array.shape))}]"
    if array.size:
        text += f", from {float(array.min()):.6g} to {float(array.max()):.6g}"
    return text


def _top(array: Any, count: int) -> list[dict[str, Any]]:
    """List the greatest values of each row, with the names of ImageNet's classes if it has 1000."""
    import numpy as np

    from ..models import imagenet_labels

    rows = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    names = imagenet_labels() if rows.shape[1] == 1000 else [""] * rows.shape[1]
    return [
        {"row": number, "class": int(at), "value": row[at].item(), "name": names[at]}
        for number, row in enumerate(rows)
        for at in np.argsort(-row.astype(np.float64), kind="stable")[:count]
    ]


def _show(args: argparse.Namespace) -> Answer:
    """Describe a package, or print a model."""
    options.check_files([args.model], [args.output])
    if options.is_package(args.model):
        return _describe_package(args)
    mod = _with_open_shapes(args)
    whole = bool(args.output)
    data: dict[str, Any]
    if args.format == "operators":
        from ..measure.operators import operators

        found = operators(mod)
        text, data = str(found), {"operators": [asdict(one) for one in found.rows]}
    else:
        text = _relay(mod, whole) if args.format == "relay" else mod.script(show_meta=whole)
        text = text.rstrip("\n")
        data = {"text": text}
    if not whole:
        return text, data
    Path(args.output).write_text(text + "\n", encoding="utf-8")
    return f"{args.output}: written", {"written": args.output}


def _with_open_shapes(args: argparse.Namespace) -> IRModule:
    """Import a model and leave its open sizes open, because nothing is compiled."""
    try:
        return options.load_model(args.model, args.input_shapes)
    except ShapeError as error:
        if error.shapes is None:
            raise
        return options.load_model(args.model, error.shapes)


def _describe_package(args: argparse.Namespace) -> Answer:
    from ..runtime import package

    if args.format != "operators" or args.output:
        raise InputError(
            "a package has machine code in place of operators",
            where=args.model,
            fix="show the model that it was compiled from",
        )
    found = package.describe(args.model)
    return str(found), asdict(found)


def _partition(args: argparse.Namespace) -> Answer:
    """Partition a model for the accelerator and count its cycles."""
    from .. import npu

    options.check_files([args.model], [args.output])
    cut = npu.partition(options.to_integers(options.load_model(args.model, args.input_shapes)))
    found = npu.coverage(cut)
    lines = [str(found)]
    data: dict[str, Any] = {
        "regions": found.regions,
        "operators_share": found.operators_share,
        "macs_share": found.macs_share,
        "operators": [asdict(one) for one in found.operators],
    }
    if found.regions:
        cost = npu.report(cut)
        lines.append(str(cost))
        data["cycles"] = cost.cycles
        data["layers"] = [
            {"name": row.name, "cycles": row.cycles, "moved_bytes": row.moved}
            for row in cost.layers
        ]
    if args.output:
        Path(args.output).write_text(cut.script(show_meta=True), encoding="utf-8")
        lines.append(f"{args.output}: written")
        data["written"] = args.output
    return "\n".join(lines), data
