"""Files of parameters as TVM saves them: read, or refused where they are damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm

from tvmlab.errors import RelayError
from tvmlab.ir.text.metadata import load_params

PARAMS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "features.0/with space": np.array(-7, np.int8),
    "größe": np.zeros((0, 4), np.int64),
    "mask": np.array([True, False]),
    "half": np.array([1.5], np.float16),
}
START = 24  # magic, reserved bytes, number of names


def saved(**arrays: np.ndarray) -> bytes:
    return bytes(tvm.runtime.save_param_dict(arrays))


def put(at: int, form: str, *values: int) -> bytes:
    data = bytearray(SAVED)
    struct.pack_into(form, data, at, *values)
    return bytes(data)


SAVED = saved(**PARAMS)
FIRST = SAVED.index(struct.pack("<Q", 0xDD5E40F096B4A13F))  # the first tensor's header
BOOL = SAVED.index(b"\x06\x08\x01\x00")
BRAIN = {"b": np.array([1.5, -2], ml_dtypes.bfloat16)}


@pytest.mark.parametrize(
    ("data", "wanted"),
    [(SAVED, PARAMS), (put(BOOL, "<BBH", 1, 1, 1), PARAMS), (saved(**BRAIN), BRAIN)],
    ids=["TVM's", "Relay's bool", "bfloat16"],
)
def test_what_tvm_saved_is_read(tmp_path: Path, data: bytes, wanted: dict[str, np.ndarray]) -> None:
    path = tmp_path / "net.params"
    path.write_bytes(data)
    found = load_params(str(path))
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@pytest.mark.parametrize(("path", "words"), [("none.params", "none.params"), ("a\0b", "null")])
def test_a_file_that_cannot_be_read_is_named(path: str, words: str) -> None:
    with pytest.raises(RelayError, match="cannot be read") as caught:
        load_params(path)
    assert words in str(caught.value)


def test_truncated_anywhere_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.params"
    for end in range(len(SAVED)):
        path.write_bytes(SAVED[:end])
        with pytest.raises(RelayError):
            load_params(path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (put(0, "<Q", 1), "start with f7e58d4f05049cb7"),
        (put(START, "<Q", 2**62), "cannot be read"),
        (put(START, "<Q", 2**64 - 1), "cannot be read"),
        (put(START + 8, "<B", 0xFF), "utf-8"),
        (put(FIRST - 8, "<Q", 4), "names, tensors and bytes"),
        (put(FIRST, "<Q", 5), "the header of the tensor"),
        (put(FIRST + 24, "<i", -1), "the header of the tensor"),
        (put(FIRST + 24, "<i", 2**31 - 1), "the header of the tensor"),
        (put(FIRST + 28, "<BBH", 9, 8, 1), "the header of the tensor"),
        (put(FIRST + 28, "<BBH", 2, 32, 4), "the header of the tensor"),
        (SAVED + b"\0", "names, tensors and bytes"),
        (saved(a=np.int32(1), b=np.int32(2)).replace(b"b", b"a"), "names, tensors and bytes"),
    ],
)
def test_damaged_parameters_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "some.params"
    path.write_bytes(data)
    with pytest.raises(RelayError, match=message) as caught:
        load_params(path)
    assert caught.value.where == str(path)
    assert caught.value.fix
