"""What of a quantized network is computed in floats, and the reasons."""

from __future__ import annotations

import numpy as np
from tvm import relax, topi
from tvm.relax import op

from tests.qnn.graphs import Network
from tvmlab.qnn.analysis import FloatOperator, float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

SHAPE = (2, 6)


def test_before_the_pass_all_are_listed_and_after_it_what_has_no_integer_form():
    net = Network((SHAPE, "float32"))
    first = net.emit(op.multiply(net.inputs[0], relax.const(np.float32(2))))
    x = net.fake(first, 0.05, 3)
    relu = net.emit(op.nn.relu(x))
    soft = net.emit(op.nn.softmax(net.fake(relu, 0.04, -128)))
    out = net.fake(soft, 1 / 256, -128)
    mod = net.module(net.emit(op.exp(out)))
    before = float_operators(mod)
    assert [one.operator for one in before] == ["nn.relu", "nn.softmax"]
    assert before[0].reason == "it has an integer form: FakeQuantizationToInteger gives it"
    after = float_operators(FakeQuantizationToInteger()(mod))
    name = soft.name
    assert after == [FloatOperator("nn.softmax", name, "nn.softmax has no integer form", "main")]


def test_operators_before_one_that_is_float_say_so():
    net = Network((SHAPE, "int8"))
    relu = net.emit(op.nn.relu(net.real(net.inputs[0], 0.05, 3)))
    added = net.emit(op.add(net.emit(op.exp(relu)), relu))
    mod = net.module(net.quantized(added, 0.5, 0))
    after = float_operators(FakeQuantizationToInteger()(mod))
    assert [one.operator for one in after] == ["nn.relu", "exp", "add"]
    assert after[0].reason == "its result goes to an operator that is float"
    assert after[1].reason == "its result is not quantized"
    assert after[2].reason == "its operand lv2 is not quantized"


def test_the_reasons_are_the_same_after_the_pass():
    """It leaves int32 sums that are dequantized, which are not any int32."""
    net = Network((SHAPE, "uint8"))
    real = net.real(net.inputs[0], 0.05, 3)
    weight = net.weight(np.full((6, 6), 100, "int8"), 0.01, 0, 1)
    biased = net.emit(op.add(net.emit(op.matmul(real, weight)), relax.const(np.float32(2.00001))))
    mod = net.module(net.quantized(net.emit(op.add(biased, real)), 1e-6, 0, "uint8"))
    before = float_operators(mod)
    assert [one.operator for one in before] == ["matmul", "add", "add"]
    after = float_operators(FakeQuantizationToInteger()(mod))
    assert after == before[1:]
    assert after[1].reason == "roundings before it could be more than half a step of its result"


def test_reasons_name_what_is_called_and_who_gives_an_operand():
    net = Network((SHAPE, "int8"))
    real = net.real(net.inputs[0], 0.05, 3)
    called = net.builder.emit_te(lambda x: topi.sin(x), real, primfunc_name_hint="wave")
    biased = net.emit(op.add(real, relax.const(np.float32(0.3))))
    squared = net.emit(op.multiply(biased, biased))
    mod = net.module(net.quantized(called, 0.01, 0), net.quantized(squared, 0.1, 0))
    reasons = [one.reason for one in float_operators(mod)]
    name = biased.name
    assert reasons[0] == "call_tir of wave has no integer form"
    assert reasons[2] == f"its operand {name}, which add gives, is not quantized before it"
