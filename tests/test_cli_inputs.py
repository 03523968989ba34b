"""Arrays for a program: from files, pictures and a generator; and what is no array."""

from __future__ import annotations

import argparse
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_models import said
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tvmlab import models
from tvmlab.cli import inputs
from tvmlab.errors import InputError
from tvmlab.signature import Input, Output, Signature

PHOTO = Input("data", (1, 3, 224, 224), "float32")
LAST = Input("data", ("n", 224, 224, 3), "float32")
SMALL = Input("x", (2, 3), "float32")
BYTES = Input("y", ("n", 4), "int8")
FLOATS = ("float16", "float32", "float64", "bfloat16")
DTYPES = (*FLOATS, "int8", "uint8", "int32", "int64", "bool")


def told(path: str | Path | None = None, *options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    inputs.add_inputs(parser)
    return parser.parse_args([*(["-i", str(path)] if path else []), *options])


def test_arrays_by_name_and_what_is_missing_made_up(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(path, x=x)
    got = inputs.arrays(told(path, "--fill", "ones"), (SMALL, BYTES))
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], np.ones((1, 4), np.int8))
    with pytest.raises(InputError, match="no array for the input 'y'") as caught:
        inputs.arrays(told(path), (SMALL, BYTES))
    assert "--fill" in said(caught.value)
    np.savez(path, z=x)
    with pytest.raises(InputError, match="there is no input 'z'") as caught:
        inputs.arrays(told(path, "--fill", "ones"), (SMALL, BYTES))
    assert "x, y" in said(caught.value)


def test_one_array_for_the_only_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    assert inputs.arrays(told(tmp_path / "x.npy"), (SMALL,))[0].shape == (2, 3)
    with pytest.raises(InputError, match="one array was given, and the program takes 2"):
        inputs.arrays(told(tmp_path / "x.npy"), (SMALL, BYTES))


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_file_of_a_machine_with_another_order_of_bytes(name: str, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for order in "<>":
        array = x.astype(f"{order}f4")
        if name == "x.npy":
            np.save(tmp_path / name, array)
        else:
            np.savez(tmp_path / name, x=array)
        got = inputs.arrays(told(tmp_path / name), (SMALL,))
        np.testing.assert_array_equal(Signature((SMALL,)).bind(tuple(got), {})[0], x)


@pytest.mark.parametrize("ending", [".png", ".jpg", ".PNG"])
def test_a_picture_is_prepared_as_a_sample_is(ending: str, tmp_path: Path) -> None:
    picture = models.sample_image()
    path = tmp_path / f"china{ending}"
    Image.fromarray(picture).save(path, quality=95)
    got = inputs.arrays(told(path), (PHOTO,))[0]
    wanted = models.preprocess(picture)
    tolerance = 0.5 if ending == ".jpg" else 0
    assert np.abs(got - wanted).max() <= tolerance
    last = inputs.arrays(told(path), (LAST,))[0]
    np.testing.assert_array_equal(last, got.transpose(0, 2, 3, 1))
    with pytest.raises(InputError, match="a picture is for networks of float32") as caught:
        inputs.arrays(told(path), (BYTES,))
    assert "numpy.savez" in said(caught.value)


def test_a_picture_without_a_white_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "height.tif"
    Image.fromarray(np.ones((4, 4), np.float32)).save(path)
    with pytest.raises(InputError, match="no white") as caught:
        inputs.arrays(told(path), (PHOTO,))
    assert "height.tif" in said(caught.value)


@pytest.mark.parametrize("name", ["none.npz", "none.npy", "none.png"])
def test_a_file_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        inputs.arrays(told(tmp_path / name), (PHOTO,))


def test_objects_are_not_read(tmp_path: Path) -> None:
    """They can run code."""

    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    np.savez(tmp_path / "a.npz", x=np.array([Bomb()], object))
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "c.npz").write_bytes(pickle.dumps(Bomb()))
    for name in ("a.npz", "b.npy", "c.npz"):
        with pytest.raises(InputError, match="no file of NumPy's arrays") as caught:
            inputs.arrays(told(tmp_path / name), (SMALL,))
        said(caught.value)
    assert not (tmp_path / "ran").exists()


