"""What networks may also do: handled, or left float with the reason; nothing changes in silence."""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R

import tvmlab
from tests.qnn.cut import check, differences
from tests.qnn.graphs import Drawn, Network, equal, integers, names, scale, well_typed, zero
from tests.qnn.run import compiled, run
from tests.short import examples
from tvmlab.errors import InputError
from tvmlab.qnn.analysis import FloatOperator, float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

IMAGE = (1, 4, 6, 6)


def weights(*shape, seed=1):
    return np.random.default_rng(seed).integers(-127, 128, shape).astype("int8")


def conv(net, x, outputs=3, each=False, inputs=4):
    s = np.linspace(0.005, 0.01, outputs).astype("float32") if each else 0.007
    z = np.zeros(outputs) if each else 0
    w = net.weight(weights(outputs, inputs, 3, 3), s, z)
    return net.emit(op.nn.conv2d(x, w, padding=1))


def left(mod, *inputs):
    """Check a module of which one operator stays float; return which and why."""
    (one,) = float_operators(FakeQuantizationToInteger()(mod))
    check(mod, *inputs, floats=[one.operator])
    return one.operator, one.reason


def test_a_value_quantized_twice_is_computed_once():
    net = Network((IMAGE, "int8"))
    made = conv(net, net.real(net.inputs[0], 0.05, 3))
    mod = net.module(net.quantized(made, 0.11, -3), net.quantized(made, 0.31, 4, "uint8"))
    after = check(mod, integers(IMAGE))
    assert names(after) == ["qnn.conv2d", "qnn.requantize", "qnn.requantize"]


@pytest.mark.parametrize(
    "dtypes",
    [
        ("uint8", "int8", "int8"),
        ("int8", "uint8", "uint8"),
        ("int8", "int8", "uint8"),
        ("uint8", "uint8", "int8"),
        ("int8", "int8", "int16"),
        ("int16", "int8", "int8"),
        ("int16", "int16", "int16"),
        ("int8", "int8", "int32"),
    ],
)
@pytest.mark.parametrize(
    "function", [op.add, op.subtract, op.multiply], ids=["add", "subtract", "mul"]
)
def test_operands_of_several_dtypes(dtypes, function):
    left, right, out = dtypes
    net = Network((IMAGE, left), (IMAGE, right))
    points = {"int8": 3, "uint8": 130, "int16": 0, "int32": 0}
    factors = {"int8": 0.05, "uint8": 0.04, "int16": 0.0003, "int32": 0.01}
    sides = [
        net.real(x, factors[d], points[d]) for x, d in zip(net.inputs, dtypes[:2], strict=True)
    ]
    mod = net.module(net.quantized(net.emit(function(*sides)), factors[out] * 2, points[out], out))
    inputs = integers(IMAGE, dtype=left), integers(IMAGE, dtype=right, seed=1)
    check(mod, *inputs)


def test_sums_that_could_leave_int32_stay_float():
    shape = (1, 70_000, 1, 1)
    net = Network((shape, "uint8"))
    w = net.weight(np.full((1, 70_000, 1, 1), 127, "int8"), 0.01)
    made = net.emit(op.nn.conv2d(net.real(net.inputs[0], 0.05, 0), w))
    found = left(net.module(net.quantized(made, 9.0, 0)), integers(shape, "uint8"))
    assert found == ("nn.conv2d", f"its sums may reach {70_000 * 255 * 127}, beyond int32")


@pytest.mark.filterwarnings("error")
def test_a_long_chain_of_sums_that_are_not_quantized_stays_float():
    net = Network(((4,), "int8"))
    made = net.real(net.inputs[0], 0.1, 0)
    for _ in range(3000):
        made = net.emit(op.add(made, made))
    left = float_operators(net.module(net.quantized(made, 0.1, 0)))
    assert len(left) == 3000
    assert "its scales are beyond float32" in {one.reason for one in left}


def test_scales_that_are_not_constant_stay_float():
    net = Network((IMAGE, "int8"), ((), "float32"))
    x, s = net.inputs
    real = net.emit(op.dequantize(x, s, zero(0)))
    mod = net.module(net.quantized(conv(net, real), 0.3, 0))
    operator, reason = left(mod, integers(IMAGE), np.float32(0.05))
    assert operator == "nn.conv2d"
    assert "not quantized" in reason


