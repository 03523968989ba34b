"""Quantized networks in full size against those who define what comes out of them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Literal

import numpy as np
import onnx
import pytest

import tvmlab
from tests.oracles import golden
from tests.oracles.judges import LitertJudge, OnnxJudge, layer_by_layer
from tests.oracles.models import real_model
from tests.oracles.peers import noise, pictures, structured
from tests.qnn.cut import cut
from tests.qnn.graphs import Drawn
from tests.qnn.run import run
from tests.short import beside
from tvmlab import models
from tvmlab.measure import bench
from tvmlab.models.quantized import quantized_onnx
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

Size = Callable[[int], int]
RESNET8 = "resnet8_int8.tflite"
ROUNDINGS = ("UPWARD", "TONEAREST", "TFLITE", "ONNX")
# The error of the logits, in percent, and the pictures of 50 with the same class.
ERROR, SAME = 2.0, 48


@pytest.mark.parametrize("schedule", [True, False])
def test_all_of_relay_s_results_compiled(schedule: bool) -> None:
    for cases in golden.by_configuration(beside(golden.WHOLE)):
        for case, result in zip(cases, golden.compiled(cases, schedule), strict=True):
            golden.check(case, result)


@pytest.mark.parametrize("rounding", ["TFLITE", "UPWARD", "TONEAREST"])
def test_each_layer_of_resnet8_from_litert_s_integers(rounding: str, size: Size) -> None:
    content = real_model(RESNET8)
    inputs = noise(size(200))
    found = layer_by_layer(tvmlab.load(content), LitertJudge, content, inputs, rounding)
    assert found.pop("SOFTMAX").steps <= 1  # computed in floats
    assert {"CONV_2D", "ADD", "AVERAGE_POOL_2D", "FULLY_CONNECTED"} <= set(found)
    for kind, apart in found.items():
        assert apart.steps <= (rounding != "TFLITE"), kind
        assert apart.share <= 0.005, kind


def test_resnet8_is_litert_from_end_to_end(size: Size) -> None:
    content = real_model(RESNET8)
    mod = tvmlab.load(content)
    integer, shown = FakeQuantizationToInteger()(mod), cut(mod, pieces=False)
    assert {one.operator for one in float_operators(integer)} <= {"nn.softmax"}
    theirs = LitertJudge(content, shown.places)
    ours, whole = tvmlab.compile(shown.mod), tvmlab.compile(integer)
    count = size(1000)
    for picture in (*noise(count), *structured(count)):
        *expected, result = theirs(picture)
        *found, probabilities = ours(picture)
        for kind, mine, other in zip(theirs.kinds, found, expected, strict=True):
            if kind != "SOFTMAX":
                np.testing.assert_array_equal(mine, other, err_msg=kind)
        for softmax in (probabilities, whole(picture)):
            assert np.abs(np.asarray(softmax).astype(int) - result).max() <= 1


def test_random_networks_compiled_are_the_reference(size: Size) -> None:
    wrong = []
    for seed in range(size(300)):
        drawn = Drawn(random.Random(seed))
        integer = FakeQuantizationToInteger(rounding=ROUNDINGS[seed % 4])(drawn.mod)
        expected, _ = run(integer, *drawn.inputs)
        found = np.asarray(tvmlab.compile(integer)(*drawn.inputs))
        if float_operators(integer) or not np.array_equal(found, expected):
            wrong.append(seed)
    assert wrong == []


@functools.cache
def quantized(name: str, form: Literal["QDQ", "QOperator"]) -> onnx.ModelProto:
    return quantized_onnx(getattr(models, name)(), format=form)


@pytest.mark.parametrize(
    ("name", "form"),
    [("mobilenet_v2", "QDQ"), ("resnet50_v2", "QDQ"), ("resnet50_v2", "QOperator")],
)
def test_each_layer_from_onnx_runtime_s_integers(
    name: str, form: Literal["QDQ", "QOperator"], size: Size
) -> None:
    proto = quantized(name, form)
    mod = tvmlab.load(proto)
    if form == "QDQ":
        assert not float_operators(FakeQuantizationToInteger()(mod))
    found = layer_by_layer(mod, OnnxJudge, proto, pictures(size(50)))
    assert {kind: apart.steps for kind, apart in found.items() if apart.steps > 1} == {}


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_resnet50_is_onnx_runtime_from_end_to_end(
    form: Literal["QDQ", "QOperator"], size: Size, record_property: Callable[[str, object], None]
) -> None:
    proto = quantized("resnet50_v2", form)
    ours = tvmlab.compile(FakeQuantizationToInteger()(tvmlab.load(proto)))
    theirs, count = bench.OnnxRuntime(proto), size(50)
    errors, same = [], 0
    for picture in pictures(count):
        mine, other = np.asarray(ours(picture)), theirs(picture)
        errors.append(float(100 * np.linalg.norm(mine - other) / np.linalg.norm(other)))
        same += int(mine.argmax() == other.argmax())
    record_property("errors", errors)
    assert max(errors) <= ERROR
    assert same >= SAME * count // 50
