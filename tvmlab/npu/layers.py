"""The code generator's view of a region: values, and layers that map to `tvmlab.npu.isa`.

Zero points are folded into the bias, padding into the window, scales into multipliers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .isa import Dtype, PoolKind, Rounding

Array = npt.NDArray[np.generic]
Pair = tuple[int, int]
Sides = tuple[int, int, int, int]


@dataclass(frozen=True)
class Value:
    """A tensor with a `layout` of NCHW, NHWC, NC or C, the memory order of inputs and results."""

    name: str
    dtype: Dtype
    shape: tuple[int, ...]
    layout: str

    @property
    def nhwc(self) -> tuple[int, int, int, int]:
        """The shape as images; rows of a matrix become the pixels of one image row."""
        size = dict(zip(self.layout, self.shape, strict=True))
        if "H" not in size:
            return 1, 1, size.get("N", 1), size["C"]
        return size["N"], size["H"], size["W"], size["C"]

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.bytes


@dataclass(frozen=True, eq=False)
class Rescale:
    """A multiplication by a real number, or by one per channel, and a cast that saturates.

    `multipliers` are int32, float32 (`ONNX`) or float64 (`TFLITE_FLOAT64`) of shape [1] or
    [channels]; `shifts` are int32 of the same shape, or empty if the multipliers are floats. Both
    are empty for `NONE`. `zero_point` is added, then the result is clipped to `low` and `high`.
    """

    rounding: Rounding
    multipliers: Array
    shifts: Array
    zero_point: int
    low: int
    high: int

    def clipped(self, low: int, high: int) -> Rescale:
        """Return a copy with a tighter clip."""
        return replace(self, low=max(self.low, low), high=min(self.high, high))


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer: its name in reports, and the names of its inputs and output."""

    name: str
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True, eq=False)
class Convolution(Layer):
    """A convolution, depthwise convolution or matrix product, with its epilogue.

    `weights` are int8 [kernel_h, kernel_w, channels, out_channels], or for a depthwise convolution
    int8 or int16 [kernel_h, kernel_w, channels]; `bias` is int32 [out_channels]. Padding (top,
    left, bottom, right) has the `pad_value`. Sums are clipped, then rescaled.
    """

    weights: Array
    bias: npt.NDArray[np.int32]
    pad_value: int
    strides: Pair
    dilation: Pair
    pads: Sides
    sum_low: int
    sum_high: int
    rescale: Rescale

    @property
    def depthwise(self) -> bool:
        """Whether each channel is convolved with its own filter."""
        return self.weights.ndim == 3


class Side(NamedTuple):
    """One side of an addition: fields of `isa.Add`."""

    zero: int
    rounding: Rounding
    multiplier: int
    shift: int


@dataclass(frozen=True, eq=False)
class Add(Layer):
    """An addition of two values of one shape; the last step, `out`, adds its `zero` at the end."""

    sides: tuple[Side, ...]
    left_shift: int
    out: Side
    low: int
    high: int


@dataclass(frozen=True, eq=False)
class Pool(Layer):
    """A pooling, with the fields of `isa.Pool`; pads are top, left, bottom, right."""

    kind: PoolKind
    kernel: Pair
    strides: Pair
    dilation: Pair
    pads: Sides
    count_pad: bool
    in_zero: int
    out_zero: int
    multiplier: int
    shift: int


@dataclass(frozen=True, eq=False)
class Mean(Layer):
    """A sum over all pixels of an image, and its rescaling; fields as in `isa.Sum`."""

    low: int
    start: int
    rescale: Rescale


@dataclass(frozen=True, eq=False)
class View(Layer):
    """A reshape that keeps the numbers in order, so it needs no instruction."""


@dataclass(frozen=True)
class Region:
    """The values of one function by name, its inputs and outputs, and its layers in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, Value]
    layers: tuple[Layer, ...]
