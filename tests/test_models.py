"""The networks: both forms compute the same, the weights are what they say, bad input is named."""

from __future__ import annotations

import hashlib
import math
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from PIL import Image

from tvmlab import data, models
from tvmlab.errors import DataError, InputError, ModelError, ToolchainError
from tvmlab.models import __main__ as command
from tvmlab.models import onnx_form, seeds, torch_form, training, zoo
from tvmlab.models.architecture import DIGITS, RESNET50, Parameters, ResNetV2, seeded_parameters

ASSETS = resources.files("tvmlab") / "assets"
TINY = ResNetV2("tiny", (3, 32, 32), 7, "bottleneck", (1, 2), (8, 16, 32))
RESNET18 = ResNetV2(
    "resnet18_v2", (3, 224, 224), 1000, "basic", (2, 2, 2, 2), (64, 64, 128, 256, 512)
)


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def by_onnxruntime(proto: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    [value] = session(proto).run(None, {onnx_form.graph_input(proto).name: x})
    return value


def by_torch(network: torch_form.Network, x: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return network(torch.from_numpy(x)).numpy()


def relative_error(value: np.ndarray, reference: np.ndarray) -> float:
    return float(np.abs(value - reference).max() / np.abs(reference).max())


def digest(parameters: Parameters) -> str:
    total = hashlib.sha256()
    for name, value in parameters.items():
        total.update(name.encode() + value.astype("<f4").tobytes())
    return total.hexdigest()[:16]


def as_the_zoo_writes(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Rewrite a model the way files of 2018 are: other names, weights among the inputs, opset 7."""
    old = onnx.ModelProto()
    old.CopyFrom(proto)
    graph = old.graph
    weights = {tensor.name for tensor in graph.initializer}

    def name(mine: str) -> str:
        known = {"data": "data", "logits": "resnetv24_dense0_fwd"}
        kind = "param" if mine in weights else "fwd"
        return known.get(mine, f"resnetv24_{hashlib.md5(mine.encode()).hexdigest()[:8]}_{kind}")

    for node in graph.node:
        node.input[:] = [name(mine) for mine in node.input]
        if node.op_type == "Add":  # the zoo's operands stand in no promised order
            node.input[:] = list(node.input)[::-1]
        node.output[:] = [name(mine) for mine in node.output]
        node.name = f"{node.name}_fwd"
        if node.op_type == "Conv":
            node.attribute.extend(
                [helper.make_attribute("dilations", [1, 1]), helper.make_attribute("group", 1)]
            )
        if node.op_type == "BatchNormalization":
            node.attribute.append(helper.make_attribute("momentum", 0.9))
    for tensor in graph.initializer:
        tensor.name = name(tensor.name)
        graph.input.append(helper.make_tensor_value_info(tensor.name, 1, tensor.dims))
    graph.output[0].name = "resnetv24_dense0_fwd"
    old.ir_version = 3
    old.opset_import[0].version = 7
    return old


@pytest.fixture(scope="module")
def photographs() -> np.ndarray:
    china, flower = models.sample_image("china"), models.sample_image("flower")
    noise = seeds.levels(np.random.PCG64(1), (224, 224, 3), 0, 255).astype(np.uint8)
    pictures = (china, flower, 255 - china, china // 3, flower[:, :320], flower[:, 320:], noise)
    return np.concatenate([models.preprocess(picture) for picture in pictures])


@pytest.fixture(scope="module")
def seeded() -> models.Model:
    return models.resnet50_v2("seeded")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TVMLAB_OFFLINE", "1")
    monkeypatch.setattr(zoo, "_no_zoo", [])


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


def test_resnet18_is_served_too() -> None:
    trained = {
        name: shape for name, shape in RESNET18.parameters().items() if "running" not in name
    }
    # The usual 11,689,512 of ResNet-18 v1; v2 opens with a norm of the data, ends with one of the
    # features, and has none on its three shortcuts and one less in the stem's unit.
    v1 = 11_689_512
    norms_v1 = 2 * (64 * 5 + 128 * 5 + 256 * 5 + 512 * 5)
    norms_v2 = 2 * sum(layer.channels[1] for layer in RESNET18.layers() if layer.op == "batch_norm")
    assert sum(map(math.prod, trained.values())) == v1 - norms_v1 + norms_v2
    onnx.checker.check_model(onnx_form.to_onnx(RESNET18, seeded_parameters(RESNET18, 1)), True)


@settings(max_examples=12, deadline=None)
@given(
    block=st.sampled_from(["basic", "bottleneck"]),
    units=st.lists(st.integers(1, 2), min_size=1, max_size=3),
    widths=st.lists(st.sampled_from([4, 8, 12]), min_size=4, max_size=4),
    deep_stem=st.booleans(),
    colours=st.sampled_from([1, 3, 4]),
    size=st.integers(9, 33),
    seed=st.integers(0, 9),
)
def test_both_forms_agree(
    block: str,
    units: list[int],
    widths: list[int],
    deep_stem: bool,
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
        deep_stem,
    )
    parameters = seeded_parameters(spec, seed)
    proto = onnx_form.to_onnx(spec, parameters, batch=None)
    onnx.checker.check_model(proto, full_check=True)
    network = torch_form.load_parameters(torch_form.Network(spec), parameters).eval()
    x = seeds.levels(np.random.PCG64(seed), (2, *spec.image), -1, 1)
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


# Seeded weights


def test_seeded_weights_are_the_same_everywhere(seeded: models.Model) -> None:
    parameters = onnx_form.from_onnx(RESNET50, seeded.proto)
    assert digest(parameters) == "4e0b55eba3c86f7e"
    assert all(value.dtype == np.float32 for value in parameters.values())


def test_seeded_weights_have_hes_deviation_and_norms_that_do_something() -> None:
    parameters = seeded_parameters(RESNET50, 3)
    weight = parameters["stage2.unit2.conv2.weight"]
    assert weight.std() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.01)
    assert np.abs(weight.sum(axis=(1, 2, 3))).max() < 1e-2
    norm = {
        name.rpartition(".")[2]: value
        for name, value in parameters.items()
        if name.startswith("stage2.unit2.norm2.")
    }
    for value in norm.values():
        assert len(np.unique(value)) == len(value)
    assert norm["running_var"].min() > 0
    assert np.array_equal(parameters["data_norm.weight"], np.ones(3, np.float32))


def test_another_seed_is_another_network() -> None:
    digests = {digest(seeded_parameters(TINY, seed)) for seed in range(4)}
    assert len(digests) == 4
    assert digest(seeded_parameters(TINY, 0)) in digests


def test_seeded_resnet50_behaves(seeded: models.Model, photographs: np.ndarray) -> None:
    watched = onnx.ModelProto()
    watched.CopyFrom(seeded.proto)
    onnx_form.set_batch(watched, None)
    sums = [layer.name for layer in RESNET50.layers() if layer.op == "add"]
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in sums)
    logits, *values = session(watched).run(None, {"data": photographs})
    assert len({row.argmax() for row in logits}) >= 4
    assert 0.2 < logits.std() < 5
    for value in values:
        assert np.isfinite(value).all()
        assert 0.3 < value.std() < 10
    network = models.torch_resnet50_v2("seeded")
    assert "seeded" in network.note
    assert relative_error(by_torch(network, photographs[:2]), logits[:2]) < 1e-4


def test_bell_is_bell_shaped_and_centred() -> None:
    plain = seeds.bell(np.random.PCG64(1), (100, 1000), 2.0, centred=False)
    assert plain.std() == pytest.approx(2.0, rel=0.01)
    assert abs(plain.mean()) < 0.03
    assert np.mean(np.abs(plain) < 2.0) == pytest.approx(0.6655, abs=0.01)  # normal: 0.683
    centred = seeds.bell(np.random.PCG64(1), (100, 1000), 2.0, centred=True)
    assert np.abs(centred.mean(axis=1)).max() < 1e-4


@given(count=st.integers(0, 50), seed=st.integers(0, 1000))
def test_shuffled_is_a_permutation(count: int, seed: int) -> None:
    order = seeds.shuffled(np.random.PCG64(seed), count)
    assert sorted(order) == list(range(count))


# Which weights one gets


def closed_port() -> str:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{it.getsockname()[1]}/file"


@pytest.fixture
def zoo_file(
    seeded: models.Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Path]:
    """A file in the cache that stands for the zoo's, which cannot be had offline."""
    old = as_the_zoo_writes(seeded.proto)
    for value in (onnx_form.graph_input(old), old.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    content = old.SerializeToString()
    entry = data.Entry(
        name=zoo.ZOO_FILE,
        url=closed_port(),
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="Apache-2.0",
        what="a stand-in",
    )
    monkeypatch.setattr(data, "REGISTRY", MappingProxyType({entry.name: entry}))
    path = tmp_path / "cache" / zoo.ZOO_FILE
    path.parent.mkdir()
    path.write_bytes(content)
    yield path
    path.unlink(missing_ok=True)


def test_auto_takes_the_zoos_file_from_the_cache(
    zoo_file: Path, seeded: models.Model, photographs: np.ndarray
) -> None:
    model = models.resnet50_v2()
    assert (model.weights, model.input_name) == ("zoo", "data")
    assert model.input_shape == (1, 3, 224, 224)
    assert "trained on ImageNet" in str(model)
    one = photographs[:1]
    network = models.torch_resnet50_v2()
    assert "trained on ImageNet" in network.note
    assert relative_error(by_onnxruntime(model.proto, one), by_torch(network, one)) < 1e-4
    assert models.resnet50_v2("zoo", batch=None).input_shape == ("N", 3, 224, 224)
    zoo_file.write_bytes(b"damaged")
    assert models.resnet50_v2("auto").weights == "seeded"


def test_auto_is_seeded_offline_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.resnet50_v2()
    assert model.weights == "seeded"
    assert "classes mean nothing" in model.note
    assert model.note in str(model)
    assert "25.6 million" in str(model)
    assert "seeded" in repr(model)
    with pytest.raises(DataError, match=r"resnet50-v2-7\.onnx"):
        models.resnet50_v2("zoo")


def test_the_network_is_tried_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def fetch(name: str) -> Path:
        calls.append(name)
        raise DataError("no network")

    monkeypatch.setattr(data, "fetch", fetch)
    assert zoo._zoo_path("auto") is None
    assert zoo._zoo_path("auto") is None
    assert zoo._zoo_path("seeded") is None
    assert calls == ["resnet50-v2-7.onnx"]


@pytest.mark.parametrize("build", [models.resnet50_v2, models.torch_resnet50_v2])
def test_unknown_weights_are_refused(build: object) -> None:
    with pytest.raises(InputError, match="'best' weights"):
        build("best")  # type: ignore[operator]


def test_batches(seeded: models.Model) -> None:
    x = models.digits().x_test[:5]
    expected = by_torch(models.torch_digits_resnet(), x)
    for batch, shape in ((5, (5, 1, 8, 8)), (None, ("N", 1, 8, 8))):
        model = models.digits_resnet(batch=batch)
        assert model.input_shape == shape
        assert relative_error(by_onnxruntime(model.proto, x), expected) < 1e-5
    assert models.digits_resnet().input_shape == (1, 1, 8, 8)
    assert seeded.input_shape == (1, 3, 224, 224)
    for build in (models.digits_resnet, lambda batch: models.resnet50_v2("seeded", batch=batch)):
        with pytest.raises(ModelError, match="A batch of 0"):
            build(batch=0)


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


def test_two_inputs_are_refused() -> None:
    proto = tiny()
    proto.graph.input.append(helper.make_tensor_value_info("more", 1, [1]))
    with pytest.raises(ModelError, match="2 inputs"):
        models.Model.of(proto, "tiny", "seeded")


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
    assert training.accuracy(network, split.x_test, split.y_test) >= 0.98
    assert model.weights == "trained"
    assert model.parameter_count == sum(map(math.prod, DIGITS.parameters().values()))
    assert "train-digits" in network.note


def test_the_network_shows_the_opset_and_no_machine() -> None:
    proto = models.digits_resnet().proto
    assert [(it.domain, it.version) for it in proto.opset_import] == [("", 17)]
    assert proto.producer_name == "tvmlab"
    assert not proto.doc_string
    names = {tensor.name for tensor in proto.graph.initializer}
    assert names == set(DIGITS.parameters())
    weight = numpy_helper.to_array(proto.graph.initializer[-1])
    assert weight.shape == (10,)


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


def test_training_learns_repeats_itself_and_leaves_torch_as_it_was() -> None:
    split = models.digits()
    small = models.Digits(split.x_train[:320], split.y_train[:320], *split[2:])
    said: list[str] = []
    before = torch.get_num_threads()
    first = training.train(small, epochs=3, seed=1, say=said.append)
    second = training.train(small, epochs=3, seed=1, say=said.append)
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()
    assert not first.training
    assert digest(torch_form.parameters_of(first)) == digest(torch_form.parameters_of(second))
    assert training.accuracy(first, small.x_train, small.y_train) > 0.4
    assert said[0].startswith("epoch   3 of 3: loss")


def test_moves_are_by_at_most_a_pixel() -> None:
    dot = torch.zeros(200, 1, 8, 8)
    dot[:, 0, 4, 4] = 1
    moved = training._moved(dot, torch.Generator().manual_seed(1))
    assert moved.shape == dot.shape
    places = {tuple(place) for place in moved[:, 0].nonzero()[:, 1:].tolist()}
    assert places == {(row, column) for row in (3, 4, 5) for column in (3, 4, 5)}


def test_the_command_writes_what_is_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = models.torch_digits_resnet()
    monkeypatch.setattr(training, "train", lambda *_, **__: shipped)
    output = tmp_path / "net.onnx"
    output.write_bytes(b"older")
    assert command.main(["train-digits", "--output", str(output)]) == 0
    assert output.read_bytes() == (ASSETS / "digits_resnet.onnx").read_bytes()
    assert list(tmp_path.iterdir()) == [output]
    assert "of 450 held-out digits are right" in capsys.readouterr().out
    (tmp_path / "file").write_text("in the way")
    assert command.main(["train-digits", "--output", str(tmp_path / "file" / "x.onnx")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_the_command_writes_nothing_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "net.onnx"
    assert command.main(["train-digits", "--epochs", "1", "--output", str(output)]) == 1
    assert "nothing is written" in capsys.readouterr().err
    assert not output.exists()
    with pytest.raises(SystemExit):
        command.main(["train-digits", "--epochs", "0"])
    with pytest.raises(SystemExit):
        command.main([])


# Photographs and names


@pytest.mark.parametrize("name", ["china", "flower"])
def test_photographs_are_real(name: str) -> None:
    picture = models.sample_image(name)  # type: ignore[arg-type]
    assert (picture.shape, picture.dtype) == ((427, 640, 3), np.uint8)
    assert len(np.unique(picture)) > 200
    picture[:] = 0  # the reader may draw on it
    assert models.sample_image(name).any()  # type: ignore[arg-type]


def test_an_unknown_photograph_is_refused() -> None:
    with pytest.raises(InputError, match="cat"):
        models.sample_image("cat")  # type: ignore[arg-type]


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


def test_preprocessing_keeps_up_up_and_left_left() -> None:
    picture = np.zeros((100, 200, 3), np.uint8)
    picture[:50, :100, 0] = 255
    red = models.preprocess(picture)[0, 0]
    assert red[:110, :110].min() > red[114:, :].max()
    assert red[:110, :110].min() > red[:, 114:].max()


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((4, 4), np.uint8),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((4, 4, 3), np.float32),
        np.zeros((0, 4, 3), np.uint8),
    ],
)
def test_preprocessing_refuses_other_arrays(bad: np.ndarray) -> None:
    with pytest.raises(InputError, match="not uint8"):
        models.preprocess(bad)


def test_labels_are_in_the_models_order() -> None:
    labels = models.imagenet_labels()
    assert len(labels) == 1000
    assert all(label == label.strip() and label and "_" not in label for label in labels)
    places = {
        0: "tench",
        1: "goldfish",
        15: "robin",
        51: "triceratops",
        99: "goose",
        134: "crane",
        151: "Chihuahua",
        200: "Tibetan terrier",
        207: "golden retriever",
        250: "Siberian husky",
        264: "Cardigan",
        281: "tabby",
        282: "tiger cat",
        283: "Persian cat",
        285: "Egyptian cat",
        301: "ladybug",
        350: "ibex",
        388: "giant panda",
        398: "abacus",
        412: "ashcan",
        474: "cardigan",
        500: "cliff dwelling",
        517: "crane",
        538: "dome",
        607: "jack-o'-lantern",
        638: "maillot",
        639: "maillot",
        663: "monastery",
        698: "palace",
        750: "quilt",
        832: "stupa",
        850: "teddy",
        900: "water tower",
        916: "web site",
        954: "banana",
        985: "daisy",
        999: "toilet tissue",
    }
    assert {place: labels[place] for place in places} == places
    twice = {label for label in labels if labels.count(label) > 1}
    assert twice == {"crane", "maillot"}


# What needs what


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    # The package without its root module, which imports TVM, which imports torch where it can.
    code = (
        "import sys, types; package = types.ModuleType('tvmlab');"
        f"package.__path__ = [{str(Path(data.__file__).parent)!r}];"
        "sys.modules['tvmlab'] = package;"
        "import tvmlab.models, tvmlab.data, tvmlab.models.__main__;"
        "heavy = {'torch', 'onnx', 'sklearn', 'scipy', 'PIL', 'tqdm', 'tvm', 'matplotlib'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("onnx", "models", models.digits_resnet),
        ("onnx", "models", lambda: models.resnet50_v2("seeded")),
        ("torch", "torch", models.torch_digits_resnet),
        ("torch", "torch", models.torch_resnet50_v2),
        ("sklearn", "models", models.digits),
        ("sklearn", "models", models.sample_image),
        ("PIL", "models", lambda: models.preprocess(np.zeros((2, 2, 3), np.uint8))),
    ],
)
def test_a_missing_extra_is_named(
    package: str, extra: str, call: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ToolchainError, match=rf"tvmlab\[{extra}\]"):
        call()  # type: ignore[operator]
