"""Functions of one value and transposed convolutions: in integers at each goal."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser
from tvm import relax
from tvm.relax import op

import tvmlab
from tests.qnn.cut import check
from tests.qnn.graphs import Network, names
from tests.qnn.run import compiled, run
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger
from tvmlab.qnn.unary import FUNCTIONS

RANGE = np.arange(256).reshape(16, 16)


def every(dtype):
    """Give every integer of 8 bits."""
    return RANGE.astype("uint8").view(dtype)


def leaky(x):
    return op.nn.leakyrelu(x, 0.1)


def swish(x):
    """Write hard swish as the importers of ONNX and PyTorch do."""
    return op.multiply(x, op.divide(op.clip(op.add(x, const(3)), 0, 6), const(6)))


def swish_of_tflite(x):
    return op.divide(op.multiply(x, op.clip(op.add(x, const(3)), 0, 6)), const(6))


def const(value):
    return relax.const(np.float32(value))


FORMS = {
    "abs": (op.abs, np.abs, 0.03),
    "erf": (op.erf, FUNCTIONS["erf"], 1 / 127),
    "exp": (op.exp, np.exp, 0.2),
    "sigmoid": (op.sigmoid, FUNCTIONS["sigmoid"], 1 / 256),
    "tanh": (op.tanh, np.tanh, 1 / 128),
    "leaky_relu": (leaky, lambda x: np.where(x < 0, np.float32(0.1) * x, x), 0.02),
    "hardswish": (swish, FUNCTIONS["hardswish"], 0.02),
    "hardswish of TFLite": (swish_of_tflite, FUNCTIONS["hardswish"], 0.02),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Rewrite and compile each function, of int8 into uint8, in one library."""
    found = {}
    for name, (function, _, step) in FORMS.items():
        net = Network(((16, 16), "int8"))
        real = net.real(net.inputs[0], 0.03, 5)
        mod = net.module(net.quantized(net.emit(function(real)), step, 40, "uint8"))
        after = check(mod, every("int8"))
        assert all("it has an integer form" in one.reason for one in float_operators(mod))
        found[name] = after
    functions = compiled(list(found.values()), tmp_path_factory.mktemp("library"))
    return dict(zip(found, zip(found.values(), functions, strict=True), strict=True))


@pytest.mark.parametrize("name", FORMS)
def test_a_function_is_looked_up_at_its_goal(made, name):
    after, function = made[name]
    assert names(after) == [f"qnn.{name.split()[0]}", "qnn.requantize"]
    got, _ = run(after, every("int8"))
    _, exact, step = FORMS[name]
    real = exact((every("int8").astype("float32") - 5) * np.float32(0.03))
    want = np.clip(np.round(real / np.float32(step)) + 40, 0, 255)
    assert np.abs(got - want).max() <= 1
    assert np.array_equal(function(every("int8")), got)


@pytest.mark.parametrize(
    ("function", "s", "z", "why"),
    [
        (op.log, 0.03, 0, "its operand may be what log has no value for"),
        (op.sqrt, 0.03, 0, "its operand may be what sqrt has no value for"),
        (lambda x: op.nn.leakyrelu(x, 1.5), 0.03, 0, "its slope is 1.5"),
    ],
)
def test_functions_that_no_table_holds_stay_float(function, s, z, why):
    net = Network(((16, 16), "int8"))
    mod = net.module(net.quantized(net.emit(function(net.real(net.inputs[0], s, z))), 0.1, 0))
    (left,) = float_operators(FakeQuantizationToInteger()(mod))
    assert left.reason == why


ONNX = {
    "Sigmoid": ("Sigmoid(ad)", 0.00390625, 0),
    "Tanh": ("Tanh(ad)", 0.0078125, 128),
    "Erf": ("Erf(ad)", 0.0078125, 128),
    "Exp": ("Exp(ad)", 0.2, 0),
    "Abs": ("Abs(ad)", 0.02, 0),
    "LeakyRelu": ("LeakyRelu<alpha=0.1>(ad)", 0.02, 20),
    "HardSwish": ("HardSwish(ad)", 0.02, 20),
}


@pytest.mark.parametrize("name", ONNX)
def test_against_onnx_runtime(name):
    node, step, zero = ONNX[name]
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> f (float[16,16] x) => (float[16,16] y)'
        f"<float s={{0.03}}, uint8 z={{120}}, float os={{{step}}}, uint8 oz={{{zero}}}> {{"
        f"a=QuantizeLinear(x,s,z) ad=DequantizeLinear(a,s,z) t={node}"
        " q=QuantizeLinear(t,os,oz) y=DequantizeLinear(q,os,oz) }"
    )
    after = FakeQuantizationToInteger()(tvmlab.load(model))
    assert float_operators(after) == []
    assert sum(name.startswith("qnn.") for name in names(after)) == 3
    x = ((RANGE - 120) * np.float32(0.03)).astype("float32")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, {"x": x})
    got, _ = run(after, x)
    assert np.abs(got - want).max() <= step * 1.01


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("rounding", ["None", "ONNX"])
def test_a_transposed_convolution(groups, rounding, tmp_path):
    shape, rng = (2, 4, 5, 5), np.random.default_rng(0)
    net = Network((shape, "uint8"))
    w = rng.integers(-127, 128, (4, 3, 3, 3)).astype("int8")
    each = rng.uniform(0.005, 0.01, 3).astype("float32") if groups == 1 else np.float32(0.01)
    weight = net.weight(w, each, np.zeros(3) if groups == 1 else 0, axis=1)
    how = {"strides": 2, "padding": 1, "output_padding": 1, "groups": groups}
    real = net.real(net.inputs[0], 0.05, 128)
    sums = net.emit(op.nn.conv2d_transpose(real, weight, **how))
    bias = rng.normal(size=(1, 3 * groups, 1, 1)).astype("float32")
    sums = net.emit(op.nn.relu(net.emit(op.add(sums, relax.const(bias)))))
    mod = net.module(net.quantized(sums, 0.2, 0, "uint8"))
    x = rng.integers(0, 256, shape).astype("uint8")
    after = check(mod, x, rounding=rounding)
    assert names(after) == ["qnn.conv2d_transpose", "relay.nn.bias_add", "qnn.requantize"]
    (function,) = compiled([after], tmp_path)
    assert np.array_equal(function(x), run(after, x)[0])


def test_a_transposed_convolution_by_channel_and_group_stays_float():
    net = Network(((1, 4, 5, 5), "uint8"))
    w = np.ones((4, 3, 3, 3), "int8")
    weight = net.weight(w, np.array([1, 2, 3], "float32"), np.zeros(3), axis=1)
    real = net.real(net.inputs[0], 0.05, 128)
    made = net.emit(op.nn.conv2d_transpose(real, weight, groups=2))
    (left,) = float_operators(net.module(net.quantized(made, 0.2, 0, "uint8")))
    assert left.reason == "its weight is quantized by output within each of its groups"
