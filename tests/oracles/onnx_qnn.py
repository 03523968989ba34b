"""Quantized ONNX models: of one operator, and networks drawn at random as ONNX Runtime has them.

And the processors on which ONNX Runtime's own integers are a reference.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper

import tvmlab
from tests.oracles.models import by_onnx_runtime, model, node, quickly, value, weight

x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="ONNX Runtime's kernels round otherwise here"
)
ENDS = {"uint8": (0, 255), "int8": (-128, 127)}
STEPS = (
    *("conv", "conv", "conv", "add", "sub", "mul", "concat", "max_pool"),
    *("avg_pool", "clip", "excite", "constant"),
)


def kind_of(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class Value(NamedTuple):
    """A tensor with its scale and zero point: an input by its shape, or a constant by its values.

    Without a scale it is an operand by itself; with the zero point None that is left out.
    """

    content: Any
    scale: Any = None
    zero: Any = None
    dtype: str = "uint8"


def integers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Numbers of all of a type's range."""
    info = np.iinfo(dtype)
    random = np.random.default_rng([seed, *shape])
    return random.integers(info.min, info.max, shape, dtype, endpoint=True)


def parameters(name: str, scale: Any, zero: Any, dtype: str) -> list[Any]:
    """A scale and a zero point as initializers, ``NAME_s`` and ``NAME_z``."""
    arrays = {"s": np.asarray(scale, "float32"), "z": np.asarray(zero, dtype)}
    return [weight(f"{name}_{letter}", content) for letter, content in arrays.items()]


