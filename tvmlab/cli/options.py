"""What the commands share: the form of a command, common options, and loading models."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError, ShapeError

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..runtime.executable import Executable
    from ..runtime.timing import Measurement

    Commands = argparse._SubParsersAction[Any]

#: What a command prints: text for people, and the data for ``--json``.
Answer = tuple[str, dict[str, Any]]

#: What ``--input-shapes`` gives: sizes, or names of sizes, for each input.
Shapes = dict[str, tuple[int | str, ...]]

#: Networks of the workbook, by the names of their functions in `tvmlab.models`.
NETWORKS = ("digits_resnet", "mobilenet_v2", "resnet18_v2", "resnet50_v2", "resnet8")

#: The default key of RPC servers.
KEY = "tvmlab"

# The name of an input can contain spaces and colons; the bracket after the last colon ends it.
_SHAPE = re.compile(r"([^\s,\[\]][^,\[\]]*?)\s*:\s*\[([^\[\]]*)\]")


class Parser(argparse.ArgumentParser):
    """The parser of one command; for an unknown option it suggests a similar one."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words of a command, and refuse words that are left over."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            import difflib

            wrong = next((word.partition("=")[0] for word in left if word.startswith("-")), left[0])
            known = self._option_string_actions
            hint = "".join(
                f"; did you mean {x}?" for x in difflib.get_close_matches(wrong, known, 1)
            )
            if re.match("-[a-z]{2}", wrong) and "--target" in known:
                hint = '; quote a target that has spaces: --target "llvm -mcpu=x86-64-v3"'
            self.error(f"unrecognized argument {wrong}{hint}")
        return found, left


def shared(*flags: str, **settings: Any) -> argparse.ArgumentParser:
    """Declare an argument once for the commands that have it, which take it by ``parents``."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(*flags, **settings)
    return parser


def whole_number(text: str) -> int:
    """Read a whole number from 1 on."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")


def _shapes(text: str) -> Shapes:
    """Read ``"data:[1,3,224,224] mask:[n,77]"``."""
    found = _SHAPE.findall(text)
    if not found or _SHAPE.sub("", text).strip(" ,"):
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write NAME:[1,3,224,224]")
    split = {name: sizes.replace(",", " ").split() for name, sizes in found}
    return {
        name: tuple(int(size) if size.lstrip("-").isdecimal() else size for size in sizes)
        for name, sizes in split.items()
    }


VERBOSE = shared("-v", "--verbose", action="store_true", help="print the traceback of an error")
JSON = shared("--json", action="store_true", help="print the answer as JSON")
MODEL = shared(
    "model",
    metavar="MODEL",
    help="a file (ONNX, TensorFlow Lite, Relay text), or a network of the workbook: "
    + ", ".join(NETWORKS),
)
_PROGRAM = (
    "a package that `tvmlab compile` wrote, or a model, which is compiled first; a package is "
    "code, so load only what you trust"
)
PROGRAM = shared("program", metavar="PROGRAM", help=_PROGRAM)
PROGRAMS = shared("program", metavar="PROGRAM", nargs="+", help=_PROGRAM)
SHAPES = shared(
    "--input-shapes",
    type=_shapes,
    metavar="SHAPES",
    help='of inputs that the model leaves open: "data:[1,3,224,224] mask:[n,77]", where a name is '
    "a size that is only known at run time",
)
TARGET = shared(
    "--target",
    metavar="TARGET",
    help='such as "llvm -mcpu=x86-64-v3 -num-cores=4", JSON, or "npu, llvm" for the accelerator '
    "and a CPU (default: this machine)",
)
REPEAT = shared(
    "--repeat", type=whole_number, default=10, metavar="N", help="samples to take (%(default)s)"
)
SEED = shared("--seed", type=int, default=0, metavar="N", help="of random numbers (%(default)s)")
RPC = (
    shared("--rpc-tracker", metavar="HOST:PORT", help="use servers of this tracker"),
    shared("--rpc-key", default=KEY, metavar="KEY", help="the servers' key (%(default)s)"),
)


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], Answer | None],
    *arguments: argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """Add a command; the docstring of its function is its help, and ends with an example."""
    about, _, example = inspect.cleandoc(run.__doc__ or "").partition("\n\nexample:\n")
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        parents=[*arguments, VERBOSE],
        help=about.partition("\n")[0].rstrip("."),
        description=about,
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run, json=False)
    return parser


def check_files(reads: Iterable[str | None], writes: Iterable[str | None]) -> None:
    """Refuse a missing input, an output that replaces an input, and a missing output folder."""
    inputs = [path for path in reads if path and not _is_network(path)]
    for path in inputs:
        if not os.path.exists(path):
            raise InputError(
                "there is no such file",
                where=path,
                fix=f"check the path; the networks of the workbook are {', '.join(NETWORKS)}",
            )
    for path in filter(None, writes):
        if os.path.exists(path) and any(os.path.samefile(path, other) for other in inputs):
            raise InputError(
                "the output would replace an input", where=path, fix="write to another file"
            )
        if not os.path.isdir(os.path.dirname(path) or os.curdir):
            raise InputError(
                "there is no folder for the output", where=path, fix="make the folder first"
            )


def _is_network(name: str) -> bool:
    """Return whether a name is that of a network; a file of the same name takes precedence."""
    return name in NETWORKS and not os.path.exists(name)


def is_package(name: str) -> bool:
    """Return whether a name is that of a package (today's, or an archive of earlier versions)."""
    return name.endswith((".so", ".tar"))


def load_model(name: str, shapes: Shapes | None = None) -> IRModule:
    """Import a model; the error for open shapes says how to write ``--input-shapes``."""
    from .. import load, models
    from ..models.resnet8 import resnet8_tflite

    model: Any = name
    if _is_network(name):
        model = resnet8_tflite() if name == "resnet8" else getattr(models, name)()
    try:
        return load(model, shapes=shapes)
    except ShapeError as error:
        if error.shapes is not None:
            named = (f"{key}:[{','.join(map(str, dims))}]" for key, dims in error.shapes.items())
            error.fix = (
                f'pass --input-shapes "{" ".join(named)}", with a number in place of each name '
                "whose size you know"
            )
        raise


def load_program(name: str, shapes: Shapes | None) -> Executable:
    """Load a package, or import and compile a model for this machine."""
    from .. import compile, load_executable

    if not is_package(name):
        return compile(load_model(name, shapes))
    refuse_shapes(name, shapes)
    return load_executable(name)


def refuse_shapes(package: str, shapes: Shapes | None) -> None:
    """Refuse ``--input-shapes`` for a package."""
    if shapes:
        raise InputError(
            "a package has the input shapes that it was compiled for",
            where=package,
            fix="leave --input-shapes out",
        )


def seconds(time: Measurement) -> dict[str, Any]:
    """Return a time as data for ``--json``."""
    return {"median": time.median, "spread": time.spread, "samples": time.samples}


def to_integers(mod: IRModule) -> IRModule:
    """Turn a quantized model's floating-point operators into integer ones."""
    from ..qnn.transform import FakeQuantizationToInteger

    return FakeQuantizationToInteger()(mod)  # type: ignore[operator]
