"""Constants in Relay's files: the metadata section of its text, and ``.params`` files.

The section is TVM's JSON graph: a list of nodes that refer to each other by index. Its root maps
type keys to arrays: ``meta[relay.Constant][3]`` is item 3 of the array under
``relay.Constant``. `src/node/serialization.cc` of TVM 0.18 defines the format; the order of the
nodes and the whitespace are those that Relay writes.

The tensors follow the nodes, as base64, in the format of `SaveDLTensor` in TVM's `tensor.h`: a
header of 8-byte magic, 8 reserved bytes, device, number of dimensions and dtype; the dimensions;
the number of bytes; the bytes. This module also reads parameter files, because TVM's reader hangs
on a damaged file.
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
from tvm import ir, relax

from ...errors import RelayError
from .literals import error_at

Array = np.ndarray[Any, np.dtype[Any]]

CONSTANT = "relay.Constant"
BOXED = "runtime.BoxInt"
# TVM writes up to ten numbers per line.
_NUMBERS = re.compile(r"\[\n\s+(\d+(?:, \n\s+\d+){0,9})\n\s+\]")
_DAMAGED = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    struct.error,
)

_MAGIC = 0xDD5E40F096B4A13F
_PARAMS_MAGIC = 0xF7E58D4F05049CB7
_HEADER = struct.Struct("<QQiiiBBH")
_CPU = 1
_MOST_DIMENSIONS = 32  # enough for any operator, and supported by any NumPy
_DTYPES: dict[tuple[int, int], np.dtype[Any]] = {
    **{(0, bits): np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{(1, bits): np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{(2, bits): np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    (4, 16): np.dtype(ml_dtypes.bfloat16),
    (6, 8): np.dtype(bool),
    # Relay's bool is a 1-bit integer. It comes last, so that the writer uses it.
    (1, 1): np.dtype(bool),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class MetadataWriter:
    """Writer of a metadata section, which collects the constants that the text refers to."""

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
        # Relay iterates over a hash table here, which returns the last key first.
        groups = list(reversed(self._entries.items()))
        root: dict[str, Any] = {"type_key": "Map", "keys": [key for key, _ in groups], "data": []}
        nodes: list[dict[str, Any]] = [{"type_key": ""}, root]
        arrays: list[str] = []
        device = 0  # the node of the device that all constants share

        def add(kind: str, **fields: Any) -> int:
            nodes.append({"type_key": kind, **fields})
            return len(nodes) - 1

        for key, entries in groups:
            places: list[int] = []
            root["data"].append(add("Array", data=places))
            for entry in entries:
                if key == BOXED:
                    places.append(add(key, repr_str=str(entry)))
                    continue
                attrs = {"_checked_type_": "", "data": str(len(arrays)), "span": "0"}
                places.append(add(key, attrs=attrs))
                if not device:
                    device = len(nodes)
                    scope = {"device_type_int": "-1", "memory_scope": str(device + 1)}
                    more = {"target": "0", "virtual_device_id": "-1"}
                    add("VirtualDevice", attrs=scope | more)
                    add("runtime.String")
                place, shape = len(nodes), entry.shape
                attrs |= {"_checked_type_": str(place), "virtual_device_": str(device)}
                declared = {"dtype": str(entry.dtype), "shape": str(place + 1), "span": "0"}
                add("relay.TensorType", attrs=declared)
                sizes = list(range(place + 2, place + 2 + len(shape)))
                add("Array", **({"data": sizes} if sizes else {}))
                for size in shape:
                    dtype = "int32" if size < 2**31 else "int64"
                    add("IntImm", attrs={"dtype": dtype, "span": "0", "value": str(size)})
                arrays.append(_base64(entry.numpy()))
        graph = {"root": 1, "nodes": nodes, "b64ndarrays": arrays}
        text = json.dumps(graph, indent=2, separators=(", ", ": "))
        text = _NUMBERS.sub(lambda found: re.sub(r",\s+", ", ", f"[{found[1]}]"), text)
        return text[:-2] + ', \n  "attrs": {"tvm_version": "0.18.0"}\n}'


class MetadataTable:
    """The metadata section of a text, which is decoded when something first refers to it.

    The section starts at the index `start` of the text; None means that the text has no section.
    Then `entries`, which the caller can set, replace it.
    """

    def __init__(self, text: str, start: int | None) -> None:
        self._text, self.start = text, start
        self.entries: dict[str, list[Any]] | None = None

    def constant(self, reference: str) -> ir.GenericConst:
        """Return the constant of ``meta[relay.Constant][0]``, the same object each time."""
        entries, index = self._find(reference, CONSTANT)
        if not isinstance(entries[index], ir.GenericConst):
            # Pass the dtype, because TVM would otherwise convert 64 bits to 32.
            entries[index] = relax.const(entries[index], str(entries[index].dtype))
        return entries[index]

    def attribute(self, reference: str) -> Any:
        """Return an attribute's value, which is the number at a reference."""
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
        if self.start is None and self.entries is None:
            what = f"{reference} refers to metadata, but the text has no metadata section"
            raise RelayError(what, fix="print the module with show_meta_data=True")
        if self.start is not None and self.entries is None:
            self.entries = decode(self._text, self.start)
        entries = (self.entries or {}).get(key, [])
        if key != kind or len(digits) > 9 or int(digits) >= len(entries):
            what = f"The metadata section has no {kind} for {reference[:60]}"
            raise RelayError(what, fix="check that the text is complete")
        return entries, int(digits)