def whole() -> bytes:
    stored = io.BytesIO()
    np.savez_compressed(stored, x=np.arange(6, dtype=np.float32).reshape(2, 3))
    return stored.getvalue()


@given(st.lists(st.tuples(st.integers(0, len(whole()) - 1), st.integers(0, 255)), max_size=4))
def test_a_damaged_file_is_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(whole())
    for place, value in changes:
        content[place] = value
    refused(tmp_path_factory, bytes(content), ".npz")


@given(st.integers(0, len(whole())), st.sampled_from([".npz", ".npy", ".png", ".jpg"]))
def test_a_file_cut_off_is_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, length: int, ending: str
) -> None:
    refused(tmp_path_factory, whole()[:length], ending)


HEADERS = st.text(st.sampled_from("{}()'descrfotan_oshpe: ,<f4i8|O\\0123456789-"), max_size=60)


@given(HEADERS, st.sampled_from([".npy", ".npz"]))
def test_a_header_of_anything_is_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, header: str, ending: str
) -> None:
    text = header.encode()
    array = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"1234"
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr("x.npy", array)
    refused(tmp_path_factory, array if ending == ".npy" else stored.getvalue(), ending)


def refused(factory: pytest.TempPathFactory, content: bytes, ending: str) -> None:
    """Read a file: what comes out is an array, or an error of ours."""
    path = factory.getbasetemp() / f"damaged{ending}"
    path.write_bytes(content)
    value = PHOTO if ending in (".png", ".jpg") else SMALL
    try:
        got = inputs.arrays(told(path), (value,))
        Signature((value,)).bind(tuple(got), {})
    except InputError as error:
        said(error)


@given(
    st.sampled_from(DTYPES),
    st.sampled_from(inputs.FILLS),
    st.integers(-5, 1 << 40),
)
def test_what_is_made_up_fits_and_is_the_same_again(dtype: str, fill: str, seed: int) -> None:
    value = Input("x", (3, "n", 50), dtype)
    options = told(None, "--fill", fill, "--seed", str(seed))
    array = inputs.arrays(options, (value,))[0]
    assert (str(array.dtype), array.shape) == (dtype, (3, 1, 50))
    Signature((value,)).bind((array,), {})
    np.testing.assert_array_equal(array, inputs.arrays(options, (value,))[0])
    if fill == "random":
        assert len(np.unique(array)) > 1
        assert dtype in ("int8", "uint8") or (array.min() >= 0 and array.max() < 128)


def test_a_dtype_that_numpy_has_not() -> None:
    with pytest.raises(InputError, match="NumPy has no float129") as caught:
        inputs.arrays(told(None, "--fill", "ones"), (Input("x", (1,), "float129"),))
    said(caught.value)


def test_outputs_have_names(tmp_path: Path) -> None:
    a, b = np.ones(2, np.float32), np.zeros((), np.int64)
    named = inputs.named((a, (b, a), 3), ())
    assert list(named) == ["output_0", "output_1_0", "output_1_1", "output_2"]
    inputs.save(str(tmp_path / "out"), named)
    with np.load(tmp_path / "out") as read:
        assert read["output_2"] == 3
        np.testing.assert_array_equal(read["output_1_1"], a)
    assert list(inputs.named(a, ())) == ["output_0"]
    assert list(inputs.named((a, a), (Output("a", None, "object"),))) == ["output_0", "output_1"]
    said = tuple(Output(name, (2,), "float32") for name in ("file", "a/b.npy", "ö"))
    named = inputs.named((a, (a + 1, a + 2)), said)
    inputs.save(str(tmp_path / "named.npz"), named)
    with np.load(tmp_path / "named.npz") as read:
        assert read.files == ["file", "a/b.npy", "ö"]
        for name in read.files:
            np.testing.assert_array_equal(read[name], named[name])
    with pytest.raises(InputError, match="cannot be written"):
        inputs.save(str(tmp_path / "no" / "out"), named)
