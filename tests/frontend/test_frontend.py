"""`tvmlab.load`: what it accepts, and what it says to everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st

import tvmlab
from tests.oracles.models import convolutional, dense, relu, said
from tvmlab.errors import ModelError, ShapeError
from tvmlab.frontend import shapes

DENSE = dense().SerializeToString()


def test_path_text_bytes_and_object_give_the_same_module(tmp_path: Path) -> None:
    path = tmp_path / "dense.onnx"
    path.write_bytes(DENSE)
    other_name = tmp_path / "model.without.known.ending"
    other_name.write_bytes(DENSE)
    expected = tvmlab.load(dense())
    given = (path, str(path), other_name, DENSE, bytearray(DENSE), memoryview(DENSE))
    for model in given:
        tvm.ir.assert_structural_equal(tvmlab.load(model), expected)


class Carrier:
    """Something else, with an attribute of the same name as `models.Model` has."""

    proto = dense()


def test_the_workbooks_models_are_loaded_as_they_are() -> None:
    model = tvmlab.models.Model.of(dense(), "dense", "seeded")
    tvm.ir.assert_structural_equal(tvmlab.load(model), tvmlab.load(dense()))


def test_loading_leaves_the_model_as_it_is() -> None:
    model = dense("N")
    before = model.SerializeToString()
    tvmlab.load(model, shapes={"x": (2, 4)})
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("missing.onnx", None, "there is no such file"),
        ("empty.onnx", b"", "the model file is empty"),
        ("empty.tflite", b"", "the model file is empty"),
        ("text.onnx", b"hello, this is text", "this is not an ONNX model"),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(100), "this is a PNG picture, not a model"),
        ("picture.jpg", b"\xff\xd8\xff\xe0" + bytes(100), "this is a JPEG picture, not a model"),
        ("page.onnx", b"<!DOCTYPE html><html></html>", "this is a web page, not a model"),
        ("lfs.onnx", b"version https://git-lfs.github.com/spec/v1\n", "this is a Git LFS pointer"),
        ("archive.onnx", b"PK\x03\x04" + bytes(100), "this is a ZIP archive, not a model"),
        ("zeros.onnx", bytes(1000), "this is not an ONNX model"),
        ("cut.onnx", DENSE[:-20], "this is not an ONNX model, or it is cut off"),
        ("torch.pt", b"PK\x03\x04", "PyTorch files are not read"),
        ("torch.pth", b"PK\x03\x04", "PyTorch files are not read"),
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


def test_what_tvmlab_wrote_itself_is_told_apart(tmp_path: Path) -> None:
    mod = tvmlab.load(DENSE)
    for show_meta in (False, True):
        with pytest.raises(ModelError, match="this is TVMScript") as caught:
            tvmlab.load(mod.script(show_meta=show_meta).encode())
        assert "tvm.script.from_source" in said(caught.value)
    with pytest.raises(ModelError, match="this is a package of compiled code") as caught:
        tvmlab.load(tvmlab.compile(mod).save(tmp_path / "dense.so"))
    assert "tvmlab run" in said(caught.value)


@pytest.mark.parametrize("path", ["nul\0.onnx", "x" * 5000, "no/such/folder/model.onnx", "/", ""])
def test_paths_that_lead_nowhere(path: str) -> None:
    with pytest.raises(ModelError) as caught:
        tvmlab.load(path)
    said(caught.value)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ModelError, match="the file cannot be read: Permission denied") as caught:
        tvmlab.load(tmp_path / "secret.onnx")
    assert "permissions" in said(caught.value)


@pytest.mark.parametrize(
    "model",
    [None, 5, [DENSE], {"x": 1}, dense().graph, np.zeros(3), Carrier()],
    ids=type,
)
def test_objects_that_are_no_models(model: Any) -> None:
    with pytest.raises(ModelError, match="this is not a model that tvmlab can read") as caught:
        tvmlab.load(model)
    kind = f"{type(model).__module__}.{type(model).__name__}"
    assert caught.value.where == kind
    assert "tvm.ir.IRModule or a tvm.tirx.PrimFunc" in said(caught.value)


# Any damage is a ModelError, or does not matter.


def load_or_refuse(content: bytes) -> tvm.IRModule | None:
    try:
        return tvmlab.load(content)
    except ModelError as error:
        refused = error
    said(refused)
    return None


@given(st.integers(0, len(DENSE) - 1))
def test_a_cut_anywhere(cut: int) -> None:
    loaded = load_or_refuse(DENSE[:cut])
    if loaded is not None:
        tvm.ir.assert_structural_equal(loaded, tvmlab.load(DENSE))


def test_a_cut_before_what_does_not_matter() -> None:
    model = dense()
    model.metadata_props.add(key="note", value="at the end of the file")
    content = model.SerializeToString()
    tvm.ir.assert_structural_equal(load_or_refuse(content[: len(DENSE)]), tvmlab.load(DENSE))


@given(st.binary(max_size=300))
def test_random_bytes(content: bytes) -> None:
    assert load_or_refuse(content) is None


CONVOLUTIONAL = convolutional().SerializeToString()


@given(
    st.lists(
        st.tuples(st.integers(0, len(CONVOLUTIONAL) - 1), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    )
)
def test_damaged_bytes(damage: list[tuple[int, int]]) -> None:
    content = bytearray(CONVOLUTIONAL)
    for place, byte in damage:
        content[place] = byte
    loaded = load_or_refuse(bytes(content))
    assert loaded is None or "main" in {v.name_hint for v in loaded.get_global_vars()}


# Shapes.

NAMES = st.sampled_from(["n", "m", "k_1", "größe"])
SIZES = st.integers(1, 9)
OPEN = st.none() | NAMES


@given(st.lists(SIZES | NAMES, max_size=4), st.data())
def test_given_shapes_win_over_declared_ones(given_shape: list[int | str], data: Any) -> None:
    declared = data.draw(
        st.lists(SIZES | OPEN, min_size=len(given_shape), max_size=len(given_shape))
    )
    found = shapes.resolve({"x": declared}, {"x": given_shape}, where="here")["x"]
    assert [d if isinstance(d, int) else d.name for d in found] == given_shape
    variables = {d.name: d for d in found if not isinstance(d, int)}
    assert all(d.same_as(variables[d.name]) for d in found if not isinstance(d, int))


@given(st.lists(SIZES, max_size=4))
def test_declared_sizes_serve(declared: list[int]) -> None:
    assert shapes.resolve({"x": declared}, None, where="here") == {"x": declared}


@given(st.lists(SIZES | OPEN, min_size=1, max_size=4).filter(lambda s: any(_open(d) for d in s)))
def test_an_open_size_has_to_be_given(declared: list[int | str | None]) -> None:
    with pytest.raises(ShapeError, match="input 'x' has open dimensions") as caught:
        shapes.resolve({"x": declared}, None, where="here")
    assert "shapes={'x': (" in said(caught.value)


def _open(size: object) -> bool:
    return not isinstance(size, int)


def test_one_name_is_one_size_across_inputs() -> None:
    found = shapes.resolve({"x": [None], "y": [None]}, {"x": ("n",), "y": ("n",)}, where="here")
    assert found["x"][0].same_as(found["y"][0])


def test_numpys_integers_are_sizes() -> None:
    given_shape = {"x": np.array([2, 3])}
    found = shapes.resolve({"x": [None, None]}, given_shape, where="here")  # type: ignore[arg-type]
    assert found == {"x": [2, 3]}
    assert all(type(size) is int for size in found["x"])


@pytest.mark.parametrize(
    ("given_shapes", "what"),
    [
        ({"z": (2, 3)}, "the model has no input named 'z'"),
        ({"x": (2,)}, "input 'x' has 2 dimensions, the shape given has 1"),
        ({"x": ()}, "input 'x' has 2 dimensions, the shape given has 0"),
        ({"x": (0, 3)}, "input 'x' has a dimension of 0"),
        ({"x": (-1, 3)}, "input 'x' has a dimension of -1"),
        ({"x": (True, 3)}, "input 'x' has a dimension of True"),
        ({"x": (2.0, 3)}, "input 'x' has a dimension of 2.0"),
        ({"x": (None, 3)}, "input 'x' has a dimension of None"),
        ({"x": ("batch size", 3)}, "input 'x' has a dimension of 'batch size'"),
        ({"x": ("for", 3)}, "input 'x' has a dimension of 'for'"),
        ({"x": ("", 3)}, "input 'x' has a dimension of ''"),
        ({"x": "n3"}, "the shape given for input 'x' is 'n3'"),
        ({"x": 3}, "the shape given for input 'x' is 3"),
        ((2, 3), "shapes is a tuple, not a mapping"),
        ({}, "input 'x' has open dimensions: (N, 3)"),
        (None, "input 'x' has open dimensions: (N, 3)"),
        ({"x": None}, "input 'x' has open dimensions: (N, 3)"),
    ],
)
def test_shapes_that_do_not_fit(given_shapes: Any, what: str) -> None:
    with pytest.raises(ShapeError) as caught:
        tvmlab.load(relu(shape=("N", 3)), shapes=given_shapes)
    assert what in caught.value.what
    assert caught.value.where == "ModelProto"
    said(caught.value)


def test_the_advice_about_open_sizes_works_as_it_stands() -> None:
    with pytest.raises(ShapeError) as caught:
        tvmlab.load(relu(shape=("batch size", 3)))
    advice = caught.value.fix
    assert advice is not None
    first, second = (eval(part.split("shapes=")[1]) for part in advice.split(", or keep"))
    for given_shapes in (first, second):
        assert tvmlab.load(relu(shape=("batch size", 3)), shapes=given_shapes)


def test_the_advice_has_every_input_that_is_open() -> None:
    declared = {"x": [None, 3, None], "y": [2], "z": ["for", "n"], "w": ["k"], "v": ["m"]}
    given_shapes = {"w": np.array([5]), "v": None}
    with pytest.raises(ShapeError) as caught:
        shapes.resolve(declared, given_shapes, where="here")  # type: ignore[arg-type]
    error = caught.value
    assert error.what == (
        "input 'x' has open dimensions: (?, 3, ?); input 'z' has open dimensions: (for, n); "
        "input 'v' has open dimensions: (m)"
    )
    # Sizes without a name get one each: equal names would be equal sizes.
    named = {"x": ("n_1", 3, "n_2"), "z": ("n_3", "n"), "w": (5,), "v": ("m",)}
    assert error.shapes == named
    fixed = {"x": (1, 3, 1), "z": (1, 1), "w": (5,), "v": (1,)}
    assert error.fix == f"fix them with shapes={fixed}, or keep them open by naming them: " + (
        f"shapes={named}"
    )
    assert shapes.resolve(declared, error.shapes, where="here")["y"] == [2]
    with pytest.raises(ShapeError, match="input 'v' has a dimension of 0"):
        shapes.resolve(declared, {"v": (0,)}, where="here")


def test_an_unknown_rank() -> None:
    with pytest.raises(ShapeError, match="the rank of input 'x' is not known") as caught:
        shapes.resolve({"x": None}, None, where="here")
    assert "give what is open: shapes={'x': (...)}" in said(caught.value)
    assert caught.value.shapes is None
    assert shapes.resolve({"x": None}, {"x": (2,)}, where="here") == {"x": [2]}
