"""Constants in Relay's files: the metadata section of its text, and ``.params`` files.

The section is TVM's JSON graph: a list of nodes that refer to each other by index. Its root is a
map from type keys to arrays: ``meta[relay.Constant][3]`` is item 3 of the array under
``relay.Constant``. `src/node/serialization.cc` of TVM 0.18 defines the format; the order of the
nodes and the blanks are those that Relay writes.

The tensors are beside the nodes, as base64, in the format of `SaveDLTensor` in TVM's `tensor.h`: a
header of 8-byte magic, 8 reserved bytes, device, number of dimensions and dtype; the dimensions;
the number of bytes; the bytes. TVM's own reader of parameter files hangs on a damaged file, so both
are read here.
"""

from __future__ import annotations

import binascii
import json
import math
import os
import re
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import ir, relax

from ...errors import RelayError

Array = np.ndarray[Any, np.dtype[Any]]

CONSTANT = "relay.Constant"
BOXED = "runtime.BoxInt"
_OLD_KEYS = {"Constant": CONSTANT, "BoxInt": BOXED}
_ONE_LINE = 10  # how many numbers TVM writes in one line
_DAMAGED = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    struct.error,
)

_MAGIC = 0xDD5E40F096B4A13F
_PARAMS_MAGIC = 0xF7E58D4F05049CB7
_HEADER = struct.Struct("<QQiiiBBH")
_CPU = 1
_MOST_DIMENSIONS = 32  # more than any operator takes, and no more than any NumPy takes
_DTYPES: dict[tuple[int, int], np.dtype[Any]] = {
    **{(0, bits): np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{(1, bits): np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{(2, bits): np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (6, 8): np.dtype(bool),
    # Relay's bool is an integer of one bit. It comes last, so that it is the one that is written.
    (1, 1): np.dtype(bool),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


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

    def text(self) -> str:
        """Write the section."""
        # Relay goes through a hash table here, which gives the last key first.
        groups = list(reversed(self._entries.items()))
        root: dict[str, Any] = {"type_key": "Map", "keys": [key for key, _ in groups], "data": []}
        nodes: list[dict[str, Any]] = [{"type_key": ""}, root]
        arrays: list[str] = []
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
                    arrays.append(f'\n    "{_base64(entry.numpy())}"')
        listed = ", \n".join("    " + _json(node, 4) for node in nodes)
        tensors = ", ".join(arrays) + "\n  " * bool(arrays)
        return (
            f'{{\n  "root": 1, \n  "nodes": [\n{listed}\n  ], \n  "b64ndarrays": [{tensors}], \n'
            '  "attrs": {"tvm_version": "0.18.0"}\n}'
        )


class MetadataTable:
    """The metadata section of a text, which is read when something first refers to it.

    It starts at the index `start` of the text; None for a text without a section.
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
        """Return an attribute's value: the number at a reference."""
        if CONSTANT not in reference:
            entries, index = self._find(reference, BOXED)
            return int(entries[index])
        value = self.constant(reference).value.numpy()
        if value.ndim:
            what = f"An attribute cannot be a tensor of shape {value.shape}"
            raise RelayError(what, fix="use a constant without axes")
        return value.item()

    def _find(self, reference: str, kind: str) -> tuple[list[Any], int]:
        key, digits = re.findall(r"[\w.]+", reference)[1:]
        if key != kind:
            raise RelayError(f"A {key} cannot stand here", fix=f"only a {kind} can")
        if self.start is None:
            what = f"{reference} refers to metadata, and the text has none"
            raise RelayError(what, fix="print the module with show_meta_data=True")
        if self._entries is None:
            lines = self._text.count("\n", 0, self.start)
            self._entries = decode(self._text[self.start :], lines)
        entries = self._entries.get(key, [])
        if len(digits) > 9 or int(digits) >= len(entries):
            what = f"{key} has no entry {digits[:20]} in the metadata, which has {len(entries)}"
            raise RelayError(what, fix="is the text complete?")
        return entries, int(digits)


def decode(text: str, line_offset: int = 0) -> dict[str, list[Any]]:
    """Read a metadata section that has a number of lines before it.

    The result maps each type key to the values of ``meta[key][index]``: a constant's tensor, a
    NumPy view that cannot be written to; an integer for ``runtime.BoxInt`` and ``IntImm``; None for
    what has no counterpart in Relax, such as a virtual device. `RelayError` for a damaged section.
    """
    position = 0
    try:
        graph = json.loads(text)
        nodes, arrays = graph["nodes"], graph.get("b64ndarrays", [])
        root = _node(nodes, graph["root"], "Map", "StrMap")
        found: dict[str, list[Any]] = {}
        for old, at in zip(root["keys"], root.get("data", []), strict=True):
            key = _OLD_KEYS.get(old, old)
            if key in found:
                raise ValueError(f"the key {key} is there twice")
            items = _node(nodes, at, "Array").get("data", [])
            found[key] = [_entry(key, _node(nodes, one, key, old), nodes, arrays) for one in items]
        return found
    except _DAMAGED as wrong:
        position = wrong.pos if isinstance(wrong, json.JSONDecodeError) else 0
        reason = repr(wrong)[:200]
    line = line_offset + text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    made = RelayError(
        f"The metadata section is damaged: {reason}",
        where=f"line {line}, column {column}, in the metadata section",
        fix="print the module again, and do not edit this section",
    )
    made.line, made.column = line, column
    raise made


def _node(nodes: list[Any], index: int, *kinds: str) -> dict[str, Any]:
    """Return a node, which must be of one of some kinds; nodes count from 1."""
    node: dict[str, Any] = nodes[index]
    if type(index) is not int or index <= 0 or node["type_key"] not in kinds:
        raise ValueError(f"node {index!r} is not of type {kinds[0]}")
    return node


def _entry(key: str, node: dict[str, Any], nodes: list[Any], arrays: list[str]) -> Any:
    if key == BOXED:
        return int(node["repr_str"])
    if key == "IntImm":
        return int(node["attrs"]["value"])
    if key != CONSTANT:
        return None
    number = int(node["attrs"]["data"])
    if number < 0:
        raise ValueError(f"there is no tensor number {number}")
    data = binascii.a2b_base64(arrays[number], strict_mode=True)
    array, end = _read_tensor(data)
    if end != len(data):
        raise ValueError(f"a tensor ends {len(data) - end} bytes before its text does")
    declared = node["attrs"].get("_checked_type_")
    if declared not in (None, "null", "0"):
        type_ = nodes[int(declared)]["attrs"]
        sizes = [nodes[at] for at in nodes[int(type_["shape"])].get("data", [])]
        for size, real in zip(sizes, array.shape, strict=True):
            if size["type_key"] == "IntImm" and int(size["attrs"]["value"]) != real:
                raise ValueError(f"a size of the shape {array.shape} is declared otherwise")
        if type_["dtype"] != str(array.dtype):
            raise ValueError(f"a tensor of {array.dtype} is declared {type_['dtype']}")
    return array


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


def _base64(array: Array) -> str:
    """Write a tensor with its header."""
    code = _CODES.get(array.dtype)
    if code is None:
        names = ", ".join(sorted(map(str, _CODES)))
        raise RelayError(f"Relay has no tensors of {array.dtype}", fix=f"cast it to one of {names}")
    header = _HEADER.pack(_MAGIC, 0, _CPU, 0, array.ndim, *code, 1)
    header += struct.pack(f"<{array.ndim + 1}q", *array.shape, array.nbytes)
    return binascii.b2a_base64(header + array.tobytes(), newline=False).decode("ascii")


def _read_tensor(data: bytes, start: int = 0) -> tuple[Array, int]:
    """Read a tensor at an index, as a read-only view of the data, and return where it ends.

    A damaged header is refused, so that it cannot ask for more memory than the data has.
    """
    magic, _, _, _, ndim, kind, bits, lanes = _HEADER.unpack_from(data, start)
    dtype = _DTYPES.get((kind, bits))
    if magic != _MAGIC or dtype is None or lanes != 1 or not 0 <= ndim <= _MOST_DIMENSIONS:
        raise ValueError(f"the header of the tensor at byte {start} is damaged")
    start += _HEADER.size
    *shape, stated = struct.unpack_from(f"<{ndim + 1}q", data, start)
    start += 8 * (ndim + 1)
    count = math.prod(shape)
    if min(shape, default=0) < 0 or stated != count * dtype.itemsize:
        raise ValueError(f"a tensor of {dtype} with the shape {shape} cannot have {stated} bytes")
    return np.frombuffer(data, dtype, count, start).reshape(shape), start + stated


def load_params(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a file of parameters, which `tvm.runtime.save_param_dict` wrote.

    Raises
    ------
    RelayError
        The file is missing, cannot be read, is damaged or holds something else.
    """
    try:
        return _read_params(Path(path).read_bytes())
    except (OSError, *_DAMAGED) as wrong:
        what = f"The parameters cannot be read: {wrong}"
        fix = "save it again with tvm.runtime.save_param_dict, and copy it as binary"
        if isinstance(wrong, OSError):
            fix = "give the path of a .params file"
        raise RelayError(what, where=str(path), fix=fix) from wrong


def _read_params(data: bytes) -> dict[str, Array]:
    """Read 8-byte magic, 8 reserved bytes, a list of names and a list of tensors."""
    magic, _, count = struct.unpack_from("<QQQ", data)
    if magic != _PARAMS_MAGIC:
        raise ValueError(f"parameters start with {_PARAMS_MAGIC:016x}, and these with {magic:016x}")
    position = 24
    names: list[str] = []
    for _ in range(count):  # ends with the data at the latest: a name has eight bytes or more
        (size,) = struct.unpack_from("<Q", data, position)
        position += 8 + size
        names.append(data[position - size : position].decode())
    (tensors,) = struct.unpack_from("<Q", data, position)
    position += 8
    params: dict[str, Array] = {}
    for name in names:
        params[name], position = _read_tensor(data, position)
    if not tensors == count == len(params) or position != len(data):
        raise ValueError("the numbers of names, tensors and bytes do not fit each other")
    return params
