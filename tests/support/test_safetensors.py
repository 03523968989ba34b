"""The format as another library writes it, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tvmlab.errors import ModelError
from tvmlab.support import safetensors

ARRAYS = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array([1, -2], np.int8),
    "empty": np.zeros((0, 4), np.float16),
    "scalar": np.array(7, np.int64),
}


def file(tmp_path: Path, header: Any, numbers: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)
    return path


def test_arrays_return_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.write(path, ARRAYS)
    found = safetensors.read(path)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    found["b"][0, 0] = 1  # the arrays own their memory


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    values = torch.tensor([[1.5, -3e38], [1e-40, torch.inf]], dtype=torch.bfloat16)
    header = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
    }
    path = file(tmp_path, header, values.view(torch.uint16).numpy().tobytes())
    found = safetensors.read(path)["w"]
    np.testing.assert_array_equal(found, values.float().numpy())


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.write(path, ARRAYS)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError):
            safetensors.read(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(ModelError, match="1 bytes follow the last tensor"):
        safetensors.read(path)
    with pytest.raises(ModelError, match="cannot be read"):
        safetensors.read(tmp_path / "absent")


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a list of tensors"),
        (b"\xff\xfe", "not JSON"),
        ({"w": 1}, "tensor 'w' lacks a shape"),
        ({"w": {"dtype": "F32"}}, "tensor 'w' lacks a shape"),
        ({"w": {**ONE, "shape": [-1]}}, "tensor 'w' lacks a shape"),
        ({"w": {**ONE, "shape": [True]}}, "tensor 'w' lacks a shape"),
        ({"w": {**ONE, "data_offsets": [0, 4, 8]}}, "two places"),
        ({"w": {**ONE, "dtype": None}}, "dtype 'None'"),
        ({"w": {**ONE, "shape": [2]}}, "'w' is not where"),
        ({"w": {**ONE, "data_offsets": [4, 0]}}, "'w' is not where"),
        ({"w": ONE, "v": ONE}, "is not where"),
        ({"w": {**ONE, "dtype": "F8_E4M3"}}, "dtype 'F8_E4M3', which is not supported"),
        ({"w": {**ONE, "shape": [2], "data_offsets": [0, 8]}}, "truncated: tensor 'w'"),
    ],
)
def test_damaged_headers(tmp_path: Path, header: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        safetensors.read(file(tmp_path, header, b"1234"))
