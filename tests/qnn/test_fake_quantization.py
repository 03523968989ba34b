"""Float operators between dequantize and quantize, in integers: forms in, forms out."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser
from tvm import relax
from tvm.relax import op

import tvmlab
import tvmlab.ir.operators
from tests.qnn.cut import check
from tests.qnn.graphs import Network, integers, names, scale
from tests.qnn.run import compiled, run
from tvmlab.ir import dialect
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

IMAGE = (1, 4, 6, 6)


def ints(array, dtype="int32"):
    return relax.const(np.asarray(array, dtype))


WEIGHT = integers((3, 4, 3, 3), seed=1)
SCALES = np.array([0.01, 0.02, 0.03], "float32")


def unit(net, x, *, bias=None, layout="NCHW", kernel="OIHW", **how):
    w = WEIGHT.transpose(["OIHW".index(letter) for letter in kernel])
    weight = net.weight(w, SCALES, np.zeros(3), axis=kernel.index("O"))
    made = net.emit(op.nn.conv2d(x, weight, data_layout=layout, kernel_layout=kernel, **how))
    if bias is not None:
        shape = [-1 if letter == "C" else 1 for letter in layout]
        made = net.emit(op.add(made, ints(np.reshape(bias, shape), "float32")))
    return made


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kernel", ["OIHW", "HWIO", "OHWI"])
@pytest.mark.parametrize("rounding", ["None", "UPWARD", "TONEAREST", "TFLITE"])
def test_a_float_bias_is_an_integer_at_the_sums_scale(layout, kernel, rounding):
    shape = tuple({"N": 2, "C": 4, "H": 6, "W": 6}[letter] for letter in layout)
    net = Network((shape, "uint8"))
    real = net.real(net.inputs[0], 0.05, 128)
    made = unit(net, real, bias=[0.3, -7.77, 21.0], layout=layout, kernel=kernel, strides=2)
    made = check(
        net.module(net.quantized(made, 0.9, -4)), integers(shape, "uint8"), rounding=rounding
    )
    assert names(made) == ["qnn.conv2d", "relay.nn.bias_add", "qnn.requantize"]


@pytest.mark.parametrize(
    ("made", "dtype", "s", "z", "clips"),
    [
        (op.nn.relu, "int8", 0.5, -128, []),
        (op.nn.relu, "uint8", 0.5, 0, []),
        (op.nn.relu, "int8", 0.5, 0, [(0, 127)]),
        (op.nn.relu, "int8", 0.5, -127, [(-127, 127)]),
        (lambda x: op.clip(x, 0, 6), "uint8", 6 / 255, 0, []),
        (lambda x: op.clip(x, 0, 6), "uint8", 0.01, 0, []),
        (lambda x: op.clip(x, 0, 6), "uint8", 0.05, 0, [(0, 120)]),
        (lambda x: op.clip(x, 0, 6), "int8", 0.05, -128, [(-128, -8)]),
        (lambda x: op.clip(x, -1, 1), "int8", 0.05, 3, [(-17, 23)]),
        (lambda x: op.maximum(x, scale(0.0)), "uint8", 0.5, 0, []),
        (lambda x: op.minimum(x, scale(2.0)), "uint8", 0.05, 100, [(0, 140)]),
        (lambda x: op.clip(op.nn.relu(x), -3, 6), "int8", 0.05, 0, [(0, 120)]),
    ],
)
def test_cuts_are_the_dtypes_ends_or_one_clip(made, dtype, s, z, clips):
    net = Network((IMAGE, "int8"))
    cut = net.emit(made(unit(net, net.real(net.inputs[0], 0.05, 3))))
    after = check(net.module(net.quantized(cut, s, z, dtype)), integers(IMAGE))
    assert names(after) == ["qnn.conv2d", "qnn.requantize", *["clip"] * len(clips)]
    found = [
        tuple(float(limit.value) for limit in binding.value.args[1:])
        for block in after["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and binding.value.op.name == "relax.clip"
    ]
    assert found == clips


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_products_of_two_computed_matrices(batch):
    a, b = (*batch, 4, 16), (*batch, 16, 5)
    net = Network((a, "int8"), (b, "uint8"))
    sides = net.real(net.inputs[0], 0.05, 3), net.real(net.inputs[1], 0.04, 130)
    made = net.emit(op.matmul(*sides))
    after = check(net.module(net.quantized(made, 0.9, -3)), integers(a), integers(b, "uint8"))
    assert "qnn.batch_matmul" in names(after)


def test_a_product_without_quantize_is_dequantized_from_its_sums():
    net = Network(((2, 16), "int8"))
    w = net.weight(integers((16, 5), seed=1), 0.01)
    made = net.emit(op.matmul(net.real(net.inputs[0], 0.05, 3), w))
    mod = net.module(net.emit(op.nn.softmax(made)), net.quantized(net.emit(op.exp(made)), 1.0, 0))
    after = FakeQuantizationToInteger()(mod)
    assert names(after) == ["qnn.dense", "qnn.dequantize", "nn.softmax", "exp", "qnn.quantize"]


@pytest.mark.parametrize("way", ["mean", "adaptive", "windows"])
@pytest.mark.parametrize("dtypes", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")])
def test_averages(way, dtypes):
    net = Network((IMAGE, dtypes[0]))
    real = net.real(net.inputs[0], 0.05, 3)
    made = {
        "mean": lambda: op.mean(real, [-1, -2], keepdims=True),
        "adaptive": lambda: op.nn.adaptive_avg_pool2d(real, (1, 1)),
        "windows": lambda: op.nn.avg_pool2d(real, (3, 3), (2, 2), padding=1),
    }[way]()
    after = check(
        net.module(net.quantized(net.emit(made), 0.03, 7, dtypes[1])), integers(IMAGE, dtypes[0])
    )
    whole = way in ("mean", "adaptive")
    assert names(after)[:2] == (["astype", "sum"] if whole else names(after)[:2])
    assert whole or names(after)[0] == "qnn.avg_pool2d"


MOVES = {
    "reshape": lambda x: op.reshape(x, (1, 24, 6)),
    "permute_dims": lambda x: op.permute_dims(x, [0, 2, 3, 1]),
    "flatten": op.flatten,
    "squeeze": lambda x: op.squeeze(x, [0]),
    "expand_dims": lambda x: op.expand_dims(x, [1]),
    "strided_slice": lambda x: op.strided_slice(x, [2], [1], [5], [2]),
    "broadcast_to": lambda x: op.broadcast_to(x, (3, 4, 6, 6)),
    "max_pool2d": lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), padding=1),
    "pad": lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 0]),
    "pad with a step": lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 0], pad_value=0.5),
    "pad between steps": lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 2, 0], pad_value=0.55),
    "astype": lambda x: op.astype(x, "float32"),
    "max": lambda x: op.max(x, [1]),
    "take": lambda x: op.take(x, ints([3, 0, 3]), 1),
    "topk": lambda x: op.topk(x, 2, 1, "values"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_what_moves_values_moves_integers(move, sums, same):
    """Stored integers and sums by channel; with the quantize's own scale and with another."""
    net = Network((IMAGE, "int8"))
    x = net.real(net.inputs[0], 0.125, 3)
    if sums:
        weight = net.weight(integers((4, 4, 1, 1), seed=1), np.linspace(0.01, 0.02, 4), np.zeros(4))
        x = net.emit(op.nn.relu(net.emit(op.nn.conv2d(x, weight))))
    made = net.emit(move(x))
    s, z = (0.125, 3) if same else (0.3, -5)
    after = check(net.module(net.quantized(made, s, z)), integers(IMAGE))
    assert ("qnn.requantize" in names(after)) == (sums or not same)


