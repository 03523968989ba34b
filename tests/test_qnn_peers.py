"""Whole quantized networks in integers, against those who define what comes out of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers_models import by_onnx_runtime, real_model
from helpers_networks import by_torch

import tvmlab
from tvmlab import models
from tvmlab.models.quantized import quantized_onnx, quantized_torch
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

# Where 450 pictures are told the same: at least 99.5%; and right: within 0.3 points.
SAME, CLOSE = 0.995, 0.003
FORMS = ("QDQ", "QOperator", "PT2E")


def structured(count: int) -> Iterator[np.ndarray]:
    """Pictures of one colour, ramps, chessboards, waves and faint noise, up to the extremes."""
    y, x = np.mgrid[0:32, 0:32]
    random = np.random.default_rng(1)
    for i in range(count):
        made = (
            np.full((32, 32), i % 256 - 128),
            (x * 8 + i) % 256 - 128,
            np.where((x // (1 + i % 7) + y // (1 + i % 5)) % 2, 127, -128),
            127 * np.sin(x * (i % 13) / 5 + y / 3),
            np.clip(random.normal(i % 100 - 50, 5, (32, 32)), -128, 127),
        )[i % 5]
        yield np.repeat(made.astype("int8")[None, :, :, None], 3, axis=3)


def test_resnet8_is_litert_to_the_bit() -> None:
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    from helpers_litert import Litert

    content = real_model("resnet8_int8.tflite")
    mod = FakeQuantizationToInteger()(tvmlab.load(content))
    assert not [it for it in float_operators(mod) if "softmax" not in it.operator]
    ours, theirs = tvmlab.compile(mod), Litert(content)
    random = np.random.default_rng(0)
    noise = (random.integers(-128, 128, (1, 32, 32, 3)).astype("int8") for _ in range(100))
    seen = set()
    for picture in (*noise, *structured(100)):
        # The ten probabilities: softmax is computed in floats, and may round by one step.
        expected: Any = theirs.run(picture).astype(int)
        found: Any = np.asarray(ours(picture)).astype(int)
        assert abs(found - expected).max() <= 1
        seen.add(int(expected.argmax()))
    assert len(seen) > 3


@pytest.mark.parametrize("form", FORMS)
def test_the_digits_network_says_what_its_quantizer_says(form: Any) -> None:
    held_out = models.digits()
    x, labels = held_out.x_test, held_out.y_test
    if form == "PT2E":
        quantized = quantized_torch(batch=50)
        theirs, mod = by_torch(quantized.module, x), tvmlab.load(quantized.program)
    else:
        proto = quantized_onnx(models.digits_resnet(batch=None), format=form)
        (theirs,) = by_onnx_runtime(proto, x)
        mod = tvmlab.load(proto, shapes={"data": (50, 1, 8, 8)})
    integer = FakeQuantizationToInteger()(mod)
    assert not float_operators(integer)
    run = tvmlab.compile(integer)
    ours = np.concatenate([np.asarray(run(x[i : i + 50])) for i in range(0, len(x), 50)])
    assert np.mean(ours.argmax(axis=1) == theirs.argmax(axis=1)) >= SAME
    right = [np.mean(logits.argmax(axis=1) == labels) for logits in (ours, theirs)]
    assert abs(right[0] - right[1]) <= CLOSE
