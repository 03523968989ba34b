"""Quantized TensorFlow Lite models of one operator each, and LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.frontend.tflite import Content, Quantized, Step, write
from tests.oracles.litert import Litert


@dataclass
class Parts:
    """What a model is written of: tensors, steps, and the numbers of its inputs and outputs."""

    tensors: dict[str, Content]
    steps: list[Step]
    inputs: list[int] = field(default_factory=lambda: [0])
    outputs: list[int] = field(default_factory=list)

    @property
    def content(self) -> bytes:
        return write(self.tensors, self.steps, inputs=self.inputs, outputs=self.outputs)


def together(parts: dict[str, Parts]) -> Parts:
    """One model of many, side by side: all that is compiled at once is compiled faster."""
    made = Parts({}, [], [])
    for name, part in parts.items():
        first = len(made.tensors)
        made.tensors |= {f"{name}.{key}": content for key, content in part.tensors.items()}
        made.steps += [
            replace(
                step,
                inputs=[first + i for i in step.inputs],
                outputs=[first + i for i in step.outputs],
            )
            for step in part.steps
        ]
        made.inputs += [first + i for i in part.inputs]
        made.outputs.append(len(made.tensors) - 1)
    return made


INFO = {"int8": (-128, 127), "uint8": (0, 255)}


def integers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers of all of a type's range, its ends among them."""
    low, high = INFO[dtype]
    made = np.random.default_rng([seed, *shape]).integers(low, high + 1, shape)
    made.flat[0], made.flat[-1] = low, high
    return made.astype(dtype)


