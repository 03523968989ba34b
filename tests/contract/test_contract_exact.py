"""Quantized results against those who define them, in short form; `make referee` has the long one.

Judges are LiteRT's reference kernels, ONNX Runtime, the results of the real Relay, and for the
accelerator the same network on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tvmlab
from tests.contract.networks import network
from tests.npu.networks import integers_out
from tests.oracles import golden
from tests.oracles.models import by_onnx_runtime, real_model
from tests.oracles.models import session as onnx_session
from tests.oracles.onnx_qnn import DrawnOnnx, x86
from tests.oracles.peers import noise, structured
from tvmlab import models, npu
from tvmlab.models.quantized import quantized_onnx
from tvmlab.models.resnet8 import resnet8_tflite
from tvmlab.qnn.transform import FakeQuantizationToInteger


def test_resnet8_s_logits_have_litert_s_bits() -> None:
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    from tests.oracles.litert import Litert, read

    content = resnet8_tflite()
    *_, logits, softmax = read(content)[1]
    assert (logits.name, softmax.name) == ("FULLY_CONNECTED", "SOFTMAX")
    ours = tvmlab.compile(integers_out(FakeQuantizationToInteger()(tvmlab.load(content))))
    theirs, seen = Litert(content), set()
    for picture in (*noise(20), *structured(20)):
        theirs.run(picture)
        expected = theirs.tensor(logits.output)
        np.testing.assert_array_equal(ours(picture), expected)
        seen |= set(expected.flat)
    assert len(seen) > 50


def test_the_trained_resnet8_has_litert_s_bits_layer_by_layer() -> None:
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    from tests.oracles.judges import LitertJudge, layer_by_layer

    content = real_model("resnet8_int8.tflite")
    inputs = [*noise(3), *structured(5)]
    found = layer_by_layer(tvmlab.load(content), LitertJudge, content, inputs)
    assert {"CONV_2D", "ADD", "AVERAGE_POOL_2D", "FULLY_CONNECTED", "SOFTMAX"} <= set(found)
    assert found.pop("SOFTMAX").steps <= 1  # computed in floats
    assert {kind: apart.off for kind, apart in found.items() if apart.off} == {}


@x86
@pytest.mark.parametrize(("form", "kind"), [("QDQ", "uint8"), ("QOperator", "int8")])
def test_the_digits_have_onnx_runtime_s_bits(form: Any, kind: Any) -> None:
    model = quantized_onnx(models.digits_resnet(batch=50), format=form, activations=kind)
    run = tvmlab.compile(FakeQuantizationToInteger()(tvmlab.load(model)))
    pictures = models.digits().x_test[:50]
    np.testing.assert_array_equal(run(pictures), by_onnx_runtime(model, pictures)[0])


@x86
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("seed", range(100, 103))
def test_drawn_networks_have_onnx_runtime_s_bits(seed: int, kind: str) -> None:
    drawn = DrawnOnnx(seed, kind)
    session = onnx_session(drawn.model)
    expected = session.run(None, {"x": drawn.image})
    found = tvmlab.compile(FakeQuantizationToInteger()(tvmlab.load(drawn.model)))(drawn.image)
    for one, other, name in zip(found, expected, drawn.made_by, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name)


def test_operators_have_relay_s_bits() -> None:
    for cases in golden.by_configuration(golden.HERE):
        for case, result in zip(cases, golden.compiled(cases, schedule=True), strict=True):
            golden.check(case, golden.computed(case), ulp=0)
            golden.check(case, result)


@pytest.mark.parametrize("name", ["digits int8 QDQ", "digits int8 PT2E", "resnet8 int8"])
def test_the_accelerator_has_the_processor_s_bits(name: str) -> None:
    whole = integers_out(network(name))
    ours, theirs = tvmlab.compile(npu.partition(whole), "npu, llvm"), tvmlab.compile(whole)
    inputs = noise(3) if "resnet8" in name else models.digits().x_test[:3, None]
    for one in inputs:
        np.testing.assert_array_equal(ours(one), theirs(one))
