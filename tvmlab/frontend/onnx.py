"""ONNX to Relax: upstream's importer behind checks that upstream leaves out.

Upstream's `tvm.relax.frontend.onnx` only warns about a damaged model, reads external weights from
wherever the file says, and prints while it fails. Here a model is checked first.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tvm
from tvm.ir import IRModule

from ..errors import ModelError, ShapeError, UnsupportedOperatorError
from ..ir.indices import NormalizeIndices
from ..ir.limits import RaiseLimits
from ..ir.signature import OUTPUT_NAMES
from ..support.extras import need
from ..support.wording import telling
from . import onnx_pads, qdq, qoperator
from .onnx_values import nodes
from .shapes import Shapes, resolve

__all__ = ["import_proto", "parse"]

_ONNX, _CONTRIBUTED = ("", "ai.onnx"), "com.microsoft"


def parse(data: bytes, *, where: str) -> Any:
    """Parse bytes as an ONNX model.

    Parameters
    ----------
    data : bytes
        The file's content.
    where : str
        The file, for errors.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    ModelError
        The bytes are no ONNX model, or are cut off.
    """
    onnx = need("onnx", extra="onnx")
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(
            "this is not an ONNX model, or it is cut off",
            where=where,
            fix="compare its size and checksum with its source, and download it again",
        ) from error
    # Protocol buffers carry no file type: other bytes, and a file cut at a field's border, can
    # parse as a message with nothing in it.
    if not model.ir_version or not model.HasField("graph") or not model.graph.output:
        raise ModelError(
            "this is not an ONNX model, or it is cut off: it has no graph with an output",
            where=where,
            fix="compare its size and checksum with its source, and download it again",
        )
    return model


def import_proto(
    model: Any,
    shapes: Shapes | None,
    *,
    folder: Path | None,
    where: str,
    keep_params: bool = False,
) -> IRModule:
    """Import a parsed ONNX model.

    Parameters
    ----------
    model : onnx.ModelProto
        The model; it is left unchanged.
    shapes : mapping of str to shape, optional
        The inputs' shapes, see `tvmlab.load`.
    folder : path, optional
        Where external weights may lie; None where the model did not come from a file.
    where : str
        The model, for errors.
    keep_params : bool
        Keep weights as parameters of ``main``, after the inputs; its attribute ``params`` holds
        their values.

    Returns
    -------
    tvm.ir.IRModule

    Raises
    ------
    ModelError, UnsupportedOperatorError, ShapeError
        See `tvmlab.load`.
    """
    onnx = need("onnx", extra="onnx")
    from .onnx_operators import Importer

    model = _with_external_data(model, folder, where)
    printed = io.StringIO()
    try:
        # Upstream prints the operator that it fails on, and warns about what is checked here.
        with contextlib.redirect_stdout(printed), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check(onnx, model, where)
            model = qoperator.rewrite(model, where)
            qdq.check(model, where)
            sizes = resolve(dict(_inputs(model.graph)), shapes, where=where)
            importer = Importer(sizes, "float32", keep_params)
            graph = onnx_pads.explicit(model, sizes).graph
            opset = next((o.version for o in model.opset_import if o.domain in _ONNX), 1)
            imported = importer.from_onnx(graph, opset)
            imported = tvm.transform.Sequential([RaiseLimits(), NormalizeIndices()])(imported)
            names = [value.name for value in model.graph.output]
            imported["main"] = imported["main"].with_attr(OUTPUT_NAMES, names)
            if qdq.quantized(model):
                imported["main"] = imported["main"].with_attr("qnn.rounding", "ONNX")
            return imported
    except (ModelError, ShapeError):
        raise
    except Exception as error:  # upstream's converters raise whatever they stumble over
        if isinstance(error, NotImplementedError):  # tvm.error.OpNotImplemented is one
            named = set(re.findall(r"\w+", str(error)))
            if any(node.op_type in named for node in nodes(model.graph)):
                raise _unsupported(model, named, where) from error
        found = re.search(r"Error converting operator (\w+)", printed.getvalue())
        operator = f"operator {found[1]}" if found else "a model"
        raise ModelError(
            f"TVM's importer failed on {operator}: {telling(error)}",
            where=where,
            fix="run it in ONNX Runtime to see whether the model itself is at fault; if it is "
            "not, the operator's attributes are ones that TVM does not import",
        ) from error


def _inputs(graph: Any) -> Iterator[tuple[str, list[int | str | None] | None]]:
    """Yield the inputs that are not weights, with their shapes as the model declares them."""
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in weights:
            continue
        if not value.type.HasField("tensor_type"):
            raise ModelError(
                f"input {value.name!r} is a {value.type.WhichOneof('value')}, not a tensor",
                where="the model's inputs",
                fix="export the model with tensors as its inputs",
            )
        tensor = value.type.tensor_type
        if not tensor.HasField("shape"):
            yield value.name, None
            continue
        yield (
            value.name,
            [
                dim.dim_value
                if dim.HasField("dim_value") and dim.dim_value > 0
                else _identifier(dim.dim_param)
                for dim in tensor.shape.dim
            ],
        )


def _identifier(name: str) -> str | None:
    """Turn the name of an open dimension into an identifier; None for none, such as ``?``."""
    return re.sub(r"\W", "_", name) if name[:1].isalpha() else None


def _check(onnx: Any, model: Any, where: str) -> None:
    """Refuse what is no valid ONNX model, once its operators are known to be ONNX's."""
    standard = {schema.name for schema in onnx.defs.get_all_schemas()}
    for node in nodes(model.graph):
        # The importer looks at names alone: it would take another domain's Relu for ONNX's. It
        # does know operators of ONNX Runtime's own domain.
        known = node.op_type in standard if node.domain in _ONNX else node.domain == _CONTRIBUTED
        if not known:
            raise _unsupported(model, {node.op_type}, where)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise ModelError(
            f"the model is not valid ONNX: {telling(error)}",
            where=where,
            fix="export it again; onnx.checker.check_model says more",
        ) from error
    except ValueError as error:
        # Models over 2 GB cannot be checked in memory; every tensor in them has been read.
        if "2GB" not in str(error).replace(" ", "") and "2GiB" not in str(error):
            raise


