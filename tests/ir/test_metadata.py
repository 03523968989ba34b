"""Constants in files: byte for byte as Relay writes them, and refused where they are damaged."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm

from tvmlab.errors import RelayError
from tvmlab.ir.text.metadata import BOXED, CONSTANT, MetadataWriter, decode, load_params


def section(*entries: Any) -> str:
    made = MetadataWriter()
    for entry in entries:
        boxed = isinstance(entry, int)
        made.add(BOXED if boxed else CONSTANT, entry if boxed else tvm.runtime.tensor(entry))
    return made.text()


ONE = section(np.arange(6, dtype=np.float32).reshape(2, 3))
DTYPES = ["bool", "float16", "float32", "float64", ml_dtypes.bfloat16, "int8", "int16", "int32"]
DTYPES += ["int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
def test_every_dtype_comes_back(dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) * 3 + 1).reshape(shape).astype(dtype)
    (found,) = decode(section(array))[CONSTANT]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


def test_bool_is_written_as_relay_had_it() -> None:
    coded = json.loads(section(np.array([True])))["b64ndarrays"][0]
    assert base64.b64decode(coded)[28:32] == b"\x01\x01\x01\x00"


def test_version_0_0_4_and_its_type_keys_are_read() -> None:
    graph = json.loads(ONE)
    graph["attrs"]["tvm_version"] = "0.6.0"
    graph["nodes"][1].update(type_key="StrMap", keys=["Constant"])
    for node in graph["nodes"]:
        node.get("attrs", {}).pop("virtual_device_", None)
    (found,) = decode(json.dumps(graph))["relay.Constant"]
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_other_nodes_are_none_and_integers_are_read() -> None:
    nodes = [
        {"type_key": ""},
        {"type_key": "Map", "keys": ["VirtualDevice", "IntImm"], "data": [2, 3]},
        {"type_key": "Array", "data": [4]},
        {"type_key": "Array", "data": [5]},
        {"type_key": "VirtualDevice", "attrs": {"target": "0"}},
        {"type_key": "IntImm", "attrs": {"dtype": "int64", "value": "-12"}},
    ]
    text = json.dumps({"root": 1, "nodes": nodes})
    assert decode(text) == {"VirtualDevice": [None], "IntImm": [-12]}


def test_sizes_that_are_any_fit_all() -> None:
    changed = re.sub(r'"IntImm", \n *"attrs": \{[^}]*"2"\n *\}', '"tir.Any"', ONE, count=1)
    assert '"tir.Any"' in changed
    assert decode(changed)["relay.Constant"][0].shape == (2, 3)


def tensor(change: Callable[[bytearray], bytes]) -> str:
    """Change the bytes of the section's tensor."""
    graph = json.loads(ONE)
    data = bytearray(base64.b64decode(graph["b64ndarrays"][0]))
    graph["b64ndarrays"][0] = base64.b64encode(change(data)).decode()
    return json.dumps(graph, indent=1)


def put(at: int, new: bytes) -> str:
    return tensor(lambda data: data[:at] + new + data[at + len(new) :])


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    """Change the section as JSON: node 1 its root, 2 the constants, 3 a constant, 6 its type."""
    graph = json.loads(ONE)
    change(graph)
    return json.dumps(graph, indent=1)


def attributes(number: int, **changes: str) -> str:
    return changed(lambda graph: graph["nodes"][number]["attrs"].update(changes))


LIES = {
    "a list": "[]",
    "a deep list": "[" * 100_000,
    "a long number": '{"root": ' + "1" * 10_000 + "}",
    **{f"root {root}": changed(partial(dict.update, root=root)) for root in (None, 99, -1, True)},
    "no key": changed(lambda graph: graph["nodes"][1].update(keys=[])),
    "a key twice": changed(
        lambda graph: graph["nodes"][1].update(keys=["Constant", "relay.Constant"], data=[2, 2])
    ),
    "a cycle": changed(lambda graph: graph["nodes"][2].update(data=[2])),
    "a node beyond": changed(lambda graph: graph["nodes"][2].update(data=[10**30])),
    "no attributes": changed(lambda graph: graph["nodes"][3].pop("attrs")),
    "a tensor before": attributes(3, data="-1"),
    "an array for a type": attributes(3, _checked_type_="2"),
    "another shape": attributes(8, value="3"),
    "another rank": changed(lambda graph: graph["nodes"][7].update(data=[8])),
    "another dtype": attributes(6, dtype="int8"),
    "no base64": ONE.replace('"P6G', '"P6!'),
    "another magic": put(0, b"\0"),
    "code 7": put(28, b"\x07"),
    "two lanes": put(30, b"\x02"),
    "many dimensions": put(24, b"\xff\xff\xff\x7f"),
    "huge, and so its size": put(32, struct.pack("<3Q", 2**20, 2**20, 2**42)),
    "an overflow": put(32, struct.pack("<3Q", 2**32, 2**32, 0)),
    "a negative size": put(32, b"\xff" * 8),
    "too short": tensor(lambda data: data[:-1]),
    "too long": tensor(lambda data: data + b"\0"),
}


