"""ResNet-18 and MobileNetV2: their sizes, their seeded weights, and what runs them agrees."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.oracles.networks import by_onnxruntime, by_torch, digest, relative_error, session
from tvmlab import models
from tvmlab.errors import ModelError
from tvmlab.models import onnx_form
from tvmlab.models.architecture import Architecture
from tvmlab.models.mobilenet import MOBILENET
from tvmlab.models.resnet import RESNET18

SPECS = {"resnet18_v2": RESNET18, "mobilenet_v2": MOBILENET}
ONNX = {"resnet18_v2": models.resnet18_v2, "mobilenet_v2": models.mobilenet_v2}
TORCH = {"resnet18_v2": models.torch_resnet18_v2, "mobilenet_v2": models.torch_mobilenet_v2}
every = pytest.mark.parametrize("name", SPECS)


@pytest.fixture(scope="module")
def photographs() -> np.ndarray:
    china, flower = models.sample_image("china"), models.sample_image("flower")
    return np.concatenate([models.preprocess(it) for it in (china, flower, 255 - china)])


def trained(spec: Architecture) -> int:
    """How many numbers training would change."""
    shapes = spec.parameters().items()
    return sum(math.prod(shape) for name, shape in shapes if "running" not in name)


def test_mobilenet_is_the_papers() -> None:
    # The number everyone's MobileNetV2 of width 1.0 has.
    assert trained(MOBILENET) == 3_504_872
    kinds = [layer.op for layer in MOBILENET.layers()]
    assert (kinds.count("conv"), kinds.count("batch_norm")) == (52, 52)
    assert (kinds.count("relu6"), kinds.count("add")) == (35, 10)
    depthwise = [layer for layer in MOBILENET.layers() if layer.groups > 1]
    assert len(depthwise) == 17
    assert all((it.groups, it.groups, 3) == (*it.channels, it.kernel) for it in depthwise)
    assert [it.name for it in depthwise if it.stride == 2] == [
        f"stage{stage}.unit1.conv_depthwise" for stage in (2, 3, 4, 6)
    ]
    # A bottleneck is linear: nothing but the norm follows its projection.
    readers = {name: layer for layer in MOBILENET.layers() for name in layer.inputs}
    projected = [name for name in readers if "norm_project" in name]
    assert len(projected) == 17
    assert not any(readers[name].op == "relu6" for name in projected)


def test_resnet18_has_the_usual_size() -> None:
    # The usual 11,689,512 of ResNet-18 v1; v2 opens with a norm of the data, ends with one of the
    # features, and has none on its three shortcuts and one less in the stem's unit.
    v1 = 11_689_512
    norms_v1 = 2 * (64 * 5 + 128 * 5 + 256 * 5 + 512 * 5)
    norms_v2 = 2 * sum(layer.channels[1] for layer in RESNET18.layers() if layer.op == "batch_norm")
    assert trained(RESNET18) == v1 - norms_v1 + norms_v2 == 11_687_854


@pytest.mark.parametrize(
    ("spec", "expected"),
    [(RESNET18, "3df7bd7ca48f67fe"), (MOBILENET, "7c4ee09d435d60c5")],
    ids=list(SPECS),
)
def test_seeded_weights_are_the_same_everywhere(spec: Architecture, expected: str) -> None:
    parameters = onnx_form.from_onnx(spec, ONNX[spec.name]().proto)
    assert digest(parameters) == expected


@every
def test_a_model_says_what_it_is(name: str) -> None:
    model = ONNX[name]()
    assert (model.name, model.weights) == (name, "seeded")
    assert model.input_shape == (1, 3, 224, 224)
    assert model.parameter_count == sum(map(math.prod, SPECS[name].parameters().values()))
    assert "classes mean nothing" in str(model)
    assert "zoo" not in model.note
    assert TORCH[name]().note == model.note
    onnx.checker.check_model(model.proto, full_check=True)
    with pytest.raises(ModelError, match="A batch of 0"):
        ONNX[name](batch=0)


@every
def test_it_behaves_and_both_forms_agree(name: str, photographs: np.ndarray) -> None:
    proto = ONNX[name](batch=None).proto
    layers = [layer for layer in SPECS[name].layers() if layer.op in ("conv", "add", "relu6")]
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
    network = TORCH[name]()
    assert not network.training
    assert relative_error(by_torch(network, photographs), logits) < 1e-4


def test_sixes_are_reached(photographs: np.ndarray) -> None:
    model = models.mobilenet_v2().proto
    expected = by_onnxruntime(model, photographs[:1])
    [limit] = [node for node in model.graph.node if node.name == "relu6.max"]
    limit.attribute[0].t.CopyFrom(helper.make_tensor("none", 1, [], [1e9]))
    assert relative_error(by_onnxruntime(model, photographs[:1]), expected) > 1e-2
