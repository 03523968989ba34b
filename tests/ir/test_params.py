"""Files of parameters as TVM saves them: read, or refused where they are damaged."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tvm

from tvmlab.errors import RelayError
from tvmlab.ir.text import params

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


SAVED = saved(**PARAMS)
FIRST = SAVED.index(struct.pack("<Q", 0xDD5E40F096B4A13F))  # the first tensor's header
TWICE = saved(a=np.int32(1), b=np.int32(2)).replace(b"b", b"a")


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_what_tvm_saved_is_read(tmp_path: Path) -> None:
    same(params.load_param_dict(bytearray(SAVED)), PARAMS)
    path = tmp_path / "net.params"
    path.write_bytes(SAVED)
    same(params.load_params(str(path)), PARAMS)


def test_bool_and_bfloat16_of_relay_are_read() -> None:
    at = SAVED.index(b"\x06\x08\x01\x00")
    old = SAVED[:at] + b"\x01\x01\x01\x00" + SAVED[at + 4 :]
    same(params.load_param_dict(old), PARAMS)
    brain = np.array([1.5, -2], ml_dtypes.bfloat16)
    same(params.load_param_dict(saved(b=brain)), {"b": brain})


@pytest.mark.parametrize(("path", "words"), [("none.params", "none.params"), ("a\0b", "null")])
def test_a_file_that_cannot_be_read_is_named(path: str, words: str) -> None:
    with pytest.raises(RelayError, match="cannot be read") as caught:
        params.load_params(path)
    assert words in str(caught.value)


def test_truncated_anywhere_it_is_refused() -> None:
    for end in range(len(SAVED)):
        with pytest.raises(RelayError):
            params.load_param_dict(SAVED[:end])


def put(at: int, form: str, *values: int) -> Callable[[], bytes]:
    def change() -> bytes:
        data = bytearray(SAVED)
        struct.pack_into(form, data, at, *values)
        return bytes(data)

    return change


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (put(0, "<Q", 1), "Parameters start with f7e58d4f05049cb7"),
        (put(START, "<Q", 2**62), f"A name has {2**62} bytes"),
        (put(START + 8, "<B", 0xFF), "not UTF-8"),
        (put(FIRST - 8, "<Q", 4), "5 names and 4 tensors"),
        (put(FIRST, "<Q", 5), "A tensor starts with dd5e40f096b4a13f"),
        (put(FIRST + 24, "<i", -1), "cannot have -1 dimensions"),
        (put(FIRST + 24, "<i", 2**31 - 1), "cannot have 2147483647 dimensions"),
        (put(FIRST + 28, "<BBH", 9, 8, 1), "the code 9 with 8 bits"),
        (put(FIRST + 28, "<BBH", 2, 32, 4), "and 4 lanes"),
        (lambda: SAVED + b"\0", "1 bytes follow"),
        (lambda: TWICE, "the same name"),
        (lambda: b"", "24 bytes at least"),
    ],
)
def test_damaged_parameters_are_refused(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(RelayError, match=message) as caught:
        params.load_param_dict(make(), "some.params")
    assert caught.value.where == "some.params"
    assert caught.value.fix
