"""The ONNX and the torch form of a network: they compute the same and turn into one another."""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.oracles.networks import (
    TINY,
    as_the_zoo_writes,
    by_onnxruntime,
    by_torch,
    relative_error,
)
from tvmlab import models
from tvmlab.errors import ModelError
from tvmlab.models import onnx_form, seeds, torch_form
from tvmlab.models.architecture import Architecture
from tvmlab.models.mobilenet import MobileNetV2
from tvmlab.models.resnet import RESNET50, ResNetV2
from tvmlab.models.weights import seeded_parameters
from tvmlab.support import data

# The architecture


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
    # And back again, to the last bit, from a file whose names are another's.
    for found in (
        torch_form.parameters_of(network),
        onnx_form.from_onnx(spec, proto),
        onnx_form.from_onnx(spec, as_the_zoo_writes(proto)),
    ):
        assert list(found) == list(parameters)
        assert all(np.array_equal(found[name], parameters[name]) for name in parameters)


def test_a_state_dict_has_the_same_names() -> None:
    state = torch_form.Network(TINY).state_dict()
    names = [name for name in state if not name.endswith("num_batches_tracked")]
    assert {name: tuple(state[name].shape) for name in names} == TINY.parameters()


# Reading other people's models


def tiny() -> onnx.ModelProto:
    return onnx_form.to_onnx(TINY, seeded_parameters(TINY, 0))


def change_epsilon(proto: onnx.ModelProto) -> None:
    [attribute] = proto.graph.node[0].attribute
    attribute.f = 2e-5


def change_stride(proto: onnx.ModelProto) -> None:
    node = next(node for node in proto.graph.node if node.name == "stage2.unit1.conv2")
    next(it for it in node.attribute if it.name == "strides").ints[:] = [1, 1]


def change_sum(proto: onnx.ModelProto) -> None:
    next(node for node in proto.graph.node if node.op_type == "Add").op_type = "Mul"


def change_group(proto: onnx.ModelProto) -> None:
    node = next(node for node in proto.graph.node if node.op_type == "Conv")
    node.attribute.append(helper.make_attribute("group", 3))


def change_limit(proto: onnx.ModelProto) -> None:
    node = next(node for node in proto.graph.node if node.name == "relu6.max")
    node.attribute[0].t.CopyFrom(helper.make_tensor("seven", 1, [], [7.0]))


def change_to_dense(proto: onnx.ModelProto) -> None:
    node = next(node for node in proto.graph.node if "depthwise" in node.name)
    [attribute] = [it for it in node.attribute if it.name == "group"]
    node.attribute.remove(attribute)


def add_softmax(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(helper.make_node("Softmax", ["logits"], ["p"]))
    proto.graph.output[0].name = "p"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_epsilon, "no batch_norm like data_norm"),
        (change_stride, r"no conv like stage2\.unit1\.conv2"),
        (change_sum, r"no add like stage1\.unit1\.sum"),
        (change_group, r"no conv like stem\.conv"),
        (add_softmax, "goes on where tiny ends"),
    ],
)
def test_another_architecture_is_named(change: object, said: str) -> None:
    proto = tiny()
    assert onnx_form.from_onnx(TINY, proto)
    change(proto)  # type: ignore[operator]
    with pytest.raises(ModelError, match=said):
        onnx_form.from_onnx(TINY, proto)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_limit, r"no relu6 like stem\.relu"),
        (change_to_dense, r"no conv like stage1\.unit1\.conv_depthwise"),
    ],
)
def test_another_mobilenet_is_named(change: object, said: str) -> None:
    spec = MobileNetV2("slim", (3, 16, 16), 3, 4, ((1, 4, 1, 1),), 8)
    proto = onnx_form.to_onnx(spec, seeded_parameters(spec, 0))
    assert onnx_form.from_onnx(spec, proto)
    change(proto)  # type: ignore[operator]
    with pytest.raises(ModelError, match=said):
        onnx_form.from_onnx(spec, proto)


def test_two_inputs_are_refused() -> None:
    proto = tiny()
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
