"""The digits network, its training and its data; photographs and class names."""

from __future__ import annotations

import hashlib
import math
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.oracles.networks import (
    by_onnxruntime,
    by_torch,
    digest,
)
from tvmlab import models
from tvmlab.errors import InputError, ModelError
from tvmlab.models import __main__ as command
from tvmlab.models import torch_form, zoo
from tvmlab.models.networks import DIGITS

ASSETS = resources.files("tvmlab") / "assets"


# The digits


def test_the_digits_are_split_fairly() -> None:
    split = models.digits()
    assert split.x_train.shape == (1347, 1, 8, 8)
    assert split.x_test.shape == (450, 1, 8, 8)
    assert split.x_test.dtype == np.float32
    assert split.y_test.dtype == np.int64
    assert (split.x_train.min(), split.x_train.max()) == (0, 1)
    for part in (split.y_train, split.y_test):
        share = np.bincount(part, minlength=10) / len(part)
        assert np.abs(share - 0.1).max() < 0.005
    seen = {picture.tobytes() for picture in split.x_train}
    assert not any(picture.tobytes() in seen for picture in split.x_test)
    held_out = hashlib.sha256(split.x_test.astype("<f4").tobytes() + split.y_test.tobytes())
    assert held_out.hexdigest()[:16] == "08a109a940497a0a"


def test_the_shipped_network_is_small_and_good() -> None:
    content = (ASSETS / "digits_resnet.onnx").read_bytes()
    assert len(content) < 500_000
    split = models.digits()
    model = models.digits_resnet(batch=None)
    onnx.checker.check_model(model.proto, full_check=True)
    network = models.torch_digits_resnet()
    here, there = by_onnxruntime(model.proto, split.x_test), by_torch(network, split.x_test)
    assert np.abs(here - there).max() < 1e-5
    assert np.mean(here.argmax(1) == split.y_test) >= 0.98
    assert command.accuracy(network, split.x_test, split.y_test) >= 0.98
    assert model.weights == "trained"
    assert model.parameter_count == sum(map(math.prod, DIGITS.parameters().values()))
    assert "train-digits" in network.note


@pytest.mark.parametrize("content", [b"", b"not a model", None])
def test_a_damaged_asset_is_said(
    content: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "assets").mkdir()
    if content is not None:
        (tmp_path / "assets" / "digits_resnet.onnx").write_bytes(content)
    monkeypatch.setattr(zoo.resources, "files", lambda _: tmp_path)
    with pytest.raises(ModelError, match="cannot be read"):
        models.digits_resnet()


def test_training_learns_and_repeats_itself(capsys: pytest.CaptureFixture[str]) -> None:
    split = models.digits()
    small = models.Digits(split.x_train[:320], split.y_train[:320], *split[2:])
    first, second = (command.train(small, epochs=3, seed=1) for _ in range(2))
    assert not first.training
    assert digest(torch_form.parameters_of(first)) == digest(torch_form.parameters_of(second))
    assert command.accuracy(first, small.x_train, small.y_train) > 0.4
    assert capsys.readouterr().out.startswith("epoch   3 of 3: loss")


# Photographs and names


@given(colour=st.tuples(*[st.integers(0, 255)] * 3), height=st.integers(1, 60))
def test_preprocessing_a_plain_colour(colour: tuple[int, int, int], height: int) -> None:
    picture = np.empty((height, 50, 3), np.uint8)
    picture[:] = colour
    expected = (np.array(colour) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    for image in (picture, Image.fromarray(picture)):
        x = models.preprocess(image)
        assert (x.shape, x.dtype) == ((1, 3, 224, 224), np.float32)
        assert x.flags.c_contiguous
        np.testing.assert_allclose(x[0], np.broadcast_to(expected[:, None, None], x[0].shape), 1e-5)


def test_preprocessing_takes_16_bits_for_what_they_are(tmp_path: Path) -> None:
    grey = np.linspace(0, 255, 40, dtype=np.uint8).reshape(5, 8)
    wanted = models.preprocess(Image.fromarray(grey))
    for ending in ("png", "tif"):
        Image.fromarray(grey.astype(np.uint16) * 257).save(tmp_path / f"grey.{ending}")
        with Image.open(tmp_path / f"grey.{ending}") as image:
            assert image.mode.startswith("I;16")
            np.testing.assert_array_equal(models.preprocess(image), wanted)
    for dtype in (np.int32, np.float32):
        with pytest.raises(InputError, match="no white"):
            models.preprocess(Image.fromarray(grey.astype(dtype)))


def test_labels_are_in_the_models_order() -> None:
    labels = models.imagenet_labels()
    assert len(labels) == 1000
    assert all(label == label.strip() and label and "_" not in label for label in labels)
    places = {
        **{0: "tench", 134: "crane", 207: "golden retriever", 264: "Cardigan", 281: "tabby"},
        **{388: "giant panda", 474: "cardigan", 517: "crane", 607: "jack-o'-lantern"},
        **{638: "maillot", 639: "maillot", 698: "palace", 916: "web site", 999: "toilet tissue"},
    }
    assert {place: labels[place] for place in places} == places
    twice = {label for label in labels if labels.count(label) > 1}
    assert twice == {"crane", "maillot"}