@pytest.mark.parametrize("name", LIES)
def test_damaged_metadata_is_refused_with_its_place(name: str) -> None:
    text = LIES[name]
    with pytest.raises(RelayError) as caught:
        decode(text, 100)
    error = caught.value
    assert error.line is not None
    assert 100 < error.line <= 101 + text.count("\n")
    assert f"line {error.line}, column {error.column}" in str(error)


def test_truncated_anywhere_it_is_refused(tmp_path: Path) -> None:
    for end in range(len(ONE)):
        with pytest.raises(RelayError):
            decode(ONE[:end])
    path = tmp_path / "net.params"
    for end in range(len(SAVED)):
        path.write_bytes(SAVED[:end])
        with pytest.raises(RelayError):
            load_params(path)


def test_a_dtype_that_relay_has_not_is_refused() -> None:
    made = MetadataWriter()
    made.add(CONSTANT, tvm.runtime.tensor(np.zeros(2, ml_dtypes.float8_e4m3fn)))
    with pytest.raises(RelayError, match="no tensors of float8_e4m3fn"):
        made.text()


PARAMS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "features.0/with space": np.array(-7, np.int8),
    "größe": np.zeros((0, 4), np.int64),
    "mask": np.array([True, False]),
    "half": np.array([1.5], np.float16),
    "brain": np.array([1.5, -2], ml_dtypes.bfloat16),
}
SAVED = bytes(tvm.runtime.save_param_dict(PARAMS))
START = 24  # magic, reserved bytes, number of names
FIRST = SAVED.index(struct.pack("<Q", 0xDD5E40F096B4A13F))  # the first tensor's header
BOOL = SAVED.index(b"\x06\x08\x01\x00")


def saved(at: int, form: str, *values: int) -> bytes:
    """Change the bytes of the file of parameters."""
    data = bytearray(SAVED)
    struct.pack_into(form, data, at, *values)
    return bytes(data)


@pytest.mark.parametrize("data", [SAVED, saved(BOOL, "<BBH", 1, 1, 1)], ids=["TVM's", "Relay's"])
def test_parameters_that_tvm_saved_are_read(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "net.params"
    path.write_bytes(data)
    found = load_params(str(path))
    assert found.keys() == PARAMS.keys()
    for name, array in PARAMS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize(("path", "words"), [("none.params", "none.params"), ("a\0b", "null")])
def test_a_file_that_cannot_be_read_is_named(path: str, words: str) -> None:
    with pytest.raises(RelayError, match="cannot be read") as caught:
        load_params(path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (saved(0, "<Q", 1), "start with f7e58d4f05049cb7"),
        (saved(START, "<Q", 2**62), "cannot be read"),
        (saved(START, "<Q", 2**64 - 1), "cannot be read"),
        (saved(START + 8, "<B", 0xFF), "utf-8"),
        (saved(FIRST - 8, "<Q", 4), "names, tensors and bytes"),
        (saved(FIRST + 24, "<i", -1), "the header of the tensor"),
        (saved(FIRST + 28, "<BBH", 9, 8, 1), "the header of the tensor"),
        (SAVED + b"\0", "names, tensors and bytes"),
        (SAVED.replace(b"mask", b"half"), "names, tensors and bytes"),
    ],
)
def test_damaged_parameters_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "some.params"
    path.write_bytes(data)
    with pytest.raises(RelayError, match=message) as caught:
        load_params(path)
    assert caught.value.where == str(path)
    assert caught.value.fix
