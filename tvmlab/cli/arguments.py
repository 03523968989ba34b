"""What commands have in common: their form, and arguments that mean the same everywhere."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .answer import Answer
from .stage import stage

if TYPE_CHECKING:
    from tvm.ir import IRModule

    from ..executable import Executable

__all__ = [
    "Commands",
    "add_model",
    "add_program",
    "add_target",
    "add_timing",
    "command",
    "counted",
    "expect_use",
    "integers",
    "model",
    "program",
    "shapes",
    "write",
]

NETWORKS = ("digits_resnet", "mobilenet_v2", "resnet18_v2", "resnet50_v2", "resnet8")
"""Networks of the workbook, by the names of their functions in `tvmlab.models`."""

REPEATS = 10
"""Samples that are taken where nobody says how many."""

KEY = "tvmlab"
"""An RPC server's key where nobody says which."""

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

# A name may have spaces inside: what ends it is the bracket after its colon.
_SHAPE = re.compile(r"\s*,?\s*(?P<name>[^\s\[\],][^\[\],]*?)\s*:\s*\[(?P<sizes>[^\[\]]*)\]\s*")


def command(
    commands: Commands,
    name: str,
    run: Callable[[Any], Answer | None],
    about: str,
    example: str,
    *,
    answers: bool = True,
) -> argparse.ArgumentParser:
    """Add a command.

    Parameters
    ----------
    commands : argparse's sub-parsers
        Of the program.
    name : str
        The command's.
    run : callable
        Gets what was told, an `argparse.Namespace`; gives the `Answer`, or None for none.
    about : str
        What it does, the first line short.
    example : str
        Command lines that work as they stand, in an empty folder.
    answers : bool
        Whether it ends with an answer, which ``--json`` prints as JSON.

    Returns
    -------
    argparse.ArgumentParser
        For its arguments; ``--json``, where there are answers, and ``--verbose`` are there.
    """
    lines = "\n".join(f"  {line}" for line in example.splitlines())
    made = commands.add_parser(
        name,
        help=about.partition("\n")[0].rstrip("."),
        description=about,
        epilog=f"example:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if answers:
        made.add_argument("--json", action="store_true", help="print the answer as JSON")
    made.add_argument(
        "-v", "--verbose", action="store_true", help="where something fails, print all there is"
    )
    made.set_defaults(run=run, json=False)
    return made


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the argument ``MODEL`` and its ``--input-shapes``; `model` reads them."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a file (ONNX, TensorFlow Lite, Relay text), or a network of the workbook: "
        + ", ".join(NETWORKS),
    )
    _add_shapes(parser)


