"""``tvmlab compile``: a model file to a package."""

from __future__ import annotations

import argparse
import warnings
from typing import TYPE_CHECKING, Any

from . import arguments
from .answer import Answer
from .outputs import expect_outputs
from .stage import stage

if TYPE_CHECKING:
    from pathlib import Path

    from tvm.ir import IRModule
    from tvm.target import Target

    from ..executable import Executable

__all__ = ["add"]

SOURCE = ("relax", "relay")
CODE = (*SOURCE, "tir", "ll", "asm")
"""What ``--dump-code`` writes: the imported model, its scheduled loops, and what LLVM made of them.

These are tvmc's formats, and ``relax``, which tvmc did not have.
"""

ABOUT = """Compile a model to a package.

The package is one file for `tvmlab run`, for tvmlab.load_executable and for the C++ program. Code
for another processor needs a compiler that links for it: --cross-compiler."""
EXAMPLE = """tvmlab compile digits_resnet -o digits.tar --dump-code relax,asm
tvmlab compile digits_resnet --target "llvm -mcpu=x86-64-v3 -num-cores=2" -o v3.tar"""


def add(commands: arguments.Commands) -> None:
    """Add the command."""
    parser = arguments.command(commands, "compile", run, ABOUT, EXAMPLE)
    arguments.add_model(parser)
    arguments.add_target(parser)
    parser.add_argument(
        "-o",
        "--output",
        default="module.tar",
        metavar="FILE",
        help="the package (%(default)s)",
    )
    parser.add_argument(
        "--tuning-records",
        metavar="FILE",
        help="what `tvmlab tune` wrote",
    )
    parser.add_argument(
        "--desired-layout",
        choices=("NCHW", "NHWC"),
        help="convert convolutions first; the schedules for a CPU choose theirs in any case",
    )
    parser.add_argument(
        "--dump-code",
        type=_formats,
        default=(),
        metavar="FORMATS",
        help=f"write FILE.FORMAT beside the package, for each of {','.join(CODE)} that is named",
    )
    parser.add_argument(
        "--cross-compiler", metavar="PROGRAM", help="that links, such as aarch64-linux-gnu-g++"
    )
    parser.add_argument(
        "--cross-compiler-options",
        default="",
        metavar="OPTIONS",
        help='for it, after "=" and in quotes: --cross-compiler-options="-O2 -g"',
    )


def _formats(text: str) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for one in named:
        if one not in CODE:
            raise argparse.ArgumentTypeError(f"no format {one!r}; there are {', '.join(CODE)}")
    return named


def run(told: argparse.Namespace) -> Answer:
    """Compile."""
    from .. import compile
    from .._process import find_tool
    from ..library import runtimes
    from ..target import as_target, split_target

    accelerator, rest = split_target(told.target)
    made_for = as_target(rest)  # what is wrong with it is said before the model is imported
    if made_for.kind.name != "llvm":
        _expect_device(made_for)
    if told.cross_compiler:
        find_tool(told.cross_compiler)
    dumped = [f"{told.output}.{form}" for form in told.dump_code]
    expect_outputs([told.output, *dumped], [told.model, told.tuning_records])
    mod = arguments.model(told)
    if told.desired_layout:
        mod = _in_layout(mod, told.desired_layout)
    if accelerator:
        mod = arguments.integers(mod)
    # What cannot be printed is said before the long work, and nothing is written where one fails.
    texts = {form: _source(form, mod) for form in told.dump_code if form in SOURCE}
    with stage(f"compile {told.model}"):
        made = compile(mod, told.target, records=told.tuning_records)
    if accelerator and not runtimes(made.vm_executable):
        warnings.warn(
            f"{accelerator} takes nothing of it: `tvmlab partition` says why", stacklevel=2
        )
    texts |= {form: _code(form, made) for form in told.dump_code if form not in SOURCE}
    with stage(f"write {told.output}"):
        saved = made.save(
            told.output,
            cross_compiler=told.cross_compiler,
            cross_compiler_options=told.cross_compiler_options,
        )
    for form, path in zip(told.dump_code, dumped, strict=True):
        arguments.write(path, texts[form])
    return _answer(saved, made, dumped)


def _expect_device(target: Target) -> None:
    """Refuse a kind of device that there is no code for; say what others get."""
    import tvm

    from ..compiler import upstream

    kind = target.kind.name
    upstream(target)
    runs = tvm.get_global_func(f"device_api.{kind}", allow_missing=True)
    warnings.warn(
        f"tvmlab's rules are for CPUs: for {kind} the loops are scheduled by TVM itself"
        + (
            f"; this TVM runs nothing on {kind}, so the package is for another"
            if runs is None
            else ""
        ),
        stacklevel=3,
    )


def _in_layout(mod: IRModule, layout: str) -> IRModule:
    """Convert convolutions by TVM's own pass; inputs and outputs stay as they are."""
    from tvm import relax

    weights = {"NCHW": "OIHW", "NHWC": "OHWI"}[layout]
    return relax.transform.ConvertLayout({"relax.nn.conv2d": [layout, weights]})(mod)


def _source(form: str, mod: IRModule) -> str:
    """Print the imported model in a form."""
    if form == "relax":
        return str(mod.script(show_meta=True))
    from ..relay.printer import astext

    # Relay had a quantized model in integers from its import on.
    return astext(arguments.integers(mod))


def _code(form: str, made: Executable) -> str:
    """Print what was compiled in a form."""
    from ..errors import InputError

    if form == "tir":
        return str(made.tir().script(show_meta=True))
    parts = [part for part in made.vm_executable.mod.imports if part.kind == "llvm"]
    if not parts:
        raise InputError(
            f"LLVM made nothing of a module for {made.target.kind.name}",
            where=f"--dump-code {form}",
            fix="leave it out",
        )
    return "\n".join(str(part.inspect_source(form)) for part in parts)


def _answer(path: Path, made: Executable, written: list[str]) -> Answer:
    import json
    from collections import Counter
    from dataclasses import asdict

    kernels = made.summary().kernels
    rules = Counter(kernel.rule or "no rule" for kernel in kernels)
    size = path.stat().st_size
    by = ", ".join(f"{rule} {count}" for rule, count in rules.most_common())
    lines = [
        f"{path}: {size / 1e6:.1f} MB, {made!r}",
        f"{len(kernels)} functions, by the rules that scheduled them: {by}"
        if made.target.kind.name == "llvm"
        else "functions: scheduled by TVM itself",
        *(f"{name}: written" for name in written),
    ]
    data: dict[str, Any] = {
        "output": str(path),
        "bytes": size,
        "target": json.loads(str(made.target)),
        "inputs": [asdict(value) for value in made.signature.inputs],
        "outputs": [asdict(value) for value in made.signature.outputs],
        "functions": [asdict(kernel) for kernel in kernels],
        "written": written,
    }
    return Answer("\n".join(lines), data)
