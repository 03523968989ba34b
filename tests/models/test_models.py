"""Which weights a model gets; the digits, their network and its training; photographs."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from PIL import Image

import tvmlab
from tests.oracles.models import dense, said
from tests.oracles.networks import TINY, by_onnxruntime, by_torch
from tvmlab import models
from tvmlab.errors import DataError, InputError, ModelError
from tvmlab.models import __main__ as command
from tvmlab.models import onnx_form, quantized, zoo
from tvmlab.models.networks import DIGITS
from tvmlab.models.weights import seeded_parameters
from tvmlab.support import data


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache folder, without a network."""
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path))
    monkeypatch.setenv("TVMLAB_OFFLINE", "1")
    monkeypatch.setattr(zoo, "_no_zoo", "")
    return tmp_path


def test_auto_takes_the_zoos_file_from_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = onnx_form.to_onnx(TINY, seeded_parameters(TINY, 0), batch=None)
    # Files of 2018 list their weights among the inputs.
    for tensor in old.graph.initializer:
        old.graph.input.append(helper.make_tensor_value_info(tensor.name, 1, tensor.dims))
    content = old.SerializeToString()
    digest = hashlib.sha256(content).hexdigest()
    entry = data.Entry(zoo.ZOO_FILE, "http://127.0.0.1:9/file", len(content), digest, "Apache-2.0")
    monkeypatch.setattr(data, "REGISTRY", MappingProxyType({entry.name: entry}))
    (cache / zoo.ZOO_FILE).write_bytes(content)
    model = models.resnet50_v2()
    assert (model.weights, model.input_name) == ("zoo", "data")
    assert model.input_shape == (1, 3, 32, 32)
    assert "trained on ImageNet" in str(model)
    assert models.resnet50_v2("zoo", batch=None).input_shape == ("N", 3, 32, 32)
    (cache / zoo.ZOO_FILE).write_bytes(b"damaged")
    assert models.resnet50_v2("auto").weights == "seeded"


def test_auto_is_seeded_offline_and_says_so(cache: Path) -> None:
    model = models.resnet50_v2()
    assert model.weights == "seeded"
    assert "classes mean nothing" in model.note
    assert model.note.endswith("not downloaded: TVMLAB_OFFLINE forbids downloads.")
    assert "not downloaded" not in models.resnet50_v2("seeded").note
    assert model.note in str(model)
    assert "25.6 million" in str(model)
    with pytest.raises(DataError, match=r"resnet50-v2-7\.onnx"):
        models.resnet50_v2("zoo")
    with pytest.raises(InputError, match="'best' weights"):
        models.resnet50_v2("best")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="The batch size is 0"):
        models.digits_resnet(batch=0)


# The digits


def test_the_digits_are_split_fairly() -> None:
    split = models.digits()
    assert (split.x_train.shape, split.x_test.shape) == ((1347, 1, 8, 8), (450, 1, 8, 8))
    assert (split.x_test.dtype, split.y_test.dtype) == (np.float32, np.int64)
    assert (split.x_train.min(), split.x_train.max()) == (0, 1)
    seen = {picture.tobytes() for picture in split.x_train}
    assert not any(picture.tobytes() in seen for picture in split.x_test)
    held_out = hashlib.sha256(split.x_test.astype("<f4").tobytes() + split.y_test.tobytes())
    assert held_out.hexdigest()[:16] == "08a109a940497a0a"


def test_the_shipped_network_is_small_and_good() -> None:
    content = (resources.files("tvmlab") / "assets" / "digits_resnet.onnx").read_bytes()
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


def test_training_learns() -> None:
    split = models.digits()
    small = models.Digits(split.x_train[:320], split.y_train[:320], *split[2:])
    network = command.train(small, epochs=3, seed=1)
    assert not network.training
    assert command.accuracy(network, small.x_train, small.y_train) > 0.4


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
        # Near the mean, two roundings of numbers below 1/2 (3e-8) are divided by 0.22.
        wanted = np.broadcast_to(expected[:, None, None], x[0].shape)
        np.testing.assert_allclose(x[0], wanted, 1e-5, 3e-7)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_pictures_that_are_refused(dtype: type) -> None:
    with pytest.raises(InputError, match="more than 8 bits per channel"):
        models.preprocess(Image.fromarray(np.zeros((5, 8), dtype)))
    with pytest.raises(InputError, match="not uint8"):
        models.preprocess(np.zeros((5, 8, 3), dtype))


def test_labels_are_in_the_models_order() -> None:
    labels = models.imagenet_labels()
    assert len(labels) == 1000
    places = {0: "tench", 207: "golden retriever", 281: "tabby", 388: "giant panda", 517: "crane"}
    assert {place: labels[place] for place in places} == places


# Quantized models: importable, and the same in every run


@pytest.mark.parametrize(("format", "activations"), [("QDQ", "uint8"), ("QOperator", "int8")])
def test_the_digits_network_in_onnx(format: Any, activations: Any) -> None:
    """Its accuracy, and that of what is imported, are in `tests/qnn/test_peers.py`."""
    source = models.digits_resnet(batch=None)
    before = source.proto.SerializeToString()
    proto = quantized.quantized_onnx(source, format=format, activations=activations)
    assert source.proto.SerializeToString() == before
    kinds = Counter(node.op_type for node in proto.graph.node)
    if format == "QDQ":
        assert kinds["Conv"] == 9
        assert not any(kind.startswith("QLinear") for kind in kinds)
    else:
        assert (kinds["QLinearConv"], kinds["QGemm"]) == (9, 1)
        assert quantized.quantized_onnx(source, format=format, activations=activations) == proto
    assert activations in tvmlab.load(proto, shapes={"data": (10, 1, 8, 8)}).script()


def test_weights_use_all_of_int8_and_one_scale_or_one_a_channel() -> None:
    for per_channel in (True, False):
        proto = quantized.quantized_onnx(models.digits_resnet(), per_channel=per_channel)
        values = {it.name: numpy_helper.to_array(it) for it in proto.graph.initializer}
        weights = {n: w for n, w in values.items() if w.dtype == np.int8 and w.ndim == 4}
        assert len(weights) == 9
        for name, weight in weights.items():
            assert np.abs(weight.astype(int)).max() == 127
            scale = values[name.replace("_quantized", "_scale")]
            assert scale.size == (len(weight) if per_channel else 1)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"format": "QLinear"}, "'QLinear' is not supported"),
        ({"calibration": np.zeros((4, 1, 8, 9), "float32")}, r"float32\[4, 1, 8, 9\] are not"),
        ({"calibration": np.full((2, 1, 8, 8), np.nan, "float32")}, "not finite inputs"),
        ({"model": dense(3)}, "This is a ModelProto, not a network of tvmlab.models"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        quantized.quantized_onnx(**({"model": models.digits_resnet()} | arguments))
    said(caught.value)


@pytest.mark.parametrize("network", [torch.nn.Conv2d(3, 4, 3).eval(), "resnet"], ids=type)
def test_networks_that_are_not_the_workbooks(network: Any) -> None:
    with pytest.raises(InputError, match="is not a tvmlab") as caught:
        quantized.quantized_torch(network)
    said(caught.value)