def _add_shapes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input-shapes",
        type=shapes,
        metavar="SHAPES",
        help='of inputs that the model leaves open: "data:[1,3,224,224] mask:[n,77]", where a '
        "name is a size known when it runs",
    )


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add ``--target``."""
    parser.add_argument(
        "--target",
        metavar="TARGET",
        help='what for, as "llvm -mcpu=x86-64-v3 -num-cores=4", as JSON, or "npu, llvm" for the '
        "accelerator and a CPU; this machine if left out",
    )


def add_program(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    """Add the argument ``PROGRAM`` and ``--input-shapes`` for a model; `program` reads them."""
    parser.add_argument(
        "program",
        metavar="PROGRAM",
        nargs=nargs,
        help="a package that `tvmlab compile` wrote, or a model, which is compiled first; "
        "a package is code, so load only what you trust",
    )
    _add_shapes(parser)


def add_timing(parser: argparse.ArgumentParser, default: int | None = REPEATS) -> None:
    """Add ``--repeat``: how many samples are taken; None is for commands that may take none."""
    parser.add_argument(
        "--repeat",
        type=counted,
        default=default,
        metavar="N",
        help=f"samples to take ({REPEATS})",
    )


def expect_use(option: str, said: object, used: object, needs: str) -> None:
    """Refuse an option that would change nothing.

    Parameters
    ----------
    option : str
        Its name.
    said : object
        What was told; None where it was left out.
    used : object
        Whether it changes something.
    needs : str
        What it needs for that.

    Raises
    ------
    InputError
        It was told, and changes nothing.
    """
    if said is not None and not used:
        raise InputError(
            f"{option} says nothing without {needs}",
            where=f"{option} {said}",
            fix=f"give {needs}, or leave {option} out",
        )


def counted(text: str) -> int:
    """Read a number from 1 on."""
    if text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")


def shapes(text: str) -> dict[str, tuple[int | str, ...]]:
    """Read tvmc's way to write shapes.

    Parameters
    ----------
    text : str
        ``"data:[1,3,224,224] mask:[n,77]"``.

    Returns
    -------
    dict of str to tuple
        What `tvmlab.load` takes.

    Raises
    ------
    argparse.ArgumentTypeError
        It is written otherwise, or names an input twice.
    """
    found: dict[str, tuple[int | str, ...]] = {}
    place = 0
    while place < len(text) or not found:
        one = _SHAPE.match(text, place)
        if one is None or one["name"] in found:
            raise argparse.ArgumentTypeError(
                f"cannot read {text[place:]!r}; write NAME:[1,3,224,224], each name once"
            )
        sizes = [size.strip() for size in one["sizes"].split(",")] if one["sizes"].strip() else []
        if unknown := [size for size in sizes if size.startswith("-") or size in ("?", "None")]:
            raise argparse.ArgumentTypeError(
                f"{unknown[0]} is no size; where it is known only when the model runs, name it: "
                f"{one['name']}:[{','.join('n' if size in unknown else size for size in sizes)}]"
            )
        found[one["name"]] = tuple(
            int(size) if re.fullmatch(r"-?[0-9]{1,18}", size) else size for size in sizes
        )
        place = one.end()
    return found


def model(told: argparse.Namespace) -> IRModule:
    """Import the model that was told."""
    return _load(told.model, told.input_shapes)


def _load(name: str, shapes: dict[str, tuple[int | str, ...]] | None) -> IRModule:
    from .. import load, models

    if name.lower().endswith((".npy", ".npz")):
        raise InputError(
            "this holds arrays, not a model",
            where=name,
            fix="arrays are what a model is run on: `tvmlab run MODEL -i FILE`; numpy.load reads "
            "them in Python",
        )
    with stage(f"import {name}"):
        if not is_network(name):
            _expect_model(name)
            return load(name, shapes=shapes)
        if name == "resnet8":
            from ..models.resnet8 import resnet8_tflite

            return load(resnet8_tflite(), shapes=shapes)
        return load(getattr(models, name)(), shapes=shapes)


def _expect_model(name: str) -> None:
    """Refuse what is neither a file nor a network, if it looks like the name of a network."""
    if os.path.exists(name) or os.sep in name or "." in name:
        return
    import difflib

    near = difflib.get_close_matches(name.lower(), NETWORKS, 1)
    raise InputError(
        "there is no such file, and no network of that name",
        where=name,
        fix=f"did you mean {near[0]}?" if near else f"the networks are {', '.join(NETWORKS)}",
    )


def integers(mod: IRModule) -> IRModule:
    """Turn a quantized model's floating-point operators into integer ones, which NPUs take."""
    from ..qnn.transform import FakeQuantizationToInteger

    return FakeQuantizationToInteger()(mod)  # type: ignore[operator]


def program(name: str, shapes: dict[str, tuple[int | str, ...]] | None) -> Executable:
    """Load a package, or import and compile a model for this machine.

    Raises
    ------
    InputError
        Shapes were told for a package.
    """
    from .. import compile, load_executable

    if is_package(name):
        if shapes:
            raise InputError(
                "a package's input shapes are those that it was compiled for",
                where=name,
                fix="leave --input-shapes out",
            )
        with stage(f"load {name}"):
            return load_executable(name)
    mod = _load(name, shapes)
    with stage(f"compile {name}"):
        return compile(mod)


def is_network(name: str) -> bool:
    """Say whether a name is that of a network of the workbook: a file of that name goes before."""
    return name in NETWORKS and not os.path.exists(name)


def is_package(name: str) -> bool:
    """Say whether a name is that of a package rather than of a model."""
    from .. import package

    return name.endswith(".tar") or (os.path.isfile(name) and package.is_package(name))


def write(path: str, data: str) -> None:
    """Write a text file, whole or not at all.

    Raises
    ------
    InputError
        It cannot be written.
    """
    from .._files import whole

    try:
        with whole(path) as part:
            part.write_text(data, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise unwritten(path, error) from error


def unwritten(path: str, error: Exception) -> InputError:
    """Say that a file cannot be written."""
    return InputError(
        f"the file cannot be written: {getattr(error, 'strerror', None) or error}",
        where=path,
        fix="choose an existing folder that you may write to and that has space",
    )
