"""``tvmlab show``: a model, or what is in a package."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ..errors import InputError, ModelError, ShapeError
from . import arguments
from .answer import Answer
from .outputs import expect_outputs

if TYPE_CHECKING:
    from tvm.ir import IRModule

__all__ = ["add"]

# The fields of a `tvmlab.schedule.Work`, which a package lists in this order.
_WORK = ("operations", "dtype", "rule")

ABOUT = """Show a model, or what is in a package.

A package is told about without running any of it. Sizes that a model leaves open stay open, by
names, unless --input-shapes fixes them. On the screen a model is without its weights; in a file it
is whole. Relay text is a model for tvmlab again; Relax is TVMScript, a program that only
Python reads: tvm.script.from_source."""
EXAMPLE = """tvmlab show digits_resnet
tvmlab show digits_resnet --format relay -o digits.relay
tvmlab show digits.relay --format diagram"""


def add(commands: arguments.Commands) -> None:
    """Add the command."""
    parser = arguments.command(commands, "show", run, ABOUT, EXAMPLE)
    arguments.add_model(parser)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="a table of operators, Relax or Relay text (of a quantized model in integers), or a "
        "diagram that Mermaid draws, as JupyterLab and GitHub do; operators if left out",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write it there")


def run(told: argparse.Namespace) -> Answer:
    """Show."""
    expect_outputs([told.output], [told.model])
    if arguments.is_package(told.model):
        return _package(told)
    mod = _model(told)
    answer: Answer = FORMATS[told.format or "operators"](mod, bool(told.output))
    if not told.output:
        return answer
    arguments.write(told.output, answer.text + "\n")
    return Answer(f"{told.output}: written", {"written": told.output})


def _model(told: argparse.Namespace) -> IRModule:
    """Import the model; what it leaves open can stay open, for nothing of it is compiled."""
    try:
        return arguments.model(told)
    except ShapeError as error:
        if error.shapes is None:
            raise
        told.input_shapes = error.shapes
        try:
            return arguments.model(told)
        except ModelError as why:
            raise ShapeError(
                f"{error.what}; TVM's importer cannot leave them open: {why.what}",
                where=error.where,
                fix=(error.fix or "").partition(", or keep")[0],
            ) from why


def _package(told: argparse.Namespace) -> Answer:
    from dataclasses import asdict

    from .. import package

    if told.format or told.output or told.input_shapes:
        raise InputError(
            "a package has no operators any more, but machine code",
            where=told.model,
            fix="leave the options out, or show the model that it was compiled from",
        )
    found = package.describe(told.model)
    work = {
        name: dict(zip(_WORK, fields, strict=True)) if isinstance(fields, list) else fields
        for name, fields in found.work.items()
    }
    return Answer(str(found), {**asdict(found), "work": work})


def _operators(mod: IRModule, whole: bool) -> Answer:
    from dataclasses import asdict

    from ..operators import operators

    found = operators(mod)
    return Answer(str(found), {"operators": [asdict(one) for one in found.rows]})


def _relax(mod: IRModule, whole: bool) -> Answer:
    return _text(mod.script(show_meta=whole))


def _relay(mod: IRModule, whole: bool) -> Answer:
    from ..relay.printer import astext

    # Relay had a quantized model in integers from its import on.
    return _text(astext(arguments.integers(mod), show_meta_data=whole))


def _diagram(mod: IRModule, whole: bool) -> Answer:
    from ..diagram import diagram

    return _text(diagram(mod))


def _text(text: str) -> Answer:
    return Answer(text.rstrip("\n"), {"text": text})


FORMATS: dict[str, Any] = {
    "operators": _operators,
    "relax": _relax,
    "relay": _relay,
    "diagram": _diagram,
}