def test_activations_by_channel():
    net = Network((IMAGE, "int8"), (IMAGE, "int8"))
    s, z = np.linspace(0.02, 0.05, 4), np.arange(4)
    by = net.real(net.inputs[0], s, z, axis=1)
    made = net.emit(op.add(by, net.real(net.inputs[1], 0.04, 1)))
    after = check(net.module(net.quantized(made, 0.1, 2)), integers(IMAGE), integers(IMAGE, seed=1))
    assert names(after) == ["qnn.add"]
    net = Network((IMAGE, "int8"))
    by = net.real(net.inputs[0], s, z, axis=1)
    operator, reason = left(net.module(net.quantized(conv(net, by), 0.3, 0)), integers(IMAGE))
    assert operator == "nn.conv2d"
    assert reason.endswith("is quantized by channel")
    net = Network((IMAGE, "int8"))
    made = net.emit(op.nn.relu(net.real(net.inputs[0], 0.03, 1)))
    mod = net.module(net.quantized(made, s, z, axis=1))
    operator, reason = left(mod, integers(IMAGE))
    assert operator == "nn.relu"
    assert "by channel, which no requantize can do" in reason


def test_symbolic_shapes():
    n, h = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("h", "int64")
    net = Network(((n, 4, 6, 6), "int8"))
    x = net.fake(conv(net, net.real(net.inputs[0], 0.05, 3)), 0.2, -128)
    mean = net.emit(op.mean(x, [2, 3]))
    after = check(net.module(net.quantized(mean, 0.05, 0)), integers((2, 4, 6, 6)))
    assert names(after) == ["qnn.conv2d", "qnn.requantize", "astype", "sum", "qnn.requantize"]
    net = Network(((1, 4, h, 6), "int8"))
    mean = net.emit(op.mean(net.real(net.inputs[0], 0.05, 3), [2, 3]))
    found = left(net.module(net.quantized(mean, 0.05, 0)), integers(IMAGE))
    assert found == ("mean", "how many values it averages is not known")


def test_functions_without_a_dataflow_block():
    net = Network((IMAGE, "int8"))
    x = net.fake(conv(net, net.real(net.inputs[0], 0.05, 3)), 0.2, -4)
    mod = net.module(net.quantized(net.emit(op.nn.relu(x)), 0.2, -4))
    bare = relax.transform.ToNonDataflow()(mod)
    assert not isinstance(bare["main"].body.blocks[0], relax.DataflowBlock)
    after = check(bare, integers(IMAGE))
    assert (
        names(after)
        == names(FakeQuantizationToInteger()(mod))
        == ["qnn.conv2d", "qnn.requantize", "clip"]
    )


def test_every_function_of_a_module():
    nets = []
    for name in ("main", "other"):
        net = Network((IMAGE, "int8"), name=name)
        nets.append(
            net.module(net.quantized(conv(net, net.real(net.inputs[0], 0.05, 3)), 0.2, 1))[name]
        )
    mod = tvm.IRModule({"main": nets[0], "other": nets[1].with_attr("global_symbol", "other")})
    after = FakeQuantizationToInteger()(mod)
    assert names(after, "other") == names(after) == ["qnn.conv2d", "qnn.requantize"]


def test_a_module_that_quantizes_nothing_is_left_alone():
    net = Network((IMAGE, "float32"))
    mod = net.module(net.emit(op.nn.relu(net.inputs[0])))
    assert FakeQuantizationToInteger()(mod)["main"].same_as(mod["main"])


def test_scales_and_zero_points_that_are_none_are_refused():
    for bad in (0.0, -0.5, np.nan, np.inf):
        net = Network((IMAGE, "int8"))
        relu = net.emit(op.nn.relu(net.real(net.inputs[0], 0.05, 3)))
        with pytest.raises(InputError, match=r"relax\.quantize, operand scale"):
            FakeQuantizationToInteger()(net.module(net.quantized(relu, bad, 0)))
    net = Network((IMAGE, "int8"))
    x = net.emit(op.dequantize(net.inputs[0], scale(0.05), zero(200)))
    with pytest.raises(InputError, match="zero_point is 200"):
        FakeQuantizationToInteger()(net.module(net.quantized(x, 0.1, 0)))


def test_a_rounding_that_is_none_is_refused():
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


@pytest.mark.parametrize("size", [7, 4])
@pytest.mark.parametrize("counted", [True, False])
def test_a_window_of_padding_alone_is_none(size, counted):
    """With ``ceil_mode``, as in Relax: the shape stays what it was."""
    shape = (1, 2, size, size)
    net = Network((shape, "uint8"))
    real = net.real(net.inputs[0], 0.05, 30)
    how = {"ceil_mode": True, "count_include_pad": counted}
    pool = op.nn.avg_pool2d(real, (2, 2), 3, 1, **how)
    mod = net.module(net.quantized(net.emit(pool), 0.04, 20, "uint8"))
    after = check(mod, integers(shape, "uint8"))
    assert names(after) == ["qnn.avg_pool2d"]


