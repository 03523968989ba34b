"""Both forms of a network compute the same; sizes and costs are those of the papers and PyTorch."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
import torch
from bench import layer_costs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from tests.oracles.networks import (
    TINY,
    by_onnxruntime,
    by_torch,
    relative_error,
)
from tvmlab.errors import ModelError
from tvmlab.models import onnx_form, torch_form
from tvmlab.models.networks import (
    ARCHITECTURES,
    MOBILENET,
    RESNET18,
    RESNET50,
    Architecture,
    inverted_residuals,
    resnet_v2,
)
from tvmlab.models.weights import seeded_parameters, uniform


@pytest.mark.parametrize(
    ("spec", "trained", "counts", "strided"),
    [
        # The usual 11,689,512 of ResNet-18 v1, with the norms where v2 has them.
        (RESNET18, 11_687_854, {"conv": 20, "batch_norm": 19, "add": 8}, 8),
        (RESNET50, 25_549_486, {"conv": 53, "batch_norm": 51, "add": 16}, 8),
        # The number everyone's MobileNetV2 of width 1.0 has.
        (MOBILENET, 3_504_872, {"conv": 52, "batch_norm": 52, "relu6": 35, "add": 10}, 5),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_the_networks_are_the_papers(
    spec: Architecture, trained: int, counts: dict[str, int], strided: int
) -> None:
    shapes = spec.parameters().items()
    assert sum(math.prod(shape) for name, shape in shapes if "running" not in name) == trained
    kinds = [layer.op for layer in spec.layers]
    assert {kind: kinds.count(kind) for kind in counts} == counts
    # A ResNet v2 of bottlenecks halves pictures in the 3x3 convolution, not in the first.
    halving = [layer for layer in spec.layers if layer.stride == 2]
    assert len(halving) == strided
    assert all(layer.kernel > 1 or "shortcut" in layer.name for layer in halving)
    depthwise = [layer for layer in spec.layers if layer.groups > 1]
    assert len(depthwise) == 17 * (spec is MOBILENET)
    assert all((it.groups, it.groups, 3) == (*it.channels, it.kernel) for it in depthwise)
    # A bottleneck of MobileNet is linear: nothing but the norm follows its projection.
    assert not any(
        "norm_project" in name for it in spec.layers if it.op == "relu6" for name in it.inputs
    )


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
    expected = by_torch(network, x)
    assert relative_error(by_onnxruntime(proto, x), expected) < 1e-5
    found = torch_form.parameters_of(network)
    assert list(found) == list(parameters)
    assert all(np.array_equal(found[name], parameters[name]) for name in parameters)


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
