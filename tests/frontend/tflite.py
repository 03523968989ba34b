"""TensorFlow Lite models of one operator each, and LiteRT's reference kernels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.oracles.litert import Litert
from tests.oracles.models import array
from tvmlab.models.tflite_form import Content, Quantized, Step, write

INFO = {"int8": (-128, 127), "uint8": (0, 255)}


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


def one(kind: str, y: Content, *operands: Content, table: str = "", **options: Any) -> Parts:
    """Write one operator of x0, x1, ...; those without values are inputs.

    The table of options is the operator's own if it has one, or the one that is named.
    """
    import tflite

    named = {"FusedActivationFunction": tflite.ActivationFunctionType, "Padding": tflite.Padding}
    numbers = {
        name: int(getattr(named[name], content)) if isinstance(content, str) else content
        for name, content in options.items()
    }
    own = "".join(map(str.capitalize, kind.split("_"))) + "Options"
    count = len(operands)
    tensors = {f"x{i}": operand for i, operand in enumerate(operands)}
    free = [i for i, x in enumerate(operands) if isinstance(getattr(x, "content", x), tuple)]
    table = table or (own if hasattr(tflite, own) else "")
    code = int(getattr(tflite.BuiltinOperator, kind))
    step = Step(code, [*range(count)], [count], table, numbers)
    return Parts({**tensors, "y": y}, [step], inputs=free)


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


def integers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers of all of a type's range, its ends among them."""
    low, high = INFO[dtype]
    made = np.random.default_rng([seed, *shape]).integers(low, high + 1, shape)
    made.flat[0], made.flat[-1] = low, high
    return made.astype(dtype)


def reference(content: bytes, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run a model by LiteRT's reference kernels, which define its arithmetic; its outputs."""
    return Litert(content).results(*inputs)


def value(shape: Any, dtype: str, scale: float = 0.05, zero: int | None = None) -> Quantized:
    """A quantized value; the zero point lies off the middle if it is not given."""
    low, high = INFO[dtype]
    return Quantized(shape, dtype, [scale], [(low + high) // 2 + 7 if zero is None else zero])


def ints(*numbers: Any) -> Quantized:
    """A constant of int32."""
    return Quantized(np.array(numbers[0] if len(numbers) == 1 else numbers), "int32")


def weights(shape: tuple[int, ...], dtype: str, axis: int = 0, each: bool = True) -> Quantized:
    """Weights: int8 by channel or with one scale, uint8 as a whole with a zero point."""
    if dtype == "uint8":
        return Quantized(integers(shape, "uint8", 5), "uint8", [0.02], [121])
    content = np.maximum(integers(shape, "int8", 5), -127)
    if not each:
        return Quantized(content, "int8", [0.02], [0])
    scales = 0.01 * (1 + np.arange(shape[axis]) % 3)
    return Quantized(content, "int8", scales, [0] * shape[axis], axis)


def bias(count: int, weight: Quantized) -> Quantized:
    content = np.random.default_rng(9).integers(-2000, 2000, count).astype("int32")
    scales = np.asarray(weight.scale) * 0.05
    return Quantized(content, "int32", scales, [0] * len(scales))


def convolution(dtype: str, fused: str = "NONE", pad: str = "SAME", by: int = 1, dilation: int = 1):
    weight, size = weights((5, 3, 3, 4), dtype), 9 if pad == "SAME" else 9 - 2 * dilation
    return one(
        *("CONV_2D", value((1, -(-size // by), -(-size // by), 5), dtype, 0.3)),
        *(value((1, 9, 9, 4), dtype), weight, bias(5, weight)),
        **{"table": "Conv2DOptions", "Padding": pad, "StrideH": by, "StrideW": by},
        **{"DilationHFactor": dilation, "DilationWFactor": dilation},
        FusedActivationFunction=fused,
    )


def depthwise(dtype: str, fused: str = "NONE", channels: int = 4, multiplier: int = 1) -> Parts:
    results = channels * multiplier
    weight = weights((1, 3, 3, results), dtype, 3)
    return one(
        *("DEPTHWISE_CONV_2D", value((1, 4, 4, results), dtype, 0.1)),
        *(value((1, 8, 8, channels), dtype), weight, bias(results, weight)),
        **{"table": "DepthwiseConv2DOptions", "Padding": "SAME", "StrideH": 2, "StrideW": 2},
        **{"DepthMultiplier": multiplier, "DilationHFactor": 1, "DilationWFactor": 1},
        FusedActivationFunction=fused,
    )


def dense(dtype: str, fused: str = "NONE", each: bool = False, biased: bool = True) -> Parts:
    weight = weights((6, 10), dtype, each=each)
    more = [bias(6, weight)] if biased else []
    x, y = value((3, 10), dtype), value((3, 6), dtype, 0.3)
    return one("FULLY_CONNECTED", y, x, weight, *more, FusedActivationFunction=fused)


def binary(kind: str, dtype: str, fused: str = "NONE", other: Any = None) -> Parts:
    shape = (1, 5, 5, 3)
    other = other or value(shape, dtype, 0.011, 0 if dtype == "int8" else 120)
    out = value(shape, dtype, 0.02 if kind == "MUL" else 0.06)
    return one(kind, out, value(shape, dtype), other, FusedActivationFunction=fused)


def pool(
    kind: str, dtype: str, fused: str = "NONE", pad: str = "VALID", same: bool = True
) -> Parts:
    shape = (1, 3, 3, 3) if pad == "VALID" else (1, 4, 4, 3)
    y = value(shape, dtype) if same else value(shape, dtype, 0.04, 3)
    return window(kind, value((1, 7, 7, 3), dtype), y, (3, 3), 2, pad, fused)


def window(
    kind: str, x: Quantized, y: Quantized, size: Any, by: int, pad: str, fused: str
) -> Parts:
    return one(
        *(f"{kind}_POOL_2D", y, x),
        **{"table": "Pool2DOptions", "Padding": pad, "StrideH": by, "StrideW": by},
        **{"FilterHeight": size[0], "FilterWidth": size[1], "FusedActivationFunction": fused},
    )


def convolutional(pooling: str = "AVERAGE_POOL_2D") -> bytes:
    """A convolution with bias and ReLU, then average pooling: [1, 8, 8, 2] to [1, 4, 4, 3].

    `pooling` is the name of another operator to put in the place of the pooling's.
    """
    strides = {"Padding": "SAME", "StrideH": 1, "StrideW": 1, "FusedActivationFunction": "RELU"}
    size = {"Padding": "VALID", "FilterHeight": 2, "FilterWidth": 2, "StrideH": 2, "StrideW": 2}
    operands = ((1, 8, 8, 2), array(3, 3, 3, 2), array(3))
    first = one("CONV_2D", (1, 8, 8, 3), *operands, table="Conv2DOptions", **strides)
    second = one(pooling, (1, 4, 4, 3), (1, 8, 8, 3), table="Pool2DOptions", **size)
    joined = together({"convolved": first, "pooled": second})
    joined.steps[1].inputs, joined.inputs, joined.outputs = [3], [0], [5]
    return joined.content
