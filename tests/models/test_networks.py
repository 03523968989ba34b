"""Both forms of a network compute the same; seeded weights behave as trained ones do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
import tvm
from bench import layer_costs
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from torch.utils.flop_counter import FlopCounterMode
from tvm import relax

import tvmlab
from tests.oracles.models import by_onnx_runtime, real_model
from tests.oracles.networks import by_onnxruntime, by_torch, digest, relative_error
from tvmlab import models
from tvmlab.errors import ModelError
from tvmlab.models import onnx_form, torch_form
from tvmlab.models.networks import ARCHITECTURES, Architecture, inverted_residuals, resnet_v2
from tvmlab.models.resnet8 import resnet8_tflite
from tvmlab.models.weights import seeded_parameters, uniform


@st.composite
def networks(draw: st.DrawFn) -> Architecture:
    size = draw(st.integers(9, 33))
    image = (draw(st.sampled_from([1, 3, 4])), size, size + 2)
    if draw(st.booleans()):
        unit = (st.sampled_from([1, 2, 6]), st.sampled_from([4, 6, 8]), *[st.integers(1, 2)] * 2)
        stages = draw(st.lists(st.tuples(*unit), min_size=1, max_size=3))
        return inverted_residuals("any", image, 5, stem=4, stages=tuple(stages), features=16)
    units = draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    count = len(units) + 1
    widths = draw(st.lists(st.sampled_from([4, 8, 12]), min_size=count, max_size=count))
    kinds = {"bottleneck": draw(st.booleans()), "small": draw(st.booleans())}
    return resnet_v2("any", image, 5, units=tuple(units), channels=tuple(widths), **kinds)


@settings(max_examples=24, deadline=None)
@given(spec=networks(), seed=st.integers(0, 9))
def test_both_forms_agree(spec: Architecture, seed: int) -> None:
    parameters = seeded_parameters(spec, seed)
    proto = onnx_form.to_onnx(spec, parameters, batch=None)
    onnx.checker.check_model(proto, full_check=True)
    network = torch_form.load_parameters(torch_form.Network(spec), parameters).eval()
    x = uniform(np.random.PCG64(seed), (2, *spec.image), -1, 1)
    assert relative_error(by_onnxruntime(proto, x), by_torch(network, x)) < 1e-5


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pytorch_counts_the_same_operations_and_sizes(name: str) -> None:
    spec = ARCHITECTURES[name]
    network = torch_form.Network(spec).eval()
    seen: dict[str, tuple[int, ...]] = {}
    for layer in spec.layers:
        network.get_submodule(layer.name).register_forward_hook(
            lambda _module, _inputs, output, name=layer.name: seen.update({name: output.shape})
        )
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, *spec.image))
    costs = layer_costs(spec)
    # PyTorch counts a multiplication and its addition as two operations, too.
    assert sum(cost.flops for cost in costs) == counter.get_total_flops()
    for cost in costs:
        shape = seen[cost.layer.name]
        assert shape[1] == cost.layer.channels[1]
        assert tuple(shape[2:]) == (cost.out_size if len(shape) == 4 else ())


# Seeded weights


@pytest.fixture(scope="module")
def photographs() -> np.ndarray:
    china, flower = models.sample_image("china"), models.sample_image("flower")
    noise = uniform(np.random.PCG64(1), (224, 224, 3), 0, 255).astype(np.uint8)
    return np.concatenate([models.preprocess(picture) for picture in (china, flower, noise)])


@pytest.mark.parametrize(
    ("name", "trained", "expected"),
    [
        ("resnet50_v2", 25_549_486, "26a2335c8c26adff"),
        # The usual 11,689,512 of ResNet-18 v1, with the norms where v2 has them.
        ("resnet18_v2", 11_687_854, "3df7bd7ca48f67fe"),
        # The number of parameters of every MobileNetV2 of width 1.0.
        ("mobilenet_v2", 3_504_872, "7c4ee09d435d60c5"),
    ],
)
def test_seeded_networks(name: str, trained: int, expected: str, photographs: np.ndarray) -> None:
    """The weights are the same everywhere, values neither grow nor vanish, both forms agree."""
    arguments = ("seeded",) * (name == "resnet50_v2")
    model = getattr(models, name)(*arguments, batch=None)
    parameters = {it.name: numpy_helper.to_array(it) for it in model.proto.graph.initializer}
    assert list(parameters) == list(ARCHITECTURES[name].parameters())
    assert sum(it.size for key, it in parameters.items() if "running" not in key) == trained
    assert digest(parameters) == expected
    layers = [layer for layer in ARCHITECTURES[name].layers if layer.op in ("conv", "add", "relu6")]
    watched = onnx.ModelProto()
    watched.CopyFrom(model.proto)
    watched.graph.output.extend(helper.make_empty_tensor_value_info(it.name) for it in layers)
    logits, *values = by_onnx_runtime(watched, photographs)
    # ResNet's branches end in convolutions, which are 32 times smaller than the trunk.
    ends = {it.inputs[0] for it in layers if it.op == "add"}
    for layer, value in zip(layers, values, strict=True):
        small = 32 if layer.name in ends else 1
        assert 0.3 < small * value.std() < 4, layer.name
    assert 0.2 < logits.std() < 5
    # The pictures, and not what all of them share, make a good part of what is computed.
    assert logits.var(axis=0).mean() > 0.05 * logits.var()
    assert relative_error(by_torch(torch_form.of(model), photographs), logits) < 1e-4


def test_the_zoos_weights_have_no_torch_form() -> None:
    model = models.Model(models.digits_resnet().proto, "resnet50_v2", "zoo")
    with pytest.raises(ModelError, match="do not have the names"):
        torch_form.of(model)


# The stand-in for MLPerf Tiny's ResNet-8


def steps(mod: tvm.IRModule) -> list[tuple[str, str]]:
    """Each operator of a module and the type it gives."""
    bindings = mod["main"].body.blocks[0].bindings
    calls = [one.value for one in bindings if isinstance(one.value, relax.Call)]
    return [(call.op.name, str(call.ty)) for call in calls]


def test_resnet8_has_the_real_ones_operators_and_shapes() -> None:
    ours = steps(tvmlab.load(resnet8_tflite()))
    assert [name for name, _ in ours].count("relax.nn.conv2d") == 9
    assert ours == steps(tvmlab.load(real_model("resnet8_int8.tflite")))