def test_windows_of_a_symbolic_size():
    h = tvm.tirx.Var("h", "int64")
    net = Network(((1, 2, h, h), "uint8"))
    pool = op.nn.avg_pool2d(net.real(net.inputs[0], 0.05, 30), (2, 2), 3, 1, ceil_mode=True)
    mod = net.module(net.quantized(net.emit(pool), 0.04, 20, "uint8"))
    after = FakeQuantizationToInteger()(mod)
    function = tvmlab.compile(after)
    for n in (6, 7, 8, 9):
        data = integers((1, 2, n, n), "uint8")
        want, _ = run(after, data)
        assert np.array_equal(function(data), want)
        assert want.shape == run(mod, data)[0].shape


# Residual blocks whose sums nothing quantizes: convolution, bias and trunk, added in int32.

PAIR = (2, 4, 6, 6)


def biased(net, x, seed):
    """Convolve as PyTorch's quantizer writes it: weights by channel, a float bias."""
    rng = np.random.default_rng(seed)
    w = rng.integers(-127, 128, (4, 4, 3, 3)).astype("int8")
    weight = net.weight(w, rng.uniform(0.002, 0.004, 4).astype("float32"), np.zeros(4))
    made = net.emit(op.nn.conv2d(x, weight, padding=1))
    bias = rng.normal(size=(1, 4, 1, 1)).astype("float32")
    return net.emit(op.add(made, relax.const(bias)))


def block(net, x, seed):
    """Build a block of ResNet v1."""
    inner = net.fake(net.emit(op.nn.relu(biased(net, x, seed))), 0.05, 0, "uint8")
    made = net.emit(op.add(biased(net, inner, seed + 1), x))
    return net.fake(net.emit(op.nn.relu(made)), 0.06, 0, "uint8")


@pytest.mark.parametrize("rounding", ["None", "TFLITE", "ONNX"])
def test_blocks_of_resnet_v1_are_integers(rounding):
    """A bias is rounded to its sums' step, which is to be judged beside the result's."""
    net = Network((PAIR, "float32"))
    x = net.fake(net.inputs[0], 0.03, 120, "uint8")
    mod = net.module(block(net, block(net, x, 1), 3))
    after = FakeQuantizationToInteger(rounding=rounding)(mod)
    well_typed(after)
    assert float_operators(after) == []
    assert names(after).count("qnn.conv2d") == 4
    data = np.random.default_rng(0).normal(size=PAIR).astype("float32")
    steps, _, _ = differences(mod, data, rounding=rounding)
    assert max(int(step.max()) for step in steps.values()) <= 1


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


# Branches, blocks and tuples: a value is computed once, where all its readers see it

SMALL = (1, 3, 6, 6)


@I.ir_module
class Blocks:
    """A value cut in one dataflow block and read, cut, in another and between them."""

    @R.function
    def main(x: R.Tensor((1, 3, 6, 6), "uint8")):
        with R.dataflow():
            f = R.dequantize(x, R.const(0.5, "float32"), R.const(100, "int32"))
            r = R.nn.relu(f)
            R.output(r, f)
        s = R.add(r, r)
        q = R.quantize(s, R.const(0.9, "float32"), R.const(3, "int32"), out_dtype="uint8")
        with R.dataflow():
            m = R.multiply(r, r)
            p = R.quantize(m, R.const(7.0, "float32"), R.const(3, "int32"), out_dtype="uint8")
            n = R.subtract(r, f)
            o = R.quantize(n, R.const(0.9, "float32"), R.const(3, "int32"), out_dtype="uint8")
            R.output(p, o)
        return (q, p, o)


@I.ir_module
class Tuples:
    """PyTorch's max pool, which upstream's importer gives a second result; and another tuple."""

    @R.function
    def main(x: R.Tensor((1, 3, 6, 6), "uint8")):
        with R.dataflow():
            f = R.dequantize(x, R.const(0.5, "float32"), R.const(100, "int32"))
            y = R.nn.max_pool2d(f, pool_size=[2, 2], strides=[2, 2])
            both = (y, R.zeros_like(y))
            z = both[0]
            other = (R.nn.relu(z), R.clip(z, -2, 3))
            s = R.add(other[0], other[1])
            q = R.quantize(s, R.const(0.4, "float32"), R.const(9, "int32"), out_dtype="uint8")
            R.output(q)
        return q


WEIGHT = integers((3, 3, 3, 3), "int8", seed=1)


def test_what_crosses_blocks_stays_float_and_right():
    after = FakeQuantizationToInteger()(Blocks)
    well_typed(after)
    assert equal(FakeQuantizationToInteger()(after), after)
    assert "its operand r is not quantized" in {one.reason for one in float_operators(after)}
    data = integers(SMALL, "uint8")
    for one, other in zip(*(run(each, data)[0] for each in (after, Blocks)), strict=True):
        assert np.abs(one.astype(int) - other.astype(int)).max() <= 1


def test_a_tuple_made_and_read_is_its_fields():
    after = check(Tuples, integers(SMALL, "uint8"))
    assert names(after) == ["nn.max_pool2d", "clip", "clip", "qnn.add"]


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