def operator(
    kind: str,
    operands: dict[str, Value],
    y: Value,
    more: Sequence[Any] = (),
    first: Sequence[Any] = (),
    order: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """Write one operator of several values; its operands come in the order of their names.

    `more` are initializers that other nodes, `first`, read; `order` is of names, ``"y"`` among
    them, where the result's scale does not come last.
    """
    names, parts, inputs = [], [*more], []
    known = {tensor.name for tensor in more} | {name for one in first for name in one.output}
    for name in order or (*operands, "y"):
        one = y if name == "y" else operands[name]
        if name != "y":
            names.append(name)
            if isinstance(one.content, tuple):
                inputs.append(value(name, kind_of(one.dtype), one.content))
            else:
                parts.append(weight(name, one.content))
        if one.scale is None:
            continue
        names += [f"{name}_s", "" if one.zero is None else f"{name}_z"]
        given = parameters(name, one.scale, 0 if one.zero is None else one.zero, one.dtype)
        parts += [tensor for tensor in given if tensor.name not in known]
    domain = "" if kind in ("QLinearConv", "QLinearMatMul") else "com.microsoft"
    made = node(kind, names, ["y"], domain=domain, **attributes)
    out = [value("y", kind_of(y.dtype), y.content)]
    return model([*first, made], inputs, out, parts, domains=[domain] * bool(domain))


def within(
    proto: onnx.ModelProto, *inputs: np.ndarray, steps: float = 1, share: float = 0.02
) -> Any:
    """Compare with ONNX Runtime: integers differ by a step in few places at most."""
    before = proto.SerializeToString()
    mod = tvmlab.load(proto)
    assert proto.SerializeToString() == before, "the user's model is changed"
    results, expected = quickly(mod, *inputs), by_onnx_runtime(proto, *inputs)
    for ours, theirs in zip(results, expected, strict=True):
        close(ours, theirs, steps, share)
    return mod


def close(result: np.ndarray, expected: np.ndarray, steps: float, share: float) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert len(np.unique(expected)) > 1 or expected.size == 1
    difference = np.abs(result.astype("float64") - expected.astype("float64"))
    assert difference.max() <= steps
    assert (difference > 0).sum() <= max(2, share * difference.size) * bool(steps)


class DrawnOnnx:
    """A network in which each operator's result is quantized, and each quantize is a result.

    Half of them have powers of two as scales, or such times 3/4 or 5/4: then half-way cases abound.

    Attributes
    ----------
    model : onnx.ModelProto
        The input `x`; the results are all integers that are quantized on the way.
    image : numpy.ndarray
        An input.
    made_by : list of str
        The operators before each quantize.
    """

    def __init__(self, seed, kind="uint8", steps=6):
        self.choose, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.kind, self.round = kind, seed % 2 == 0
        self.nodes, self.constants, self.shapes, self.parameters = [], [], {}, {}
        size = self.choose.choice((11, 16))
        shape = (1, self.choose.choice((3, 4, 8)), size, size)
        self.image = self.rng.standard_normal(shape).astype("float32")
        self.values = [(self.quantized("x", 2.0, shape), 2.0)]
        for _ in range(steps):
            x, reach = self.choose.choice(self.values[-3:])
            step = getattr(self, self.choose.choice(STEPS))
            self.values.append(step(x, reach, self.shapes[x]))
        self.head(*self.values[-1])
        self.model = self.proto(shape)

    def proto(self, shape):
        quantizes = [node for node in self.nodes if node.op_type == "QuantizeLinear"]
        maker = {node.output[0]: node.op_type for node in self.nodes}
        self.made_by = [maker.get(node.input[0], "") for node in quantizes]
        results = [value(node.output[0], kind_of(self.kind), None) for node in quantizes]
        return model(self.nodes, {"x": shape}, results, self.constants)

    def constant_of(self, values):
        name = f"c{len(self.constants)}"
        self.constants.append(weight(name, values))
        return name

    def node(self, kind, inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(node(kind, inputs, [name], **attributes))
        return name

    def quantized(self, x, reach, shape, positive=False, like=None):
        """Quantize a value and dequantize it, at a scale for its reach or at another's."""
        if like is None:
            low, high = ENDS[self.kind]
            middle = (low + high + 1) // 2
            scale = reach / (high - low) * (1 if positive else 2) * self.choose.uniform(0.7, 1.1)
            if self.round:
                scale = 2.0 ** np.round(np.log2(scale)) * self.choose.choice((1, 1, 0.75, 1.25))
            zero = (
                low if positive else middle + self.choose.choice((0, self.choose.randint(-30, 30)))
            )
            given = np.float32(scale), np.asarray(zero, self.kind)
        else:
            given = self.parameters[like]
        names = [self.constant_of(part) for part in given]
        integers = self.node("QuantizeLinear", [x, *names])
        real = self.node("DequantizeLinear", [integers, *names])
        self.shapes[real], self.parameters[real] = shape, given
        return real

    def weighted(self, x, shape, reach):
        """Give a weight, by output or with one scale, and a bias at the sums' scale."""
        count = shape[0]
        each = (count,) if self.choose.random() < 0.7 else ()
        if self.round:
            scale = (2.0 ** -self.rng.integers(7, 9, each)).astype("float32")
        else:
            scale = (self.rng.uniform(0.5, 1.5, each) / 300).astype("float32")
        axis = {"axis": 0} if each else {}
        integers = self.rng.integers(-127, 128, shape).astype("int8")
        parts = [integers, scale, np.zeros(each, "int8")]
        weight = self.node("DequantizeLinear", [self.constant_of(part) for part in parts], **axis)
        own = self.parameters[x][0] * scale
        bias = np.round(self.rng.standard_normal(count) * reach / 4 / own).astype("int32")
        parts = [bias, own.astype("float32"), np.zeros(each, "int32")]
        return weight, self.node(
            "DequantizeLinear", [self.constant_of(part) for part in parts], **axis
        )

    def conv(self, x, reach, shape):
        channels = shape[1]
        groups = self.choose.choice((1, 1, channels))
        made = channels if groups > 1 else self.choose.choice((4, 8))
        taps, stride = self.choose.choice((1, 3)), self.choose.choice((1, 1, 2))
        reach *= 0.2 * np.sqrt(channels // groups * taps**2)
        weight, bias = self.weighted(x, (made, channels // groups, taps, taps), reach)
        inputs = [x, weight, bias][: self.choose.choice((2, 3, 3))]
        how = {"kernel_shape": [taps] * 2, "pads": [taps // 2] * 4, "strides": [stride] * 2}
        y = self.node("Conv", inputs, group=groups, **how)
        size = (shape[2] - 1) // stride + 1
        return self.maybe_relu(y, reach, (1, made, size, size))

    def maybe_relu(self, y, reach, shape):
        positive = self.choose.random() < 0.5
        y = self.node("Relu", [y]) if positive else y
        return self.quantized(y, reach, shape, positive), reach

    def other(self, x):
        return self.choose.choice([v for v in self.values if self.shapes[v[0]] == self.shapes[x]])

    def add(self, x, reach, shape, kind="Add"):
        y, more = self.other(x)
        reach = (reach + more) * 0.7
        return self.maybe_relu(self.node(kind, [x, y]), reach, shape)

    def sub(self, x, reach, shape):
        return self.add(x, reach, shape, "Sub")

    def mul(self, x, reach, shape):
        y, more = self.other(x)
        reach = reach * more * 0.5
        return self.quantized(self.node("Mul", [x, y]), reach, shape), reach

    def concat(self, x, reach, shape):
        if shape[1] > 8:
            return self.add(x, reach, shape)
        y, more = self.other(x)
        reach, joined = max(reach, more), self.node("Concat", [x, y], axis=1)
        return self.quantized(joined, reach, (1, 2 * shape[1], *shape[2:])), reach

    def max_pool(self, x, reach, shape):
        if shape[2] < 4:
            return self.add(x, reach, shape)
        ceil = self.choose.choice((0, 1))
        y = self.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=ceil)
        size = (shape[2] + ceil) // 2
        return self.quantized(y, reach, (*shape[:2], size, size), like=x), reach

    def avg_pool(self, x, reach, shape):
        counted = self.choose.choice((0, 1))
        how = {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": counted}
        return self.quantized(self.node("AveragePool", [x], **how), reach / 2, shape), reach / 2

    def clip(self, x, reach, shape):
        ends = [self.constant_of(np.float32(end)) for end in (0, min(6, reach / 2))]
        return self.quantized(self.node("Clip", [x, *ends]), reach / 2, shape, True), reach / 2

    def excite(self, x, reach, shape):
        """Squeeze and excite: a mean, a convolution, a product by channel."""
        channels = shape[1]
        small = (*shape[:2], 1, 1)
        mean = self.quantized(self.node("GlobalAveragePool", [x]), reach / 2, small)
        inputs = [mean, *self.weighted(mean, (channels, channels, 1, 1), reach)]
        gain = self.quantized(self.node("Conv", inputs, kernel_shape=[1, 1]), reach / 2, small)
        return self.quantized(self.node("Mul", [x, gain]), reach**2 / 3, shape), reach**2 / 3

    def constant(self, x, reach, shape):
        """Add a quantized constant, or multiply by one."""
        low, high = ENDS[self.kind]
        values = self.rng.integers(low, high + 1, (1, shape[1], 1, 1)).astype(self.kind)
        parts = [values, np.float32(reach / 200), np.asarray((low + high) // 2, self.kind)]
        y = self.node("DequantizeLinear", [self.constant_of(part) for part in parts])
        kind = self.choose.choice(("Add", "Mul"))
        return self.quantized(self.node(kind, [x, y]), reach * 1.3, shape), reach * 1.3

    def head(self, x, reach):
        """End as classifiers do."""
        channels, reach = self.shapes[x][1], reach / 2
        mean = self.node("GlobalAveragePool", [x])
        mean = self.quantized(mean, reach, (1, channels, 1, 1))
        flat = self.quantized(self.node("Flatten", [mean]), reach, (1, channels), like=mean)
        inputs = [flat, *self.weighted(flat, (5, channels), reach)]
        self.quantized(self.node("Gemm", inputs, transB=1), reach * np.sqrt(channels) / 4, (1, 5))
