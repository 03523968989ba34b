"""The metadata section of Relay's text: TVM's JSON graph of constants, both ways.

The graph is a list of nodes that refer to each other by index. Its root is a map from type keys to
arrays: ``meta[relay.Constant][3]`` is what stands at 3 in the array under ``relay.Constant``. The
tensors themselves stand beside the nodes, as base64. `src/node/serialization.cc` of TVM 0.18
defines the format; the order of the nodes and the blanks are those that Relay writes.
"""

from __future__ import annotations

import binascii
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ...errors import RelayError
from . import tensors
from .tensors import Array

CONSTANT = "relay.Constant"
BOXED = "runtime.BoxInt"
DROPPED = object()
"""An attribute's value that says where something is computed, for which Relax has its own ways."""

_DROPPED_KEYS = ("VirtualDevice", "Executor", "Runtime", "Target", "WorkspaceMemoryPools")
_OLD_KEYS = {"Constant": CONSTANT, "BoxInt": BOXED}
_CHUNK = 3 << 20  # a multiple of 3, so that the base64 texts of the pieces can be joined
_ONE_LINE = 10  # how many numbers TVM writes in one line


class MetadataWriter:
    """Collects what Relay's text refers to, and writes it."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, key: str, entry: Any) -> str:
        """Add a constant's tensor or a boxed integer, and return the text that refers to it."""
        entries = self._entries.setdefault(key, [])
        entries.append(entry)
        return f"meta[{key}][{len(entries) - 1}]"

    def text(self) -> Iterator[str]:
        """Write the section, in pieces: only one constant is in NumPy's memory at a time."""
        nodes: list[dict[str, Any]] = [{"type_key": ""}]
        # Relay goes through a hash table here, which gives what came last first.
        groups = list(reversed(self._entries.items()))
        root: dict[str, Any] = {"type_key": "Map", "keys": [key for key, _ in groups], "data": []}
        nodes.append(root)
        arrays: list[tvm.runtime.Tensor] = []
        device = 0
        for key, entries in groups:
            root["data"].append(len(nodes))
            group: dict[str, Any] = {"type_key": "Array", "data": []}
            nodes.append(group)
            for entry in entries:
                group["data"].append(len(nodes))
                if key == BOXED:
                    nodes.append({"type_key": key, "repr_str": str(entry)})
                else:
                    device = _add_constant(nodes, entry, len(arrays), device)
                    arrays.append(entry)
        yield '{\n  "root": 1, \n  "nodes": [\n'
        yield ", \n".join("    " + _json(node, 4) for node in nodes)
        yield '\n  ], \n  "b64ndarrays": ['
        for number, array in enumerate(arrays):
            yield ', \n    "' if number else '\n    "'
            yield from _base64(array.numpy())
            yield '"'
        yield "\n  ], \n" if arrays else "], \n"
        yield '  "attrs": {"tvm_version": "0.18.0"}\n}'


