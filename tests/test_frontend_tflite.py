"""TensorFlow Lite models against LiteRT; damage is refused. They need a real model's file."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import tvm
from helpers_models import MODELS, said
from hypothesis import given, settings
from hypothesis import strategies as st

import tvmlab
from tvmlab.errors import ModelError, ShapeError, UnsupportedOperatorError

FILE = MODELS / "resnet8_float.tflite"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason=f"{FILE.name} is not on this machine")


@functools.cache
def content() -> bytes:
    return FILE.read_bytes()


def litert(x: np.ndarray) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content())
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    return np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


@pytest.mark.filterwarnings("ignore")
def test_resnet_8_gives_litert_s_numbers() -> None:
    executable = tvmlab.compile(tvmlab.load(FILE))
    (declared,) = executable.signature.inputs
    assert declared.shape == (1, 32, 32, 3)
    for seed in range(3):
        x = np.random.default_rng(seed).uniform(0, 255, (1, 32, 32, 3)).astype("float32")
        expected = litert(x)
        result = executable(x)
        assert result.shape == expected.shape == (1, 10)
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-5)


def test_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="has its shapes fixed already") as caught:
        tvmlab.load(FILE, shapes={"x": (1, 32, 32, 3)})
    assert caught.value.where == str(FILE)
    said(caught.value)


def load_or_refuse(data: bytes) -> tvm.IRModule | None:
    try:
        return tvmlab.load(data)
    except ModelError as error:
        refused = error
    said(refused)
    return None


@settings(max_examples=40)
@given(st.data())
def test_a_cut_anywhere(data: Any) -> None:
    cut = data.draw(st.integers(0, len(content()) - 1) | st.integers(1, 3000).map(lambda n: -n))
    loaded = load_or_refuse(content()[:cut])
    if loaded is not None:
        tvm.ir.assert_structural_equal(loaded, tvmlab.load(content()))


@settings(max_examples=15)
@given(st.data())
def test_damaged_bytes(data: Any) -> None:
    damaged = bytearray(content())
    # The graph lies at the end of the file, after the weights.
    places = st.integers(8, 4000) | st.integers(len(damaged) - 20_000, len(damaged) - 1)
    damage = st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=8)
    for place, byte in data.draw(damage):
        damaged[place] = byte
    load_or_refuse(bytes(damaged))


@given(st.binary(min_size=4, max_size=4), st.binary(max_size=300))
def test_random_bytes_behind_the_identifier(start: bytes, rest: bytes) -> None:
    assert load_or_refuse(start + b"TFL3" + rest) is None


def test_an_unsupported_operator_is_named() -> None:
    tflite = pytest.importorskip("tflite", reason="tflite is not installed")
    changed = bytearray(content())
    model = tflite.Model.GetRootAsModel(changed, 0)
    for index in range(model.OperatorCodesLength()):
        table = model.OperatorCodes(index)._tab
        slots = {slot: table.Offset(slot) for slot in (4, 10)}  # the two fields of the code
        if changed[table.Pos + slots[4]] == tflite.BuiltinOperator.AVERAGE_POOL_2D:
            for slot in slots.values():
                if slot:
                    changed[table.Pos + slot] = tflite.BuiltinOperator.RNN
            break
    else:
        pytest.fail("the model has no average pooling to change")
    with pytest.raises(UnsupportedOperatorError, match="RNN") as caught:
        tvmlab.load(bytes(changed))
    assert "TensorFlow Lite operator" in said(caught.value)
