"""The layers of MLPerf Tiny's ResNet-8 in TensorFlow Lite form, with seeded weights."""

from __future__ import annotations

import math

import numpy as np

from ..support.extras import need
from .tflite_form import Content, Quantized, Step, write

__all__ = ["resnet8_tflite"]

_SCALE = 0.05  # of all activations: their standard deviation stays about 1


def resnet8_tflite(seed: int = 0) -> bytes:
    """Return an int8 network with the layers, shapes and dtypes of MLPerf Tiny's ResNet-8.

    The network takes int8 [1, 32, 32, 3] and returns int8 [1, 10]. It replaces the trained file
    ``resnet8_int8.tflite`` where only sizes matter, for example for an accelerator's cycles.
    """
    tflite = need("tflite", extra="tflite")
    kinds = tflite.BuiltinOperator
    relu = {"FusedActivationFunction": tflite.ActivationFunctionType.RELU}
    rng = np.random.default_rng(seed)
    tensors: dict[str, Content] = {}
    steps: list[Step] = []

    def value(shape: tuple[int, ...], scale: float = _SCALE, zero_point: int = 0) -> int:
        tensors[f"value{len(tensors)}"] = Quantized(shape, "int8", [scale], [zero_point])
        return len(tensors) - 1

    def weights(shape: tuple[int, ...], channels: int) -> tuple[int, int]:
        """Add filters and a bias, with scales that keep the spread of the data."""
        taps = math.prod(shape[1:])
        scale = rng.uniform(0.8, 1.2, channels) / (73 * math.sqrt(taps))
        integers = rng.integers(-127, 128, shape, dtype="int8")
        scales = [float(one) for one in scale.astype("float32")]
        bias = rng.integers(-2000, 2000, shape[0], dtype="int32")
        zeros = [0] * channels
        tensors[f"filters{len(tensors)}"] = Quantized(integers, "int8", scales, zeros)
        products = [one * _SCALE for one in scales]
        tensors[f"bias{len(tensors)}"] = Quantized(bias, "int32", products, zeros)
        return len(tensors) - 2, len(tensors) - 1

    def convolution(
        data: int, size: int, inside: int, out: int, kernel: int, stride: int = 1, act: bool = True
    ) -> int:
        filters, bias = weights((out, kernel, kernel, inside), out)
        made = value((1, size, size, out), zero_point=-128 if act else 0)
        window = {"Padding": tflite.Padding.SAME, "StrideH": stride, "StrideW": stride}
        options = {**window, **(relu if act else {})}
        steps.append(Step(kinds.CONV_2D, [data, filters, bias], [made], "Conv2DOptions", options))
        return made

    def add(left: int, right: int, size: int, channels: int) -> int:
        made = value((1, size, size, channels), zero_point=-128)
        steps.append(Step(kinds.ADD, [left, right], [made], "AddOptions", dict(relu)))
        return made

    x = convolution(value((1, 32, 32, 3)), 32, 3, 16, 3)
    x = add(x, convolution(convolution(x, 32, 16, 16, 3), 32, 16, 16, 3, act=False), 32, 16)
    for size, inside in [(16, 16), (8, 32)]:
        out = 2 * inside
        path = convolution(x, size, inside, out, 3, stride=2)
        path = convolution(path, size, out, out, 3, act=False)
        x = add(convolution(x, size, inside, out, 1, stride=2, act=False), path, size, out)
    pooled = value((1, 1, 1, 64), zero_point=-128)
    window = {"FilterHeight": 8, "FilterWidth": 8, "StrideH": 8, "StrideW": 8}
    valid = {"Padding": tflite.Padding.VALID}
    steps.append(Step(kinds.AVERAGE_POOL_2D, [x], [pooled], "Pool2DOptions", {**window, **valid}))
    tensors["shape"] = Quantized(np.array([1, 64]), "int32")
    shape, flat = len(tensors) - 1, value((1, 64), zero_point=-128)
    steps.append(Step(kinds.RESHAPE, [pooled, shape], [flat], "ReshapeOptions"))
    dense, bias = weights((10, 64), 1)
    logits = value((1, 10))
    steps.append(
        Step(kinds.FULLY_CONNECTED, [flat, dense, bias], [logits], "FullyConnectedOptions")
    )
    result = value((1, 10), 1 / 256, -128)
    steps.append(Step(kinds.SOFTMAX, [logits], [result], "SoftmaxOptions", {"Beta": 1.0}))
    return write(tensors, steps)