class MetadataTable:
    """The metadata section of a text, which is read when something first refers to it.

    Parameters
    ----------
    text : str
        All of the text.
    start : int or None
        The index where the section starts; None for a text without one.
    """

    def __init__(self, text: str, start: int | None) -> None:
        self._text, self.start = text, start
        self._entries: dict[str, list[Any]] | None = None

    def constant(self, reference: str) -> ir.GenericConst:
        """Return the constant of ``meta[relay.Constant][0]``, the same object each time."""
        entries, index = self._find(reference, CONSTANT)
        if not isinstance(entries[index], ir.GenericConst):
            # With the dtype, because TVM makes 32 bits of 64 without it.
            entries[index] = relax.const(entries[index], str(entries[index].dtype))
        return entries[index]

    def attribute(self, reference: str) -> Any:
        """Return an attribute's value: the number that a reference stands for, or `DROPPED`."""
        key = re.findall(r"[\w.]+", reference)[1]
        if key in _DROPPED_KEYS:
            return DROPPED
        if key != CONSTANT:
            entries, index = self._find(reference, BOXED)
            return int(entries[index])
        value = self.constant(reference).value.numpy()
        if value.ndim:
            raise RelayError(
                f"An attribute cannot be a tensor of shape {value.shape}",
                fix="only a constant without axes can stand here",
            )
        return value.item()

    def _find(self, reference: str, kind: str) -> tuple[list[Any], int]:
        key, digits = re.findall(r"[\w.]+", reference)[1:]
        if key != kind:
            raise RelayError(f"A {key} cannot stand here", fix=f"only a {kind} can")
        if self.start is None:
            raise RelayError(
                f"{reference} refers to metadata, and the text has none",
                fix="print the module with show_meta_data=True",
            )
        if self._entries is None:
            lines = self._text.count("\n", 0, self.start)
            self._entries = decode(self._text[self.start :], lines)
        entries = self._entries.get(key, [])
        if len(digits) > 9 or int(digits) >= len(entries):
            raise RelayError(
                f"{key} has no entry {digits[:20]} in the metadata, which has {len(entries)}",
                fix="is the text whole?",
            )
        return entries, int(digits)


def decode(text: str, line_offset: int = 0) -> dict[str, list[Any]]:
    """Read a metadata section.

    Parameters
    ----------
    text : str
        The JSON, and blanks around it.
    line_offset : int
        How many lines stand before it.

    Returns
    -------
    dict of str to list
        By type key, what ``meta[key][index]`` stands for: a constant's tensor, a NumPy view that
        cannot be written to; an integer for ``runtime.BoxInt`` and ``IntImm``; None for what has
        no counterpart in Relax, such as a virtual device.

    Raises
    ------
    RelayError
        The section is damaged.
    """
    position = 0
    try:
        return _Graph(json.loads(text)).entries()
    except json.JSONDecodeError as wrong:
        reason, position = wrong.msg, wrong.pos
    except (LookupError, TypeError, ValueError, AttributeError) as wrong:
        reason = str(wrong) if isinstance(wrong, ValueError) else repr(wrong)
    except (struct.error, RecursionError) as wrong:
        reason = str(wrong)
    line = line_offset + text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    made = RelayError(
        f"The metadata section is not what TVM writes: {reason[:200]}",
        where=f"line {line}, column {column}, in the metadata section",
        fix="print the module again, and do not edit this section",
    )
    made.line, made.column = line, column
    raise made


class _Graph:
    """TVM's graph of nodes. A damaged one raises one of Python's own errors, see `decode`."""

    def __init__(self, graph: Any) -> None:
        self._nodes, self._root = graph["nodes"], graph["root"]
        self._arrays: list[Any] = graph.get("b64ndarrays", [])

    def entries(self) -> dict[str, list[Any]]:
        """Follow the root's references; nodes that it does not lead to are not looked at."""
        root = self._node(self._root, "Map", "StrMap")
        found: dict[str, list[Any]] = {}
        for key, at in zip(root["keys"], root.get("data", []), strict=True):
            whole = _OLD_KEYS.get(key, key)
            if whole in found:
                raise ValueError(f"the key {key} stands there twice")
            items = self._node(at, "Array").get("data", [])
            found[whole] = [self._entry(whole, self._node(item, whole, key)) for item in items]
        return found

    def _entry(self, key: str, node: dict[str, Any]) -> Any:
        if key == BOXED:
            return int(node["repr_str"])
        if key == "IntImm":
            return int(node["attrs"]["value"])
        return self._constant(node["attrs"]) if key == CONSTANT else None

    def _constant(self, attrs: dict[str, Any]) -> Array:
        number = int(attrs["data"])
        if number < 0:
            raise ValueError(f"there is no tensor number {number}")
        data = binascii.a2b_base64(self._arrays[number], strict_mode=True)
        array, end = tensors.read(data)
        if end != len(data):
            raise ValueError(f"a tensor ends {len(data) - end} bytes before its text does")
        declared = attrs.get("_checked_type_")
        if declared not in (None, "null", "0"):
            self._check(array, self._node(int(declared), "relay.TensorType")["attrs"])
        return array

    def _check(self, array: Array, declared: dict[str, Any]) -> None:
        """Compare a tensor with its declared type, in which a size can be unknown."""
        sizes = self._node(int(declared["shape"]), "Array").get("data", [])
        for at, real in zip(sizes, array.shape, strict=True):
            size = self._node(at, "IntImm", "Any", "tir.Any")
            if size["type_key"] == "IntImm" and int(size["attrs"]["value"]) != real:
                raise ValueError(f"a size of the shape {array.shape} is declared otherwise")
        if declared["dtype"] != str(array.dtype):
            raise ValueError(f"a tensor of {array.dtype} is declared {declared['dtype']}")

    def _node(self, index: Any, *kinds: str) -> dict[str, Any]:
        """Return a node, which has to be of one of some kinds."""
        if type(index) is not int or index <= 0:
            raise ValueError(f"{index!r} is no number of a node")
        node: dict[str, Any] = self._nodes[index]
        if node["type_key"] not in kinds:
            raise ValueError(f"node {index} is of type {node['type_key']}, not {kinds[0]}")
        return node


