"""Small regions to compile: a builder, and random networks made with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tvmlab.npu import layers
from tvmlab.npu.config import Config
from tvmlab.npu.isa import Dtype, PoolKind, Rounding
from tvmlab.npu.layers import Region, Rescale, Side, Value
from tvmlab.qnn.fixed_point import fixed_point_multipliers

Array = Any
FIXED = (Rounding.UPWARD, Rounding.TONEAREST, Rounding.TFLITE)
WAYS = (*FIXED, Rounding.ONNX, Rounding.TFLITE_FLOAT64)


class Builder:
    """A region that grows."""

    def __init__(self, seed: int = 0, dtype: Dtype = Dtype.uint8, layout: str = "NHWC") -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype, self.layout = dtype, layout
        self.values: dict[str, Value] = {}
        self.layers: list[layers.Layer] = []
        self.inputs: list[str] = []

    def value(self, size: tuple[int, ...], dtype: Dtype | None = None, layout: str = "") -> str:
        """Add a value of nhwc size, or of (n, c)."""
        layout = layout or ("NC" if len(size) == 2 else self.layout)
        shape = tuple(size[i] for i in (0, 3, 1, 2)) if layout == "NCHW" else size
        name = f"v{len(self.values)}"
        kind = self.dtype if dtype is None else dtype
        self.values[name] = Value(name, kind, shape, layout)
        return name

    def input(self, *size: int) -> str:
        self.inputs.append(self.value(size))
        return self.inputs[-1]

    def rescale(self, way: Rounding, channels: int, wide: int, dtype: Dtype) -> Rescale:
        """A rescaling that brings sums of about `wide` to the dtype's range."""
        low, high = limits(dtype)
        if way is Rounding.NONE:
            none = np.zeros(0, np.int32)
            return Rescale(way, none, none, 0, low, high)
        count = int(self.rng.choice([1, channels]))
        ratios = self.rng.uniform(0.5, 2, count) * 100 / max(1, wide)
        zero = int(self.rng.integers(-5, 6)) + (128 if dtype is Dtype.uint8 else 0)
        if way is Rounding.ONNX:
            multipliers, shifts = ratios.astype(np.float32), np.zeros(0, np.int32)
        elif way is Rounding.TFLITE_FLOAT64:
            multipliers, shifts = ratios, np.zeros(0, np.int32)
        else:
            multipliers, shifts = (a.astype(np.int32) for a in fixed_point_multipliers(ratios))
        return Rescale(way, multipliers, shifts, zero, low, high)

    def conv(
        self,
        source: str,
        channels: int,
        kernel: tuple[int, int] = (1, 1),
        strides: tuple[int, int] = (1, 1),
        dilation: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        *,
        depthwise: bool = False,
        way: Rounding = Rounding.UPWARD,
        dtype: Dtype | None = None,
        layout: str = "",
        wide_weights: bool = False,
    ) -> str:
        n, h, w, c = self.values[source].nhwc
        out = self.dtype if dtype is None else dtype
        size = [
            (length + before + after - (k - 1) * d - 1) // s + 1
            for length, before, after, k, d, s in zip(
                (h, w), pads[:2], pads[2:], kernel, dilation, strides, strict=True
            )
        ]
        channels = c if depthwise else channels
        kind, top = (np.int16, 32767) if wide_weights and depthwise else (np.int8, 127)
        shape = (*kernel, c) if depthwise else (*kernel, c, channels)
        weights = self.rng.integers(-top, top + 1, shape).astype(kind)
        wide = int(np.sqrt(kernel[0] * kernel[1] * (1 if depthwise else c))) * 100 * top
        flat = self.values[source].layout == "NC"
        name = self.value((w, channels) if flat else (n, *size, channels), out, layout)
        low = int(self.rng.choice([-(1 << 31), 0]))
        self.layers.append(
            layers.Convolution(
                f"conv {name}",
                (source,),
                name,
                weights,
                self.rng.integers(-wide, wide + 1, channels).astype(np.int32),
                int(self.rng.integers(*limits(self.values[source].dtype), endpoint=True)),
                strides,
                dilation,
                pads,
                low,
                (1 << 31) - 1,
                self.rescale(Rounding.NONE if out is Dtype.int32 else way, channels, wide, out),
            )
        )
        return name

    def side(self, way: Rounding, ratio: float, zero: int) -> Side:
        if way is Rounding.NONE:
            return Side(zero, way, 0, 0)
        if way is Rounding.ONNX:
            return Side(0, way, int(np.array(ratio, np.float32).view(np.int32)), 0)
        multiplier, shift = fixed_point_multipliers(ratio)
        return Side(zero, way, int(multiplier), int(shift))

    def add(self, *sources: str, way: Rounding = Rounding.UPWARD, layout: str = "") -> str:
        first = self.values[sources[0]]
        size = first.nhwc[2:] if first.layout == "NC" else first.nhwc
        name = self.value(size, None, layout)
        low, high = limits(self.dtype)
        if way is Rounding.ONNX:
            sides = [self.side(way, float(self.rng.uniform(0.3, 0.8)), 0) for _ in sources]
            out = self.side(way, float(self.rng.integers(0, 20)), 0)
            shift = 0
        else:
            shift = int(self.rng.choice([0, 20]))
            zero = [int(z) for z in self.rng.integers(0, 20, 3)]
            ratios = self.rng.uniform(0.1, 0.9, 2)
            sides = [
                self.side(way, float(r), z) for r, z, _ in zip(ratios, zero, sources, strict=False)
            ]
            out = self.side(way if shift else Rounding.NONE, 2.0**-shift, zero[2])
        self.layers.append(
            layers.Add(f"add {name}", sources, name, tuple(sides), shift, out, low, high)
        )
        return name

    def pool(
        self,
        source: str,
        kind: PoolKind,
        kernel: tuple[int, int],
        strides: tuple[int, int] = (1, 1),
        dilation: tuple[int, int] = (1, 1),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        *,
        count_pad: bool = False,
        extra: int = 0,
        layout: str = "",
    ) -> str:
        n, h, w, c = self.values[source].nhwc
        size = [
            (length + before + after - (k - 1) * d - 1 + min(extra, s - 1)) // s + 1
            for length, before, after, k, d, s in zip(
                (h, w), pads[:2], pads[2:], kernel, dilation, strides, strict=True
            )
        ]
        name = self.value((n, *size, c), self.values[source].dtype, layout)
        ratio = float(self.rng.uniform(0.5, 1.5))
        multiplier, shift = int(ratio * 2**30), 30
        if kind is PoolKind.AVERAGE_ONNX:
            scales = np.float32([ratio * 0.3, 0.3])
            multiplier, shift = map(int, scales.view(np.int32))
        zeros = [int(z) for z in self.rng.integers(0, 9, 2)]
        self.layers.append(
            layers.Pool(
                f"pool {name}", (source,), name, kind, kernel, strides, dilation, pads,
                count_pad, *zeros, multiplier, shift,
            )
        )  # fmt: skip
        return name

    def mean(self, source: str, way: Rounding = Rounding.UPWARD) -> str:
        n, h, w, c = self.values[source].nhwc
        name = self.value((n, 1, 1, c))
        low = int(self.rng.choice([-(1 << 31), 10]))
        self.layers.append(
            layers.Mean(
                f"mean {name}", (source,), name, low, int(self.rng.integers(-99, 99)),
                self.rescale(way, c, h * w * 100, self.dtype),
            )
        )  # fmt: skip
        return name

    def view(self, source: str, size: tuple[int, ...], layout: str = "") -> str:
        name = self.value(size, self.values[source].dtype, layout)
        self.layers.append(layers.View(f"view {name}", (source,), name))
        return name

    def region(self, *outputs: str) -> Region:
        return Region(tuple(self.inputs), outputs, dict(self.values), tuple(self.layers))

    def data(self) -> list[Array]:
        """Random inputs."""
        found = []
        for name in self.inputs:
            value = self.values[name]
            info = np.iinfo(value.dtype.name)
            size = self.rng.integers(info.min, info.max + 1, value.shape)
            found.append(size.astype(value.dtype.name))
        return found


