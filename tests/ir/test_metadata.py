"""The metadata section: byte for byte as Relay writes it, and lies in it told with their place."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm

from tvmlab.errors import RelayError
from tvmlab.ir.text import metadata
from tvmlab.ir.text.metadata import Section, decode

DATA = Path(__file__).parents[1] / "data" / "relay"
MARK = "#[metadata]\n"
GOLDEN = [path for path in sorted(DATA.rglob("*.relay")) if MARK in path.read_text()]
# In what real Relay partitioned or folded, two types share the node of one size.
SHARED = {"tflite_before", "tflite_after", "torch_after"}


def section(*entries: Any) -> str:
    made = Section()
    for entry in entries:
        if isinstance(entry, int):
            made.boxed(entry)
        else:
            made.constant(tvm.runtime.tensor(entry))
    return "".join(made.text())


ONE = section(np.arange(6, dtype=np.float32).reshape(2, 3))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_relay_wrote_is_written_again(path: Path) -> None:
    text = path.read_text().partition(MARK)[2]
    found = decode(text)
    entries = [entry for key in reversed(found) for entry in found[key]]
    again = section(*entries)
    assert (again == text) == (path.stem.removesuffix("_partitioned") not in SHARED)
    assert json.loads(again)["b64ndarrays"] == json.loads(text)["b64ndarrays"]


def test_constants_have_the_values_that_relay_computed() -> None:
    found = decode((DATA / "constants.relay").read_text().partition(MARK)[2])
    outputs = np.load(DATA / "constants.npz")
    assert len(found[metadata.CONSTANT]) == 9
    for index, array in enumerate(found[metadata.CONSTANT]):
        assert array.dtype == outputs[f"out_{index}"].dtype
        np.testing.assert_array_equal(array, outputs[f"out_{index}"])


DTYPES = ["bool", "float16", "float32", "float64", ml_dtypes.bfloat16, "int8", "int16", "int32"]
DTYPES += ["int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3), (1, 1, 1, 1, 7)], ids=str)
def test_every_dtype_comes_back(dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) * 3 + 1).reshape(shape).astype(dtype)
    (found,) = decode(section(array))[metadata.CONSTANT]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


def test_bool_is_written_as_relay_had_it() -> None:
    coded = json.loads(section(np.array([True])))["b64ndarrays"][0]
    assert base64.b64decode(coded)[28:32] == b"\x01\x01\x01\x00"


def test_integers_and_constants_keep_their_order() -> None:
    made = Section()
    one, two = np.array([1.0], np.float32), np.array([2], np.int8)
    references = [made.constant(tvm.runtime.tensor(one)), made.boxed(7), made.boxed(-1)]
    references.append(made.constant(tvm.runtime.tensor(two)))
    assert references == [
        "meta[relay.Constant][0]",
        "meta[runtime.BoxInt][0]",
        "meta[runtime.BoxInt][1]",
        "meta[relay.Constant][1]",
    ]
    found = decode("".join(made.text()))
    assert found["runtime.BoxInt"] == [7, -1]
    assert [list(array) for array in found["relay.Constant"]] == [[1.0], [2]]


def test_a_large_constant_is_written_in_pieces_that_fit() -> None:
    array = np.random.default_rng(0).integers(0, 256, 7_000_003).astype(np.uint8)
    made = Section()
    made.constant(tvm.runtime.tensor(array))
    pieces = list(made.text())
    assert max(map(len, pieces)) < 5_000_000
    np.testing.assert_array_equal(decode("".join(pieces))["relay.Constant"][0], array)


def test_the_arrays_are_views_and_cannot_be_changed() -> None:
    (found,) = decode(ONE)[metadata.CONSTANT]
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def test_integers_alone_need_no_tensors() -> None:
    text = section(3)
    assert '"b64ndarrays": []' in text
    assert decode(text) == {"runtime.BoxInt": [3]}


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


def node(number: int, **changes: Any) -> str:
    """Change a node of the section: 3 a constant, 6 its type, 7 its shape, 8 the first size."""
    graph = json.loads(ONE)
    graph["nodes"][number].update(changes)
    return json.dumps(graph, indent=1)


def attribute(number: int, **changes: str) -> str:
    graph = json.loads(ONE)
    graph["nodes"][number]["attrs"].update(changes)
    return json.dumps(graph, indent=1)


def tensor(change: Any) -> str:
    graph = json.loads(ONE)
    data = bytearray(base64.b64decode(graph["b64ndarrays"][0]))
    graph["b64ndarrays"][0] = base64.b64encode(change(data)).decode()
    return json.dumps(graph, indent=1)


def put(at: int, new: bytes) -> str:
    return tensor(lambda data: data[:at] + new + data[at + len(new) :])


def huge(number: int) -> bytes:
    return number.to_bytes(8, "little")


LIES = {
    "no_json": ("{", "not JSON"),
    "deep": ("[" * 100_000, "not TVM's|not JSON"),
    "list": ("[]", "no lists of nodes"),
    "long_number": ('{"root": ' + "1" * 10_000 + "}", "not TVM's"),
    "no_root": (ONE.replace('"root": 1', '"root": null'), "number None is wanted"),
    "root_beyond": (ONE.replace('"root": 1', '"root": 99'), "number 99 is wanted"),
    "root_true": (ONE.replace('"root": 1', '"root": true'), "number True is wanted"),
    "root_none": (ONE.replace('"root": 1', '"root": 0'), "number 0 is wanted"),
    "root_array": (ONE.replace('"root": 1', '"root": 2'), "type Map, not Array"),
    "keys": (node(1, keys=[]), "one key for each list"),
    "key": (node(1, keys=[3]), "no string"),
    "keys_twice": (node(1, keys=["Constant", "relay.Constant"], data=[2, 2]), "twice"),
    "data": (node(2, data="33"), "no list"),
    "cycle": (node(2, data=[2]), "type relay.Constant, not Array"),
    "cycle_root": (node(1, data=[1]), "type Array, not Map"),
    "negative": (node(2, data=[-1]), "number -1 is wanted"),
    "float": (node(2, data=[3.0]), "number 3.0 is wanted"),
    "no_node": (ONE.replace('{\n      "type_key": "Map"', '3, {\n "type_key": "Map"'), "not None"),
    "attrs": (node(3, attrs=[]), "no map"),
    "no_data": (attribute(3, data="x"), "'x' is not the number of a tensor"),
    "data_beyond": (attribute(3, data="1"), "1 tensors, and here number 1"),
    "data_negative": (attribute(3, data="-1"), "here number -1"),
    "type_is_array": (attribute(3, _checked_type_="2"), "relay.TensorType, not Array"),
    "type_beyond": (attribute(3, _checked_type_="1000"), "number 1000 is wanted"),
    "no_shape": (attribute(6, shape="null"), "has no shape"),
    "shape_itself": (attribute(6, shape="6"), "type Array, not relay.TensorType"),
    "shape_cycle": (node(7, data=[7, 7]), "type IntImm, not Array"),
    "other_shape": (attribute(8, value="3"), r"says float32 and \[3, 3\]"),
    "other_rank": (node(7, data=[8]), "has 1 dimensions, its tensor 2"),
    "other_dtype": (attribute(6, dtype="int8"), "says int8"),
    "long_size": (attribute(8, value="9" * 5000), "is not a size"),
    "no_base64": (ONE.replace('"P6G', '"P6!'), "not written in base64"),
    "not_ascii": (ONE.replace('"P6G', '"P6é'), "not written in base64"),
    "not_text": (re.sub(r'"P6G[^"]*"', "5", ONE), "not written as a string"),
    "magic": (put(0, b"\0"), "starts with dd5e40f096b4a13f"),
    "dtype": (put(28, b"\x07"), "the code 7 with 32 bits"),
    "lanes": (put(30, b"\x02"), "2 lanes"),
    "dimensions": (put(24, b"\xff\xff\xff\x7f"), "2147483647 dimensions"),
    "huge": (put(32, huge(2**40) + huge(2**40)), "cannot have 24 bytes"),
    "huge_and_said": (put(32, huge(2**20) * 2 + huge(2**42)), f"has {2**42} bytes, and 24"),
    "overflow": (put(32, huge(2**32) * 2 + huge(0)), "cannot have 0 bytes"),
    "minus": (put(32, b"\xff" * 8), "cannot have 24 bytes"),
    "short": (tensor(lambda data: data[:-1]), "24 bytes, and 23 are left"),
    "long": (tensor(lambda data: data + b"\0"), "ends 1 bytes before"),
    "header": (tensor(lambda data: data[:20]), "32 bytes, and 20 are left"),
    "shape_cut": (tensor(lambda data: data[:40]), "ends before"),
    "no_tensor": (tensor(lambda data: b""), "32 bytes, and 0 are left"),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_are_told_with_their_place(name: str) -> None:
    text, message = LIES[name]
    with pytest.raises(RelayError, match=message) as caught:
        decode(text, 100)
    error = caught.value
    assert error.line is not None
    assert error.column is not None
    assert 100 < error.line <= 101 + text.count("\n")
    assert f"line {error.line}, column {error.column}" in str(error)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        (LIES["cycle"][0], '{\n   "type_key": "Array",\n   "data": [\n    2'),
        (LIES["other_shape"][0], '{\n   "type_key": "relay.Constant"'),
        (LIES["magic"][0], '"A'),
        (LIES["no_base64"][0], '"P6!'),
        (ONE.replace('"root": 1', '"root" 1'), "1, "),
    ],
)
def test_the_place_is_where_the_lie_stands(text: str, there: str) -> None:
    with pytest.raises(RelayError) as caught:
        decode(text)
    assert caught.value.line is not None
    assert caught.value.column is not None
    rest = "\n".join(text.split("\n")[caught.value.line - 1 :])[caught.value.column - 1 :]
    assert rest.startswith(there)


def test_truncated_anywhere_it_is_refused() -> None:
    for end in range(len(ONE)):
        with pytest.raises(RelayError):
            decode(ONE[:end])


def test_a_dtype_that_relay_has_not_is_refused() -> None:
    made = Section()
    made.constant(tvm.runtime.tensor(np.zeros(2, ml_dtypes.float8_e4m3fn)))
    with pytest.raises(RelayError, match="no tensors of float8_e4m3fn"):
        list(made.text())
