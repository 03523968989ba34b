"""Model files to Relax: `load` recognizes the format and calls the right importer."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tvm import tirx
from tvm.ir import IRModule

from ..errors import ModelError, ShapeError
from ..ir.entry import with_main
from ..models import Model
from ..models.quantized import QuantizedTorch
from .shapes import Shapes

__all__ = ["Shapes", "load"]

# How Relay text begins: its version, or a function where comments may stand before.
_RELAY = re.compile(rb"\s*(?:#\[\s*version|v0\.0\.\d\s|def\s+@)")
_GIVE = (
    "give an ONNX or TensorFlow Lite model; a picture is what a compiled model is called with, see "
    "tvmlab.models.preprocess"
)
# Files passed by mistake, by their first bytes: what the file is, and what to do.
_OTHERS = {
    rb"\xff\xd8\xff|\x89PNG": ("this is a picture, not a model", _GIVE),
    rb"PK\x03\x04|\x1f\x8b": ("this is an archive, not a model", _GIVE),
    rb"<!DOCTYPE|<html|version https://git-lfs": (
        "this is a web page or a Git LFS pointer, in place of the model",
        _GIVE,
    ),
    rb"metadata = tvm\.|\s*# from tvm\.script import|\s*@I\.ir_module": (
        "this is TVMScript, which is a program in Python: reading it could run anything",
        "where you trust it, read it in Python with tvm.script.from_source; Relay text "
        "(`tvmlab show --format relay`) is read here",
    ),
    rb"\x7fELF": (
        "this is a package of compiled code, or another library, not a model",
        "run a package, whose name ends in .so, with `tvmlab run` or tvmlab.load_executable; give "
        "the model that it was compiled from",
    ),
}


def load(model: Any, *, shapes: Mapping[str, Sequence[int | str]] | None = None) -> IRModule:
    """Import a model into Relax.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto, torch.export.ExportedProgram, tvmlab.models.Model, \
            tvmlab.models.quantized.QuantizedTorch, tvm.ir.IRModule or tvm.tirx.PrimFunc
        A path or bytes of an ONNX (``.onnx``) or TensorFlow Lite (``.tflite``) model or of Relay
        text, or the model as an object. PyTorch models are given as the object that
        ``torch.export.export`` returns. A TIR function, or a module of one, gets a ``main`` that
        calls it (`tvmlab.ir.entry.with_main`); a module that has a ``main`` comes back as it is.
    shapes : mapping of str to shape, optional
        The inputs' shapes by name. Needed where the model leaves a dimension open. A dimension
        is an integer, or a string that names a size only known at run time: ``("n", 3, 224,
        224)``. For ONNX only; the other two formats say their shapes themselves.

    Returns
    -------
    tvm.ir.IRModule
        One Relax function ``main``; weights are constants in it. Its attribute ``output_names``
        lists what the model calls its outputs; Relay text names none.

    Raises
    ------
    ModelError
        The file is missing, empty, damaged, or of no known format.
    UnsupportedOperatorError
        The importer does not know an operator of the model; the error names it.
    CompileError
        A module has neither a Relax function ``main`` nor a single TIR function of known outputs.
    ShapeError
        A dimension is open and `shapes` does not give it, or `shapes` does not fit.
    """
    if isinstance(model, (IRModule, tirx.PrimFunc)):
        return with_main(model)
    if isinstance(model, Model):
        model = model.proto
    elif isinstance(model, QuantizedTorch):
        model = model.program
    if isinstance(model, (str, os.PathLike)):
        return _load_file(Path(model), shapes)
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        return _load_bytes(data, shapes, where=f"{len(data)} bytes")
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if kind.startswith("onnx.") and kind.endswith(".ModelProto"):
        from .onnx import import_proto

        return import_proto(model, shapes, folder=None, where="ModelProto")
    if kind == "torch.export.exported_program.ExportedProgram":
        from .pytorch import import_program

        _no_shapes(
            *("an exported PyTorch program", shapes, "the exported program"),
            fix="export it again with example inputs of the shape wanted, or with dynamic_shapes",
        )
        return import_program(model)
    torch = sys.modules.get("torch")  # a module of PyTorch's cannot be here before PyTorch
    if kind.startswith("torch.") or (torch and isinstance(model, torch.nn.Module)):
        raise ModelError(
            "a PyTorch module has to be exported before it can be imported",
            where=kind,
            fix="load what torch.export.export(module.eval(), (example_input,)) returns",
        )
    raise ModelError(
        "this is not a model that tvmlab can read",
        where=kind,
        fix="give a path, bytes, an onnx.ModelProto, a torch.export.ExportedProgram, "
        "a tvm.ir.IRModule or a tvm.tirx.PrimFunc",
    )


def _load_file(path: Path, shapes: Shapes | None) -> IRModule:
    """Read a model file and import it; external weights can lie beside it."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: no path has a null character
        known: dict[type[Exception], str] = {
            FileNotFoundError: "there is no such file",
            IsADirectoryError: "this is a folder, not a model file",
        }
        raise ModelError(
            known.get(type(error))
            or f"the file cannot be read: {getattr(error, 'strerror', error)}",
            where=str(path),
            fix="check the path and its permissions",
        ) from error
    if path.suffix in {".pt", ".pth", ".pt2"}:
        raise ModelError(
            "PyTorch files are not read: loading them can run code",
            where=str(path),
            fix="load it in PyTorch, call torch.export.export(module, (example_input,)), "
            "and give that to tvmlab.load",
        )
    return _load_bytes(data, shapes, where=str(path), folder=path.resolve().parent)


def _load_bytes(
    data: bytes, shapes: Shapes | None, *, where: str, folder: Path | None = None
) -> IRModule:
    if not data:
        raise ModelError("the model file is empty", where=where, fix="download or export it again")
    if data[4:8] == b"TFL3":  # the file identifier of TensorFlow Lite's FlatBuffers schema
        from .tflite import import_bytes

        _no_shapes("a TensorFlow Lite file", shapes, where)
        return import_bytes(data, where=where)
    if _RELAY.match(data):
        _no_shapes("Relay text", shapes, where)
        return _relay_text(data, where)
    for start, (what, fix) in _OTHERS.items():
        if re.match(start, data):
            raise ModelError(what, where=where, fix=fix)
    from .onnx import import_proto, parse

    return import_proto(parse(data, where=where), shapes, folder=folder, where=where)


def _relay_text(data: bytes, where: str) -> IRModule:
    from ..ir.text.reader import fromtext
    from ..qnn import rows  # noqa: F401 (fills the table with the quantized operators)

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(
            f"this starts like Relay text, but byte {error.start} is not UTF-8",
            where=where,
            fix="compare its size and checksum with its source",
        ) from error
    return fromtext(text)


def _no_shapes(
    model: str, shapes: Shapes | None, where: str, fix: str = "leave `shapes` out"
) -> None:
    if shapes:
        raise ShapeError(f"{model} has its shapes fixed already", where=where, fix=fix)
