"""Import ONNX into Relax: upstream's importer, after checks that upstream omits.

Upstream's `tvm.relax.frontend.onnx` only warns about a damaged model, reads external weights from
any path that the file names, and prints while it fails. This module checks a model first.
"""

from __future__ import annotations

import contextlib
import copy
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tvm.ir import IRModule

from ..errors import ModelError, UnsupportedOperatorError
from ..indices import NormalizeIndices
from ..ir.dialect import NARROW, OUTPUT_NAMES
from ..ir.values import named
from ..support.extras import need
from ..support.wording import telling
from .checks import Shapes, resolve
from .custom import Converter, Converters, converters_of

__all__ = ["import_proto", "parse"]

_ONNX, _CONTRIBUTED = ("", "ai.onnx"), "com.microsoft"


def parse(data: bytes, *, where: str) -> Any:
    """Parse the content of a file as an ONNX model; `where` names the file in errors."""
    onnx = need("onnx", extra="onnx")
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    with contextlib.suppress(DecodeError):
        model.ParseFromString(data)
        # Protocol Buffers have no file signature: the bytes of another format, or a file truncated
        # at the end of a field, can parse as an empty message.
        if model.ir_version and model.HasField("graph") and model.graph.output:
            return model
    fix = "compare its size and checksum with its source, and download it again"
    raise ModelError("this is not an ONNX model, or it is truncated", where=where, fix=fix)


def import_proto(
    model: Any,
    shapes: Shapes | None,
    converters: Converters = None,
    *,
    folder: Path | None,
    where: str,
    keep_params: bool = False,
) -> IRModule:
    """Import a parsed ONNX model; see `tvmlab.load`.

    External weights are read from `folder`, unless `folder` is None, as for a model in memory.
    `where` names the model in errors. With `keep_params` the weights become parameters of ``main``,
    after the inputs, and its attribute ``params`` holds their values.
    """
    onnx = need("onnx", extra="onnx")
    from .onnx_custom import FORM, CustomImporter
    from .onnx_narrow import widened

    given = converters_of(converters, FORM, "com.example::Swish").items()
    custom = {key if "::" in key else f"ai.onnx::{key}": function for key, function in given}
    if folder is not None:
        _read_external_data(model, folder, where)
    importer: Any = None
    try:
        # Upstream prints the operator that it fails on, and warns about damaged models.
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = _inlined(model, custom)
            _check(onnx, model, custom, where)
            model, dtypes = widened(model)
            sizes = resolve(dict(_inputs(model.graph)), shapes, where=where)
            importer = CustomImporter(custom, sizes, keep_params, where)
            importer.narrow = dtypes
            opset = next((o.version for o in model.opset_import if o.domain in _ONNX), 1)
            mod = named(importer.from_onnx(model.graph, opset), importer._nodes)
            normalize: Any = NormalizeIndices()
            mod = normalize(mod)
    except ModelError:
        raise
    except Exception as error:  # upstream's converters raise any class
        node = getattr(importer, "node", None)
        kind = UnsupportedOperatorError if isinstance(error, NotImplementedError) else ModelError
        raise kind(
            f"TVM's importer failed on {f'operator {node.op_type}' if node else 'a model'}: "
            f"{telling(error)}",
            where=importer.place() if node else where,
            fix="run it in ONNX Runtime to see whether the model itself is at fault",
        ) from error
    main = mod["main"].with_attr(OUTPUT_NAMES, [value.name for value in model.graph.output])
    ends = (value.name for value in (*model.graph.input, *model.graph.output))
    if narrow := {name: dtypes[name] for name in ends if name in dtypes}:
        main = main.with_attr(NARROW, narrow)
    mod["main"] = main.with_attr("qnn.rounding", "ONNX") if importer.quantized else main
    return mod


def _inlined(model: Any, custom: Mapping[str, Converter]) -> Any:
    """Replace calls of the model's own functions with their nodes, except those of `custom`."""
    if not model.functions:
        return model
    from onnx.inliner import inline_selected_functions

    kept = [(one.domain, one.name) for one in model.functions]
    kept = [(domain, name) for domain, name in kept if f"{domain}::{name}" in custom]
    return inline_selected_functions(model, kept, exclude=True)


def _inputs(graph: Any) -> Iterator[tuple[str, list[int | str | None] | None]]:
    """Yield the inputs that are not weights, with their shapes as the model declares them."""
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in weights:
            continue
        if not value.type.HasField("tensor_type"):
            what = f"input {value.name!r} is a {value.type.WhichOneof('value')}, not a tensor"
            raise ModelError(what, where="inputs", fix="export it with tensors as its inputs")
        tensor = value.type.tensor_type
        # An open dimension without a name can be written "?".
        sizes = [
            dim.dim_value
            if dim.dim_value > 0
            else re.sub(r"\W", "_", dim.dim_param)
            if dim.dim_param[:1].isalpha()
            else None
            for dim in tensor.shape.dim
        ]
        yield value.name, sizes if tensor.HasField("shape") else None


def _check(onnx: Any, model: Any, custom: Mapping[str, Converter], where: str) -> None:
    """Refuse operators without a converter, then models that are not valid ONNX."""
    from .onnx_converters import importable, nodes, place
    from .onnx_custom import key_of, suggested
    from .onnx_rules import check_attributes, check_dtypes, check_opsets

    standard = {schema.name for schema in onnx.defs.get_all_schemas()}
    converted = importable()
    unknown: dict[str, Any] = {}
    undefined = False
    for node in nodes(model.graph):
        if key_of(node) in custom:
            undefined |= node.domain in _ONNX and node.op_type not in standard
            continue
        # The importer compares names only, so it would take another domain's Relu for ONNX's. It
        # supports operators of ONNX Runtime's own domain.
        own = (*_ONNX, "ai.onnx.preview")
        known = node.op_type in standard if node.domain in own else node.domain == _CONTRIBUTED
        if not known or node.op_type not in converted:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            unknown.setdefault(name, node)
    if unknown:
        first, *_ = unknown.values()
        raise UnsupportedOperatorError(
            f"TVM cannot import the ONNX operator {', '.join(unknown)}",
            where=f"{where}: {'; '.join(map(place, unknown.values()))}",
            fix="export with another opset, or " + suggested(first),
        )
    if not model.graph.output:
        raise ModelError("the model has no outputs", where=where, fix="export it again")
    check_opsets(model, where)
    if undefined:  # The checker knows all operators of ONNX's domain, but none of other domains.
        model = copy.deepcopy(model)
        for node in nodes(model.graph):
            node.domain = "custom" if key_of(node) in custom else node.domain
        model.opset_import.add(domain="custom", version=1)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        fix = "export it again; onnx.checker.check_model prints the details"
        what = f"the model is not valid ONNX: {telling(error)}"
        raise ModelError(what, where=where, fix=fix) from error
    check_dtypes(model.graph, where)
    for node in nodes(model.graph):
        if key_of(node) not in custom:
            check_attributes(node, f"{where}: {place(node)}")


def _read_external_data(model: Any, folder: Path, where: str) -> None:
    """Read weights that are stored in separate files, from the model's folder only.

    onnx's own loader refuses absolute paths, links, ``..`` and lengths beyond the file's end.
    """
    onnx = need("onnx", extra="onnx")
    from onnx.external_data_helper import load_external_data_for_model

    try:
        load_external_data_for_model(model, str(folder))
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        what = f"the model's weights cannot be read: {telling(error)}"
        fix = f"put the files with the weights into {folder} (weights elsewhere are not read)"
        raise ModelError(what, where=where, fix=fix) from error
