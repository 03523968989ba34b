"""The networks: the weights are what they say, and bad input is named."""

from __future__ import annotations

import hashlib
import math
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from tests.oracles.networks import (
    TINY,
    as_the_zoo_writes,
    by_onnxruntime,
    by_torch,
    digest,
    relative_error,
    session,
)
from tvmlab import models
from tvmlab.errors import ChecksumError, DataError, InputError, ModelError, ToolchainError
from tvmlab.models import onnx_form, seeds, zoo
from tvmlab.models.resnet import RESNET50
from tvmlab.models.weights import seeded_parameters
from tvmlab.support import data


@pytest.fixture(scope="module")
def photographs() -> np.ndarray:
    china, flower = models.sample_image("china"), models.sample_image("flower")
    noise = seeds.uniform(np.random.PCG64(1), (224, 224, 3), 0, 255).astype(np.uint8)
    pictures = (china, flower, 255 - china, china // 3, flower[:, :320], flower[:, 320:], noise)
    return np.concatenate([models.preprocess(picture) for picture in pictures])


@pytest.fixture(scope="module")
def seeded() -> models.Model:
    return models.resnet50_v2("seeded")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TVMLAB_OFFLINE", "1")
    monkeypatch.setattr(zoo, "_no_zoo", "")


# Seeded weights


def test_seeded_weights_are_the_same_everywhere(seeded: models.Model) -> None:
    parameters = onnx_form.from_onnx(RESNET50, seeded.proto)
    assert digest(parameters) == "26a2335c8c26adff"
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
    network = models.torch_resnet50_v2("seeded")
    assert "seeded" in network.note
    assert relative_error(by_torch(network, photographs[:2]), logits[:2]) < 1e-4


def test_normal_numbers_are_nearly_normal_and_centred() -> None:
    plain = seeds.normal(np.random.PCG64(1), (100, 1000), 2.0, centred=False)
    assert plain.std() == pytest.approx(2.0, rel=0.01)
    assert abs(plain.mean()) < 0.03
    assert np.mean(np.abs(plain) < 2.0) == pytest.approx(0.6655, abs=0.01)  # normal: 0.683
    centred = seeds.normal(np.random.PCG64(1), (100, 1000), 2.0, centred=True)
    assert np.abs(centred.mean(axis=1)).max() < 1e-4


@given(count=st.integers(0, 50), seed=st.integers(0, 1000))
def test_a_permutation_is_one(count: int, seed: int) -> None:
    order = seeds.permutation(np.random.PCG64(seed), count)
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
    model = models.resnet50_v2("auto")
    assert model.weights == "seeded"
    assert "not downloaded: The network is closed by TVMLAB_OFFLINE. The file in the" in model.note


def test_auto_is_seeded_offline_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.resnet50_v2()
    assert model.weights == "seeded"
    assert "classes mean nothing" in model.note
    assert model.note.endswith("not downloaded: The network is closed by TVMLAB_OFFLINE.")
    assert "not downloaded" not in models.resnet50_v2("seeded").note
    assert model.note in str(model)
    assert "25.6 million" in str(model)
    assert "seeded" in repr(model)
    with pytest.raises(DataError, match=r"resnet50-v2-7\.onnx"):
        models.resnet50_v2("zoo")


def test_the_network_is_tried_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def fetch(name: str) -> Path:
        calls.append(name)
        raise DataError("no network\n    and more")

    monkeypatch.setattr(data, "fetch", fetch)
    for _ in range(2):
        path, note = zoo._zoo_file("auto")
        assert path is None
        assert note.endswith("The zoo's file is not downloaded: no network")
    assert zoo._zoo_file("seeded")[0] is None
    assert calls == ["resnet50-v2-7.onnx"]


def test_another_file_than_the_zoos_is_never_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str) -> Path:
        raise ChecksumError("wrong content")

    monkeypatch.setattr(data, "fetch", fetch)
    for weights in ("auto", "zoo"):
        with pytest.raises(ChecksumError):
            models.resnet50_v2(weights)  # type: ignore[arg-type]


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
        ("onnx", "models", models.resnet18_v2),
        ("onnx", "models", models.mobilenet_v2),
        ("torch", "torch", models.torch_resnet18_v2),
        ("torch", "torch", models.torch_mobilenet_v2),
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
