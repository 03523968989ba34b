"""Seeded weights: the same everywhere, and networks with them behave like trained ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

import tvmlab
from tests.oracles.models import real_model
from tests.oracles.networks import (
    by_torch,
    digest,
    relative_error,
    session,
    weights_of,
)
from tvmlab import models
from tvmlab.models import onnx_form, torch_form
from tvmlab.models.networks import ARCHITECTURES, RESNET50
from tvmlab.models.resnet8 import resnet8_tflite
from tvmlab.models.weights import uniform

ONNX = {"resnet18_v2": models.resnet18_v2, "mobilenet_v2": models.mobilenet_v2}
every = pytest.mark.parametrize("name", ONNX)


@pytest.fixture(scope="module")
def photographs() -> np.ndarray:
    china, flower = models.sample_image("china"), models.sample_image("flower")
    noise = uniform(np.random.PCG64(1), (224, 224, 3), 0, 255).astype(np.uint8)
    pictures = (china, flower, 255 - china, china // 3, flower[:, :320], flower[:, 320:], noise)
    return np.concatenate([models.preprocess(picture) for picture in pictures])


@pytest.fixture(scope="module")
def seeded() -> models.Model:
    return models.resnet50_v2("seeded")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet50_v2", "26a2335c8c26adff"),
        ("resnet18_v2", "3df7bd7ca48f67fe"),
        ("mobilenet_v2", "7c4ee09d435d60c5"),
    ],
)
def test_seeded_weights_are_the_same_everywhere(
    name: str, expected: str, seeded: models.Model
) -> None:
    model = seeded if name == seeded.name else ONNX[name]()
    parameters = weights_of(model.proto)
    assert list(parameters) == list(ARCHITECTURES[name].parameters())
    assert digest(parameters) == expected


def test_seeded_resnet50_behaves(seeded: models.Model, photographs: np.ndarray) -> None:
    watched = onnx.ModelProto()
    watched.CopyFrom(seeded.proto)
    onnx_form.set_batch(watched, None)
    sums = [layer.name for layer in RESNET50.layers if layer.op == "add"]
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in sums)
    logits, *values = session(watched).run(None, {"data": photographs})
    assert len({row.argmax() for row in logits}) >= 3
    # What nearly nothing changes in the picture changes nearly nothing in the result.
    random = np.random.default_rng(0)
    noise = random.normal(0, 1e-3, photographs[:1].shape).astype(np.float32)
    (noisy,) = session(seeded.proto).run(None, {"data": photographs[:1] + noise})
    assert relative_error(noisy, logits[:1]) < 3e-3
    assert relative_error(logits[1:2], logits[:1]) > 0.1
    assert 0.2 < logits.std() < 5
    for value in values:
        assert np.isfinite(value).all()
        assert 0.3 < value.std() < 10
    network = torch_form.of(seeded)
    assert "seeded" in network.note
    assert relative_error(by_torch(network, photographs[:2]), logits[:2]) < 1e-4


@every
def test_it_behaves_and_both_forms_agree(name: str, photographs: np.ndarray) -> None:
    model, photographs = ONNX[name](batch=None), photographs[:3]
    proto = model.proto
    layers = [layer for layer in ARCHITECTURES[name].layers if layer.op in ("conv", "add", "relu6")]
    watched = onnx.ModelProto()
    watched.CopyFrom(proto)
    watched.graph.output.extend(helper.make_empty_tensor_value_info(it.name) for it in layers)
    logits, *values = session(watched).run(None, {"data": photographs})
    # ResNet's branches end in convolutions, which are 32 times smaller than the trunk.
    ends = {it.inputs[0] for it in layers if it.op == "add"}
    for layer, value in zip(layers, values, strict=True):
        small = 32 if layer.name in ends else 1
        assert 0.3 < small * value.std() < 4, layer.name
        # The pictures, and not what all of them share, make a good part of what is computed.
        assert value.var(axis=0).mean() > 0.1 * value.var(), layer.name
    assert logits.std() > 0.3
    assert logits.var(axis=0).mean() > 0.05 * logits.var()
    network = torch_form.of(model)
    assert (network.training, network.note) == (False, model.note)
    assert relative_error(by_torch(network, photographs), logits) < 1e-4


# The stand-in for MLPerf Tiny's ResNet-8


def steps(mod: tvm.IRModule) -> list[tuple[str, str]]:
    """Each operator of a module and the type it gives."""
    bindings = mod["main"].body.blocks[0].bindings
    calls = [one.value for one in bindings if isinstance(one.value, relax.Call)]
    return [(call.op.name, str(call.ty)) for call in calls]


def test_it_has_the_real_ones_operators_and_shapes() -> None:
    ours = steps(tvmlab.load(resnet8_tflite()))
    assert [name for name, _ in ours].count("relax.nn.conv2d") == 9
    assert ours == steps(tvmlab.load(real_model("resnet8_int8.tflite")))


def test_its_numbers_are_seeded_and_spread() -> None:
    assert resnet8_tflite() == resnet8_tflite(seed=0)
    assert resnet8_tflite() != resnet8_tflite(seed=1)
    run = tvmlab.compile(tvmlab.load(resnet8_tflite()))
    rng = np.random.default_rng(0)
    pictures = rng.integers(-128, 128, (20, 1, 32, 32, 3), dtype="int8")
    results = np.concatenate([run(picture) for picture in pictures])
    # Neither all the same nor all at the ends of the range.
    assert len(np.unique(results)) > 20
    assert len(np.unique(results, axis=0)) == len(pictures)
