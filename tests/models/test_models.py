"""Which weights a model gets, batches, and packages that are missing."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from onnx import helper

import tvmlab
from tests.oracles.networks import TINY, by_onnxruntime, by_torch, relative_error
from tvmlab import models
from tvmlab.errors import ChecksumError, DataError, InputError, ModelError, ToolchainError
from tvmlab.models import onnx_form, zoo
from tvmlab.models.weights import seeded_parameters
from tvmlab.support import data


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TVMLAB_OFFLINE", "1")
    monkeypatch.setattr(zoo, "_no_zoo", "")


# Which weights one gets


def closed_port() -> str:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{it.getsockname()[1]}/file"


@pytest.fixture
def zoo_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A file in the cache that stands for the zoo's, which cannot be had offline."""
    old = onnx_form.to_onnx(TINY, seeded_parameters(TINY, 0), batch=None)
    # Files of 2018 list their weights among the inputs.
    for tensor in old.graph.initializer:
        old.graph.input.append(helper.make_tensor_value_info(tensor.name, 1, tensor.dims))
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


def test_auto_takes_the_zoos_file_from_the_cache(zoo_file: Path) -> None:
    model = models.resnet50_v2()
    assert (model.weights, model.input_name) == ("zoo", "data")
    assert model.input_shape == (1, 3, 32, 32)
    assert "trained on ImageNet" in str(model)
    assert models.resnet50_v2("zoo", batch=None).input_shape == ("N", 3, 32, 32)
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
        assert models.resnet50_v2().note.endswith("The zoo's file is not downloaded: no network")
    assert calls == ["resnet50-v2-7.onnx"]


def test_another_file_than_the_zoos_is_never_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str) -> Path:
        raise ChecksumError("wrong content")

    monkeypatch.setattr(data, "fetch", fetch)
    for weights in ("auto", "zoo"):
        with pytest.raises(ChecksumError):
            models.resnet50_v2(weights)  # type: ignore[arg-type]


def test_unknown_weights_are_refused() -> None:
    with pytest.raises(InputError, match="'best' weights"):
        models.resnet50_v2("best")  # type: ignore[arg-type]


def test_batches() -> None:
    x = models.digits().x_test[:5]
    expected = by_torch(models.torch_digits_resnet(), x)
    for batch, shape in ((5, (5, 1, 8, 8)), (None, ("N", 1, 8, 8))):
        model = models.digits_resnet(batch=batch)
        assert model.input_shape == shape
        assert relative_error(by_onnxruntime(model.proto, x), expected) < 1e-5
    assert models.digits_resnet().input_shape == (1, 1, 8, 8)
    with pytest.raises(ModelError, match="A batch of 0"):
        models.digits_resnet(batch=0)


# What needs what


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    # The package without its root module, which imports TVM, which imports torch where it can.
    code = (
        "import sys, types; package = types.ModuleType('tvmlab');"
        f"package.__path__ = [{str(Path(tvmlab.__file__).parent)!r}];"
        "sys.modules['tvmlab'] = package;"
        "import tvmlab.models, tvmlab.support.data, tvmlab.models.__main__;"
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
