"""Arrays for a program from files, pictures and a generator, and files that are refused."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.oracles.models import said
from tvmlab import models
from tvmlab.cli import arrays
from tvmlab.errors import InputError
from tvmlab.ir.signature import Input, Output, Signature

PHOTO = Input("data", (1, 3, 224, 224), "float32")
LAST = Input("data", ("n", 224, 224, 3), "float32")
SMALL = Input("x", (2, 3), "float32")
BYTES = Input("y", ("n", 4), "int8")
DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "uint8", "int32", "int64", "bool")


def options(path: str | Path | None = None, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arrays.add_inputs(parser)
    return parser.parse_args([*(["-i", str(path)] if path else []), *words])


def test_arrays_by_name_and_missing_ones_filled(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(path, x=x)
    got = arrays.input_arrays(options(path, "--fill", "ones"), (SMALL, BYTES))
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], np.ones((1, 4), np.int8))
    with pytest.raises(InputError, match="no array for the input 'y'") as caught:
        arrays.input_arrays(options(path), (SMALL, BYTES))
    assert "--fill" in said(caught.value)
    np.savez(path, z=x)
    with pytest.raises(InputError, match="there is no input 'z'") as caught:
        arrays.input_arrays(options(path, "--fill", "ones"), (SMALL, BYTES))
    assert "x, y" in said(caught.value)


def test_one_array_for_the_only_input(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((2, 3), ">f4"))  # a file from a machine of another byte order
    (got,) = arrays.input_arrays(options(path), (SMALL,))
    np.testing.assert_array_equal(Signature((SMALL,)).bind((got,), {})[0], np.ones((2, 3)))
    with pytest.raises(InputError, match="one array, but the program takes 2"):
        arrays.input_arrays(options(path), (SMALL, BYTES))


@pytest.mark.parametrize("ending", [".png", ".jpg", ".PNG"])
def test_a_picture_is_preprocessed_as_a_sample_is(ending: str, tmp_path: Path) -> None:
    picture = models.sample_image()
    path = tmp_path / f"china{ending}"
    Image.fromarray(picture).save(path, quality=95)
    (got,) = arrays.input_arrays(options(path), (PHOTO,))
    tolerance = 0.5 if ending == ".jpg" else 0
    assert np.abs(got - models.preprocess(picture)).max() <= tolerance
    (last,) = arrays.input_arrays(options(path), (LAST,))
    np.testing.assert_array_equal(last, got.transpose(0, 2, 3, 1))
    with pytest.raises(InputError, match="a picture needs an input of float32") as caught:
        arrays.input_arrays(options(path), (BYTES,))
    assert "numpy.savez" in said(caught.value)


@given(st.sampled_from(DTYPES), st.sampled_from(["random", "zeros", "ones"]), st.integers(-5, 99))
def test_filled_arrays_fit_and_are_the_same_again(dtype: str, fill: str, seed: int) -> None:
    value = Input("x", (3, "n", 50), dtype)
    args = options(None, "--fill", fill, "--seed", str(seed))
    (array,) = arrays.input_arrays(args, (value,))
    assert (str(array.dtype), array.shape) == (dtype, (3, 1, 50))
    Signature((value,)).bind((array,), {})
    np.testing.assert_array_equal(array, arrays.input_arrays(args, (value,))[0])
    if fill == "random":
        assert len(np.unique(array)) > 1
        assert dtype in ("int8", "uint8") or (array.min() >= 0 and array.max() < 128)


def test_outputs_have_names(tmp_path: Path) -> None:
    a, b = np.ones(2, np.float32), np.zeros((), np.int64)
    named = arrays.name_outputs((a, (b, a), 3), ())
    assert list(named) == ["output_0", "output_1", "output_2", "output_3"]
    assert list(arrays.name_outputs(a, ())) == ["output_0"]
    outputs = tuple(Output(name, (2,), "float32") for name in ("file", "a/b.npy", "ö"))
    named = arrays.name_outputs((a, (a + 1, a + 2)), outputs)
    arrays.save_arrays(str(tmp_path / "named"), named)
    with np.load(tmp_path / "named") as read:
        assert read.files == ["file", "a/b.npy", "ö"]
        for name in read.files:
            np.testing.assert_array_equal(read[name], named[name])
