"""Users' converters of ONNX operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx

from .custom import Converter, convert, suggestion
from .onnx_converters import Importer

__all__ = ["FORM", "CustomImporter", "key_of", "suggested"]

#: The regular expression of the keys of converters: a domain and an operator.
FORM = r"([\w.-]+::)?\w+"


def key_of(node: Any) -> str:
    """Return the key of a node's converter."""
    return f"{node.domain or 'ai.onnx'}::{node.op_type}"


def suggested(node: Any) -> str:
    """Return the code of a converter for the operator of a node, for an error."""
    return suggestion(key_of(node), node.input, _attributes(node))


class CustomImporter(Importer):  # type: ignore[misc]
    """An importer that converts operators with users' converters first, by the keys of nodes."""

    def __init__(self, custom: Mapping[str, Converter], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._custom = custom

    def expected(self, node: Any, inputs: Any) -> Mapping[str, onnx.TypeProto]:
        """Leave the types of a node with a user's converter to the converter."""
        return {} if key_of(node) in self._custom else super().expected(node, inputs)

    def convert(self, kind: str, inputs: Any, attributes: dict[str, Any]) -> Any:
        """Convert an operator with the user's converter if it is a node's own, not a part of it."""
        node = attributes.get("tvm_custom", {}).get("node")
        own = node is not None and node.op_type == kind
        function = self._custom.get(key_of(node)) if own else None
        if function is None:
            return super().convert(kind, inputs, attributes)
        where = f"{self.place()}, domain {node.domain or 'ai.onnx'}"
        return convert(function, self.bb, list(inputs), _attributes(node), where)


def _attributes(node: Any) -> dict[str, Any]:
    """Return the attributes that a node states as Python values and NumPy arrays."""
    return {a.name: _plain(onnx.helper.get_attribute_value(a)) for a in node.attribute}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
