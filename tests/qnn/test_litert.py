"""Models of one operator, imported and computed by the reference, against LiteRT's kernels.

Scales, zero points, shapes and attributes are drawn at random. `tests/contract` and `make referee`
have whole networks, layer by layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

import tvmlab
from tests.oracles import litert
from tests.oracles.litert import Array, Litert, Model, Tensor, constant, same_padding, write
from tests.qnn import cases
from tests.qnn.cases import Case, module
from tests.qnn.run import run
from tvmlab.qnn import arithmetic
from tvmlab.qnn.analysis import float_operators
from tvmlab.qnn.transform import FakeQuantizationToInteger

tflite = pytest.importorskip("tflite", reason="tflite is not installed")
pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")

SEEDS = range(12)


class Draw(cases.Draw):
    """Random scales, zero points, values and sizes of models."""

    def scale(self, low: float = 0.002, high: float = 0.2) -> float:  # type: ignore[override]
        return float(np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def zero(self, dtype: str) -> int:  # type: ignore[override]
        return 0 if dtype == "int16" else int(super().zero(dtype))

    def tensor(self, shape: Iterable[int], dtype: str, low: float = 0.002) -> Tensor:
        return Tensor(list(shape), dtype, [self.scale(low)], [self.zero(dtype)])


def differences(model: Model, *inputs: Array, rounding: str = "TFLITE") -> Array:
    """Run a model of one operator both ways; give how far each value is from LiteRT's."""
    content = write(model)
    expected = Litert(content).run(*inputs)
    integer = FakeQuantizationToInteger(rounding)(tvmlab.load(content))
    left = {one.reason for one in float_operators(integer)}
    assert left <= {"its scales differ by too much"}  # only for int16
    found, _ = run(integer, *inputs)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    return np.abs(found.astype(np.int64) - expected.astype(np.int64))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("code", ["ADD", "SUB", "MUL"])
