"""What networks can also do, and the passes over constants and clips.

An operator is handled, or left float with the reason; nothing changes in silence.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from tests.qnn.cut import check
from tests.qnn.graphs import Drawn, Network, equal, integers, names, scale, zero
from tests.qnn.run import compiled, run
from tests.short import examples
from tvmlab import relay
from tvmlab.errors import InputError
from tvmlab.qnn import op as qnn
from tvmlab.qnn.analysis import FloatOperator, float_operators
from tvmlab.qnn.transform import (
    FakeQuantizationToInteger,
    QnnQuantizeConstFold,
    RemoveClipAfterRequantize,
)

IMAGE = (1, 4, 6, 6)


def conv(net, x):
    w = net.weight(integers((3, 4, 3, 3), seed=1), 0.007)
    return net.emit(op.nn.conv2d(x, w, padding=1))


def test_sums_that_could_leave_int32_stay_float():
    shape = (1, 70_000, 1, 1)
    net = Network((shape, "uint8"))
    w = net.weight(np.full((1, 70_000, 1, 1), 127, "int8"), 0.01)
    made = net.emit(op.nn.conv2d(net.real(net.inputs[0], 0.05, 0), w))
    mod = net.module(net.quantized(made, 9.0, 0))
    check(mod, integers(shape, "uint8"), floats=["nn.conv2d"])
    (left,) = float_operators(mod)
    assert left.reason == f"its sums may reach {70_000 * 255 * 127}, beyond int32"


@pytest.mark.filterwarnings("error")
def test_a_long_chain_of_sums_that_are_not_quantized_stays_float():
    net = Network(((4,), "int8"))
    made = net.real(net.inputs[0], 0.1, 0)
    for _ in range(3000):
        made = net.emit(op.add(made, made))
    left = float_operators(net.module(net.quantized(made, 0.1, 0)))
    assert len(left) == 3000
    assert "its scales are beyond float32" in {one.reason for one in left}


def test_symbolic_shapes():
    net = Network(((tvm.tirx.Var("n", "int64"), 4, 6, 6), "int8"))
    x = net.fake(conv(net, net.real(net.inputs[0], 0.05, 3)), 0.2, -128)
    mean = net.emit(op.mean(x, [2, 3]))
    after = check(net.module(net.quantized(mean, 0.05, 0)), integers((2, 4, 6, 6)))
    assert names(after) == ["qnn.conv2d", "qnn.requantize", "astype", "sum", "qnn.requantize"]


def test_scales_and_roundings_that_are_none_are_refused():
    for bad in (0.0, -0.5, np.nan, np.inf):
        net = Network((IMAGE, "int8"))
        relu = net.emit(op.nn.relu(net.real(net.inputs[0], 0.05, 3)))
        with pytest.raises(InputError, match=r"relax\.quantize, operand scale"):
            FakeQuantizationToInteger()(net.module(net.quantized(relu, bad, 0)))
    with pytest.raises(InputError, match='rounding is "EVEN"'):
        FakeQuantizationToInteger(rounding="EVEN")


def test_the_functions_attribute_says_the_rounding():
    net = Network((IMAGE, "int8"))
    mod = net.module(net.quantized(conv(net, net.real(net.inputs[0], 0.05, 3)), 0.2, 1))
    mod["main"] = mod["main"].with_attr("qnn.rounding", "TFLITE")
    after = FakeQuantizationToInteger()(mod)
    assert "qnn.rounding" not in after["main"].attrs
    assert 'rounding="TFLITE"' in after.script()
    assert 'rounding="UPWARD"' in FakeQuantizationToInteger(rounding="UPWARD")(mod).script()


# Reasons

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


# Random networks: every step within one of the float one, and compiled bit for bit

EACH = 20
ROUNDINGS = ("None", "UPWARD", "TONEAREST", "TFLITE")


def rewritten(seed, drawn, floats=()):
    rounding = ROUNDINGS[seed % len(ROUNDINGS)]
    return check(drawn.mod, *drawn.inputs, rounding=rounding, floats=floats)


# A library of twenty networks takes three seconds, and a seed says all there is to see.
@settings(
    max_examples=examples(15),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=EACH, max_size=EACH, unique=True))
def test_integer_forms_are_right_and_compile_to_the_references_bits(
    tmp_path_factory, seeds: list[int]
) -> None:
    made = []
    for seed in seeds:
        drawn = Drawn(random.Random(seed), steps=2 + seed % 2)
        made.append((seed, rewritten(seed, drawn), drawn.inputs))
    functions = compiled([integer for _, integer, _ in made], tmp_path_factory.mktemp("library"))
    for (seed, integer, inputs), function in zip(made, functions, strict=True):
        want, _ = run(integer, *inputs)
        assert np.array_equal(function(*inputs), want), seed


@settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
def test_networks_with_gaps_between_their_quantizes_are_right_too(seed: int) -> None:
    """What has no integer form then stays float, and nothing else changes."""
    rewritten(seed, Drawn(random.Random(seed), steps=5, gaps=0.4), floats=None)


REWRITE = Path(__file__).parents[1] / "data" / "relay" / "rewrite"
BOTH = tvm.transform.Sequential([QnnQuantizeConstFold(), RemoveClipAfterRequantize()])
SHAPE = (2, 3, 4)


def read(name):
    return relay.fromtext((REWRITE / f"{name}.relay").read_text())


@pytest.mark.parametrize("frontend", ["torch", "tflite"])
def test_they_make_what_relay_made(frontend):
    before, after = read(f"{frontend}_before"), read(f"{frontend}_after")
    assert equal(BOTH(before)["main"], after["main"])


def clipped(low, high, made, cast=None, z=0):
    net = Network((SHAPE, "int32"))
    call = qnn.requantize(net.inputs[0], scale(0.5), zero(0), scale(2.0), zero(z), out_dtype=made)
    x = net.emit(op.clip(net.emit(call), low, high))
    return net.module(x if cast is None else net.emit(op.astype(x, cast)))


@pytest.mark.parametrize(
    ("low", "high", "made", "cast", "left"),
    [
        (0.0, 255.0, "int32", "uint8", ["qnn.requantize"]),
        (-128.0, 127.0, "int32", "int8", ["qnn.requantize"]),
        (0.0, 127.0, "int32", "uint8", ["qnn.requantize", "clip", "astype"]),
        (0.0, 300.0, "int32", "uint8", ["qnn.requantize", "clip", "astype"]),
        (-128.0, 127.0, "int32", "uint8", ["qnn.requantize", "clip", "astype"]),
        (0.0, 255.0, "int32", None, ["qnn.requantize", "clip"]),
        (-128.0, 127.0, "int8", None, ["qnn.requantize"]),
        (-1000.0, 1000.0, "int8", None, ["qnn.requantize"]),
        (-128.0, 126.0, "int8", None, ["qnn.requantize", "clip"]),
        (0.0, 255.0, "uint8", "int8", ["qnn.requantize", "astype"]),
    ],
)
def test_only_a_clip_to_the_dtypes_ends_goes(low, high, made, cast, left):
    mod = clipped(low, high, made, cast)
    after = RemoveClipAfterRequantize()(mod)
    assert names(after) == left
    data = np.random.default_rng(0).integers(-2000, 2000, SHAPE).astype("int32")
    got, want = run(after, data)[0], run(mod, data)[0]
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("kind", "s", "kept"),
    [("int32", 1 / 16, True), ("int32", 1.0, True), ("int32", 1.001, False), ("int8", 2e-7, False)],
)
def test_a_cast_goes_only_where_int32_cannot_wrap(kind, s, kept):
    """Beyond int32 a requantize to int32 wraps, where one to a byte saturates."""
    net = Network(((3,), kind))
    call = qnn.requantize(net.inputs[0], scale(1), zero(0), scale(s), zero(0), out_dtype="int32")
    x = net.emit(op.clip(net.emit(call), 0.0, 255.0))
    mod = net.module(net.emit(op.astype(x, "uint8")))
    after = RemoveClipAfterRequantize()(mod)
    assert ("astype" in names(after)) == kept
    data = np.array([2**27, 2**28, 3] if kind == "int32" else [-128, 127, 3], kind)
    assert np.array_equal(run(after, data)[0], run(mod, data)[0])
