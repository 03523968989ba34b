"""`tvmlab.load`: what it accepts, and what it says to everything else."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tvmlab
from tests.oracles import litert
from tests.oracles.models import convolutional, dense, relu, said
from tvmlab.errors import ModelError, RelayError, ShapeError
from tvmlab.frontend import checks
from tvmlab.ir.text.reader import fromtext

DENSE = dense().SerializeToString()
MLP = Path(__file__).parents[1] / "data" / "relay" / "mlp.relay"


def test_path_text_bytes_and_object_give_the_same_module(tmp_path: Path) -> None:
    (path := tmp_path / "model.without.known.ending").write_bytes(DENSE)
    expected = tvmlab.load(dense())
    for model in (path, str(path), DENSE, bytearray(DENSE), memoryview(DENSE)):
        tvm.ir.assert_structural_equal(tvmlab.load(model), expected)
    expected = fromtext(MLP.read_text())
    for model in (MLP, b"\n" + MLP.read_bytes()):
        tvm.ir.assert_structural_equal(tvmlab.load(model), expected)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("missing.onnx", None, "there is no such file"),
        ("", None, "the file cannot be read"),  # the folder itself
        ("empty.onnx", b"", "the model file is empty"),
        ("text.onnx", b"hello, this is text", "this is not an ONNX model"),
        ("page.onnx", b"<!DOCTYPE html><html></html>", "a web page or a Git LFS pointer"),
        ("package.so", b"\x7fELF\x02", "this is a package of compiled code"),
        ("cut.onnx", DENSE[:-20], "this is not an ONNX model, or it is truncated"),
        ("short.tflite", b"\x1c\0\0\0TFL3", "the TensorFlow Lite model is damaged"),
    ],
)
def test_files_that_are_no_models(
    tmp_path: Path, name: str, content: bytes | None, what: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        tvmlab.load(path)
    assert what in caught.value.what
    assert caught.value.where == str(path)
    said(caught.value)


def test_texts_that_are_no_models() -> None:
    mod = tvmlab.load(DENSE)
    for show_meta in (False, True):
        with pytest.raises(ModelError, match="this is TVMScript") as caught:
            tvmlab.load(mod.script(show_meta=show_meta).encode())
        assert "tvm.script.from_source" in said(caught.value)
    for text in (b"def @main() {", b'#[version = "0.0.5"]\xff'):
        with pytest.raises(RelayError):
            tvmlab.load(text)


@pytest.mark.parametrize("model", [None, [DENSE], dense().graph], ids=type)
def test_objects_that_are_no_models(model: Any) -> None:
    with pytest.raises(ModelError, match="this is not a model that tvmlab can read") as caught:
        tvmlab.load(model)
    assert caught.value.where == f"{type(model).__module__}.{type(model).__name__}"
    said(caught.value)


# Any damage is a ModelError, or does not matter.


@functools.cache
def formats() -> dict[str, tuple[bytes, bytes, int]]:
    """A model in each format, what its random bytes begin with, and where damage begins."""
    found = {"ONNX": (convolutional().SerializeToString(), b"", 0)}
    if importlib.util.find_spec("tflite"):
        small = litert.convolutional()
        found["TensorFlow Lite"] = (small, small[:8], 8)
    return found


@settings(max_examples=120)
@given(
    name=st.sampled_from(["ONNX", "TensorFlow Lite"]),
    how=st.sampled_from(["cut", "random", "bytes"]),
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=4),
    content=st.binary(max_size=300),
)
def test_damage_is_refused_or_does_not_matter(
    name: str, how: str, damage: list[tuple[float, int]], content: bytes
) -> None:
    assume(name in formats())
    model, start, least = formats()[name]
    if how == "cut":
        content = model[: int(damage[0][0] * (len(model) - 1))]
    elif how == "random":
        content = start + content
    else:
        changed = bytearray(model)
        for place, byte in damage:
            changed[least + int(place * (len(changed) - 1 - least))] = byte
        content = bytes(changed)
    try:
        loaded = tvmlab.load(content)
    except ModelError as error:
        said(error)
        return
    assert how != "random"
    assert "main" in {var.name_hint for var in loaded.get_global_vars()}
    if how == "cut":
        tvm.ir.assert_structural_equal(loaded, tvmlab.load(model))


# Shapes.


@pytest.mark.parametrize(
    ("given_shapes", "what"),
    [
        ({"z": (2, 3)}, "the model has no input named 'z'"),
        ({"x": (2,)}, "`shapes` gives (2,) for input 'x', but the model declares (N, 3)"),
        ({"x": (-1, 3)}, "input 'x' has a dimension of -1"),
        ({"x": ("for", 3)}, "input 'x' has a dimension of 'for'"),
        ({"x": "n3"}, "`shapes` gives 'n3' for input 'x'"),
        ((2, 3), "shapes is a tuple, not a mapping"),
        (None, "input 'x' has open dimensions: (N, 3)"),
    ],
)
def test_shapes_that_do_not_fit(given_shapes: Any, what: str) -> None:
    with pytest.raises(ShapeError) as caught:
        tvmlab.load(relu(shape=("N", 3)), shapes=given_shapes)
    assert what in caught.value.what
    assert caught.value.where == "ModelProto"
    said(caught.value)
    with pytest.raises(ShapeError, match="has its shapes fixed already"):
        tvmlab.load(MLP, shapes={"data": (1, 1, 8, 8)})


def test_the_advice_has_every_input_that_is_open() -> None:
    declared = {"x": [None, 3, None], "y": [2], "z": ["for", "n"], "w": ["k"]}
    with pytest.raises(ShapeError) as caught:
        checks.resolve(declared, {"w": np.array([5])}, where="here")  # type: ignore[dict-item]
    error = caught.value
    opened = "input 'x' has open dimensions: (?, 3, ?); input 'z' has open dimensions: (for, n)"
    assert error.what == opened
    # Sizes without a name get one each: equal names would be equal sizes.
    named = {"x": ("n_1", 3, "n_2"), "z": ("n_3", "n"), "w": (5,)}
    assert error.shapes == named
    fixed = {"x": (1, 3, 1), "z": (1, 1), "w": (5,)}
    advice = f"fix them with shapes={fixed}, or keep them open by naming them: shapes={named}"
    assert error.fix == advice
    assert checks.resolve(declared, error.shapes, where="here")["y"] == [2]
