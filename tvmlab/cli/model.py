"""``tvmlab compile``, ``run``, ``show`` and ``partition``: commands about one model."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, ShapeError
from ..ir.values import Output
from ..support.wording import table
from . import arrays, options
from .options import JSON, MODEL, SHAPES, Answer, add_command

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..runtime.executable import Executable
    from ..runtime.remote import RemoteExecutable

__all__ = ["add"]

#: The formats of ``--dump-code``, which are tvmc's and ``relax``.
CODE = ("relax", "relay", "tir", "ll", "asm")


def add(commands: options.Commands) -> None:
    """Add the four commands."""
    _add_compile(commands)
    _add_run(commands)
    add = add_command(commands, "show", _show, MODEL, SHAPES, JSON).add_argument
    add(
        "--format",
        choices=("operators", "relax", "relay"),
        default="operators",
        help="a table of operators (the default), Relax, or Relay text, which has a quantized "
        "model in integers",
    )
    add("-o", "--output", metavar="FILE", help="write the text to this file")
    add = add_command(commands, "partition", _partition, MODEL, SHAPES, JSON).add_argument
    add("-o", "--output", metavar="FILE", help="write the result as TVMScript")


def _add_compile(commands: options.Commands) -> None:
    common = (MODEL, SHAPES, options.TARGET, JSON)
    add = add_command(commands, "compile", _compile, *common).add_argument
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
    formats = tuple(text.replace(" ", "").split(","))
    if not set(formats) <= set(CODE):
        raise argparse.ArgumentTypeError(f"{text!r}; the formats are {', '.join(CODE)}")
    return formats


def _compile(args: argparse.Namespace) -> Answer:
    """Compile a model to a package.

    The package is one file for `tvmlab run`, for tvmlab.load_executable and for the C++ program. To
    compile for another processor, name a compiler that links for it with --cross-compiler.

    example:
      tvmlab compile digits_resnet -o digits.so --dump-code relax,asm
      tvmlab compile digits_resnet --target "llvm -mcpu=x86-64-v3 -num-cores=2" -o v3.so
    """
    from collections import Counter

    from .. import compile
    from ..runtime import package
    from ..support.target import split_target

    accelerator, _ = split_target(args.target)
    options.check_files([args.model, args.tuning_records], [args.output])
    package.check_name(Path(args.output))
    mod = options.load_model(args.model, args.input_shapes)
    if args.desired_layout:
        mod = _in_layout(mod, args.desired_layout)
    if accelerator:
        mod = options.to_integers(mod)
    made = compile(mod, args.target, records=args.tuning_records)
    made.save(
        args.output,
        cross_compiler=args.cross_compiler,
        cross_compiler_options=args.cross_compiler_options,
    )
    found = package.describe(args.output)
    for form in args.dump_code:
        Path(f"{args.output}.{form}").write_text(_code(form, mod, made), encoding="utf-8")
    kernels = made.summary().kernels
    rules = Counter(kernel.rule or "no rule" for kernel in kernels)
    by = ", ".join(f"{rule} {count}" for rule, count in rules.most_common())
    lines = [
        f"{args.output}: {found.bytes / 1e6:.1f} MB, {made!r}",
        f"{len(kernels)} functions, by the rules that scheduled them: {by}",
    ]
    if accelerator and not found.runtimes:
        lines.append(f"{accelerator} computes no part; `tvmlab partition` lists the reasons")
    functions = [asdict(kernel) for kernel in kernels]
    return "\n".join(lines), {"output": args.output, **asdict(found), "functions": functions}


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


def _add_run(commands: options.Commands) -> None:
    common = (options.PROGRAM, SHAPES, *arrays.INPUTS, options.REPEAT, *options.RPC, JSON)
    add = add_command(commands, "run", _run, *common).add_argument
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
    add("--rpc-server", metavar="HOST:PORT", help="run a package on this server")


def _run(args: argparse.Namespace) -> Answer:
    """Run a package or a model.

    The inputs are arrays from a file, a picture (resized and normalized as networks for ImageNet
    need it), or filled by --fill. A model is compiled first for this machine; a server of
    --rpc-tracker or --rpc-server runs packages only.

    example:
      tvmlab compile digits_resnet -o digits.so
      tvmlab run digits.so --fill random --print-top 3 --print-time -o result.npz
    """
    options.check_files([args.program, args.inputs], [args.outputs])
    with _program(args) as program:
        inputs = arrays.input_arrays(args, program.signature)
        outputs = arrays.name_outputs(program(*inputs), program.signature.outputs)
        time = program.time(*inputs, repeats=args.repeat) if args.print_time else None
    found = [Output(name, array.shape, str(array.dtype)) for name, array in outputs.items()]
    lines = [f"{one}{_range(outputs[one.name])}" for one in found]
    data: dict[str, Any] = {"outputs": [asdict(one) for one in found]}
    if args.outputs:
        arrays.save_arrays(args.outputs, outputs)
        lines = [f"{args.outputs}: {', '.join(outputs)}"]
    if args.print_top and outputs:
        data["top"] = _top(next(iter(outputs.values())), args.print_top)
        rows = [
            (one["row"], one["class"], f"{one['value']:.6g}", one["name"]) for one in data["top"]
        ]
        lines.append(table(("row", "class", "value", "name"), rows, left=(3,)))
    if time is not None:
        data["seconds"] = options.seconds(time)
        lines.append(f"time: {time}")
    return "\n".join(lines), data


def _program(args: argparse.Namespace) -> AbstractContextManager[Executable | RemoteExecutable]:
    """Load a program, or send a package to a server for the length of a block."""
    if not (args.rpc_tracker or args.rpc_server):
        return nullcontext(options.load_program(args.program, args.input_shapes))
    if not options.is_package(args.program):
        raise InputError(
            "a server runs packages only, and this is a model",
            where=args.program,
            fix=f"compile it first: tvmlab compile {args.program} -o PACKAGE.so",
        )
    options.refuse_shapes(args.program, args.input_shapes)
    from ..runtime.remote import RemoteExecutable

    where = {"tracker": args.rpc_tracker, "server": args.rpc_server}
    return RemoteExecutable(args.program, key=args.rpc_key, **where)


def _range(array: Any) -> str:
    """Return the least and the greatest value in words; an empty array has none."""
    return f", from {float(array.min()):.6g} to {float(array.max()):.6g}" if array.size else ""


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
    """Show a model, or what is in a package.

    Nothing in a package is loaded or run. Sizes that a model leaves open stay open, unless
    --input-shapes fixes them. The screen shows a model without its weights; a file gets all of it.
    tvmlab reads Relay text as a model again; Relax is TVMScript, which tvm.script.from_source
    reads.

    example:
      tvmlab show digits_resnet
      tvmlab show digits_resnet --format relay -o digits.relay
      tvmlab show digits.relay
    """
    options.check_files([args.model], [args.output])
    data: dict[str, Any]
    if args.format != "operators":
        mod, whole = _with_open_shapes(args), bool(args.output)
        text = _relay(mod, whole) if args.format == "relay" else mod.script(show_meta=whole)
        text = text.rstrip("\n")
        data = {"text": text}
    elif options.is_package(args.model):
        from ..runtime import package

        described = package.describe(args.model)
        text, data = str(described), asdict(described)
    else:
        from ..measure.operators import operators

        found = operators(_with_open_shapes(args))
        text, data = str(found), {"operators": [asdict(one) for one in found.rows]}
    if args.output:
        Path(args.output).write_text(text + "\n", encoding="utf-8")
        text = f"{args.output}: written"
    return text, data


def _with_open_shapes(args: argparse.Namespace) -> IRModule:
    """Import a model and leave its open sizes open, because nothing is compiled."""
    try:
        return options.load_model(args.model, args.input_shapes)
    except ShapeError as error:
        if error.shapes is None:
            raise
        return options.load_model(args.model, error.shapes)


def _partition(args: argparse.Namespace) -> Answer:
    """Partition a quantized model for the accelerator of the workbook.

    The answer lists what the accelerator computes, why it does not compute the rest, and the cycles
    that its part takes. To compile such a model: `tvmlab compile --target "npu, llvm"`.

    example:
      tvmlab partition resnet8 -o resnet8.relax
      tvmlab compile resnet8 --target "npu, llvm" -o resnet8.so
    """
    from .. import npu

    options.check_files([args.model], [args.output])
    cut = npu.partition(options.to_integers(options.load_model(args.model, args.input_shapes)))
    found, cost = npu.coverage(cut), npu.report(cut)
    if args.output:
        Path(args.output).write_text(cut.script(show_meta=True), encoding="utf-8")
    data = {
        "regions": found.regions,
        "operators_share": found.operators_share,
        "macs_share": found.macs_share,
        "operators": [asdict(one) for one in found.operators],
        "cycles": cost.cycles,
        "layers": [
            {"name": row.name, "cycles": row.cycles, "moved_bytes": row.moved}
            for row in cost.layers
        ],
    }
    return f"{found}\n{cost}", data
