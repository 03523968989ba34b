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
from ..models import Model
from .checks import Shapes
from .custom import Converters
from .tir import with_main

__all__ = ["Shapes", "load"]

# The beginning of Relay text: its version, or a function, after any comments.
_RELAY = re.compile(rb"\s*(?:#\[\s*version|v0\.0\.\d\s|def\s+@)")
# Files passed by mistake, recognized by their first bytes, each with its error and the fix.
_OTHERS = {
    rb"\xff\xd8\xff|\x89PNG|PK\x03\x04|\x1f\x8b|<!DOCTYPE|<html|version https://git-lfs": (
        "this is an image, an archive, a web page or a Git LFS pointer, not a model",
        "pass an ONNX or TensorFlow Lite model, or what torch.export.export or torch.export.load "
        "returns; an image is the input of a compiled model, see tvmlab.models.preprocess",
    ),
    rb"metadata = tvm\.|\s*# from tvm\.script import|\s*@I\.ir_module": (
        "this is TVMScript, which is a Python program: reading it would run any code in it",
        "if you trust it, read it with tvm.script.from_source; Relay text "
        "(`tvmlab show --format relay`) can be loaded",
    ),
    rb"\x7fELF": (
        "this is a package of compiled code, or another library, not a model",
        "load the model that it was compiled from; `tvmlab run` runs a package",
    ),
}


def load(
    model: Any,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    converters: Converters = None,
) -> IRModule:
    """Import a model into Relax.

    Parameters
    ----------
    model : path, bytes, onnx.ModelProto, torch.export.ExportedProgram, tvmlab.models.Model, \
            tvm.ir.IRModule or tvm.tirx.PrimFunc
        A path or bytes of an ONNX (``.onnx``) or TensorFlow Lite (``.tflite``) model or of Relay
        text, or the model as an object. Pass a PyTorch model as the object that
        ``torch.export.export`` returns. A TIR function, or a module with one TIR function, gets a
        ``main`` that calls it (`tvmlab.frontend.tir.with_main`); a module with a ``main`` is kept.
        Functions that an ONNX model defines are inlined, except those with a converter.
    shapes : mapping of str to shape, optional
        The inputs' shapes by name, required where the model leaves a dimension open. A dimension
        is an integer, or a string that names a size only known at run time: ``("n", 3, 224,
        224)``. For ONNX only, because the other formats contain their shapes.
    converters : mapping of str to function, optional
        Converters of your own for operators of ONNX and PyTorch models, which replace those of
        tvmlab and TVM. For ONNX the key is ``"domain::Op"``, or ``"Op"`` for an operator of ONNX's
        own domain, ``ai.onnx``; for PyTorch it is ``"namespace::op"`` or
        ``"namespace::op.overload"``. Each function is called with the `tvm.relax.BlockBuilder`, a
        list of the tensor arguments as Relax expressions (None for each that the node omits), and a
        dictionary of the other arguments as Python values, by name. For ONNX the dictionary has the
        attributes that the node states, for PyTorch it also has the defaults. The function returns
        a Relax expression; for several results, a `tvm.relax.Tuple`. Keys of operators that the
        model does not use are ignored.

    Returns
    -------
    tvm.ir.IRModule
        A module with one Relax function ``main``, in which the weights are constants. Its attribute
        ``output_names`` lists the model's names of its outputs; Relay text has no such names.

    Raises
    ------
    ModelError
        The file is missing, empty, damaged, or of no known format.
    UnsupportedOperatorError
        The importer does not know an operator of the model; the error names it, and has the code
        of a converter for it.
    CompileError
        A module has no Relax ``main``, and not exactly one TIR function whose outputs are known.
    ShapeError
        A dimension is open and `shapes` has no size for it, or `shapes` does not match the model.
    """
    if isinstance(model, (IRModule, tirx.PrimFunc)):
        _no_converters(converters, type(model).__name__)
        return with_main(model)
    if isinstance(model, Model):
        model = model.proto
    if isinstance(model, (str, os.PathLike)):
        return _load_file(Path(model), shapes, converters)
    if isinstance(model, (bytes, bytearray, memoryview)):
        data = bytes(model)
        return _load_bytes(data, shapes, converters, f"{len(data)} bytes", None)
    kind = f"{type(model).__module__}.{type(model).__name__}"
    if kind.startswith("onnx.") and kind.endswith(".ModelProto"):
        from .onnx import import_proto

        return import_proto(model, shapes, converters, folder=None, where="ModelProto")
    if kind == "torch.export.exported_program.ExportedProgram":
        from .pytorch import import_program

        fix = "export it again with example inputs of that shape, or with dynamic_shapes"
        _no_shapes("an exported PyTorch program", shapes, "the exported program", fix)
        return import_program(model, converters)
    torch = sys.modules.get("torch")  # `model` can be a PyTorch module only if it is
    if kind.startswith("torch.") or (torch and isinstance(model, torch.nn.Module)):
        what = "a PyTorch module must be exported before it can be imported"
        fix = "load the result of torch.export.export(module.eval(), (example_input,))"
        raise ModelError(what, where=kind, fix=fix)
    fix = (
        "pass a path, bytes, an onnx.ModelProto, a torch.export.ExportedProgram, a tvm.ir.IRModule "
        "or a tvm.tirx.PrimFunc"
    )
    raise ModelError("this is not a model that tvmlab can read", where=kind, fix=fix)


def _load_file(path: Path, shapes: Shapes | None, converters: Converters) -> IRModule:
    """Read a model file and import it; external weights are read from its folder."""
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: raised for a path with a null character
        missing = isinstance(error, FileNotFoundError)
        what = "there is no such file" if missing else f"the file cannot be read: {error}"
        raise ModelError(what, where=str(path), fix="check the path") from error
    return _load_bytes(data, shapes, converters, str(path), path.resolve().parent)


def _load_bytes(
    data: bytes, shapes: Shapes | None, converters: Converters, where: str, folder: Path | None
) -> IRModule:
    if not data:
        raise ModelError("the model file is empty", where=where, fix="download or export it again")
    if data[4:8] == b"TFL3":  # the file identifier of TensorFlow Lite's FlatBuffers schema
        from .tflite import import_bytes

        _no_shapes("a TensorFlow Lite file", shapes, where)
        _no_converters(converters, where)
        return import_bytes(data, where=where)
    if _RELAY.match(data):
        _no_shapes("Relay text", shapes, where)
        _no_converters(converters, where)
        from ..ir.text.reader import fromtext
        from ..qnn import rows  # noqa: F401 (fills the table with the quantized operators)

        return fromtext(data.decode(errors="backslashreplace"))  # the reader refuses a backslash
    for start, (what, fix) in _OTHERS.items():
        if re.match(start, data):
            raise ModelError(what, where=where, fix=fix)
    from .onnx import import_proto, parse

    return import_proto(parse(data, where=where), shapes, converters, folder=folder, where=where)


def _no_shapes(
    model: str, shapes: Shapes | None, where: str, fix: str = "leave `shapes` out"
) -> None:
    if shapes:
        raise ShapeError(f"{model} has its shapes fixed already", where=where, fix=fix)


def _no_converters(converters: Converters, where: str) -> None:
    if converters:
        what = "`converters` apply only to ONNX models and exported PyTorch programs"
        raise ModelError(what, where=where, fix="leave `converters` out")
