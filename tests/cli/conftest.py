"""What the tests of the command share: a folder with two small models, and a package."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvmlab
from tests.oracles.models import convolutional, dense


@pytest.fixture
def own_models(own_folder: Path) -> None:
    """Let the test run in a folder with conv.onnx and dense.onnx, which compile in a second."""
    Path("conv.onnx").write_bytes(convolutional().SerializeToString())
    Path("dense.onnx").write_bytes(dense().SerializeToString())


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a package that the package's functions made of conv.onnx."""
    made = tvmlab.compile(tvmlab.load(convolutional()))
    return str(made.save(tmp_path_factory.mktemp("package") / "conv.so"))
