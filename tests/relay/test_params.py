"""Files of parameters: TVM's own form both ways, and what is refused."""

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
SAVED = params.save_param_dict(PARAMS)


def same(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_bytes_are_those_of_tvm() -> None:
    wanted = {name: tvm.runtime.tensor(array) for name, array in PARAMS.items()}
    assert bytes(tvm.runtime.save_param_dict(wanted)) == SAVED
    assert params.save_param_dict(wanted) == SAVED


def test_what_tvm_saved_is_read_and_the_other_way() -> None:
    same(params.load_param_dict(bytearray(SAVED)), PARAMS)
    found = tvm.runtime.load_param_dict(SAVED)
    same({name: found[name].numpy() for name in PARAMS}, PARAMS)


def test_bool_and_bfloat16_of_relay_are_read() -> None:
    at = SAVED.index(b"\x06\x08\x01\x00")
    old = SAVED[:at] + b"\x01\x01\x01\x00" + SAVED[at + 4 :]
    same(params.load_param_dict(old), PARAMS)
    brain = {"b": np.array([1.5, -2], ml_dtypes.bfloat16)}
    same(params.load_param_dict(params.save_param_dict(brain)), brain)


def test_strides_and_python_numbers_are_taken() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    found = params.load_param_dict(params.save_param_dict({"a": array, "n": 2.5}))
    np.testing.assert_array_equal(found["a"], array)
    assert found["n"] == 2.5


def test_a_file_comes_back_and_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "net.params"
    path.write_text("old")
    params.save_params(path, PARAMS)
    assert path.read_bytes() == SAVED
    same(params.load_params(str(path)), PARAMS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.params"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "net.params"
    params.save_params(path, PARAMS)
    with pytest.raises(RelayError, match="no tensors of complex64") as caught:
        params.save_params(path, {**PARAMS, "z": np.zeros(2, np.complex64)})
    assert caught.value.where == "parameter 'z'"
    assert "float32" in str(caught.value.fix)
    assert path.read_bytes() == SAVED
    assert len(list(tmp_path.iterdir())) == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RelayError, match="cannot be read") as caught:
        params.load_params(tmp_path / "none.params")
    assert "none.params" in str(caught.value.where)


def test_a_null_in_the_path_is_told() -> None:
    with pytest.raises(RelayError, match="null"):
        params.load_params("a\0b")


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


FIRST = SAVED.index(struct.pack("<Q", 0xDD5E40F096B4A13F))  # the first tensor's header
TWICE = params.save_param_dict({"a": 1, "b": 2}).replace(b"b", b"a")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (put(0, "<Q", 1), "Parameters start with f7e58d4f05049cb7"),
        (put(16, "<Q", 2**63), "A name "),
        (put(START, "<Q", 2**62), f"A name has {2**62} bytes"),
        (put(START + 8, "<B", 0xFF), "not UTF-8"),
        (put(FIRST - 8, "<Q", 4), "5 names and 4 tensors"),
        (put(FIRST, "<Q", 5), "'weight': A tensor starts with dd5e40f096b4a13f"),
        (put(FIRST + 24, "<i", -1), "cannot have -1 dimensions"),
        (put(FIRST + 24, "<i", 2**31 - 1), "cannot have 2147483647 dimensions"),
        (put(FIRST + 28, "<BBH", 9, 8, 1), "the code 9 with 8 bits"),
        (put(FIRST + 28, "<BBH", 2, 32, 4), "and 4 lanes"),
        (put(FIRST + 32, "<qq", 2**62, 2**62), "cannot have 24 bytes"),
        (put(FIRST + 32, "<qqq", 2**31, 2**31, 2**64 // 4 - 1), "cannot have"),
        (put(FIRST + 32, "<qqq", 2**20, 2**20, 2**42), f"has {2**42} bytes, and"),
        (put(FIRST + 32, "<qq", -2, -3), "cannot have 24 bytes"),
        (lambda: SAVED + b"\0", "1 bytes follow"),
        (lambda: TWICE, "the same name"),
        (lambda: b"", "24 bytes at least"),
    ],
)
def test_lies_are_refused(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(RelayError, match=message) as caught:
        params.load_param_dict(make(), "some.params")
    assert caught.value.where == "some.params"
    assert caught.value.fix