def _unsupported(model: Any, names: set[str], where: str) -> UnsupportedOperatorError:
    """Name the operators that the importer does not know, and where the model has them."""
    found: dict[str, Any] = {}
    for node in nodes(model.graph):
        if node.op_type in names:
            found.setdefault(node.op_type, node)
    operators = [
        f"{node.domain}.{kind}" if node.domain else kind for kind, node in sorted(found.items())
    ]
    places = [
        f"{kind} in node {node.name!r}" if node.name else f"{kind} giving {list(node.output)}"
        for kind, node in sorted(found.items())
    ]
    return UnsupportedOperatorError(
        f"TVM cannot import the ONNX operator {', '.join(operators or sorted(names))}",
        where=f"{where}: {'; '.join(places)}",
        fix="rewrite the model without it, for example by exporting with another opset, or cut "
        "the model before it with onnx.utils.extract_model",
    )


def _with_external_data(model: Any, folder: Path | None, where: str) -> Any:
    """Read weights that lie in files of their own, from the model's folder and nowhere else.

    onnx's own loader refuses absolute paths, links, ``..`` and lengths beyond the file's end.
    """
    onnx = need("onnx", extra="onnx")
    from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

    outside = [tensor for tensor in _tensors(model) if uses_external_data(tensor)]
    if not outside:
        return model
    if folder is None:
        raise ModelError(
            "the model's weights lie in other files, and a model in memory does not say where",
            where=f"tensor {outside[0].name!r}",
            fix="load the model by its path, or call onnx.load on it first",
        )
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in _tensors(copy):
        if not uses_external_data(tensor):
            continue
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except (onnx.checker.ValidationError, ValueError, OSError) as error:
            raise ModelError(
                f"the model's weights cannot be read: {telling(error)}",
                where=f"{where}: tensor {tensor.name!r}",
                fix=f"put the files with the weights into {folder}, whole and under the names "
                "that the model gives; files outside this folder are never read",
            ) from error
    return copy


def _tensors(message: Any) -> Iterator[Any]:
    """Yield every tensor of a model: weights, operators' attributes, branches, functions."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for item in [value] if hasattr(value, "ListFields") else value:
            if field.message_type.name == "TensorProto":
                yield item
            else:
                yield from _tensors(item)
