"""Which weights a model gets, batches, and packages that are missing."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import pytest
from onnx import helper

import tvmlab
from tests.oracles.networks import TINY
from tvmlab import models
from tvmlab.errors import DataError, InputError
from tvmlab.models import onnx_form, zoo
from tvmlab.models.weights import seeded_parameters
from tvmlab.support import data


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TVMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TVMLAB_OFFLINE", "1")
    monkeypatch.setattr(zoo, "_no_zoo", "")


def test_auto_takes_the_zoos_file_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = onnx_form.to_onnx(TINY, seeded_parameters(TINY, 0), batch=None)
    # Files of 2018 list their weights among the inputs.
    for tensor in old.graph.initializer:
        old.graph.input.append(helper.make_tensor_value_info(tensor.name, 1, tensor.dims))
    content = old.SerializeToString()
    digest = hashlib.sha256(content).hexdigest()
    entry = data.Entry(zoo.ZOO_FILE, "http://127.0.0.1:9/file", len(content), digest, "Apache-2.0")
    monkeypatch.setattr(data, "REGISTRY", MappingProxyType({entry.name: entry}))
    path = tmp_path / "cache" / zoo.ZOO_FILE
    path.parent.mkdir()
    path.write_bytes(content)
    model = models.resnet50_v2()
    assert (model.weights, model.input_name) == ("zoo", "data")
    assert model.input_shape == (1, 3, 32, 32)
    assert "trained on ImageNet" in str(model)
    assert models.resnet50_v2("zoo", batch=None).input_shape == ("N", 3, 32, 32)
    path.write_bytes(b"damaged")
    model = models.resnet50_v2("auto")
    assert model.weights == "seeded"
    assert "not downloaded: The network is closed by TVMLAB_OFFLINE." in model.note


def test_auto_is_seeded_offline_and_says_so() -> None:
    model = models.resnet50_v2()
    assert model.weights == "seeded"
    assert "classes mean nothing" in model.note
    assert model.note.endswith("not downloaded: The network is closed by TVMLAB_OFFLINE.")
    assert "not downloaded" not in models.resnet50_v2("seeded").note
    assert model.note in str(model)
    assert "25.6 million" in str(model)
    with pytest.raises(DataError, match=r"resnet50-v2-7\.onnx"):
        models.resnet50_v2("zoo")
    with pytest.raises(InputError, match="'best' weights"):
        models.resnet50_v2("best")  # type: ignore[arg-type]


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    # The package without its root module, which imports TVM, which imports torch where it can.
    code = (
        "import sys, types; package = types.ModuleType('tvmlab');"
        f"package.__path__ = [{str(Path(tvmlab.__file__).parent)!r}];"
        "sys.modules['tvmlab'] = package;"
        "import tvmlab.models, tvmlab.support.data;"
        "heavy = {'torch', 'onnx', 'sklearn', 'scipy', 'PIL', 'tqdm', 'tvm', 'matplotlib'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