def _add_constant(
    nodes: list[dict[str, Any]], value: tvm.runtime.Tensor, number: int, device: int
) -> int:
    """Add the nodes of one constant; all share the device's, whose index is returned."""
    attrs = {"_checked_type_": "", "data": str(number), "span": "0", "virtual_device_": ""}
    nodes.append({"type_key": CONSTANT, "attrs": attrs})
    if not device:
        device = len(nodes)
        scope = {"device_type_int": "-1", "memory_scope": str(device + 1), "target": "0"}
        nodes.append({"type_key": "VirtualDevice", "attrs": scope | {"virtual_device_id": "-1"}})
        nodes.append({"type_key": "runtime.String"})
    attrs["virtual_device_"] = str(device)
    attrs["_checked_type_"] = str(len(nodes))
    declared = {"dtype": str(value.dtype), "shape": str(len(nodes) + 1), "span": "0"}
    nodes.append({"type_key": "relay.TensorType", "attrs": declared})
    sizes: dict[str, Any] = {"type_key": "Array"}
    nodes.append(sizes)
    for size in value.shape:
        sizes.setdefault("data", []).append(len(nodes))
        dtype = "int32" if size < 2**31 else "int64"
        attrs = {"dtype": dtype, "span": "0", "value": str(size)}
        nodes.append({"type_key": "IntImm", "attrs": attrs})
    return device


def _json(value: Any, indent: int) -> str:
    """Write JSON as TVM lays it out: a few numbers in one line, all else one a line."""
    if isinstance(value, dict):
        opening, closing = "{}"
        inner = [f"{json.dumps(key)}: {_json(item, indent + 2)}" for key, item in value.items()]
    elif isinstance(value, list):
        opening, closing = "[]"
        inner = [json.dumps(item) for item in value]
        if len(value) <= _ONE_LINE and all(isinstance(item, int) for item in value):
            return f"[{', '.join(inner)}]"
    else:
        return json.dumps(value)
    margin = "\n" + " " * indent
    return f"{opening}{margin}  " + f", {margin}  ".join(inner) + f"{margin}{closing}"


def _base64(array: Array) -> Iterator[str]:
    """Write a tensor with its header, in pieces."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    start = tensors.header(array)
    data = array.reshape(-1).view(np.uint8).data
    missing = -len(start) % 3
    yield _ascii(start + bytes(data[:missing]))
    for at in range(missing, len(data), _CHUNK):
        yield _ascii(data[at : at + _CHUNK])


def _ascii(data: bytes | memoryview) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")