def reference(content: bytes, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run a model by LiteRT's reference kernels, which define its arithmetic; its outputs."""
    return Litert(content).results(*inputs)


def value(
    shape: tuple[int, ...], dtype: str, scale: float = 0.05, zero: int | None = None
) -> Quantized:
    """A quantized value; the zero point lies off the middle if it is not given."""
    low, high = INFO[dtype]
    return Quantized(shape, dtype, [scale], [(low + high) // 2 + 7 if zero is None else zero])


def code(name: str) -> int:
    import tflite

    return int(getattr(tflite.BuiltinOperator, name))


def activation(name: str) -> int:
    import tflite

    return int(getattr(tflite.ActivationFunctionType, name))


def padding(name: str) -> int:
    import tflite

    return int(getattr(tflite.Padding, name))


def _weights(shape: tuple[int, ...], dtype: str, channels: int, axis: int) -> tuple[Any, Any]:
    """Weights and their scales: int8 by channel, uint8 as a whole with a zero point."""
    if dtype == "uint8":
        weight = Quantized(integers(shape, "uint8", 5), "uint8", [0.02], [121])
        return weight, np.full(channels, 0.02)
    scales = 0.01 * (1 + np.arange(channels) % 3)
    content = np.maximum(integers(shape, "int8", 5), -127)
    return Quantized(content, "int8", scales, [0] * channels, axis), scales


def _bias(channels: int, scales: np.ndarray, dtype: str) -> Quantized:
    content = np.random.default_rng(9).integers(-2000, 2000, channels).astype("int32")
    scale = scales[:1] * 0.05 if dtype == "uint8" else scales * 0.05
    return Quantized(content, "int32", scale, [0] * len(scale))


def convolution(
    dtype: str, fused: str = "NONE", pad: str = "SAME", stride: int = 1, dilation: int = 1
) -> Parts:
    weight, scales = _weights((5, 3, 3, 4), dtype, 5, 0)
    size = 9 if pad == "SAME" else 9 - 2 * dilation
    tensors: dict[str, Content] = {
        "x": value((1, 9, 9, 4), dtype),
        "weight": weight,
        "bias": _bias(5, scales, dtype),
        "y": value((1, -(-size // stride), -(-size // stride), 5), dtype, 0.3),
    }
    options = {
        "Padding": padding(pad),
        "StrideH": stride,
        "StrideW": stride,
        "DilationHFactor": dilation,
        "DilationWFactor": dilation,
        "FusedActivationFunction": activation(fused),
    }
    return Parts(tensors, [Step(code("CONV_2D"), [0, 1, 2], [3], "Conv2DOptions", options)])


def depthwise(dtype: str, fused: str = "NONE", channels: int = 4, multiplier: int = 1) -> Parts:
    results = channels * multiplier
    weight, scales = _weights((1, 3, 3, results), dtype, results, 3)
    tensors: dict[str, Content] = {
        "x": value((1, 8, 8, channels), dtype),
        "weight": weight,
        "bias": _bias(results, scales, dtype),
        "y": value((1, 4, 4, results), dtype, 0.1),
    }
    if dtype == "uint8":
        weight.axis = 0
    options = {
        "Padding": padding("SAME"),
        "StrideH": 2,
        "StrideW": 2,
        "DepthMultiplier": multiplier,
        "DilationHFactor": 1,
        "DilationWFactor": 1,
        "FusedActivationFunction": activation(fused),
    }
    kind = "DepthwiseConv2DOptions"
    return Parts(tensors, [Step(code("DEPTHWISE_CONV_2D"), [0, 1, 2], [3], kind, options)])


def dense(dtype: str, fused: str = "NONE", by_channel: bool = False, bias: bool = True) -> Parts:
    weight, scales = _weights((6, 10), dtype, 6, 0)
    if not by_channel:
        weight.scale, weight.zero_point = [0.02], weight.zero_point[:1]
        scales = np.full(1, 0.02)
    tensors = {"x": value((3, 10), dtype), "weight": weight}
    if bias:
        tensors["bias"] = _bias(6, scales, dtype)
    tensors["y"] = value((3, 6), dtype, 0.3)
    inputs = [0, 1, 2] if bias else [0, 1]
    options = {"FusedActivationFunction": activation(fused)}
    kind = "FullyConnectedOptions"
    return Parts(tensors, [Step(code("FULLY_CONNECTED"), inputs, [len(inputs)], kind, options)])


def dense_of_pictures(dtype: str) -> Parts:
    """A dense layer that reads [1, 2, 2, 5] as one row of 20."""
    weight, _ = _weights((6, 20), "uint8" if dtype == "uint8" else "int8", 6, 0)
    weight.scale, weight.zero_point = [0.02], weight.zero_point[:1]
    tensors: dict[str, Content] = {"x": value((1, 2, 2, 5), dtype), "weight": weight}
    tensors["y"] = value((1, 6), dtype, 0.3)
    return Parts(tensors, [Step(code("FULLY_CONNECTED"), [0, 1], [2], "FullyConnectedOptions")])


def binary(kind: str, dtype: str, fused: str = "NONE", constant: bool = False) -> Parts:
    shape = (1, 5, 5, 3)
    other = value((3,) if constant else shape, dtype, 0.011, 0 if dtype == "int8" else 120)
    if constant:
        other.content = integers((3,), dtype, 3)
    scale = 0.02 if kind == "MUL" else 0.06
    tensors = {"a": value(shape, dtype), "b": other, "y": value(shape, dtype, scale)}
    options = {"FusedActivationFunction": activation(fused)}
    table = f"{kind.capitalize()}Options"
    return Parts(
        tensors,
        [Step(code(kind), [0, 1], [2], table, options)],
        inputs=[0] if constant else [0, 1],
    )


def pool(
    kind: str, dtype: str, fused: str = "NONE", pad: str = "VALID", same: bool = True
) -> Parts:
    size = (3, 3) if pad == "VALID" else (4, 4)
    y = value((1, *size, 3), dtype) if same else value((1, *size, 3), dtype, 0.04, 3)
    tensors = {"x": value((1, 7, 7, 3), dtype), "y": y}
    options = {
        "Padding": padding(pad),
        "StrideH": 2,
        "StrideW": 2,
        "FilterHeight": 3,
        "FilterWidth": 3,
        "FusedActivationFunction": activation(fused),
    }
    return Parts(tensors, [Step(code(f"{kind}_POOL_2D"), [0], [1], "Pool2DOptions", options)])


def mean(dtype: str, keep: bool = True, same: bool = True) -> Parts:
    shape = (1, 1, 1, 5) if keep else (1, 5)
    tensors: dict[str, Content] = {
        "x": value((1, 7, 6, 5), dtype),
        "axes": Quantized(np.array([1, 2]), "int32"),
        "y": value(shape, dtype) if same else value(shape, dtype, 0.02, 9),
    }
    return Parts(tensors, [Step(code("MEAN"), [0, 1], [2], "ReducerOptions", {"KeepDims": keep})])


def joined(dtype: str) -> Parts:
    """Two tensors along their channels; LiteRT takes different scales of uint8 only."""
    same = dtype == "int8"
    b = value((1, 3, 4, 5), dtype) if same else value((1, 3, 4, 5), dtype, 0.09, 10)
    y = value((1, 3, 4, 8), dtype) if same else value((1, 3, 4, 8), dtype, 0.06)
    tensors = {"a": value((1, 3, 4, 3), dtype), "b": b, "y": y}
    options = {"Axis": 3}
    return Parts(
        tensors,
        [Step(code("CONCATENATION"), [0, 1], [2], "ConcatenationOptions", options)],
        inputs=[0, 1],
    )


def padded(dtype: str, with_value: bool = False) -> Parts:
    tensors: dict[str, Any] = {
        "x": value((1, 3, 4, 2), dtype),
        "widths": Quantized(np.array([[0, 0], [1, 2], [0, 1], [0, 0]]), "int32"),
    }
    if with_value:
        given = value((1,), dtype)
        given.content = np.array([17], dtype)
        tensors["value"] = given
    tensors["y"] = value((1, 6, 5, 2), dtype)
    inputs = [*range(len(tensors) - 1)]
    kind = "PadV2Options" if with_value else "PadOptions"
    return Parts(
        tensors, [Step(code("PADV2" if with_value else "PAD"), inputs, [len(inputs)], kind)]
    )


def reshaped(dtype: str, kind: str) -> Parts:
    x = value((1, 4, 1, 6), dtype)
    if kind == "RESHAPE":
        to = Quantized(np.array([2, 12]), "int32")
        tensors: dict[str, Content] = {"x": x, "to": to, "y": value((2, 12), dtype)}
        options = {"NewShape": [2, 12]}
        return Parts(tensors, [Step(code(kind), [0, 1], [2], "ReshapeOptions", options)])
    if kind == "SQUEEZE":
        tensors: dict[str, Content] = {"x": x, "y": value((4, 6), dtype)}
        options = {"SqueezeDims": [0, 2]}
        return Parts(tensors, [Step(code(kind), [0], [1], "SqueezeOptions", options)])
    if kind == "EXPAND_DIMS":
        axis = Quantized(np.array(1), "int32")
        tensors: dict[str, Content] = {"x": x, "axis": axis, "y": value((1, 1, 4, 1, 6), dtype)}
        return Parts(tensors, [Step(code(kind), [0, 1], [2], "ExpandDimsOptions")])
    if kind == "TRANSPOSE":
        order = Quantized(np.array([0, 3, 1, 2]), "int32")
        tensors: dict[str, Content] = {"x": x, "order": order, "y": value((1, 6, 4, 1), dtype)}
        return Parts(tensors, [Step(code(kind), [0, 1], [2], "TransposeOptions")])
    if kind == "SLICE":
        tensors: dict[str, Content] = {
            "x": x,
            "begin": Quantized(np.array([0, 1, 0, 2]), "int32"),
            "size": Quantized(np.array([1, 2, 1, -1]), "int32"),
            "y": value((1, 2, 1, 4), dtype),
        }
        return Parts(tensors, [Step(code(kind), [0, 1, 2], [3], "SliceOptions")])
    assert kind == "STRIDED_SLICE"
    tensors: dict[str, Content] = {
        "x": x,
        "begin": Quantized(np.array([0, 0, 0, 1]), "int32"),
        "end": Quantized(np.array([1, 4, 1, 6]), "int32"),
        "strides": Quantized(np.array([1, 2, 1, 2]), "int32"),
        "y": value((1, 2, 1, 3), dtype),
    }
    return Parts(tensors, [Step(code(kind), [0, 1, 2, 3], [4], "StridedSliceOptions")])


def unary(kind: str, dtype: str, **more: Any) -> Parts:
    low, _ = INFO[dtype]
    y = value((2, 9), dtype)
    if kind in ("SOFTMAX", "LOGISTIC"):
        y = value((2, 9), dtype, 1 / 256, low)
    if kind == "TANH":
        y = value((2, 9), dtype, 1 / 128, low + 128)
    if kind in ("RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "HARD_SWISH"):
        y = value((2, 9), dtype, 0.04, low + 9)
    tables: dict[str, tuple[str, dict[str, Any]]] = {
        "SOFTMAX": ("SoftmaxOptions", {"Beta": 1.0}),
        "LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.1}),
        "HARD_SWISH": ("HardSwishOptions", {}),
    }
    table, options = tables.get(kind, ("", {}))
    options = {**options, **more}
    return Parts({"x": value((2, 9), dtype), "y": y}, [Step(code(kind), [0], [1], table, options)])


def requantized(dtype: str, to: str) -> Parts:
    tensors = {"x": value((4, 64), dtype, 0.031), "y": value((4, 64), to, 0.05, 3)}
    return Parts(tensors, [Step(code("QUANTIZE"), [0], [1], "QuantizeOptions")])


def quantized(to: str) -> Parts:
    tensors = {"x": (4, 64), "y": value((4, 64), to)}
    return Parts(tensors, [Step(code("QUANTIZE"), [0], [1], "QuantizeOptions")])


def dequantized(dtype: str) -> Parts:
    tensors = {"x": value((4, 64), dtype), "y": (4, 64)}
    return Parts(tensors, [Step(code("DEQUANTIZE"), [0], [1], "DequantizeOptions")])


FUSED = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
#: By name, a function of the dtype that writes a model of one operator.
CASES: dict[str, Callable[[str], Parts]] = {
    **{f"conv2d {f}": lambda d, f=f: convolution(d, f) for f in FUSED},
    "conv2d stride": lambda d: convolution(d, "RELU", stride=2),
    "conv2d valid": lambda d: convolution(d, pad="VALID", stride=2),
    "conv2d dilated": lambda d: convolution(d, pad="VALID", dilation=2),
    **{f"depthwise {f}": lambda d, f=f: depthwise(d, f) for f in ("NONE", "RELU6")},
    "depthwise multiplied": lambda d: depthwise(d, multiplier=2),
    "depthwise of one channel": lambda d: depthwise(d, channels=1, multiplier=4),
    **{f"dense {f}": lambda d, f=f: dense(d, f) for f in ("NONE", "RELU")},
    "dense by channel": lambda d: dense(d, by_channel=d == "int8"),
    "dense of pictures": dense_of_pictures,
    "dense without bias": lambda d: dense(d, bias=False),
    **{f"add {f}": lambda d, f=f: binary("ADD", d, f) for f in FUSED},
    "sub": lambda d: binary("SUB", d),
    "mul": lambda d: binary("MUL", d, "RELU6"),
    "add constant": lambda d: binary("ADD", d, constant=True),
    **{f"average pool {f}": lambda d, f=f: pool("AVERAGE", d, f) for f in ("NONE", "RELU6")},
    "average pool padded": lambda d: pool("AVERAGE", d, pad="SAME"),
    **{f"max pool {f}": lambda d, f=f: pool("MAX", d, f) for f in ("NONE", "RELU_N1_TO_1")},
    "max pool padded": lambda d: pool("MAX", d, pad="SAME"),
    "mean": mean,
    "mean without axes": lambda d: mean(d, keep=False),
    "mean to another scale": lambda d: mean(d, same=False),
    "concatenation": joined,
    "pad": padded,
    "pad with a value": lambda d: padded(d, True),
    **{
        kind.lower(): lambda d, kind=kind: reshaped(d, kind)
        for kind in ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "SLICE", "STRIDED_SLICE")
    },
    **{
        kind.lower(): lambda d, kind=kind: unary(kind, d)
        for kind in (
            "SOFTMAX", "LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU",
            "HARD_SWISH",
        )
    },
    "softmax with beta": lambda d: unary("SOFTMAX", d, Beta=0.5),
    "requantize": lambda d: requantized(d, d),
    "requantize to the other type": lambda d: requantized(d, "int8" if d == "uint8" else "uint8"),
    "quantize": quantized,
    "dequantize": dequantized,
}  # fmt: skip