def test_a_split_and_a_concatenation():
    net = Network((IMAGE, "int8"))
    parts = net.emit(op.split(net.real(net.inputs[0], 0.05, 3), 2, axis=1))
    left, right = net.emit(parts[0]), net.emit(op.nn.relu(net.emit(parts[1])))
    joined = net.emit(op.concat([left, net.fake(right, 0.02, -128)], axis=1))
    after = check(net.module(net.quantized(joined, 0.06, 4)), integers(IMAGE))
    assert names(after) == ["split", *["qnn.requantize"] * 3, "qnn.concatenate"]


def norm(net, x, gains, shifts, axis=1):
    count = len(gains)
    mean, variance = np.linspace(-1, 1, count), np.linspace(0.5, 2, count)
    parts = [ints(part, "float32") for part in (gains, shifts, mean, variance)]
    call = net.emit(op.nn.batch_norm(x, *parts, axis, training=False))
    return net.emit(call[0])


@pytest.mark.parametrize(("shape", "axis"), [((2, 4, 5, 6), 1), ((2, 5, 6, 4), 3)])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_batch_norm_of_its_own_is_a_depthwise_convolution(shape, axis, dtype):
    gains = [1.5, -0.7, 0.0, 1e-9]
    net = Network((shape, dtype))
    made = norm(net, net.real(net.inputs[0], 0.05, 3), gains, [0.3, -2, 1.25, 7], axis)
    after = check(net.module(net.quantized(made, 0.04, 10, dtype)), integers(shape, dtype))
    assert names(after) == ["qnn.conv2d", "relay.nn.bias_add", "qnn.requantize"]
    weight = after["main"].body.blocks[0].bindings[0].value.args[1]
    assert weight.value.numpy().ravel().tolist() == [32767, -32767, 0, 0]


