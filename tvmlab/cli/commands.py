"""The commands: functions whose docstrings are the help texts, and which return their output."""

from __future__ import annotations

import argparse
import inspect
import os
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..errors import InputError
from ..support.wording import table
from . import options
from .options import CODE, JSON, MODEL, PROGRAM, PROGRAMS, RPC, SEED, TARGET, Answer, option

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..runtime.executable import Executable
    from ..runtime.remote import RemoteExecutable
    from ..runtime.timing import Measurement

Command = Callable[[argparse.Namespace], Answer | None]
Options = tuple[Any, ...]  # parsers with one option each, for `parents`

#: The function and the options of each command, in the order of ``tvmlab --help``.
COMMANDS: dict[str, tuple[Command, Options]] = {}


# The layouts of ``--desired-layout``, with the corresponding layouts of the weights.
WEIGHTS = {"NCHW": "OIHW", "NHWC": "OHWI"}
SHOWN = ("operators", "relax", "relay")  # a table, TVMScript, or Relay text in integers
TUNERS = ("xgb", "ga", "random", "gridsearch")


def command(name: str, *arguments: argparse.ArgumentParser) -> Callable[[Command], Command]:
    """Register a command with its options."""

    def declare(run: Command) -> Command:
        COMMANDS[name] = run, arguments
        return run

    return declare


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line, which raises SystemExit for an invalid one."""
    made = argparse.ArgumentParser(
        "tvmlab",
        description="Compile, run and measure machine-learning models with Apache TVM.",
        epilog="The --help of each command ends with an example.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=20),
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"tvmlab {__version__}")
    commands = made.add_subparsers(
        required=True, metavar="COMMAND", title="commands", parser_class=options.Parser
    )
    for name, (run, arguments) in COMMANDS.items():
        about, _, example = inspect.cleandoc(run.__doc__ or "").partition("\n\nexample:\n")
        one = commands.add_parser(
            name,
            parents=[*arguments, options.VERBOSE],
            help=about.partition("\n")[0].rstrip("."),
            description=about,
            epilog=f"example:\n{example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        one.set_defaults(run=run, json=False)
    return made


@command(
    "compile",
    *(*MODEL, TARGET),
    option("-o --output", "FILE", "the package (%(default)s)", default="module.so"),
    option("--tuning-records", "FILE", "the file that `tvmlab tune` wrote"),
    option("--desired-layout", None, "the layout of convolutions", choices=tuple(WEIGHTS)),
    option("--dump-code", "FORMATS", f"write PACKAGE.FORMAT, of {','.join(CODE)}", default=()),
    option("--cross-compiler", "PROGRAM", "the linker, such as aarch64-linux-gnu-g++"),
    option("--cross-compiler-options", "OPTIONS", 'its options, after "=": "-O2 -g"', default=""),
)
def _compile(args: argparse.Namespace) -> Answer:
    """Compile a model to a package.

    The package is one file for `tvmlab run`, for tvmlab.load_executable and for the C++ program. To
    compile for another processor, pass a C++ compiler that links for it as --cross-compiler.

    example:
      tvmlab compile digits_resnet -o digits.so --dump-code relax,asm
      tvmlab compile digits_resnet --target "llvm -mcpu=x86-64-v3 -num-cores=2" -o v3.so
    """
    from tvm import relax

    from .. import compile
    from ..runtime import package
    from ..support.target import split_target

    accelerator, _ = split_target(args.target)
    options.check_files([args.model, args.tuning_records], [args.output])
    package.check_name(Path(args.output))
    mod = options.load_model(args.model, args.input_shapes)
    if layout := args.desired_layout:
        convert = relax.transform.ConvertLayout({"relax.nn.conv2d": [layout, WEIGHTS[layout]]})
        mod = convert(mod)  # inputs and outputs keep their layouts
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


def _code(form: str, mod: IRModule, made: Executable) -> str:
    """Return the text of a model or of its compiled code in one of the formats `CODE`."""
    if form in ("relax", "relay"):
        return _text(form, mod)
    if form == "tir":
        return str(made.tir().script(show_meta=True))
    parts = [part for part in made.vm_executable.mod.imports if part.kind == "llvm"]
    return "\n".join(str(part.inspect_source(form)) for part in parts)


def _text(form: str, mod: IRModule, weights: bool = True) -> str:
    """Return a model as TVMScript, or as Relay text, in which quantized models are in integers."""
    if form == "relax":
        return str(mod.script(show_meta=weights))
    from ..ir.text.printer import astext

    return astext(options.to_integers(mod), show_meta_data=weights)


@command(
    "run",
    *(*PROGRAM, *RPC),
    # tvmc accepts any prefix of an option, and its tutorial uses --output.
    option("-o --outputs --output", "FILE", "write the outputs to this .npz file, by their names"),
    option("--print-top", "N", "print the N greatest values along the first output's last axis"),
    option("--print-time", None, "time the program", action="store_true"),
    option("--rpc-server", "HOST:PORT", "run a package on this server"),
)
def _run(args: argparse.Namespace) -> Answer:
    """Run a package or a model.

    The inputs are arrays from a file, an image (resized and normalized as networks for ImageNet
    need it), or filled by --fill. A model is compiled first for this machine; a server of
    --rpc-tracker or --rpc-server runs packages only.

    example:
      tvmlab compile digits_resnet -o digits.so
      tvmlab run digits.so --fill random --print-top 3 --print-time -o result.npz
    """
    from ..runtime.signature import Output
    from . import arrays

    options.check_files([args.program, args.inputs], [args.outputs])
    with _program(args) as program:
        inputs = arrays.input_arrays(args, program.signature)
        outputs = arrays.name_outputs(program(*inputs), program.signature.outputs)
        time = program.time(*inputs, repeats=args.repeat) if args.print_time else None
    found = [Output(name, array.shape, str(array.dtype)) for name, array in outputs.items()]
    data: dict[str, Any] = {"outputs": [asdict(one) for one in found]}
    lines = [
        f"{one}, from {float(x.min()):.6g} to {float(x.max()):.6g}" if x.size else str(one)
        for one, x in zip(found, outputs.values(), strict=True)
    ]
    if args.outputs:
        arrays.save_arrays(args.outputs, outputs)
        lines = [f"{args.outputs}: {', '.join(outputs)}"]
    if args.print_top and outputs:
        data["top"] = _top(next(iter(outputs.values())), args.print_top)
        rows = [{**one, "value": f"{one['value']:.6g}"}.values() for one in data["top"]]
        lines.append(table(("row", "class", "value", "name"), map(tuple, rows), left=(3,)))
    if time is not None:
        data["seconds"] = _seconds(time)
        lines.append(f"time: {time}")
    return "\n".join(lines), data


def _program(args: argparse.Namespace) -> AbstractContextManager[Executable | RemoteExecutable]:
    """Load a program, or send a package to a server for the duration of a block."""
    if not (args.rpc_tracker or args.rpc_server):
        return nullcontext(options.load_program(args.program, args.input_shapes))
    if not options.is_package(args.program):
        what = "a server runs packages only, and this is a model"
        fix = f"compile it first: tvmlab compile {args.program} -o PACKAGE.so"
        raise InputError(what, where=args.program, fix=fix)
    options.refuse_shapes(args.program, args.input_shapes)
    from ..runtime.remote import RemoteExecutable

    where = {"tracker": args.rpc_tracker, "server": args.rpc_server}
    return RemoteExecutable(args.program, key=args.rpc_key, **where)


def _top(array: Any, count: int) -> list[dict[str, Any]]:
    """List the greatest values of each row, with ImageNet's class names for 1000 values."""
    import numpy as np

    from ..models import imagenet_labels

    rows = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    names = imagenet_labels() if rows.shape[1] == 1000 else [""] * rows.shape[1]
    return [
        {"row": number, "class": int(at), "value": row[at].item(), "name": names[at]}
        for number, row in enumerate(rows)
        for at in np.argsort(-row.astype(np.float64), kind="stable")[:count]
    ]


