"""Helpers that the commands share: declaring options, common options, and loading models."""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError, ShapeError

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..runtime.executable import Executable

#: The output of a command: text for people, and data for ``--json``.
Answer = tuple[str, dict[str, Any]]

#: The value of ``--input-shapes``: sizes, or names of sizes, for each input.
Shapes = dict[str, tuple[int | str, ...]]

#: Networks of the workbook, by the names of their functions in `tvmlab.models`.
NETWORKS = ("digits_resnet", "mobilenet_v2", "resnet18_v2", "resnet50_v2", "resnet8")

#: The formats of ``--dump-code``: tvmc's formats, and ``relax``.
CODE = ("relax", "relay", "tir", "ll", "asm")

# The name of an input can contain spaces and colons; it ends at the last colon before a bracket.
_SHAPE = re.compile(r"([^\s,\[\]][^,\[\]]*?)\s*:\s*\[([^\[\]]*)\]")


class Parser(argparse.ArgumentParser):
    """The parser of one command; for an unknown option it suggests a similar one."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the words of a command, and reject unknown words."""
        found, left = super().parse_known_args(args, namespace)
        if left:
            wrong = next((word.partition("=")[0] for word in left if word.startswith("-")), left[0])
            near = difflib.get_close_matches(wrong, self._option_string_actions, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            if re.match("-[a-z]{2}", wrong) and "--target" in self._option_string_actions:
                hint = '; quote a target that has spaces: --target "llvm -mcpu=x86-64-v3"'
            self.error(f"unrecognized argument {wrong}{hint}")
        return found, left


def _whole_number(text: str) -> int:
    """Parse a whole number from 1 on."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")


def _shapes(text: str) -> Shapes:
    """Parse ``"data:[1,3,224,224] mask:[n,77]"``."""
    found = _SHAPE.findall(text)
    if not found or _SHAPE.sub("", text).strip(" ,"):
        raise argparse.ArgumentTypeError(f"cannot read {text!r}; write NAME:[1,3,224,224]")
    split = {name: sizes.replace(",", " ").split() for name, sizes in found}
    return {
        name: tuple(int(size) if size.lstrip("-").isdecimal() else size for size in sizes)
        for name, sizes in split.items()
    }


def _formats(text: str) -> tuple[str, ...]:
    """Parse the value of ``--dump-code``."""
    formats = tuple(text.replace(" ", "").split(","))
    if not set(formats) <= set(CODE):
        raise argparse.ArgumentTypeError(f"{text!r}; the formats are {', '.join(CODE)}")
    return formats


_TYPES: dict[str | None, Callable[[str], Any]] = {
    **{"N": _whole_number, "S": float, "SEED": int, "PORT": int},
    **{"SHAPES": _shapes, "FORMATS": _formats},
}


def option(flags: str, metavar: str | None, about: str, **more: Any) -> argparse.ArgumentParser:
    """Declare an option or an argument, as a parent of the parsers of the commands that have it.

    `flags` are separated by spaces; `metavar` names the value, and determines its type.
    """
    if metavar:
        more |= {"metavar": metavar, "type": _TYPES.get(metavar, str)}
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(*flags.split(), help=about, **more)
    return parser


VERBOSE: Any = option("-v --verbose", None, "print the traceback of an error", action="store_true")
JSON = option("--json", None, "print the answer as JSON", action="store_true")
_NAMES = ", ".join(NETWORKS)
_MODEL = f"a file (ONNX, TensorFlow Lite, Relay text), or a network of the workbook: {_NAMES}"
_PROGRAM = "a package, which is code: load only what you trust; or a model, which is compiled first"
_OPEN = '"data:[1,3,224,224] mask:[n,77]" for open inputs; a name is a size known at run time only'
_SHAPES = option("--input-shapes", "SHAPES", _OPEN)
_TARGET = '"llvm -mcpu=x86-64-v3 -num-cores=4", JSON, or "npu, llvm" (default: this machine)'
TARGET = option("--target", "TARGET", _TARGET)
_FILL = "for inputs missing in FILE; by default an error in `run`, random in other commands"
INPUTS = (
    option("-i --inputs", "FILE", ".npz with arrays by input name; .npy or image for the first"),
    option("--fill --fill-mode", None, _FILL, choices=("random", "zeros", "ones")),
    SEED := option("--seed", "SEED", "the seed of random inputs (%(default)s)", default=0),
)
_REPEAT = option("--repeat", "N", "samples to take (%(default)s)", default=10)
# A model; a program with its inputs; or several programs.
MODEL = (option("model", "MODEL", _MODEL), _SHAPES, JSON)
PROGRAM = (option("program", "PROGRAM", _PROGRAM), _SHAPES, *INPUTS, _REPEAT, JSON)
PROGRAMS = (option("program", "PROGRAM", _PROGRAM, nargs="+"), *PROGRAM[1:])
RPC = (
    option("--rpc-tracker", "HOST:PORT", "use servers of this tracker"),
    option("--rpc-key", "KEY", "the servers' key (%(default)s)", default="tvmlab"),
)


def check_files(reads: Iterable[str | None], writes: Iterable[str | None]) -> None:
    """Reject a missing input, an output that replaces an input, and a missing output folder."""
    inputs = [path for path in reads if path and not _is_network(path)]
    for path in inputs:
        if not os.path.exists(path):
            fix = f"check the path; the networks of the workbook are {', '.join(NETWORKS)}"
            raise InputError("there is no such file", where=path, fix=fix)
    for path in filter(None, writes):
        if os.path.exists(path) and any(os.path.samefile(path, other) for other in inputs):
            what, fix = "the output would replace an input", "write to another file"
            raise InputError(what, where=path, fix=fix)
        if not os.path.isdir(os.path.dirname(path) or os.curdir):
            what, fix = "there is no folder for the output", "create the folder first"
            raise InputError(what, where=path, fix=fix)


def _is_network(name: str) -> bool:
    """Return whether a name is that of a network; a file of the same name takes precedence."""
    return name in NETWORKS and not os.path.exists(name)


def is_package(name: str) -> bool:
    """Return whether a name is that of a package (including archives of earlier versions)."""
    return name.endswith((".so", ".tar"))


def load_model(name: str, shapes: Shapes | None = None, *, keep_open: bool = False) -> IRModule:
    """Import a model; keep its open sizes, or explain how to write ``--input-shapes`` for them."""
    from .. import load, models
    from ..models.resnet8 import resnet8_tflite

    model: Any = name
    if _is_network(name):
        model = resnet8_tflite() if name == "resnet8" else getattr(models, name)()
    try:
        return load(model, shapes=shapes)
    except ShapeError as error:
        if error.shapes is not None and keep_open:
            return load(model, shapes=error.shapes)
        if error.shapes is not None:
            named = (f"{key}:[{','.join(map(str, dims))}]" for key, dims in error.shapes.items())
            written = f'pass --input-shapes "{" ".join(named)}"'
            error.fix = f"{written}, with a number in place of each name whose size you know"
        raise


def load_program(name: str, shapes: Shapes | None) -> Executable:
    """Load a package, or import and compile a model for this machine."""
    from .. import compile, load_executable

    if not is_package(name):
        return compile(load_model(name, shapes))
    refuse_shapes(name, shapes)
    return load_executable(name)


def refuse_shapes(package: str, shapes: Shapes | None) -> None:
    """Reject ``--input-shapes`` for a package."""
    if shapes:
        what = "a package has the input shapes that it was compiled for"
        raise InputError(what, where=package, fix="leave --input-shapes out")


def to_integers(mod: IRModule) -> IRModule:
    """Convert a quantized model's floating-point operators to integer operators."""
    from ..qnn.transform import FakeQuantizationToInteger

    return FakeQuantizationToInteger()(mod)  # type: ignore[operator]