@pytest.mark.parametrize("function", [op.add, op.subtract, op.multiply, op.maximum])
def test_constants_that_are_quantized(function):
    net = Network((IMAGE, "int8"))
    other = net.weight(integers((1, 4, 6, 6), seed=3), 0.02, 5)
    made = net.emit(function(net.real(net.inputs[0], 0.05, 3), other))
    check(net.module(net.quantized(made, 0.07, 4)), integers(IMAGE))


@pytest.mark.parametrize("function", [op.add, op.subtract, op.multiply])
@pytest.mark.parametrize("number", [1.3, -0.7, 0.0])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_one_number_is_a_step_of_its_own_size(function, number, dtype):
    net = Network((IMAGE, dtype))
    real, one = net.real(net.inputs[0], 0.05, 3), scale(number)
    results = [net.emit(function(real, one)), net.emit(function(one, real))]
    after = check(
        net.module(*(net.quantized(made, 0.07, 4, dtype) for made in results)),
        integers(IMAGE, dtype),
    )
    assert all(name in ("qnn.add", "qnn.subtract", "qnn.mul") for name in names(after))


BY_CHANNEL = [0.1, 0.2, 0.3, 0.4], [96, 114, 128, 0]


def test_channels_with_scales_of_their_own():
    net = Network((IMAGE, "uint8"), (IMAGE, "uint8"))
    x, y = (net.real(each, *BY_CHANNEL, 1) for each in net.inputs)
    cut = net.quantized(net.emit(op.clip(x, 0.05, 6)), *BY_CHANNEL, "uint8", 1)
    product = net.quantized(net.emit(op.multiply(x, y)), 2.5, 3, "uint8")
    data = [integers(IMAGE, "uint8", seed) for seed in (1, 2)]
    after = check(net.module(cut, product), *data)
    assert {"maximum", "minimum", "multiply", "qnn.requantize"} < {*names(after)}
    assert "qnn.quantize" not in names(after)


RELAYS = {
    "dense": ([(6, 16), (5, 16)], {"units": 5, "out_dtype": ""}),
    "batch_matmul": (
        [(3, 16, 6), (3, 5, 16)], {"out_dtype": "", "transpose_a": True, "transpose_b": True}
    ),
    "global_avg_pool2d": ([IMAGE], {"layout": "NCHW", "out_layout": ""}),
}  # fmt: skip


@pytest.mark.parametrize("name", RELAYS)
def test_operators_of_relays_that_relax_lacks(name):
    shapes, attributes = RELAYS[name]
    net = Network(*((shape, "int8") for shape in shapes))
    sides = [net.real(x, 0.05, 3) for x in net.inputs]
    made = net.emit(dialect.typed_call(f"relax.relay.nn.{name}", sides, attributes))
    after = check(net.module(net.quantized(made, 0.9, -3)), *map(integers, shapes))
    assert "qnn.quantize" not in names(after)


def test_moves_come_before_a_dequantize_for_quantization_aware_training():
    net = Network(((2, 16), "int8"))
    moved = net.emit(op.reshape(net.real(net.inputs[0], 0.05, 3), (4, 8)))
    mod = net.module(net.emit(op.erf(moved)))
    after = FakeQuantizationToInteger(use_qat=True)(mod)
    assert names(after) == ["reshape", "qnn.dequantize", "erf"]
    assert names(FakeQuantizationToInteger()(mod)) == names(mod)


def test_integers_clipped_to_their_dtypes_ends():
    """TensorFlow Lite's importer writes such a clip after every fused relu."""
    net = Network((IMAGE, "int8"))
    q = net.quantized(unit(net, net.real(net.inputs[0], 0.05, 3)), 0.5, -128)
    full, narrow = net.emit(op.clip(q, -128.0, 127.0)), net.emit(op.clip(q, -128.0, 100.0))
    mod = net.module(
        net.quantized(net.emit(op.nn.relu(net.real(full, 0.5, -128))), 0.5, -128), narrow
    )
    assert names(check(mod, integers(IMAGE))) == ["qnn.conv2d", "qnn.requantize", "clip"]


# Functions of one value and transposed convolutions

RANGE = np.arange(256).reshape(16, 16)


def test_tflites_hard_swish_is_one_function():
    net = Network(((16, 16), "int8"))
    x = net.real(net.inputs[0], 0.03, 5)
    product = op.multiply(x, op.clip(op.add(x, scale(3)), 0, 6))
    made = net.emit(op.divide(product, scale(6)))
    after = check(net.module(net.quantized(made, 0.02, 40, "uint8")), RANGE.astype("int8"))
    assert names(after) == ["qnn.hardswish", "qnn.requantize"]


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
    weight = net.weight(np.ones((4, 3, 3, 3), "int8"), np.float32([1, 2, 3]), np.zeros(3), axis=1)
    made = net.emit(op.nn.conv2d_transpose(net.real(net.inputs[0], 0.05, 128), weight, groups=2))
    (left,) = float_operators(net.module(net.quantized(made, 0.2, 0, "uint8")))
    assert left.reason == "its weight has a scale per output within each group"