def decode(text: str, start: int = 0) -> dict[str, list[Any]]:
    """Read the metadata section that starts at an index of a text.

    The result maps each type key to the values of ``meta[key][index]``: a read-only NumPy view for
    a constant's tensor; an integer for ``runtime.BoxInt`` and ``IntImm``; None for
    objects without a counterpart in Relax, such as a virtual device. `RelayError` if it is damaged.
    """
    try:
        graph = json.loads(text[start:])
        nodes, arrays = graph["nodes"], graph.get("b64ndarrays", [])
        root = _node(nodes, graph["root"], "Map")
        found: dict[str, list[Any]] = {}
        for key, at in zip(root["keys"], root.get("data", []), strict=True):
            items = _node(nodes, at, "Array").get("data", [])
            found[key] = [_entry(key, _node(nodes, one, key), arrays) for one in items]
        return found
    except _DAMAGED as wrong:
        start += wrong.pos if isinstance(wrong, json.JSONDecodeError) else 0
        what = f"The metadata section is damaged: {repr(wrong)[:200]}"
    raise error_at(text, start, what, "print the module again without editing this section")


def _node(nodes: list[Any], index: int, kind: str) -> dict[str, Any]:
    """Return a node, which must have a given type; nodes are numbered from 1."""
    node: dict[str, Any] = nodes[index]
    if type(index) is not int or index <= 0 or node["type_key"] != kind:
        raise ValueError(f"node {index!r} is not of type {kind}")
    return node


def _entry(key: str, node: dict[str, Any], arrays: list[str]) -> Any:
    if key == BOXED:
        return int(node["repr_str"])
    if key == "IntImm":
        return int(node["attrs"]["value"])
    if key != CONSTANT:
        return None
    number = int(node["attrs"]["data"])
    if number < 0:
        raise ValueError(f"there is no tensor {number}")
    data = binascii.a2b_base64(arrays[number], strict_mode=True)
    array, end = _read_tensor(data)
    if end != len(data):
        raise ValueError(f"a tensor's text has {len(data) - end} bytes too many")
    return array


def _base64(array: Array) -> str:
    code = _CODES.get(array.dtype)
    if code is None:
        names = ", ".join(sorted(map(str, _CODES)))
        raise RelayError(f"Relay has no tensors of {array.dtype}", fix=f"cast it to one of {names}")
    header = _HEADER.pack(_MAGIC, 0, _CPU, 0, array.ndim, *code, 1)
    header += struct.pack(f"<{array.ndim + 1}q", *array.shape, array.nbytes)
    return binascii.b2a_base64(header + array.tobytes(), newline=False).decode("ascii")


def _read_tensor(data: bytes, start: int = 0) -> tuple[Array, int]:
    """Read a tensor at an index, as a read-only view of the data, and return the end index.

    A damaged header is refused, so that it cannot request more memory than the data has.
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
    """Read a parameter file that `tvm.runtime.save_param_dict` wrote.

    Raises
    ------
    RelayError
        The file is missing, cannot be read, is damaged or contains something else.
    """
    try:
        return _read_params(Path(path).read_bytes())
    except (OSError, *_DAMAGED) as wrong:
        what = f"The parameters cannot be read: {wrong}"
        fix = "pass the path of a file that tvm.runtime.save_param_dict wrote, copied as binary"
        raise RelayError(what, where=str(path), fix=fix) from wrong


def _read_params(data: bytes) -> dict[str, Array]:
    """Read 8-byte magic, 8 reserved bytes, a list of names and a list of tensors."""
    magic, _, count = struct.unpack_from("<QQQ", data)
    if magic != _PARAMS_MAGIC:
        raise ValueError(f"parameters start with {_PARAMS_MAGIC:016x}, this file with {magic:016x}")
    position = 24
    names: list[str] = []
    for _ in range(count):  # bounded by the data, because a name has at least eight bytes
        (size,) = struct.unpack_from("<Q", data, position)
        position += 8 + size
        names.append(data[position - size : position].decode())
    (tensors,) = struct.unpack_from("<Q", data, position)
    position += 8
    params: dict[str, Array] = {}
    for name in names:
        params[name], position = _read_tensor(data, position)
    if not tensors == count == len(params) or position != len(data):
        raise ValueError("the numbers of names, tensors and bytes are inconsistent")
    return params