def _seconds(time: Measurement) -> dict[str, Any]:
    """Convert a time to data for ``--json``."""
    return {"median": time.median, "spread": time.spread, "samples": time.samples}


@command(
    "show",
    *MODEL,
    option("--format", None, "the output format (%(default)s)", choices=SHOWN, default=SHOWN[0]),
    option("-o --output", "FILE", "write the text to this file"),
)
def _show(args: argparse.Namespace) -> Answer:
    """Show a model, or what is in a package.

    Nothing in a package is loaded or run. Sizes that a model leaves open stay open, unless
    --input-shapes fixes them. The screen shows a model without its weights; a file has them too.
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
        mod = options.load_model(args.model, args.input_shapes, keep_open=True)
        text = _text(args.format, mod, bool(args.output)).rstrip("\n")
        data = {"text": text}
    elif options.is_package(args.model):
        from ..runtime import package

        described = package.describe(args.model)
        text, data = str(described), asdict(described)
    else:
        from ..measure.operators import operators

        found = operators(options.load_model(args.model, args.input_shapes, keep_open=True))
        text, data = str(found), {"operators": [asdict(one) for one in found.rows]}
    if args.output:
        Path(args.output).write_text(text + "\n", encoding="utf-8")
        text = f"{args.output}: written"
    return text, data


@command("partition", *MODEL, option("-o --output", "FILE", "write the result as TVMScript"))
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
    shares = {"operators_share": found.operators_share, "macs_share": found.macs_share}
    layers = [{"name": x.name, "cycles": x.cycles, "moved_bytes": x.moved} for x in cost.layers]
    data = {**asdict(found), **shares, "cycles": cost.cycles, "layers": layers}
    return f"{found}\n{cost}", data


@command(
    "tune",
    *(*MODEL, TARGET, SEED, *RPC),
    option("-o --output", "FILE", "append the records to this file", required=True),
    option("--trials", "N", "the most candidates to measure for a task (%(default)s)", default=64),
    option("--total-trials", "N", "the same limit for all tasks together"),
    option("--tuner", None, "search algorithm (%(default)s)", choices=TUNERS, default=TUNERS[0]),
    option("--early-stopping", "N", "end a task after N trials without improvement"),
    option("--again", None, "repeat the comparisons that decided tasks", action="store_true"),
    option("--seconds", "S", "the time limit"),
)
def _tune(args: argparse.Namespace) -> Answer:
    """Search for faster schedules of a model by measuring candidates.

    The results go to a file of records for `tvmlab compile --tuning-records`. If tuning is
    interrupted, the same command continues it.

    example:
      tvmlab tune digits_resnet -o digits.jsonl --total-trials 8 --tuner random
      tvmlab compile digits_resnet --tuning-records digits.jsonl -o digits.so
    """
    from .. import tune

    options.check_files([args.model], [args.output])
    names = ("trials", "total_trials", "tuner", "early_stopping", "seconds", "seed", "again")
    report = tune(
        options.load_model(args.model, args.input_shapes),
        args.target,
        records=args.output,
        tracker=args.rpc_tracker,
        key=args.rpc_key,
        **{name: getattr(args, name) for name in names},
    )
    return repr(report), {"before": report.before, "after": report.after, **asdict(report)}


@command(
    "bench",
    *PROGRAMS,
    option("--peer", "FILE", "an .onnx model that ONNX Runtime runs on the first program's inputs"),
)
def _bench(args: argparse.Namespace) -> Answer:
    """Compare the times of packages and models.

    The samples are interleaved, so that noise hits all programs alike. The programs run on this
    machine; `tvmlab run --print-time` times a package on another one. A call includes the copies of
    its inputs and outputs. All programs get the same inputs and TVM's number of threads. A program
    that is listed twice is measured twice.

    example:
      tvmlab bench digits_resnet
      tvmlab compile digits_resnet --target llvm -o plain.so
      tvmlab bench plain.so digits_resnet --repeat 5 --json
    """
    from ..measure import bench
    from . import arrays

    options.check_files([*args.program, args.inputs, args.peer], [])
    candidates: dict[str, Callable[[], Any]] = {}
    first: list[Any] = []
    for place, name in enumerate(args.program):
        program = options.load_program(name, args.input_shapes)
        inputs = arrays.input_arrays(args, program.signature, fill="random")
        first = first or inputs
        number = args.program[: place + 1].count(name)
        candidates[name if number == 1 else f"{name} ({number})"] = partial(program, *inputs)
    if args.peer:
        candidates["ONNX Runtime"] = partial(bench.OnnxRuntime(args.peer), *first)
    found = bench.compare(candidates, repeats=args.repeat)
    (one, *others) = found.runs.values()
    data = {name: _seconds(time) for name, time in found.runs.items()}
    return str(found if others else one), {"seconds": data}


@command(
    "profile",
    *PROGRAM,
    option("--trace", "FILE", "write a trace for Chrome and Perfetto (.json)"),
    option("--flame", "FILE", "write folded stacks, for flame graphs"),
)
def _profile(args: argparse.Namespace) -> Answer:
    """Measure the time of each function of a program.

    The program runs on this machine; `tvmlab run --print-time` times a whole package on another
    one.

    example:
      tvmlab profile digits_resnet --repeat 5 --trace trace.json --flame calls.folded
    """
    from ..runtime.profiling import profile
    from . import arrays

    options.check_files([args.program, args.inputs], [args.trace, args.flame])
    program = options.load_program(args.program, args.input_shapes)
    inputs = arrays.input_arrays(args, program.signature, fill="random")
    found = profile(program, *inputs, repeats=args.repeat)
    for path, write in ((args.trace, found.trace), (args.flame, found.flame)):
        if path:
            write(path)
    return str(found), found.data()


HOST = option("--host", "HOST", "0.0.0.0 for all (%(default)s)", default="127.0.0.1")


@command("rpc-tracker", HOST, option("--port", "PORT", "0 for any (%(default)s)", default=9190))
def _track(args: argparse.Namespace) -> None:
    """Keep the list of RPC servers.

    TVM's RPC runs everything that it receives, from anybody who can reach the port. Listen only on
    trusted networks.

    example:
      tvmlab rpc-tracker --port 9190
    """
    from ..runtime import tracker

    tracker.track(args.host, args.port)


@command(
    "rpc-server",
    HOST,
    option("--port", "PORT", "0 for any (%(default)s)", default=0),
    option("--key", "KEY", "the kind of this device, one word (%(default)s)", default="tvmlab"),
    option("--tracker", "HOST:PORT", "the tracker; without one, see `tvmlab run --rpc-server`"),
)
def _serve(args: argparse.Namespace) -> None:
    """Measure kernels and run packages for other machines.

    TVM's RPC runs everything that it receives, from anybody who can reach the port. Listen only on
    trusted networks.

    example:
      tvmlab rpc-server --key tvmlab --tracker 127.0.0.1:9190
    """
    if not args.key or " " in args.key:
        raise InputError("a key is one word", where=repr(args.key), fix="pass --key my-laptop")
    # Before NumPy is imported: its library would start threads, which forked sessions lack.
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    from ..runtime.tracker import parse_address, serve

    tracker = None if args.tracker is None else parse_address(args.tracker)
    serve(args.host, args.port, args.key, tracker)


@command("completion", JSON, option("shell", "SHELL", "bash or zsh", choices=("bash", "zsh")))
def completion(args: argparse.Namespace) -> Answer:
    """Print a shell script that completes command lines.

    In ~/.bashrc or ~/.zshrc:  eval "$(tvmlab completion bash)"

    example:
      tvmlab completion bash > tvmlab.bash
      tvmlab completion zsh > _tvmlab
    """
    import shtab

    for _, arguments in COMMANDS.values():
        for action in [action for one in arguments for action in one._actions]:
            if action.metavar in ("FILE", "MODEL", "PROGRAM"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    text = shtab.complete(parser(), args.shell)
    return text, {"shell": args.shell, "text": text}
