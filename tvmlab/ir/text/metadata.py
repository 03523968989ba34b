"""The metadata section of Relay's text: TVM's JSON graph of constants, both ways.

The graph is a list of nodes that refer to each other by index. Its root is a map from type keys to
arrays: ``meta[relay.Constant][3]`` is what stands at 3 in the array under ``relay.Constant``. The
tensors themselves stand beside the nodes, as base64. `src/node/serialization.cc` of TVM 0.18 says
so; the order of the nodes and the blanks are those that Relay writes.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tvm

from ...errors import RelayError
from . import tensors
from .tensors import Array

CONSTANT = "relay.Constant"
BOXED = "runtime.BoxInt"
_CHUNK = 3 << 20  # a multiple of 3, so that the base64 texts of the pieces can be joined
_ONE_LINE = 10  # how many numbers TVM writes in one line


class Section:
    """Collects what Relay's text refers to, and writes it."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def constant(self, value: tvm.runtime.Tensor) -> str:
        """Add a constant, and give the text that refers to it."""
        return self._add(CONSTANT, value)

    def boxed(self, value: int) -> str:
        """Add an integer, and give the text that refers to it."""
        return self._add(BOXED, value)

    def text(self) -> Iterator[str]:
        """Write the section, in pieces.

        Yields
        ------
        str
            A part of the text. No more than one constant is in NumPy's memory at a time.

        Raises
        ------
        RelayError
            A constant has a dtype that Relay has not.
        """
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

    def _add(self, key: str, entry: Any) -> str:
        entries = self._entries.setdefault(key, [])
        entries.append(entry)
        return f"meta[{key}][{len(entries) - 1}]"


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
        no counterpart in Relax, such as the nodes of a virtual device.

    Raises
    ------
    RelayError
        The text is no JSON, nodes are missing or are not what they have to be where they are
        referred to, or a tensor's bytes are not what its header or its type says. It has the line
        and column of the node, tensor or character at fault.
    """
    return _Graph(text, line_offset).entries()


class _Graph:
    def __init__(self, text: str, line_offset: int) -> None:
        self._text, self._line_offset = text, line_offset
        try:
            graph = json.loads(text)
        except json.JSONDecodeError as wrong:
            raise self._error(f"The metadata is not JSON: {wrong.msg}", wrong.pos) from None
        except (RecursionError, ValueError) as wrong:  # nested too deep; a number too long
            raise self._error(f"The metadata is not TVM's: {wrong}", 0) from None
        graph = graph if isinstance(graph, dict) else {}
        nodes, arrays = graph.get("nodes"), graph.get("b64ndarrays", [])
        if not isinstance(nodes, list) or not isinstance(arrays, list):
            raise self._error("The metadata holds no lists of nodes and tensors", 0)
        self._nodes: list[Any] = nodes
        self._arrays: list[Any] = arrays
        self._root = graph.get("root")

    def entries(self) -> dict[str, list[Any]]:
        """Follow the root's references; nodes that it does not lead to are not looked at."""
        root = self._node(self._root, ("Map", "StrMap"), None)
        index = self._root
        keys, lists = root.get("keys"), self._references(root, index)
        if not isinstance(keys, list) or len(keys) != len(lists):
            raise self._fail("The metadata's root has not one key for each list", index)
        found: dict[str, list[Any]] = {}
        for key, at in zip(keys, lists, strict=True):
            if not isinstance(key, str):
                raise self._fail("A key of the metadata's root is no string", index)
            whole = _OLD_KEYS.get(key, key)
            if whole in found:
                raise self._fail(f"The metadata's root has the key {_shown(key)} twice", index)
            items = self._references(self._node(at, ("Array",), index), at)
            found[whole] = [self._entry(whole, key, item, at) for item in items]
        return found

    def _entry(self, key: str, written: str, index: int, holder: int) -> Any:
        node = self._node(index, (key, written), holder)
        if key == BOXED:
            return self._number(node.get("repr_str"), index, "an integer")
        if key == "IntImm":
            return self._number(self._attrs(node, index).get("value"), index, "an integer")
        return self._constant(node, index) if key == CONSTANT else None

    def _constant(self, node: dict[str, Any], index: int) -> Array:
        attrs = self._attrs(node, index)
        number = self._number(attrs.get("data"), index, "the number of a tensor")
        if not 0 <= number < len(self._arrays):
            raise self._fail(
                f"The metadata has {len(self._arrays)} tensors, and here number {number} is wanted",
                index,
            )
        array = self._tensor(number)
        declared = self._optional(attrs.get("_checked_type_"), index)
        if declared:
            self._check(array, declared, index)
        return array

    def _tensor(self, number: int) -> Array:
        def fail(what: str) -> RelayError:
            return self._error(what, self._place("b64ndarrays", number))

        coded = self._arrays[number]
        if isinstance(coded, str):
            try:
                data = binascii.a2b_base64(coded, strict_mode=True)
            except ValueError as wrong:  # characters that base64 has not, or that are not ASCII
                raise fail(f"A tensor is not written in base64: {wrong}") from None
            array, end = tensors.read(data, 0, fail)
            if end != len(data):
                raise fail(f"A tensor ends {len(data) - end} bytes before its text does")
            self._arrays[number] = array  # in the place of the text, which is larger
        elif not isinstance(coded, np.ndarray):
            raise fail("A tensor is not written as a string")
        return self._arrays[number]  # type: ignore[no-any-return]

    def _check(self, array: Array, declared: int, holder: int) -> None:
        """Compare a constant with the type that its node refers to."""
        attrs = self._attrs(self._node(declared, ("relay.TensorType",), holder), declared)
        place = self._optional(attrs.get("shape"), declared)
        if place is None:
            raise self._fail("A tensor's type has no shape", declared)
        sizes = self._references(self._node(place, ("Array",), declared), place)
        if len(sizes) != array.ndim:
            raise self._fail(
                f"A constant's type has {len(sizes)} dimensions, its tensor {array.ndim}", holder
            )
        shape: list[int | None] = []
        for at in sizes:
            size = self._node(at, ("IntImm", "Any", "tir.Any"), place)
            known = size["type_key"] == "IntImm"
            value = self._attrs(size, at).get("value") if known else None
            shape.append(self._number(value, at, "a size") if known else None)
        fits = all(size in (None, real) for size, real in zip(shape, array.shape, strict=True))
        if not fits or attrs.get("dtype") != str(array.dtype):
            raise self._fail(
                f"A constant's type says {attrs.get('dtype')} and {shape}, its tensor says "
                f"{array.dtype} and {list(array.shape)}",
                holder,
            )

    def _node(self, index: Any, kinds: tuple[str, ...], holder: int | None) -> dict[str, Any]:
        """Give a node that has to be of one of some kinds."""
        nodes = self._nodes
        if type(index) is not int or not 0 < index < len(nodes):
            raise self._fail(
                f"The metadata has {len(nodes)} nodes, and here number {index} is wanted", holder
            )
        node = nodes[index]
        kind = node.get("type_key") if isinstance(node, dict) else None
        if kind not in kinds:
            raise self._fail(f"Here has to be a node of type {kinds[0]}, not {kind}", index)
        return node  # type: ignore[no-any-return]

    def _references(self, node: dict[str, Any], index: Any) -> list[Any]:
        data = node.get("data", [])
        if not isinstance(data, list):
            raise self._fail("What a node holds is no list", index)
        return data

    def _attrs(self, node: dict[str, Any], index: int) -> dict[str, Any]:
        attrs = node.get("attrs", {})
        if not isinstance(attrs, dict):
            raise self._fail("A node's attributes are no map", index)
        return attrs

    def _number(self, value: Any, index: int, what: str) -> int:
        """Read a number, which TVM writes as a string."""
        if not isinstance(value, str) or not _NUMBER.fullmatch(value):
            raise self._fail(f"{_shown(value)} is not {what}", index)
        return int(value)

    def _optional(self, value: Any, index: int) -> int | None:
        """Read a reference to a node that may be none."""
        if value in (None, "null", "0"):
            return None
        return self._number(value, index, "the number of a node")

    def _fail(self, what: str, index: Any) -> RelayError:
        return self._error(what, self._place("nodes", index))

    def _place(self, key: str, index: Any) -> int:
        """Find where in the text an item of a list starts; only an error asks."""
        start = re.search(rf'"{key}"\s*:\s*\[\s*', self._text)
        if start is None or type(index) is not int:
            return 0
        position, decoder = start.end(), json.JSONDecoder()
        for _ in range(index):
            _, position = decoder.raw_decode(self._text, position)
            separator = _COMMA.match(self._text, position)
            position = separator.end() if separator else position
        return position

    def _error(self, what: str, position: int) -> RelayError:
        line = self._text.count("\n", 0, position)
        column = position - self._text.rfind("\n", 0, position)
        line += self._line_offset + 1
        made = RelayError(
            what,
            where=f"line {line}, column {column}, in the metadata section",
            fix="print the module again, and do not edit this section",
        )
        made.line, made.column = line, column
        return made


def _add_constant(
    nodes: list[dict[str, Any]], value: tvm.runtime.Tensor, number: int, device: int
) -> int:
    """Add the nodes of one constant; all share the device's, whose index is given back."""
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


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


_NUMBER = re.compile(r"-?[0-9]{1,20}")
_COMMA = re.compile(r"\s*,\s*")
_OLD_KEYS = {"Constant": CONSTANT, "BoxInt": BOXED}