def test_elementwise(code: str, dtype: str, seed: int) -> None:
    draw = Draw(seed)
    shape, other = (1, 30, 40), [(1, 30, 40), (1, 1, 40)][seed % 2]
    lhs, rhs, out = (draw.tensor(size, dtype) for size in (shape, other, shape))
    if seed % 3 == 0:  # Powers of two make half-way cases.
        lhs.scales, rhs.scales, out.scales = [0.0625], [0.03125], [0.0078125 * 2 ** (seed // 3)]
    # Without this, int16 with powers of two is what a special kernel computes.
    options = {} if code == "MUL" else {"PotScaleInt16": False}
    model = Model(code, [lhs, rhs, out], code.capitalize() + "Options", options)
    x, y = draw.values(shape, dtype), draw.values(other, dtype)
    assert not differences(model, x, y).any()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_average_pooling(dtype: str, seed: int) -> None:
    draw = Draw(seed)
    size = [draw.whole(4, 11), draw.whole(4, 11)]
    window, strides = ([draw.whole(1, high), draw.whole(1, high)] for high in (3, 2))
    padding = [tflite.Padding.SAME, tflite.Padding.VALID][seed % 2]
    pads = same_padding(size, window, strides, [1, 1]) if seed % 2 == 0 else [0] * 4
    out = [(size[i] + pads[i] + pads[i + 2] - window[i]) // strides[i] + 1 for i in range(2)]
    x = draw.tensor([2, *size, 5], dtype)
    words = ("Padding", "StrideH", "StrideW", "FilterHeight", "FilterWidth")
    options = dict(zip(words, (padding, *strides, *window), strict=True))
    result = Tensor([2, *out, 5], dtype, x.scales, x.zeros)
    model = Model("AVERAGE_POOL_2D", [x, result], "Pool2DOptions", options)
    assert not differences(model, draw.values(x.shape, dtype)).any()


@pytest.mark.parametrize("axes", [(1, 2), (2, 1), (1,), (3,), (1, 2, 3)])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_mean(dtype: str, axes: tuple[int, ...]) -> None:
    for seed in range(4):
        draw = Draw(seed)
        shape = [4, draw.whole(2, 11), draw.whole(2, 11), 20]
        keep = seed % 2
        left = [1 if i in axes else size for i, size in enumerate(shape) if keep or i not in axes]
        x, out = draw.tensor(shape, dtype), draw.tensor(left, dtype, 0.02)
        if seed == 3:
            out.scales, out.zeros = x.scales, x.zeros
        tensors = [x, constant(np.array(axes, "int32")), out]
        model = Model("MEAN", tensors, "ReducerOptions", {"KeepDims": keep})
        apart = differences(model, draw.values(shape, dtype))
        assert apart.max() <= 1  # LiteRT divides and rounds, then rounds again
        assert (apart > 0).mean() <= 0.15


def layer(
    code: str, tensors: list[Tensor], same: bool = False, strides: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1), multiplier: int = 1, activation: int = 0,
) -> Model:  # fmt: skip
    options = {
        "Padding": tflite.Padding.SAME if same else tflite.Padding.VALID,
        **dict(zip(("StrideH", "StrideW"), strides, strict=True)),
        **dict(zip(("DilationHFactor", "DilationWFactor"), dilation, strict=True)),
        "FusedActivationFunction": activation,
    }
    if code.startswith("DEPTH"):
        return Model(
            code, tensors, "DepthwiseConv2DOptions", options | {"DepthMultiplier": multiplier}
        )
    return Model(code, tensors, "Conv2DOptions", options)


def convolution(draw: Draw, code: str, dtype: str, seed: int) -> Model:
    """Make a convolution, dilated or with strides, padded or not."""
    deep = code.startswith("DEPTH")
    size, c = [draw.whole(6, 12), draw.whole(6, 12)], draw.whole(1, 5)
    taps = [draw.whole(1, 3), draw.whole(1, 3)]
    multiplier = draw.whole(1, 3)
    o = c * multiplier if deep else draw.whole(1, 8)
    strides = [2, 2] if seed % 3 == 1 else [1, 1]
    dilation = [draw.whole(1, 2), draw.whole(1, 2)] if seed % 3 == 2 else [1, 1]
    same = seed % 2 == 0
    pads = same_padding(size, taps, strides, dilation) if same else [0] * 4
    out = [
        (size[i] + pads[i] + pads[i + 2] - (taps[i] - 1) * dilation[i] - 1) // strides[i] + 1
        for i in range(2)
    ]
    x, y = draw.tensor([2, *size, c], dtype), draw.tensor([2, *out, o], dtype, 0.05)
    values = draw.values([1, *taps, o] if deep else [o, *taps, c], dtype)
    weight = constant(values, [draw.scale()], [draw.zero(dtype)])
    if dtype == "int8":  # One scale for each output channel, and no zero points.
        weight.axis = 3 if deep else 0
        weight.scales, weight.zeros = [draw.scale() for _ in range(o)], [0]
        weight.values = np.maximum(values, -127)
    products = [float(x.scale * np.float32(scale)) for scale in weight.scales]
    bias = constant(draw.rng.integers(-3000, 3000, o).astype("int32"), products)
    tensors = [x, weight, bias, y]
    return layer(code, tensors, same, strides, dilation, multiplier, seed // 3 % 2)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_convolutions(code: str, dtype: str, seed: int) -> None:
    draw = Draw(seed)
    model = convolution(draw, code, dtype, seed)
    x = draw.values(model.tensors[0].shape, dtype)
    assert not differences(model, x).any()
    for rounding in ("UPWARD", "TONEAREST"):
        assert differences(model, x, rounding=rounding).max() <= 1


@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_which_product_of_scales(dtype: str, code: str) -> None:
    """Where the product of scales and the one rounded to float32 give different results."""
    draw, met = Draw(0), 0
    for _ in range(10):
        first, second = draw.scale(), draw.scale()
        product = np.float64(np.float32(first)) * np.float64(np.float32(second))
        out = float(np.float32(product * np.exp(draw.rng.uniform(9, 13))))
        # Sums around the borders between two results.
        borders = (np.arange(-120, 120)[:, None] + 0.5) * (out / product) + np.arange(-3, 4)
        sums = borders.ravel().astype("int32")
        zero = 0 if dtype == "int8" else 128
        exact, rounded = (
            arithmetic.requantize(sums, scale, 0, out, zero, rounding="TFLITE", out_dtype=dtype)
            for scale in (product, np.float32(product))
        )
        bias = sums[exact != rounded]
        n, deep = len(bias), code.startswith("DEPTH")
        if not n:
            continue
        met += n
        shape = (1, 1, 1, n) if deep else (n, 1, 1, 1)
        weight = constant(np.ones(shape, dtype), [second])
        x = Tensor([1, 1, 1, n if deep else 1], dtype, [first], [0])
        y = Tensor([1, 1, 1, n], dtype, [out], [zero])
        bias_tensor = constant(bias, [float(np.float32(product))])
        model = layer(code, [x, weight, bias_tensor, y])
        assert not differences(model, np.zeros(x.shape, dtype)).any()
    assert met > 20


def fully_connected(
    draw: Draw, dtype: str, scales: tuple[float, float, float], rows: int, inner: int, units: int
) -> Model:
    zero = 0 if dtype == "int8" else draw.zero(dtype)
    x = Tensor([rows, inner], dtype, scales[:1], [draw.zero(dtype)])
    weight = constant(draw.values([units, inner], dtype), scales[1:2], [zero])
    product = float(np.float32(scales[0]) * np.float32(scales[1]))
    bias = constant(draw.rng.integers(-5000, 5000, units).astype("int32"), [product])
    y = Tensor([rows, units], dtype, scales[2:], [draw.zero(dtype)])
    return Model("FULLY_CONNECTED", [x, weight, bias, y], "FullyConnectedOptions", {})


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("factor", [0.3, 2.0, 6.0, 120.0, 1000.0, 1024.0])
def test_fully_connected(dtype: str, factor: float) -> None:
    """Even factors make sums that lie half-way between two results."""
    for seed in range(3):
        draw = Draw(seed)
        first, second = (draw.scale(), draw.scale()) if seed else (0.5, 0.25)
        out = float(np.float32(first) * np.float32(second) * np.float32(factor))
        model = fully_connected(draw, dtype, (first, second, out), 200, 40, 30)
        x = draw.values(model.tensors[0].shape, dtype)
        assert not differences(model, x).any()
        for rounding in ("UPWARD", "TONEAREST"):
            assert differences(model, x, rounding=rounding).max() <= 1


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_fully_connected_adds_the_zero_point_after_rounding(dtype: str) -> None:
    """Half-way sums, below the zero point too, in the reference and in the compiled kernels."""
    made, expected = [], []
    sums = np.arange(-130, 130, dtype="int32")
    for scale, out_scale, zero in ((0.5, 1.0, 3), (0.5, 1.0, 100), (0.25, 1.5, 7), (1.5, 1.0, 40)):
        x, one = Tensor([1, 1], dtype, [scale]), np.ones([len(sums), 1], dtype)
        y = Tensor([1, len(sums)], dtype, [out_scale], [zero])
        weight, bias = constant(one, [1.0]), constant(sums, [scale])
        model = Model("FULLY_CONNECTED", [x, weight, bias, y], "FullyConnectedOptions", {})
        expected.append(litert.run(model, np.zeros([1, 1], dtype)).ravel())
        points = [np.array(scale), np.int32(0), np.float32(out_scale), np.int32(zero)]
        way = {"rounding": "TFLITE", "compute_dtype": "float64", "out_dtype": dtype}
        made.append(Case("requantize", [sums, *map(np.asarray, points)], (0,), way))
    mod, inputs = module(made)
    scheduled, plain = (tvmlab.compile(mod, schedule=each)(*inputs) for each in (True, False))
    for case, *found, wanted in zip(made, scheduled, plain, expected, strict=True):
        for result in (case.expected(), *found):
            np.testing.assert_array_equal(result, wanted, err_msg=str(case))


def test_concatenation() -> None:
    """LiteRT's kernel for int8 takes only what has the result's scale and zero point."""
    draw = Draw(0)
    tensors = [Tensor([2, n, 5], "int8", [0.1], [7]) for n in (3, 1, 4, 8)]
    model = Model("CONCATENATION", tensors, "ConcatenationOptions", {"Axis": 1})
    values = [draw.values(tensor.shape, "int8") for tensor in tensors[:3]]
    assert not differences(model, *values).any()
