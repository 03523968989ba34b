"""TensorFlow Lite models against LiteRT; `test_frontend.py` damages one.

A small model is written here; MLPerf Tiny's ResNet-8 is read as well where its file is at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tvmlab
from tests.frontend.tflite import convolutional
from tests.oracles.litert import Litert
from tests.oracles.models import real_model, said
from tvmlab.errors import ShapeError, UnsupportedOperatorError

tflite = pytest.importorskip("tflite", reason="tflite is not installed")
SMALL = convolutional()


def named(content: bytes) -> str:
    graph = tflite.Model.GetRootAsModel(content, 0).Subgraphs(0)
    return graph.Tensors(graph.Outputs(0)).Name().decode()


MODELS: dict[str, tuple[Callable[[], bytes], tuple[int, ...], tuple[int, ...], float]] = {
    "small": (lambda: SMALL, (1, 8, 8, 2), (1, 4, 4, 3), 2.0),
    "resnet8": (lambda: real_model("resnet8_float.tflite"), (1, 32, 32, 3), (1, 10), 255.0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_litert_s_numbers(name: str) -> None:
    read, given_shape, made_shape, largest = MODELS[name]
    content = read()
    executable = tvmlab.compile(tvmlab.load(content))
    (declared,) = executable.signature.inputs
    assert declared.shape == given_shape
    (given,) = executable.signature.outputs
    assert given.name == named(content)
    for seed in range(3):
        x = np.random.default_rng(seed).uniform(0, largest, given_shape).astype("float32")
        expected = Litert(content).run(x)
        result = executable(x)
        assert result.shape == expected.shape == made_shape
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5)


def test_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.tflite"
    path.write_bytes(SMALL)
    with pytest.raises(ShapeError, match="has its shapes fixed already") as caught:
        tvmlab.load(path, shapes={"x": (1, 8, 8, 2)})
    assert caught.value.where == str(path)
    said(caught.value)


@pytest.mark.parametrize(
    ("code", "name"),
    [(tflite.BuiltinOperator.RNN, "RNN"), (tflite.BuiltinOperator.CUSTOM, "Custom operators")],
)
def test_an_unsupported_operator_is_named(code: int, name: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=name) as caught:
        tvmlab.load(convolutional(pooling=code))
    assert "TensorFlow Lite operator" in said(caught.value)
