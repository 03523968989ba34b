"""The layers of a quantized TensorFlow Lite model, computed one by one by our arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.litert import Array, Layer, Tensor, same_padding
from tvmlab.qnn import arithmetic
from tvmlab.qnn.reference import tflite as kernels


@dataclass
class Given:
    """A layer with its inputs: what is known of them, their values, and the result's tensor."""

    layer: Layer
    tensors: list[Tensor]
    data: list[Array]
    out: Tensor
    rounding: str

    def option(self, name: str, otherwise: int = 0) -> int:
        """Give an option of the operator; what it has not is `otherwise`."""
        return int(getattr(self.layer.options, name, lambda: otherwise)())


def replay(layer: Layer, tensors: list[Tensor], values: dict[int, Array], rounding: str) -> Array:
    """Compute an operator from LiteRT's own inputs: `values`, by tensor, but for constants."""
    given = Given(
        layer,
        [tensors[i] for i in layer.inputs],
        [values[i] if i in values else _constant(tensors[i]) for i in layer.inputs],
        tensors[layer.output],
        rounding,
    )
    found = OPERATORS[layer.name](given)
    fused = given.option("FusedActivationFunction")
    assert fused in (0, 1), "none or ReLU"
    return np.maximum(found, np.array(given.out.zero, found.dtype)) if fused else found


def _constant(tensor: Tensor) -> Array:
    assert tensor.values is not None
    return tensor.values


def requantized(sums: Array, given: Given) -> Array:
    """Bring sums to a layer's result.

    LiteRT's kernels for int8 take the product of the scales as it is, those for uint8 round it to
    float32, but for fully connected layers, which multiply in float64 and round once.
    """
    layer, (x, weight, *_) = given.layer.name, given.tensors
    scales = np.float64(x.scale) * np.asarray(weight.scales, "float32")
    dense = layer == "FULLY_CONNECTED"
    if x.dtype == "uint8" and not dense:
        scales = scales.astype("float32")
    return arithmetic.requantize(
        sums,
        scales,
        0,
        *_pair(given.out),
        rounding=given.rounding,
        compute_dtype="float64" if dense and given.rounding == "TFLITE" else "int64",
        out_dtype=given.out.dtype,
    )


def _binary(function: Callable[..., Array]) -> Callable[[Given], Array]:
    def compute(given: Given) -> Array:
        pairs = [value for tensor in (*given.tensors, given.out) for value in _pair(tensor)]
        return function(*given.data, *pairs, rounding=given.rounding)

    return compute


def _convolution(given: Given) -> Array:
    (x, weight, bias), deep = given.data, given.layer.name.startswith("DEPTH")
    strides = [given.option("StrideH"), given.option("StrideW")]
    dilation = [given.option("DilationHFactor"), given.option("DilationWFactor")]
    if deep:
        weight = weight.reshape(*weight.shape[1:3], x.shape[3], -1)
    window = weight.shape[:2] if deep else weight.shape[1:3]
    sums = arithmetic.conv2d(
        x,
        weight,
        given.tensors[0].zero,
        given.tensors[1].zero,
        given.tensors[0].scale,
        given.tensors[1].scales,
        strides=strides,
        padding=_padding(given, window, strides, dilation),
        dilation=dilation,
        groups=x.shape[3] if deep else 1,
        data_layout="NHWC",
        # With one channel there are no groups, so that "O" has to be the multiplier.
        kernel_layout=("HWOI" if x.shape[3] > 1 else "HWIO") if deep else "OHWI",
    )
    return requantized(sums + bias, given)


def _dense(given: Given) -> Array:
    x, weight, *bias = given.data
    first, second = given.tensors[:2]
    sums = arithmetic.dense(
        x.reshape(len(x), -1), weight, first.zero, second.zero, first.scale, second.scale
    )
    return requantized(sums + bias[0] if bias else sums, given)


def _average(given: Given) -> Array:
    window = [given.option("FilterHeight"), given.option("FilterWidth")]
    strides = [given.option("StrideH"), given.option("StrideW")]
    return arithmetic.avg_pool2d(
        given.data[0],
        *_pair(given.tensors[0]),
        *_pair(given.out),
        window,
        strides,
        _padding(given, window, strides, [1, 1]),
        [1, 1],
        count_include_pad=False,
        rounding=given.rounding,
    )


def _mean(given: Given) -> Array:
    x, axes = given.data
    scales, zeros = (
        [getattr(tensor, name) for tensor in (given.tensors[0], given.out)]
        for name in ("scale", "zero")
    )
    return kernels.mean(x, axes.tolist(), scales, zeros, bool(given.option("KeepDims")))


def _concatenation(given: Given) -> Array:
    scales, zeros = (
        [getattr(tensor, name) for tensor in given.tensors] for name in ("scale", "zero")
    )
    return arithmetic.concatenate(
        given.data, scales, zeros, *_pair(given.out), given.option("Axis")
    )


OPERATORS: dict[str, Callable[[Given], Array]] = {
    "ADD": _binary(arithmetic.add),
    "AVERAGE_POOL_2D": _average,
    "CONCATENATION": _concatenation,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "FULLY_CONNECTED": _dense,
    "MEAN": _mean,
    "MUL": _binary(arithmetic.mul),
    "SUB": _binary(arithmetic.subtract),
}


def _padding(
    given: Given, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    import tflite

    if given.option("Padding") == tflite.Padding.VALID:
        return [0, 0, 0, 0]
    return same_padding(given.data[0].shape[1:3], window, strides, dilation)


def _pair(tensor: Tensor) -> tuple[Any, int]:
    return tensor.scale, tensor.zero
