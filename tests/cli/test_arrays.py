"""Arrays for a program from files, pictures and a generator, and files that are refused."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.oracles.models import said
from tvmlab import models
from tvmlab.cli import arrays
from tvmlab.cli.options import INPUTS
from tvmlab.errors import InputError
from tvmlab.runtime.signature import Input, Output, Signature

PHOTO = Input("data", (1, 3, 224, 224), "float32")
SMALL = Input("x", (2, 3), "float32")
BYTES = Input("y", ("n", 4), "int8")
TWO = Signature((SMALL, BYTES))
DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def options(path: str | Path | None = None, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(parents=INPUTS)
    return parser.parse_args([*(["-i", str(path)] if path else []), *words])


def pickled() -> bytes:
    """An .npy file of objects, which only pickle reads."""
    file = io.BytesIO()
    np.save(file, np.array([object()]), allow_pickle=True)
    return file.getvalue()


def test_arrays_by_name_and_missing_ones_filled(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(path, x=x)
    got = arrays.input_arrays(options(path, "--fill", "ones"), TWO)
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], np.ones((1, 4), np.int8))
    with pytest.raises(InputError, match="no array for the input 'y'") as caught:
        arrays.input_arrays(options(path), TWO)
    assert "--fill" in said(caught.value)
    np.savez(path, z=x)
    with pytest.raises(InputError, match="there is no input named 'z'") as caught:
        arrays.input_arrays(options(path, "--fill", "ones"), TWO)
    assert "it takes x: float32[2, 3], y: int8[n, 4]" in said(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.npz", b"nothing"),
        ("objects.npy", pickled()),
        ("cut.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
    ],
)
def test_a_file_that_cannot_be_read(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read, or it is damaged") as caught:
        arrays.input_arrays(options(path), Signature((PHOTO,)))
    assert str(path) in said(caught.value)


@pytest.mark.parametrize("ending", [".png", ".jpg", ".PNG"])
def test_a_picture_is_preprocessed_as_a_sample_is(ending: str, tmp_path: Path) -> None:
    picture = models.sample_image()
    path = tmp_path / f"china{ending}"
    Image.fromarray(picture).save(path, quality=95)
    (got,) = arrays.input_arrays(options(path), Signature((PHOTO,)))
    tolerance = 0.5 if ending == ".jpg" else 0
    assert np.abs(got - models.preprocess(picture)).max() <= tolerance
    with pytest.raises(InputError, match="input 'y' is of dtype float32, not int8"):
        arrays.input_arrays(options(path), Signature((BYTES,)))


@given(st.sampled_from(DTYPES), st.sampled_from(["random", "zeros", "ones"]), st.integers(-5, 99))
def test_filled_arrays_fit_and_are_the_same_again(dtype: str, fill: str, seed: int) -> None:
    args = options(None, "--fill", fill, "--seed", str(seed))
    signature = Signature((Input("x", (3, "n", 50), dtype),))
    (array,) = arrays.input_arrays(args, signature)
    assert (str(array.dtype), array.shape) == (dtype, (3, 1, 50))
    np.testing.assert_array_equal(array, arrays.input_arrays(args, signature)[0])
    if fill == "random":
        assert len(np.unique(array)) > 1
        assert dtype in ("int8", "uint8") or (array.min() >= 0 and array.max() < 128)


def test_outputs_have_names(tmp_path: Path) -> None:
    a = np.ones(2, np.float32)
    outputs = tuple(Output(name, (2,), "float32") for name in ("data", "a/b", "ö"))
    named = arrays.name_outputs((a, (a + 1, a + 2)), outputs)
    arrays.save_arrays(str(tmp_path / "named"), named)
    with np.load(tmp_path / "named") as read:
        assert read.files == ["data", "a/b", "ö"]
        for name in read.files:
            np.testing.assert_array_equal(read[name], named[name])