def limits(dtype: Dtype) -> tuple[int, int]:
    info = np.iinfo(dtype.name)
    return int(info.min), int(info.max)


SMALL = st.integers(1, 4)
CONFIGS = st.builds(
    Config,
    rows=st.sampled_from([3, 8, 16]),
    columns=st.sampled_from([4, 16]),
    lanes=st.sampled_from([5, 16]),
    sram_bytes=st.integers(700, 40_000),
    accumulators=st.integers(7, 3000),
)
DTYPES = st.sampled_from([Dtype.int8, Dtype.uint8])
LAYOUTS = st.sampled_from(["NHWC", "NCHW"])


@st.composite
def networks(draw: Callable[..., Any]) -> tuple[Builder, list[str]]:
    """A graph of several layers with residuals, several outputs, and values used more than once."""
    builder = Builder(draw(st.integers(0, 99)), draw(DTYPES), draw(LAYOUTS))
    n, side, c = draw(st.integers(1, 3)), draw(st.integers(4, 12)), draw(st.integers(1, 20))
    values = [builder.input(n, side, side, c)]
    if draw(st.booleans()):
        values.append(builder.input(n, side, side, c))
    for _ in range(draw(st.integers(1, 8))):
        source = draw(st.sampled_from(values))
        match draw(st.sampled_from(["3x3", "1x1", "depthwise", "pool", "add", "view", "rescale"])):
            case "3x3":
                stride = draw(st.sampled_from([(1, 1), (2, 2)]))
                one = builder.conv(source, 12, (3, 3), stride, pads=(1, 1, 1, 1))
            case "1x1":
                one = builder.conv(source, draw(st.sampled_from([c, 30])))
            case "depthwise":
                one = builder.conv(source, 0, (3, 3), pads=(1, 1, 1, 1), depthwise=True)
            case "pool":
                one = builder.pool(source, PoolKind.MAX, (3, 3), pads=(1, 1, 1, 1))
            case "add":
                size = builder.values[source].nhwc
                alike = [v for v in values if builder.values[v].nhwc == size]
                one = builder.add(source, draw(st.sampled_from(alike)))
            case "view":
                one = builder.view(source, builder.values[source].nhwc)
            case "rescale":
                one = builder.add(source)
        values.append(one)
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    return builder, [*outputs, values[-1]]


def residual(side: int) -> tuple[Builder, str]:
    builder = Builder(3)
    first = builder.conv(builder.input(1, side, side, 16), 16, (3, 3), pads=(1, 1, 1, 1))
    second = builder.conv(first, 16, (3, 3), pads=(1, 1, 1, 1))
    return builder, builder.add(first, second)
