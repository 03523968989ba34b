"""Both forms of a network compute the same; sizes and costs are those of the papers and PyTorch."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from torch.utils.flop_counter import FlopCounterMode

from tests.oracles.networks import (
    TINY,
    by_onnxruntime,
    by_torch,
    relative_error,
)
from tvmlab import models
from tvmlab.errors import ModelError
from tvmlab.models import onnx_form, seeds, torch_form
from tvmlab.models.architecture import Architecture
from tvmlab.models.cost import ARCHITECTURES, layer_costs
from tvmlab.models.mobilenet import MOBILENET, MobileNetV2
from tvmlab.models.resnet import RESNET18, RESNET50, ResNetV2
from tvmlab.models.weights import seeded_parameters
from tvmlab.support import data


def trained(spec: Architecture) -> int:
    """Count the numbers that training would change."""
    shapes = spec.parameters().items()
    return sum(math.prod(shape) for name, shape in shapes if "running" not in name)


def test_resnet50_is_the_zoos() -> None:
    parameters = RESNET50.parameters()
    count = sum(map(math.prod, parameters.values()))
    # The rest of the zoo's file is names and nodes: some hundred bytes for each of 259 weights.
    rest = data.REGISTRY["resnet50-v2-7.onnx"].size - 4 * count
    assert 0 < rest < 400 * len(parameters)
    kinds = [layer.op for layer in RESNET50.layers()]
    assert (kinds.count("conv"), kinds.count("batch_norm"), kinds.count("add")) == (53, 51, 16)
    strided = {layer.name: layer.kernel for layer in RESNET50.layers() if layer.stride == 2}
    assert strided["stage3.unit1.conv2"] == 3
    assert strided["stage3.unit1.shortcut"] == 1
    assert len(strided) == 8


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


@settings(max_examples=12, deadline=None)
@given(
    block=st.sampled_from(["basic", "bottleneck"]),
    units=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    widths=st.lists(st.sampled_from([4, 8, 12]), min_size=4, max_size=4),
    stem=st.sampled_from(["imagenet", "cifar"]),
    colours=st.sampled_from([1, 3, 4]),
    size=st.integers(9, 33),
    seed=st.integers(0, 9),
)
def test_both_forms_agree(
    block: str,
    units: list[int],
    widths: list[int],
    stem: str,
    colours: int,
    size: int,
    seed: int,
) -> None:
    spec = ResNetV2(
        "any",
        (colours, size, size + 2),
        5,
        block,  # type: ignore[arg-type]
        tuple(units),
        tuple(widths[: len(units) + 1]),
        stem,  # type: ignore[arg-type]
    )
    check_both_forms(spec, seed)


@settings(max_examples=12, deadline=None)
@given(
    stages=st.lists(
        st.tuples(
            st.sampled_from([1, 2, 6]),
            st.sampled_from([4, 6, 8]),
            st.integers(1, 2),
            st.integers(1, 2),
        ),
        min_size=1,
        max_size=3,
    ),
    colours=st.sampled_from([1, 3]),
    size=st.integers(9, 33),
    seed=st.integers(0, 9),
)
def test_both_forms_of_inverted_residuals_agree(
    stages: list[tuple[int, int, int, int]], colours: int, size: int, seed: int
) -> None:
    image = (colours, size, size + 2)
    check_both_forms(MobileNetV2("any", image, 5, 4, tuple(stages), 16), seed)


def check_both_forms(spec: Architecture, seed: int) -> None:
    parameters = seeded_parameters(spec, seed)
    proto = onnx_form.to_onnx(spec, parameters, batch=None)
    onnx.checker.check_model(proto, full_check=True)
    network = torch_form.load_parameters(torch_form.Network(spec), parameters).eval()
    x = seeds.uniform(np.random.PCG64(seed), (2, *spec.image), -1, 1)
    expected = by_torch(network, x)
    assert relative_error(by_onnxruntime(proto, x), expected) < 1e-5
    found = torch_form.parameters_of(network)
    assert list(found) == list(parameters)
    assert all(np.array_equal(found[name], parameters[name]) for name in parameters)


def test_two_inputs_are_refused() -> None:
    proto = onnx_form.to_onnx(TINY, seeded_parameters(TINY, 0))
    proto.graph.input.append(helper.make_tensor_value_info("more", 1, [1]))
    with pytest.raises(ModelError, match="2 inputs"):
        models.Model.of(proto, "tiny", "seeded", "")


def test_parameters_that_do_not_fit_are_named() -> None:
    good = seeded_parameters(TINY, 0)
    name = "stage1.unit1.conv1.weight"
    for bad in (None, good[name][:1], good[name].astype(np.float64)):
        parameters = dict(good)
        del parameters[name]
        if bad is not None:
            parameters[name] = bad
        with pytest.raises(ModelError, match=r"stage1\.unit1\.conv1\.weight"):
            onnx_form.to_onnx(TINY, parameters)
    del good[name]
    with pytest.raises(ModelError, match="not those of the network"):
        torch_form.load_parameters(torch_form.Network(TINY), good)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_pytorch_counts_the_same_operations_and_sizes(name: str) -> None:
    spec = ARCHITECTURES[name]
    network = torch_form.Network(spec).eval()
    seen: dict[str, tuple[int, ...]] = {}
    for layer in network.layers:
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
